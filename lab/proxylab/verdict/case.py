"""One probe before its judge: its flows, and every reason to doubt the evidence.

``Case`` holds the doubts that the evidence itself raises; ``Findings`` turn into a verdict. Neither knows a particular
expectation.

Theory of operation. A finding is of one of three kinds, which weigh differently:

* *wrong*: the taps saw something that the expectation forbids. That is a fail, whatever else is in doubt.
* *missing*: the taps did not see something. That is a fail only if nothing casts doubt on the silence; otherwise the
  verdict is inconclusive.
* *doubts*: something speaks against relying on the evidence. A doubt rules out a pass.

Without any of them the verdict is a pass. Doubts about the evidence as a whole (a tap lost frames, the run was cut
short) weigh on every expectation, since each assumes that the taps saw all flows of the probe and nothing else.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol as Interface

from msgspec import Struct

from proxylab.addresses import Transport
from proxylab.evidence.evidence import Evidence, Observation, Packet
from proxylab.evidence.words import amount, endpoint, listed, tally
from proxylab.plan.resolved import ResolvedProbe
from proxylab.scenario.model import Manner, Position, Probe
from proxylab.verdict.copies import lost_copies
from proxylab.verdict.drops import kernel_drop
from proxylab.verdict.flows import Fate, Flow, flows_of
from proxylab.verdict.foreign import ended_by
from proxylab.verdict.model import Judgement, Verdict
from proxylab.verdict.second_nat import SecondNat, second_nat

__all__ = ["Case", "Findings", "Judged", "disagreement", "open_case", "packets_of", "packets_until"]

_OWN_WORDS = {"timeout": "a timeout", "": "an answer"}

_ERRNO_OF = {
    Fate.REJECTED: frozenset({"ECONNREFUSED"}),
    Fate.REFUSED: frozenset({"ECONNREFUSED", "ECONNRESET"}),
    Fate.LOST: frozenset({"timeout", "EPERM"}),  # EPERM: a rule of the sender's own dropped it
}


_UNANSWERED = frozenset({Fate.UNSENT, Fate.UNREACHABLE, Fate.STRAYED})


class Case(Struct, frozen=True):
    """One probe and its evidence.

    Attributes:
        probe: with the expectations.
        resolved: the probe, resolved.
        evidence: as recorded.
        flows: every flow of the probe, in order.
        fates: what became of each.
        arrived: the flows that reached one pod or more.
        disagreements: where taps contradict sockets or connection tracking, by flow number.
        doubts: reasons to doubt the evidence as a whole.
        silence: reasons why a flow that no tap saw again may only be late.
        second_nats: flows that a second node translated too, as the captured hops show, by flow number.
        lost_copies: copies of requests that ended at a node, by flow number.
        lost_reply_copies: copies of replies that ended at a node, by flow number.
    """

    probe: Probe
    resolved: ResolvedProbe
    evidence: Evidence
    flows: tuple[Flow, ...]
    fates: tuple[Fate, ...]
    arrived: tuple[Flow, ...]
    disagreements: dict[int, str]
    doubts: tuple[str, ...]
    silence: tuple[str, ...]
    second_nats: dict[int, SecondNat]
    lost_copies: Mapping[int, str]
    lost_reply_copies: Mapping[int, str]

    @property
    def counted(self) -> tuple[int, str]:
        """The number of flows, and the word for one."""
        return len(self.flows), "flow"

    def position(self, key: str) -> Position:
        """Where the author wrote that expectation; the position of ``expect`` for one that the author did not write."""
        expect = self.probe.expect
        return expect.positions.get(key, expect.position)


class Judged(Interface):
    """The subject of findings: a probe or a step."""

    @property
    def counted(self) -> tuple[int, str]:
        """The number of flows or stream packets, and the word for one."""

    @property
    def doubts(self) -> tuple[str, ...]:
        """Reasons to doubt the evidence as a whole."""

    def position(self, key: str) -> Position:
        """Where the author wrote that expectation."""


@dataclass(slots=True)
class Findings:
    """The findings about one expectation, as (flow number, clause) pairs; the module explains the three kinds."""

    wrong: list[tuple[int, str]] = field(default_factory=list)
    missing: list[tuple[int, str]] = field(default_factory=list)
    doubts: list[tuple[int, str]] = field(default_factory=list)
    wrong_overall: list[str] = field(default_factory=list)
    missing_overall: list[str] = field(default_factory=list)
    doubts_overall: list[str] = field(default_factory=list)

    def settle(
        self,
        case: Judged,
        expectation: str,
        *,
        expected: str,
        observed: str,
        silence: Iterable[str] = (),
        witnesses: Iterable[str] = (),
    ) -> Verdict:
        """The verdict. ``silence`` holds the doubts that bear on missing findings only."""
        number, thing = case.counted
        wrong = [*self.wrong_overall, *tally((clause for _, clause in self.wrong), number, thing)]
        missing = [*self.missing_overall, *tally((clause for _, clause in self.missing), number, thing)]
        doubts = [*self.doubts_overall, *tally((clause for _, clause in self.doubts), number, thing), *case.doubts]
        if missing:
            doubts += silence
        if wrong or (missing and not doubts):
            judgement, reasons = Judgement.FAIL, [*wrong, *missing]
        elif missing or doubts:
            judgement, reasons = Judgement.INCONCLUSIVE, [*missing, *doubts]
        else:
            judgement, reasons = Judgement.PASS, []
        shown = next((pairs for pairs in (self.wrong, self.missing, self.doubts) if pairs), [])
        return Verdict(
            expectation=expectation,
            judgement=judgement,
            expected=str(expected),  # an outcome is an enum, and a verdict carries text
            observed=str(observed),
            reasons=tuple(reasons),
            witnesses=tuple(witnesses) if judgement is Judgement.PASS else (),
            position=case.position(expectation),
            example=min((number for number, _ in shown), default=None),
        )


def open_case(probe: Probe, resolved: ResolvedProbe, evidence: Evidence) -> Case:
    """Sort the evidence by flow and look for reasons to doubt it."""
    flows = flows_of(resolved, evidence)
    fates = tuple(flow.fate for flow in flows)
    disagreements: dict[int, str] = {}
    second_nats: dict[int, SecondNat] = {}
    if evidence.tracked is not None:
        for flow, fate in zip(flows, fates, strict=True):
            clause = mistracked(flow, fate, resolved)
            if clause and (second := second_nat(flow, resolved)) is not None:
                second_nats[flow.number] = second
            elif clause:
                disagreements[flow.number] = clause
    if resolved.manner is Manner.CONNECT:
        for flow, fate in zip(flows, fates, strict=True):
            clause = disagreement(flow, fate, resolved.protocol)
            if clause:
                disagreements[flow.number] = clause
    # An uncaptured hop looks like a copy that ended there, so a flow with disagreeing witnesses has no copies.
    sound = [None if number in disagreements else fate for number, fate in enumerate(fates)]
    lost = lost_copies(evidence, resolved, flows, sound, Packet.REQUEST)
    lost_replies = lost_copies(evidence, resolved, flows, sound, Packet.REPLY)
    if lost:
        fates = tuple(Fate.COPIED if number in lost else fate for number, fate in enumerate(fates))
    return Case(
        probe,
        resolved,
        evidence,
        flows,
        fates,
        tuple([flow for flow in flows if flow.arrivals]),
        disagreements,
        tuple(_doubts(resolved, evidence, flows)),
        ()
        if _counted_as_dropped(resolved, evidence, flows, fates)
        else tuple(_silence(resolved, evidence, flows, fates)),
        second_nats,
        lost,
        lost_replies,
    )


def _doubts(resolved: ResolvedProbe, evidence: Evidence, flows: tuple[Flow, ...]) -> Iterator[str]:
    """Reasons to doubt the evidence as a whole."""
    if evidence.unfinished:
        yield f"the run did not finish: {evidence.unfinished}"
    for loss in evidence.losses:
        if loss.frames:
            yield f"the tap at {loss.netns_name} {loss.device} lost {amount(loss.frames, 'frame')}"
    if evidence.sent + len(evidence.refused_sends) < resolved.flows:
        yield f"the sender sent {evidence.sent:,} of {amount(resolved.flows, 'flow')}"
    if evidence.sent > resolved.flows:
        yield f"the sender sent {amount(evidence.sent, 'flow')}, but the probe has {resolved.flows:,}"
    numbers = range(resolved.flows)
    if any(seen.flow not in numbers or seen.protocol is not resolved.protocol for seen in evidence.observations):
        yield "the taps saw packets that claim to be of this probe, but of none of its flows"
    # A send that the kernel refused leaves no trace: only flows without a trace can be the refused ones.
    unsent = [flow for flow in flows if not flow.departures]
    unseen = max(sum(flow.fate is not Fate.UNSENT for flow in unsent), len(unsent) - len(evidence.refused_sends))
    if unseen > 0:
        yield f"the taps never saw {amount(unseen, 'flow')} leave {resolved.sender.name}"
    if resolved.manner is Manner.CONNECT:
        unreported = sum(len(flow.reports) != 1 for flow in flows)
        if unreported or any(report.flow not in numbers for report in evidence.connects):
            yield f"the sockets of {amount(unreported, 'flow')} did not report exactly once"


def packets_of(flows: Iterable[Flow]) -> int:
    """How many packets a counter must show if its rule ended every flow: a repeated SYN is one more."""
    return sum(max(1, len(flow.departures)) for flow in flows)


def packets_until(flows: Iterable[Flow], counters_read_at: int) -> int:
    """How many of them had left when the lab read the stack counters; all where the evidence has no such time."""
    if not counters_read_at:
        return packets_of(flows)
    return sum(max(1, sum(each.at <= counters_read_at for each in flow.departures)) for flow in flows)


def _counted_as_dropped(
    resolved: ResolvedProbe, evidence: Evidence, flows: tuple[Flow, ...], fates: tuple[Fate, ...]
) -> bool:
    """Whether a node's stack or a foreign rule counted every packet as dropped: then no packet can be late."""
    if set(fates) != {Fate.LOST}:
        return False
    packets = packets_until(flows, evidence.counters_read_at)
    return kernel_drop(resolved, evidence, packets) is not None or ended_by(evidence, packets) is not None


