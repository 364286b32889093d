"""The sentence that names the cause of a failed expectation, where the evidence shows one.

The module chooses the cause for each expectation and finds those of wrong outcomes, sources, backends and shares. It
does not guess: every sentence names what it rests on.

A cause rests on the evidence of the probe. Two more things help to name it: the plan of the lab's network, and one more
packet that the lab traced afterwards. A sentence that needs that packet says so.
"""

from collections.abc import Callable

from proxylab.evidence.evidence import Evidence, Observation, Packet
from proxylab.evidence.words import amount, endpoint, listed, times
from proxylab.plan.model import Plan
from proxylab.scenario.model import Spread
from proxylab.verdict.arrivals import arrivals_by_pod, due_shares, masqueraded_again
from proxylab.verdict.case import Case, packets_of
from proxylab.verdict.cause_clauses import (
    REWRITING,
    by_rule,
    dialled,
    marked_in_vain,
    marking,
    remembered,
    rewriting,
    the_rule,
    translation,
)
from proxylab.verdict.conntrack import entry_words, unwanted_entries
from proxylab.verdict.copies import copying
from proxylab.verdict.dns import has_no_address
from proxylab.verdict.flows import Fate, Flow
from proxylab.verdict.foreign import ended_by, rewrote, rule_words
from proxylab.verdict.losses import cause_of_loss, cause_of_missing_reply
from proxylab.verdict.model import Judgement, Verdict
from proxylab.verdict.ports import due_at
from proxylab.verdict.rule_actions import is_from_itself, why_masqueraded
from proxylab.verdict.rules import read_all, translations
from proxylab.verdict.second_nat import SecondNat, Translation, second_nat

__all__ = ["cause"]

_ABOUT_TRANSLATION = frozenset({"outcome", "reply", "source", "backends", "spread"})

_LED_ASTRAY = frozenset({Fate.LOST, Fate.REFUSED, Fate.STRAYED, Fate.UNREACHABLE})

_ICMP_NAMES = {
    (4, 3, 0): "network unreachable",
    (4, 3, 1): "host unreachable",
    (4, 11, 0): "time to live exceeded",
    (6, 1, 0): "no route",
    (6, 1, 3): "address unreachable",
    (6, 3, 0): "hop limit exceeded",
}
"""By IP version, type and code."""


def cause(case: Case, verdict: Verdict, plan: Plan | None = None, traced: Evidence | None = None) -> str:
    """Why this expectation failed, as a sentence; empty if it did not fail or the evidence shows no cause."""
    if verdict.judgement is not Judgement.FAIL:
        return ""
    flow = case.flows[verdict.example or 0]
    if verdict.expectation in _ABOUT_TRANSLATION and (twice := _second_nat(case, flow)) is not None:
        return _of_two_translations(case, twice)
    causes: dict[str, Callable[[], str]] = {
        "name": lambda: _of_name(case, traced),
        "outcome": lambda: _of_copied_request(case, flow, plan) or _of_outcome(case, flow, plan, traced),
        "port": lambda: _of_port(case, flow),
        "reply": lambda: _of_copied_reply(case, flow, plan) or cause_of_missing_reply(case, flow, plan, traced),
        "source": lambda: _of_source(case, flow, plan),
        "backends": lambda: _of_backends(case, verdict),
        "spread": lambda: _of_spread(case),
        "http": lambda: _of_http(case, verdict),
        "conntrack": lambda: _of_conntrack(case),
        "at": lambda: by_rule(case, "DROP", "dropped") or by_rule(case, "REJECT", "rejected"),
    }
    return causes.get(verdict.expectation, str)()


def _of_name(case: Case, traced: Evidence | None) -> str:
    """Why no answer came to a DNS query, where a packet traced afterwards went to no pod."""
    if traced is None or not has_no_address(case.resolved, case.evidence.lookups):
        return ""
    if not any(each.error for each in case.evidence.lookups):
        return ""
    asked = (case.resolved.destination, case.resolved.port)
    requests = [each for each in traced.observations if each.packet is Packet.REQUEST]
    if not requests or any((each.destination, each.destination_port) != asked for each in requests):
        return ""
    return f"no rule translated the DNS query: a packet traced after it went on to {endpoint(*asked)} untranslated."


def _of_outcome(case: Case, flow: Flow, plan: Plan | None, traced: Evidence | None) -> str:
    match case.fates[flow.number]:
        case Fate.LOST:
            return cause_of_loss(case, flow, plan, traced)
        case Fate.STRAYED if _still_dialled(case, flow.strays[0]):
            stray = flow.strays[0]
            return (
                f"no rule translated the packet: it came in at {stray.netns_name} still addressed to {dialled(case)}."
            )
        case Fate.REJECTED:
            return (
                by_rule(case, "REJECT", "rejected")
                or _rejected_by_foreign_rule(case)
                or f"{flow.unreachables[0].source} rejected the packet."
            )
        case Fate.UNREACHABLE if flow.arrivals and flow.unreachables:
            return _no_listener(flow, "an ICMP port unreachable")
        case Fate.UNREACHABLE if flow.errors and not translations(case.evidence.counts):
            icmp = flow.errors[0]
            left = f"it left {case.resolved.sender.name} for {dialled(case)}"
            return f"no rule translated the packet: {left}, and {icmp.source} answered with {_icmp(icmp)}."
        case Fate.REFUSED if flow.arrivals:
            return _no_listener(flow, "a reset")
        case Fate.DELIVERED:
            return _of_delivery(case, flow)
        case _:
            return ""


