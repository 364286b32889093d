"""The causes of loss: a request that no pod saw, a reply that did not come or that no node translated back.

A fact of the plan is a cause only where counters or taps show that the packet met it.
"""

import re
from typing import Final

from proxylab.addresses import IPAddress
from proxylab.evidence.evidence import Direction, Evidence, Observation, Packet
from proxylab.evidence.words import amount, endpoint
from proxylab.plan.model import Plan
from proxylab.plan.resolved import STACK
from proxylab.verdict.arrivals import arrivals_by_pod
from proxylab.verdict.case import Case, packets_until
from proxylab.verdict.cause_clauses import by_rule, dialled, marked_in_vain, nodes, remembered, the_rule
from proxylab.verdict.drop_reasons import reason_words, reported_drop
from proxylab.verdict.drops import kernel_drop, policy_drop
from proxylab.verdict.flows import Flow
from proxylab.verdict.foreign import ended_by, rule_words, suspicion
from proxylab.verdict.last_sightings import hop, last_seen
from proxylab.verdict.layout import Crossing, bridge_of, calls_iptables, filtered, is_hairpin, port_of
from proxylab.verdict.rules import Rule, read_all, translations

__all__ = ["cause_of_loss", "cause_of_missing_reply"]

_ENDING: Final = re.compile(r"-j (DROP|REJECT)\b")


def cause_of_loss(case: Case, flow: Flow, plan: Plan | None, traced: Evidence | None) -> str:
    """Why no tap saw a flow arrive after it left."""
    return _dropped(case, plan) or _with_reason(case, _unseen(case, flow, plan, traced), traced)


def _unseen(case: Case, flow: Flow, plan: Plan | None, traced: Evidence | None) -> str:
    """The cause of a loss that nothing counted as a drop."""
    suspected = _suspected(case, flow)
    if suspected:
        return suspected
    translated = translations(case.evidence.counts)
    pods = {pod.address: pod for pod in case.resolved.receivers}
    for rule in translated:
        if rule.translates_to is None:
            continue
        address, port = rule.translates_to
        if address not in pods:
            return f"{rule.count.node} translated the packet to {endpoint(address, port)}, which is no pod of this lab."
        if not arrivals_by_pod(case)[pods[address].name]:
            return _by_hairpin(case, rule, plan) or _on_the_way(case, rule, rule.translates_to, traced)
    if translated:
        return ""
    if case.resolved.destination in pods:
        return _past_services(case, pods[case.resolved.destination].name, traced)
    return remembered(case, flow) or (_untranslated(case) if case.evidence.counts else "")


def _suspected(case: Case, flow: Flow) -> str:
    """The sentence about a packet that came no further than a node with foreign rules that may have dropped it."""
    seen = last_seen(flow)
    if seen is None or (seen.direction is Direction.OUT and seen.device != STACK):
        return ""
    clause = suspicion(case.evidence, seen.netns_name)
    return f"the taps saw the packet last at {hop(seen)}: {clause}, and may have dropped it." if clause else ""


def _by_foreign_rule(case: Case, packets: int) -> str:
    """The sentence about a foreign rule that counted every packet as dropped; empty without one."""
    rule = ended_by(case.evidence, packets)
    if rule is None:
        return ""
    return (
        f"{rule.node} dropped the packet by {rule_words(rule)}, which belongs to no engine and counted "
        f"{amount(packets, 'packet')}."
    )


def _with_reason(case: Case, sentence: str, traced: Evidence | None) -> str:
    """A sentence with the kernel's drop reason for one more packet, which the lab traced."""
    drop = None if traced is None else reported_drop(case.resolved, traced)
    if drop is None:
        return sentence
    reason = f"the kernel dropped one more packet, which was traced: {reason_words(drop)}."
    return f"{sentence.removesuffix('.')}; {reason}" if sentence else reason


def _dropped(case: Case, plan: Plan | None) -> str:
    """What dropped the packet by its own counter: a rule, a reverse path filter, a stack, or a policy."""
    dropped = by_rule(case, "DROP", "dropped")
    if dropped:
        return dropped
    if plan is not None and (refused := _by_reverse_path(case, plan)):
        return refused
    packets = packets_until(case.flows, case.evidence.counters_read_at)
    drop = kernel_drop(case.resolved, case.evidence, packets, plan)
    if drop is not None:
        return f"{drop}."
    return _by_foreign_rule(case, packets) or _by_another_rule(case, packets) or policy_drop(case.evidence, packets)


def _by_another_rule(case: Case, packets: int) -> str:
    """The sentence about a rule that dropped as many packets without naming the dialled address."""
    for rule in read_all(case.evidence.counts):
        if rule.target == "DROP" and rule.count.packets == packets:
            counted = f"which counted {amount(packets, 'packet')}"
            name = the_rule(rule) if rule.comment else f'its rule "{rule.count.text}"'
            return f"{rule.count.node} dropped the packet by {name} of table {rule.count.table}, {counted}."
    return ""


def _by_reverse_path(case: Case, plan: Plan) -> str:
    """The reverse path filter works after PREROUTING, whose rules therefore counted the packet on that node."""
    sender = case.resolved.sender
    crossing = filtered(plan, sender.namespace, sender.address, case.resolved.destination)
    if crossing is None or crossing.node not in {count.node for count in case.evidence.counts}:
        return ""
    return f"{crossing.node} refused the packet after its PREROUTING rules: {_reverse_path(crossing, sender.address)}."


def _reverse_path(crossing: Crossing, source: IPAddress) -> str:
    back = (
        f"and the way back to {source} leads by {crossing.back}" if crossing.back else f"and no way leads to {source}"
    )
    return f"rp_filter is 1 there, it came in by {crossing.device}, {back}"


