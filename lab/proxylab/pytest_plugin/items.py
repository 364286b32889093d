"""Scenario files as modules of pytest items: which items a file has, their order, ids and markers.

An id is the author's title, followed in brackets by the case of the matrix, by the engine and the kernel if several
run, and by the number of the repetition. It contains neither ``/`` nor ``::``, since pytest splits ids there. It is the
same in every collection: each xdist worker collects for itself, and all must find the same ids.
"""

import os
import types
from collections.abc import Iterable, Iterator
from itertools import product
from pathlib import Path
from typing import Any, Final

import pytest

from proxylab.client.open_lab import OpenLab
from proxylab.engines.engine_names import mode_of, version_of
from proxylab.errors import ScenarioError
from proxylab.oracle.promised import promised_cases
from proxylab.pytest_plugin.markers import markers_of
from proxylab.pytest_plugin.options import engines, engines_of, kernels, repeats
from proxylab.pytest_plugin.outcome import hold
from proxylab.scenario.cases import kernel_of
from proxylab.scenario.model import Scenario
from proxylab.scenario.probes import Probe
from proxylab.scenario.steps import Step
from proxylab.scenario.versions import Version
from proxylab.scenario.words import HOST

SUFFIX: Final = ".lab.yaml"

BROKEN_FILES: Final = pytest.StashKey[int]()
"""How many scenario files have mistakes."""

OPEN: Final = pytest.StashKey[OpenLab]()
"""The lab that an item has last used."""


def in_id(name: str) -> str:
    """An engine or a kernel in an id."""
    return name.replace("/", ".")


def is_of_a_scenario(nodeid: str) -> bool:
    """Whether an item with this id is a probe of a scenario file."""
    return f"{SUFFIX}::" in nodeid


class ScenarioFile(pytest.Module):
    """One scenario file. It is a ``Module``, not a ``File``: only modules can have module-scoped fixtures."""

    def _getobj(self) -> types.ModuleType:
        return types.ModuleType(self.path.name.removesuffix(SUFFIX))

    def collect(self) -> Iterable[pytest.Item]:
        """The scenario's probes, then each step's probes, followed by the step if it has expectations.

        Raises:
            CollectError: with every mistake in the file.
        """
        from proxylab.scenario.load import load_scenario  # noqa: PLC0415 - only scenario files need it

        try:
            scenario = load_scenario(Path(os.path.relpath(self.path)))
        except ScenarioError as error:
            self.config.stash[BROKEN_FILES] = self.config.stash.get(BROKEN_FILES, 0) + 1
            raise self.CollectError("\n".join(error.problems)) from None
        for run in _runs(self.config, scenario):
            markers = markers_of(self.config, run.scenario, run.engine)
            for number, judged in enumerate(run.scenario.judged):
                item = ProbeItem.from_parent(self, name=run.id_of(judged), callobj=hold, number=number, run=run)
                for marker in markers:
                    item.add_marker(marker)
                yield item


class CollectedRun:
    """One lab of a file: a case of its matrix on an engine and a kernel, in the nth repetition."""

    def __init__(
        self, written: Scenario, case: Scenario, engine: str, kernel: str = HOST, marks: tuple[str, ...] = ()
    ) -> None:
        self.scenario = case
        self.engine: Final = engine
        self.kernel: Final = kernel_of(case, kernel)
        self._written: Final = written
        self._version = version_of(engine)
        self._marks: Final = marks

    def settle(self, version: Version) -> None:
        """Apply ``except`` for the version that really runs: collection knows only the engine's name."""
        if version != self._version:
            known = promised_cases(self._written, mode_of(self.engine), version)
            self.scenario = next(each for each in known if each.case == self.scenario.case)
            self._version = version

    def id_of(self, judged: Probe | Step) -> str:
        """The id of a probe or step of this run."""
        if not self._marks:
            return judged.name
        words = self.scenario.case.words(judged.name)
        case = judged.name.removeprefix(words)[1:-1]
        return f"{words}[{'-'.join(filter(None, (case, *self._marks)))}]"


def _runs(config: pytest.Config, scenario: Scenario) -> Iterator[CollectedRun]:
    several, times = engines(config), repeats(config)
    taking = engines_of(config, scenario.tags)
    on = kernels(config)[: 1 if scenario.matrix.kernel else None]  # a case with this axis names its kernel itself
    for number, engine, kernel in product(range(1, times + 1), taking, on):
        for case in promised_cases(scenario, mode_of(engine), version_of(engine)):
            marks = [in_id(engine)] if len(several) > 1 else []
            marks += [in_id(kernel)] if len(on) > 1 else []
            marks += [f"{number} of {times}"] if times > 1 else []
            yield CollectedRun(scenario, case, engine, kernel, tuple(marks))


class ProbeItem(pytest.Function):
    """One probe of a scenario, or one step that expects something itself, on one engine."""

    def __init__(self, *, number: int, run: CollectedRun, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._number: Final = number
        self.run: Final = run

    @property
    def judged(self) -> Probe | Step:
        """The probe or step, with its expectations for the version that runs."""
        return self.run.scenario.judged[self._number]

    @property
    def scenario(self) -> Scenario:
        """The item's scenario, or case of it."""
        return self.run.scenario

    def reportinfo(self) -> tuple[Path, int, str]:
        """The item's line in the YAML file; pytest counts lines from 0."""
        return self.path, self.judged.position.line - 1, self.name
