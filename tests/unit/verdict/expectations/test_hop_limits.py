"""The time to live of packets: each router takes one, and what else changes it fails the outcome or the reply."""

from collections.abc import Sequence

import pytest
from golden_words import Told
from judging import FAIL, PASS, one
from msgspec.structs import replace
from recorded import World

from proxylab.evidence.evidence import Direction, Evidence, ForeignRule, Observation, Packet, RuleCount
from proxylab.evidence.ipvs import VIRTUAL_SERVERS
from proxylab.plan.resolved import STACK
from proxylab.report.frames import FrameField, compared
from proxylab.verdict.case import Case
from proxylab.verdict.causes.table import why
from proxylab.verdict.hop_limits import HopLimits
from proxylab.verdict.judge import judge

THERE = (64, 64, 63, 63, 62, 62)
"""At debug, in and out of node-a, in and out of node-b, and at the pod."""

WORLDS = [World(flows=2), World(flows=2, ipv6=True)]


def crossed(world: World, there: Sequence[int] = THERE, back: Sequence[int] = THERE) -> Evidence:
    """Two flows that went well through both nodes; the second with these times to live."""
    first = with_ttls(world.crossing(0, "echo-1"), (*THERE, *THERE))
    second = with_ttls(world.crossing(1, "echo-1"), (*there, *back))
    return world.evidence([*first, *second], counts=(world.balanced(2), world.translated("echo-1", 2)))


def with_ttls(seen: Sequence[Observation], ttls: Sequence[int]) -> list[Observation]:
    return [replace(each, ttl=ttl) for each, ttl in zip(seen, ttls, strict=True)]


@pytest.mark.parametrize("world", WORLDS, ids=["IPv4", "IPv6"])
def test_one_for_each_node_is_right(world: World) -> None:
    told = crossed(world)
    assert [one(world, told, key).judgement for key in ("outcome", "reply")] == [PASS, PASS]


WRONG = {
    "set anew": (64, 64, 64, 64, 63, 63),
    "one too many": (64, 64, 62, 62, 61, 61),
    "grows": (33, 33, 255, 255, 254, 254),
    "by the second node": (64, 64, 63, 63, 63, 63),
    "before the pod": (64, 64, 63, 63, 62, 60),
    "grows before the pod": (64, 64, 63, 63, 62, 63),
}


@pytest.mark.parametrize("changed", WRONG)
@pytest.mark.parametrize("key", ["outcome", "reply"])
@pytest.mark.parametrize("world", WORLDS, ids=["IPv4", "IPv6"])
def test_any_other_change_is_wrong_there_and_back(world: World, key: str, changed: str, told: Told) -> None:
    ttls = WRONG[changed]
    evidence = crossed(world, there=ttls) if key == "outcome" else crossed(world, back=ttls)
    verdict = one(world, evidence, key)
    assert (verdict.judgement, verdict.example) == (FAIL, 1)
    assert verdict.reasons == told()
    other = one(world, evidence, "reply" if key == "outcome" else "outcome")
    assert other.judgement is PASS


def test_what_no_tap_read_contradicts_nothing() -> None:
    world = World(flows=2)
    told = crossed(world, there=(64, 64, 0, 0, 62, 62), back=(0,) * 6)
    assert [one(world, told, key).judgement for key in ("outcome", "reply")] == [PASS, PASS]


@pytest.mark.parametrize(("bridged", "clauses"), [(False, 1), (True, 0)])
def test_a_bridge_takes_nothing_where_pods_stand_on_one(bridged: bool, clauses: int) -> None:
    """``debug`` and ``echo-1`` are both on node-a, and the packet goes from one port to the other."""
    world = World()
    leaves, came, _, _, went, arrives, *_ = world.crossing(0, "echo-1")
    seen = with_ttls([leaves, came, replace(went, netns_name="node-a"), arrives], (64, 64, 64, 64))
    resolved = replace(world.resolved, bridged=bridged)
    case = Case(world.probe, resolved, world.evidence(seen))
    assert len(HopLimits(resolved, case.evidence).clauses(case.flows, Packet.REQUEST)) == clauses


