"""The judge: recorded evidence against every expectation of a probe or a step. It passes nothing without proof.

Each expectation has a module in ``expectations``, which says what it needs. ``findings`` explains how findings weigh.
"""

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from proxylab.addresses import IPAddress
from proxylab.errors import InternalError
from proxylab.evidence.evidence import Evidence
from proxylab.evidence.stream_records import StepEvidence
from proxylab.plan.resolved import ResolvedProbe
from proxylab.scenario.expect import NodeDevice
from proxylab.scenario.probes import Probe
from proxylab.scenario.steps import Step
from proxylab.scenario.words import Outcome, Position
from proxylab.verdict.case import JudgedProbe, open_case
from proxylab.verdict.dns import has_no_address
from proxylab.verdict.expectations.end_of_step import end_of_step
from proxylab.verdict.expectations.expectation import Needs
from proxylab.verdict.expectations.table import OF_PROBES, OF_STEPS, OF_STREAMS
from proxylab.verdict.findings import Findings
from proxylab.verdict.model import Judgement, ProbeVerdict, StepVerdict, Verdict, expectations
from proxylab.verdict.stream import stream_of

_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})
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
    case = open_case(probe, resolved, evidence, source)
    return ProbeVerdict(
        probe=probe, resolved=resolved, verdicts=tuple(_verdicts(case)), evidence=evidence, source=source
    )


def skip(probe: Probe, resolved: ResolvedProbe, reason: str) -> ProbeVerdict:
    """The verdict on a probe that was not sent: the proxy's mode, or the machine, lacks what it asks for."""
    verdicts = tuple(
        _skipped(key, probe.expect.positions.get(key, probe.expect.position), reason, "not sent")
        for key in expectations(probe.expect)
    )
    return ProbeVerdict(probe=probe, resolved=resolved, verdicts=verdicts, evidence=Evidence(sent=0))


def _skipped(key: str, position: Position, reason: str, observed: str = "") -> Verdict:
    return Verdict(
        expectation=key,
        judgement=Judgement.SKIP,
        expected="",
        observed=observed,
        reasons=(reason,),
        position=position,
    )


def _verdicts(case: JudgedProbe) -> Iterator[Verdict]:
    """The verdicts in the order of the table, also where what an expectation needs cannot exist."""
    expect = case.probe.expect
    undialled = has_no_address(case.resolved, case.evidence.lookups)
    for each in OF_PROBES:
        wanted = each.wanted(case)
        if wanted is None:
            continue
        if undialled and each.needs >= Needs.PACKETS:
            if each.key in expectations(expect):
                yield _undecided(case, each.key)
        elif each.needs is Needs.ARRIVALS and expect.outcome in _NONE_ARRIVE:
            yield _beside_the_point(case, each.key)
        else:
            yield each.judge(case, wanted)


def _undecided(case: JudgedProbe, key: str) -> Verdict:
    """An expectation about packets of a probe that sent none."""
    findings = Findings(case)
    findings.doubt("the probe dialled nothing, since the name gave no address")
    return findings.settle(key, expected="", observed="nothing dialled")


def _beside_the_point(case: JudgedProbe, key: str) -> Verdict:
    """An expectation about pods, where the outcome lets no packet reach a pod: no evidence could decide it."""
    findings, outcome = Findings(case), case.probe.expect.outcome
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
    """Judge every expectation of a step; see ``StepVerdict`` for the arguments.

    ``lacks`` has the reasons to skip expectations that the proxy's mode cannot show: by their keys, or by the name of a
    stream for all of its expectations.

    Raises:
        InternalError: the step expects something of a stream without a record.
    """
    verdicts: list[Verdict] = []
    for name in step.expect.streams:
        stream = stream_of(step, evidence, name, sources, streams)
        for each in OF_STREAMS:
            key = f"{name}.{each.key}"
            if (wanted := each.wanted(stream)) is not None:
                reason = lacks.get(name) or lacks.get(key)
                verdicts.append(_skipped(key, stream.position(key), reason) if reason else each.judge(stream, wanted))
    end = end_of_step(step, evidence, nodes, addresses)
    for of_end in OF_STEPS:
        if (looked_for := of_end.wanted(end)) is not None:
            reason, key = lacks.get(of_end.key), of_end.key
            verdicts.append(_skipped(key, end.position(key), reason) if reason else of_end.judge(end, looked_for))
    return StepVerdict(
        step=step,
        number=number,
        streams=tuple(streams),
        sources=sources,
        nodes=tuple(nodes),
        addresses=addresses,
        verdicts=tuple(verdicts),
        evidence=evidence,
    )
