"""What speaks against the proof of an outcome: flows fared as expected, and may owe it to something else than rules.

``outcome`` says what each outcome needs. This module finds what is missing of it: counters that do not account for
every packet, and foreign rules that may have done the work of the engine under test.
"""

from collections import Counter
from collections.abc import Container, Iterator
from typing import Final

from proxylab.addresses import IPAddress
from proxylab.evidence.evidence import Direction, Leg
from proxylab.evidence.words import amount, endpoint, listed
from proxylab.plan.resolved import STACK
from proxylab.rules.effects import ENDING as ENDING_EFFECTS
from proxylab.rules.effects import EXEMPTING, REJECTING, REWRITING
from proxylab.rules.packets import Packets
from proxylab.rules.texts import excludes
from proxylab.scenario.words import Outcome
from proxylab.verdict.case import Case, fate_clause, nodes_of
from proxylab.verdict.counted_rules import CountedRule, may_be_engines, of_service
from proxylab.verdict.drops import dropped_with_sentinels
from proxylab.verdict.expectations.origin_of_answer import doubts_about_refusal, doubts_about_rejection
from proxylab.verdict.flows.flows import Fate, Flow
from proxylab.verdict.flows.hops import seen_untranslated
from proxylab.verdict.flows.sorting import counted_ends
from proxylab.verdict.foreign import rewrote, rule_words, suspicion
from proxylab.verdict.icmp_errors import errors_of, rejecting_error
from proxylab.verdict.programs import discarded, leading_to_program, listens_itself, taken_by_others

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
    if counted == case.packets:
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
    """Whether each packet ended where it entered its own sender: the kernel takes no packet with its own source."""
    last = [flow.last_seen for flow in case.flows]
    sender = case.resolved.sender.name
    return all(seen and seen.direction is Direction.IN and seen.netns_name == sender for seen in last)


def doubts_about_flow(case: Case, flow: Flow, fate: Fate) -> Iterator[str]:
    """Reasons why a fate that looks as expected may be another one."""
    if case.probe.expect.outcome is Outcome.REFUSED:
        yield from doubts_about_refusal(case, flow)
    elif flow.rejected_by is not None:
        yield from doubts_about_rejection(case, flow)
    elif fate is Fate.UNSENT and set(case.evidence.refused_sends) != {"EPERM"}:
        yield fate_clause(case, flow, fate)


def _doubts_about_first_node(case: Case) -> Iterator[str]:
    """Foreign rules that may have kept flows from the engine's on a node that they left as they were sent."""
    dropped = case.probe.expect.outcome is Outcome.DROPPED
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
    by its old entry, which the author must expect, and consults no rule.
    """
    expected = case.tables.some(case.probe.expect.conntrack)
    ends = {(entry.reply_source, entry.reply_source_port) for entry in expected}
    known = {(each.flow, (each.reply_source, each.reply_source_port)) for each in case.evidence.known}
    old = Counter(end for _, end in known if end in ends)
    if not case.is_metered:
        return
    direct = [flow.arrivals[0] for flow in case.arrived if flow.arrivals[0].leg is Leg.OWN]
    got = counted_ends([(arrival.destination, arrival.destination_port) for arrival in direct])
    counted = Counter[tuple[IPAddress, int] | None]()
    for rule in _translating(case, got):
        counted[rule.translates_to] += rule.count.packets
    for where, flows in got.items():
        if where == case.dialled or counted[where] == flows:
            continue
        instead = "".join(_led_by_foreign_rule(case, node) for node in case.resolved.nodes)
        if flows - old[where] <= counted[where] <= flows and not instead:
            continue
        if counted[where] < flows or instead:  # other traffic may have made up for what the engine's rules missed
            whose = "the Service's " if case.resolved.service_port else ""
            few = "of" if counted[where] < flows else "packets for"
            found = f"{counted[where]:,} {few} {amount(flows, 'flow')} it got"
            yield f"{whose}DNAT rules to {endpoint(*where)} counted {found}{instead}"


def _translating(case: Case, got: Container[tuple[IPAddress, int] | None]) -> Iterator[CountedRule]:
    """The Service's DNAT rules, and those of nodes to which these send flows, as where an endpoint is a NodePort."""
    own = of_service(case.resolved, case.rules)
    yield from own
    onward = {rule.count.node for rule in own if rule.translates_to not in got}
    for rule in case.translations if onward else ():
        if rule.count.node not in onward and rule not in own and may_be_engines(rule.count, case.resolved):
            yield rule


def _led_by_foreign_rule(case: Case, node: str) -> str:
    """The clause that a node has a rule which may have led the flows in place of the engine's; empty without one."""
    rule = rewrote(case.resolved, case.evidence, node)
    return "" if rule is None else f"; {node} has {rule_words(rule)}, which belongs to no engine"


def _doubts_about_program(case: Case) -> Iterator[str]:
    """Flows that a program divided or closed, and that something else than the engine's rules may have led to it."""
    by_rules = not listens_itself(case)
    through_programs = [flow for flow, fate in case.flows_with_fates if flow.relayed is not None or fate is Fate.CLOSED]
    counted = sum(rule.count.packets for rule in leading_to_program(case))
    if by_rules and counted < len(through_programs) and case.is_metered:
        yield f"rules that lead to a proxy's process counted {counted:,} of {amount(len(through_programs), 'flow')}"
    if by_rules and (others := taken_by_others(case, through_programs)):
        there = endpoint(others[0].destination, others[0].destination_port)
        yield f"no rule that counted leads to {there}, where {others[0].netns_name} got {amount(len(others), 'flow')}"
    for node in dict.fromkeys(got.netns_name for flow in through_programs if (got := flow.taken) is not None):
        if clause := suspicion(case.resolved, case.evidence, node, REWRITING):
            yield f"{clause}, and may have led it to another program"


def _dropped_alike(case: Case) -> bool:
    """Whether one rule or policy dropped every packet of a probe that asks nothing of the engine."""
    return not case.resolved.service_port and dropped_with_sentinels(case.evidence, case.packets, case.ended_in)


def _rejected_alike(case: Case) -> bool:
    """Whether one rule rejected every packet of a probe that asks nothing of the engine, with the error that came.

    A rule that the scenario gives a node need not name the dialled address.
    """
    if case.resolved.service_port:
        return False
    heard = {rejecting_error(error) for flow in case.flows if (error := flow.rejected_by) is not None}
    address, port = case.dialled
    sent = Packets({case.resolved.protocol}, destinations={address}, destination_ports={port})
    rejecting = (rule for rule in case.rules if rule.target == "REJECT" and not excludes(rule.count.text, sent))
    counted = (rule for rule in rejecting if rule.count.packets == case.packets)
    return any(heard <= errors_of(rule.value("--reject-with")) for rule in counted)


def _doubts_about_rules(case: Case, outcome: Outcome, verb: str, seen: str) -> Iterator[str]:
    """Why ``seen`` does not prove the work of rules: no counter accounts for every packet."""
    needed = case.packets
    rules = case.ending(ENDING[outcome])
    counted = sum(rule.count.packets for rule in rules)
    if outcome is Outcome.DROPPED:
        counted += sum(each.datagrams for each in discarded(case))
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
