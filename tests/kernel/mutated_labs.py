"""Scenarios on a mutated engine, one mutation after another in one lab process.

A new interpreter and lab process per mutation would cost more than most of the scenarios.
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from mutation import Mutation
from sandboxed import ROOT

from proxylab.client.session import Session
from proxylab.engines.engine_names import mode_of, version_of
from proxylab.engines.protocol import EngineChoice
from proxylab.scenario.cases import cases
from proxylab.scenario.load import load_scenario
from proxylab.scenario.model import Scenario
from proxylab.scenario.steps import Step
from proxylab.verdict.model import Judgement, ProbeVerdict, StepVerdict

__all__ = ["Judged", "MutatedLabs", "name_of", "notices", "title"]

Judged = ProbeVerdict | StepVerdict


class MutatedLabs:
    """A session whose lab process reads its mutation before each lab."""

    def __init__(self, folder: Path, engine: str = "embedded/iptables", kernel: str = "host") -> None:
        self._engine = engine
        self._file = folder / "mutation.json"
        start = f"import mutation\nmutation.follow({str(self._file)!r})\n"
        (folder / "sitecustomize.py").write_text(start, encoding="utf-8")
        self._path = os.pathsep.join([str(folder), str(ROOT / "tests/kernel"), os.environ.get("PYTHONPATH", "")])
        self._session = Session(EngineChoice(engine, kernel=kernel))

    def close(self) -> None:
        self._session.close()

    def run(self, files: Iterable[Path], mutation: Mutation | None) -> list[tuple[Path, list[Judged]]]:
        """Every case of every file, with all of its verdicts.

        The mutation ends before the caller looks at one: a caller that fails must not leave it to the next test.
        """
        with self._made(mutation):
            return [
                (file, self._judged(case))
                for file in files
                for case in cases(load_scenario(file), mode_of(self._engine), version_of(self._engine))
                if not case.failures  # a lab whose engine must not start has no verdicts
            ]

    @contextmanager
    def _made(self, mutation: Mutation | None) -> Iterator[None]:
        """Mutate the lab process, and this process, which makes plans and verdicts."""
        self._file.write_text(mutation.written() if mutation else "", encoding="utf-8")
        undo = mutation.make() if mutation else None
        try:
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("PYTHONPATH", self._path)  # of a lab process that starts meanwhile
                yield
        finally:
            if undo is not None:
                undo()

    def _judged(self, case: Scenario) -> list[Judged]:
        """Run without the extra work for failures, which are the majority here."""
        lab = self._session.open(case)
        try:
            return [lab.conclude(each) if isinstance(each, Step) else lab.judged(each) for each in case.judged]
        finally:
            lab.close()


def title(judged: Judged) -> str:
    """With the case of the matrix."""
    return judged.step.name if isinstance(judged, StepVerdict) else judged.probe.name


def name_of(judged: Judged) -> str:
    """The author's name, without the case of the matrix."""
    return title(judged).partition("[")[0]


def notices(verdicts: Iterable[Judged]) -> dict[str, set[str]]:
    """The probes that do not pass, with the expectations that fail."""
    return {
        title(each): {one.expectation for one in each.verdicts if one.judgement is Judgement.FAIL}
        for each in verdicts
        if each.overall is not Judgement.PASS
    }
