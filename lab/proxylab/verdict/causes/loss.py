"""Causes of a request that ended on its way: what dropped or rejected it, and what the plan and the rules show.

A fact of the plan is a cause only where counters or taps show that the packet met it.
"""

from typing import Final

from proxylab.evidence.evidence import Packet
from proxylab.evidence.words import amount, endpoint, listed
from proxylab.plan.forwarding import UnreachableError, next_hop
from proxylab.plan.resolved import STACK
from proxylab.rules.effects import Effect
from proxylab.rules.texts import effects_of, read_rule
from proxylab.scenario.words import Outcome
from proxylab.verdict.causes.failure import Failure, remembered, without_excluded
from proxylab.verdict.causes.layout import calls_iptables, is_hairpin, port_of, rp_filter_refusal
from proxylab.verdict.causes.translation import led_by_others
from proxylab.verdict.counted_rules import NFT_TABLE, CountedRule, may_be_engines, the_rule
from proxylab.verdict.drops import kernel_drop, policy_drop, reverse_path_counted
from proxylab.verdict.flows import Fate
from proxylab.verdict.foreign import (
    ended_by,
    is_policy,
    may_count_sentinels,
    may_meet,
    rule_words,
    suspicion,
    suspicion_where_lost,
)
from proxylab.verdict.hops import hop, seen_translated

_ENDING: Final = frozenset({Effect.DROP, Effect.REJECT})
_ENDING_MAPS: Final = frozenset({"no-endpoint-services", "no-endpoint-nodeports"})
"""The maps of kube-proxy that drop or reject packets to Services without an endpoint."""


def dropped_by_rule(failure: Failure) -> str:
    """A rule that names the dialled address."""
    return _by_rule(failure, "DROP", "dropped")


def rejected_by_rule(failure: Failure) -> str:
    """A rule that names the dialled address. Where the author expects that, it is no cause of a failure."""
    is_expected = failure.case.expect.outcome is Outcome.REJECTED
    return "" if is_expected else _by_rule(failure, "REJECT", "rejected")


def lost_rejection(failure: Failure) -> str:
    """A rule rejected the packet, and the sender heard no ICMP error."""
    if not (sentence := _by_rule(failure, "REJECT", "rejected")):
        return ""
    return f"{sentence.removesuffix('.')}, and the ICMP error did not reach {failure.case.resolved.sender.name}."


def _by_rule(failure: Failure, target: str, participle: str) -> str:
    rules = failure.case.ending(target)
    if not rules:
        return ""
    by = f"by {the_rule(rules[0])}{_for_service(failure, rules[0])}"
    if led := led_by_others(failure):
        return f"{led}; {rules[0].count.node} then {participle} it {by}."
    return f"{rules[0].count.node} {participle} the packet {by}."


def _for_service(failure: Failure, rule: CountedRule) -> str:
    """The Service for which a rule of mode nftables ended the packet, where a map that it looked up knows it."""
    service, count = failure.case.resolved.service_port, rule.count
    if count.table != NFT_TABLE or not service or service.partition(":")[0] in count.chain:
        return ""
    if rule.looked_up:
        return f", for {service}"
    read = [read_rule(each.text) for each in failure.case.evidence.counts if each.node == count.node]
    leading = (each.looked_up for each in read if each is not None and each.looked_up in _ENDING_MAPS)
    return next((f", to which the map {name} leads {service}" for name in leading), "")


def rejected_by_foreign_rule(failure: Failure) -> str:
    """A foreign rule that counted every packet."""
    if failure.case.expect.outcome is Outcome.REJECTED:
        return ""
    rule = ended_by(
        failure.case.resolved, failure.case.evidence, failure.case.packets, failure.case.ended_in, rejected=True
    )
    return "" if rule is None else f"{rule.node} rejected the packet by {rule_words(rule)}, which belongs to no engine."


def rejected_by_stack(failure: Failure) -> str:
    """Only the sender of the ICMP error is known."""
    is_expected = failure.case.expect.outcome is Outcome.REJECTED
    return "" if is_expected else f"{failure.flow.unreachables[0].source} rejected the packet."


def refused_by_reverse_path(failure: Failure) -> str:
    """The reverse path filter works after PREROUTING, whose rules therefore counted the packet on that node."""
    sender = failure.case.resolved.sender
    if failure.plan is None:
        return ""
    refused = rp_filter_refusal(failure.plan, sender.namespace, sender.address, failure.case.resolved.destination)
    evidence = failure.case.evidence
    if refused is None or refused.node not in {count.node for count in evidence.counts}:
        return ""
    if not reverse_path_counted(evidence, refused.node):
        return ""
    return f"{refused.node} refused the packet after its PREROUTING rules: {refused.because(sender.address)}."


