"""``at``: every flow ended there, not most of them and not the first one."""

from typing import Final

import pytest
from golden_words import Told
from judging import FAIL, INCONCLUSIVE, PASS, judged, one
from msgspec.structs import replace
from recorded import World

from proxylab.evidence.evidence import Direction, Evidence, KernelCount, Observation, Packet
from proxylab.scenario.words import Outcome
from proxylab.verdict.causes.table import why
from proxylab.verdict.model import Judgement, Verdict

FLOWS: Final = 3
DROPPED = World(flows=FLOWS, outcome=Outcome.DROPPED, at="node-a")
REJECTED = World(flows=FLOWS, outcome=Outcome.REJECTED, at="node-a")


@pytest.mark.parametrize(
    ("here", "there", "judgement", "reasons"),
    [
        (3, 0, PASS, ()),
        (0, 3, FAIL, ("it was {} by a rule on node-b",)),
        (2, 1, FAIL, ("it was {} by a rule on node-b",)),
        (1, 2, FAIL, ("it was {} by a rule on node-b",)),
        (2, 0, INCONCLUSIVE, ("no rule on node-a counted it as {}",)),
        (0, 0, INCONCLUSIVE, ("no rule on node-a counted it as {}",)),
    ],
)
@pytest.mark.parametrize("world", [DROPPED, REJECTED], ids=["dropped", "rejected"])
def test_a_part_that_a_rule_counted_here_excuses_no_part_that_one_counted_elsewhere(
    world: World, here: int, there: int, judgement: Judgement, reasons: tuple[str, ...]
) -> None:
    rule = world.dropped if world is DROPPED else world.rejected
    heard = [] if world is DROPPED else [world.hears_icmp(flow) for flow in range(FLOWS)]
    counts = tuple(rule(packets, node) for node, packets in (("node-a", here), ("node-b", there)) if packets)
    evidence = world.evidence([*(world.leaves(flow) for flow in range(FLOWS)), *heard], counts=counts)
    at = one(world, evidence, "at")
    assert (at.judgement, at.reasons) == (judgement, tuple(each.format(world.outcome) for each in reasons))


def test_two_rules_of_a_node_count_together() -> None:
    counts = (DROPPED.dropped(1), replace(DROPPED.dropped(2), chain="KUBE-FORWARD"))
    evidence = DROPPED.evidence([DROPPED.leaves(flow) for flow in range(FLOWS)], counts=counts)
    assert one(DROPPED, evidence, "at").judgement is PASS


def test_flows_that_fared_otherwise_leave_open_where_the_others_ended() -> None:
    seen = [*(DROPPED.leaves(flow) for flow in range(FLOWS)), DROPPED.hears_icmp(2)]
    at = one(DROPPED, DROPPED.evidence(seen, counts=(DROPPED.dropped(FLOWS),)), "at")
    assert (at.judgement, at.reasons) == (INCONCLUSIVE, ("2 of 3 flows were dropped",))


def of_stack(at: str) -> Verdict:
    """Three flows come into node-b, whose stack counts all of them."""
    world = replace(DROPPED, at=at)
    came = [replace(passing(world, flow, "eth0", Direction.IN), netns_name="node-b") for flow in range(FLOWS)]
    evidence = world.evidence(
        [*(world.leaves(flow) for flow in range(FLOWS)), *came],
        kernel=(KernelCount("node-b", "IpInAddrErrors", FLOWS),),
    )
    return one(world, evidence, "at")


def test_a_stack_drops_on_its_own_node(told: Told) -> None:
    assert of_stack("node-b").judgement is PASS
    elsewhere = of_stack("node-a")
    assert (elsewhere.judgement, elsewhere.reasons) == (FAIL, told())


def passing(world: World, flow: int, device: str, direction: Direction) -> Observation:
    """The request at a device of node-a, as it was sent."""
    leaves = world.leaves(flow)
    return replace(leaves, netns_name="node-a", device=device, direction=direction, at=leaves.at + 1)


ALONE = World(flows=FLOWS, outcome=Outcome.UNTRANSLATED, at="node-a/eth0")
STOPPED = World(flows=FLOWS, outcome=Outcome.DROPPED, at="node-a/eth0")


@pytest.mark.parametrize("number", range(FLOWS))
@pytest.mark.parametrize("world", [ALONE, STOPPED], ids=["untranslated", "dropped"])
def test_each_flow_must_be_seen_there(world: World, number: int, told: Told) -> None:
    left = [world.leaves(flow) for flow in range(FLOWS)]
    there = [passing(world, flow, "eth0", Direction.OUT) for flow in range(FLOWS)]
    assert one(world, world.evidence([*left, *there]), "at").judgement is PASS
    elsewhere = replace(there[number], device="other")
    at = one(world, world.evidence([*left, *there[:number], elsewhere, *there[number + 1 :]]), "at")
    if world is ALONE:
        assert (at.judgement, at.reasons) == (FAIL, told())
        assert at.example == number
    else:
        assert at.judgement is not PASS