def _of_delivery(case: Case, flow: Flow) -> str:
    arrival = flow.arrivals[0]
    rule = translation(case, arrival.destination)
    if rule is None:
        return remembered(case, flow)
    to = endpoint(arrival.destination, arrival.destination_port)
    return f"{rule.count.node} translated the packet to {to} by {the_rule(rule)}."


def _rejected_by_foreign_rule(case: Case) -> str:
    rule = ended_by(case.evidence, packets_of(case.flows), rejected=True)
    return (
        f"{rule.node} rejected the packet by {rule_words(rule)}, which belongs to no engine."
        if rule is not None
        else ""
    )


def _second_nat(case: Case, flow: Flow) -> SecondNat | None:
    """The second translation of a flow that arrived, or that went to an address without a pod."""
    if case.fates[flow.number] in _LED_ASTRAY:
        return second_nat(flow, case.resolved)
    return case.second_nats.get(flow.number)


def _of_two_translations(case: Case, twice: SecondNat) -> str:
    """Both translations, each with the rule that counted or may have done it."""
    first, second = (_whose(case, each) for each in (twice.first, twice.second))
    return f"the packet was translated twice: {twice.clause(first, second)}."


def _whose(case: Case, translation: Translation) -> str:
    """The rule behind a translation, or its node's conntrack entry, as the end of a clause."""
    node = translation.node
    counted = [each for each in read_all(case.evidence.counts) if each.count.node == node]
    targets = {"DNAT"} if translation.of_destination else REWRITING
    rule = next((each for each in counted if each.target in targets), None)
    if rule is not None:
        return f" by {the_rule(rule)}"
    foreign = rewrote(case.evidence, node)
    if foreign is not None:
        perhaps = "" if foreign.packets else "perhaps "
        return f" {perhaps}by {rule_words(foreign)}, which belongs to no engine"
    entries = case.flows[0].tracked
    return " by an entry of its conntrack" if any(each.node == node for each in entries) else ""


def _no_listener(flow: Flow, answer: str) -> str:
    arrival = flow.arrivals[0]
    where = endpoint(arrival.destination, arrival.destination_port)
    return f"no program listens at {where} on {arrival.netns_name}: the packet reached it, and {answer} came back."


def _of_copied_request(case: Case, flow: Flow, plan: Plan | None) -> str:
    if case.fates[flow.number] is not Fate.COPIED:
        return ""
    ended = f"a copy came in at {case.lost_copies.get(flow.number)}, and ended there"
    return f"the packet was copied on its way: {copying(flow, flow.strays, plan) or ended}."


def _of_copied_reply(case: Case, flow: Flow, plan: Plan | None) -> str:
    if flow.stray_replies:
        return f"the reply was copied on its way: {copying(flow, flow.stray_replies, plan)}."
    if flow.number in case.lost_reply_copies:
        where = case.lost_reply_copies[flow.number]
        return f"the reply was copied on its way: a copy came in at {where}, and ended there."
    if len(flow.replies) <= max(1, len(flow.answers)) or len({reply.source for reply in flow.replies}) > 1:
        return ""
    if flow.strange_answers:
        other = flow.strange_answers[0]
        return f"{other.netns_name} answered as well, from {endpoint(other.source, other.source_port)}."
    return (
        f"the reply was copied on its way: {listed(flow.reached)} sent it once, and it came {times(len(flow.replies))}."
    )


def _of_port(case: Case, flow: Flow) -> str:
    """The rule that translated to the wrong port, and the right port."""
    resolved = case.resolved
    arrival = next(each for each in flow.arrivals if due_at(resolved, each.destination, each.destination_port))
    there = (arrival.destination, arrival.destination_port)
    rule = next((each for each in translations(case.evidence.counts) if each.translates_to == there), None)
    if rule is None:
        return remembered(case, flow)
    due = listed([endpoint(*each) for each in due_at(resolved, *there)], "or")
    has = f"the endpoint of {resolved.service_port} is {due}" if resolved.service_port else f"the probe dialled {due}"
    return f"{rule.count.node} translated the packet to {endpoint(*there)} by {the_rule(rule)}, but {has}."


