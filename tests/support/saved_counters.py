"""Rule counters, read from the output of iptables-save: slow, and the reference for the quick meters.

``iptables-save -c`` prints ``*table``, then ``:chain policy [packets:bytes]``, then ``[packets:bytes] -A chain ...``,
then ``COMMIT`` (iptables-save(8)). Equal rules may stand in one chain more than once: the n-th of the one dump is
compared with the n-th of the other. A policy that drops is as good as a rule, so it is reported as ``-P chain DROP``.
"""

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from proxylab.engines.embedded.iptables.meter import Save, policy_text, rule_texts
from proxylab.evidence.evidence import RuleCount
from proxylab.plan.resolved import ResolvedProbe
from proxylab.rules.iptables import read_tables


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
    for netns_name, packets in _counters(after):
        gained = packets - earlier.get(netns_name, 0)
        if gained < 0:
            gained = packets
        if gained:
            counts.append(RuleCount(node, netns_name.table, netns_name.chain, netns_name.text, gained))
    return tuple(counts)


class TextMeter:
    """Reads counters from what iptables-save prints, which works for every variant of iptables, and slowly."""

    def __init__(self, node: str, save: Save) -> None:
        self._node = node
        self._save = save
        self._before = ""

    room = None

    @property
    def is_complete(self) -> bool:
        """Counters forget nothing."""
        return True

    async def begin(self, _resolved: ResolvedProbe) -> None:
        """Remember what the rules of the node have counted so far."""
        self._before = await self._save()

    async def end(self) -> tuple[RuleCount, ...]:
        """The rules that have counted since."""
        return rule_counts(self._node, self._before, await self._save())

    def rules_by_chain(self) -> dict[tuple[str, str], list[str]]:
        """The rules by table and chain, in order, as they stood at ``begin``."""
        return rule_texts(self._before)

    def close(self) -> None:
        """Nothing is held open."""


def _counters(dump: str) -> Iterator[tuple[_Place, int]]:
    for table in read_tables(dump):
        for chain in table.chains.values():
            if chain.policy == "DROP" and chain.packets is not None:
                yield _Place(table.name, chain.name, policy_text(chain.name), 0), chain.packets
        seen: Counter[str] = Counter()
        for rule in table.rules:
            if rule.packets is not None:
                yield _Place(table.name, rule.chain, rule.text, seen[rule.text]), rule.packets
                seen[rule.text] += 1
