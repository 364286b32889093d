"""Divides what rules counted for several probes: each gets what its own flows have counted, or none gets anything.

The lab reads the counters of iptables before and after probes that it sends together (``EvidenceTogether``). A proxy
writes rules for each Service port, so a rule that only one of the probes can have met counted for that one alone. The
others are the rules before a proxy's chains fork and those behind: they pass packets on, or masquerade them. A node
masquerades no flow twice, and none that a rule of its Service port has not marked and translated. So what a probe's own
rules have marked and translated bounds what was masqueraded of it, and where the bounds of all probes come to exactly
what was masqueraded, each has reached its own.

Where anything else counted that may decide about a packet, the counts are not divided: a rule of others, one that
drops, one that translates and that two of the probes may have met. The judge would take it for the work of either.
"""

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from proxylab.addresses import Transport
from proxylab.evidence.evidence import Evidence, EvidenceTogether, RuleCount
from proxylab.plan.resolved import ResolvedProbe
from proxylab.rules.effects import Effect, effects
from proxylab.rules.packets import Packets
from proxylab.rules.rule import Tool
from proxylab.rules.texts import excludes
from proxylab.verdict.counted_rules import CountedRule, may_be_engines, read_all

_TRANSLATING = "nat"
_BEFORE_ROUTING = ("PREROUTING", "OUTPUT")
"""Where the table nat translates destinations: there every packet still has the one that was dialled."""
_PASSING = frozenset({Effect.ACCEPT, Effect.RETURN, Effect.MARK})
"""What a rule may do to packets of several probes. No verdict on flows that arrive, or are left alone, rests on it."""


def evidence_of_each(found: EvidenceTogether, probes: Sequence[ResolvedProbe]) -> tuple[Evidence, ...] | None:
    """The evidence of each probe with its own counts; ``None`` where these cannot be told apart."""
    if any(not set(probe.nodes) <= set(each.metered_nodes) for each, probe in zip(found.each, probes, strict=True)):
        return None  # a counter was cleared meanwhile
    parts = divided(found.counts, probes)
    if parts is None:
        return None
    return tuple(replace(evidence, counts=part) for evidence, part in zip(found.each, parts, strict=True))


def divided(counts: Sequence[RuleCount], probes: Sequence[ResolvedProbe]) -> tuple[tuple[RuleCount, ...], ...] | None:
    """What rules counted for each of the probes; ``None`` where it cannot be told.

    The probes are of one family. Rules that only passed packets of several probes on are in no part.
    """
    rules = read_all(counts)
    asking = list({(bool(probe.service_port), probe.chain_hashes): probe for probe in probes}.values())
    if len(rules) < len(counts) or not all(_is_plain(rule, asking) for rule in rules):
        return None
    parts: list[list[RuleCount]] = [[] for _ in probes]
    for node in dict.fromkeys(rule.count.node for rule in rules):
        found = _divided_on_node([rule for rule in rules if rule.count.node == node], probes)
        if found is None:
            return None
        for part, more in zip(parts, found, strict=True):
            part.extend(more)
    return tuple(map(tuple, parts))


def _is_plain(rule: CountedRule, probes: Sequence[ResolvedProbe]) -> bool:
    """Whether it is an engine's rule of iptables, whose text says all that it does."""
    text_says_all = rule.read.tool is Tool.IPTABLES and not (rule.count.target or rule.count.member)
    return text_says_all and all(may_be_engines(rule.count, probe) for probe in probes)


def _divided_on_node(rules: Sequence[CountedRule], probes: Sequence[ResolvedProbe]) -> list[list[RuleCount]] | None:
    by_chain: dict[str, list[int]] = {}
    for number, rule in enumerate(rules):
        if rule.count.table == _TRANSLATING:
            by_chain.setdefault(rule.count.chain, []).append(number)
    met = [_met(rules, by_chain, probe) for probe in probes]
    parts: list[list[RuleCount]] = [[] for _ in probes]
    shared: list[CountedRule] = []
    for number, rule in enumerate(rules):
        owners = [part for part, own in zip(parts, met, strict=True) if number in own]
        if len(owners) == 1:
            owners[0].append(rule.count)
        else:
            shared.append(rule)
    return parts if all(_is_told(rule, parts) for rule in shared) else None


def _is_told(rule: CountedRule, parts: Sequence[list[RuleCount]]) -> bool:
    """Whether it is known whose packets a shared rule changed; each part gets the packets that it masqueraded."""
    if rule.changes_source:
        most = [_most_masqueraded(read_all(part)) for part in parts]
        for part, packets in zip(parts, most, strict=True):
            part.extend([replace(rule.count, packets=packets)] if packets else ())
        return sum(most) == rule.count.packets
    return effects(rule.read) <= _PASSING and not rule.marks_for_masquerading


def _most_masqueraded(own: Sequence[CountedRule]) -> int:
    """How many flows of a probe a node can have masqueraded at most; two of its rules may mark one flow."""
    marked = sum(rule.count.packets for rule in own if rule.marks_for_masquerading)
    return min(marked, sum(rule.count.packets for rule in own if rule.target == "DNAT"))


def _met(rules: Sequence[CountedRule], by_chain: Mapping[str, Sequence[int]], probe: ResolvedProbe) -> set[int]:
    """The numbers of the rules that translate destinations, or lead there, and that packets of the probe may have met.

    Nothing is said of their sources, which another node may have changed.
    """
    ports = () if probe.protocol is Transport.ICMP else (probe.port,)
    sent = Packets((probe.protocol,), (), (probe.destination,), (), ports)
    found: set[int] = set()
    chains, known = list(_BEFORE_ROUTING), set(_BEFORE_ROUTING)
    while chains:
        here = [each for each in by_chain.get(chains.pop(), ()) if not excludes(rules[each].count.text, sent)]
        found.update(here)
        further = {rules[each].target for each in here} - known
        known |= further
        chains += further
    return found
