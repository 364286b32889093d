"""The scenario of a Python test, in a file or in the test itself, and the case of it that is meant.

Owns: ``text_of``, ``parsed`` and ``case_of``.
Must not: import what reads scenarios before a test asks for a lab.
"""

import inspect
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from proxylab.engines.names import mode_of
from proxylab.errors import ScenarioError
from proxylab.scenario.cases import cases
from proxylab.scenario.model import Scenario

if TYPE_CHECKING:
    from proxylab.engines.protocol import EngineChoice

__all__ = ["case_of", "parsed", "text_of"]


def text_of(scenario: str | Path, test: Path) -> tuple[str, str]:
    """The text of a scenario, and the name of its file; text in a test is called after the test."""
    from proxylab.scenario.load import read_text  # noqa: PLC0415

    if isinstance(scenario, str) and "\n" in scenario:
        return inspect.cleandoc(scenario), f"{os.path.relpath(test)}:scenario"
    path = Path(os.path.relpath(test.parent / scenario))
    return read_text(path), str(path)


def parsed(text: str, file: str) -> Scenario:
    """A scenario of a test. Raises ``ScenarioError``."""
    from proxylab.scenario.load import parse_scenario  # noqa: PLC0415

    return parse_scenario(text, file)


def case_of(scenario: Scenario, engine: "EngineChoice", case: str) -> Scenario:
    """The one case of a scenario, or that with this id. Raises ``ScenarioError``; skips for want of a mode."""
    mode = mode_of(engine.name)
    known = cases(scenario, mode, engine.version)
    if not known:
        pytest.skip(f"{scenario.file} has no case for {mode}")
    fitting = [each for each in known if case in (each.case.id, "")]
    if len(fitting) != 1:
        ids = ", ".join(repr(each.case.id) for each in known)
        asked = f"no case {case!r}" if case else f"{len(known)} cases"
        raise ScenarioError([f"{scenario.file}: there is {asked} in its matrix; say case=… with one of {ids}"])
    return fitting[0]