def _of_source(case: Case, flow: Flow, plan: Plan | None) -> str:
    if not flow.arrivals:
        return ""
    again = _masqueraded_again(case, plan)
    if again:
        return again
    asked, changed = marking(case), rewriting(case)
    sender, arrival = case.resolved.sender, flow.arrivals[0]
    client = sender.of(flow.number)
    if arrival.source == client:
        if changed or not case.evidence.counts:
            return ""
        if asked:
            return f"the packet kept the client's address: it {marked_in_vain(case)}."
        return "the packet kept the client's address: nothing masqueraded it."
    if not changed:
        return ""
    # Only a rule for packets from an endpoint to itself explains such a packet, and it explains no other.
    to_itself = arrival.destination == client
    rule = next((rule for rule in asked if is_from_itself(rule, client) is to_itself), None)
    if rule is None:
        return f"{changed[0].count.node} masqueraded the packet by {the_rule(changed[0])}."
    why = why_masqueraded(rule, case.resolved) or " because of"
    return f"{changed[0].count.node} masqueraded the packet{why} {the_rule(rule)}."


def _masqueraded_again(case: Case, plan: Plan | None) -> str:
    """A tunnel's packet inherits the mark of the packet that it carries, unless a rule cleared it."""
    again = masqueraded_again(case)
    if again is None:
        return ""
    node, chain = again.count.node, again.count.chain
    tunnels = [vxlan.device for vxlan in plan.namespace(node).vxlans] if plan is not None else []
    around = f"the tunnel's packet around it ({listed(tunnels)})" if tunnels else "a packet with the same mark"
    cleared = any(
        rule.target == "MARK" and (rule.count.node, rule.count.chain) == (node, chain)
        for rule in read_all(case.evidence.counts)
    )
    why = "" if cleared else f": no rule in {chain} cleared the mark"
    return f"{node} masqueraded the packet, and then {around}{why}."


def _icmp(error: Observation) -> str:
    """An ICMP error by its name, or by type and code (RFC 792, RFC 4443)."""
    kind = error.icmp or (0, 0)
    name = _ICMP_NAMES.get((error.source.version, *kind), "")
    return f"ICMP {name or 'type'} ({kind[0]}/{kind[1]})"


def _of_backends(case: Case, verdict: Verdict) -> str:
    expected = case.probe.expect.backends or ()
    flow = case.flows[verdict.example] if verdict.example is not None else None
    if flow is not None and flow.arrivals:
        stranger = next((each for each in flow.arrivals if each.netns_name not in expected), None)
        rule = translation(case, stranger.destination) if stranger else None
        if rule is None or stranger is None:
            return remembered(case, flow)
        return f"{rule.count.node} sent the packet to {stranger.netns_name} by {the_rule(rule)}."
    never = [name for name in expected if not arrivals_by_pod(case)[name]]
    if not never:
        return ""
    sentence = f"the proxy never chose {listed(never)} in {amount(len(case.arrived), 'flow')}: its share is 0"
    if len(never) > 1:
        sentence = sentence.replace("its share is", "their share is")
    unruled = [pod for pod in case.resolved.receivers if pod.name in never and not translation(case, pod.address)]
    if unruled and translations(case.evidence.counts):
        sentence += (
            f", and no rule that translates to {listed([str(pod.address) for pod in unruled], 'or')} counted a packet"
        )
    return f"{sentence}."


def _of_spread(case: Case) -> str:
    found = arrivals_by_pod(case)
    if case.probe.expect.spread is Spread.STICKY:
        remembering = any(rule.value("-m") and "--rcheck" in rule.count.text for rule in read_all(case.evidence.counts))
        forgot = "" if remembering or not case.evidence.counts else ": no rule remembered where the first went"
        return f"the flows of {case.resolved.sender.name} went to {listed(list(found))}{forgot}."
    shares = due_shares(case)
    flows = sum(found[name] for name in shares)
    if not flows:
        return ""
    furthest = max(shares, key=lambda name: abs(found[name] - flows * shares[name]))
    if not found[furthest]:
        return f"the proxy never chose {furthest} in {amount(flows, 'flow')}: its share is 0."
    got = f"{found[furthest]:,} of {amount(flows, 'flow')}"
    return f"{furthest} got {got}: its share is {found[furthest] / flows:.1%}, and {shares[furthest]:.1%} was due."


def _of_http(case: Case, verdict: Verdict) -> str:
    """A health-check node port answers by the number of local endpoints that the proxy of its node knows."""
    report = next((each for each in case.evidence.http if each.flow == (verdict.example or 0)), None)
    if report is None or report.error or report.local_endpoints is None:
        return ""
    known = amount(report.local_endpoints, "local endpoint")
    return f"the proxy that serves {dialled(case)} knows of {known}, so it answers {report.status}."


def _of_conntrack(case: Case) -> str:
    wanted, resolved = case.probe.expect.conntrack, case.resolved
    left = unwanted_entries(wanted, case.evidence.entries, resolved.nodes, resolved.addresses, (resolved.protocol,))
    return f"conntrack on {left[0].node} still holds {entry_words(left[0])}: nothing deleted it." if left else ""


def _still_dialled(case: Case, stray: Observation) -> bool:
    return (stray.destination, stray.destination_port) == (case.resolved.destination, case.resolved.port)
