"""``source``: from which address and port the requests of a probe, or the packets of a stream, came to their backends.

Of a probe the taps at the pods tell, of a stream the responders say it. The address that a backend saw and the port are
judged alike (``_judge_address``, ``_judge_ports``).

``preserved`` promises the port, too. The kernel gives a connection source NAT without any rule, which keeps address and
port (``nf_nat_alloc_null_binding``). It changes the port only if another connection holds the reply tuple already
(``nf_nat_used_tuple``), as of one client port to two Services with the same endpoint; that is noted. Whatever else
changes a port is a rule's work, or that of a proxy that ends connections.

A node may send from the address that masquerading would give its packets. Then the address does not show whether a node
masqueraded them. The source port shows it where the kernel changed that, too, and the counters of rules that masquerade
show it for all flows together.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Final, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from proxylab.addresses import IPAddress, Transport
from proxylab.evidence.evidence import Observation, TableEntry, TrackedFlow
from proxylab.evidence.stream_records import StreamPacket
from proxylab.evidence.words import amount, endpoint, listed, numbers, tally
from proxylab.plan.resolved import STACK, Sender
from proxylab.rules.effects import MARKING, REWRITING
from proxylab.rules.texts import read_rule
from proxylab.scenario.expect import (
    Masqueraded,
    NodeDevice,
    Preserved,
    SourceAddress,
    SourceByBackend,
    SourceExpectation,
)
from proxylab.scenario.words import Manner
from proxylab.verdict.case import Case
from proxylab.verdict.conntrack_tables import entry_words
from proxylab.verdict.counted_rules import may_be_engines
from proxylab.verdict.findings import Expectation, Findings, Needs
from proxylab.verdict.flows import Flow, end_counts
from proxylab.verdict.foreign import rewrote, rule_words, suspicion
from proxylab.verdict.model import Verdict
from proxylab.verdict.step_case import StreamCase, answer_words, may_be_late

_MARKING_CHAINS = frozenset({"KUBE-MARK-MASQ", "mark-for-masquerade"})
"""The engine's rules that mark packets for masquerading, in iptables and in nftables."""


_WITH_PORTS: Final = frozenset({Transport.TCP, Transport.UDP, Transport.SCTP})


class _SeenSource(NamedTuple):
    """How a backend saw a flow of a probe, or a packet of a stream.

    Attributes:
        number: of the flow or packet.
        backend: who saw it, in words.
        sources: the addresses from which it came.
        expected: the source that the backend must see; ``None`` where nothing says it, or nothing gives it.
        by: what the author expects of packets to that backend; ``None`` without any.
    """

    number: int
    backend: str
    sources: Sequence[IPAddress]
    expected: IPAddress | None
    by: SourceExpectation | None


def _judge_address(seen: _SeenSource, findings: Findings, *, several: bool) -> bool:
    """Whether the backend saw the expected address. ``several``: other packets are expected from other addresses."""
    strangers = [str(each) for each in seen.sources if each != seen.expected]
    if strangers:
        origin = listed(list(dict.fromkeys(strangers)))
        instead = f", not from {seen.expected}" if several else ""
        findings.wrong(f"{seen.backend} saw it come from {origin}{instead}", seen.number)
    return not strangers


def _judge_unexpected(seen: _SeenSource, findings: Findings, node: str | None) -> None:
    """Judge a packet whose expected source is not known. ``node`` runs the backend as a program of its own."""
    source = seen.sources[0]
    if seen.by is None:
        findings.wrong(
            f"{seen.backend} saw it come from {source}, and source has no entry for {seen.backend}", seen.number
        )
    elif node:
        where = f"{seen.backend} is a program of {node} itself, and packets to it do not pass POSTROUTING there"
        findings.wrong(f"nothing masquerades it: {where}; it came from {source}", seen.number)
    else:
        findings.doubt(f"the plan knows no node that translates it on the way to {seen.backend}", seen.number)