def neighbour_silent(failure: Failure) -> str:
    """No packet left: the next hop is a node whose reverse path filter keeps it from answering ARP as well.

    A kernel routes what an ARP request asks for, from the asker's address, before it answers (arp_process in
    net/ipv4/arp.c).
    """
    sender, destination = failure.case.resolved.sender, failure.case.resolved.destination
    unsent = not failure.flow.departures and failure.fate is Fate.LOST
    if failure.plan is None or not unsent or sender.device == STACK:
        return ""
    refused = rp_filter_refusal(failure.plan, sender.namespace, sender.address, destination)
    if refused is None:
        return ""
    try:
        into = next_hop(failure.plan, sender.namespace, destination).into
    except UnreachableError:
        return ""
    if (into.namespace, into.device) != (refused.node, refused.device):
        return ""
    asked = f"{refused.node}, the next hop, does not answer ARP from a source whose packets it refuses"
    return f"nothing left {sender.name}: {asked}: {refused.because(sender.address)}."


def end_lost(failure: Failure) -> str:
    """A rule may have dropped the end of a connection that carried data: the sender's FIN, or the backend's."""
    if failure.flow.unended != "timeout":
        return ""  # a reset came, so nothing was lost
    about = without_excluded(failure, Packet.REQUEST, Packet.REPLY)
    return _with_droppers(about, "the end of the connection (FIN) was lost after its data had crossed the network")


def data_lost(failure: Failure) -> str:
    """A rule may have dropped what followed the handshake: the sender's data, or the backend's answer."""
    report = failure.flow.report
    if not failure.flow.replies or report is None or report.error != "timeout":
        return ""
    # A large segment is lost as well where its sender does not hear that a router found it too large.
    about = without_excluded(failure, Packet.REQUEST, Packet.REPLY, Packet.OTHER_ICMP)
    return _with_droppers(about, "the handshake was answered, and what followed was lost")


def _with_droppers(failure: Failure, lost: str) -> str:
    """A loss of segments that no tap keeps, with what may have dropped them; empty if nothing is known to."""
    case = failure.case
    for rule in case.rules:
        if rule.target == "DROP" and may_be_engines(rule.count, case.resolved):
            counted = f"which counted {amount(rule.count.packets, 'packet')}"
            return f"{lost}: {rule.count.node} may have dropped it by {the_rule(rule)}, {counted}."
    found = (suspicion(case.resolved, case.evidence, node) for node in case.resolved.nodes)
    return next((f"{lost}: {clause}, and may have dropped it." for clause in found if clause), "")


def dropped_by_stack(failure: Failure) -> str:
    """A node's own stack, by the counter that accounts for every packet."""
    case = failure.case
    drop = kernel_drop(case.resolved, case.evidence, case.packets_counted, case.ended_in, failure.plan)
    return "" if drop is None else f"{drop}."


def dropped_by_foreign_rule(failure: Failure) -> str:
    """A foreign rule that counted every packet."""
    packets = failure.case.packets_counted
    rule = ended_by(failure.case.resolved, failure.case.evidence, packets, failure.case.ended_in)
    if rule is None or is_policy(rule.text):
        return ""
    dropped = f"{rule.node} dropped the packet by {rule_words(rule)}"
    return f"{dropped}, which belongs to no engine and counted {amount(packets, 'packet')}."


def dropped_by_other_rule(failure: Failure) -> str:
    """A rule that dropped as many packets without naming the dialled address."""
    case = failure.case
    packets, ended = case.packets_counted, case.ended_in
    for rule in case.rules:
        if not may_meet(rule.count, case.resolved, case.evidence) or may_count_sentinels(rule.count, case.evidence):
            continue
        if rule.target == "DROP" and rule.count.packets == packets and {rule.count.node} == ended:
            name = the_rule(rule) if rule.comment else f'its rule "{rule.count.text}"'
            dropped = f"{rule.count.node} dropped the packet by {name} of table {rule.count.table}"
            return f"{dropped}, which counted {amount(packets, 'packet')}."
    return ""


def dropped_by_policy(failure: Failure) -> str:
    """A chain's policy."""
    case = failure.case
    return policy_drop(case.resolved, case.evidence, case.packets_counted, case.ended_in)


def lost_before_foreign_rules(failure: Failure) -> str:
    """The packet came no further than a node with foreign rules that may have dropped it."""
    seen = failure.flow.last_seen
    if seen is None:
        return ""
    clause = suspicion_where_lost(failure.case.resolved, failure.case.evidence, seen)
    if not clause:
        return ""
    sentence = f"the taps saw the packet last at {hop(seen)}: {clause}, and may have dropped it."
    return failure.with_drop_reason(sentence)


