"""The entries that the nodes hold."""

import pytest
from golden_words import Told
from judging import DELIVERED, FAIL, INCONCLUSIVE, PASS
from msgspec.structs import replace
from recorded import World

from proxylab.addresses import Transport
from proxylab.evidence.evidence import ForeignRule, TableEntry, TrackedFlow
from proxylab.scenario.expect import ConntrackExpect, Entries
from proxylab.verdict.conntrack_tables import is_met
from proxylab.verdict.judge import judge
from proxylab.verdict.model import Judgement, Verdict

ENTRY = TableEntry(
    "node-a",
    Transport.TCP,
    *(part for end in ("debug", "service", "echo-1", "debug") for part in (DELIVERED.address(end), 80)),
)


@pytest.mark.parametrize(
    ("wanted", "judgement"),
    [
        (ConntrackExpect(some=Entries(reply_from="echo-1")), PASS),
        (ConntrackExpect(some=Entries(reply_from=str(DELIVERED.address("echo-1")), port=80)), PASS),
        (ConntrackExpect(some=Entries(reply_from="echo-1", masqueraded=False)), PASS),
        (ConntrackExpect(some=Entries(reply_from="echo-1", masqueraded=True)), FAIL),
        (ConntrackExpect(none=Entries(masqueraded=True)), PASS),
        (ConntrackExpect(some=Entries(reply_from="echo-2")), FAIL),
        (ConntrackExpect(some=Entries(protocol=Transport.TCP)), PASS),
        (ConntrackExpect(some=Entries(protocol=Transport.UDP, reply_from="echo-1")), FAIL),
        (ConntrackExpect(none=Entries(protocol=Transport.UDP, reply_from="echo-1")), PASS),
        (ConntrackExpect(some=Entries(original_from="debug", port=81)), FAIL),
        (ConntrackExpect(node="node-b", some=Entries(reply_from="echo-1")), FAIL),
        (ConntrackExpect(none=Entries(reply_from="echo-1")), FAIL),
        (ConntrackExpect(none=Entries(reply_from="echo-2")), PASS),
        (ConntrackExpect(node="node-b", none=Entries(reply_from="echo-1")), PASS),
    ],
)
def test_the_tables_hold_what_they_must_and_nothing_that_they_must_not(
    wanted: ConntrackExpect, judgement: Judgement
) -> None:
    world = DELIVERED
    names = {name: (world.address(name),) for name in ("debug", "echo-1", "echo-2")}
    probe = replace(world.probe, expect=replace(world.probe.expect, conntrack=wanted))
    resolved = replace(world.resolved, tables=True, addresses=names)
    evidence = world.evidence(world.round_trip(0, "echo-1"), entries=(ENTRY,))
    (verdict,) = [each for each in judge(probe, resolved, None, evidence).verdicts if each.expectation == "conntrack"]
    assert verdict.judgement is judgement
    (unread,) = [
        each
        for each in judge(probe, resolved, None, replace(evidence, entries=None)).verdicts
        if each.expectation == "conntrack"
    ]
    assert unread.judgement is INCONCLUSIVE


def test_entries_with_equal_tuples_are_told_apart_by_their_protocol() -> None:
    both = (ENTRY, replace(ENTRY, protocol=Transport.UDP))
    wanted = ConntrackExpect(none=Entries(protocol=Transport.UDP, reply_from="echo-1"))
    probe = replace(DELIVERED.probe, expect=replace(DELIVERED.probe.expect, conntrack=wanted))
    resolved = replace(DELIVERED.resolved, tables=True, addresses={"echo-1": (DELIVERED.address("echo-1"),)})
    evidence = DELIVERED.evidence(DELIVERED.round_trip(0, "echo-1"), entries=both)
    verdict = judge(probe, resolved, None, evidence).verdicts[-1]
    words = "node-a holds UDP 10.244.1.2:80 > 10.96.0.10:80, answered by 10.244.2.3:80"
    assert (verdict.expectation, verdict.judgement, verdict.reasons) == ("conntrack", FAIL, (words,))


RIGHT, WRONG = (ConntrackExpect(some=Entries(reply_from=name)) for name in ("echo-1", "echo-2"))
FOREIGN = ForeignRule("node-a", "ip attack", "x", "prerouting", -350, "counter ip daddr set 10.96.0.11", 1)


@pytest.mark.parametrize(
    ("wanted", "known", "foreign", "judgement"),
    [
        (RIGHT, "echo-1", (), PASS),
        (RIGHT, "echo-2", (), INCONCLUSIVE),
        (RIGHT, None, (), INCONCLUSIVE),
        (RIGHT, "echo-1", (FOREIGN,), INCONCLUSIVE),
        (None, "echo-1", (), INCONCLUSIVE),
        (WRONG, "echo-1", (), INCONCLUSIVE),
        (ConntrackExpect(none=Entries(reply_from="echo-2")), "echo-1", (), INCONCLUSIVE),
    ],
)
def test_an_entry_from_before_that_the_author_expects_stands_for_a_rule_that_did_not_count(
    wanted: ConntrackExpect | None, known: str | None, foreign: tuple[ForeignRule, ...], judgement: Judgement
) -> None:
    found = of_outcome(wanted, known, foreign=foreign)
    assert found.judgement is judgement, found.reasons