class _Tuple(Struct, frozen=True):
    """The protocol and both ends of packets in one direction, as connection tracking keeps them."""

    protocol: Transport
    source: IPAddress
    source_port: int
    destination: IPAddress
    destination_port: int


class _PortChange(NamedTuple):
    """A flow or packet that came from its own address, but from another port than it left.

    Attributes:
        number: of the flow or packet.
        backend: who saw it.
        replies: as the backend sends them.
        left: the port from which it left.
        by_nodes: whether a node's connection tracking may have changed it, as far as the lab has read that.
    """

    number: int
    backend: str
    replies: _Tuple
    left: int
    by_nodes: bool


def _judge_ports(
    subject: Case | StreamCase, changes: Sequence[_PortChange], entries: Sequence[TableEntry] | None, findings: Findings
) -> list[str]:
    """Judge ports that changed although the source must be kept. It returns what excuses the kernel."""
    held, excused = _holders(entries or ()) if changes else {}, list[str]()
    for each in changes:
        clause = f"{each.backend} saw it come from port {each.replies.destination_port}, not from port {each.left}"
        other = _other_holder(held, subject.resolved.nodes, each)
        if other is not None:
            excused.append(f"{clause}: another connection on {other.node} holds that one ({entry_words(other)})")
        elif each.by_nodes and entries is None:
            unread = "whether another connection holds that port is not known, as the lab did not read all entries"
            findings.doubt(f"{clause}; {unread}", each.number)
        else:
            findings.wrong(clause, each.number)
    return tally(excused, *subject.size)


def _holders(entries: Iterable[TableEntry]) -> Mapping[tuple[str, _Tuple], TableEntry]:
    """The entry that holds a tuple, in either direction, by the node and the tuple."""
    held: dict[tuple[str, _Tuple], TableEntry] = {}
    for each in entries:
        back_from = each.reply_source, each.reply_source_port
        back_to = each.reply_destination, each.reply_destination_port
        there = _Tuple(each.protocol, each.source, each.source_port, each.destination, each.destination_port)
        back = _Tuple(each.protocol, *back_from, *back_to)
        held[each.node, there] = held[each.node, back] = each
    return held


def _other_holder(
    held: Mapping[tuple[str, _Tuple], TableEntry], nodes: Iterable[str], change: _PortChange
) -> TableEntry | None:
    """The entry of another connection that holds the tuple of unchanged replies, on the node that changed the port."""
    unchanged = replace(change.replies, destination_port=change.left)
    for node in nodes:
        own, other = held.get((node, change.replies)), held.get((node, unchanged))
        if own is not None and other is not None and own != other:
            return other
    return None


class _Changes(NamedTuple):
    """How many sources the rules changed, and for how many of the flows that arrived the author expects which source.

    ``unexpected`` are the packets beyond one for each flow that the author does not expect to be preserved.
    """

    preserved: int
    masqueraded: int
    packets: int
    unexpected: int


