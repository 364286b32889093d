"""The judge on what devices and stacks of nodes saw."""

import pytest
from golden_words import Told
from judging import FAIL, INCONCLUSIVE, PASS, judged, one
from msgspec.structs import replace
from recorded import World

from proxylab.evidence.evidence import (
    Direction,
    KernelCount,
    Observation,
    RuleCount,
    SentinelReport,
)
from proxylab.scenario.words import Outcome
from proxylab.verdict.model import Judgement

# What devices of nodes see.

ALONE = World(outcome=Outcome.UNTRANSLATED, at="node-a/eth0")


def on_node(world: World, device: str, direction: Direction, destination: str = "service") -> Observation:
    port = 80 if destination == "service" else 8080
    leaves = world.leaves(0)
    return replace(
        leaves,
        netns_name="node-a",
        device=device,
        direction=direction,
        destination=world.address(destination),
        destination_port=port,
        at=leaves.at + 1,
    )


def test_what_leaves_a_node_as_it_was_dialled_is_untranslated() -> None:
    seen = [ALONE.leaves(0), on_node(ALONE, "debug", Direction.IN), on_node(ALONE, "eth0", Direction.OUT)]
    verdict = judged(ALONE, ALONE.evidence(seen))
    assert {each.expectation: each.judgement for each in verdict.verdicts} == {"outcome": PASS, "at": PASS}
    elsewhere = replace(ALONE, at="node-b")
    assert one(elsewhere, elsewhere.evidence(seen), "at").reasons == ("it was seen at node-a/eth0",)


@pytest.mark.parametrize(
    ("seen", "judgement"),
    [
        ([on_node(ALONE, "debug", Direction.IN)], FAIL),  # it came in, and no tap saw it leave again
        ([on_node(ALONE, "eth0", Direction.OUT, "echo-1")], FAIL),
        ([on_node(ALONE, "eth0", Direction.OUT), ALONE.arrives(0, "echo-1")], FAIL),
        ([on_node(ALONE, "eth0", Direction.OUT), ALONE.hears_icmp(0)], FAIL),
        ([on_node(ALONE, "eth0", Direction.OUT), ALONE.hears_reset(0)], FAIL),
    ],
)
def test_anything_else_is_not(seen: list[Observation], judgement: Judgement) -> None:
    assert one(ALONE, ALONE.evidence([ALONE.leaves(0), *seen]), "outcome").judgement is judgement


def test_what_a_later_node_translates_is_not_untranslated(told: Told) -> None:
    left = [ALONE.leaves(0), on_node(ALONE, "eth0", Direction.OUT)]
    inside = replace(on_node(ALONE, "echo-1", Direction.OUT, "echo-1"), netns_name="node-b")
    verdict = one(ALONE, ALONE.evidence([*left, inside]), "outcome")
    assert verdict.judgement is FAIL
    assert verdict.reasons == (f"it crossed node-b/echo-1, addressed to {ALONE.address('echo-1')}:8080",)
    rule = RuleCount(
        "node-b", "nat", "KUBE-SEP-A", f"-A KUBE-SEP-A -j DNAT --to-destination {ALONE.address('echo-1')}:8080", 1
    )
    counted = one(ALONE, ALONE.evidence(left, counts=(rule,)), "outcome")
    assert counted.judgement is INCONCLUSIVE
    assert counted.reasons == told()


def test_of_many_flows_each_is_followed() -> None:
    many = replace(ALONE, flows=17)
    left = [many.leaves(flow) for flow in range(17)]
    passed = [replace(on_node(ALONE, "eth0", Direction.OUT), flow=flow) for flow in range(17)]
    assert one(many, many.evidence([*left, *passed]), "outcome").judgement is PASS
    verdict = one(many, many.evidence([*left, *passed[1:]]), "outcome")
    assert (verdict.judgement, verdict.example) == (FAIL, 0)


