"""The judge on copies: at a stranger, at the sender, and at a node where they end; and among thousands of flows."""

from collections.abc import Sequence

import pytest
from judging import FAIL, INCONCLUSIVE, PASS, one
from msgspec.structs import replace
from recorded import World

from proxylab.evidence.evidence import Direction, Observation, Packet, TapLoss
from proxylab.plan.device_names import POD_BRIDGE
from proxylab.plan.resolved import STACK, Receiver
from proxylab.scenario.expect import Backend
from proxylab.verdict.judge import judge
from proxylab.verdict.model import Verdict

WORLD = World(backends=("echo-1",))
MANY = World(flows=2_000, backends=("echo-1",))
IN, OUT = Direction.IN, Direction.OUT


def copy_at(world: World, flow: int, netns_name: str, device: str = "eth0") -> Observation:
    """The request, as echo-1 got it, coming in somewhere else."""
    return replace(world.arrives(flow, "echo-1"), netns_name=netns_name, device=device)


def reply_at(world: World, flow: int, netns_name: str, device: str = "eth0") -> Observation:
    """The reply, as the sender hears it, coming in somewhere else."""
    return replace(world.hears(flow), netns_name=netns_name, device=device)


@pytest.mark.parametrize("netns_name", ["echo-2", "outside", "debug"])
def test_a_copy_at_a_pod_or_host_is_no_delivery(netns_name: str) -> None:
    verdict = one(WORLD, WORLD.evidence([*WORLD.round_trip(0, "echo-1"), copy_at(WORLD, 0, netns_name)]), "outcome")
    assert verdict.judgement is FAIL
    assert verdict.observed == "delivered, and copied"
    assert verdict.reasons == (
        f"it arrived at echo-1, and a copy of it came in at {netns_name}/eth0, addressed to 10.244.2.3:8080",
    )


def test_a_frame_that_a_bridge_floods_is_no_copy() -> None:
    """It bears the MAC of another device, so that the stack behind this one drops it."""
    flooded = [replace(each, otherhost=True) for each in (copy_at(WORLD, 0, "echo-2"), reply_at(WORLD, 0, "echo-3"))]
    evidence = WORLD.evidence([*WORLD.round_trip(0, "echo-1"), *flooded])
    assert one(WORLD, evidence, "outcome").judgement is PASS
    assert one(WORLD, evidence, "reply").judgement is PASS


def test_what_a_pod_gets_under_another_mac_has_not_arrived() -> None:
    leaves, arrives, *back = WORLD.round_trip(0, "echo-1")
    verdict = one(WORLD, WORLD.evidence([leaves, replace(arrives, otherhost=True), *back]), "outcome")
    assert verdict.judgement is not PASS


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        (WORLD.hears(0), "2 replies came to debug, but echo-1 sent one"),
        (reply_at(WORLD, 0, "echo-2"), "a copy of the reply came in at echo-2/eth0, addressed to 10.244.1.2:40000"),
    ],
)
def test_a_copy_of_a_reply_is_wrong(more: Observation, reason: str) -> None:
    verdict = one(WORLD, WORLD.evidence([*WORLD.round_trip(0, "echo-1"), more]), "reply")
    assert (verdict.judgement, verdict.reasons) == (FAIL, (reason,))


def test_a_reply_that_was_sent_twice_may_come_twice() -> None:
    """A kernel says its SYN and ACK again where nothing acknowledges it."""
    leaves, arrives, answers, hears = WORLD.round_trip(0, "echo-1")
    evidence = WORLD.evidence([leaves, arrives, answers, hears, answers, hears])
    assert one(WORLD, evidence, "reply").judgement is PASS


NODES = ("node-a", "node-b", "node-c")


def verdict_on(world: World, seen: Sequence[Observation], key: str, **changes: object) -> Verdict:
    """With a third node, that is on no flow's way."""
    resolved = replace(world.resolved, nodes=NODES)
    judged = judge(world.probe, resolved, None, world.evidence(seen, **changes))
    return next(each for each in judged.verdicts if each.expectation == key)


def crossing(world: World) -> list[Observation]:
    return [each for flow in range(world.flows) for each in world.crossing(flow, "echo-1")]


@pytest.mark.parametrize("node", NODES)
def test_a_copy_that_ends_at_a_node_is_found(node: str) -> None:
    """It came to the node, and no device of the node saw it leave."""
    world = replace(WORLD, flows=20)
    request, reply = (replace(each(world, 7, node), at=10**6) for each in (copy_at, reply_at))
    for more, key, to in ((request, "outcome", "10.244.2.3:8080"), (reply, "reply", "10.244.1.2:40007")):
        assert verdict_on(world, crossing(world), key).judgement is PASS
        found = verdict_on(world, [*crossing(world), more], key)
        what = "a copy of the reply" if key == "reply" else "it arrived at echo-1, and a copy of it"
        assert found.reasons == (
            f"1 of 20 flows: {what} came in at {node}/eth0, addressed to {to}, and went no further",
        )
        assert (found.judgement, found.example) == (FAIL, 7)
        # A bridge between nodes floods a frame, and the node that is not meant drops it.
        assert verdict_on(world, [*crossing(world), replace(more, otherhost=True)], key).judgement is PASS
        # What a bridge of pods sees besides its ports is none.
        beside = replace(more, device=POD_BRIDGE)
        assert verdict_on(world, [*crossing(world), beside], key).judgement is PASS


