"""Causes that are a rule of no engine: it answered a packet, changed addresses, or kept a packet from translation.

A rule is named where it counted a packet for each flow, and its matches exclude nothing that the taps saw. Taps, or
the rule's own text, show what it changed. The engine's rules may have done their part before or after. The taps show
which node made an answer; a rule there that counted other packets too, or has no counter, only may be the cause.
"""

import re
from collections.abc import Iterator
from typing import Final

from proxylab.addresses import IPAddress
from proxylab.evidence.evidence import ForeignRule, Packet, Part
from proxylab.evidence.words import endpoint
from proxylab.plan.resolved import STACK
from proxylab.rules.effects import (
    CHANGING_DSCP,
    CHANGING_HOPS,
    EXEMPTING,
    REJECTING,
    RESETTING,
    REWRITING,
    REWRITING_DESTINATION,
    REWRITING_SOURCE,
    STATELESS,
    Effect,
    Effects,
    new_address,
)
from proxylab.rules.texts import effects_of, read_rule
from proxylab.verdict.case import Case
from proxylab.verdict.causes.failure import Failure, by_foreign_rule, without_excluded
from proxylab.verdict.counted_rules import SHARED_TABLES, CountedRule, is_engines_chain, may_be_engines, the_rule
from proxylab.verdict.flows import Fate, Stop
from proxylab.verdict.foreign import ended_by, may_have, may_meet, rule_words, suspicion
from proxylab.verdict.hop_limits import HopLimits, ttl_word
from proxylab.verdict.hops import Origin, origin
from proxylab.verdict.icmp_errors import icmp_words

_BEHIND_MASQUERADING: Final = 100
"""The priority of source NAT (NF_IP_PRI_NAT_SRC)."""


def destination_rewritten(failure: Failure) -> str:
    """A foreign rule changed the destination of a packet that reached no pod, beside a translation by the engine."""
    if failure.flow.arrivals:
        return ""
    for rule in _rewriting(failure, REWRITING_DESTINATION):
        went, stated = _went(failure, rule.node), _new_address(rule)
        if went and stated and str(stated) not in went:
            continue  # the taps show that it went elsewhere
        translated = next((each for each in failure.case.translations if each.count.node == rule.node), None)
        if translated is not None and not effects_of(rule.text) & STATELESS:
            continue  # a node translates a flow's destination once, and the engine's rule did
        changed = _changed_destination(rule, went or str(stated or ""), translated)
        return f"{changed}." if failure.fate is Fate.LOST else f"{changed}, and {_answered(failure, rule.node)}."
    return ""


def _changed_destination(rule: ForeignRule, address: str, translated: CountedRule | None) -> str:
    to = f" to {address}" if address else ""
    by = f"destination{to} by {rule_words(rule)}, which belongs to no engine"
    if translated is None or translated.translates_to is None or not _comes_after(rule):
        return f"{rule.node} changed the packet's {by}"
    there = endpoint(*translated.translates_to)
    first = f"translated the packet{'' if there == address else f' to {there}'} by {the_rule(translated)}"
    return f"{rule.node} {first}, and then changed its {by}"


def source_rewritten(failure: Failure) -> str:
    """A foreign rule changed the source; of a lost reply that is the cause where nothing leads it back."""
    arrivals, sender = failure.flow.arrivals, failure.case.resolved.sender
    of_source = failure.verdict.expectation == "source"
    if not arrivals or (of_source and arrivals[0].source == sender.address_of_flow(failure.flow.number)):
        return ""
    seen = arrivals[0].source
    for rule in _rewriting(failure, REWRITING_SOURCE):
        stated, then = _new_address(rule), _masquerading(failure, rule.node)
        if stated != seen and (then is not None) is (stated is None):
            continue  # the engine's rule did it, or none of the two
        to = f" to {stated or seen}"
        changed = f"{rule.node} changed the packet's source{to} by {rule_words(rule)}, which belongs to no engine"
        if then is not None and stated != seen:
            changed += f"; then it masqueraded the packet by {the_rule(then)}"
        if of_source:
            return f"{changed}."
        held = _is_held(failure, stated or seen)
        if held and not effects_of(rule.text) & STATELESS:
            continue  # connection tracking leads replies back
        replied = f"{arrivals[0].netns_name} replied to {seen}{'' if held else ', which nothing in this lab has'}"
        if then is not None:
            replied = f"nothing in this lab has {stated}"
        return f"the way back is broken: {changed}; {replied}, and {sender.name} heard nothing."
    return ""


def _masquerading(failure: Failure, node: str) -> CountedRule | None:
    """The engine's rule that changed sources on a node."""
    engines = (rule for rule in failure.rewriting if may_be_engines(rule.count, failure.case.resolved))
    return next((rule for rule in engines if rule.count.node == node), None)


