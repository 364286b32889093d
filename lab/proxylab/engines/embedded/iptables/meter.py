"""Counts which rules of iptables matched while a probe ran; a ``kernel.netfilter.meters.Meter``.

A lab has few changes of rules and many probes. So ``TableMeter`` has iptables-save print a table once for each state of
its rules, and then reads the bare table before and after each probe. Two readings with equal bytes everywhere but in
the counters hold the same rules. A table without rules needs no printing. Running iptables-save before and after each
probe misses the budget of 10 ms for a probe with its verdict: in one run, a probe of three nodes took 5 ms this way and
150 ms that way.
"""

import struct
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from itertools import repeat
from typing import Final, NamedTuple

from msgspec import Struct

from proxylab.errors import InternalError
from proxylab.evidence.evidence import RuleCount
from proxylab.kernel.netfilter.iptables_legacy_tables import EntryKind, Snapshot, TableEntryOffsets, TableReader
from proxylab.kernel.netfilter.iptables_nft_tables import NftTableReader
from proxylab.plan.resolved import ResolvedProbe
from proxylab.rules.iptables import read_tables
from proxylab.rules.texts import read_rule

COUNTED_TABLES: Final = ("mangle", "filter", "nat")
"""The iptables tables in which kube-proxy has chains."""

_ATTEMPTS: Final = 5
_OF_ENGINE: Final = "KUBE-"

Save = Callable[[Collection[str]], Awaitable[str]]
"""The output of ``iptables-save -c`` in the meter's node, of the tables of these names."""


class _RuleCounter(NamedTuple):
    """One line that can count: its rule or policy as text, and its index among the equal ones of its chain."""

    table: str
    chain: str
    text: str
    occurrence: int
    policy: bool = False


class _Layout(Struct, frozen=True):
    """The rules of one table: its bytes without the counters as one number, which compares megabytes in µs."""

    size: int
    rules: int
    mask: int
    rules_counted: tuple[_RuleCounter, ...]
    counters: struct.Struct

    def fits(self, snapshot: Snapshot) -> bool:
        """Whether a reading holds the same rules. A longer table may end like this one, behind a new first rule."""
        return len(snapshot.entries) == self.size and _number(snapshot.entries) & self.mask == self.rules

    def packets(self, entries: bytes) -> tuple[int, ...]:
        """The packets counted by each rule."""
        return self.counters.unpack_from(entries)


class TableMeter:
    """Reads counters from the tables of iptables, legacy or nft, as the kernel has them."""

    def __init__(self, node: str, reader: TableReader | NftTableReader, save: Save) -> None:
        self._node = node
        self._reader = reader
        self._save = save
        self._layouts: dict[str, _Layout] = {}
        self._before: dict[str, tuple[_Layout, bytes]] = {}
        self._last: dict[str, tuple[_Layout, bytes]] = {}
        self._cleared = False

    max_frames_in_flight = None

    @property
    def is_complete(self) -> bool:
        """Whether no counter was cleared: a proxy that loads rules anew, as kube-proxy periodically does, clears them.

        Then a counter has fallen, or a chain of the engine has counted more packets than the jumps to it.
        """
        return not self._cleared

    async def begin(self, _resolved: ResolvedProbe) -> None:
        """Remember the node's counters."""
        self._cleared = False
        self._before = await self._read()

    async def end(self) -> tuple[RuleCount, ...]:
        """The rules that have counted since, in the order of the tables.

        A new rule counted from zero. A rule whose counter fell was replaced, and its whole counter is new.
        """
        counts: list[RuleCount] = []
        for table, (layout, entries) in (await self._read()).items():
            old_layout, old_entries = self._before.get(table, (None, b""))
            if entries == old_entries:
                continue
            earlier: Iterable[int] = repeat(0)
            if old_layout is layout:
                earlier = layout.packets(old_entries)
            elif old_layout is not None:
                before = dict(zip(old_layout.rules_counted, old_layout.packets(old_entries), strict=True))
                earlier = (before.get(rule, 0) for rule in layout.rules_counted)
            for rule, known, packets in zip(layout.rules_counted, earlier, layout.packets(entries), strict=False):
                gained = packets - known if packets >= known else packets
                self._cleared |= packets < known
                if gained:
                    counts.append(RuleCount(self._node, table, rule.chain, rule.text, gained))
        self._cleared |= _lack_jumps(counts)
        return tuple(counts)

    def rules_by_chain(self) -> dict[tuple[str, str], list[str]]:
        """The rules by table and chain, in order, as they were at ``begin``."""
        texts: dict[tuple[str, str], list[str]] = {}
        for layout, _entries in self._before.values():
            for rule in layout.rules_counted:
                if not rule.policy:
                    texts.setdefault((rule.table, rule.chain), []).append(rule.text)
        return texts

    def close(self) -> None:
        """Close the reader."""
        self._reader.close()

    async def _read(self) -> dict[str, tuple[_Layout, bytes]]:
        """Every table with its layout; iptables-save prints the tables whose layout is unknown.

        Raises:
            InternalError: the rules changed during each of several readings.
        """
        for _ in range(_ATTEMPTS):
            snapshots = self._snapshots()
            unknown = {table: each for table, each in snapshots.items() if not self._is_known(table, each)}
            if not unknown:
                self._last = {table: (self._layouts[table], each.entries) for table, each in snapshots.items()}
                return self._last
            walked = {table: tuple(self._reader.walk(each)) for table, each in unknown.items()}
            with_rules = [
                table for table, found in walked.items() if any(each.kind is EntryKind.RULE for each in found)
            ]
            saved = await self._save(with_rules) if with_rules else ""  # most nodes have no rule in table mangle
            self._learn(unknown, walked, saved)
        raise InternalError(f"the rules of {self._node} changed during each of {_ATTEMPTS} readings of their counters")

    def _is_known(self, table: str, snapshot: Snapshot) -> bool:
        """Whether a table has the rules of its layout; one that is as it was read last time has them."""
        layout, (known, entries) = self._layouts.get(table), self._last.get(table, (None, b""))
        return layout is not None and ((known is layout and entries == snapshot.entries) or layout.fits(snapshot))

    def _snapshots(self) -> dict[str, Snapshot]:
        read = {table: self._reader.read(table) for table in COUNTED_TABLES}
        return {table: snapshot for table, snapshot in read.items() if snapshot is not None}

    def _learn(
        self,
        snapshots: Mapping[str, Snapshot],
        walked: Mapping[str, tuple[TableEntryOffsets, ...]],
        saved: str,
    ) -> None:
        """Tie each table's entries to the lines that iptables-save printed after the table was read.

        If the rules changed between the two, the next reading does not fit, or the lines do not, and both are read
        again.
        """
        texts = rule_texts(saved)
        for table, snapshot in snapshots.items():
            entries = walked[table]
            rules_counted = _rules_counted(table, entries, texts)
            if rules_counted is None:
                self._layouts.pop(table, None)
                continue
            numbers = self._reader.counters([at for at, _ in rules_counted])
            mask = _mask(len(snapshot.entries), map(self._reader.volatile, entries))
            rules = _number(snapshot.entries) & mask
            texts_of_rules = tuple(rule for _, rule in rules_counted)
            self._layouts[table] = _Layout(len(snapshot.entries), rules, mask, texts_of_rules, numbers)


