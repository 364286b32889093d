"""``outcome``: what became of the flows. It passes nothing without proof.

What each outcome needs, for every flow of the probe:

* ``delivered``: the flow left the sender and arrived at exactly one pod, once per packet sent, under that pod's own
  address, and no copy of it came in anywhere else. The reply has a verdict of its own: that pod sends it, and it comes
  back from the dialled address. So has the ``endpoint``. Where the pod does not have the dialled address, DNAT rules to
  it counted every flow: otherwise an old conntrack entry may have sent it there. If the author expects such an entry by
  ``conntrack``, the entry is the witness. Rules of others in the engine's tables are none. A TCP
  connection that carried data ended with a FIN from both sides: the responder sends its own when it has the sender's,
  and the sender's socket reports that one.
  A flow that netem lost on a link shows nothing of the proxy: the others decide, and without others nothing does.
* ``rejected``: the sender gets an ICMP port unreachable that quotes the flow; no pod saw it; and rules that reject and
  name the dialled address counted every packet: a node's own stack sends the same ICMP error for a closed port. The
  taps saw the ICMP error first as it left the node of such a rule (``origin_of_answer``).
* ``refused``: the sender gets a TCP reset from the dialled address; over UDP an ICMP port unreachable from there that
  no rule can have sent. No pod or host sent it that did not get the flow, and no foreign rule can have.
* ``dropped``: no pod saw the flow and the sender heard nothing; rules that drop and name the dialled address counted
  every packet; and they counted no other, or the sentinel packets sent after it came back, so that it is not merely
  late. A rule that rejected it is none of them. Where no rule drops it and the author names the last hop, the taps saw
  it last there. Or the stack of a node counted every packet as dropped before the lab sent a sentinel packet
  (``drops``): then no packet can be late. Or the proxy's own process counted each datagram as discarded, for want of an
  endpoint. Where the author names a pod or host, the flow came in there, nothing answered it, and that stack's counters
  account for every packet.
* ``closed``: the sender gets an answer to its SYN from the dialled address, and then the end of the connection, without
  a byte; no pod got the request. Rules that lead to the proxy's process counted every flow.
* ``untranslated``: a device of a node saw the flow leave under the dialled address, or a pod or host got it so; no pod
  got it under its own address, no device saw it under any other, no DNAT rule counted, and the sender heard at most an
  ICMP error that it cannot be delivered.

A request comes with the data that was sent, and an ICMP error quotes the packet that was sent; either, and a reset,
comes once for each packet (``alterations``).

A tap at the pod saw an unexpected backend or source, so that is wrong whatever connection tracking holds. A reply from
a wrong address is wrong, too: the sender heard it, and a lost conntrack entry may be the reason.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from proxylab.addresses import Transport
from proxylab.evidence.evidence import Direction, Observation
from proxylab.evidence.words import amount, endpoint, listed, tally
from proxylab.plan.resolved import STACK
from proxylab.scenario.words import Outcome
from proxylab.verdict.alterations import altered_clauses, turned_away_again
from proxylab.verdict.case import Case, fate_clause, fates_text, nodes_of
from proxylab.verdict.doubts import packets_of, packets_until
from proxylab.verdict.drops import kernel_drop
from proxylab.verdict.expectations.expectation import Expectation
from proxylab.verdict.expectations.origin_of_answer import answered_by_another, answered_elsewhere, rejects
from proxylab.verdict.expectations.proof_of_outcome import ENDING, doubts_about_flow, doubts_about_outcome
from proxylab.verdict.findings import Findings
from proxylab.verdict.flows.flows import Fate, Flow
from proxylab.verdict.flows.hops import ended_in, hop
from proxylab.verdict.flows.on_links import dropped_meanwhile
from proxylab.verdict.icmp_errors import icmp_words
from proxylab.verdict.model import Verdict
from proxylab.verdict.programs import discarded
from proxylab.verdict.rule_words import the_rule

_FATE = {
    Outcome.DELIVERED: Fate.DELIVERED,
    Outcome.REJECTED: Fate.REJECTED,
    Outcome.REFUSED: Fate.REFUSED,
    Outcome.DROPPED: Fate.LOST,
    Outcome.CLOSED: Fate.CLOSED,
}

_ANSWERED = frozenset({Outcome.DELIVERED, Outcome.CLOSED})
"""Outcomes that an answer from nowhere neither fulfils nor breaks: a witness is missing."""


_TURNED_AWAY = frozenset({Fate.REFUSED, Fate.REJECTED, Fate.UNREACHABLE})
"""The fates that look like ``refused``."""


def _expected(case: Case) -> Outcome | None:
    """``untranslated``, and a drop at a pod that packets came to, have rows of their own."""
    outcome = case.probe.expect.outcome
    if not case.is_about_packets or outcome is Outcome.UNTRANSLATED or case.came_beyond_nodes:
        return None
    return outcome


def _judge(case: Case, outcome: Outcome) -> Verdict:
    """What became of every flow is what the author expects."""
    expected, findings = _FATE[outcome], Findings(case)
    altered = altered_clauses(case.evidence.altered, replies=False)
    for flow, fate in case.flows_with_fates:
        if strange := altered.get(flow.number) or turned_away_again(case.resolved, case.evidence, flow):
            findings.wrong(_with_the_error(case, flow, fate, strange), flow.number)
        elif flow.number in case.second_nats:
            findings.wrong(f"it was translated twice: {case.second_nats[flow.number]}", flow.number)
        elif fate is Fate.COPIED:
            findings.wrong(fate_clause(case, flow, fate), flow.number)
        elif flow.number in case.disagreements:
            findings.doubt(case.disagreements[flow.number], flow.number)
        elif _is_turned_away(outcome, flow, fate) and (forged := answered_by_another(case, flow)):
            findings.wrong(forged, flow.number)
        elif fate in (expected, Fate.LOST_ON_LINK) or _comes_to(case, flow, fate):
            _look_closer(case, flow, fate, findings)
        elif fate is Fate.LOST:
            findings.missing(_unseen(case, flow), flow.number)
        elif fate is Fate.UNEXPLAINED and outcome in _ANSWERED and not answered_elsewhere(case, flow):
            findings.doubt(fate_clause(case, flow, fate), flow.number)
        else:
            findings.wrong(fate_clause(case, flow, fate), flow.number)
    _look_at_rules(case, outcome, findings)
    return findings.settle(
        "outcome",
        expected=outcome,
        observed=_observed(case),
        may_be_late=case.may_be_late,
        witnesses=_witnesses(case, outcome),
    )


def _with_the_error(case: Case, flow: Flow, fate: Fate, strange: str) -> str:
    """The clause on what came otherwise than it was sent, behind the ICMP error that breaks the outcome by itself."""
    if fate is not Fate.UNREACHABLE or _comes_to(case, flow, fate):
        return strange
    return f"{fate_clause(case, flow, fate)}, and {strange}"


def _is_turned_away(outcome: Outcome, flow: Flow, fate: Fate) -> bool:
    """Whether an answer shows the outcome, which another may have sent."""
    if outcome is Outcome.REJECTED:
        return flow.rejected_by is not None
    return outcome is Outcome.REFUSED and fate in _TURNED_AWAY


def _comes_to(case: Case, flow: Flow, fate: Fate) -> bool:
    """Whether another fate is the outcome, too: a drop in the sender's own OUTPUT, or a closed port over UDP.

    For a closed UDP port a stack sends what a rejecting rule sends: ICMP port unreachable. It is the stack's where no
    rule can have sent it.
    """
    outcome = case.probe.expect.outcome
    if outcome is Outcome.DROPPED:
        return fate is Fate.UNSENT
    if outcome is Outcome.REJECTED:
        return flow.rejected_by is not None
    if outcome is not Outcome.REFUSED or case.resolved.protocol is not Transport.UDP or not flow.unreachables:
        return False
    return not flow.errors and fate in (Fate.REJECTED, Fate.UNREACHABLE) and not rejects(case)


def _unended(case: Case, flow: Flow) -> str:
    """How the connection of an answered flow remained without an end, as a clause."""
    sender = case.resolved.sender.name
    if flow.unended != "timeout":
        return f"its connection ended with {flow.unended} at {sender}"
    return f"its connection did not end: {sender} sent its FIN, and none came back from {listed(flow.reached)}"


def _unseen(case: Case, flow: Flow) -> str:
    seen = flow.last_seen
    if seen is None:
        return f"no tap saw it leave {case.resolved.sender.name}"
    behind = hop(seen) if seen.netns_name in case.resolved.nodes else ""
    return f"no tap saw it behind {behind}" if behind else "no tap saw it again after it left"


def _look_closer(case: Case, flow: Flow, fate: Fate, findings: Findings) -> None:
    """What speaks against a fate that looks as expected, or that shows nothing of the proxy."""
    if fate is Fate.LOST_ON_LINK:
        if case.probe.expect.outcome is not Outcome.DELIVERED or not case.arrived:
            findings.doubt(f"{case.on_links[flow.number]}, which shows nothing of the proxy", flow.number)
        return
    if flow.unended:
        # A reset was heard, which no later packet takes back.
        find = findings.missing if flow.unended == "timeout" else findings.wrong
        if dropped_meanwhile(case.evidence.links):
            find = findings.doubt
        find(f"it was answered, but {_unended(case, flow)}", flow.number)
    for clause in doubts_about_flow(case, flow, fate):
        findings.doubt(clause, flow.number)


def _look_at_rules(case: Case, outcome: Outcome, findings: Findings) -> None:
    """What speaks against the rules' share in fates that look as expected."""
    is_silent = Fate.LOST in case.fates  # of the other flows, the sender heard the ICMP error
    if outcome is Outcome.DROPPED and is_silent and not case.dropping and (rejecting := case.rejecting):
        findings.wrong(f"{listed(nodes_of(rejecting))} rejected it by a rule, and the ICMP error was lost")
    for clause in doubts_about_outcome(case, outcome):
        findings.doubt(clause)


