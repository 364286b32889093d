"""Whose answer it was: where a reply, a reset or an ICMP error was seen first, and what follows for the outcome."""

import pytest
from golden_words import Told
from judging import FAIL, INCONCLUSIVE, PASS, REFUSED, REJECTED, one
from msgspec.structs import replace
from recorded import World

from proxylab.addresses import Transport
from proxylab.evidence.evidence import Direction, Evidence, ForeignRule, Observation, Packet, RuleCount
from proxylab.verdict.flows import flows_of
from proxylab.verdict.hops import ended_in, origin
from proxylab.verdict.judge import judge
from proxylab.verdict.model import Judgement

WORLD = World()


def moved(seen: Observation, netns_name: str, device: str, direction: Direction, at: int) -> Observation:
    return replace(seen, netns_name=netns_name, device=device, direction=direction, at=at)


def rejection(*first: tuple[str, str, Direction]) -> Evidence:
    """A rule on node-a counted the packet; the ICMP error was seen there, in this order, and at the sender."""
    heard = REJECTED.hears_icmp(0)
    way = [moved(heard, *each, at=1001 + number) for number, each in enumerate(first)]
    return REJECTED.evidence(
        [REJECTED.leaves(0), *way, replace(heard, at=1009)],
        counts=(REJECTED.rejected(),),
        metered_nodes=("node-a", "node-b"),
    )


@pytest.mark.parametrize(
    ("first", "judgement"),
    [
        ([("node-a", "debug", Direction.OUT)], PASS),
        ([("node-b", "eth0", Direction.OUT), ("node-a", "eth0", Direction.IN)], FAIL),
        ([("node-a", "eth0", Direction.IN), ("node-a", "debug", Direction.OUT)], FAIL),
        ([("echo-1", "eth0", Direction.OUT), ("node-b", "echo-1", Direction.IN)], FAIL),
    ],
    ids=["the rule's node", "another node", "a machine without taps", "a pod"],
)
def test_a_rejection_is_that_of_the_node_whose_rule_counted(
    first: list[tuple[str, str, Direction]], judgement: Judgement
) -> None:
    assert one(REJECTED, rejection(*first), "outcome").judgement is judgement


def test_without_a_rule_on_any_node_an_icmp_error_is_no_rejection() -> None:
    bare = replace(rejection(("node-a", "debug", Direction.OUT)), counts=())
    assert one(REJECTED, bare, "outcome").judgement is FAIL
    assert one(REJECTED, replace(bare, metered_nodes=("node-a",)), "outcome").judgement is INCONCLUSIVE


def test_a_reset_of_a_pod_that_did_not_get_the_request_is_no_refusal(told: Told) -> None:
    reset = REFUSED.hears_reset(0)
    forged = moved(reset, "echo-2", "eth0", Direction.OUT, at=1001)
    verdict = one(REFUSED, REFUSED.evidence([REFUSED.leaves(0), forged, reset]), "outcome")
    assert verdict.judgement is FAIL
    assert verdict.reasons == told()


def test_a_reply_that_a_node_made_shows_no_delivery() -> None:
    made = moved(WORLD.hears(0), "node-a", "debug", Direction.OUT, at=1002)
    evidence = WORLD.evidence([WORLD.leaves(0), made, WORLD.hears(0)])
    assert one(WORLD, evidence, "outcome").judgement is FAIL
    without = WORLD.evidence([WORLD.leaves(0), WORLD.hears(0)])
    assert one(WORLD, without, "outcome").judgement is INCONCLUSIVE


def test_an_answer_that_only_came_in_has_no_known_maker() -> None:
    came = moved(WORLD.hears(0), "node-a", "eth0", Direction.IN, at=1002)
    (flow,) = flows_of(WORLD.resolved, WORLD.evidence([WORLD.leaves(0), came, WORLD.hears(0)]))
    first = origin(flow, Packet.REPLY)
    assert first is not None
    assert (first.seen, first.maker) == (came, "")
    assert origin(flow, Packet.RESET) is None


def test_what_a_bridge_floods_is_no_step_of_the_way() -> None:
    came = moved(WORLD.leaves(0), "node-a", "debug", Direction.IN, at=1001)
    flooded = replace(moved(came, "node-b", "eth0", Direction.IN, at=1002), otherhost=True)
    (flow,) = flows_of(WORLD.resolved, WORLD.evidence([WORLD.leaves(0), came, flooded]))
    assert flow.last_seen == came
    assert ended_in([flow]) == {"node-a"}


def test_what_was_seen_last_as_it_left_ended_nowhere_that_is_known() -> None:
    gone = moved(WORLD.leaves(0), "node-a", "eth0", Direction.OUT, at=1002)
    (flow,) = flows_of(WORLD.resolved, WORLD.evidence([WORLD.leaves(0), gone]))
    assert ended_in([flow]) == set()


RESETTING = ForeignRule("node-a", "filter", "FORWARD", "", 0, "-A FORWARD -j REJECT --reject-with tcp-reset", 1)


@pytest.mark.parametrize("is_seen", [True, False])
def test_a_rule_of_others_may_have_sent_a_reset_that_no_pod_was_seen_to_send(is_seen: bool) -> None:
    heard = REFUSED.hears_reset(0)
    sent = [moved(heard, "echo-1", "eth0", Direction.OUT, at=1002)] if is_seen else []
    evidence = REFUSED.evidence([REFUSED.leaves(0), REFUSED.arrives(0, "echo-1"), *sent, heard], foreign=(RESETTING,))
    assert one(REFUSED, evidence, "outcome").judgement is (PASS if is_seen else INCONCLUSIVE)


@pytest.mark.parametrize(("direction", "judgement"), [(Direction.OUT, PASS), (Direction.IN, FAIL)])
def test_a_node_may_refuse_what_a_service_leads_to_it_and_a_machine_beyond_the_nodes_may_not(
    direction: Direction, judgement: Judgement
) -> None:
    heard = REFUSED.hears_reset(0)
    evidence = REFUSED.evidence([REFUSED.leaves(0), moved(heard, "node-a", "eth0", direction, at=1001), heard])
    resolved = replace(REFUSED.resolved, service_port="default/echo")
    verdict = judge(REFUSED.probe, resolved, None, evidence).verdicts[0]
    assert (verdict.expectation, verdict.judgement) == ("outcome", judgement)
    beyond = "a machine beyond the nodes refused it: the reset was first seen coming in at node-a/eth0"
    assert verdict.reasons == (() if judgement is PASS else (beyond,))


@pytest.mark.parametrize(
    ("counts", "judgement"),
    [((), PASS), ((REJECTED.rejected(),), FAIL), ((replace(REJECTED.rejected(), text="", target="REJECT"),), FAIL)],
    ids=["no rule", "a rule of iptables", "a rule of which the kernel reported what it did"],
)
def test_a_closed_udp_port_refuses_only_where_no_rule_rejected(
    counts: tuple[RuleCount, ...], judgement: Judgement
) -> None:
    world = replace(REFUSED, protocol=Transport.UDP)
    error = world.hears_icmp(0, world.address("service"))
    told = world.evidence([world.leaves(0), error], counts=counts, metered_nodes=("node-a", "node-b"))
    assert one(world, told, "outcome").judgement is judgement