def test_an_entry_from_before_stands_for_no_rule_of_a_second_flow(told: Told) -> None:
    found = of_outcome(RIGHT, "echo-1", flows=2)
    assert found.reasons == told()
    assert of_outcome(RIGHT, "echo-1", flows=2, counts=(World(flows=2).translated("echo-1", 1),)).judgement is PASS


def of_outcome(wanted: ConntrackExpect | None, known: str | None, *, flows: int = 1, **evidence: object) -> Verdict:
    """The verdict of flows that reach echo-1, with the entry of the first; it is ``known`` from before for that pod."""
    world = World(flows=flows)
    names = {name: (world.address(name),) for name in ("echo-1", "echo-2")}
    probe = replace(world.probe, expect=replace(world.probe.expect, conntrack=wanted))
    resolved = replace(world.resolved, tables=True, addresses=names)
    entry = replace(ENTRY, reply_source_port=8080)
    before = [TrackedFlow(0, "node-a", world.address(known), 8080, entry.source, entry.source_port)] if known else []
    seen = [each for flow in range(flows) for each in world.round_trip(flow, "echo-1")]
    told = world.evidence(seen, entries=(entry,), metered_nodes=("node-a", "node-b"), known=tuple(before))
    told = replace(told, **evidence)  # type: ignore[arg-type]
    return next(each for each in judge(probe, resolved, None, told).verdicts if each.expectation == "outcome")


def of_tables(wanted: ConntrackExpect, *entries: TableEntry) -> Verdict:
    world = DELIVERED
    names = {name: (world.address(name),) for name in ("debug", "echo-1", "echo-2")}
    probe = replace(world.probe, expect=replace(world.probe.expect, conntrack=wanted))
    resolved = replace(world.resolved, tables=True, addresses=names)
    evidence = world.evidence(world.round_trip(0, "echo-1"), entries=entries)
    return next(each for each in judge(probe, resolved, None, evidence).verdicts if each.expectation == "conntrack")


OTHER = replace(ENTRY, reply_source=DELIVERED.address("echo-2"))


@pytest.mark.parametrize("node", ["node-a", "node-b"])
def test_an_entry_on_any_node_counts_where_the_author_names_none(node: str) -> None:
    entry, others = replace(ENTRY, node=node), [replace(OTHER, node=each) for each in ("node-a", "node-b")]
    kind = Entries(reply_from="echo-1")
    for entries in ((entry,), (*others, entry), (entry, *others)):
        held = of_tables(ConntrackExpect(none=kind), *entries)
        assert (held.judgement, held.reasons[0].split()[0]) == (FAIL, node)
        assert of_tables(ConntrackExpect(some=kind), *entries).judgement is PASS
        names = {"echo-1": (DELIVERED.address("echo-1"),)}
        assert not is_met(ConntrackExpect(none=kind), entries, names)
        assert is_met(ConntrackExpect(some=kind), entries, names)
    elsewhere = "node-b" if node == "node-a" else "node-a"
    assert of_tables(ConntrackExpect(node=elsewhere, none=kind), entry).judgement is PASS
    assert of_tables(ConntrackExpect(node=elsewhere, some=kind), entry).judgement is FAIL


def test_both_of_some_and_none_are_judged() -> None:
    both = ConntrackExpect(some=Entries(reply_from="echo-2"), none=Entries(reply_from="echo-1"))
    names = {name: (DELIVERED.address(name),) for name in ("echo-1", "echo-2")}
    for entries, judgement in (((OTHER,), PASS), ((ENTRY,), FAIL), ((OTHER, ENTRY), FAIL), ((), FAIL)):
        assert of_tables(both, *entries).judgement is judgement
        assert is_met(both, entries, names) is (judgement is PASS)


@pytest.mark.parametrize(
    ("change", "is_masqueraded"),
    [
        ({}, False),
        ({"reply_destination": DELIVERED.address("node-a")}, True),
        ({"reply_destination_port": 61000}, True),
        ({"reply_destination": DELIVERED.address("node-a"), "reply_destination_port": 61000}, True),
        ({"destination_port": 8080}, False),
    ],
    ids=["nothing", "the address", "the port alone", "both", "what was dialled"],
)
def test_a_source_is_translated_where_its_address_or_its_port_changed(
    change: dict[str, object], is_masqueraded: bool
) -> None:
    entry = replace(ENTRY, **change)  # type: ignore[arg-type]
    for said in (True, False):
        expected = PASS if said is is_masqueraded else FAIL
        assert of_tables(ConntrackExpect(some=Entries(masqueraded=said)), entry).judgement is expected
        unexpected = FAIL if said is is_masqueraded else PASS
        assert of_tables(ConntrackExpect(none=Entries(masqueraded=said)), entry).judgement is unexpected