def _observed(case: Case) -> str:
    unended = sum(1 for flow in case.flows if flow.unended)
    more = f", {amount(unended, 'connection')} without an end" if unended else ""
    return (_ended_silently(case) or _rejected_by(case) or fates_text(case)) + more


def _rejected_by(case: Case) -> str:
    """The ICMP errors of rejected flows; empty for port unreachable, which is the usual one, and for other flows."""
    errors = [error for flow in case.flows if (error := flow.rejected_by) is not None]
    unusual = any(flow.errors for flow in case.flows)
    if case.probe.expect.outcome is not Outcome.REJECTED or len(errors) < len(case.flows) or not unusual:
        return ""
    return f"rejected by {listed(list(dict.fromkeys(map(icmp_words, errors))))}"


def _ended_silently(case: Case) -> str:
    """Where the taps saw flows last that no rule and no stack counted as dropped; empty for other flows."""
    if not case.went_no_further or case.stack_drop or set(case.fates) != {Fate.LOST}:
        return ""
    return f"seen last at {listed(list(dict.fromkeys(hop(seen) for flow in case.flows if (seen := flow.last_seen))))}"


def _witnesses_of_drop(case: Case) -> Iterator[str]:
    if (drop := case.stack_drop) is not None:
        yield str(drop)
    elif of_programs := discarded(case):
        for by in of_programs:
            yield f"the proxy's process on {by.node} discarded {amount(by.datagrams, 'datagram')}"
    elif case.went_no_further:
        seen = [each for flow in case.flows if (each := flow.last_seen) is not None]
        came_back = all(each.answered for each in case.evidence.sentinels)
        no_later = "the sentinel packets came back" if came_back else "a counter there accounts for every packet"
        yield from tally((f"seen last at {hop(each)}, and {no_later}" for each in seen), len(case.flows))


