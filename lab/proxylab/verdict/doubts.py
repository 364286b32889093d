"""Reasons to doubt evidence: witnesses that contradict each other, lost frames, and silence that may end later.

One reason is session affinity on a slow machine. The author chose the waits of a scenario so that its clients come back
within ``timeoutSeconds``. If the lab itself takes longer, the proxy may forget a client, and another pod shows nothing.
A proxy that forgets clients early sends them to another pod within that time.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import partial

from proxylab.addresses import IPAddress, Transport
from proxylab.evidence.evidence import Direction, EarlierConnection, Evidence, Observation, Packet
from proxylab.evidence.words import amount, endpoint, listed
from proxylab.plan.resolved import Receiver, ResolvedProbe
from proxylab.scenario.words import Manner
from proxylab.verdict.counted_rules import CountedRule
from proxylab.verdict.drops import answer_drop, dropped_with_sentinels, ended_with_sentinels
from proxylab.verdict.flows import Fate, Flow
from proxylab.verdict.foreign import ended_by
from proxylab.verdict.hops import ended_in

_OWN_WORDS = {"timeout": "a timeout", "": "an answer"}

_ERRNO_OF = {
    # EPERM: the send itself fails where a rule in OUTPUT rejects a datagram; the ICMP error comes as well.
    Fate.REJECTED: frozenset({"ECONNREFUSED", "EPERM"}),
    Fate.REFUSED: frozenset({"ECONNREFUSED", "ECONNRESET"}),
    Fate.CLOSED: frozenset({"EPROTO", "ECONNRESET", "EPIPE"}),  # EPROTO: the end of the stream in place of an answer
    Fate.LOST_ON_LINK: frozenset({"timeout"}),
    # EPERM: a rule of the sender's own dropped it. EMSGSIZE: a router did, as larger than an MTU, and said so by ICMP.
    Fate.LOST: frozenset({"timeout", "EPERM", "EMSGSIZE"}),
}


_UNANSWERED = frozenset({Fate.UNSENT, Fate.UNREACHABLE, Fate.STRAYED})


def doubts_about(resolved: ResolvedProbe, evidence: Evidence, flows: Sequence[Flow]) -> Iterator[str]:
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


def dropped_by_rules(
    resolved: ResolvedProbe, evidence: Evidence, flows: Sequence[Flow], dropping: Sequence[CountedRule]
) -> bool:
    """Whether rules dropped every packet of a probe whose flows are all lost: then none can be late.

    A rule for what was dialled, a foreign rule or the policy of a chain counted them; or the sockets heard of it, from
    a router (EMSGSIZE) or from a rule of the sender's own (EPERM).
    """
    if all(flow.report is not None and flow.report.error in ("EMSGSIZE", "EPERM") for flow in flows):
        return True
    counted = sum(rule.count.packets for rule in dropping if {rule.count.node} == ended_in(flows))
    return counted == packets_of(flows) or dropped_by_one(resolved, evidence, flows)


def dropped_by_one(resolved: ResolvedProbe, evidence: Evidence, flows: Sequence[Flow]) -> bool:
    """Whether one rule or policy of any program dropped every packet of the flows, by its own counter.

    It is a foreign one, or one of the engine's tables, which counts sentinel packets as well.
    """
    packets, ended = packets_until(flows, evidence.counters_read_at), ended_in(flows)
    # A kernel may have sent again while the lab read the counters of foreign rules.
    possible = range(packets, packets_until(flows, evidence.foreign_read_at or evidence.counters_read_at) + 1)
    if any(ended_by(resolved, evidence, each, ended) for each in possible):
        return True
    return dropped_with_sentinels(evidence, packets_of(flows), ended)


def answers_ended(resolved: ResolvedProbe, evidence: Evidence, flows: Sequence[Flow]) -> bool:
    """Whether a counter accounts for every missing answer, as it does for a request: then none can be late."""
    times, ended = lost_answers(flows)
    if ended_with_sentinels(evidence, len(times), ended):
        return True
    read_at = evidence.counters_read_at
    first, last = (sum(at <= until for at in times) for until in (read_at, evidence.foreign_read_at or read_at))
    if answer_drop(resolved, evidence, first, ended):
        return True
    return any(
        ended_by(resolved, evidence, each, ended, rejected=rejected) in evidence.foreign
        for each in range(first, last + 1)
        for rejected in (False, True)
    )


def lost_answers(flows: Iterable[Flow]) -> tuple[Sequence[int], frozenset[str]]:
    """When packets of the missing answers came into the nodes where the taps saw them last, and those nodes.

    There are none where a pod did not answer, or an answer was seen last as it left.
    """
    came: list[Observation] = []
    for flow in flows:
        if flow.replies:
            continue
        last = flow.last_reply
        if last is None or last.direction is Direction.OUT:
            return (), frozenset()
        here = (each for each in flow.passages if each.netns_name == last.netns_name)
        came += [each for each in here if each.packet is Packet.REPLY and each.direction is Direction.IN]
    return [each.at for each in came], frozenset(each.netns_name for each in came)


def reasons_it_may_be_late(
    resolved: ResolvedProbe, evidence: Evidence, flows: Sequence[Flow], fates: Sequence[Fate]
) -> Iterator[str]:
    """Reasons why a flow that no tap saw again may only be late: a sentinel packet is missing or early."""
    lost = [flow for flow, fate in zip(flows, fates, strict=True) if fate is Fate.LOST]
    yield from _at_programs(lost, evidence.undrained)
    names = dict.fromkeys(
        [*(sentinel.name for sentinel in resolved.sentinels), *(report.name for report in evidence.sentinels)]
    )
    if not names:
        yield "no sentinel packet was sent after it, so silence proves nothing"
    yield from _in_queues(evidence)
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


def _at_programs(lost: Iterable[Flow], undrained: Collection[str]) -> Iterator[str]:
    """The doubt about lost flows that a program got: no sentinel packet shows that the program is done with them."""
    taken = [flow.relays[0].netns_name for flow in lost if flow.relays and flow.relays[0].netns_name in undrained]
    if taken:
        got = f"the proxy's process on {listed(list(dict.fromkeys(taken)))} got {amount(len(taken), 'flow')}"
        yield f"{got} and may still act, so silence proves nothing"


def _in_queues(evidence: Evidence) -> Iterator[str]:
    """Packets that a queue of tc held: of another class than theirs, a sentinel packet overtakes them."""
    for each in evidence.foreign:
        if each.waiting:
            held = f"{amount(each.waiting, 'packet')} in the {each.text} of {each.node}/{each.chain}"
            yield f"a sentinel packet may have overtaken {held}, so silence proves nothing"


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


def conntrack_contradiction(flow: Flow, resolved: ResolvedProbe) -> str:
    """How connection tracking contradicts the tap at the pod that a flow reached; empty where they agree.

    A missing entry contradicts nothing where taps captured the flow at every hop: then the packets show who changed it.
    One node on the way translated the flow, and its entry names the pod and the source that the pod saw. An
    untranslated flow may have passed nodes that track nothing. Whether a second node translated the flow too,
    ``second_nat`` reads from the captured hops. A program that divides the flow sends it on from its own address, and
    the tap at its node's stack, which saw that, is the witness.
    """
    if flow.fate not in (Fate.DELIVERED, Fate.MULTIPLIED, Fate.COPIED):
        return ""
    if any(each.leg for each in flow.arrivals):
        return "" if flow.relayed is not None else "a second connection reached a pod, but no tap saw a program open it"
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
        # Another zone of connection tracking has entries that the lab does not look up.
        if seen[:2] != (resolved.destination, resolved.port) and not flow.way:
            return f"{at_tap}, but no node's conntrack has an entry for the flow"
    return ""


_SECOND = 1e9
"""In nanoseconds."""


def came_too_late(
    resolved: ResolvedProbe, evidence: Evidence, flows: Sequence[Flow], backends: Collection[str]
) -> dict[int, str]:
    """The flows to pods outside the expected ``backends`` whose client the proxy may have forgotten; a clause for each.

    Only a client whose last pod is an expected one must be remembered. The time is the longest that a client can have
    been away: from the departure of its last connection to the arrival of this one at a pod.
    """
    timeout = resolved.affinity_timeout
    if timeout is None:
        return {}
    remembered = [each for each in resolved.receivers if each.name in backends]
    remembered_at = {each.client: each for each in evidence.earlier if any(map(partial(_is_of, each), remembered))}
    if not remembered_at:
        return {}
    began = sorted(
        (flow for flow in flows if flow.departures and flow.arrivals), key=lambda flow: flow.departures[0].at
    )
    away: dict[IPAddress, float] = {}
    moved: dict[IPAddress, tuple[IPAddress, int]] = {}
    numbers = []
    for flow in began:
        client, end = resolved.sender.address_of_flow(flow.number), _end(flow.arrivals[0])
        if client not in away:
            earlier = remembered_at.get(client)
            away[client] = 0.0 if earlier is None else (flow.arrivals[0].at - earlier.at) / _SECOND
            if earlier is not None and away[client] > timeout and end != (earlier.address, earlier.port):
                moved[client] = end
        if moved.get(client) == end and not set(flow.reached) <= set(backends):
            numbers.append(flow.number)
    longest = max((away[client] for client in moved), default=0.0)
    clause = f"its client was away for up to {longest:.1f} s, and timeoutSeconds is {timeout}"
    return dict.fromkeys(numbers, clause)


def _is_of(earlier: EarlierConnection, pod: Receiver) -> bool:
    return earlier.address == pod.address and (not pod.ports or earlier.port in pod.ports)


def _end(arrival: Observation) -> tuple[IPAddress, int]:
    return arrival.destination, arrival.destination_port
