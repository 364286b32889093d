"""Scenarios with a defect, one defect after another in one lab process.

A defect is a mutant of rules or of objects, as ``proxylab mutate`` makes them, or a replacement in the engine's code. A
new interpreter and lab process for each would cost more than most of the scenarios.
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from mutation import Replacement
from sandboxed import ROOT

from proxylab.client.open_lab import OpenLab
from proxylab.client.session import Session
from proxylab.engines.embedded.mutation import Mutation
from proxylab.engines.engine_names import mode_of, version_of
from proxylab.engines.protocol import EngineChoice
from proxylab.mutate.objects import ObjectMutation
from proxylab.scenario.cases import cases
from proxylab.scenario.load import load_scenario
from proxylab.scenario.model import Scenario
from proxylab.scenario.steps import Step
from proxylab.verdict.model import ProbeVerdict, StepVerdict

__all__ = ["Defect", "Judged", "MutatedLabs", "name_of", "title"]

Judged = ProbeVerdict | StepVerdict
Defect = Mutation | ObjectMutation | Replacement


class MutatedLabs:
    """A session that opens labs with a defect; its lab process reads a replacement before each lab."""

    def __init__(self, folder: Path, engine: str = "embedded/iptables", kernel: str = "host") -> None:
        self._engine = engine
        self._file = folder / "mutation.json"
        start = f"import mutation\nmutation.follow({str(self._file)!r})\n"
        (folder / "sitecustomize.py").write_text(start, encoding="utf-8")
        self._path = os.pathsep.join([str(folder), str(ROOT / "tests/kernel"), os.environ.get("PYTHONPATH", "")])
        self._session = Session(EngineChoice(engine, kernel=kernel))

    def close(self) -> None:
        self._session.close()

    def run(self, files: Iterable[Path], defect: Defect | None) -> list[tuple[Path, list[Judged]]]:
        """Every case of every file, with all of its verdicts.

        The defect ends before the caller looks at one: a caller that fails must not leave it to the next test.
        """
        with self._made(defect if isinstance(defect, Replacement) else None):
            return [
                (file, self._judged(case, defect))
                for file in files
                for case in cases(load_scenario(file), mode_of(self._engine), version_of(self._engine))
                if not case.failures  # a lab whose engine must not start has no verdicts
            ]

    @contextmanager
    def _made(self, replacement: Replacement | None) -> Iterator[None]:
        """Replace it in the lab process, and in this process, which makes plans and verdicts."""
        self._file.write_text(replacement.written() if replacement else "", encoding="utf-8")
        undo = replacement.make() if replacement else None
        try:
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("PYTHONPATH", self._path)  # of a lab process that starts meanwhile
                yield
        finally:
            if undo is not None:
                undo()

    def _judged(self, case: Scenario, defect: Defect | None) -> list[Judged]:
        """Run without the extra work for failures, which are the majority here."""
        lab = self._opened(case, defect)
        try:
            return [lab.conclude(each) if isinstance(each, Step) else lab.judged(each) for each in case.judged]
        finally:
            lab.close()

    def _opened(self, case: Scenario, defect: Defect | None) -> OpenLab:
        opened = partial(self._session.open, case)
        match defect:
            case Mutation():
                return opened(mutation=defect)
            case ObjectMutation():
                return opened(shown=defect)
            case _:
                return opened()


def title(judged: Judged) -> str:
    """With the case of the matrix."""
    return judged.step.name if isinstance(judged, StepVerdict) else judged.probe.name


def name_of(judged: Judged) -> str:
    """The author's name, without the case of the matrix."""
    return title(judged).partition("[")[0]
