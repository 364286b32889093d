"""The judge: recorded evidence against every expectation of a probe or a step. It passes nothing without proof.

Each expectation has a module in ``expectations``, which says what it needs. ``findings`` explains how findings weigh.
"""

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from msgspec.structs import replace

from proxylab.addresses import IPAddress
from proxylab.errors import InternalError
from proxylab.evidence.evidence import Evidence
from proxylab.evidence.stream_records import StepEvidence
from proxylab.plan.resolved import ResolvedProbe
from proxylab.scenario.expect import NodeDevice
from proxylab.scenario.probes import Probe
from proxylab.scenario.steps import Step
from proxylab.scenario.words import Outcome, Position
from proxylab.verdict.case import Case
from proxylab.verdict.dns import has_no_address
from proxylab.verdict.expectations.arrivals import ENDPOINT
from proxylab.verdict.expectations.table import OF_PROBES, OF_STEPS, OF_STREAMS
from proxylab.verdict.findings import Findings, Needs
from proxylab.verdict.model import Judgement, ProbeVerdict, StepVerdict, Verdict, expectations
from proxylab.verdict.step_case import StepCase

_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})
_WORTH: Final = (Judgement.PASS, Judgement.INCONCLUSIVE, Judgement.FAIL, Judgement.SKIP)
_NONE_ARRIVE = frozenset({Outcome.DROPPED, Outcome.REJECTED, Outcome.CLOSED})


def judge(probe: Probe, resolved: ResolvedProbe, source: IPAddress | None, evidence: Evidence) -> ProbeVerdict:
    """Judge every expectation of a probe.

    Args:
        probe: with what the author expects.
        resolved: the probe, resolved.
        source: the one address that ``expect.source`` stands for; ``None`` where it is the sender's or differs.
        evidence: what the lab recorded.

    Raises:
        InternalError: if ``expect.source`` names a node's device and ``source`` has no address for it.
    """
    if source is None and isinstance(probe.expect.source, NodeDevice):
        what = f"the plan gave no address for the source {probe.expect.source}"
        raise InternalError(f"{probe.expect.position}: {what}; please report this")
    if probe.expect.either:
        return _best(probe, resolved, source, evidence)
    case, follows = Case(probe, resolved, evidence, source), probe.expect.follows
    verdicts = tuple(replace(each, follows=follows.get(each.expectation, ())) for each in _verdicts(case))
    return ProbeVerdict(case=case, verdicts=verdicts)


def _best(probe: Probe, resolved: ResolvedProbe, source: IPAddress | None, evidence: Evidence) -> ProbeVerdict:
    """The verdict by the one of several results that the evidence shows best, where any of them is right."""
    order = tuple(Outcome)
    results = [replace(each, either=()) for each in (probe.expect, *probe.expect.either)]
    results.sort(key=lambda each: order.index(each.outcome))
    found = [judge(replace(probe, expect=each), resolved, source, evidence) for each in results]
    best = min(found, key=lambda verdict: _WORTH.index(verdict.overall))
    named = " or ".join(each.outcome for each in results)
    verdicts = (replace(each, expected=named) if each.expectation == "outcome" else each for each in best.verdicts)
    others = tuple(each for each in results if each != best.probe.expect)
    shown = replace(probe, expect=replace(best.probe.expect, either=others))
    return ProbeVerdict(case=Case(shown, resolved, evidence, source), verdicts=tuple(verdicts))


def skip(probe: Probe, resolved: ResolvedProbe, reason: str) -> ProbeVerdict:
    """The verdict on a probe that was not sent: the proxy's mode, or the machine, lacks what it asks for."""
    verdicts = tuple(
        _skipped(key, probe.expect.positions.get(key, probe.expect.position), reason, "not sent")
        for key in expectations(probe.expect)
    )
    return ProbeVerdict(case=Case(probe, resolved, Evidence(sent=0)), verdicts=verdicts)


def _skipped(key: str, position: Position, reason: str, observed: str = "") -> Verdict:
    return Verdict(
        expectation=key,
        judgement=Judgement.SKIP,
        expected="",
        observed=observed,
        reasons=(reason,),
        position=position,
    )


def _verdicts(case: Case) -> Iterator[Verdict]:
    """The verdicts in the order of the table, also where what an expectation needs cannot exist."""
    expect = case.expect
    by_name = case.resolved.question is not None
    undialled = by_name and has_no_address(case.resolved, case.evidence.lookups)
    for each in OF_PROBES:
        expected = each.expected_of(case)
        if expected is None or (expect.undecided and each.key not in (*expectations(expect), ENDPOINT.key)):
            continue
        if undialled and each.needs >= Needs.PACKETS:
            if each.key in expectations(expect):
                yield _undecided(case, each.key)
        elif each.needs is Needs.ARRIVALS and expect.outcome in _NONE_ARRIVE:
            yield _beside_the_point(case, each.key)
        else:
            yield each.judge(case, expected)


def _undecided(case: Case, key: str) -> Verdict:
    """An expectation about packets of a probe that sent none."""
    findings = Findings(case)
    findings.doubt("the probe dialled nothing, since the name gave no address")
    return findings.settle(key, expected="", observed="nothing dialled")


def _beside_the_point(case: Case, key: str) -> Verdict:
    """An expectation about pods, where the outcome lets no packet reach a pod: no evidence could decide it."""
    findings, outcome = Findings(case), case.expect.outcome
    findings.wrong(f"{key} needs packets at a pod, and the outcome {outcome} allows none: take one of the two out")
    return findings.settle(key, expected="", observed="")


def judge_step(
    step: Step,
    number: int,
    streams: Sequence[ResolvedProbe],
    sources: Mapping[str, Mapping[str, IPAddress]],
    nodes: Sequence[str],
    addresses: Mapping[str, tuple[IPAddress, ...]],
    evidence: StepEvidence,
    lacks: Mapping[str, str] = _NOTHING,
) -> StepVerdict:
    """Judge every expectation of a step; see ``StepCase`` for the arguments.

    ``lacks`` has the reasons to skip expectations that the proxy's mode cannot show: by their keys, or by the name of a
    stream for all of its expectations.

    Raises:
        InternalError: the step expects something of a stream without a record.
    """
    case = StepCase(step, number, tuple(streams), sources, tuple(nodes), addresses, evidence)
    verdicts: list[Verdict] = []
    for name, stream in case.expected_streams.items():
        for each in OF_STREAMS:
            key = f"{name}.{each.key}"
            if (expected := each.expected_of(stream)) is not None:
                reason = lacks.get(name) or lacks.get(key)
                verdicts.append(_skipped(key, stream.position(key), reason) if reason else each.judge(stream, expected))
    for of_end in OF_STEPS:
        if (expected := of_end.expected_of(case)) is not None:
            reason, key = lacks.get(of_end.key), of_end.key
            verdicts.append(_skipped(key, case.position(key), reason) if reason else of_end.judge(case, expected))
    return StepVerdict(case=case, verdicts=tuple(verdicts))
