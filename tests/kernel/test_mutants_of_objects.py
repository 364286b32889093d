"""``proxylab mutate --objects``: labs show their proxies an altered cluster, and the scenarios of its kind notice."""

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from changes import names_a_changed_scenario
from command_line import CommandLine
from object_mutants import IN_EVERY_MODE, judgement_of
from sandboxed import ROOT

from proxylab.client.session import Session
from proxylab.engines.modes import MODES
from proxylab.engines.protocol import EngineChoice
from proxylab.features.mutate.equivalents import proof_of_mutation
from proxylab.features.mutate.mutants import Mutant
from proxylab.features.mutate.runs import MutantRuns, with_objects
from proxylab.mutate.objects import ObjectMutation
from proxylab.scenario.cases import cases
from proxylab.scenario.load import load_scenario

ENGINE = "embedded/iptables"
NFTABLES = "embedded/nftables"
USERSPACE = "embedded/userspace"
NOTICED = (
    ("clusterip/from-a-pod", "EndpointSlice.ports[first].port", "one more"),
    ("clusterip/several-ports", "Service.ports", "without the last"),
    ("affinity/client-ip", "Service.affinityTimeout of the second family", "left out"),
    ("loadbalancer/source-ranges", "Service.sourceRanges", "left out"),
    ("masquerade/all", "KubeProxyConfiguration.masqueradeAll", "turned off"),
    ("steps/scaled-to-zero", "later events of EndpointSlice", "MODIFIED late"),
    ("steps/protocol-removed-from-a-port", "later events of Service", "DELETED withheld"),
    ("steps/node-changes-zone", "later events of Node", "MODIFIED withheld"),
    ("steps/node-changes-zone", "Node.name", "another"),
    ("detect-local/node-cidr", "Node.podCIDRs[first]", "one bit longer"),
    ("detect-local/node-cidr-beside-machines", "Node.podCIDRs[last]", "one bit shorter"),
    ("affinity/at-a-node-port-of-localhost", "Service.affinityTimeout", "left out"),
    ("terminating/a-terminating-pod-sends", "later events of EndpointSlice", "MODIFIED withheld"),
    ("dns/service-name-that-begins-with-a-digit", "EndpointSlice.ports[first].port", "one more"),
    ("conntrack/udp-that-is-never-answered", "EndpointSlice.ports[first].port", "one more"),
    ("sctp/from-a-node", "Service.ports[first].nodePort", "one more"),
    ("workloads/ports-of-a-sidecar", "Service.ports", "without the last"),
    ("health/metrics-on-loopback", "KubeProxyConfiguration.metrics.address", "one more"),
    ("health/metrics-on-loopback", "KubeProxyConfiguration.metrics.port", "one more"),
    # What holds for the second of something, too.
    ("loadbalancer/settings-at-the-second-port", "Service.sourceRanges of the last port", "left out"),
    ("loadbalancer/settings-at-the-second-port", "Service.externalTrafficPolicy of the last port", "as Cluster"),
    ("loadbalancer/settings-at-the-second-port", "Service.internalTrafficPolicy of the last port", "as Cluster"),
    ("loadbalancer/settings-at-the-second-port", "Service.affinityTimeout of the last port", "left out"),
    ("affinity/ends-at-every-frontend", "Service.affinityTimeout of the last external IP", "ten times as long"),
    ("affinity/ends-at-every-frontend", "Service.affinityTimeout of the last ingress address", "ten times as long"),
    ("loadbalancer/second-range-and-second-address", "Service.sourceRanges", "without the last"),
    ("loadbalancer/second-range-and-second-address", "Service.sourceRanges of the last ingress address", "left out"),
    ("nodeport/second-node-port-address", "KubeProxyConfiguration.nodePortAddresses", "without the last"),
    ("nodeport/second-node-port-address", "KubeProxyConfiguration.nodePortAddresses[last]", "one bit shorter"),
    ("topology/second-zone-and-local-policy", "EndpointSlice.endpoints[last].forZones", "without the last"),
    ("topology/second-node-of-a-hint", "EndpointSlice.endpoints[first].forNodes", "without the last"),
    ("terminating/first-and-last-endpoint", "EndpointSlice.endpoints[first].terminating", "turned off"),
    ("terminating/first-and-last-endpoint", "EndpointSlice.endpoints[last].serving", "turned on"),
    ("nodeport/primary-address", "KubeProxyConfiguration.nodePortPrimary", "turned off"),
    ("nodeport/primary-address", "Node.addresses[last]", "one more"),
    ("detect-local/given-cluster-cidr", "KubeProxyConfiguration.clusterCIDRs[first]", "one bit shorter"),
    ("detect-local/given-cluster-cidr", "KubeProxyConfiguration.clusterCIDRs[first]", "one bit longer"),
    ("dns/by-a-program-of-the-author", "EndpointSlice.ports[first].port", "one more"),
    ("affinity/holds-until-the-timeout", "Service.affinityTimeout", "half as long"),
    ("steps/affinity-timeout-changes", "later events of Service", "MODIFIED withheld"),
    ("steps/manifests-are-applied", "later events of Service", "MODIFIED withheld"),
    ("steps/node-port-number-used-again", "later events of Service", "ADDED late"),
    ("steps/type-changes-to-a-load-balancer", "later events of Service", "MODIFIED withheld"),
    *IN_EVERY_MODE,
)
"""A mutation that each scenario notices: of an element, a list, a part, a setting, a configuration, later events."""


