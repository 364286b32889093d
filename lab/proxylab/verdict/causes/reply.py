"""Causes of a reply that did not come, came twice, or came from an address that the sender did not dial."""

from itertools import product

from proxylab.evidence.evidence import Direction, Packet
from proxylab.evidence.ipvs import SETS
from proxylab.evidence.words import amount, endpoint, listed, times
from proxylab.plan.resolved import STACK
from proxylab.verdict.causes.failure import Failure, by_foreign_rule, remembered, without_excluded
from proxylab.verdict.causes.foreign_rules import not_tracking
from proxylab.verdict.causes.layout import bridge_of, calls_iptables, rp_filter_refusal
from proxylab.verdict.counted_rules import may_be_engines, the_rule
from proxylab.verdict.doubts import lost_answers
from proxylab.verdict.drops import answer_drop, reverse_path_counted
from proxylab.verdict.foreign import ended_by, rule_words, suspicion_where_lost
from proxylab.verdict.hops import copies, copying, hop

_BIND = "A UDP server on a node must bind each of its addresses, or answer by IP_PKTINFO"

_ENDED = {"DROP": "dropped", "REJECT": "rejected"}


def reply_copied(failure: Failure) -> str:
    """A copy of the reply came in elsewhere, or more replies came than the pod sent."""
    flow, ended = failure.flow, failure.case.lost_reply_copies
    if flow.stray_replies:
        return f"the reply was copied on its way: {copying(flow, flow.stray_replies, failure.plan)}."
    if flow.number in ended:
        return f"the reply was copied on its way: a copy came in at {ended[flow.number]}, and ended there."
    if len(flow.replies) <= max(1, len(flow.answers)) or len({reply.source for reply in flow.replies}) > 1:
        return ""
    if flow.answers_from_wrong_address:
        other = flow.answers_from_wrong_address[0]
        return f"{other.netns_name} answered as well, from {endpoint(other.source, other.source_port)}."
    sent = f"{listed(flow.reached)} sent it once"
    return f"the reply was copied on its way: {sent}, and it came {times(len(flow.replies))}."


def reply_strayed(failure: Failure) -> str:
    """The only reply came in elsewhere, perhaps since a node changed its destination or the request's source."""
    flow, resolved = failure.flow, failure.case.resolved
    if flow.replies or not flow.stray_replies:
        return ""
    stray = flow.stray_replies[0]
    went, to = copies(flow.stray_replies), endpoint(stray.destination, stray.destination_port)
    for stop in flow.stops:
        there = stop.packet is Packet.REQUEST
        came, left = (stop.came.source, stop.went.source) if there else (stop.came.destination, stop.went.destination)
        if stop.packet in (Packet.REQUEST, Packet.REPLY) and came != left == to:
            by = by_foreign_rule(without_excluded(failure, stop.packet), stop.netns_name)
            what = "request's source" if there else "reply's destination"
            return f"the reply went to {went}: {stop.netns_name} changed the {what}{by}."
    return f"the reply went to {went}, and {resolved.sender.name} heard nothing."


def not_translated_back(failure: Failure) -> str:
    """The reply has the pod's own address: the node that translated the request did not see the reply."""
    strange = (
        each
        for each in failure.flow.replies
        if each.source in failure.pods and (each.source, each.source_port) != failure.case.dialled
    )
    reply = next(strange, None)
    if reply is None:
        return ""
    sender, plan, pod = failure.case.resolved.sender, failure.plan, failure.pods[reply.source]
    sentence = f"nothing translated the reply back: {sender.name} heard {pod.name}'s own address"
    if failure.marked_in_vain:
        return f"{sentence}, since the request {failure.marked_in_vain}."
    device = next(each.device for each in failure.case.resolved.receivers if each.namespace == pod.namespace)
    port = None if plan is None else bridge_of(plan, (sender.namespace, sender.device), (pod.namespace, device))
    if plan is not None and port is not None and not calls_iptables(plan, port.node, reply.source):
        key = "bridge-nf-call-iptables" if reply.source.version == 4 else "bridge-nf-call-ip6tables"
        return f"{sentence}, since the bridge {port.bridge} on {port.node} carried it past the rules: {key} is 0 there."
    return _past_the_entrance(failure) or f"{sentence}."


def _past_the_entrance(failure: Failure) -> str:
    """The reply passed other nodes than the one that translated the request, whose connection tracking it needs."""
    requests = [stop for stop in failure.flow.stops if stop.packet is Packet.REQUEST]
    changing = (stop for stop in requests if stop.came.destination == failure.dialled != stop.went.destination)
    entrance = next((stop.netns_name for stop in changing), "")
    back = [stop for stop in failure.flow.stops if stop.packet is Packet.REPLY]
    passed = [stop.netns_name for stop in back if stop.netns_name in failure.case.resolved.nodes]
    if not entrance or not passed or entrance in passed:
        return ""
    by_passed = f"the reply did not pass {entrance}, which alone could translate it back"
    return f"{by_passed}: {passed[-1]} sent it straight to {failure.case.resolved.sender.name}."