def _judge_probe(case: Case, expected: SourceExpectation) -> Verdict:
    """Every packet that arrived has the expected source address, and each node changed it once at most."""
    findings, kept = Findings(case, case.unseen), list[Flow]()
    changes = _changes(case)
    for flow in case.arrived:
        by = case.source_expectation(flow)
        came_from = [each.source for each in flow.arrivals]
        seen = _SeenSource(flow.number, listed(flow.reached), came_from, case.expected_source(flow), by)
        if contradiction := _disagreement(case, flow):
            findings.doubt(contradiction, flow.number)
        elif seen.expected is None:
            ways = case.ways(flow)
            _judge_unexpected(seen, findings, ways[0].node if ways else None)
        elif _judge_address(seen, findings, several=isinstance(expected, Masqueraded | NodeDevice | SourceByBackend)):
            contradicted = case.disagreements.get(flow.number, "")
            if contradicted:
                findings.doubt(contradicted, flow.number)
            told = not contradicted and _tell_apart(case, flow, changes, findings)
            if not told and isinstance(by, Preserved):
                kept.append(flow)
    noted = _judge_ports(case, list(_changed_ports(case, kept)), case.evidence.entries, findings)
    if case.resolved.sender.device == STACK and 0 < changes.unexpected < changes.preserved and not findings.any_wrong:
        what = f"masqueraded {changes.unexpected:,} of {amount(changes.preserved, 'flow')}"
        findings.wrong(f"{case.resolved.sender.namespace} {what}, although its address is the same in either case")
    for clause in _changed_by_others(case):
        findings.doubt(clause)
    again = case.masqueraded_again
    if again is not None:
        changed = amount(again.count.packets, "packet")
        findings.wrong(f"{again.count.node} masqueraded {changed} for {amount(len(case.flows), 'flow')}")
    sources = end_counts([(flow.arrivals[0].source, 0) for flow in case.arrived])
    counted = Counter({str(address): count for (address, _), count in sources.items()})
    return findings.settle(
        "source",
        expected=_in_words(
            expected, case.resolved.sender, [case.expected_source(flow) for flow in case.arrived] or [case.source]
        ),
        observed=numbers(counted) if len(counted) > 1 else listed(list(counted)),
        witnesses=noted,
    )


def _changed_ports(case: Case, flows: Iterable[Flow]) -> Iterator[_PortChange]:
    """The flows whose first request at a pod came from a port from which the flow did not leave.

    A program that ends the connection opens another one from a port of its own.
    """
    for flow in flows:
        left = [departure.source_port for departure in flow.departures]
        other = (each for each in flow.arrivals if each.protocol in _WITH_PORTS and each.source_port not in left)
        if left and flow.relayed is None and (arrival := next(other, None)) is not None:
            by_nodes = case.evidence.tracked is None or any(_answers(each, arrival) for each in flow.tracked)
            end, to = (arrival.destination, arrival.destination_port), (arrival.source, arrival.source_port)
            replies = _Tuple(arrival.protocol, *end, *to)
            yield _PortChange(flow.number, arrival.netns_name, replies, left[0], by_nodes)


def _answers(tracked: TrackedFlow, arrival: Observation) -> bool:
    """Whether the replies of that entry are those of the arrival."""
    seen = (arrival.destination, arrival.destination_port, arrival.source, arrival.source_port)
    there = (tracked.reply_source, tracked.reply_source_port, tracked.reply_destination, tracked.reply_destination_port)
    return seen == there


def _changed_by_others(case: Case) -> Iterator[str]:
    """Foreign rules that may have given flows the expected source, where the engine's changed or marked fewer flows.

    An author who names an address may mean the work of a rule that the scenario gives a node itself.
    """
    by_engine = any(isinstance(case.source_expectation(flow), Masqueraded) for flow in case.arrived)
    besides = () if by_engine else case.resolved.leftovers
    changing = sum(flow.relayed is None and _must_change(case, flow) for flow in case.arrived)
    changed = sum(
        rule.count.packets for rule in case.rules if rule.changes_source and may_be_engines(rule.count, case.resolved)
    )
    marked = sum(count.packets for count in case.evidence.counts if _marks(count.text))
    for packets, effect, verb in ((changed, REWRITING, "changed the source"), (marked, MARKING, "marked it")):
        for node in case.resolved.nodes if packets < changing else ():
            if clause := suspicion(case.resolved, case.evidence, node, effect, besides=besides):
                yield f"{clause}, and may have {verb} in place of the engine's rules"


def _marks(text: str) -> bool:
    """Whether a rule marks packets for masquerading, or leads them to the engine's chain for that."""
    rule = read_rule(text)
    return rule is not None and any(
        each.name in _MARKING_CHAINS
        or not _MARKING_CHAINS.isdisjoint(each.words)
        or (each.name == "meta mark set" and each.words[:3] == ("meta", "mark", "|"))
        for each in rule.actions
    )


