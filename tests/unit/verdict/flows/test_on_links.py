"""The judge on links with netem: what they lost or copied is not the proxy's, and it proves nothing of the proxy."""

import pytest
from hypothesis import given
from judging import DROPPED, FAIL, INCONCLUSIVE, PASS, dropped_evidence, judged, one
from msgspec.structs import replace
from random_evidence import cases
from recorded import World

from proxylab.addresses import Transport
from proxylab.evidence.evidence import Evidence, LinkCount, Observation
from proxylab.scenario.words import Manner, Outcome

TWO = World(flows=2, backends=("echo-1",))


def link(dropped: int, *behind: str, copies: bool = False) -> LinkCount:
    return LinkCount(
        link="node-b",
        outward=False,
        netem="loss 10%",
        dropped=dropped,
        copies=copies,
        behind=behind or ("node-a/eth0",),
    )


def until(world: World, flow: int, hops: int) -> tuple[Observation, ...]:
    """The flow, as far as its first hops: three for a request that left node-a, nine for a reply that left node-b."""
    return world.crossing(flow, "echo-1")[:hops]


def evidence(hops: int, *links: LinkCount) -> Evidence:
    """One flow that went well, and another that disappeared."""
    counts = (TWO.balanced(2), TWO.translated("echo-1", 2))
    return TWO.evidence([*TWO.crossing(0, "echo-1"), *until(TWO, 1, hops)], counts=counts, links=links)


def test_a_flow_that_a_link_lost_leaves_the_verdict_to_the_others() -> None:
    assert one(TWO, evidence(3, link(1)), "outcome").judgement is PASS
    assert one(TWO, evidence(3, link(1)), "outcome").observed == "1 delivered, 1 lost on a link"
    assert {each.judgement for each in judged(TWO, evidence(3, link(1))).verdicts} == {PASS}


@pytest.mark.parametrize(
    "links",
    [(), (link(0),), (link(5, "debug/eth0"),)],
    ids=["no netem", "netem that dropped nothing", "netem of another link"],
)
def test_a_flow_that_no_link_can_have_lost_is_missing(links: tuple[LinkCount, ...]) -> None:
    assert one(TWO, evidence(3, *links), "outcome").judgement is FAIL


def test_a_flow_that_ended_within_a_node_is_not_lost_on_a_link() -> None:
    assert one(TWO, evidence(2, link(5), link(5, "debug/eth0")), "outcome").judgement is FAIL


def test_a_frame_that_a_bridge_floods_to_others_was_lost_all_the_same() -> None:
    flooded = replace(until(TWO, 1, 4)[-1], netns_name="node-c", otherhost=True)
    seen = evidence(3, link(1))
    assert one(TWO, replace(seen, observations=(*seen.observations, flooded)), "outcome").judgement is PASS


def test_more_losses_than_netem_counted_are_not_its_own() -> None:
    world = replace(TWO, flows=3)
    lost = [*world.crossing(0, "echo-1"), *until(world, 1, 3), *until(world, 2, 3)]
    counts = (world.balanced(3), world.translated("echo-1", 3))
    assert one(world, world.evidence(lost, counts=counts, links=(link(1),)), "outcome").judgement is FAIL
    assert one(world, world.evidence(lost, counts=counts, links=(link(2),)), "outcome").judgement is PASS


def test_where_a_link_lost_every_flow_nothing_is_shown_and_the_link_is_named() -> None:
    world = replace(TWO, flows=1)
    verdict = one(world, world.evidence(until(world, 0, 3), links=(link(1),)), "outcome")
    assert verdict.judgement is INCONCLUSIVE
    assert verdict.reasons[0].startswith(
        "the link of node-b (loss 10%) lost it behind node-a/eth0, where netem dropped 1"
    )


def test_a_reply_that_a_link_lost_is_not_the_proxy_s() -> None:
    behind = link(1, "node-b/eth0")
    assert one(TWO, evidence(9, behind), "reply").judgement is PASS
    assert one(TWO, evidence(9), "reply").judgement is FAIL
    alone = replace(TWO, flows=1)
    verdict = one(alone, alone.evidence(until(alone, 0, 9), links=(behind,)), "reply")
    assert verdict.judgement is INCONCLUSIVE
    assert "the link of node-b (loss 10%)" in verdict.reasons[0]


def test_what_a_link_lost_is_not_dropped_by_the_proxy() -> None:
    """Though a rule counted as many packets, it may have counted others."""
    lost = dropped_evidence(links=(link(1, "debug/eth0"),))
    assert one(DROPPED, dropped_evidence(), "outcome").judgement is PASS
    assert one(DROPPED, lost, "outcome").judgement is INCONCLUSIVE


@given(cases())
def test_drops_of_links_make_no_outcome_but_delivered_pass(case: tuple[World, Evidence]) -> None:
    world, seen = case
    behind = tuple({f"{each.netns_name}/{each.device}" for each in seen.observations}) or ("debug/eth0",)
    if world.outcome is not Outcome.DELIVERED:
        before = one_or_none(world, seen)
        after = one_or_none(world, replace(seen, links=(link(9, *behind),)))
        assert before is PASS or after is not PASS


def one_or_none(world: World, seen: Evidence) -> object:
    found = {verdict.expectation: verdict.judgement for verdict in judged(world, seen).verdicts}
    return found.get("outcome")


def copied(world: World) -> list[Observation]:
    """A datagram that came to node-b twice, and was answered twice."""
    first = world.crossing(0, "echo-1")
    return [*first[:3], *(replace(each, at=each.at + more) for each in first[3:] for more in (0, 1))]


def test_copies_of_a_link_are_one_delivery() -> None:
    world = World(protocol=Transport.UDP, manner=Manner.PACKET, backends=("echo-1",))
    counts = (world.balanced(1), world.translated("echo-1", 1))
    copying = world.evidence(copied(world), counts=counts, links=(link(0, copies=True),))
    assert {each.judgement for each in judged(world, copying).verdicts} == {PASS}
    without = replace(copying, links=(link(0),))
    assert one(world, without, "outcome").judgement is FAIL


def test_a_copy_that_a_node_made_is_one_though_a_link_copies() -> None:
    world = World(protocol=Transport.UDP, manner=Manner.PACKET, backends=("echo-1",))
    first = world.crossing(0, "echo-1")
    seen = [*first[:4], *(replace(each, at=each.at + more) for each in first[4:6] for more in (0, 1)), *first[6:]]
    counts = (world.balanced(1), world.translated("echo-1", 1))
    made = world.evidence(seen, counts=counts, links=(link(0, copies=True),))
    assert one(world, made, "outcome").judgement is FAIL
