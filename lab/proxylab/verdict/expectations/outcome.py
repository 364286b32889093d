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
comes once for each packet (``hops.altered_clauses``).

A tap at the pod saw an unexpected backend or source, so that is wrong whatever connection tracking holds. A reply from
a wrong address is wrong, too: the sender heard it, and a lost conntrack entry may be the reason.

The functions in front of the judgement look for doubts about its proof. Flows with the expected fate may owe it to
something else than the engine's rules: where counters do not account for every packet, or where foreign rules may have
done the work of the engine under test.

Two expectations rest on the same fates. ``icmp`` says which ICMP error rejected the flows, by the tap at the sender.
``also`` has a verdict where the promises leave open what must happen: then the author's own keys alone judge the probe.
"""

from collections import Counter, defaultdict
from collections.abc import Container, Iterator, Sequence
from typing import Final, NamedTuple

from proxylab.addresses import IPAddress, Transport
from proxylab.evidence.evidence import Direction, ForeignRule, Leg, Observation, Packet, RuleCount
from proxylab.evidence.words import amount, endpoint, listed, tally
from proxylab.plan.resolved import STACK
from proxylab.rules.effects import ENDING as ENDING_EFFECTS
from proxylab.rules.effects import EXEMPTING, REJECTING, REWRITING, Effect, effects
from proxylab.rules.packets import Packets
from proxylab.rules.rule import Rule
from proxylab.rules.texts import excludes, read_rule
from proxylab.scenario.probes import PodTarget
from proxylab.scenario.words import IcmpError, Outcome, PodWay
from proxylab.verdict.case import Case, fate_clause, fates_text, nodes_of
from proxylab.verdict.counted_rules import CountedRule, may_be_engines, of_service, the_rule
from proxylab.verdict.doubts import dropped_by_one, packets_of, packets_until
from proxylab.verdict.drops import kernel_drop
from proxylab.verdict.expectations.dropped_at_pod import judge_drop_at_pod
from proxylab.verdict.expectations.origin_of_answer import (
    answered_by_another,
    answered_elsewhere,
    doubts_about_refusal,
    doubts_about_rejection,
    rejects,
)
from proxylab.verdict.expectations.untranslated import judge_untranslated
from proxylab.verdict.findings import Expectation, Findings, Needs
from proxylab.verdict.flows import Fate, Flow, end_counts
from proxylab.verdict.foreign import ended_by, rewrote, rule_words, suspicion
from proxylab.verdict.hop_limits import HopLimits
from proxylab.verdict.hops import (
    altered_clauses,
    dropped_meanwhile,
    ended_in,
    hop,
    seen_untranslated,
    turned_away_again,
)
from proxylab.verdict.icmp_errors import errors_of, icmp_words, rejecting_error
from proxylab.verdict.model import Verdict

ENDING: Final = {Outcome.DROPPED: "DROP", Outcome.REJECTED: "REJECT"}
"""The target of the rules that end flows so."""


def doubts_about_outcome(case: Case, outcome: Outcome) -> Iterator[str]:
    """Reasons why flows with the expected fate may owe it to something else than the rules."""
    yield from _doubts_about_first_node(case)
    if outcome is Outcome.DELIVERED:
        yield from _doubts_about_translation(case)
        yield from _doubts_about_program(case)
    elif outcome is Outcome.CLOSED:
        yield from _doubts_about_program(case)
    elif outcome is Outcome.REJECTED and any(flow.rejected_by for flow in case.flows):
        yield from _doubts_about_rules(case, outcome, "reject", "an ICMP error came")
    elif outcome is Outcome.DROPPED:
        yield from case.may_be_late
        yield from _doubts_about_whose_drop(case)
        if not case.went_no_further:
            yield from _doubts_about_rules(case, outcome, "drop", "nothing arrived")


def _doubts_about_whose_drop(case: Case) -> Iterator[str]:
    """Foreign rules that may have dropped the packets in place of the engine under test.

    Rules that name the dialled address, and stacks, prove a drop by their own counters. Otherwise the last hop is the
    only witness, and a foreign rule that dropped the packets there shows nothing about the engine. A packet that left a
    node has passed all rules of that node. A rule that counted more than the probe's packets counted others as well.
    """
    counted = sum(rule.count.packets for rule in case.dropping)
    if counted == case.packets or _dropped_alike(case):
        return
    for node in case.resolved.nodes:
        if clause := suspicion(case.resolved, case.evidence, node, REWRITING):
            yield f"{clause}, and may have led it there"
    if case.stack_drop is not None:
        if case.resolved.service_port and not case.stack_drop.is_known and not _came_back(case):
            yield f"{case.stack_drop}; no rule of the engine did, and no address shows why"
        return
    last = [seen for flow in case.flows if (seen := flow.last_seen) is not None]
    within = {seen.netns_name for seen in last if seen.direction is Direction.IN or seen.device == STACK}
    for node in case.resolved.nodes:
        if node in within and (clause := suspicion(case.resolved, case.evidence, node)):
            yield f"{clause}, and may have dropped it before the engine's rules saw it"


def _came_back(case: Case) -> bool:
    """Whether each packet ended as it came back to its sender: a kernel takes no packet with its own source."""
    last = [flow.last_seen for flow in case.flows]
    sender = case.resolved.sender.name
    return all(seen and seen.direction is Direction.IN and seen.netns_name == sender for seen in last)


def doubts_about_flow(case: Case, flow: Flow, fate: Fate) -> Iterator[str]:
    """Reasons why a fate that looks as expected may be another one."""
    if case.expect.outcome is Outcome.REFUSED:
        yield from doubts_about_refusal(case, flow)
    elif flow.rejected_by is not None:
        yield from doubts_about_rejection(case, flow)
    elif fate is Fate.UNSENT and set(case.evidence.refused_sends) != {"EPERM"}:
        yield fate_clause(case, flow, fate)


def _doubts_about_first_node(case: Case) -> Iterator[str]:
    """Foreign rules that may have kept flows from the engine's on a node that they left as they were sent."""
    dropped = case.expect.outcome is Outcome.DROPPED
    fared = [flow for flow in case.flows if dropped or flow.arrivals or flow.unreachables]
    left = [seen for flow in fared if (seen := seen_untranslated(flow, case.dialled)) is not None]
    for node in dict.fromkeys(seen.netns_name for seen in left if case.resolved.service_port):
        for effect in (EXEMPTING, ENDING_EFFECTS):
            if clause := suspicion(case.resolved, case.evidence, node, effect):
                yield f"{clause}, and may have kept it from the engine's rules"
                break


