"""Foreign rules, which belong to no engine: those that ended or changed a probe's packets, or may have.

A rule without a counter never did anything for certain; the module only says that it may have.
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
    """The rules of a node that may have ended packets of the probe: all but those whose counter stood still."""
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
    """Whether any rule, foreign or not, rejected packets or may have."""
    if any(rule.packets != 0 and (not rule.text or _REJECTING.search(rule.text)) for rule in evidence.foreign):
        return True
    return any(count.target == "REJECT" or _REJECTING.search(count.text) for count in evidence.counts)


def rewrote(evidence: Evidence, node: str) -> ForeignRule | None:
    """The rule of a node that changes addresses, and that counted or has no counter."""
    changing = [each for each in evidence.foreign if each.node == node and _REWRITING.search(each.text)]
    counted = [rule for rule in changing if rule.packets]
    return next(iter(counted or [rule for rule in changing if rule.packets is None]), None)


def rule_words(rule: ForeignRule) -> str:
    """A rule, named so that a reader can find it: its text, chain and table."""
    if not rule.text:
        return f"a rule of table {rule.table}, which could not be listed without nft"
    hook = f" (hook {rule.hook}, priority {rule.priority})" if rule.hook else ""
    return f'the rule "{rule.text}" in chain {rule.chain}{hook} of table {rule.table}'


def suspicion(evidence: Evidence, node: str) -> str:
    """The clause about rules of a node that may have ended the probe's packets; empty if none may have."""
    rules = may_have_ended(evidence, node)
    if not rules:
        return ""
    shown = [_counted(rule) for rule in rules[:_MOST]]
    if len(rules) > _MOST:
        shown.append(amount(len(rules) - _MOST, "more rule"))
    belong = "belongs" if len(rules) == 1 else "belong"
    return f"{node} has {listed(shown)}, which {belong} to no engine"


def _counted(rule: ForeignRule) -> str:
    if rule.packets is None:
        return f"{rule_words(rule)}, without a counter" if rule.text else rule_words(rule)
    return f"{rule_words(rule)}, which counted {amount(rule.packets, 'packet')}"
