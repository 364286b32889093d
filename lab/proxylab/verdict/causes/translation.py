"""Causes of a packet that arrived as or where it should not: which rule, entry or stack led or changed it."""

from proxylab.evidence.evidence import ForeignRule, Packet
from proxylab.evidence.words import amount, endpoint, listed
from proxylab.rules.effects import MARKING, REWRITING, REWRITING_DESTINATION
from proxylab.rules.texts import effects_of
from proxylab.scenario.words import Spread
from proxylab.verdict.causes.failure import Failure, by_foreign_rule, without_excluded
from proxylab.verdict.counted_rules import is_from_itself, may_be_engines, the_rule, why_masqueraded
from proxylab.verdict.dns import has_no_address
from proxylab.verdict.flows import Fate
from proxylab.verdict.foreign import may_have, rule_words, suspicion
from proxylab.verdict.hops import Translation, copying, origin, second_nat, seen_translated, seen_untranslated
from proxylab.verdict.icmp_errors import icmp_words

_LED_ASTRAY = frozenset({Fate.LOST, Fate.REFUSED, Fate.STRAYED, Fate.UNREACHABLE})


def translated_twice(failure: Failure) -> str:
    """Two nodes translated a flow that arrived, or that went to an address without a pod."""
    case, flow = failure.case, failure.flow
    twice = case.second_nats.get(flow.number)
    if failure.fate in _LED_ASTRAY:
        twice = second_nat(flow, case.resolved)
    if twice is None:
        return ""
    first, second = (_by_what(failure, each) for each in (twice.first, twice.second))
    return f"the packet was translated twice: {twice.clause(first, second)}."


def _by_what(failure: Failure, translation: Translation) -> str:
    """The rule behind a translation, or its node's conntrack entry, as the end of a clause."""
    node = translation.node
    counted = [each for each in failure.case.rules if each.count.node == node]
    of_destination = translation.of_destination
    rule = next((each for each in counted if (each.target == "DNAT" if of_destination else each.changes_source)), None)
    if rule is not None and may_be_engines(rule.count, failure.case.resolved):
        return f" by {the_rule(rule)}"
    foreign = by_foreign_rule(failure, node)
    if foreign:
        return foreign
    entries = failure.case.flows[0].tracked
    return " by an entry of its conntrack" if any(each.node == node for each in entries) else ""


def query_untranslated(failure: Failure) -> str:
    """No answer came to a DNS query, and a packet traced afterwards went to no pod."""
    case, traced = failure.case, failure.traced
    if traced is None or not has_no_address(case.resolved, case.evidence.lookups):
        return ""
    requests = [each for each in traced.observations if each.packet is Packet.REQUEST]
    on_its_way = {(each.destination, each.destination_port) for each in requests}
    if on_its_way != {case.dialled} or not any(each.error for each in case.evidence.lookups):
        return ""
    return f"no rule translated the DNS query: a packet traced after it went on to {failure.dialled} untranslated."


def request_copied(failure: Failure) -> str:
    """A copy of the request came in elsewhere."""
    flow = failure.flow
    ended = f"a copy came in at {failure.case.lost_copies.get(flow.number)}, and ended there"
    return f"the packet was copied on its way: {copying(flow, flow.strays, failure.plan) or ended}."


def strayed_untranslated(failure: Failure) -> str:
    """The packet came in somewhere as it was sent."""
    stray = failure.flow.strays[0]
    if (stray.destination, stray.destination_port) != failure.case.dialled:
        return ""
    came = f"it came in at {stray.netns_name} still addressed to {failure.dialled}"
    return f"no rule translated the packet: {came}."


def unreachable_untranslated(failure: Failure) -> str:
    """A router answered the packet as it was sent, or as a rule that is not the engine's sent it on."""
    if not failure.flow.errors:
        return ""
    icmp = failure.flow.errors[0]
    if led := led_by_others(failure):
        first = origin(failure.flow, Packet.OTHER_ICMP)
        return f"{led}, and {(first and first.maker) or icmp.source} answered with {icmp_words(icmp)}."
    if failure.case.translations or seen_translated(failure.flow, failure.case.dialled):
        return ""
    left = f"it left {failure.case.resolved.sender.name} for {failure.dialled}"
    return f"no rule translated the packet: {left}, and {icmp.source} answered with {icmp_words(icmp)}."