def _doubts_about_translation(case: Case) -> Iterator[str]:
    """Pods that got more flows than the DNAT rules to them counted: something else may have sent the flows there.

    A DNAT rule counts the first packet of a new flow. The kernel translates a flow that conntrack knew before the probe
    by its old entry, which the author must expect, and consults no rule. A network plugin serves host ports by rules of
    its own.
    """
    ends = {(entry.reply_source, entry.reply_source_port) for entry in case.expected_entries}
    known = {(each.flow, (each.reply_source, each.reply_source_port)) for each in case.evidence.known}
    old = Counter(end for _, end in known if end in ends)
    if not case.is_metered:
        return
    direct = [flow.arrivals[0] for flow in case.arrived if flow.arrivals[0].leg is Leg.OWN]
    got = end_counts([(arrival.destination, arrival.destination_port) for arrival in direct])
    counted = Counter[tuple[IPAddress, int] | None]()
    for rule in _translating(case, got):
        counted[rule.translates_to] += rule.count.packets
    asked = set() if case.resolved.service_port else {(each.address, each.port) for each in case.resolved.endpoints}
    by_host_port = _addresses_behind_host_port(case)
    for where, flows in got.items():
        if where == case.dialled or where in asked or where[0] in by_host_port or counted[where] == flows:
            continue
        instead = "".join(_led_by_foreign_rule(case, node) for node in case.resolved.nodes)
        if flows - old[where] <= counted[where] <= flows and not instead:
            continue
        if counted[where] < flows or instead:  # other traffic may have made up for what the engine's rules missed
            whose = "the Service's " if case.resolved.service_port else ""
            few = "of" if counted[where] < flows else "packets for"
            found = f"{counted[where]:,} {few} {amount(flows, 'flow')} it got"
            yield f"{whose}DNAT rules to {endpoint(*where)} counted {found}{instead}"


