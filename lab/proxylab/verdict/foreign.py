"""Rules that belong to no engine, and what they may have done to the packets of a probe.

Owns: which of them may have ended or changed a packet, which of them counted that they did, and their names in words.
Must not: judge. A rule without a counter is never said to have done anything, only that it may have.
"""

import re
from typing import Final

from proxylab.evidence.evidence import Evidence, ForeignRule
from proxylab.evidence.words import amount, listed

__all__ = ["ended_by", "may_have_ended", "rejects", "rewrote", "rule_words", "suspicion"]

_ENDING: Final = re.compile(
    r"\b(drop|reject|queue|vmap|tproxy|synproxy)\b|(?:-j|-g) (DROP|REJECT|NFQUEUE|TPROXY|SYNPROXY)\b|-P \S+ DROP"
)
_DROPPING: Final = re.compile(r"\bdrop$|-j DROP\b|-P \S+ DROP")
_REJECTING: Final = re.compile(r"\breject\b|-j REJECT\b")
_REWRITING: Final = re.compile(
    r"\b([sd]nat|masquerade|redirect)\b|\b[sd](addr|port) set\b|-j ([SD]NAT|MASQUERADE|REDIRECT|NETMAP)\b"
)
_MOST: Final = 3


def may_have_ended(evidence: Evidence, node: str) -> tuple[ForeignRule, ...]:
    """The rules of a node that may have kept packets of the probe from going on: none whose counter stood still."""
    return tuple(
        rule
        for rule in evidence.foreign
        if rule.node == node and rule.packets != 0 and (not rule.text or _ENDING.search(rule.text))
    )


def ended_by(evidence: Evidence, packets: int, *, rejected: bool = False) -> ForeignRule | None:
    """The rule that dropped, or rejected, exactly as many packets as the probe has, by its own counter."""
    pattern = _REJECTING if rejected else _DROPPING
    counted = (rule for rule in evidence.foreign if rule.packets == packets and packets)
    return next((rule for rule in counted if pattern.search(rule.text)), None)


def rejects(evidence: Evidence) -> bool:
    """Whether a rule of anybody rejected packets, or may have."""
    if any(rule.packets != 0 and (not rule.text or _REJECTING.search(rule.text)) for rule in evidence.foreign):
        return True
    return any(count.target == "REJECT" or _REJECTING.search(count.text) for count in evidence.counts)


def rewrote(evidence: Evidence, node: str) -> ForeignRule | None:
    """The rule of a node that changes addresses, and that counted or has no counter."""
    changing = [each for each in evidence.foreign if each.node == node and _REWRITING.search(each.text)]
    counted = [rule for rule in changing if rule.packets]
    return next(iter(counted or [rule for rule in changing if rule.packets is None]), None)


def rule_words(rule: ForeignRule) -> str:
    """A rule, named so that it can be found: where it stands, and its text."""
    if not rule.text:
        return f"a rule of table {rule.table}, which could not be listed without nft"
    hook = f" (hook {rule.hook}, priority {rule.priority})" if rule.hook else ""
    return f'the rule "{rule.text}" in chain {rule.chain}{hook} of table {rule.table}'


def suspicion(evidence: Evidence, node: str) -> str:
    """That rules of a node may have ended the probe's packets, as a clause; empty if none may have."""
    rules = may_have_ended(evidence, node)
    if not rules:
        return ""
    told = [_counted(rule) for rule in rules[:_MOST]]
    if len(rules) > _MOST:
        told.append(amount(len(rules) - _MOST, "more rule"))
    whose = "which belongs" if len(rules) == 1 else "which belong"
    return f"{node} has {listed(told)}, {whose} to no engine"


def _counted(rule: ForeignRule) -> str:
    if rule.packets is None:
        return f"{rule_words(rule)}, without a counter" if rule.text else rule_words(rule)
    return f"{rule_words(rule)}, which counted {amount(rule.packets, 'packet')}"
