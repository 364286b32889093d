"""Drops at a pod: it came in there, nothing answered it, and the pod's stack accounts for every packet."""

import pytest
from golden_words import Told
from msgspec.structs import replace
from recorded import World

from proxylab.evidence.evidence import Direction, Evidence, KernelCount
from proxylab.report.failure_text import explain
from proxylab.scenario.words import Manner, Outcome
from proxylab.verdict.judge import judge
from proxylab.verdict.model import Judgement, Verdict

FAIL, INCONCLUSIVE, PASS = Judgement.FAIL, Judgement.INCONCLUSIVE, Judgement.PASS
ENDS = World(flows=2, outcome=Outcome.DROPPED, at="echo-1")
OWN = ENDS.address("echo-1")


def came(world: World = ENDS, **changes: object) -> Evidence:
    """Both flows come in at echo-1, from its own address, and its stack passes neither on."""
    seen = [each for flow in range(2) for each in (world.leaves(flow), world.arrives(flow, "echo-1", OWN))]
    told = {"kernel": (KernelCount("echo-1", "IpInReceives", 2),), "sentinels": (), **changes}
    return world.evidence(seen, **told)


def judged(evidence: Evidence, world: World = ENDS) -> dict[str, Verdict]:
    return {each.expectation: each for each in judge(world.probe, world.resolved, None, evidence).verdicts}


@pytest.mark.parametrize("at", ["echo-1", "echo-1/eth0"])
def test_a_stack_that_received_every_packet_and_passed_none_on_is_the_witness(at: str, told: Told) -> None:
    world = replace(ENDS, at=at)
    verdicts = judged(came(world), world)
    assert {each.judgement for each in verdicts.values()} == {PASS}
    outcome = verdicts["outcome"]
    assert outcome.observed == told()
    assert "IpInReceives counted 2 packets" in outcome.witnesses[0]
    assert verdicts["at"].observed == "echo-1/eth0"


@pytest.mark.parametrize(
    "kernel",
    [
        (),
        (KernelCount("echo-1", "IpInReceives", 3),),
        (KernelCount("echo-2", "IpInReceives", 2),),
        (KernelCount("echo-1", "IpInReceives", 2), KernelCount("echo-1", "IpInDelivers", 1)),
    ],
)
def test_a_stack_that_does_not_account_for_every_packet_proves_nothing(
    kernel: tuple[KernelCount, ...], told: Told
) -> None:
    outcome = judged(came(kernel=kernel))["outcome"]
    assert outcome.judgement is INCONCLUSIVE
    assert outcome.reasons[0] == told()


@pytest.mark.parametrize(
    ("counters", "by"),
    [
        ({}, "its stack (routing, or a rule or program in its hooks, or IPsec)"),
        ({"IpInAddrErrors": 2}, "its routing: the packet is not for this node, and forwarding is off"),
        ({"IpInDelivers": 2, "XfrmInPolBlock": 2}, "its IPsec policy on the way in or through"),
        ({"IpInDelivers": 2, "IpOutNoRoutes": 2}, ""),
        ({"IpInDelivers": 2, "IpOutNoRoutes": 2, "XfrmOutPolBlock": 2}, ""),
        ({"IpInDelivers": 2, "ConntrackDrop": 2}, ""),
        ({"XfrmOutPolBlock": 2}, ""),
    ],
)
def test_a_pods_own_rules_and_its_answers_are_not_taken_for_its_routing(counters: dict[str, int], by: str) -> None:
    kernel = tuple(KernelCount("echo-1", name, count) for name, count in {"IpInReceives": 2, **counters}.items())
    seen = [each for flow in range(2) for each in (ENDS.leaves(flow), ENDS.arrives(flow, "echo-1"))]
    outcome = judged(ENDS.evidence(seen, kernel=kernel, sentinels=()))["outcome"]
    assert outcome.judgement is (PASS if by else INCONCLUSIVE)
    assert not by or outcome.observed == f"dropped at echo-1 by {by}"


