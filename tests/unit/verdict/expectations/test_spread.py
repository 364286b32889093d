"""How flows spread over backends, from even to sticky."""

import pytest
from golden_words import Told
from judging import FAIL, INCONCLUSIVE, PASS, SPREAD, judged, one
from msgspec.structs import replace
from recorded import World

from proxylab.evidence.evidence import (
    Evidence,
)
from proxylab.scenario.expect import Shares
from proxylab.scenario.words import Spread
from proxylab.verdict.model import Judgement

STICKY = World(flows=40, backends=("echo-1", "echo-2", "echo-3"), spread=Spread.STICKY)


def spread_over(world: World, counts: dict[str, int]) -> Evidence:
    pods = [pod for pod, count in counts.items() for _ in range(count)]
    return world.evidence([seen for flow, pod in enumerate(pods) for seen in world.round_trip(flow, pod)])


WEIGHTED = World(flows=5000, spread=Shares({"echo-1": 0.75, "echo-2": 0.25}))


def test_an_uneven_spread_fails() -> None:
    seen = [each for flow in range(2000) for each in SPREAD.round_trip(flow, f"echo-{min(flow % 4, 2) + 1}")]
    verdict = one(SPREAD, SPREAD.evidence(seen), "spread")
    assert verdict.judgement is FAIL
    assert verdict.observed == "echo-3 1,000, echo-1 500, echo-2 500"


def test_too_few_flows_show_no_spread(told: Told) -> None:
    world = replace(SPREAD, flows=1990)
    seen = [each for flow in range(1990) for each in world.round_trip(flow, f"echo-{flow % 3 + 1}")]
    verdict = one(world, world.evidence(seen), "spread")
    assert verdict.judgement is INCONCLUSIVE
    assert verdict.reasons == told()


def test_a_spread_over_one_pod_shows_nothing_unless_the_author_says_it_is_alone() -> None:
    world = World(flows=10, spread=Spread.EVEN)
    seen = [each for flow in range(10) for each in world.round_trip(flow, "echo-1")]
    assert one(world, world.evidence(seen), "spread").judgement is INCONCLUSIVE
    alone = replace(world, backends=("echo-1",))
    assert one(alone, alone.evidence(seen), "spread").judgement is PASS


def test_flows_that_stick_to_one_backend_pass_and_the_others_are_not_missed() -> None:
    verdict = judged(STICKY, spread_over(STICKY, {"echo-2": 40}))
    assert verdict.overall is PASS
    assert one(STICKY, verdict.evidence, "spread").observed == "echo-2 40"


def test_one_flow_elsewhere_is_not_sticky(told: Told) -> None:
    verdict = one(STICKY, spread_over(STICKY, {"echo-2": 39, "echo-1": 1}), "spread")
    assert (verdict.judgement, verdict.reasons) == (FAIL, told())


def test_too_few_flows_or_backends_show_no_sticking(told: Told) -> None:
    few = replace(STICKY, flows=19)
    assert one(few, spread_over(few, {"echo-1": 19}), "spread").reasons == told()
    alone = replace(STICKY, backends=None)
    assert one(alone, spread_over(alone, {"echo-1": 40}), "spread").judgement is INCONCLUSIVE


@pytest.mark.parametrize(
    ("counts", "judgement"),
    [
        ({"echo-1": 3750, "echo-2": 1250}, PASS),
        ({"echo-1": 2500, "echo-2": 2500}, FAIL),
        ({"echo-1": 3750, "echo-2": 1249, "echo-3": 1}, FAIL),
        ({"echo-1": 5000}, FAIL),
    ],
)
def test_shares_are_those_that_the_author_names(counts: dict[str, int], judgement: Judgement) -> None:
    assert one(WEIGHTED, spread_over(WEIGHTED, counts), "spread").judgement is judgement


def test_shares_of_too_few_flows_show_nothing() -> None:
    few = replace(WEIGHTED, flows=8)
    assert one(few, spread_over(few, {"echo-1": 6, "echo-2": 2}), "spread").judgement is INCONCLUSIVE


@pytest.mark.parametrize(
    ("more", "judgement"),
    [(0, PASS), (140, PASS), (150, FAIL), (170, FAIL), (300, FAIL)],
    ids=["even", "p = 4e-9", "p = 6e-10", "p = 6e-13", "p < 1e-30"],
)
def test_a_spread_that_chance_makes_once_in_a_billion_is_not_even(more: int, judgement: Judgement) -> None:
    world = World(flows=2200, backends=("echo-1", "echo-2"), spread=Spread.EVEN)
    verdict = one(world, spread_over(world, {"echo-1": 1100 + more, "echo-2": 1100 - more}), "spread")
    assert verdict.judgement is judgement, verdict.reasons


@pytest.mark.parametrize(("backends", "enough"), [(2, 31), (3, 20)])
def test_one_flow_fewer_than_enough_shows_no_sticking(backends: int, enough: int) -> None:
    pods = tuple(f"echo-{number}" for number in range(1, backends + 1))
    for flows, judgement in ((2, INCONCLUSIVE), (enough - 1, INCONCLUSIVE), (enough, PASS)):
        world = replace(STICKY, flows=flows, backends=pods)
        assert one(world, spread_over(world, {"echo-1": flows}), "spread").judgement is judgement
