"""A flow that another node translates once more: only the packets captured at each hop decide."""

import pytest
from judging import FAIL, INCONCLUSIVE, PASS, judged, one
from msgspec.structs import replace
from recorded import World

from proxylab.addresses import IPAddress
from proxylab.evidence.evidence import Direction, Evidence, ForeignRule, Observation, Packet, TrackedFlow
from proxylab.scenario.expect import Preserved
from proxylab.verdict.causes.table import why

WORLD = World(backends=("echo-1",), source=Preserved())
NODE_B = WORLD.address("node-b")
FOREIGN = ForeignRule("node-b", "ip cni", "post", "postrouting", 100, "counter masquerade", 1)


def entry(pod: str = "echo-1", source: IPAddress | None = None, node: str = "node-a") -> TrackedFlow:
    return TrackedFlow(0, node, WORLD.address(pod), 8080, *WORLD.as_seen(0, source))


def translated_by_node_b(pod: str = "echo-1", source: IPAddress | None = None) -> list[Observation]:
    """What node-a sent on to echo-1 as it was, node-b sent to a pod, or from a source, of its own choice."""
    end, new = (WORLD.address(pod), 8080), WORLD.as_seen(0, source)
    found = []
    for seen in WORLD.crossing(0, "echo-1"):
        by_node_b = (seen.netns_name, seen.direction) == ("node-b", Direction.OUT) and seen.device == "echo-1"
        if by_node_b or seen.netns_name == "echo-1":
            ends = {"source": new[0], "source_port": new[1], "destination": end[0], "destination_port": end[1]}
            back = {"source": end[0], "source_port": end[1], "destination": new[0], "destination_port": new[1]}
            netns_name = pod if seen.netns_name == "echo-1" else "node-b"
            changes = back if seen.packet is Packet.REPLY else ends
            found.append(replace(seen, netns_name=netns_name, **changes))  # type: ignore[arg-type]
        else:
            found.append(seen)
    return found


def evidence(observations: list[Observation], *tracked: TrackedFlow, **changes: object) -> Evidence:
    return WORLD.evidence(observations, tracked=tracked or (entry(),), **changes)


def test_another_source_fails_the_outcome_and_the_source_and_both_nodes_are_named() -> None:
    told = evidence(translated_by_node_b(source=NODE_B), foreign=(FOREIGN,))
    verdict = judged(WORLD, told)
    assert {each.expectation: each.judgement for each in verdict.verdicts} == {
        "outcome": FAIL,
        "reply": PASS,
        "backends": PASS,
        "source": FAIL,
    }
    both = (
        "node-a translated 10.244.1.2 > 10.96.0.10:80 to 10.244.1.2 > 10.244.2.3:8080{}, and node-b translated that to "
        "172.18.0.3 > 10.244.2.3:8080{}"
    )
    assert one(WORLD, told, "outcome").reasons == (f"it was translated twice: {both.format('', '')}",)
    rule = (
        ' by the rule "counter masquerade" in chain post (hook postrouting, priority 100) of table ip cni, which '
        "belongs to no engine"
    )
    assert why(verdict) == f"the packet was translated twice: {both.format(' by an entry of its conntrack', rule)}."


def test_another_pod_fails_though_it_is_a_backend_too() -> None:
    world = replace(WORLD, backends=("echo-2",))
    told = evidence(translated_by_node_b("echo-2"))
    assert one(world, told, "outcome").judgement is FAIL
    assert one(world, told, "backends").judgement is PASS
    assert one(WORLD, told, "backends").judgement is FAIL


def test_another_source_port_alone_fails_the_outcome() -> None:
    told = evidence(translated_by_node_b(source=WORLD.address("debug")))
    assert one(WORLD, told, "outcome").judgement is FAIL
    assert one(WORLD, told, "outcome").reasons[0].endswith("translated that to 10.244.1.2:61000 > 10.244.2.3:8080")


@pytest.mark.parametrize("lost", range(1, 5))
def test_a_hop_that_was_not_captured_leaves_it_undecided(lost: int) -> None:
    seen = translated_by_node_b(source=WORLD.address("debug"))
    told = evidence([each for number, each in enumerate(seen) if number != lost])
    assert one(WORLD, told, "outcome").judgement is INCONCLUSIVE


@pytest.mark.parametrize("tracked", [(), None])
def test_a_second_translation_fails_though_no_entry_of_conntrack_contradicts_it(
    tracked: tuple[TrackedFlow, ...] | None,
) -> None:
    """Another zone of connection tracking has entries that the lab does not look up."""
    told = replace(evidence(translated_by_node_b(source=NODE_B)), tracked=tracked)
    assert one(WORLD, told, "outcome").judgement is FAIL


def test_a_node_port_of_another_node_is_translated_there_rightly() -> None:
    """What node-a sent to an address that is no pod's is translated again by the node that has it."""
    ends = (WORLD.address("node-b"), 30080)
    seen = [
        replace(each, destination=ends[0], destination_port=ends[1])
        if (each.netns_name, each.device, each.packet.value)
        in (("node-a", "eth0", "request"), ("node-b", "eth0", "request"))
        else each
        for each in WORLD.crossing(0, "echo-1")
    ]
    told = evidence(seen, TrackedFlow(0, "node-a", *ends, *WORLD.client(0)), entry(node="node-b"))
    assert judged(WORLD, told).overall is PASS


def test_a_source_that_was_seen_is_wrong_whatever_conntrack_says() -> None:
    told = evidence([*WORLD.round_trip(0, "echo-1", NODE_B)])
    assert one(WORLD, told, "source").judgement is FAIL
    assert one(WORLD, told, "outcome").judgement is INCONCLUSIVE
