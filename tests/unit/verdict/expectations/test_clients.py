"""Flows that leave from many addresses, each of them a client of its own."""

from collections.abc import Callable, Mapping
from ipaddress import ip_address

import pytest
from golden_words import Told
from msgspec.structs import replace
from recorded import World

from proxylab.evidence.evidence import Evidence, Observation
from proxylab.plan.resolved import ResolvedProbe
from proxylab.scenario.expect import Preserved
from proxylab.scenario.words import Spread
from proxylab.verdict.judge import judge
from proxylab.verdict.model import Judgement, Verdict

PASS, FAIL, INCONCLUSIVE = Judgement.PASS, Judgement.FAIL, Judgement.INCONCLUSIVE
CLIENTS = 10
CROWD = World(flows=120, backends=("echo-1", "echo-2"), source=Preserved(), spread=Spread.STICKY)

Choice = Callable[[int], str]


def resolved_probe_of(world: World, clients: int = CLIENTS) -> ResolvedProbe:
    sender = world.resolved.sender
    others = tuple(ip_address(int(sender.address) + number) for number in range(1, clients))
    return replace(world.resolved, sender=replace(sender, others=others))


def evidence_of(world: World, choice: Choice, clients: int = CLIENTS) -> Evidence:
    """Each flow from its own client to the pod that ``choice`` gives."""
    resolved = resolved_probe_of(world, clients)
    seen: list[Observation] = []
    for flow in range(world.flows):
        trip = world.round_trip(flow, choice(flow))
        for each, end in zip(trip, ("source", "source", "destination", "destination"), strict=True):
            seen.append(replace(each, **{end: resolved.sender.address_of_flow(flow)}))  # type: ignore[arg-type]
    return world.evidence(seen)


def verdicts(world: World, evidence: Evidence, clients: int = CLIENTS) -> Mapping[str, Verdict]:
    return {
        each.expectation: each
        for each in judge(world.probe, resolved_probe_of(world, clients), None, evidence).verdicts
    }


def by_client(flow: int) -> str:
    return f"echo-{flow % CLIENTS % 2 + 1}"


def test_clients_that_keep_their_backends_stick_though_these_differ() -> None:
    found = verdicts(CROWD, evidence_of(CROWD, by_client))
    assert {name: each.judgement for name, each in found.items()} == dict.fromkeys(found, PASS)
    assert found["source"].expected == "preserved (10 addresses)"
    assert found["spread"].expected == "sticky, all of a client to one"


def test_a_client_that_is_led_elsewhere_is_counted(told: Told) -> None:
    found = verdicts(CROWD, evidence_of(CROWD, lambda flow: "echo-2" if flow == 110 else by_client(flow)))
    assert found["spread"].judgement is FAIL
    assert found["spread"].reasons == told()


def test_one_flow_of_each_client_shows_no_sticking() -> None:
    once = replace(CROWD, flows=CLIENTS)
    assert verdicts(once, evidence_of(once, by_client))["spread"].judgement is INCONCLUSIVE


@pytest.mark.parametrize(("clients", "judgement"), [(10, PASS), (31, FAIL)])
def test_it_is_for_each_client_that_a_backend_is_chosen(clients: int, judgement: Judgement) -> None:
    """With so many clients chance does not send all to one of two backends, however many flows each sends."""
    found = verdicts(CROWD, evidence_of(CROWD, lambda _: "echo-1", clients), clients)
    assert found["backends"].judgement is judgement, found["backends"]


@pytest.mark.parametrize(("key", "end", "netns_name"), [("source", "source", 1), ("reply", "destination", 3)])
def test_one_client_s_packet_is_not_another_s(key: str, end: str, netns_name: int) -> None:
    evidence = evidence_of(CROWD, by_client)
    seen = list(evidence.observations)
    stranger = resolved_probe_of(CROWD).sender.address_of_flow(1)
    seen[netns_name] = replace(seen[netns_name], **{end: stranger})  # type: ignore[arg-type]
    verdict = verdicts(CROWD, replace(evidence, observations=tuple(seen)))[key]
    assert (verdict.judgement, verdict.example) == (FAIL, 0)


@pytest.mark.parametrize(("flows", "judgement"), [(31, INCONCLUSIVE), (39, INCONCLUSIVE), (40, PASS)])
def test_the_first_flow_of_each_client_shows_no_sticking(flows: int, judgement: Judgement) -> None:
    """31 flows of one client suffice for two backends; each further client needs one flow more."""
    world = replace(CROWD, flows=flows)
    assert verdicts(world, evidence_of(world, by_client))["spread"].judgement is judgement


def test_one_client_of_two_that_is_led_elsewhere_is_told_as_one_of_two(told: Told) -> None:
    found = verdicts(CROWD, evidence_of(CROWD, lambda flow: f"echo-{flow % 4 // 3 + 1}", 2), 2)
    assert (found["spread"].judgement, found["spread"].reasons) == (
        FAIL,
        told(),
    )
    alone = verdicts(CROWD, evidence_of(CROWD, lambda flow: f"echo-{flow % 2 + 1}", 1), 1)
    assert alone["spread"].reasons == told()