@pytest.mark.parametrize(
    ("received", "delivered", "solicited", "multicast", "judgement"),
    [
        (2, 0, 0, 0, PASS),
        pytest.param(3, 1, 1, 0, PASS, id="a neighbour asks whether the pod is still there"),
        pytest.param(3, 1, 1, 1, PASS, id="a neighbour asks for the pod's link-layer address"),
        pytest.param(3, 0, 0, 1, PASS, id="a neighbour reports its multicast groups"),
        pytest.param(4, 1, 1, 1, PASS, id="one neighbour asks, and another reports"),
        pytest.param(2, 1, 1, 0, INCONCLUSIVE, id="a flow is missing"),
        pytest.param(4, 1, 1, 0, INCONCLUSIVE, id="a packet more came"),
        pytest.param(3, 1, 0, 0, INCONCLUSIVE, id="a packet of no neighbour is delivered"),
        pytest.param(4, 2, 1, 0, INCONCLUSIVE, id="a packet is delivered as well"),
    ],
)
def test_what_neighbours_send_over_ipv6_is_none_of_the_probes_packets(
    received: int, delivered: int, solicited: int, multicast: int, judgement: Judgement
) -> None:
    world = replace(ENDS, ipv6=True)
    counted = {
        "Ip6InReceives": received,
        "Ip6InDelivers": delivered,
        "Icmp6InNeighborSolicits": solicited,
        "Ip6InMcastPkts": multicast,
    }
    kernel = tuple(KernelCount("echo-1", name, count) for name, count in counted.items() if count)
    own = world.address("echo-1")
    seen = [each for flow in range(2) for each in (world.leaves(flow), world.arrives(flow, "echo-1", own))]
    assert judged(world.evidence(seen, kernel=kernel, sentinels=()), world)["outcome"].judgement is judgement


def test_what_is_answered_did_not_end() -> None:
    evidence = came()
    for more in (ENDS.answers(1, "echo-1"), ENDS.hears(1)):
        verdicts = judged(replace(evidence, observations=(*evidence.observations, more)))
        assert {each.judgement for each in verdicts.values()} == {FAIL}
        assert "1 of 2 flows: echo-1 answered it" in verdicts["outcome"].reasons


def test_what_came_in_elsewhere_did_not_end_there(told: Told) -> None:
    evidence = came()
    stray = replace(ENDS.leaves(1), netns_name="outside", direction=Direction.IN)
    verdicts = judged(replace(evidence, observations=(*evidence.observations[:3], stray)))
    assert verdicts["outcome"].judgement is FAIL
    assert verdicts["at"].reasons == told()


def test_a_packet_that_never_came_there_was_dropped_before_or_is_undecided() -> None:
    evidence = replace(came(kernel=()), observations=(ENDS.leaves(0), ENDS.leaves(1)), sentinels=ENDS.sentinels)
    verdicts = judged(evidence)
    assert (verdicts["outcome"].judgement, verdicts["at"].judgement) == (INCONCLUSIVE, FAIL)
    verdicts = judged(replace(evidence, counts=(ENDS.dropped(2),)))
    assert (verdicts["outcome"].judgement, verdicts["at"].judgement) == (PASS, FAIL)


def test_a_socket_that_says_otherwise_is_a_doubt() -> None:
    world = replace(ENDS, manner=Manner.CONNECT)
    silent = tuple(world.failed(flow, "timeout") for flow in range(2))
    assert judged(came(world, connects=silent), world)["outcome"].judgement is PASS
    refused = (silent[0], world.failed(1, "ECONNREFUSED"))
    assert judged(came(world, connects=refused), world)["outcome"].judgement is INCONCLUSIVE


def test_an_arrival_that_was_expected_is_not_shown_as_one_that_was_not() -> None:
    verdict = judge(ENDS.probe, ENDS.resolved, None, came(kernel=()))
    assert not any("dropped before" in line for line in explain(verdict))


def test_a_packet_that_left_when_the_counters_had_been_read_is_not_among_them() -> None:
    evidence = came()
    late = (replace(ENDS.leaves(1), at=10**6), replace(ENDS.arrives(1, "echo-1", OWN), at=10**6 + 1))
    repeated = replace(evidence, observations=(*evidence.observations, *late))
    assert judged(repeated)["outcome"].judgement is INCONCLUSIVE
    assert judged(replace(repeated, counters_read_at=10**5))["outcome"].judgement is PASS


def test_what_came_to_another_pod_as_well_did_not_only_end_there(told: Told) -> None:
    evidence = came()
    before = replace(ENDS.arrives(1, "echo-2"), at=evidence.observations[2].at + 1)
    last = replace(evidence.observations[3], at=before.at + 1)
    verdicts = judged(replace(evidence, observations=(*evidence.observations[:3], before, last)))
    assert verdicts["outcome"].judgement is FAIL
    assert verdicts["at"].reasons == told()
