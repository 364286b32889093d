"""``proxylab graph --probe`` draws the path that a plan implies for a probe; here packets take it."""

from contextlib import closing
from dataclasses import dataclass

import pytest
from sandboxed import ROOT
from shared_sessions import shared_session

from proxylab.engines.engine_names import mode_of, version_of
from proxylab.errors import CapabilityError
from proxylab.evidence.evidence import Packet
from proxylab.features.graph.paths import PathHop
from proxylab.features.graph.planned_path import planned_path
from proxylab.plan.assembly import assemble
from proxylab.plan.device_names import ROUTER
from proxylab.scenario.cases import cases
from proxylab.scenario.load import load_scenario
from proxylab.scenario.model import Scenario
from proxylab.scenario.probes import Probe
from proxylab.scenario.words import Outcome
from proxylab.verdict.case import Case
from proxylab.verdict.model import Judgement, ProbeVerdict

ENGINE = "embedded/iptables"
SCENARIOS = (
    "clusterip/from-a-pod",
    "externalip/unassigned-address",
    "nodeport/masquerade-address-by-network",
    "network/hairpin",
)


@dataclass(frozen=True)
class Way:
    """The hops in order, and the packet at the end, without source ports, which the proxy chooses."""

    netns_names: tuple[str, ...]
    source: str
    destination: str


def planned(scenario: Scenario, probe: Probe) -> set[Way]:
    """The paths that the plan implies, without the router, which has no tap."""
    path = planned_path(assemble(scenario), probe)
    ways = [(*path.legs, *branch.legs) for branch in path.branches] or [path.legs]
    return {way_of(legs) for legs in ways}


def way_of(legs: tuple[PathHop, ...]) -> Way:
    source, _, destination = legs[-1].packet.partition(" > ")
    netns_names = (legs[0].origin, *(leg.target for leg in legs if leg.target != ROUTER))
    return Way(netns_names, source, destination)


def seen(verdict: ProbeVerdict) -> Way:
    """The observed path of the first flow's packet."""
    case = Case(verdict.probe, verdict.resolved, verdict.evidence)
    found = [stop for stop in case.flows[0].stops if stop.packet is Packet.REQUEST]
    last = found[-1].seen[0]
    return Way(tuple(stop.netns_name for stop in found), str(last.source), found[-1].came.destination)


@pytest.mark.parametrize("name", SCENARIOS)
def test_packets_take_the_way_that_is_drawn(name: str) -> None:
    first = cases(load_scenario(ROOT / "scenarios" / f"{name}.lab.yaml"), mode_of(ENGINE), version_of(ENGINE))[0]
    probes = [probe for probe in first.all_probes if probe.expect.outcome is Outcome.DELIVERED]
    assert probes
    try:
        with shared_session() as session, closing(session.open(first)) as lab:
            verdicts = [lab.probe(probe) for probe in probes]
    except CapabilityError as error:
        pytest.skip(str(error))
    assert [verdict.overall for verdict in verdicts] == [Judgement.PASS] * len(probes)
    for probe, verdict in zip(probes, verdicts, strict=True):
        assert seen(verdict) in planned(first, probe), probe.name