def _witnesses(case: Case, outcome: Outcome) -> Iterator[str]:
    if outcome is Outcome.DELIVERED:
        reached = [netns_name for flow in case.arrived for netns_name in flow.reached]
        yield from tally((f"seen at {netns_name}" for netns_name in reached), len(case.flows))
    elif outcome is Outcome.REJECTED:
        icmps = [icmp for flow in case.flows if (icmp := flow.rejected_by) is not None]
        yield from tally((f"{icmp_words(icmp)} from {icmp.source}" for icmp in icmps), len(case.flows))
    elif outcome is Outcome.REFUSED:
        yield from tally((f"reset by {flow.resets[0].source}" for flow in case.flows if flow.resets), len(case.flows))
        closed = [flow.unreachables[0].source for flow in case.flows if flow.unreachables]
        yield from tally((f"ICMP port unreachable from {source}" for source in closed), len(case.flows))
    elif outcome is Outcome.DROPPED:
        yield from _witnesses_of_drop(case)
    elif outcome is Outcome.CLOSED:
        ends = [endpoint(each.source, each.source_port) for flow in case.flows for each in flow.closings[:1]]
        yield from tally((f"accepted and closed by {each}" for each in ends), len(case.flows))
    if outcome in ENDING:
        for rule in case.ending(ENDING[outcome]):
            yield f"{rule.count.node} counted {amount(rule.count.packets, 'packet')}: {rule.count.text}"


