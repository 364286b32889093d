"""Rule counters, read from what iptables-save prints.

Owns: ``rule_counts``, the difference between two dumps of one node, and ``rule_texts``, the rules of one.
Must not: know what any rule means.

``iptables-save -c`` prints ``*table``, then ``:chain policy [packets:bytes]``, then ``[packets:bytes] -A chain ...``,
then ``COMMIT`` (iptables-save(8)). Equal rules may stand in one chain more than once: the n-th of the one dump is
compared with the n-th of the other. A policy that drops is as good as a rule, so it is reported as ``-P chain DROP``.
"""

import re
from collections import Counter
from collections.abc import Iterator
from typing import Final, NamedTuple

from lab.verdict.evidence import RuleCount

__all__ = ["policy_text", "rule_counts", "rule_texts"]

_RULE: Final = re.compile(r"\[(\d+):\d+\] (-A (\S+).*)")
_DROPPING: Final = re.compile(r":(\S+) DROP \[(\d+):\d+\]")


class _Place(NamedTuple):
    table: str
    chain: str
    text: str
    occurrence: int


def rule_counts(node: str, before: str, after: str) -> tuple[RuleCount, ...]:
    """The rules that counted packets between two dumps, in the order of the later one.

    A rule that is new in the later dump counted from nothing. A rule whose counter fell was replaced meanwhile, and
    counts what it shows. Dumps without counters (``iptables-save`` without ``-c``) yield nothing.
    """
    earlier = dict(_counters(before))
    counts = []
    for place, packets in _counters(after):
        gained = packets - earlier.get(place, 0)
        if gained < 0:
            gained = packets
        if gained:
            counts.append(RuleCount(node, place.table, place.chain, place.text, gained))
    return tuple(counts)


def rule_texts(dump: str) -> dict[tuple[str, str], list[str]]:
    """The rules of a dump, in order, by table and chain. Policies are not among them."""
    texts: dict[tuple[str, str], list[str]] = {}
    table = ""
    for line in dump.splitlines():
        if line.startswith("*"):
            table = line[1:].strip()
        elif rule := _RULE.match(line):
            texts.setdefault((table, rule[3]), []).append(rule[2].rstrip())
    return texts


def policy_text(chain: str) -> str:
    """How a policy that drops is reported."""
    return f"-P {chain} DROP"


def _counters(dump: str) -> Iterator[tuple[_Place, int]]:
    table = ""
    seen: Counter[tuple[str, str]] = Counter()
    for line in dump.splitlines():
        if line.startswith("*"):
            table = line[1:].strip()
        elif rule := _RULE.match(line):
            text = rule[2].rstrip()
            yield _Place(table, rule[3], text, seen[table, text]), int(rule[1])
            seen[table, text] += 1
        elif policy := _DROPPING.match(line):
            yield _Place(table, policy[1], policy_text(policy[1]), 0), int(policy[2])
