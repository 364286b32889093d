"""The entries that the nodes hold."""

import pytest
from judging import DELIVERED, FAIL, INCONCLUSIVE, PASS
from msgspec.structs import replace

from proxylab.addresses import Transport
from proxylab.evidence.evidence import (
    TableEntry,
)
from proxylab.scenario.expect import ConntrackExpect, Entries
from proxylab.verdict.judge import judge
from proxylab.verdict.model import Judgement

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


@pytest.mark.parametrize(
    ("wanted", "judgement"),
    [
        (None, INCONCLUSIVE),
        (ConntrackExpect(some=Entries(reply_from="echo-1")), PASS),
        (ConntrackExpect(some=Entries(reply_from="echo-2")), INCONCLUSIVE),
        (ConntrackExpect(none=Entries(reply_from="echo-2")), INCONCLUSIVE),
    ],
)
def test_an_entry_that_the_author_expects_stands_for_a_rule_that_did_not_count(
    wanted: ConntrackExpect | None, judgement: Judgement
) -> None:
    world = DELIVERED
    names = {name: (world.address(name),) for name in ("echo-1", "echo-2")}
    probe = replace(world.probe, expect=replace(world.probe.expect, conntrack=wanted))
    resolved = replace(world.resolved, tables=True, addresses=names)
    entry = replace(ENTRY, reply_source_port=8080)
    evidence = world.evidence(world.round_trip(0, "echo-1"), entries=(entry,), counted=("node-a", "node-b"), counts=())
    (verdict,) = [each for each in judge(probe, resolved, None, evidence).verdicts if each.expectation == "outcome"]
    assert verdict.judgement is judgement, verdict.reasons
