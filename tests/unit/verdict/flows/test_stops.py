"""The stops of a packet: the nodes, pods and hosts it passed, and how it changed there."""

from ipaddress import ip_address

from msgspec.structs import replace
from recorded import World

from proxylab.evidence.evidence import Direction, Observation, Packet
from proxylab.plan.resolved import STACK
from proxylab.verdict.flows import Ends, Stop, flows_of

WORLD = World()
NODE = ip_address("172.18.0.2")


def stopped(seen: list[Observation], world: World = WORLD) -> list[Stop]:
    (flow,) = flows_of(world.resolved, world.evidence(seen))
    return list(flow.stops)


def netns_names(found: list[Stop]) -> list[str]:
    """Each place, with an arrow before those that the packet came to from the one before."""
    return [f"{'> ' if stop.follows else ''}{stop.netns_name}" for stop in found]


def test_a_node_is_one_stop_and_says_what_it_changed() -> None:
    found = stopped(list(WORLD.crossing(0, "echo-1", NODE)))
    assert netns_names(found) == [
        "debug",
        "> node-a",
        "> node-b",
        "> echo-1",
        "echo-1",
        "> node-b",
        "> node-a",
        "> debug",
    ]
    node = found[1]
    assert (node.by, node.out, node.left) == ("debug", "eth0", True)
    assert node.came == Ends("10.244.1.2:40000", "10.96.0.10:80")
    assert node.went == Ends("172.18.0.2:61000", "10.244.2.3:8080")
    assert [stop.came == stop.went for stop in found] == [True, False, True, True, True, True, False, True]


def test_who_is_only_seen_at_the_ends_goes_from_one_to_the_other() -> None:
    assert netns_names(stopped(list(WORLD.round_trip(0, "echo-1")))) == ["debug", "> echo-1", "echo-1", "> debug"]


def test_a_packet_that_is_sent_again_begins_anew() -> None:
    first = WORLD.leaves(0)
    found = stopped([first, replace(first, at=first.at + 5)])
    assert netns_names(found) == ["debug", "debug"]


def test_what_leaves_a_place_and_comes_back_to_it_is_a_stop_again() -> None:
    out = replace(WORLD.leaves(0), netns_name="node-a", device="eth0", at=1003)
    back = replace(out, direction=Direction.IN, at=1004)
    assert netns_names(stopped([WORLD.leaves(0), out, back])) == ["debug", "node-a", "> node-a"]


def test_a_program_answers_what_it_got_whenever_the_kernel_says_it_did() -> None:
    """In OUTPUT the kernel tells no time: the answer bears that of the run's beginning."""
    world = World(pods=("echo-1",))
    resolved = world.resolved
    pod = replace(
        resolved.receivers[0], namespace="node-b", device=STACK, address=ip_address("172.18.0.3"), ports=(8080,)
    )
    got = replace(world.arrives(0, "echo-1"), device=STACK, netns_name="node-b", destination=pod.address, at=2000)
    said = replace(got, direction=Direction.OUT, packet=Packet.REPLY, at=1, source=pod.address, source_port=8080)
    came = replace(got, device="eth0", at=1999)
    evidence = world.evidence([said, world.leaves(0), came, got])
    (flow,) = flows_of(replace(resolved, receivers=(pod,)), evidence)
    assert netns_names(list(flow.stops)) == ["debug", "> node-b", "> echo-1", "echo-1"]


def on_the_way(seen: list[Observation], packet: Packet = Packet.REQUEST) -> list[str]:
    (flow,) = flows_of(WORLD.resolved, WORLD.evidence(seen))
    return list(dict.fromkeys(stop.netns_name for stop in (flow.way if packet is Packet.REQUEST else flow.way_back)))


def test_a_stop_where_a_copy_ends_is_not_on_the_way() -> None:
    seen = list(WORLD.crossing(0, "echo-1"))
    at_node_b = next(each for each in seen if each.netns_name == "node-b")
    copy = replace(at_node_b, netns_name="node-c")
    there, back = ["debug", "node-a", "node-b", "echo-1"], ["echo-1", "node-b", "node-a", "debug"]
    assert on_the_way(seen) == on_the_way([*seen, copy]) == there
    assert on_the_way(seen, Packet.REPLY) == back


def test_a_way_with_a_hop_that_changed_the_packet_unseen_is_none() -> None:
    seen = [each for each in WORLD.crossing(0, "echo-1") if each.netns_name != "node-a"]
    assert on_the_way(seen) == []
