"""Mutants of objects in mode ipvs, in a guest: scenarios notice what proxies with virtual servers are wrongly shown.

A proxy in this mode makes virtual servers, sets and addresses of the same objects, and it alone reads the section
``ipvs`` of its configuration. That scenarios tell schedulers apart, ``test_schedulers_in_a_guest`` shows.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_line import CommandLine
from guests import OWN
from object_mutants import IN_EVERY_MODE, judgement_of
from sandboxed import ROOT

from proxylab.client.session import Session
from proxylab.engines.protocol import EngineChoice
from proxylab.features.mutate.runs import MutantRuns
from proxylab.mutate.objects import ObjectMutation

__all__ = ["NOTICED_IN_IPVS"]

pytestmark = [OWN, pytest.mark.timeout(300)]

ENGINE = "embedded/ipvs"
EXCLUDED = "ipvs/strict-arp-and-excluded-networks"
NOTICED_IN_IPVS = (
    ("loadbalancer/announced-by-one-node", "KubeProxyConfiguration.ipvs.strictARP", "turned off"),
    (EXCLUDED, "KubeProxyConfiguration.ipvs.excludeCIDRs", "left out"),
    (EXCLUDED, "KubeProxyConfiguration.ipvs.excludeCIDRs[first]", "one bit shorter"),
    (EXCLUDED, "KubeProxyConfiguration.ipvs.excludeCIDRs[first]", "one bit longer"),
    ("affinity/ends-at-every-frontend", "KubeProxyConfiguration.ipvs.udp", "ten times as long"),
    ("affinity/ends-at-every-frontend", "Service.affinityTimeout of the last ingress address", "ten times as long"),
    ("affinity/ends-at-every-frontend", "Service.affinityTimeout of the second family", "ten times as long"),
    ("clusterip/several-ports", "EndpointSlice.ports[last].port", "one more"),
    ("detect-local/node-cidr-beside-machines", "KubeProxyConfiguration.detectLocalMode", "as ClusterCIDR"),
    ("detect-local/node-cidr-beside-machines", "Node.podCIDRs[first]", "one bit shorter"),
    ("detect-local/node-cidr-beside-machines", "Node.podCIDRs[last]", "one bit shorter"),
    ("loadbalancer/second-range-and-second-address", "Service.sourceRanges of the last ingress address", "left out"),
    ("nodeport/second-node-port-address", "KubeProxyConfiguration.nodePortAddresses", "without the last"),
    ("steps/node-changes-zone", "later events of Node", "MODIFIED withheld"),
    *IN_EVERY_MODE,
)
"""Mutations that scenarios notice: of the mode's own settings, and of what other modes read, too."""


@pytest.fixture(scope="module")
def runs() -> Iterator[MutantRuns]:
    with Session(EngineChoice(ENGINE, kernel="uml")) as session:
        yield MutantRuns(session, ENGINE)


# The first row shows the way through a guest; that the others are noticed, the campaign over the catalogue shows, too.
@pytest.mark.parametrize(
    ("scenario", "where", "change"),
    [*NOTICED_IN_IPVS[:1], *(pytest.param(*row, marks=pytest.mark.thorough) for row in NOTICED_IN_IPVS[1:])],
)
def test_a_scenario_notices_in_mode_ipvs_what_its_proxies_are_wrongly_shown(
    scenario: str, where: str, change: str, runs: MutantRuns
) -> None:
    assert judgement_of(scenario, ObjectMutation(where, change), ENGINE, runs) == "fail"


@pytest.mark.thorough  # the rows above are what the verb does
def test_the_verb_reports_objects_in_a_guest(cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    file = "scenarios/clusterip/several-ports.lab.yaml"
    options = ("--objects", "--field", "Service.ports[last]", "--state", str(tmp_path / "state.jsonl"))
    typed = cli.type("mutate", file, *options, "--engine", ENGINE, "--kernel", "uml", "-o", "json")
    found = json.loads(typed.output)
    assert {each["engine"] for each in found} == {ENGINE}
    assert {each["mutation"] for each in found} >= {"one more", "as UDP", "left out"}
    assert [each["mutation"] for each in found if not each["noticed"] and not each["equivalent"]] == []
