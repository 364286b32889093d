"""Rules as iptables-save prints them.

Owns: the rules of a dump by chain, and the words for a policy. Must not: know what any rule means.

``iptables-save -c`` prints ``*table``, then ``:chain policy [packets:bytes]``, then ``[packets:bytes] -A chain ...``,
then ``COMMIT`` (iptables-save(8)). A policy that drops is as good as a rule, so it is reported as ``-P chain DROP``.
"""

import re
from typing import Final

__all__ = ["policy_text", "rule_texts"]

_RULE: Final = re.compile(r"\[(\d+):\d+\] (-A (\S+).*)")


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