def _silence(
    resolved: ResolvedProbe, evidence: Evidence, flows: tuple[Flow, ...], fates: tuple[Fate, ...]
) -> Iterator[str]:
    """Reasons why a flow that no tap saw again may only be late: a sentinel packet is missing or early."""
    names = dict.fromkeys(
        [*(sentinel.name for sentinel in resolved.sentinels), *(report.name for report in evidence.sentinels)]
    )
    if not names:
        yield "no sentinel packet was sent after it, so silence proves nothing"
    if evidence.unpinned:
        yield f"the run could not stay on one CPU ({evidence.unpinned}): a sentinel packet may have overtaken another"
    left = max((f.departures[0].at for f, fate in zip(flows, fates, strict=True) if _silent(f, fate)), default=0)
    unsent, unanswered, early = [], [], []
    for name in names:
        reports = [report for report in evidence.sentinels if report.name == name]
        if not reports:
            unsent.append(name)
        elif not all(report.answered for report in reports):
            unanswered.append(name)
        elif min(report.at for report in reports) < left:
            early.append(name)
    if unanswered:
        yield f"no sentinel packet came back from {listed(unanswered, 'or')}, so silence proves nothing"
    if unsent:
        yield f"no sentinel packet was sent to {listed(unsent)}, so silence proves nothing"
    if early:
        yield f"the sentinel packet to {listed(early)} was back before the last flow left, so silence proves nothing"


