"""A meter ties the lines that iptables-save prints to the table that it has read, and to no other."""

import asyncio
from collections.abc import Collection, Iterator, Sequence
from struct import Struct, pack

from table_entries import ACCEPT, DROP, entry, error, verdict

from proxylab.addresses import Family
from proxylab.engines.embedded.iptables.meter import TableMeter
from proxylab.kernel.netfilter.iptables_legacy_tables import Snapshot, TableEntryOffsets, counters, walk

V4 = Family.IPV4


MARK = pack("=H29sBII", 40, b"MARK", 2, 0x4000, 0xFFFFFFFF)  # struct xt_mark_tginfo2: the mark, then its mask


def table(code: int, packets: int = 0, *, marks: bool = False) -> Snapshot:
    """A filter table whose INPUT has one rule with that verdict, perhaps behind one that marks."""
    first = entry(V4, MARK) if marks else b""
    rule, policy = entry(V4, verdict(code), packets=packets), entry(V4, verdict(ACCEPT))
    parts = [first, rule, policy, entry(V4, error("ERROR"))]
    return Snapshot(V4, {0: "INPUT"}, {len(first + rule): "INPUT"}, b"".join(parts))


class Node:
    """A table that may change, and what iptables-save prints of it."""

    def __init__(self, code: int) -> None:
        self.table, self.asked = table(code), 0
        self.changes_to: int | None = None
        self.meter = TableMeter("n", self, self.save)  # type: ignore[arg-type] # a reader as good as any

    def read(self, name: str) -> Snapshot | None:
        return self.table if name == "filter" else None

    def walk(self, snapshot: Snapshot) -> Iterator[TableEntryOffsets]:
        return walk(snapshot)

    def counters(self, netns_names: Sequence[int]) -> Struct:
        return counters("=", netns_names)

    def volatile(self, each: TableEntryOffsets) -> slice:
        return slice(each.counters_at, each.counters_at + 16)

    async def save(self, _tables: Collection[str]) -> str:
        self.asked += 1
        if self.changes_to is not None:
            self.table, self.changes_to = table(self.changes_to), None
        dropping = self.table.entries == table(DROP).entries
        await asyncio.sleep(0)
        mark = "[0:0] -A INPUT -j MARK --set-mark 0x4000\n" if MARK in self.table.entries else ""
        jump = f"-j {'DROP' if dropping else 'ACCEPT'}"
        return f"*filter\n:INPUT ACCEPT [0:0]\n{mark}[0:0] -A INPUT {jump}\nCOMMIT\n"

    async def rules(self) -> list[str]:
        await self.meter.begin(None)  # type: ignore[arg-type] # the meter ignores the probe
        return self.meter.rules_by_chain()["filter", "INPUT"]


def test_rules_that_change_while_they_are_printed_are_printed_again() -> None:
    node = Node(DROP)
    node.changes_to = ACCEPT
    assert asyncio.run(node.rules()) == ["-A INPUT -j ACCEPT"]
    assert node.asked == 2


def test_a_table_that_has_a_new_rule_before_all_others_is_not_taken_for_the_one_before() -> None:
    node = Node(ACCEPT)
    assert asyncio.run(node.rules()) == ["-A INPUT -j ACCEPT"]
    node.table = table(ACCEPT, marks=True)  # it ends like the table before, byte for byte
    assert asyncio.run(node.rules()) == ["-A INPUT -j MARK --set-mark 0x4000", "-A INPUT -j ACCEPT"]


def test_a_counter_that_a_new_load_of_the_rules_has_cleared_is_not_complete() -> None:
    node = Node(DROP)

    async def run(before: int, after: int) -> bool:
        node.table = table(DROP, packets=before)
        await node.meter.begin(None)  # type: ignore[arg-type]
        node.table = table(DROP, packets=after)
        await node.meter.end()
        return node.meter.is_complete

    assert [asyncio.run(run(*each)) for each in ((1, 2), (2, 0), (0, 3))] == [True, False, True]


class Jumping(Node):
    """A table whose INPUT jumps to a chain of the engine, which has one rule. All else reads as before."""

    def count(self, jumped: int, matched: int) -> None:
        jump, policy = entry(V4, verdict(0), packets=jumped), entry(V4, verdict(ACCEPT))
        rule, back = entry(V4, verdict(DROP), packets=matched), entry(V4, verdict(-5))
        parts = [jump, policy, entry(V4, error("KUBE-NODEPORTS")), rule, back, entry(V4, error("ERROR"))]
        self.table = Snapshot(V4, {0: "INPUT"}, {len(jump): "INPUT"}, b"".join(parts))

    async def save(self, _tables: Collection[str]) -> str:
        rules = "[0:0] -A INPUT -j KUBE-NODEPORTS\n[0:0] -A KUBE-NODEPORTS -p tcp -j DROP\n"
        return f"*filter\n:INPUT ACCEPT [0:0]\n:KUBE-NODEPORTS - [0:0]\n{rules}COMMIT\n"


def test_a_jump_that_a_new_load_has_cleared_shows_by_the_chain_that_counted_more() -> None:
    node = Jumping(DROP)

    async def run(jumped: int, matched: int) -> bool:
        node.count(0, 0)
        await node.meter.begin(None)  # type: ignore[arg-type]
        node.count(jumped, matched)
        assert sum(each.packets for each in await node.meter.end()) == jumped + matched
        return node.meter.is_complete

    assert [asyncio.run(run(*each)) for each in ((3, 3), (3, 1), (0, 3))] == [True, True, False]


class ManyTables(Node):
    """Three tables: one has no rule, and of the others one changes."""

    def __init__(self) -> None:
        super().__init__(DROP)
        policy = entry(V4, verdict(ACCEPT))
        empty = Snapshot(V4, {0: "INPUT"}, {0: "INPUT"}, policy + entry(V4, error("ERROR")))
        self.tables = {"mangle": empty, "filter": self.table, "nat": table(ACCEPT)}
        self.printed: list[list[str]] = []

    def read(self, name: str) -> Snapshot | None:
        return self.tables[name]

    async def save(self, tables: Collection[str]) -> str:
        self.printed.append([*tables])
        texts = []
        for name in tables:
            self.table = self.tables[name]
            texts.append((await super().save(tables)).replace("*filter", f"*{name}"))
        return "".join(texts)


def test_only_tables_with_rules_that_are_new_are_printed() -> None:
    node = ManyTables()
    assert asyncio.run(node.rules()) == ["-A INPUT -j DROP"]
    node.tables["filter"] = table(ACCEPT)
    assert asyncio.run(node.rules()) == ["-A INPUT -j ACCEPT"]
    node.tables["nat"] = table(ACCEPT, packets=9)
    assert asyncio.run(node.rules()) == ["-A INPUT -j ACCEPT"]
    assert node.printed == [["filter", "nat"], ["filter"]]