def led_by_others(failure: Failure) -> str:
    """The clause that a foreign rule changed the destination, where no rule of the engine did; empty without one.

    The taps show it, or else the counter of a rule of the node where they saw the packet last.
    """
    case, flow = failure.case, failure.flow
    leading = [rule for rule in case.rules if rule.target in ("DNAT", "REDIRECT")]
    if any(may_be_engines(rule.count, case.resolved) for rule in leading):
        return ""
    requests = [stop for stop in flow.stops if stop.packet is Packet.REQUEST]
    changed = (stop for stop in requests if stop.came.destination == failure.dialled != stop.went.destination)
    stop, last = next(changed, None), flow.last_seen
    if last is None or (stop is None and seen_untranslated(flow, case.dialled)):
        return ""
    node = stop.netns_name if stop else last.netns_name
    rule = _changing_destination(failure, node)
    if rule is None:
        return ""
    by = f"by {rule_words(rule)}, which belongs to no engine"
    if stop is not None:
        to = f"the packet's destination to {stop.went.destination}"
        return f"{node} changed {to} {'' if rule.packets else 'perhaps '}{by}"
    if rule.packets in (len(case.flows), case.packets):
        return f"{node} changed the packet's destination {by}"
    counted = "has no counter" if rule.packets is None else f"counted {amount(rule.packets, 'packet')}"
    return f"{node} may have changed the packet's destination {by} and {counted}"


def _changing_destination(failure: Failure, node: str) -> ForeignRule | None:
    """The foreign rule of a node that changes destinations and may match the request; one that counted, if any did."""
    case = without_excluded(failure, Packet.REQUEST).case
    rules = may_have(REWRITING, case.resolved, case.evidence, (node,))
    changing = [rule for rule in rules if effects_of(rule.text) & REWRITING_DESTINATION]
    return next(iter([rule for rule in changing if rule.packets] or changing), None)


def unreachable_behind_translation(failure: Failure) -> str:
    """A machine on the way answered the packet with an ICMP error, whose source the node translates back.

    So its first sighting names the machine, not its address.
    """
    first, pods = origin(failure.flow, Packet.OTHER_ICMP), failure.pods
    if first is None or not first.maker:
        return ""
    answered = f"{first.maker} answered the packet with {icmp_words(first.seen)}"
    nowhere = (rule for rule in failure.case.translations if rule.translates_to and rule.translates_to[0] not in pods)
    rule = next(nowhere, None)
    if rule is None or rule.translates_to is None:
        return f"{answered}."
    there = f"{endpoint(*rule.translates_to)}, which is no pod of this lab"
    return f"{rule.count.node} translated the packet to {there}, by {the_rule(rule)}; {answered}."


def no_listener(failure: Failure) -> str:
    """The packet reached a pod whose stack refused it."""
    flow, answer = failure.flow, "a reset"
    if not flow.arrivals or not (flow.resets or flow.unreachables):
        return ""
    if failure.fate is Fate.UNREACHABLE:
        answer = "an ICMP port unreachable"
    arrival = flow.arrivals[0]
    where = endpoint(arrival.destination, arrival.destination_port)
    return f"no program listens at {where} on {arrival.netns_name}: the packet reached it, and {answer} came back."


def delivered_by(failure: Failure) -> str:
    """A rule translated the packet that should not have arrived."""
    if failure.flow.unended:
        return ""  # it was right to arrive
    arrival = failure.flow.arrivals[0]
    rule = failure.translation(arrival.destination)
    if rule is None:
        return ""
    to = endpoint(arrival.destination, arrival.destination_port)
    return f"{rule.count.node} translated the packet to {to} by {the_rule(rule)}."


def led_to_wrong_end(failure: Failure) -> str:
    """A rule translated the packet to what is no endpoint of the Service, or to a wrong port of one."""
    case, resolved, ends = failure.case, failure.case.resolved, failure.case.expected_ends
    came = ((each.netns_name, (each.destination, each.destination_port)) for each in failure.flow.arrivals)
    there = next(end for name, end in came if not ends.allow(name, end))
    rule = next((each for each in case.translations if each.translates_to == there), None)
    if rule is None:
        return ""
    expected = [endpoint(*each) for each in ends.instead_of(there[0])]
    of_service = f"{resolved.service_port} has no endpoint"
    if len(expected) == 1:
        of_service = f"the endpoint of {resolved.service_port} is {expected[0]}"
    elif expected:
        of_service = f"the endpoints of {resolved.service_port} are {listed(expected)}"
    has = of_service if resolved.service_port else f"the probe dialled {listed(expected, 'or')}"
    return f"{rule.count.node} translated the packet to {endpoint(*there)} by {the_rule(rule)}, but {has}."


def masqueraded_tunnel(failure: Failure) -> str:
    """A tunnel's packet inherits the mark of the packet that it carries, unless a rule cleared it."""
    again = failure.case.masqueraded_again
    if again is None or not failure.flow.arrivals:
        return ""
    node, chain = again.count.node, again.count.chain
    tunnels = [vxlan.device for vxlan in failure.plan.namespace(node).vxlans] if failure.plan is not None else []
    around = f"the tunnel's packet around it ({listed(tunnels)})" if tunnels else "a packet with the same mark"
    marks = [rule for rule in failure.case.rules if rule.target == "MARK"]
    cleared = bool(effects_of(again.count.text) & MARKING)
    cleared |= any((rule.count.node, rule.count.chain) == (node, chain) for rule in marks)
    why = "" if cleared else f": no rule in {chain} cleared the mark"
    return f"{node} masqueraded the packet, and then {around}{why}."


