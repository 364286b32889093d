"""What is printed of one table is known of another with the same rules, and of no other."""

import asyncio
from collections.abc import Iterator, Sequence
from struct import Struct

from table_entries import ACCEPT, DROP, entry, error, verdict

from lab.ip import Family
from lab.kernel.xtables import Entry, Snapshot, counters, walk
from lab.traffic.meters import Layouts, TableMeter

V4 = Family.IPV4


def table(code: int, packets: int = 0) -> Snapshot:
    """A filter table whose INPUT has one rule with that verdict."""
    rule, policy = entry(V4, verdict(code), packets=packets), entry(V4, verdict(ACCEPT))
    parts = [rule, policy, entry(V4, error("ERROR"))]
    return Snapshot(V4, {0: "INPUT"}, {len(rule): "INPUT"}, b"".join(parts), len(parts))


class Node:
    """A table that may change, and what iptables-save prints of it."""

    def __init__(self, code: int, layouts: Layouts, words: str = "") -> None:
        self.table, self.words, self.asked = table(code), words, 0
        self.changes_to: int | None = None
        self.meter = TableMeter("n", self, self.save, layouts)  # type: ignore[arg-type] # a reader as good as any

    def read(self, name: str) -> Snapshot | None:
        return self.table if name == "filter" else None

    def walk(self, snapshot: Snapshot) -> Iterator[Entry]:
        return walk(snapshot)

    def counters(self, places: Sequence[int]) -> Struct:
        return counters("=", places)

    def volatile(self, each: Entry) -> slice:
        return slice(each.counters_at, each.counters_at + 16)

    async def save(self) -> str:
        self.asked += 1
        if self.changes_to is not None:
            self.table, self.changes_to = table(self.changes_to), None
        dropping = self.table.entries == table(DROP).entries
        await asyncio.sleep(0)
        jump = f"{self.words}-j {'DROP' if dropping else 'ACCEPT'}"
        return f"*filter\n:INPUT ACCEPT [0:0]\n[0:0] -A INPUT {jump}\nCOMMIT\n"

    async def rules(self) -> list[str]:
        await self.meter.begin(None)  # type: ignore[arg-type] # no errand is asked for
        return self.meter.texts()["filter", "INPUT"]


def test_nodes_with_the_same_rules_ask_once() -> None:
    layouts = Layouts()
    nodes = [Node(DROP, layouts) for _ in range(3)]
    nodes[1].table = table(DROP, packets=7)

    async def all_at_once() -> list[list[str]]:
        return await asyncio.gather(*(node.rules() for node in nodes))

    assert asyncio.run(all_at_once()) == [["-A INPUT -j DROP"]] * 3
    assert [node.asked for node in nodes] == [1, 0, 0]


def test_other_rules_are_asked_for() -> None:
    layouts = Layouts()
    first, second = Node(DROP, layouts), Node(ACCEPT, layouts)
    assert asyncio.run(first.rules()) == ["-A INPUT -j DROP"]
    assert asyncio.run(second.rules()) == ["-A INPUT -j ACCEPT"]


def test_rules_that_change_while_they_are_printed_are_nobody_elses() -> None:
    layouts = Layouts()
    first, second = Node(DROP, layouts), Node(DROP, layouts)
    first.changes_to = ACCEPT
    assert asyncio.run(first.rules()) == ["-A INPUT -j ACCEPT"]
    assert asyncio.run(second.rules()) == ["-A INPUT -j DROP"]


def test_what_names_a_set_by_its_number_is_asked_for_in_every_node() -> None:
    layouts = Layouts()
    mine, yours = (Node(DROP, layouts, f"-m set --match-set {name} src ") for name in ("mine", "yours"))
    assert asyncio.run(mine.rules()) == ["-A INPUT -m set --match-set mine src -j DROP"]
    assert asyncio.run(yours.rules()) == ["-A INPUT -m set --match-set yours src -j DROP"]
