"""Foreign rules, which belong to no engine, and what they may have done to packets of a probe or stream.

They are the rules of tables that no meter counts, and those in the engine's own tables that stand in no chain of the
engine. A rule whose counter stood still did nothing. One without a counter never did anything for certain: the module
only says that it may have. Filters of tc and XDP programs have no counter, and may do anything.
"""

from collections.abc import Collection, Sequence
from typing import Final

from proxylab.addresses import Transport
from proxylab.evidence.evidence import Direction, Evidence, ForeignRule, Observation, Packet, RuleCount
from proxylab.evidence.ipvs import VIRTUAL_SERVERS
from proxylab.evidence.stream_records import StepEvidence
from proxylab.evidence.words import amount, listed
from proxylab.plan.masquerade import is_masquerade
from proxylab.plan.resolved import STACK, ResolvedProbe
from proxylab.rules.effects import ENDING, EXEMPTING, MARKING, REWRITING, Effect, Effects
from proxylab.rules.packets import Packets
from proxylab.rules.texts import effects_of, excludes, read_rule
from proxylab.verdict.counted_rules import may_be_engines

_MOST_RULES: Final = 3
_OF_DEVICES: Final = ("tc", "XDP")


UNSEEN: Final[Effects] = frozenset()
"""What happens before any tap: packet sockets see a frame behind its device's XDP program, and no rule does that."""


def _foreign_rules(resolved: ResolvedProbe, evidence: Evidence | StepEvidence) -> tuple[ForeignRule, ...]:
    """The rules that belong neither to an engine nor to the lab."""
    return evidence.foreign + _in_engines_tables(resolved, evidence)


def _in_engines_tables(resolved: ResolvedProbe, evidence: Evidence | StepEvidence) -> tuple[ForeignRule, ...]:
    """Those of them that stand in tables of the engine. The lab reads their counters after the sentinel packets."""
    return tuple(
        ForeignRule(count.node, count.table, count.chain, "", 0, count.text, count.packets)
        for count in evidence.counts
        if count.packets and not may_be_engines(count, resolved) and not is_masquerade(f"{count.chain} {count.text}")
    )


def may_have(
    effects: Effects, resolved: ResolvedProbe, evidence: Evidence | StepEvidence, nodes: Collection[str]
) -> tuple[ForeignRule, ...]:
    """The rules of these nodes that may have done that to packets of the probe, or of a stream in this step.

    A flow goes on as its first packet went, so a rule of an earlier step may have rewritten or marked it.
    """
    return tuple(
        rule
        for rule in _foreign_rules(resolved, evidence)
        if rule.node in nodes
        and rule.packets != 0
        and (effects in (REWRITING, MARKING) or not rule.past)
        and (not rule.text or _does(effects, rule))
    )


def _does(effects: Effects, rule: ForeignRule) -> bool:
    """Whether the rule has one of these effects, or may have."""
    if rule.table in _OF_DEVICES:
        if rule.text.startswith("queue"):
            return effects == ENDING
        return rule.table == "XDP" or effects != UNSEEN
    does = effects_of(rule.text)
    if does & effects:
        return True
    # These end the way of a packet through the table nat of iptables, in which the engine's rules stand, too.
    returned = Effect.RETURN in does and rule.chain in ("PREROUTING", "OUTPUT")
    return effects == EXEMPTING and rule.table == "nat" and (Effect.ACCEPT in does or returned)


def ended_by(
    resolved: ResolvedProbe, evidence: Evidence, packets: int, ended: Collection[str], *, rejected: bool = False
) -> ForeignRule | None:
    """The foreign rule that dropped, or rejected, exactly as many packets as the probe has, by its own counter.

    It is a rule or policy of the one node where the packets ended, and one that they may have met. A rule in the
    engine's tables may have counted a sentinel packet in place of theirs, while one has no answer; so may a policy.
    """
    effect = Effect.REJECT if rejected else Effect.DROP
    rules = [
        rule
        for rule in _in_engines_tables(resolved, evidence)
        if not (is_policy(rule.text) or may_count_sentinels(rule, evidence))
    ]
    counted = (rule for rule in (*evidence.foreign, *rules) if rule.packets == packets and packets)
    ending = (rule for rule in counted if {rule.node} == set(ended) and effect in effects_of(rule.text))
    return next((each for each in ending if _counts_its_own(each) and may_meet(each, resolved, evidence)), None)


def is_policy(text: str) -> bool:
    """Whether a rule's text is the policy of its chain."""
    read = read_rule(text)
    return read is not None and read.is_policy