def _must_change(case: Case, flow: Flow) -> bool:
    """Whether the author expects that rules change the source of a flow; only of a Service they are the engine's."""
    if isinstance(case.source_expectation(flow), Masqueraded):
        return True
    own = case.resolved.sender.address_of_flow(flow.number)
    return bool(case.resolved.service_port) and case.expected_source(flow) not in (None, own)


def _changes(case: Case) -> _Changes:
    expected = Counter(type(case.source_expectation(flow)) for flow in case.arrived)
    packets, preserved = sum(rule.count.packets for rule in case.rules if rule.changes_source), expected[Preserved]
    return _Changes(preserved, expected[Masqueraded], packets, packets - (len(case.flows) - preserved))


def _tell_apart(case: Case, flow: Flow, changes: _Changes, findings: Findings) -> bool:
    """Judge whether a node masqueraded its own packet, whose source address is the same in either case.

    It returns whether it found that.
    """
    expected, sender, source = case.source_expectation(flow), case.resolved.sender, flow.arrivals[0].source
    if sender.device != STACK or source != sender.address_of_flow(flow.number) or flow.relayed is not None:
        return False  # a program that opens the connection to the pod hides the sender's port, too
    node, port = sender.namespace, flow.arrivals[0].source_port
    port = next((each.reply_destination_port for each in flow.tracked if each.node == node), port)
    left = flow.departures[0].source_port if flow.departures else port
    if isinstance(expected, Preserved):
        if changes.unexpected > 0 and (port != left or changes.unexpected >= changes.preserved):
            to = f" to port {port}" if port != left else ""
            findings.wrong(f"{node} masqueraded it{to}, although its address is {source} in either case", flow.number)
            return True
    elif isinstance(expected, Masqueraded) and port == left and changes.packets < changes.masqueraded:
        clause = f"nothing masqueraded it: {listed(flow.reached)} saw port {port}, from which it left"
        known = case.is_metered
        (findings.wrong if known else findings.doubt)(clause, flow.number)
        return True
    return False


def _in_words(expected: SourceExpectation, sender: Sender, addresses: Iterable[IPAddress | None]) -> str:
    """What the author wrote, and the addresses that it stands for."""
    found = [str(each) for each in dict.fromkeys(addresses) if each is not None]
    match expected:
        case Preserved() if sender.others:
            return f"preserved ({len(sender.addresses):,} addresses)"
        case Preserved():
            return f"preserved ({sender.address})"
        case Masqueraded():
            return f"masqueraded ({listed(found, 'or')})" if found else "masqueraded"
        case NodeDevice(node, device):
            return f"{listed(found, 'or')} ({node} {device})"
        case SourceByBackend(of):
            return ", ".join(f"{name} {_in_a_word(each)}" for name, each in of.items())
        case SourceAddress(address):
            return str(address)


def _in_a_word(expected: Preserved | Masqueraded | SourceAddress) -> str:
    match expected:
        case Preserved():
            return "preserved"
        case Masqueraded():
            return "masqueraded"
        case SourceAddress(address):
            return str(address)


def _disagreement(case: Case, flow: Flow) -> str:
    """How the tap at the pod and the responder behind it contradict each other; empty where they agree."""
    report = flow.report
    if case.resolved.manner is not Manner.CONNECT or report is None or report.error:
        return ""
    if report.peer is None:
        return f"{report.backend} did not say which peer it saw"
    peer = (report.peer, report.peer_port)
    seen = {(arrival.source, arrival.source_port) for arrival in flow.arrivals}
    if peer in seen:
        return ""
    at_tap = listed([endpoint(*each) for each in sorted(seen, key=str)])
    return f"the tap at {listed(flow.reached)} saw {at_tap}, {report.backend} itself saw {endpoint(*peer)}"


