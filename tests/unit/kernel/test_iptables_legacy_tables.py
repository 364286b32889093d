"""The parser finds each entry in a table of the kernel's layout: chain by chain, each with its end."""

import struct

import pytest
from table_entries import ACCEPT, BOTH, DROP, RETURN, entry, error, snapshot, verdict

from proxylab.addresses import Family
from proxylab.kernel.netfilter.iptables_legacy_tables import EntryKind, Snapshot, TableEntryOffsets, counters, walk


def table(family: Family) -> tuple[Snapshot, bytes]:
    """INPUT with two rules and a policy that drops, OUTPUT empty, a chain of one rule, an empty chain."""
    parts = [
        entry(family, verdict(0), packets=1),
        entry(family, verdict(ACCEPT), matches=bytes(48), packets=2),
        entry(family, verdict(DROP), packets=3),
        entry(family, verdict(ACCEPT), packets=4),
        entry(family, error("MINE")),
        entry(family, verdict(DROP), matches=bytes(16), packets=5),
        entry(family, verdict(RETURN), packets=6),
        entry(family, error("EMPTY")),
        entry(family, verdict(RETURN), packets=7),
        entry(family, error("ERROR")),
    ]
    starts = [sum(map(len, parts[:number])) for number in range(len(parts))]
    hooks, ends = {starts[0]: "INPUT", starts[3]: "OUTPUT"}, {starts[2]: "INPUT", starts[3]: "OUTPUT"}
    entries = b"".join(parts)
    return snapshot(family, entries, hooks, ends), entries


@BOTH
def test_rules_policies_and_boundaries_are_distinguished(family: Family) -> None:
    whole, entries = table(family)
    found = list(walk(whole))
    packets = counters("=", [each.counters_at for each in found]).unpack_from(entries)
    assert [(each.kind, each.chain, count) for each, count in zip(found, packets, strict=True)] == [
        (EntryKind.RULE, "INPUT", 1),
        (EntryKind.RULE, "INPUT", 2),
        (EntryKind.DROP_POLICY, "INPUT", 3),
        (EntryKind.ACCEPT_POLICY, "OUTPUT", 4),
        (EntryKind.BOUNDARY, "MINE", 0),
        (EntryKind.RULE, "MINE", 5),
        (EntryKind.BOUNDARY, "MINE", 6),
        (EntryKind.BOUNDARY, "EMPTY", 0),
        (EntryKind.BOUNDARY, "EMPTY", 7),
        (EntryKind.BOUNDARY, "ERROR", 0),
    ]


@BOTH
def test_a_last_rule_that_returns_is_a_rule_and_not_the_end_of_its_chain(family: Family) -> None:
    parts = [
        entry(family, error("MINE")),
        entry(family, verdict(RETURN), packets=8),
        entry(family, verdict(RETURN)),
        entry(family, error("ERROR")),
    ]
    kinds = [(each.kind, each.chain) for each in walk(snapshot(family, b"".join(parts)))]
    assert kinds == [
        (EntryKind.BOUNDARY, "MINE"),
        (EntryKind.RULE, "MINE"),
        (EntryKind.BOUNDARY, "MINE"),
        (EntryKind.BOUNDARY, "ERROR"),
    ]


def test_the_entry_has_the_offset_of_its_counters() -> None:
    one = entry(Family.IPV4, verdict(ACCEPT), packets=9)
    (found,) = walk(snapshot(Family.IPV4, one, {0: "INPUT"}))
    assert found == TableEntryOffsets(EntryKind.RULE, "INPUT", 96)


@pytest.mark.parametrize("lengths", [(112, 112), (112, 40), (112, 9999)], ids=["empty", "backwards", "beyond"])
def test_an_entry_with_an_impossible_length_is_refused(lengths: tuple[int, int]) -> None:
    broken = bytearray(entry(Family.IPV4, verdict(ACCEPT)))
    struct.pack_into("=HH", broken, 88, *lengths)
    with pytest.raises(ValueError, match="entry at 0"):
        list(walk(snapshot(Family.IPV4, bytes(broken))))