def _rules_counted(
    table: str, entries: Iterable[TableEntryOffsets], texts: Mapping[tuple[str, str], list[str]]
) -> tuple[tuple[int, _RuleCounter], ...] | None:
    """The offset of each rule's counters; ``None`` if entries and lines do not match."""
    left = {chain: iter(lines) for (name, chain), lines in texts.items() if name == table}
    seen: defaultdict[tuple[str, str], int] = defaultdict(int)
    rules_counted: list[tuple[int, _RuleCounter]] = []
    for entry in entries:
        if entry.kind in (EntryKind.BOUNDARY, EntryKind.ACCEPT_POLICY):
            continue
        dropping = entry.kind is EntryKind.DROP_POLICY
        text = policy_text(entry.chain) if dropping else next(left.get(entry.chain, iter(())), None)
        if text is None:
            return None
        rules_counted.append(
            (entry.counters_at, _RuleCounter(table, entry.chain, text, seen[entry.chain, text], dropping))
        )
        seen[entry.chain, text] += 1
    return None if any(next(lines, None) is not None for lines in left.values()) else tuple(rules_counted)


def _lack_jumps(counts: Iterable[RuleCount]) -> bool:
    """Whether a chain of the engine has counted more packets than the jumps to it."""
    most: defaultdict[tuple[str, str], int] = defaultdict(int)
    jumped: defaultdict[tuple[str, str], int] = defaultdict(int)
    for each in counts:
        most[each.table, each.chain] = max(most[each.table, each.chain], each.packets)
        rule = read_rule(each.text)
        if rule is not None and rule.target:
            jumped[each.table, rule.target] += each.packets
    return any(packets > jumped[where] for where, packets in most.items() if where[1].startswith(_OF_ENGINE))


def _mask(size: int, volatile: Iterable[slice]) -> int:
    """A mask for a table of that size: it leaves only the bytes that change with its rules."""
    kept = bytearray(b"\xff" * size)
    for counters in volatile:
        kept[counters] = bytes(counters.stop - counters.start)
    return _number(bytes(kept))


def _number(entries: bytes) -> int:
    """Bytes as one number."""
    return int.from_bytes(entries, "big")


def rule_texts(dump: str) -> dict[tuple[str, str], list[str]]:
    """The rules that ``iptables-save -c`` printed, in order, by table and chain, without policies."""
    tables = read_tables(dump)
    return {(table.name, chain): texts for table in tables for chain, texts in table.texts.items()}


def policy_text(chain: str) -> str:
    """The text by which a policy that drops is reported, since it decides as much as a rule."""
    return f"-P {chain} DROP"