def _is_held(failure: Failure, address: IPAddress) -> bool:
    """Whether a machine of the lab has an address; also where the plan is not known."""
    spaces = () if failure.plan is None else failure.plan.namespaces
    return failure.plan is None or any(own.interface.ip == address for each in spaces for own in each.addresses)


def _rewriting(failure: Failure, effects: Effects) -> Iterator[ForeignRule]:
    """The foreign rules that may match the flow and counted it, in the order of the nodes on the way."""
    about = without_excluded(failure, Packet.REQUEST).case
    passed = dict.fromkeys(stop.netns_name for stop in _requests(failure))
    for node in passed if about.resolved.service_port else ():
        for rule in may_have(REWRITING, about.resolved, about.evidence, (node,)):
            counted = rule.packets is not None and rule.packets >= len(about.flows)
            if counted and effects_of(rule.text) & effects and may_meet(rule, about.resolved, about.evidence):
                yield rule


def _requests(failure: Failure) -> list[Stop]:
    return [
        stop
        for stop in failure.flow.stops
        if stop.packet is Packet.REQUEST and stop.netns_name in failure.case.resolved.nodes
    ]


def _went(failure: Failure, node: str) -> str | None:
    """Where the request went when a device of the node sent it on; ``None`` where no tap saw that."""
    left = (stop.went.destination for stop in _requests(failure) if stop.netns_name == node and stop.out)
    return next((to for to in left if to != failure.dialled), None)


def _new_address(rule: ForeignRule) -> IPAddress | None:
    """The address that the rule's text gives packets; ``None`` without one."""
    read = read_rule(rule.text)
    return None if read is None else new_address(read)


def _comes_after(rule: ForeignRule) -> bool:
    """Whether the rule stands behind the engine's translation on a packet's way through the node."""
    return rule.hook in ("forward", "input", "postrouting") or rule.priority > -_BEHIND_MASQUERADING


def _answered(failure: Failure, node: str) -> str:
    """Who answered what reached no pod."""
    for packet in (Packet.RESET, Packet.PORT_UNREACHABLE, Packet.OTHER_ICMP):
        first = origin(failure.flow, packet)
        if first is not None:
            answer = "a reset: no program listens there" if packet is Packet.RESET else icmp_words(first.seen)
            maker = first.maker or str(first.seen.source)
            return f"{'' if maker == node else f'{maker} '}answered with {answer}"
    if failure.flow.errors:
        return f"{failure.flow.errors[0].source} answered with {icmp_words(failure.flow.errors[0])}"
    return "a reset came back: no program listens there"


def header_rewritten(failure: Failure) -> str:
    """A foreign rule changed what no translation changes: the time to live of the packet, or its DSCP."""
    case = failure.case
    packet = Packet.REPLY if failure.verdict.expectation == "reply" else Packet.REQUEST
    changed_on = HopLimits(case.resolved, case.evidence).changed_on(failure.flow, packet)
    marked = any(each.part is Part.DSCP and each.flow == failure.flow.number for each in case.evidence.altered)
    nodes = case.resolved.nodes
    if changed_on:
        effects, what, nodes = CHANGING_HOPS, ttl_word(case.resolved.destination.version), (changed_on,)
    elif marked and packet is Packet.REQUEST:
        effects, what = CHANGING_DSCP, "DSCP"
    else:
        return ""
    for rule in may_have(effects, case.resolved, case.evidence, nodes):
        if effects_of(rule.text) & effects and may_meet(rule, case.resolved, case.evidence):
            return f"{rule.node} changed the packet's {what} by {rule_words(rule)}, which belongs to no engine."
    return ""


def not_tracking(failure: Failure, node: str, *kinds: Packet) -> str:
    """The clause that a node does not track the flow, by the foreign rule that exempts it; empty without one."""
    about = without_excluded(failure, *kinds).case
    for rule in may_have(EXEMPTING, about.resolved, about.evidence, (node,)):
        if Effect.NO_TRACKING in effects_of(rule.text):
            return f"{node} does not track the flow, by {rule_words(rule)}, which belongs to no engine"
    return ""


def kept_untracked(failure: Failure) -> str:
    """A foreign rule exempts the flow from connection tracking, so no rule of the node could translate it."""
    if failure.flow.arrivals or not failure.case.resolved.service_port:
        return ""
    untranslated = [stop for stop in _requests(failure) if stop.out and stop.went.destination == failure.dialled]
    stayed = [] if failure.case.translations else _requests(failure)
    for node in dict.fromkeys(stop.netns_name for stop in (*untranslated, *stayed)):
        if clause := not_tracking(failure, node, Packet.REQUEST):
            return f"no rule translated the packet: {clause}, and the kernel translates only what it tracks."
    return ""


_SERVICE: Final = re.compile(r"[a-z]+-[0-9A-Z]{8}-([^/]+/[^/]+)/")
"""The Service in the name of a chain of mode nftables."""