def _by_hairpin(case: Case, rule: Rule, plan: Plan | None) -> str:
    """A bridge does not send a frame back by the port it came in by (br_allowed in net/bridge/br_forward.c).

    Only rules that see what the bridge carries can have translated a frame on its way over the bridge.
    """
    sender = case.resolved.sender
    if plan is None or rule.translates_to is None or rule.translates_to[0] != sender.address:
        return ""
    port = port_of(plan, sender.namespace, sender.device)
    if port is None or is_hairpin(plan, port) or not calls_iptables(plan, port.node, sender.address):
        return ""
    return (
        f"{port.node} translated {sender.name}'s packet to {sender.name} itself, and its bridge {port.bridge} does not "
        f"send a frame back by the port it came in by: hairpin is off on {port.end.device}."
    )


def _past_services(case: Case, name: str, traced: Evidence | None) -> str:
    """For a pod dialled by its own address there is no translation: the end of one more packet shows most."""
    steps = [step for step in traced.steps if step.packet is Packet.REQUEST] if traced is not None else []
    if not steps:
        return ""
    last = steps[-1]
    rule = f', by "{last.text}"' if _ENDING.search(last.text) or last.verdict == "drop" else ""
    seen = f"one more packet, which was traced, was last seen in {last.chain} on {last.netns_name}{rule}"
    return f"{name} never saw what {case.resolved.sender.name} sent to {dialled(case)}; {seen}."


def _on_the_way(case: Case, rule: Rule, to: tuple[IPAddress, int], traced: Evidence | None) -> str:
    address, port = to
    name = next(pod.name for pod in case.resolved.receivers if pod.address == address)
    sentence = f"{rule.count.node} translated the packet to {name} ({endpoint(address, port)}), but {name} never saw it"
    if traced is None or any(seen.netns_name == name for seen in traced.observations):
        return f"{sentence}."
    steps = [step for step in traced.steps if step.packet is Packet.REQUEST]
    if steps:
        sentence += f"; one more packet, which was traced, was last seen in {steps[-1].chain} on {steps[-1].netns_name}"
    return f"{sentence}."


def _untranslated(case: Case) -> str:
    stopped = next((rule for rule in read_all(case.evidence.counts) if rule.speaks_of(case.resolved)), None)
    left = f"it left {case.resolved.sender.name} for {dialled(case)}"
    if stopped:
        return (
            f"no rule translated the packet: {left}; {stopped.count.node} counted it in "
            f"{the_rule(stopped)}, but in no DNAT rule."
        )
    return f"no rule translated the packet: {left}, and no rule for that address counted on {nodes(case)}."


def cause_of_missing_reply(case: Case, flow: Flow, plan: Plan | None, traced: Evidence | None = None) -> str:
    """Why the sender heard no reply to a flow that arrived, or one from an address that it did not dial."""
    pods = {pod.address: pod for pod in case.resolved.receivers}
    for reply in flow.replies:
        if reply.source in pods and not _from_dialled(case, reply):
            return _not_back(case, pods[reply.source].name, (pods[reply.source].namespace, reply), plan)
    if flow.answers and not flow.replies:
        answer = flow.answers[-1]
        to = endpoint(answer.destination, answer.destination_port)
        broken = f"the way back is broken: {answer.netns_name} replied to {to}, and "
        refused = _refused_on_the_way_back(case, plan)
        if refused:
            return f"{broken}{refused}."
        return _with_reason(case, f"{broken}{case.resolved.sender.name} heard nothing.", traced)
    if flow.arrivals and not flow.answers and not flow.replies:
        if flow.arrivals[0].source == flow.arrivals[0].destination:
            return f"{flow.reached[0]} got the request from its own address and did not reply: nothing masqueraded it."
        return remembered(case, flow) or f"{flow.reached[0]} got the request and did not reply: no rule stopped it."
    return ""


def _refused_on_the_way_back(case: Case, plan: Plan | None) -> str:
    """The clause about a node that refused the reply behind its translation; empty without one."""
    translated = translations(case.evidence.counts)
    if plan is None or not translated:
        return ""
    resolved = case.resolved
    crossing = filtered(plan, translated[0].count.node, resolved.destination, resolved.sender.address)
    if crossing is None:
        return ""
    return f"{crossing.node} refused the reply: {_reverse_path(crossing, resolved.destination)}"


def _not_back(case: Case, name: str, heard: tuple[str, Observation], plan: Plan | None) -> str:
    """Why a reply has the pod's own address: the node that translated the request did not see the reply."""
    sender = case.resolved.sender
    sentence = f"nothing translated the reply back: {sender.name} heard {name}'s own address"
    unmasqueraded = marked_in_vain(case)
    if unmasqueraded:
        return f"{sentence}, since the request {unmasqueraded}."
    namespace, reply = heard
    device = next(pod.device for pod in case.resolved.receivers if pod.namespace == namespace)
    port = None if plan is None else bridge_of(plan, (sender.namespace, sender.device), (namespace, device))
    if plan is not None and port is not None and not calls_iptables(plan, port.node, reply.source):
        key = "bridge-nf-call-iptables" if reply.source.version == 4 else "bridge-nf-call-ip6tables"
        return f"{sentence}, since the bridge {port.bridge} on {port.node} carried it past the rules: {key} is 0 there."
    return f"{sentence}."


def _from_dialled(case: Case, reply: Observation) -> bool:
    return (reply.source, reply.source_port) == (case.resolved.destination, case.resolved.port)