def _silent(flow: Flow, fate: Fate) -> bool:
    """Whether the flow left and its arrival or its reply is missing."""
    return bool(flow.departures) and (fate is Fate.LOST or not flow.replies)


def disagreement(flow: Flow, fate: Fate, protocol: Transport) -> str:
    """How the taps and the kernel's socket contradict each other about one flow; empty where they agree.

    Over TCP a socket may fail although the taps saw a reply: the pod answered the handshake and not the data. That is
    no contradiction; ``reply`` judges it.
    """
    report = flow.report
    if report is None:
        return ""
    says = f"the socket reports {_OWN_WORDS.get(report.error, report.error)}"
    if fate in _ERRNO_OF:
        return "" if report.error in _ERRNO_OF[fate] else f"the taps show {fate}, but {says}"
    if fate is not Fate.DELIVERED:
        return f"the taps show {fate}, but {says}" if fate in _UNANSWERED and not report.error else ""
    netns_name = flow.reached[0]
    if not report.error:
        if not flow.replies:
            return f"the taps saw no reply, but {says}"
        if report.backend != netns_name:
            return f"the tap at {netns_name} saw it arrive, but {report.backend or 'an unnamed backend'} answered"
    elif protocol is not Transport.TCP and any(_from_dialled(flow, reply) for reply in flow.replies):
        return f"the taps saw a reply, but {says}"
    elif report.error == "ECONNREFUSED":
        return f"the taps saw neither reset nor ICMP error, but {says}"
    return ""


def _from_dialled(flow: Flow, reply: Observation) -> bool:
    """Whether a connected socket accepts the reply: it accepts packets only from the address that it dialled."""
    dialled = {(departure.destination, departure.destination_port) for departure in flow.departures}
    return not dialled or (reply.source, reply.source_port) in dialled


def mistracked(flow: Flow, fate: Fate, resolved: ResolvedProbe) -> str:
    """How connection tracking contradicts the tap at the pod that a flow reached; empty where they agree.

    One node on the way translated the flow, and its entry names the pod and the source that the pod saw. An
    untranslated flow may have passed nodes that track nothing. Whether a second node translated the flow too,
    ``second_nat`` reads from the captured hops.
    """
    if fate not in (Fate.DELIVERED, Fate.MULTIPLIED, Fate.COPIED):
        return ""
    entries = [
        (each.reply_source, each.reply_source_port, each.reply_destination, each.reply_destination_port)
        for each in flow.tracked
    ]
    for arrival in flow.arrivals:
        seen = (arrival.destination, arrival.destination_port, arrival.source, arrival.source_port)
        if seen in entries:
            continue
        at_tap = f"the tap at {arrival.netns_name} saw {endpoint(*seen[2:])} > {endpoint(*seen[:2])}"
        if entries:
            says = listed([f"{endpoint(*each[2:])} > {endpoint(*each[:2])}" for each in entries], "or")
            return f"{at_tap}, but conntrack on {listed([each.node for each in flow.tracked])} has {says}"
        if seen[:2] != (resolved.destination, resolved.port):
            return f"{at_tap}, but no node's conntrack has an entry for the flow"
    return ""
