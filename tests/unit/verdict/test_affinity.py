"""Clients that came back later than timeoutSeconds: another pod then shows nothing about the proxy."""

from collections.abc import Mapping

import pytest
from msgspec.structs import replace
from recorded import World

from proxylab.evidence.evidence import EarlierConnection, Evidence
from proxylab.plan.resolved import ResolvedProbe
from proxylab.scenario.words import Spread
from proxylab.verdict.judge import judge
from proxylab.verdict.model import Judgement, Verdict

WORLD = World(flows=2, backends=("echo-1",))
SECOND = 10**9
TIMEOUT = 3


def resolved_of(world: World) -> ResolvedProbe:
    return replace(world.resolved, affinity_timeout=TIMEOUT)


def evidence_of(world: World, away: float, pod_before: str = "echo-1", reached: tuple[str, ...] = ()) -> Evidence:
    """All flows go where ``reached`` says, at first and then at last; the client was away for that many seconds."""
    seen = [each for flow, pod in enumerate(reached) for each in world.round_trip(flow, pod)]
    at = seen[0].at - round(away * SECOND)
    earlier = EarlierConnection(world.address("debug"), world.address(pod_before), 8080, at)
    return world.evidence(seen, earlier=(earlier,))


def verdicts(world: World, evidence: Evidence) -> Mapping[str, Verdict]:
    return {each.expectation: each for each in judge(world.probe, resolved_of(world), None, evidence).verdicts}


def test_a_client_that_came_back_too_late_need_not_be_remembered() -> None:
    found = verdicts(WORLD, evidence_of(WORLD, 3.4, reached=("echo-2", "echo-2")))["backends"]
    assert found.judgement is Judgement.INCONCLUSIVE
    (reason,) = found.reasons
    assert reason.startswith("2 of 2 flows: the request reached echo-2, not an expected backend, but its client ")
    assert reason.endswith("was away for up to 3.4 s, and timeoutSeconds is 3")


def test_a_client_that_came_back_in_time_must_be_remembered() -> None:
    found = verdicts(WORLD, evidence_of(WORLD, 2.9, reached=("echo-2", "echo-2")))["backends"]
    assert found.judgement is Judgement.FAIL


def test_a_client_that_came_back_too_late_may_be_remembered_all_the_same() -> None:
    found = verdicts(WORLD, evidence_of(WORLD, 3.4, reached=("echo-1", "echo-1")))["backends"]
    assert found.judgement is Judgement.PASS


@pytest.mark.parametrize("reached", [("echo-1", "echo-2"), ("echo-2", "echo-3")])
def test_the_first_connection_after_the_pause_renews_the_memory(reached: tuple[str, ...]) -> None:
    found = verdicts(WORLD, evidence_of(WORLD, 3.4, reached=reached))["backends"]
    assert found.judgement is Judgement.FAIL


def test_a_proxy_that_never_forgets_fails_where_the_client_must_move() -> None:
    found = verdicts(WORLD, evidence_of(WORLD, 3.4, "echo-2", ("echo-2", "echo-2")))["backends"]
    assert found.judgement is Judgement.FAIL


def test_a_client_may_move_among_the_expected_pods() -> None:
    world = replace(WORLD, flows=2000, backends=("echo-1", "echo-2"), spread=Spread.EVEN)
    found = verdicts(world, evidence_of(world, 3.4, "echo-1", ("echo-2", "echo-1") * 1000))
    assert {each.judgement for each in found.values()} == {Judgement.PASS}


def test_spread_doubts_the_same_flows() -> None:
    world = replace(WORLD, flows=200, backends=("echo-1",), spread=Spread.EVEN)
    found = verdicts(world, evidence_of(world, 3.4, "echo-1", ("echo-2",) * 200))["spread"]
    assert found.judgement is Judgement.INCONCLUSIVE
    assert "timeoutSeconds is 3" in found.reasons[-1]


def test_a_flow_that_no_tap_saw_leave_says_nothing_of_how_long_its_client_was_away() -> None:
    evidence = evidence_of(WORLD, 3.4, reached=("echo-2", "echo-2"))
    for unseen in (0, 1):
        seen = [each for number, each in enumerate(evidence.observations) if number != 4 * unseen]
        found = verdicts(WORLD, replace(evidence, observations=tuple(seen)))["backends"]
        assert found.judgement is Judgement.FAIL
        assert found.example == unseen