_KINDS: Final = (
    (Packet.RESET, RESETTING),
    (Packet.PORT_UNREACHABLE, REJECTING),
    (Packet.OTHER_ICMP, REJECTING),
)


def answered_by_foreign_rule(failure: Failure) -> str:
    """A rule of no engine rejected the packet, or may have, on the node that made the answer."""
    if failure.flow.arrivals:
        return ""
    for packet, effect in _KINDS:
        first = origin(failure.flow, packet) or _made_by_sender(failure, packet)
        if first is None or first.maker not in failure.case.resolved.nodes:
            continue
        about = without_excluded(failure, Packet.REQUEST).case
        answer = "a reset" if packet is Packet.RESET else icmp_words(first.seen)
        if not about.resolved.service_port and (by := _by_counted_rule(about, first.maker, effect)):
            return f"{first.maker} rejected the packet with {answer} by {by}."
        if not may_have(effect, about.resolved, about.evidence, (first.maker,)):
            continue
        rule = ended_by(about.resolved, about.evidence, about.packets, {first.maker}, rejected=True)
        if rule is not None and effects_of(rule.text) & effect:
            by = f"{rule_words(rule)}, which belongs to no engine"
            return f"{first.maker} rejected the packet with {answer} by {by}."
        clause = suspicion(about.resolved, about.evidence, first.maker, effect)
        return f"{first.maker} answered the packet with {answer}: {clause}, and may have sent it."
    return ""


def _by_counted_rule(case: Case, node: str, effect: Effects) -> str:
    """The rule of the node that rejected each packet of a probe of no Service, whose rules may be any program's."""
    for rule in case.rules:
        counted = rule.target == "REJECT" and rule.count.node == node and rule.count.packets == case.packets
        if counted and effects_of(rule.count.text) & effect:
            return f'the rule "{rule.count.text}" in chain {rule.count.chain} of table {rule.count.table}'
    return ""


def _made_by_sender(failure: Failure, packet: Packet) -> Origin | None:
    """The answer that a node gave its own program: no device carried it, so no tap but the node's stack saw it."""
    sender, flow = failure.case.resolved.sender, failure.flow
    heard = (each for each in (*flow.resets, *flow.unreachables, *flow.errors) if each.packet is packet)
    first = next(heard, None)
    return Origin(first, sender.namespace) if first is not None and sender.device == STACK else None


def led_to_service(failure: Failure) -> str:
    """A rule of no engine led the packet to an address of a Service, and the engine translated it from there."""
    requests = [stop for stop in failure.flow.stops if stop.packet is Packet.REQUEST]
    for number, stop in enumerate(requests):
        if stop.came.destination != failure.dialled or stop.went.destination == failure.dialled:
            continue
        led = stop.went.destination
        further = (each for each in requests[number + 1 :] if each.came.destination == led != each.went.destination)
        again = next(further, None)
        about = without_excluded(failure, Packet.REQUEST)
        by = _beside_the_engine(about, stop.netns_name) or by_foreign_rule(about, stop.netns_name)
        rule = None if again is None else _translating(failure, again.netns_name, again.went.destination)
        if again is None or rule is None or not by:
            return ""
        back = "the router sent it back, and " if again.netns_name == stop.netns_name else ""
        to = f"{again.went.destination} by {the_rule(rule)}"
        changed = f"{stop.netns_name} changed the packet's destination to {led}, {_of_service(failure, rule, led)},{by}"
        return f"{changed}; {back}{again.netns_name} translated it to {to}."
    return ""


def _beside_the_engine(failure: Failure, node: str) -> str:
    """The counted rule outside the engine's chains that changed the destination, as the end of a clause."""
    for rule in failure.case.rules:
        count = rule.count
        hashes = failure.case.resolved.chain_hashes
        is_engines = count.table not in SHARED_TABLES or is_engines_chain(count.chain, hashes)
        if count.node == node and not is_engines and rule.target in ("DNAT", "REDIRECT", "NETMAP"):
            named = f'the rule "{count.text}" in chain {count.chain} of table {count.table}'
            return f" by {named}, which belongs to no engine"
    return ""


def _translating(failure: Failure, node: str, to: str) -> CountedRule | None:
    rules = (rule for rule in failure.case.translations if rule.count.node == node)
    return next((rule for rule in rules if rule.translates_to and endpoint(*rule.translates_to) == to), None)


def _of_service(failure: Failure, translating: CountedRule, led: str) -> str:
    """What that address is: a cluster IP, where a rule for it says so, or else an address of the Service."""
    in_chain = _SERVICE.match(translating.count.chain)
    service = translating.comment or (in_chain[1] if in_chain else "")
    for rule in failure.case.rules:
        address = rule.value("-d").partition("/")[0]
        if address and led.rpartition(":")[0].strip("[]") == address and rule.comment.endswith(" cluster IP"):
            return f"the cluster IP of {service}" if service else "a cluster IP"
    return f"an address of the Service {service}" if service else "an address of a Service"