def _counts_its_own(rule: ForeignRule) -> bool:
    """Whether its counter counts only what the rule ended."""
    read = read_rule(rule.text)
    return read is not None and read.counts_what_it_does


def may_meet(rule: ForeignRule | RuleCount, resolved: ResolvedProbe, evidence: Evidence) -> bool:
    """Whether packets of a probe that came into a rule's node may have met the rule.

    They met none of another protocol, such as one for the ICMP error that answers them. They met none of the hook
    output where the node forwarded them by its routes: no program of it sent them, and IPVS did not.
    """
    if excludes(rule.text, Packets({resolved.protocol})):
        return False
    is_of_output = rule.chain == "OUTPUT" or (isinstance(rule, ForeignRule) and rule.hook == "output")
    sender, node = resolved.sender, rule.node
    sends = (sender.device == STACK and sender.namespace == node) or node in evidence.terminating
    by_ipvs = any(count.node == node and count.table == VIRTUAL_SERVERS for count in evidence.counts)
    return not is_of_output or sends or by_ipvs


def may_count_sentinels(rule: ForeignRule | RuleCount, evidence: Evidence) -> bool:
    """Whether a rule may have counted sentinel packets, which are echo requests without an answer."""
    lost = not all(each.answered for each in evidence.sentinels)
    return lost and not excludes(rule.text, Packets({Transport.ICMP}))


def rewrote(resolved: ResolvedProbe, evidence: Evidence, node: str) -> ForeignRule | None:
    """The rule of a node that changes addresses, and that counted or has no counter."""
    changing = [
        each for each in _foreign_rules(resolved, evidence) if each.node == node and effects_of(each.text) & REWRITING
    ]
    counted = [rule for rule in changing if rule.packets]
    return next(iter(counted or [rule for rule in changing if rule.packets is None]), None)


def rule_words(rule: ForeignRule) -> str:
    """A rule, named so that a reader can find it: its text, chain and table."""
    if not rule.text:
        return f"a rule of table {rule.table}, which could not be listed without nft"
    if rule.table in _OF_DEVICES:
        return f"the {rule.text} of {rule.table} on {rule.chain} ({rule.hook})"
    hook = f" (hook {rule.hook}, priority {rule.priority})" if rule.hook else ""
    if is_policy(rule.text):
        return f"the policy of chain {rule.chain}{hook} of table {rule.table}"
    return f'the rule "{rule.text}" in chain {rule.chain}{hook} of table {rule.table}'


def suspicion(
    resolved: ResolvedProbe,
    evidence: Evidence | StepEvidence,
    node: str,
    effects: Effects = ENDING,
    *,
    besides: Collection[str] = (),
) -> str:
    """The clause about rules of a node that may have done that to packets of a probe or stream; empty if none may.

    The clause leaves out rules with the texts ``besides``.
    """
    rules = may_have(effects, resolved, evidence, (node,))
    return _suspected(node, [rule for rule in rules if rule.text not in besides])


def _suspected(node: str, rules: Sequence[ForeignRule]) -> str:
    if not rules:
        return ""
    shown = [_counted(rule) for rule in rules[:_MOST_RULES]]
    if len(rules) > _MOST_RULES:
        shown.append(amount(len(rules) - _MOST_RULES, "more rule"))
    belong = "belongs" if len(rules) == 1 else "belong"
    return f"{node} has {listed(shown)}, which {belong} to no engine"


def suspicion_where_lost(resolved: ResolvedProbe, evidence: Evidence, last: Observation) -> str:
    """The clause about what may have ended a packet that the taps saw last there; empty if nothing may have.

    The clause names rules of the node that the packet came into, if the packet may have met them. A packet that left
    may have met an XDP program of any node, which no tap shows.
    """
    if last.direction is Direction.IN or last.device == STACK:
        rules = may_have(ENDING, resolved, evidence, (last.netns_name,))
        of_request = last.packet is Packet.REQUEST
        return _suspected(
            last.netns_name, [each for each in rules if not of_request or may_meet(each, resolved, evidence)]
        )
    found = (suspicion(resolved, evidence, node, UNSEEN) for node in resolved.nodes)
    return next(filter(None, found), "")


def _counted(rule: ForeignRule) -> str:
    if rule.packets is None:
        return f"{rule_words(rule)}, without a counter" if rule.text else rule_words(rule)
    verb = "dropped" if rule.table in _OF_DEVICES else "counted"
    return f"{rule_words(rule)}, which {verb} {amount(rule.packets, 'packet')}"