def seen_instead(case: Case, verdict: Verdict) -> str:
    """What became of a flow with another fate, as a sentence."""
    flow = case.flows[verdict.example or 0]
    sender = case.resolved.sender.name
    match case.fates[flow.number]:
        case Fate.LOST:
            return lost_where(case)
        case Fate.UNSENT:
            errors = listed(sorted(set(case.evidence.refused_sends)), "or")
            who = f"a rule in {sender}'s own namespace" if errors == "EPERM" else f"{sender}'s kernel"
            return f"{who} kept the packet from leaving: the send failed with {errors}."
        case Fate.STRAYED:
            stray = flow.strays[0]
            to = endpoint(stray.destination, stray.destination_port)
            at = stray.netns_name
            return f"the packet came in at {at} addressed to {to}, which {at} does not have."
        case Fate.MULTIPLIED:
            return f"the packet was copied on its way: {fate_clause(case, flow, Fate.MULTIPLIED)}."
        case Fate.REFUSED if not flow.arrivals:
            reset = flow.resets[0]
            refused = f"{endpoint(reset.source, reset.source_port)} refused the connection"
            return f"{refused} before any pod saw it: no program listens there, or a rule resets it."
        case Fate.DELIVERED if flow.unended:
            return f"{_unended(case, flow)}."
        case Fate.DELIVERED if flow.arrivals:
            arrival = flow.arrivals[0]
            to = endpoint(arrival.destination, arrival.destination_port)
            return f"nothing stopped the packet: it came in at {arrival.netns_name}, addressed to {to}."
        case fate:
            return f"{fate_clause(case, flow, fate)}."


def lost_where(case: Case) -> str:
    """Where the taps saw most of the lost flows last, as a sentence; empty if none was lost.

    It does not guess why: it names a rule or a counter only if that counted exactly as many packets there.
    """
    lost = [flow for flow, fate in case.flows_with_fates if fate is Fate.LOST]
    if not lost:
        return ""
    by_hop: defaultdict[tuple[str, str, Direction] | None, list[tuple[Flow, Observation | None]]] = defaultdict(list)
    for flow in lost:
        seen = flow.last_seen
        by_hop[None if seen is None else (seen.netns_name, seen.device, seen.direction)].append((flow, seen))
    most = max(by_hop.values(), key=len)
    flows, seen = [flow for flow, _ in most], most[0][1]
    who = _who(case, flows)
    if seen is None:
        return f"no tap saw {who}, not even leaving {case.resolved.sender.name}."
    return _dropped_at(case, flows, seen, who) or f"{who} {_lost(case, flows, seen)}."


def _who(case: Case, flows: Sequence[Flow]) -> str:
    return "the packet" if len(case.flows) == 1 else f"{len(flows):,} of {amount(len(case.flows), 'flow')}"


def _dropped_at(case: Case, flows: Sequence[Flow], seen: Observation, who: str) -> str:
    """The rule or stack that counted exactly as many packets at their last hop; empty if there is none."""
    ended, packets = ended_in(flows), packets_of(flows)
    if seen.netns_name not in case.resolved.nodes or ended != {seen.netns_name}:
        return ""
    for rule in case.rules:
        if rule.count.node == seen.netns_name and rule.target in ("DROP", "REJECT") and rule.count.packets == packets:
            counted = f"which counted {amount(packets, 'packet')}"
            return f"{seen.netns_name} dropped {who} by {the_rule(rule)}, {counted}."
    packets = packets_until(flows, case.evidence.counters_read_at)
    drop = kernel_drop(case.resolved, case.evidence, packets, ended)
    return f"{drop}." if drop is not None and drop.node == seen.netns_name else ""


def _lost(case: Case, flows: Sequence[Flow], seen: Observation) -> str:
    was, they, them = ("was", "it", "it") if len(flows) == 1 else ("were", "they", "them")
    to = f"addressed to {endpoint(seen.destination, seen.destination_port)}"
    if seen.netns_name not in case.resolved.nodes:
        return f"{was} lost behind {seen.netns_name}: {they} left by {seen.device}, {to}, and came in at no node"
    if seen.device == STACK:
        return f"{was} lost in {seen.netns_name}: a program there sent {them}, {to}, but no device sent {them} on"
    if seen.direction is Direction.IN:
        return f"{was} lost in {seen.netns_name}: {they} came in by {seen.device}, {to}, and did not leave again"
    return f"{was} lost behind {seen.netns_name}: {they} left by {seen.device}, {to}, and came in nowhere"


OUTCOME = Expectation[Case, Outcome](
    key="outcome",
    expected=_expected,
    judge=_judge,
    as_seen=seen_instead,
)
