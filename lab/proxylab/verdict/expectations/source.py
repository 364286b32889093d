"""``source``: from which address the packets came to the pods. It needs the taps there, and rule counters.

A node may send from the address that masquerading would give its packets. Then the address does not show whether a node
masqueraded them. The source port shows it where the kernel changed that, too, and the counters of rules that masquerade
show it for all flows together.

``preserved`` promises the port, too. The kernel changes it where another connection holds it; that is noted.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from proxylab.addresses import IPAddress
from proxylab.evidence.words import amount, endpoint, listed, numbers, tally
from proxylab.plan.resolved import STACK
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
from proxylab.verdict.expectations.expectation import Expectation, Needs
from proxylab.verdict.findings import Findings
from proxylab.verdict.flows.flows import Flow, counted_ends
from proxylab.verdict.foreign import rewrote, rule_words, suspicion
from proxylab.verdict.model import Verdict
from proxylab.verdict.source_ports import (
    ConntrackTuple,
    arrival_from_another_port,
    holders,
    nodes_that_changed_it,
    other_holder,
)

_MARKING_CHAINS = frozenset({"KUBE-MARK-MASQ", "mark-for-masquerade"})
"""The engine's rules that mark packets for masquerading, in iptables and in nftables."""


class _Changes(NamedTuple):
    """What rules that change sources counted, and how many of the flows that arrived are expected to be so.

    ``unexpected`` are the packets beyond one for each flow that the author does not expect to be preserved.
    """

    preserved: int
    masqueraded: int
    packets: int
    unexpected: int


def _judge(case: Case, expected: SourceExpectation) -> Verdict:
    """Every packet that arrived has the expected source address, and each node changed it once at most."""
    findings, kept = Findings(case, case.unseen), list[Flow]()
    changes = _changes(case)
    for flow in case.arrived:
        address = case.expected_source(flow)
        contradiction = _disagreement(case, flow)
        strangers = [str(each.source) for each in flow.arrivals if each.source != address]
        if contradiction:
            findings.doubt(contradiction, flow.number)
        elif address is None:
            _note_no_expected_source(case, flow, findings)
        elif strangers:
            origin = listed(list(dict.fromkeys(strangers)))
            findings.wrong(
                f"{listed(flow.reached)} saw it come from {origin}{_expected_there(expected, address)}", flow.number
            )
        else:
            contradicted = case.disagreements.get(flow.number, "")
            if contradicted:
                findings.doubt(contradicted, flow.number)
            told = not contradicted and _tell_apart(case, flow, changes, findings)
            if not told and isinstance(case.source_expectation(flow), Preserved):
                kept.append(flow)
    noted = _judge_ports(case, kept, findings)
    if case.resolved.sender.device == STACK and 0 < changes.unexpected < changes.preserved and not findings.any_wrong:
        what = f"masqueraded {changes.unexpected:,} of {amount(changes.preserved, 'flow')}"
        findings.wrong(f"{case.resolved.sender.namespace} {what}, although its address is the same in either case")
    for clause in _changed_by_others(case):
        findings.doubt(clause)
    again = case.masqueraded_again
    if again is not None:
        changed = amount(again.count.packets, "packet")
        findings.wrong(f"{again.count.node} masqueraded {changed} for {amount(len(case.flows), 'flow')}")
    sources = counted_ends([(flow.arrivals[0].source, 0) for flow in case.arrived])
    seen = Counter({str(address): count for (address, _), count in sources.items()})
    return findings.settle(
        "source",
        expected=_in_words(case, expected),
        observed=numbers(seen) if len(seen) > 1 else listed(list(seen)),
        witnesses=noted,
    )


def _judge_ports(case: Case, flows: Sequence[Flow], findings: Findings) -> list[str]:
    """Judge the ports of flows that must keep their source. It returns what excuses the kernel where it changed one."""
    changed = [(flow, arrival) for flow in flows if (arrival := arrival_from_another_port(flow)) is not None]
    held, excused = holders(case.evidence.entries or ()) if changed else {}, list[str]()
    for flow, arrival in changed:
        left = flow.departures[0].source_port
        clause = f"{arrival.netns_name} saw it come from port {arrival.source_port}, not from port {left}"
        by_nodes = case.evidence.tracked is None or nodes_that_changed_it(flow, arrival)
        end, to = (arrival.destination, arrival.destination_port), (arrival.source, arrival.source_port)
        other = other_holder(held, case.resolved.nodes, ConntrackTuple(arrival.protocol, *end, *to), left)
        if other is not None:
            excused.append(f"{clause}: another connection on {other.node} holds that one ({entry_words(other)})")
        elif by_nodes and case.evidence.entries is None:
            unread = "whether another connection holds that port is not known, as the lab did not read all entries"
            findings.doubt(f"{clause}; {unread}", flow.number)
        else:
            findings.wrong(clause, flow.number)
    return tally(excused, *case.size)


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


def _note_no_expected_source(case: Case, flow: Flow, findings: Findings) -> None:
    """Neither the author nor the plan gives a source for the backend that the flow reached."""
    reached, source = listed(flow.reached), flow.arrivals[0].source
    if case.source_expectation(flow) is None:
        findings.wrong(f"{reached} saw it come from {source}, and source has no entry for {reached}", flow.number)
    elif ways := case.ways(flow):
        where = f"{reached} is a program of {ways[0].node} itself, and packets to it do not pass POSTROUTING there"
        findings.wrong(f"nothing masquerades it: {where}; it came from {source}", flow.number)
    else:
        findings.doubt(f"the plan knows no node that translates it on the way to {reached}", flow.number)


def _expected_there(expected: SourceExpectation, address: IPAddress) -> str:
    """The address that is expected of this flow, where it differs from flow to flow."""
    return f", not from {address}" if isinstance(expected, Masqueraded | NodeDevice | SourceByBackend) else ""


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


def _in_words(case: Case, expected: SourceExpectation) -> str:
    """What the author wrote, and the addresses that it stands for."""
    sender = case.resolved.sender
    match expected:
        case Preserved() if sender.others:
            return f"preserved ({len(sender.addresses):,} addresses)"
        case Preserved():
            return f"preserved ({sender.address})"
        case Masqueraded():
            addresses = dict.fromkeys(str(address) for flow in case.arrived if (address := case.expected_source(flow)))
            return f"masqueraded ({listed(list(addresses), 'or')})" if addresses else "masqueraded"
        case NodeDevice(node, device):
            addresses = dict.fromkeys(str(case.expected_source(flow)) for flow in case.arrived)
            return f"{listed(list(addresses), 'or') or case.source} ({node} {device})"
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


def _as_seen(case: Case, verdict: Verdict) -> str:
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


def _seen_address(case: Case, verdict: Verdict) -> IPAddress | None:
    return next((arrival.source for arrival in case.flows[verdict.example or 0].arrivals), None)


SOURCE = Expectation[Case, SourceExpectation](
    key="source",
    expected=lambda case: case.probe.expect.source,
    judge=_judge,
    needs=Needs.ARRIVALS,
    as_seen=_as_seen,
    seen_address=_seen_address,
)
