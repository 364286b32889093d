"""Causes of an ICMP error or reset that a rule of no engine sent, and of a packet that one led to a Service.

The taps show which node made an answer. A rule there is the cause where it counted every packet of the probe; where it
counted others too, or has no counter, the sentence only says that it may be.
"""

import re
from typing import Final

from proxylab.evidence.evidence import Packet
from proxylab.evidence.words import endpoint
from proxylab.plan.resolved import STACK
from proxylab.rules.effects import REJECTING, RESETTING, Effects
from proxylab.rules.texts import effects_of
from proxylab.verdict.case import Case
from proxylab.verdict.causes.failure import Failure, by_foreign_rule, without_excluded
from proxylab.verdict.counted_rules import SHARED_TABLES, CountedRule, is_engines_chain
from proxylab.verdict.flows.origins import Origin, origin
from proxylab.verdict.foreign import ended_by, may_have, rule_words, suspicion
from proxylab.verdict.icmp_errors import icmp_words
from proxylab.verdict.rule_words import the_rule

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
