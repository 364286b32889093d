"""Which pods the flows reached."""

from ipaddress import ip_address

import pytest
from golden_words import Told
from judging import DELIVERED, FAIL, INCONCLUSIVE, PASS, SPREAD, judged, one
from msgspec.structs import replace
from recorded import World

from proxylab.evidence.evidence import (
    TapLoss,
)
from proxylab.report.failure_text import explain
from proxylab.verdict.causes.table import why
from proxylab.verdict.judge import judge
from proxylab.verdict.model import Judgement

OTHER_CLIENT = ip_address("10.244.1.9")


def test_a_pod_that_is_no_backend(told: Told) -> None:
    world = World(backends=("echo-1", "echo-2"))
    verdict = one(world, world.evidence(world.round_trip(0, "echo-3")), "backends")
    assert (verdict.judgement, verdict.reasons) == (FAIL, told())


@pytest.mark.parametrize(("flows", "judgement"), [(53, INCONCLUSIVE), (54, FAIL)])
def test_a_backend_never_chosen_is_missing_once_the_flows_suffice(flows: int, judgement: Judgement) -> None:
    world = World(flows=flows, backends=("echo-1", "echo-2", "echo-3"))
    seen = [each for flow in range(flows) for each in world.round_trip(flow, f"echo-{flow % 2 + 1}")]
    assert one(world, world.evidence(seen), "backends").judgement is judgement


def test_a_backend_that_few_flows_did_not_reach_is_in_doubt_and_named(told: Told) -> None:
    world = World(flows=30, backends=("echo-1", "echo-2"))
    missed = one(
        world, world.evidence([each for flow in range(30) for each in world.round_trip(flow, "echo-1")]), "backends"
    )
    assert (missed.judgement, missed.reasons) == (
        INCONCLUSIVE,
        told(),
    )
    two = World(flows=2, backends=("echo-1", "echo-2"))
    assert (
        one(two, two.evidence([*two.round_trip(0, "echo-1"), *two.round_trip(1, "echo-2")]), "backends").judgement
        is PASS
    )


@pytest.mark.parametrize("clients", [1, 2])
def test_with_session_affinity_many_flows_of_few_clients_need_not_reach_every_backend(clients: int) -> None:
    world = World(flows=100, backends=("echo-1", "echo-2"), others=(OTHER_CLIENT,) * (clients - 1))
    evidence = world.evidence([each for flow in range(100) for each in world.round_trip(flow, "echo-1")])
    verdict = judge(world.probe, replace(world.resolved, affinity_timeout=10800), None, evidence)
    found = next(each for each in verdict.verdicts if each.expectation == "backends")
    assert (found.judgement, found.observed) == (
        PASS,
        "echo-1 100" if clients == 1 else "echo-1 100 (2 clients need not hit all 2)",
    )


def test_a_lost_tap_frame_may_be_the_backend_that_seems_never_chosen() -> None:
    seen = [each for flow in range(2000) for each in SPREAD.round_trip(flow, f"echo-{flow % 2 + 1}")]
    evidence = SPREAD.evidence(seen, losses=(TapLoss("echo-3", "eth0", 700),))
    assert {one(SPREAD, evidence, key).judgement for key in ("backends", "spread")} == {INCONCLUSIVE}


def test_replicas_of_one_namespace_are_told_apart_by_address(told: Told) -> None:
    resolved = DELIVERED.resolved
    shared = replace(resolved, receivers=tuple(replace(pod, namespace="echo") for pod in resolved.receivers))
    seen = tuple(
        replace(each, netns_name="echo") if each.netns_name == "echo-2" else each
        for each in DELIVERED.round_trip(0, "echo-2")
    )
    verdict = judge(DELIVERED.probe, shared, None, DELIVERED.evidence(seen))
    assert (verdict.verdicts[2].observed, verdict.overall) == ("echo-2", INCONCLUSIVE)
    assert verdict.verdicts[2].reasons == told()


def test_one_port_of_a_pod_is_another_backend_than_its_other_port(told: Told) -> None:
    world = World(flows=2, backends=("echo-1:8080", "echo-1:8443"))
    leaves, arrives, answers, hears = world.round_trip(1, "echo-1")
    other = (leaves, replace(arrives, destination_port=8443), replace(answers, source_port=8443), hears)
    verdict = one(world, world.evidence([*world.round_trip(0, "echo-1"), *other]), "backends")
    assert (verdict.judgement, verdict.observed) == (PASS, "echo-1:8080 1, echo-1:8443 1")
    only = World(flows=2, backends=("echo-1:8080",))
    verdict = one(only, only.evidence([*only.round_trip(0, "echo-1"), *other]), "backends")
    assert (verdict.judgement, verdict.reasons, verdict.example) == (
        FAIL,
        told(),
        1,
    )


def test_why_a_flow_came_to_another_port() -> None:
    world = World(backends=("echo-1:8443",))
    evidence = world.evidence(world.round_trip(0, "echo-1"), counts=(world.translated("echo-1"),))
    verdict = judged(world, evidence)
    assert why(verdict).startswith("node-a sent the packet to port 8080 of echo-1 by its rule")
    assert "echo-1:8443" in "".join(explain(verdict))