KINDS = 10

NOTICED_IN_NFTABLES = (
    ("clusterip/in-a-second-service-cidr", "ServiceCIDR", "absent"),
    ("clusterip/in-a-second-service-cidr", "ServiceCIDR.cidrs[first]", "one bit longer"),
    ("clusterip/in-a-second-service-cidr", "ServiceCIDR.cidrs[first]", "one bit shorter"),
)
"""The same of objects that no other mode reads."""

NOTICED_IN_USERSPACE = (
    ("userspace/ready-in-one-of-two-slices", "EndpointSlice.endpoints[first].ready", "turned off"),
    ("userspace/slices-that-do-not-count", "EndpointSlice.labels[service.kubernetes.io/headless]", "left out"),
    ("health/metrics-on-loopback", "KubeProxyConfiguration.metrics.address", "one more"),
    ("userspace/udp-client-keeps-its-endpoint", "KubeProxyConfiguration.udpIdleTimeout", "ten times as long"),
    ("userspace/round-robin-and-affinity", "Service.affinityTimeout of the last port", "left out"),
    ("affinity/ends-at-every-frontend", "Service.affinityTimeout of the last port", "ten times as long"),
    (
        "clusterip/service-proxy-name-label",
        "Service.labels[service.kubernetes.io/service-proxy-name]",
        "left out",
    ),
)
"""The same in mode userspace: of scenarios of it alone, and of what other scenarios show otherwise there."""


@pytest.fixture(scope="module")
def runs() -> Iterator[MutantRuns]:
    with Session(EngineChoice(ENGINE)) as session:
        yield MutantRuns(session, ENGINE)


@pytest.fixture(scope="module")
def runs_in_nftables() -> Iterator[MutantRuns]:
    with Session(EngineChoice(NFTABLES)) as session:
        yield MutantRuns(session, NFTABLES)


@pytest.fixture(scope="module")
def runs_in_userspace() -> Iterator[MutantRuns]:
    with Session(EngineChoice(USERSPACE)) as session:
        yield MutantRuns(session, USERSPACE)


def thorough(row: tuple[str, str, str]) -> Any:
    """A row that is thorough unless its scenario changed."""
    return pytest.param(*row, marks=[] if names_a_changed_scenario(row[0]) else [pytest.mark.thorough])


# The first rows are one of each kind; that the others are noticed, the campaign over the catalogue shows, too.
@pytest.mark.parametrize(
    ("scenario", "where", "change"),
    [*NOTICED[:KINDS], *map(thorough, NOTICED[KINDS:])],
)
def test_a_scenario_notices_what_its_proxies_are_wrongly_shown(
    scenario: str, where: str, change: str, runs: MutantRuns
) -> None:
    assert judgement_of(scenario, ObjectMutation(where, change), ENGINE, runs) == "fail"