def test_two_copies_among_thousands_of_flows_are_found() -> None:
    seen = crossing(MANY)
    assert verdict_on(MANY, seen, "outcome").judgement is PASS
    two = [replace(copy_at(MANY, flow, "node-c"), at=10**9) for flow in (1234, 1999)]
    found = verdict_on(MANY, [*seen, *two], "outcome")
    assert (found.judgement, found.example) == (FAIL, 1234)
    assert found.reasons[0].startswith(
        "2 of 2,000 flows: it arrived at echo-1, and a copy of it came in at node-c/eth0, addressed to 10.244.2.3"
    )


def test_a_packet_that_was_sent_again_may_be_lost_once() -> None:
    again = [replace(each, at=each.at + 5) for each in WORLD.crossing(0, "echo-1")[:2]]  # it left, and came to node-a
    assert verdict_on(WORLD, [*crossing(WORLD), *again], "outcome").judgement is PASS
    assert verdict_on(WORLD, [*crossing(WORLD), again[1]], "outcome").judgement is FAIL


def test_what_may_have_left_past_a_tap_is_in_doubt() -> None:
    losses = (TapLoss("node-b", "echo-1", 1),)
    seen = [
        each for each in crossing(WORLD) if (each.netns_name, each.device, each.direction) != ("node-b", "echo-1", OUT)
    ]
    assert verdict_on(WORLD, seen, "outcome").judgement is FAIL
    assert verdict_on(WORLD, seen, "outcome", losses=losses).judgement is INCONCLUSIVE


def test_what_a_program_of_a_node_gets_or_sends_ends_and_begins_there() -> None:
    """A client on node-a dials a program of node-b: neither packet leaves the node that it is for."""
    agent = Receiver(name="agent", namespace="node-b", device=STACK, address=WORLD.address("node-b"), ports=(5353,))
    sender = replace(WORLD.resolved.sender, name="node-a", namespace="node-a", device=STACK)
    resolved = replace(WORLD.resolved, sender=sender, receivers=(*WORLD.resolved.receivers, agent))
    sent, there = (WORLD.client(0), WORLD.dialled), (WORLD.client(0), (agent.address, 5353))
    way = (
        ("node-a", STACK, OUT, Packet.REQUEST, sent),
        ("node-a", "eth0", OUT, Packet.REQUEST, there),
        ("node-b", "eth0", IN, Packet.REQUEST, there),
        ("node-b", STACK, IN, Packet.REQUEST, there),
        ("node-b", STACK, OUT, Packet.REPLY, there[::-1]),
        ("node-b", "eth0", OUT, Packet.REPLY, there[::-1]),
        ("node-a", "eth0", IN, Packet.REPLY, there[::-1]),
        ("node-a", STACK, IN, Packet.REPLY, sent[::-1]),
    )
    seen = [
        replace(WORLD.seen(0, netns_name, direction, packet, ends, step), device=device)
        for step, (netns_name, device, direction, packet, ends) in enumerate(way)
    ]
    probe = replace(WORLD.probe, expect=replace(WORLD.probe.expect, backends=(Backend("agent"),)))
    verdict = judge(probe, resolved, None, WORLD.evidence(seen))
    assert {each.expectation: each.judgement for each in verdict.verdicts} == dict.fromkeys(
        ("outcome", "reply", "backends"), PASS
    )
    copied = judge(probe, resolved, None, WORLD.evidence([*seen, seen[2]]))
    assert copied.verdicts[0].judgement is FAIL


def test_what_a_program_sent_itself_is_no_copy_that_came() -> None:
    sender = replace(WORLD.resolved.sender, name="node-a", namespace="node-a", device=STACK)
    leaves, arrives, answers, _ = WORLD.round_trip(0, "echo-1")
    left = replace(leaves, netns_name="node-a", device=STACK)
    verdict = judge(WORLD.probe, replace(WORLD.resolved, sender=sender), None, WORLD.evidence([left, arrives, answers]))
    assert verdict.verdicts[0].judgement is PASS


def test_the_device_by_which_a_copy_came_into_the_node_where_it_ended_is_named() -> None:
    """Not a device of another node, nor one by which anything left, a reply came or a flooded frame did."""
    way = list(WORLD.crossing(0, "echo-1"))
    copy = next(
        each for each in way if (each.netns_name, each.device, each.direction) == ("node-b", "eth0", Direction.IN)
    )
    flooded = replace(copy, device="eth2", otherhost=True, at=copy.at + 20_000)
    evidence = WORLD.evidence([*way, replace(copy, device="eth1", at=copy.at + 1), flooded])
    verdict = one(WORLD, evidence, "outcome")
    assert verdict.judgement is FAIL
    assert verdict.reasons[0].endswith("came in at node-b/eth1, addressed to 10.244.2.3:8080, and went no further")