def test_a_copy_that_a_node_sends_elsewhere_is_not_the_packet_that_goes_on() -> None:
    world = World()
    leaves, into_a, out_a, into_b, out_b, arrives, *_ = with_ttls(world.crossing(0, "echo-1")[:6], THERE)
    copy = replace(out_b, device="echo-2", destination=world.address("echo-2"), ttl=64)
    case = Case(world.probe, world.resolved, world.evidence([leaves, into_a, out_a, into_b, out_b, copy, arrives]))
    assert HopLimits(world.resolved, case.evidence).clauses(case.flows, Packet.REQUEST) == {}


def test_what_comes_to_a_bridge_from_another_node_is_routed() -> None:
    world = World(flows=2)
    resolved = replace(world.resolved, bridged=True)
    case = Case(world.probe, resolved, crossed(world, there=WRONG["by the second node"]))
    assert [*HopLimits(resolved, case.evidence).clauses(case.flows, Packet.REQUEST)] == [1]


@pytest.mark.parametrize(("by_ipvs", "clauses"), [(False, 1), (True, 0)])
def test_ipvs_takes_one_of_what_its_node_sends(by_ipvs: bool, clauses: int) -> None:
    world = World()
    _, _, went, came, passed, arrives, *_ = world.crossing(0, "echo-1")
    own = replace(world.leaves(0), netns_name="node-a", device=STACK)
    resolved = replace(world.resolved, sender=replace(world.resolved.sender, namespace="node-a", device=STACK))
    seen = with_ttls([own, went, came, passed, arrives], (64, 63, 63, 62, 62))
    counted = RuleCount("node-a", VIRTUAL_SERVERS, "10.96.0.10:80", "-a …", 1)
    evidence = world.evidence(seen, counts=(counted,) if by_ipvs else ())
    case = Case(world.probe, resolved, evidence)
    assert len(HopLimits(resolved, evidence).clauses(case.flows, Packet.REQUEST)) == clauses


def frame_of(world: World, evidence: Evidence) -> tuple[FrameField, ...]:
    case = Case(world.probe, world.resolved, evidence)
    found = compared(case, case.flows[-1])
    return () if found is None else found.fields


def test_the_expected_frame_stands_beside_the_one_that_came() -> None:
    world = World(flows=2)
    assert frame_of(world, crossed(world)) == ()
    assert ("time to live", "62", "63", True) in frame_of(world, crossed(world, there=WRONG["set anew"]))
    assert ("time to live", "62", "61", True) in frame_of(world, crossed(world, back=WRONG["one too many"]))


def test_a_frame_has_every_field_of_which_something_is_expected() -> None:
    world = World(flows=2)
    *rest, last = crossed(world).observations
    assert last.direction is Direction.IN
    wrong = world.evidence([*rest, replace(last, source=world.address("echo-1"), source_port=8080, dscp=46)])
    assert [name for name, *_, differs in frame_of(world, wrong) if differs] == ["from", "DSCP"]
    assert {name for name, *_, differs in frame_of(world, wrong) if not differs} == {"to", "time to live"}


@pytest.mark.parametrize(
    ("text", "named"),
    [("counter ip ttl set 64", True), ("counter ip dscp set cs1", False), ("counter accept", False)],
)
def test_the_foreign_rule_that_changed_it_is_the_cause(text: str, named: bool) -> None:
    world = World(flows=2)
    rule = ForeignRule("node-a", "inet hops", "x", "forward", 0, text, 4)
    verdict = judge(
        world.probe, world.resolved, None, replace(crossed(world, there=WRONG["set anew"]), foreign=(rule,))
    )
    assert why(verdict).startswith("node-a changed the packet's time to live by the rule") is named
    assert (text in why(verdict)) is named