# Mode iptables has each row of every mode above.
@pytest.mark.parametrize(
    ("scenario", "where", "change"),
    [*NOTICED_IN_NFTABLES, *map(thorough, IN_EVERY_MODE)],
)
def test_a_scenario_notices_in_mode_nftables_what_its_proxies_are_wrongly_shown(
    scenario: str, where: str, change: str, runs_in_nftables: MutantRuns
) -> None:
    assert judgement_of(scenario, ObjectMutation(where, change), NFTABLES, runs_in_nftables) == "fail"


# Mode iptables has each row of every mode above.
@pytest.mark.userspace_core
@pytest.mark.parametrize(
    ("scenario", "where", "change"),
    [
        *NOTICED_IN_USERSPACE,
        *IN_EVERY_MODE[:1],
        *map(thorough, IN_EVERY_MODE[1:]),
    ],
)
def test_a_scenario_of_mode_userspace_notices_what_its_proxies_are_wrongly_shown(
    scenario: str, where: str, change: str, runs_in_userspace: MutantRuns
) -> None:
    assert judgement_of(scenario, ObjectMutation(where, change), USERSPACE, runs_in_userspace) == "fail"


OF_NODES = (
    ("Node", "absent"),
    ("Node.name", "another"),
    ("Node.addresses", "left out"),
    ("Node.addresses[first]", "one more"),
)
"""Changes of Nodes, by whose addresses and names proxies in other modes go."""


@pytest.mark.userspace_core
@pytest.mark.parametrize(("where", "change"), OF_NODES)
def test_mode_userspace_writes_its_rules_whatever_nodes_it_is_shown(where: str, change: str) -> None:
    """Its rules lead a node's own packets to the address of the default route, as those of kube-proxy do."""
    mode = MODES["userspace"]
    assert proof_of_mutation(ObjectMutation(where, change), mode.word)
    (case,) = cases(load_scenario(ROOT / "scenarios/userspace/every-pod-sees-the-node.lab.yaml"), mode.word)
    with Session(EngineChoice(USERSPACE)) as session:
        with closing(session.open(case)) as lab:
            true = lab.rules_of("node-a")
        with closing(session.open(case, shown=ObjectMutation(where, change))) as lab:
            assert mode.differences(lab.rules_of("node-a"), true) == []
        with closing(session.open(case, shown=ObjectMutation("Service.ports[first].port", "one more"))) as lab:
            assert mode.differences(lab.rules_of("node-a"), true)
    assert "--to-destination 172.18.0.2:" in true


def test_what_changes_nothing_is_not_noticed(runs: MutantRuns) -> None:
    """The lab shows the mutation, and its own name servers, balancers and judge keep the truth."""
    case = with_objects(load_scenario(ROOT / "scenarios/clusterip/from-a-pod.lab.yaml"))
    mutant = Mutant(
        engine=ENGINE, rule_class="EndpointSlice.endpoints[first].target", mutation="another", rule="", of_objects=True
    )
    assert case.has(ObjectMutation(mutant.rule_class, mutant.mutation))
    assert runs.settled(mutant, [case], lambda _what: None).survives


def test_a_configuration_that_the_engine_refuses_is_noticed_by_the_build_of_the_lab(runs: MutantRuns) -> None:
    case = with_objects(load_scenario(ROOT / "scenarios/clusterip/from-a-pod.lab.yaml"))
    mutant = Mutant(
        engine=ENGINE,
        rule_class="KubeProxyConfiguration.nodePortLocalhost",
        mutation="turned on",
        rule="",
        of_objects=True,
    )
    assert case.has(ObjectMutation(mutant.rule_class, mutant.mutation))
    noticed = runs.settled(mutant, [case], lambda _what: None).noticed
    assert noticed is not None
    assert (noticed.judgement, noticed.item) == ("error", "the build of the lab")


def test_the_verb_reports_objects_and_fields(cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    file = "scenarios/clusterip/several-ports.lab.yaml"
    options = ("--objects", "--field", "Service.ports[last]", "--state", str(tmp_path / "state.jsonl"))
    found = json.loads(cli.type("mutate", file, *options, "-o", "json").output)
    assert {each["mutation"] for each in found} >= {"one more", "as UDP", "left out"}
    assert {each["rule"] for each in found} == {"Service default/shop"}
    assert [each["mutation"] for each in found if not each["noticed"] and not each["equivalent"]] == []
    text = cli.type("mutate", file, *options).output
    assert "mutants of 4 fields, on 1 scenario" in text
