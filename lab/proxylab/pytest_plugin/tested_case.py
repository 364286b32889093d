"""The scenario of a Python test, from a file or from text in the test, and its case."""

import inspect
import os
from pathlib import Path

import pytest

from proxylab.engines.engine_names import mode_of
from proxylab.engines.protocol import EngineChoice
from proxylab.errors import ScenarioError
from proxylab.oracle.promised import promised_cases
from proxylab.scenario.model import Scenario


def text_of(scenario: str | Path, test: Path) -> tuple[str, str]:
    """The text of a scenario and the name of its file; a text in a test is named after the test."""
    from proxylab.scenario.load import read_text  # noqa: PLC0415

    if isinstance(scenario, str) and "\n" in scenario:
        return inspect.cleandoc(scenario), f"{os.path.relpath(test)}:scenario"
    path = Path(os.path.relpath(test.parent / scenario))
    return read_text(path), str(path)


def parsed(text: str, file: str) -> Scenario:
    """The scenario of a test. Raises ``ScenarioError``."""
    from proxylab.scenario.load import parse_scenario  # noqa: PLC0415

    return parse_scenario(text, file)


def case_of(scenario: Scenario, engine: EngineChoice, case: str) -> Scenario:
    """The case with this id, or the only one. Raises ``ScenarioError``; skips if the engine's mode has no case."""
    mode = mode_of(engine.name)
    known = promised_cases(scenario, mode, engine.version)
    if not known:
        pytest.skip(f"{scenario.file} has no case for {mode}")
    fitting = [each for each in known if case in (each.case.id, "")]
    if len(fitting) != 1:
        ids = ", ".join(repr(each.case.id) for each in known)
        problem = f"the matrix has no case {case!r}" if case else f"the matrix has {len(known)} cases"
        raise ScenarioError([f"{scenario.file}: {problem}; pass case=… with one of {ids}"])
    return fitting[0]
