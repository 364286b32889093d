"""Cases for the judge, and all that it says of each: a change of its code compares both records.

Run from the root, with ``tests/support`` and ``lab`` in ``PYTHONPATH``::

    COLLECTED_CASES=FILE pytest -p judged_cases TESTS    collects what these tests show to the judge
    python -m judged_cases alter FILE MORE 10000         makes more of them: with altered evidence, the same each time
    python -m judged_cases judge FILE RECORD             what the judge, every report and the script say of each case
    python -m judged_cases compare RECORD RECORD         lists the differences
"""

import gzip
import json
import os
import random
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any, Final

import pytest
from msgspec import Struct
from msgspec.structs import replace

from proxylab.addresses import IPAddress
from proxylab.encoding import MisfitError, TaggedRecord, decode, encode
from proxylab.errors import LabError
from proxylab.evidence.evidence import Evidence
from proxylab.evidence.stream_records import StepEvidence
from proxylab.plan.dialled_service import DialledService
from proxylab.plan.model import Plan
from proxylab.plan.resolved import ResolvedProbe
from proxylab.report.document import to_json
from proxylab.report.failure_text import briefly, explain
from proxylab.report.html.entry import Heading, entry
from proxylab.report.reproduction.outcome import obstacle
from proxylab.report.trace_text import journey, trace_summary
from proxylab.scenario.probes import Probe
from proxylab.scenario.steps import Step
from proxylab.verdict.judge import judge, judge_step
from proxylab.verdict.model import ProbeVerdict, ScenarioResult, StepVerdict

MOST_FLOWS: Final = 300
"""Cases with more take long, and show no more."""


class OfProbe(TaggedRecord, frozen=True, kw_only=True):
    """A probe as the judge gets it, and what else its explanation reads."""

    probe: Probe
    resolved: ResolvedProbe
    source: IPAddress | None
    evidence: Evidence
    plan: Plan | None = None
    traced: Evidence | None = None
    service: DialledService | None = None


class OfStep(TaggedRecord, frozen=True, kw_only=True):
    """A step as the judge gets it."""

    step: Step
    number: int
    streams: tuple[ResolvedProbe, ...]
    sources: Mapping[str, Mapping[str, IPAddress]]
    nodes: tuple[str, ...]
    addresses: Mapping[str, tuple[IPAddress, ...]]
    evidence: StepEvidence
    lacks: Mapping[str, str]
    plan: Plan | None = None


CaseOfTest = OfProbe | OfStep