def test_a_drop_that_the_taps_saw_at_another_node_is_at_the_wrong_place() -> None:
    elsewhere = World(outcome=Outcome.DROPPED, at="node-b")
    seen = [elsewhere.leaves(0), on_node(elsewhere, "debug", Direction.IN)]
    verdict = one(elsewhere, elsewhere.evidence(seen), "at")
    assert (verdict.judgement, verdict.observed) == (FAIL, "node-a/debug")
    assert verdict.reasons == ("it was seen last at node-a/debug",)
    late = elsewhere.evidence(seen, sentinels=(SentinelReport("echo-1", answered=False),))
    assert one(elsewhere, late, "at").judgement is INCONCLUSIVE, "it may still come to node-b"
    left = [*seen, on_node(elsewhere, "eth0", Direction.OUT)]
    assert one(elsewhere, elsewhere.evidence(left), "at").judgement is INCONCLUSIVE, "behind node-a is no tap"


def test_a_rejection_that_left_another_node_first_is_at_the_wrong_place(told: Told) -> None:
    elsewhere = World(outcome=Outcome.REJECTED, at="node-b")
    heard = elsewhere.hears_icmp(0)
    sent = replace(heard, netns_name="node-a", device="debug", direction=Direction.OUT, at=heard.at - 1)
    verdict = one(elsewhere, elsewhere.evidence([elsewhere.leaves(0), sent, heard]), "at")
    assert verdict.judgement is FAIL
    assert verdict.reasons == told()


STOPPED = World(outcome=Outcome.DROPPED, at="node-a/eth0")


def test_without_a_rule_the_last_hop_that_the_author_names_is_the_witness_of_a_drop(told: Told) -> None:
    seen = [STOPPED.leaves(0), on_node(STOPPED, "debug", Direction.IN), on_node(STOPPED, "eth0", Direction.OUT)]
    verdict = judged(STOPPED, STOPPED.evidence(seen))
    assert {each.expectation: each.judgement for each in verdict.verdicts} == {"outcome": PASS, "at": PASS}
    assert verdict.verdicts[0].witnesses == told()
    before = STOPPED.evidence(seen[:2])
    assert judged(STOPPED, before).overall is INCONCLUSIVE, "it was seen last somewhere else, and no rule tells why"
    silent = STOPPED.evidence(seen, sentinels=())
    assert judged(STOPPED, silent).overall is INCONCLUSIVE
    unnamed = replace(STOPPED, at=None)
    assert judged(unnamed, unnamed.evidence(seen)).overall is INCONCLUSIVE


@pytest.mark.parametrize(
    ("counter", "judgement"),
    [("IpInAddrErrors", PASS), ("Ip6InAddrErrors", INCONCLUSIVE), ("ConntrackDrop", PASS)],
)
def test_a_stack_is_a_witness_of_a_drop_by_a_counter_of_the_packets_own_family(
    counter: str, judgement: Judgement
) -> None:
    world = World(outcome=Outcome.DROPPED)
    seen = [world.leaves(0), on_node(world, "debug", Direction.IN)]
    evidence = world.evidence(seen, sentinels=(), kernel=(KernelCount("node-a", counter, 1),))
    assert one(world, evidence, "outcome").judgement is judgement


@pytest.mark.parametrize(
    ("counters", "by"),
    [
        (["ConntrackDrop"], "the table is full"),
        (["ConntrackDrop", "ConntrackInsertFailed"], "the last free source port"),
    ],
)
def test_a_clash_of_connections_is_told_from_a_full_table(counters: list[str], by: str) -> None:
    world = World(outcome=Outcome.DROPPED)
    seen = [world.leaves(0), on_node(world, "debug", Direction.IN)]
    counted = tuple(KernelCount("node-a", counter, 1) for counter in counters)
    verdict = one(world, world.evidence(seen, sentinels=(), kernel=counted), "outcome")
    assert verdict.judgement is PASS
    assert by in f"{verdict.observed} {verdict.witnesses}"


@pytest.mark.parametrize("counter", ["IpInAddrErrors", "IpInReceives"])
def test_the_stack_of_a_node_where_no_tap_saw_the_packet_counted_something_else(counter: str) -> None:
    world = World(outcome=Outcome.DROPPED)
    seen = [world.leaves(0), on_node(world, "debug", Direction.IN)]
    evidence = world.evidence(
        seen, sentinels=(), kernel=(KernelCount("node-b", counter, 1),), metered_nodes=("node-a", "node-b")
    )
    assert one(world, evidence, "outcome").judgement is INCONCLUSIVE