def test_the_reason_of_a_drop_elsewhere_says_where_the_packet_was_lost() -> None:
    world = World(outcome=Outcome.DROPPED, at="node-a")
    came = replace(world.leaves(0), netns_name="node-b", device="eth0", direction=Direction.IN, at=1002)
    verdict = judged(world, world.evidence([world.leaves(0), came]))
    lost = "the packet was lost in node-b: it came in by eth0, addressed to 10.96.0.10:80, and did not leave again."
    assert why(verdict) == lost


def test_the_reason_of_a_packet_that_went_on_elsewhere_says_how_far_it_got(told: Told) -> None:
    world = World(outcome=Outcome.UNTRANSLATED, at="node-b")
    verdict = judged(world, world.evidence([world.leaves(0), passing(world, 0, "eth0", Direction.OUT)]))
    assert one(world, verdict.evidence, "at").judgement is FAIL
    assert why(verdict) == told()


REFUSED = World(flows=FLOWS, outcome=Outcome.REFUSED, at="echo-1")


def refused(pods: tuple[str, ...]) -> Evidence:
    seen = [
        each
        for flow, pod in enumerate(pods)
        for each in (REFUSED.leaves(flow), REFUSED.arrives(flow, pod), REFUSED.hears_reset(flow))
    ]
    return REFUSED.evidence(seen)


@pytest.mark.parametrize("number", range(FLOWS))
def test_each_flow_must_be_refused_by_that_pod(number: int, told: Told) -> None:
    assert judged(REFUSED, refused(("echo-1",) * FLOWS)).overall is PASS
    pods = ["echo-1"] * FLOWS
    pods[number] = "echo-2"
    at = one(REFUSED, refused(tuple(pods)), "at")
    assert (at.judgement, at.reasons, at.example) == (FAIL, told(), number)


@pytest.mark.parametrize("number", range(FLOWS))
def test_each_refusal_must_come_from_that_node(number: int, told: Told) -> None:
    world = replace(REFUSED, at="node-a")
    left = [world.leaves(flow) for flow in range(FLOWS)]
    sent = [reset_on(world, flow, "node-a", Direction.OUT) for flow in range(FLOWS)]
    heard = [world.hears_reset(flow) for flow in range(FLOWS)]
    assert one(world, world.evidence([*left, *sent, *heard]), "at").judgement is PASS
    other, unknown = (
        [*sent[:number], reset_on(world, number, node, direction), *sent[number + 1 :]]
        for node, direction in (("node-b", Direction.OUT), ("node-a", Direction.IN))
    )
    wrong = one(world, world.evidence([*left, *other, *heard]), "at")
    assert (wrong.judgement, wrong.example) == (FAIL, number)
    assert wrong.reasons == told()
    assert one(world, world.evidence([*left, *unknown, *heard]), "at").judgement is INCONCLUSIVE
    silent = [*sent[:number], *sent[number + 1 :]], [*heard[:number], *heard[number + 1 :]]
    missing = one(world, world.evidence([*left, *silent[0], *silent[1]]), "at")
    assert (missing.judgement, missing.reasons) == (FAIL, told())


def reset_on(world: World, flow: int, node: str, direction: Direction) -> Observation:
    heard = world.hears_reset(flow)
    return replace(heard, netns_name=node, direction=direction, packet=Packet.RESET, at=heard.at - 1)


@pytest.mark.parametrize("world", [DROPPED, REJECTED], ids=["dropped", "rejected"])
def test_without_a_counter_the_taps_show_that_flows_ended_elsewhere(world: World) -> None:
    left = [world.leaves(flow) for flow in range(FLOWS)]
    if world is DROPPED:
        seen = [replace(passing(world, flow, "eth0", Direction.IN), netns_name="node-b") for flow in range(FLOWS)]
    else:
        heard = [world.hears_icmp(flow) for flow in range(FLOWS)]
        made = [
            replace(each, netns_name="node-b", device="eth0", direction=Direction.OUT, at=each.at - 1) for each in heard
        ]
        seen = [*made, *heard]
    at = one(world, world.evidence([*left, *seen]), "at")
    assert at.judgement is FAIL, at.reasons


def test_where_nothing_shows_the_end_it_is_not_known() -> None:
    at = one(DROPPED, DROPPED.evidence([DROPPED.leaves(flow) for flow in range(FLOWS)]), "at")
    assert (at.judgement, at.observed) == (INCONCLUSIVE, "not known")