def translated_to_no_pod(failure: Failure) -> str:
    """A rule translated the packet to an address that no pod has."""
    for rule in failure.case.translations:
        if rule.translates_to is not None and rule.translates_to[0] not in failure.pods:
            to = endpoint(*rule.translates_to)
            sentence = f"{rule.count.node} translated the packet to {to}, which is no pod of this lab."
            return failure.with_drop_reason(sentence)
    return ""


def lost_at_hairpin(failure: Failure) -> str:
    """A bridge does not send a frame back by the port it came in by (br_allowed in net/bridge/br_forward.c).

    Only rules that see what the bridge carries can have translated a frame on its way over the bridge.
    """
    sender, plan = failure.case.resolved.sender, failure.plan
    if plan is None or failure.translation(sender.address) is None or failure.case.arrivals_by_pod[sender.name]:
        return ""
    port = port_of(plan, sender.namespace, sender.device)
    if port is None or is_hairpin(plan, port) or not calls_iptables(plan, port.node, sender.address):
        return ""
    return failure.with_drop_reason(
        f"{port.node} translated {sender.name}'s packet to {sender.name} itself, and its bridge {port.bridge} does not "
        f"send a frame back by the port it came in by: hairpin is off on {port.end.device}."
    )


def lost_behind_translation(failure: Failure) -> str:
    """A rule translated the packet to a pod that never saw it; a traced packet shows where that one was last."""
    for rule in failure.case.translations:
        pod = failure.pods.get(rule.translates_to[0]) if rule.translates_to else None
        if pod is None or rule.translates_to is None or failure.case.arrivals_by_pod[pod.name]:
            continue
        to = f"{pod.name} ({endpoint(*rule.translates_to)})"
        sentence = f"{rule.count.node} translated the packet to {to}, but {pod.name} never saw it"
        traced = failure.traced
        if traced is not None and all(seen.netns_name != pod.name for seen in traced.observations):
            steps = [step for step in traced.steps if step.packet is Packet.REQUEST]
            if steps:
                last = f"{steps[-1].chain} on {steps[-1].netns_name}"
                sentence += f"; one more packet, which was traced, was last seen in {last}"
        return failure.with_drop_reason(f"{sentence}.")
    return ""


def lost_past_services(failure: Failure) -> str:
    """For a pod dialled by its own address there is no translation: the end of one more packet shows most."""
    case, traced = failure.case, failure.traced
    pod = failure.pods.get(case.resolved.destination)
    steps = [step for step in traced.steps if step.packet is Packet.REQUEST] if traced is not None else []
    if pod is None or case.translations or not steps:
        return ""
    last = steps[-1]
    rule = f', by "{last.text}"' if effects_of(last.text) & _ENDING or last.verdict == "drop" else ""
    seen = f"one more packet, which was traced, was last seen in {last.chain} on {last.netns_name}{rule}"
    sentence = f"{pod.name} never saw what {case.resolved.sender.name} sent to {failure.dialled}; {seen}."
    return failure.with_drop_reason(sentence)


def lost_to_memory(failure: Failure) -> str:
    """No rule translated the packet, and connection tracking did."""
    case = failure.case
    if case.translations or case.resolved.destination in failure.pods:
        return ""
    sentence = remembered(failure)
    return failure.with_drop_reason(sentence) if sentence else ""


def lost_untranslated(failure: Failure) -> str:
    """No rule of the engine translated the packet: a foreign one did, or perhaps a rule for its address counted it."""
    case = failure.case
    if led := led_by_others(failure):
        return failure.with_drop_reason(f"{led}.")
    if case.translations or not case.evidence.counts or case.resolved.destination in failure.pods:
        return ""
    if seen_translated(failure.flow, case.dialled):
        return ""
    stopped = next((rule for rule in case.rules if rule.matches(case.resolved)), None)
    left = f"no rule translated the packet: it left {case.resolved.sender.name} for {failure.dialled}"
    if stopped is None:
        nodes = listed(case.resolved.nodes, "or")
        return failure.with_drop_reason(f"{left}, and no rule for that address counted on {nodes}.")
    counted = f"{stopped.count.node} counted it in {the_rule(stopped)}"
    return failure.with_drop_reason(f"{left}; {counted}, but in no DNAT rule.")


def lost_after_trace(failure: Failure) -> str:
    """Only the kernel's reason for dropping one more packet."""
    return failure.with_drop_reason("")
