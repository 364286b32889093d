"""From which address the packets came."""

import pytest
from judging import FAIL, INCONCLUSIVE, NODE, PASS, judged, one
from recorded import World

from proxylab.errors import InternalError
from proxylab.scenario.model import (
    NodeDevice,
    Preserved,
    SourceAddress,
)


def test_a_source_without_an_address_is_our_fault() -> None:
    world = World(source=NodeDevice("node-a", "uplink"))
    with pytest.raises(InternalError, match="the plan gave no address for the source"):
        judged(world, world.evidence(world.round_trip(0, "echo-1")))


def test_the_source_an_author_gives_as_an_address() -> None:
    world = World(source=SourceAddress(NODE))
    assert judged(world, world.evidence(world.round_trip(0, "echo-1", NODE))).overall is PASS
    kept = one(world, world.evidence(world.round_trip(0, "echo-1")), "source")
    assert (kept.judgement, kept.expected, kept.observed) == (FAIL, "172.18.0.2", "10.244.1.2")


def test_one_flow_with_another_source_fails_and_is_the_example() -> None:
    world = World(flows=20, source=Preserved())
    seen = [each for flow in range(20) for each in world.round_trip(flow, "echo-1", NODE if flow == 17 else None)]
    verdict = one(world, world.evidence(seen), "source")
    assert (verdict.judgement, verdict.example) == (FAIL, 17)
    assert verdict.reasons == ("1 of 20 flows: echo-1 saw it come from 172.18.0.2",)


def test_flows_that_never_arrived_leave_source_and_backends_open() -> None:
    world = World(flows=2, backends=("echo-1", "echo-2"), source=Preserved())
    verdict = judged(world, world.evidence([*world.round_trip(0, "echo-1"), world.leaves(1)]))
    assert {each.expectation: each.judgement for each in verdict.verdicts} == {
        "outcome": FAIL,
        "reply": INCONCLUSIVE,
        "backends": INCONCLUSIVE,
        "source": INCONCLUSIVE,
    }