def _source_of_flow(case: Case, verdict: Verdict) -> str:
    flow = case.flows[verdict.example or 0]
    client = case.resolved.sender.address_of_flow(flow.number)
    for arrival in flow.arrivals:
        if arrival.source != client:
            changed = f"the source changed from {client} to {arrival.source} on the way to {arrival.netns_name}"
            rules = (rewrote(case.resolved, case.evidence, node) for node in case.resolved.nodes)
            if (rule := next(filter(None, rules), None)) is not None:
                return f"{changed}, perhaps by {rule_words(rule)} on {rule.node}, which belongs to no engine."
            return f"{changed}, and no counter shows which rule changed it."
    return f"nothing changed the packet's source: {listed(flow.reached)} saw {client}." if flow.arrivals else ""


def _address_of_flow(case: Case, verdict: Verdict) -> IPAddress | None:
    return next((arrival.source for arrival in case.flows[verdict.example or 0].arrivals), None)


SOURCE = Expectation[Case, SourceExpectation](
    key="source",
    judge=_judge_probe,
    needs=Needs.ARRIVALS,
    as_seen=_source_of_flow,
    seen_address=_address_of_flow,
)


def _judge_stream(stream: StreamCase, expected: SourceExpectation) -> Verdict:
    """Every backend saw that address, and where it is the sender's own, that port."""
    stream = stream.after_wait
    findings = Findings(stream, chain(stream.foreign, stream.changed_by_others))
    kept: list[StreamPacket] = []
    for packet in stream.packets:
        if packet.peer is None:
            find = findings.missing if may_be_late(packet) else findings.wrong
            find(f"{answer_words(packet)}, so no backend saw its source", packet.number)
            continue
        by = expected.of.get(packet.backend) if isinstance(expected, SourceByBackend) else expected
        seen = _SeenSource(packet.number, packet.backend, [packet.peer], stream.expected_source(packet), by)
        if seen.expected is None:
            homes = (each.namespace for each in stream.resolved.receivers if each.name == packet.backend)
            _judge_unexpected(seen, findings, next((each for each in homes if each in stream.resolved.nodes), None))
        elif _judge_address(seen, findings, several=len(stream.sources) > 1) and isinstance(by, Preserved):
            kept.append(packet)
    noted = _judge_ports(stream, list(_changed_ports_of_packets(stream, kept)), stream.step.entries, findings)
    reporters = dict.fromkeys(packet.backend for packet in stream.packets if packet.backend)
    return findings.settle(
        f"{stream.name}.source",
        expected=_in_words(expected, stream.resolved.sender, map(stream.expected_source, stream.answered)),
        observed=listed(list(dict.fromkeys(str(each.peer) for each in stream.packets if each.peer is not None))),
        may_be_late=stream.may_be_late,
        witnesses=[f"reported by {listed(list(reporters))}", *noted],
    )


def _changed_ports_of_packets(stream: StreamCase, packets: Iterable[StreamPacket]) -> Iterator[_PortChange]:
    """The packets that came from another port; a program that ends the connection opens another one, with its own."""
    for each in packets if stream.is_led_by_kernels else ():
        if each.port and each.peer_port != each.port and each.own is not None and each.peer is not None:
            replies = _Tuple(stream.resolved.protocol, each.own, each.own_port, each.peer, each.peer_port)
            # The lab reads all entries where a node changed the port: without them, no node did.
            yield _PortChange(each.number, each.backend, replies, each.port, by_nodes=False)


def _stranger(stream: StreamCase) -> StreamPacket | None:
    return next((each for each in stream.after_wait.answered if each.peer != stream.expected_source(each)), None)


def _source_of_packet(stream: StreamCase, _verdict: Verdict) -> str:
    other = _stranger(stream)
    if other is None:
        return ""
    return f"{other.backend} saw {other.peer} as the sender of packet {other.number}, {stream.sent(other)}."


def _address_of_packet(stream: StreamCase, _verdict: Verdict) -> IPAddress | None:
    other = _stranger(stream)
    return None if other is None else other.peer


SOURCE_OF_STREAM = Expectation[StreamCase, SourceExpectation](
    key="source",
    judge=_judge_stream,
    as_seen=_source_of_packet,
    seen_address=_address_of_packet,
)