def _addresses_behind_host_port(case: Case) -> Container[IPAddress]:
    """The addresses of the pod whose host port the probe dials, if the author expects the flows there.

    In mode ipvs a host port comes before a node port of its number, and no rule of the engine counts the flow.
    """
    target = case.probe.target
    if not isinstance(target, PodTarget) or target.via is not PodWay.HOST_PORT:
        return ()
    led = {each.address for each in case.resolved.receivers if each.name == target.pod}
    return led if target.pod in case.expect.backend_names else ()


def _translating(case: Case, got: Container[tuple[IPAddress, int] | None]) -> Iterator[CountedRule]:
    """The Service's DNAT rules, and those of nodes to which these send flows, as where an endpoint is a NodePort.

    So do a balancer that dials node ports, and a pod that passes packets on.
    """
    own = of_service(case.resolved, case.rules)
    yield from own
    onward = {rule.count.node for rule in own if rule.translates_to not in got}
    dialled_anew = bool(case.resolved.translators)  # a virtual server of a node port names not what the sender dialled
    for rule in case.translations if onward or dialled_anew else ():
        if rule.count.node not in onward and rule not in own and may_be_engines(rule.count, case.resolved):
            yield rule


def _led_by_foreign_rule(case: Case, node: str) -> str:
    """The clause that a node has a rule which may have led the flows in place of the engine's; empty without one."""
    rule = rewrote(case.resolved, case.evidence, node)
    return "" if rule is None else f"; {node} has {rule_words(rule)}, which belongs to no engine"


def _doubts_about_program(case: Case) -> Iterator[str]:
    """Flows that a program divided or closed, and that something else than the engine's rules may have led to it."""
    by_rules = not case.dials_program
    through_programs = [flow for flow, fate in case.flows_with_fates if flow.relayed is not None or fate is Fate.CLOSED]
    counted = sum(rule.count.packets for rule in case.leading_to_program)
    if by_rules and counted < len(through_programs) and case.is_metered:
        yield f"rules that lead to a proxy's process counted {counted:,} of {amount(len(through_programs), 'flow')}"
    if by_rules and (others := case.taken_by_others(through_programs)):
        there = endpoint(others[0].destination, others[0].destination_port)
        yield f"no rule that counted leads to {there}, where {others[0].netns_name} got {amount(len(others), 'flow')}"
    for node in dict.fromkeys(got.netns_name for flow in through_programs if (got := flow.taken) is not None):
        if clause := suspicion(case.resolved, case.evidence, node, REWRITING):
            yield f"{clause}, and may have led it to another program"


def _dropped_alike(case: Case) -> bool:
    """Whether one rule or policy dropped every packet of a probe that asks nothing of the engine."""
    return not case.resolved.service_port and dropped_by_one(case.resolved, case.evidence, case.flows)