def kept_the_source(failure: Failure) -> str:
    """Nothing masqueraded the packet, or a rule marked it in vain."""
    if not _arrived_as_sent(failure) or failure.rewriting or not failure.case.evidence.counts:
        return ""
    in_vain = failure.marked_in_vain
    return f"the packet kept the client's address: {f'it {in_vain}' if in_vain else 'nothing masqueraded it'}."


def masqueraded(failure: Failure) -> str:
    """A rule masqueraded the packet; with the reason that its matches show."""
    flow, changed = failure.flow, failure.rewriting
    if not flow.arrivals or _arrived_as_sent(failure) or not changed:
        return ""
    node = changed[0].count.node
    if not may_be_engines(changed[0].count, failure.case.resolved):
        return f"{node} changed the packet's source{by_foreign_rule(failure, node)}."
    marked = "" if failure.marking else suspicion(failure.case.resolved, failure.case.evidence, node, MARKING)
    if marked:
        return (
            f"{node} masqueraded the packet by {the_rule(changed[0])}, and no rule of the engine marked it: {marked}."
        )
    # Only a rule for packets from an endpoint to itself explains such a packet, and it explains no other.
    client = failure.case.resolved.sender.address_of_flow(flow.number)
    to_itself = flow.arrivals[0].destination == client
    rule = next((rule for rule in failure.marking if is_from_itself(rule, client) is to_itself), None)
    if rule is None:
        why = why_masqueraded(changed[0], failure.case.resolved) or " by"
        return f"{node} masqueraded the packet{why} {the_rule(changed[0])}."
    why = why_masqueraded(rule, failure.case.resolved) or " because of"
    return f"{node} masqueraded the packet{why} {the_rule(rule)}."


def _arrived_as_sent(failure: Failure) -> bool:
    """Whether it kept its source, or lost only its port without any rule that masquerades."""
    flow = failure.flow
    if not flow.arrivals or flow.arrivals[0].source != failure.case.resolved.sender.address_of_flow(flow.number):
        return False
    left = [each.source_port for each in flow.departures]
    return not failure.rewriting or flow.arrivals[0].source_port in left


def led_to_backend(failure: Failure) -> str:
    """A rule sent the packet to a pod that is no expected backend."""
    expect = failure.case.expect
    for each in failure.flow.arrivals:
        if not expect.allows_backend(each.netns_name, each.destination_port):
            rule = failure.translation(each.destination, each.destination_port)
            to = f"port {each.destination_port} of " if each.netns_name in expect.backend_names else ""
            return f"{rule.count.node} sent the packet to {to}{each.netns_name} by {the_rule(rule)}." if rule else ""
    return ""


def never_chosen(failure: Failure) -> str:
    """The proxy never chose some backends, as all flows together show."""
    case = failure.case
    never = [name for name in case.expect.backend_names if not case.arrivals_by_pod[name]]
    if not never or (failure.verdict.example is not None and failure.flow.arrivals):
        return ""
    its = "its" if len(never) == 1 else "their"
    sentence = f"the proxy never chose {listed(never)} in {amount(len(case.arrived), 'flow')}: {its} share is 0"
    pods = [pod for pod in case.resolved.receivers if pod.name in never]
    unruled = [str(pod.address) for pod in pods if not failure.translation(pod.address)]
    if unruled and case.translations:
        sentence += f", and no rule that translates to {listed(unruled, 'or')} counted a packet"
    return f"{sentence}."


def share_is_wrong(failure: Failure) -> str:
    """The backend furthest from its expected share; or, of a client that must stay, that nothing remembered it."""
    case = failure.case
    if case.expect.spread is Spread.STICKY:
        remembering = any(rule.value("-m") and "--rcheck" in rule.count.text for rule in case.rules)
        forgot = "" if remembering or not case.evidence.counts else ": no rule remembered where the first went"
        return f"the flows of {case.resolved.sender.name} went to {listed(list(case.arrivals_by_pod))}{forgot}."
    found, shares = case.arrivals_by_pod, case.expected_shares
    flows = sum(found[name] for name in shares)
    if not flows:
        return ""
    furthest = max(shares, key=lambda name: abs(found[name] - flows * shares[name]))
    if not found[furthest]:
        return f"the proxy never chose {furthest} in {amount(flows, 'flow')}: its share is 0."
    got = f"{found[furthest]:,} of {amount(flows, 'flow')}"
    return f"{furthest} got {got}: its share is {found[furthest] / flows:.1%}, and {shares[furthest]:.1%} was expected."