def answered_from_other_address(failure: Failure) -> str:
    """A program on a node answered from another address of the node than the one that got the request.

    A UDP socket without an address takes that of the route to the client (udp_sendmsg in net/ipv4/udp.c), so connection
    tracking does not know the datagram as the reply.
    """
    flow, resolved = failure.flow, failure.case.resolved
    if not flow.arrivals or not flow.replies or flow.arrivals[0].device != STACK:
        return ""
    arrival, reply = flow.arrivals[0], flow.replies[0]
    pod = failure.pods.get(reply.source)
    own = {each.namespace for each in resolved.receivers if each.name == arrival.netns_name}
    if pod is None or pod.namespace not in own or reply.source == arrival.destination:
        return ""
    node = pod.namespace
    came, sent = (arrival.destination, arrival.destination_port), (reply.source, reply.source_port)
    got = f"not from {endpoint(*came)}, which got the request"
    answered = f"{arrival.netns_name}'s socket answered from {endpoint(*sent)}, another address of {node}, {got}"
    if came == failure.case.dialled:
        untracked = not_tracking(failure, node, Packet.REQUEST, Packet.REPLY)
        return f"{answered}; nothing was to be translated back{untracked and f', and {untracked}'}. {_BIND}."
    return f"{answered}; so no connection tracking entry knew the reply. {_BIND}."


def reply_rewritten(failure: Failure) -> str:
    """A node gave the reply a source that was not dialled, as the taps on its devices show."""
    for reply in failure.flow.replies[:1]:
        came = (reply.source, reply.source_port)
        for stop in failure.flow.stops if came != failure.case.dialled else ():
            if stop.packet is Packet.REPLY and stop.came.source != stop.went.source == endpoint(*came):
                by = by_foreign_rule(failure, stop.netns_name)
                changed = f"{stop.netns_name} changed the reply's source to {endpoint(*came)}{by}"
                return f"{changed}, but the probe dialled {failure.dialled}."
    return ""


def reply_lost(failure: Failure) -> str:
    """The pod replied, and the sender heard nothing; perhaps a reverse path filter refused the reply."""
    flow, resolved, plan = failure.flow, failure.case.resolved, failure.plan
    if not flow.answers or flow.replies:
        return ""
    answer, translated = flow.answers[-1], failure.case.translations
    to = endpoint(answer.destination, answer.destination_port)
    broken = f"the way back is broken: {answer.netns_name} replied to {to}, and "
    refused = None
    if plan is not None and translated:
        refused = rp_filter_refusal(plan, translated[0].count.node, resolved.destination, resolved.sender.address)
    if refused is not None and reverse_path_counted(failure.case.evidence, refused.node):
        return f"{broken}{refused.node} refused the reply: {refused.because(resolved.destination)}."
    last = flow.last_reply or answer
    seen = f"the taps saw the reply last at {hop(last)}"
    about = without_excluded(failure, Packet.REPLY)
    came_in = last.direction is Direction.IN and last.netns_name in resolved.nodes
    if came_in and (clause := _ended_by_rule(failure, about, last.netns_name)):
        return f"{broken}{seen}, which {clause}."
    times, ended = lost_answers(failure.case.flows)
    counted = sum(at <= failure.case.evidence.counters_read_at for at in times)
    if (drop := answer_drop(resolved, failure.case.evidence, counted, ended)) is not None:
        return f"{broken}{seen}: {drop}."
    if clause := suspicion_where_lost(resolved, about.case.evidence, last):
        return f"{broken}{seen}: {clause}, and may have dropped it."
    return failure.with_drop_reason(f"{broken}{resolved.sender.name} heard nothing: {seen}.")


def _ended_by_rule(failure: Failure, about: Failure, node: str) -> str:
    """The clause that a rule of the node ended the reply; that it may have, if it did not count as many as are missing.

    ``about`` has only the rules that may match a reply.

    The lab reads the counters of iptables after the sentinel packets, and a rule may have ended those as well.
    """
    case = about.case
    missing = sum(max(0, len(flow.answers) - len(flow.replies)) for flow in case.flows)
    with_sentinels = missing + sum(not each.answered for each in case.evidence.sentinels)
    until = case.evidence.foreign_read_at
    early = sum(at <= until for at in lost_answers(case.flows)[0]) if until else missing
    engines = [
        rule
        for rule in case.rules
        if rule.target in _ENDED and rule.count.node == node and may_be_engines(rule.count, case.resolved)
    ]
    for rule in engines:
        if rule.count.packets in (missing, with_sentinels):
            ended = f"{_ENDED[rule.target]} {amount(rule.count.packets, 'packet')} by {the_rule(rule)}"
            states = [each for each in rule.read.matches if each.name in ("--ctstate", "ct state")]
            is_for_invalid = any("INVALID" in each.value.upper().split(",") and not each.negated for each in states)
            invalid = is_for_invalid and not_tracking(failure, node, Packet.REQUEST)
            return f"{ended}, since it is invalid there: {invalid}" if invalid else ended
    for packets, target in product((early, missing, with_sentinels), _ENDED):
        foreign = ended_by(case.resolved, case.evidence, packets, (node,), rejected=target == "REJECT")
        if foreign is not None:
            by = f"{rule_words(foreign)}, which belongs to no engine"
            return f"{_ENDED[target]} {amount(packets, 'packet')} by {by}"
    for rule in engines:
        counted = amount(rule.count.packets, "packet")
        return f"may have {_ENDED[rule.target]} it by {the_rule(rule)}, which counted {counted}"
    return ""


def not_answered(failure: Failure) -> str:
    """The pod got the request and did not reply."""
    flow = failure.flow
    if not flow.arrivals or flow.answers or flow.replies:
        return ""
    if flow.arrivals[0].source == flow.arrivals[0].destination:
        got = f"{flow.reached[0]} got the request from its own address and did not reply"
        return f"{got}: nothing masqueraded it{_for_want_of(failure)}."
    return remembered(failure) or f"{flow.reached[0]} got the request, and no tap saw it reply."


def _for_want_of(failure: Failure) -> str:
    """The clause about the member that a set of mode ipvs lacks for a packet from a pod to itself."""
    lacking = (count for count in failure.case.evidence.counts if count.table == SETS)
    return next((f", for {each.chain} on {each.node} has no member {each.text}" for each in lacking), "")