def _rejected_alike(case: Case) -> bool:
    """Whether one rule rejected every packet of a probe that asks nothing of the engine, with the error that came.

    A rule that the scenario gives a node need not name the dialled address. A rule of any tool counts: in modes whose
    engine has tables of its own, those of iptables are foreign.
    """
    if case.resolved.service_port:
        return False
    heard = {rejecting_error(error) for flow in case.flows if (error := flow.rejected_by) is not None}
    address, port = case.dialled
    sent = Packets({case.resolved.protocol}, destinations={address}, destination_ports={port})
    rejecting: list[tuple[RuleCount | ForeignRule, Rule]] = [
        (rule.count, rule.read) for rule in case.rules if rule.target == "REJECT"
    ]
    for foreign in case.evidence.foreign:
        read = read_rule(foreign.text)
        if read is not None and read.counts_what_it_does and Effect.REJECT in effects(read):
            rejecting.append((foreign, read))
    counted = (read for rule, read in rejecting if rule.packets == case.packets and not excludes(rule.text, sent))
    return any(heard <= errors_of(read) for read in counted)


def _doubts_about_rules(case: Case, outcome: Outcome, verb: str, seen: str) -> Iterator[str]:
    """Why ``seen`` does not prove the work of rules: no counter accounts for every packet."""
    needed = case.packets
    rules = case.ending(ENDING[outcome])
    counted = sum(rule.count.packets for rule in rules)
    if outcome is Outcome.DROPPED:
        counted += sum(each.datagrams for each in case.discarded)
    if counted == needed or (outcome is Outcome.DROPPED and (case.stack_drop or _dropped_alike(case))):
        return
    if outcome is Outcome.REJECTED and not rules and _rejected_alike(case):
        return
    if not rules:
        yield f"{seen}, but no rule counted it as {outcome}"
    elif counted < needed:
        yield f"rules that {verb} it counted {counted:,} of {amount(needed, 'packet')}: {listed(nodes_of(rules))}"
    moved = {count.node for count in case.evidence.counts}
    uncounted = [node for node in case.resolved.nodes if node in moved and node not in case.evidence.metered_nodes]
    if counted < needed and uncounted:
        yield f"the rule counters of {listed(uncounted)} are incomplete, as where a proxy loads its rules meanwhile"
    for node in case.resolved.nodes if outcome is Outcome.REJECTED else ():
        if clause := suspicion(case.resolved, case.evidence, node, REJECTING):
            yield f"{clause}, and may have rejected it in place of the engine's rules"


_FATE = {
    Outcome.DELIVERED: Fate.DELIVERED,
    Outcome.REJECTED: Fate.REJECTED,
    Outcome.REFUSED: Fate.REFUSED,
    Outcome.DROPPED: Fate.LOST,
    Outcome.CLOSED: Fate.CLOSED,
}

_ANSWERED = frozenset({Outcome.DELIVERED, Outcome.CLOSED})
"""The outcomes for which an answer that no pod sent lacks a witness: it neither fulfils nor breaks them."""


_TURNED_AWAY = frozenset({Fate.REFUSED, Fate.REJECTED, Fate.UNREACHABLE})
"""The fates that look like ``refused``."""


def _expected(case: Case) -> Outcome | None:
    """The author's outcome. No probe has ``untranslated`` by default, nor a drop beyond nodes."""
    outcome = case.expect.outcome
    is_written = outcome is Outcome.UNTRANSLATED or case.came_beyond_nodes
    return outcome if is_written or case.is_about_packets else None


def _judge(case: Case, outcome: Outcome) -> Verdict:
    """What became of every flow is what the author expects."""
    if outcome is Outcome.UNTRANSLATED:
        return judge_untranslated(case, outcome)
    return judge_drop_at_pod(case, outcome) if case.came_beyond_nodes else _judge_fates(case, outcome)


def _judge_fates(case: Case, outcome: Outcome) -> Verdict:
    """Every flow has the fate that goes with the outcome, and what the outcome needs shows it."""
    expected, findings = _FATE[outcome], Findings(case)
    altered = {
        **HopLimits(case.resolved, case.evidence).clauses(case.flows, Packet.REQUEST),
        **altered_clauses(case.evidence.altered, replies=False),
    }
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
    """Whether the outcome rests on an answer that another machine than the expected one may have sent."""
    if outcome is Outcome.REJECTED:
        return flow.rejected_by is not None
    return outcome is Outcome.REFUSED and fate in _TURNED_AWAY