class _Collector:
    """A plugin of pytest that keeps the arguments of the judge's and the explanation's calls."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._found: dict[bytes, None] = {}
        self._codes = {judge.__code__: self._judged, judge_step.__code__: self._step, explain.__code__: self._explained}

    def pytest_runtest_call(self, item: pytest.Item) -> None:
        sys.setprofile(self._hear)

    def pytest_runtest_teardown(self) -> None:
        sys.setprofile(None)

    def pytest_sessionfinish(self) -> None:
        with gzip.open(self._file, "wb") as written:
            written.writelines(each + b"\n" for each in self._found)

    def _hear(self, frame: FrameType, event: str, _argument: object) -> None:
        if event == "call" and (keep := self._codes.get(frame.f_code)):
            keep(frame.f_locals)

    def _keep(self, case: CaseOfTest) -> None:
        flows = case.resolved.flows if isinstance(case, OfProbe) else 1
        if flows <= MOST_FLOWS:
            self._found.setdefault(encode(case))

    def _judged(self, given: Mapping[str, Any]) -> None:
        self._keep(OfProbe(**{name: given[name] for name in ("probe", "resolved", "source", "evidence")}))

    def _step(self, given: Mapping[str, Any]) -> None:
        names = ("step", "number", "sources", "addresses", "evidence")
        tuples = {name: tuple(given[name]) for name in ("streams", "nodes")}
        self._keep(OfStep(**{name: given[name] for name in names}, **tuples, lacks=dict(given["lacks"])))

    def _explained(self, given: Mapping[str, Any]) -> None:
        verdict = given["verdict"]
        if isinstance(verdict, ProbeVerdict):
            names = ("probe", "resolved", "source", "evidence", "plan", "traced", "service")
            self._keep(OfProbe(**{name: getattr(verdict, name) for name in names}))


def pytest_configure(config: pytest.Config) -> None:
    if file := os.environ.get("COLLECTED_CASES"):
        config.pluginmanager.register(_Collector(Path(file)))


def read_cases(file: Path) -> Iterator[CaseOfTest]:
    """The cases of a file, without those that no lab could record: some tests fill fields with other types."""
    with gzip.open(file, "rb") as lines:
        for line in lines:
            with suppress(MisfitError):
                yield decode(line, CaseOfTest)


def altered(value: Any, chance: random.Random) -> Any:
    """Evidence with one change: a record less, one twice, two in the other order, or another value in one field."""
    filled = [name for name in value.__struct_fields__ if isinstance(getattr(value, name), tuple | str | int)]
    names = [name for name in filled if getattr(value, name)] or filled
    name = chance.choice(names)
    old = getattr(value, name)
    if isinstance(old, tuple):
        at = chance.randrange(len(old)) if old else 0
        kind = chance.randrange(4) if old else 4
        if kind == 0:
            new = old[:at] + old[at + 1 :]
        elif kind == 1:
            new = (*old[:at], old[at], *old[at:])
        elif kind == 2:
            new = (*old[:at], *old[at + 1 :], old[at])
        elif kind == 3 and isinstance(old[at], Struct):
            new = (*old[:at], _with_other_field(old, at, chance), *old[at + 1 :])
        else:
            new = ()
    elif isinstance(old, bool):
        new = not old
    elif isinstance(old, int):
        new = chance.choice((0, old + 1, max(0, old - 1), old * 2))
    else:
        new = ""
    return replace(value, **{name: new})


def _with_other_field(records: tuple[Any, ...], at: int, chance: random.Random) -> Any:
    """The record with the value that another record has in one field; or with another number."""
    record = records[at]
    name = chance.choice(record.__struct_fields__)
    others = [getattr(each, name) for each in records if type(each) is type(record)]
    different = [each for each in others if each != getattr(record, name)]
    if different:
        return replace(record, **{name: chance.choice(different)})
    if type(getattr(record, name)) is int:
        return replace(record, **{name: max(0, getattr(record, name) + chance.choice((-1, 1, 10)))})
    return altered(record, chance) if record.__struct_fields__ else record


def more_cases(cases: list[CaseOfTest], count: int) -> Iterator[CaseOfTest]:
    """The cases, and then each again and again with one to three changes of its evidence."""
    yield from cases
    for number in range(count - len(cases)):
        chance = random.Random(number)
        case = cases[number % len(cases)]
        evidence = case.evidence
        for _ in range(chance.choice((1, 1, 2, 3))):
            evidence = altered(evidence, chance)
        yield replace(case, evidence=evidence)


def texts_of(case: CaseOfTest) -> dict[str, str]:
    """All that is said of a case, by what says it; the class of an error where one is raised."""
    try:
        verdict = _verdict(case)
    except Exception as error:  # an altered record may fit no lab: then the error is what is compared
        return {"judge": f"{type(error).__name__}: {error}"}
    said: dict[str, str] = {}

    def say(name: str, *lines: Any) -> None:
        said[name] = "\n".join(map(str, lines))

    writers: dict[str, Any] = {
        "judge": lambda: [encode(each).decode() for each in verdict.verdicts],
        "explain": lambda: explain(verdict),
        "briefly": lambda: briefly(verdict),
        "html": lambda: [encode(entry(Heading(file="a", engine="b"), verdict)).decode()],
        "json": lambda: [to_json([_result(verdict)])],
    }
    if isinstance(case, OfProbe):
        writers["obstacle"] = lambda: [obstacle(verdict)]
        writers["journey"] = lambda: journey(case.resolved, case.evidence)
        writers["trace"] = lambda: [trace_summary(case.probe, case.resolved, case.evidence, case.plan, case.service)]
    for name, write in writers.items():
        try:
            say(name, *write())
        except Exception as error:
            say(name, f"{type(error).__name__}: {error}" if isinstance(error, LabError) else type(error).__name__)
    return said


def _verdict(case: CaseOfTest) -> Any:
    if isinstance(case, OfProbe):
        verdict = judge(case.probe, case.resolved, case.source, case.evidence)
        return replace(verdict, plan=case.plan, traced=case.traced, service=case.service)
    given = (case.step, case.number, case.streams, case.sources, case.nodes, case.addresses, case.evidence, case.lacks)
    return replace(judge_step(*given), plan=case.plan)


def _result(verdict: ProbeVerdict | StepVerdict) -> ScenarioResult:
    probes, steps = ((), (verdict,)) if isinstance(verdict, StepVerdict) else ((verdict,), ())
    return ScenarioResult(file="a", name="b", engine="c", probes=probes, steps=steps)


def main(verb: str, first: Path, second: Path, count: str = "10000") -> int:
    if verb == "compare":
        return _compare(first, second)
    if verb == "alter":
        lines = (encode(each) for each in more_cases(list(read_cases(first)), int(count)))
    else:
        lines = (json.dumps(texts_of(each)).encode() for each in read_cases(first))
    with gzip.open(second, "wb") as written:
        written.writelines(line + b"\n" for line in lines)
    return 0


def _compare(first: Path, second: Path) -> int:
    different = total = 0
    with gzip.open(first, "rt") as before, gzip.open(second, "rt") as after:
        for number, (one, other) in enumerate(zip(before, after, strict=True)):
            total += 1
            if one != other:
                different += 1
                was, now = json.loads(one), json.loads(other)
                for name in sorted(was.keys() | now.keys()):
                    if was.get(name) != now.get(name):
                        print(f"case {number}, {name}:\n- {was.get(name)}\n+ {now.get(name)}")  # noqa: T201
    print(f"{different} of {total} cases differ")  # noqa: T201
    return int(different > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), *sys.argv[4:]))