def _comes_to(case: Case, flow: Flow, fate: Fate) -> bool:
    """Whether a fate of another name is the expected outcome: a drop in the sender's OUTPUT, or a closed port over UDP.

    For a closed UDP port a stack sends what a rejecting rule sends: ICMP port unreachable. It is the stack's where no
    rule can have sent it.
    """
    outcome = case.expect.outcome
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
        if case.expect.outcome is not Outcome.DELIVERED or not case.arrived:
            findings.doubt(f"{case.on_links[flow.number]}, which shows nothing of the proxy", flow.number)
        return
    if flow.unended:
        # No later packet takes back a reset that the sender heard; an end that is missing may only be late.
        find = findings.missing if flow.unended == "timeout" else findings.wrong
        if dropped_meanwhile(case.evidence.links):
            find = findings.doubt
        find(f"it was answered, but {_unended(case, flow)}", flow.number)
    for clause in doubts_about_flow(case, flow, fate):
        findings.doubt(clause, flow.number)


def _look_at_rules(case: Case, outcome: Outcome, findings: Findings) -> None:
    """What speaks against the rules' share in fates that look as expected."""
    is_silent = Fate.LOST in case.fates  # flows with another fate have the ICMP error as a witness
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
    if case.expect.outcome is not Outcome.REJECTED or len(errors) < len(case.flows) or not unusual:
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
    elif case.discarded:
        for by in case.discarded:
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


class _LastHop(NamedTuple):
    """Where a flow was seen last."""

    netns_name: str
    device: str
    direction: Direction


def lost_where(case: Case) -> str:
    """Where the taps saw most of the lost flows last, as a sentence; empty if none was lost.

    It does not guess why: it names a rule or a counter only if that counted exactly as many packets there.
    """
    lost = [flow for flow, fate in case.flows_with_fates if fate is Fate.LOST]
    if not lost:
        return ""
    by_hop: defaultdict[_LastHop | None, list[tuple[Flow, Observation | None]]] = defaultdict(list)
    for flow in lost:
        seen = flow.last_seen
        by_hop[None if seen is None else _LastHop(seen.netns_name, seen.device, seen.direction)].append((flow, seen))
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
    if (foreign := ended_by(case.resolved, case.evidence, packets, ended)) is not None:
        return f"{foreign.node} dropped {who} by {rule_words(foreign)}, which counted {amount(packets, 'packet')}."
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


OUTCOME = Expectation[Case, Outcome](key="outcome", expected=_expected, judge=_judge, as_seen=seen_instead)


def _judge_icmp(case: Case, expected: IcmpError) -> Verdict:
    """Each flow was rejected by that error."""
    findings, heard = Findings(case), dict[str, None]()
    for flow in case.flows:
        errors = (*flow.unreachables, *flow.errors)
        heard |= dict.fromkeys(map(icmp_words, errors))
        others = [icmp_words(each) for each in errors if rejecting_error(each) is not expected]
        if others:
            findings.wrong(f"{case.resolved.sender.name} heard {listed(others)}", flow.number)
        elif not errors:
            findings.missing(f"{case.resolved.sender.name} heard no ICMP error", flow.number)
    return findings.settle(
        "icmp", expected=expected.replace("-", " "), observed=listed(list(heard)), may_be_late=case.may_be_late
    )


ICMP = Expectation[Case, IcmpError](key="icmp", judge=_judge_icmp)


def _judge_undecided(case: Case, why: str) -> Verdict:
    findings = Findings(case)
    findings.doubt(f"the promises of Kubernetes do not say what must happen: {why}; write the expected result")
    return findings.settle("also", expected="what Kubernetes promises", observed=fates_text(case))


UNDECIDED = Expectation[Case, str](
    key="also",
    expected=lambda case: case.expect.undecided or None,
    judge=_judge_undecided,
    needs=Needs.NOTHING,
)
