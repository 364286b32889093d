"""Which path tests a diagnosis chooses, and which source address endpoints must see."""

from ipaddress import ip_address, ip_network
from pathlib import Path
from tempfile import NamedTemporaryFile

import pytest
from msgspec.structs import replace
from oracle_worlds import PROXY

from proxylab.cluster.configuration import DetectLocalMode, NftablesConfiguration, ProxyConfiguration
from proxylab.cluster.objects import LoadBalancerIngress, Service
from proxylab.features.diagnose.path_tests import Dialler, Terms, diallers, hairpin_tests, path_tests
from proxylab.features.diagnose.subject import DiagnosedService
from proxylab.plan.assembly import assemble
from proxylab.scenario.load import load_scenario
from proxylab.scenario.model import Scenario

TEXT = """\
apiVersion: proxylab/v1
kind: Scenario
metadata: {name: walks, description: The senders that a diagnosis lets dial.}
spec:
  nodes: {node-a: {}, node-b: {}}
  pods:
    echo: {nodes: [node-a], labels: {app: echo}, ports: [8080]}
    client: {nodes: [node-a]}
  hosts: {outside: {}}
  probes:
  - {name: any, from: client, to: {service: echo, via: clusterIP}, expect: {outcome: delivered, source: preserved}}
---
apiVersion: v1
kind: Service
metadata: {name: echo}
spec: {type: NodePort, SPEC selector: {app: echo}, ports: [{port: 80, targetPort: 8080, nodePort: 30080}]}
"""
NODES = ("node-a", "node-b")
TERMS = Terms()


def world(spec: str = "", text: str = TEXT) -> tuple[Scenario, DiagnosedService, tuple[Dialler, ...]]:
    with NamedTemporaryFile("w", suffix=".lab.yaml") as file:
        file.write(text.replace("SPEC", spec))
        file.flush()
        scenario = load_scenario(Path(file.name))
    assembly = assemble(scenario)
    service = next(each for each in assembly.objects if isinstance(each, Service) and each.name == "echo")
    subject = DiagnosedService.of(service, assembly.objects, scenario.network.families, PROXY)
    return scenario, subject, diallers(subject, scenario, assembly.addresses)


def told(spec: str = "", terms: Terms = TERMS, sender: str | None = None, text: str = TEXT) -> dict[str, bool | None]:
    _, subject, diallers = world(spec, text)
    found = path_tests(subject, dict.fromkeys(NODES, terms), diallers, NODES, sender)
    return {str(each): each.hidden for each in found}


CLUSTER_IP = "to the cluster IP 10.96.1.1:80/TCP by"
NODE_PORT = "to the node port 30080/TCP of"


def test_each_front_is_dialled_on_each_node_by_the_likeliest() -> None:
    assert told() == {
        f"client {CLUSTER_IP} node-a": False,
        f"node-b {CLUSTER_IP} node-b": None,
        f"outside {NODE_PORT} node-a": True,
        f"outside {NODE_PORT} node-b": True,
    }
    alone = told(text=TEXT.replace("  hosts: {outside: {}}\n", ""))
    assert set(alone) >= {
        f"node-b {NODE_PORT} node-a",
        f"node-a {NODE_PORT} node-b",
    }


def test_policy_local_without_a_local_endpoint_has_no_path_test_and_masquerades_none() -> None:
    found = told("externalTrafficPolicy: Local,")
    assert found[f"outside {NODE_PORT} node-a"] is False
    assert f"outside {NODE_PORT} node-b" not in found
    assert CLUSTER_IP not in " ".join(told("internalTrafficPolicy: Local,", sender="node-b"))


def test_who_shall_dial_dials_what_it_can() -> None:
    assert told(sender="client") == {
        f"client {CLUSTER_IP} node-a": False,
        f"client {NODE_PORT} node-a": True,
        f"client {NODE_PORT} node-b": True,
    }


def test_source_ranges_let_only_allowed_senders_in() -> None:
    _, subject, diallers = world()
    balanced = replace(subject.service, load_balancer_ingress=(LoadBalancerIngress(ip=ip_address("203.0.113.99")),))
    for ranges, frontends in (((), 2), ((ip_network("192.0.2.0/24"),), 1), ((ip_network("203.0.113.0/24"),), 2)):
        about = replace(subject, service=replace(balanced, source_ranges=ranges))
        assert len(path_tests(about, dict.fromkeys(NODES, TERMS), diallers, ("node-a",), "outside")) == frontends + 1, (
            "node ports ask for no range"
        )


@pytest.mark.parametrize(
    ("proxy", "mode", "hidden"),
    [
        (ProxyConfiguration(masquerade_all=True), "iptables", True),
        (ProxyConfiguration(masquerade_all=True), "nftables", False),
        (ProxyConfiguration(nftables=NftablesConfiguration(masquerade_all=True)), "nftables", True),
    ],
)
def test_a_mode_goes_by_its_own_keys(proxy: ProxyConfiguration, mode: str, hidden: bool) -> None:
    scenario, *_ = world()
    found = told(terms=Terms.of(replace(scenario, proxy=proxy), mode))
    assert found[f"client {CLUSTER_IP} node-a"] is hidden


@pytest.mark.parametrize(("mode", "other", "hidden"), [("iptables", "nftables", True), ("nftables", "iptables", False)])
def test_each_node_goes_by_its_own_mode(mode: str, other: str, hidden: bool) -> None:
    scenario, subject, diallers = world()
    all_of_iptables = replace(scenario, proxy=ProxyConfiguration(masquerade_all=True))
    terms = {"node-a": Terms.of(all_of_iptables, mode), "node-b": Terms.of(all_of_iptables, other)}
    found = {str(each): each.hidden for each in path_tests(subject, terms, diallers, NODES, "client")}
    assert found[f"client {CLUSTER_IP} node-a"] is hidden


def test_a_pod_is_from_outside_where_the_proxy_cannot_detect_pods() -> None:
    scenario, *_ = world()
    blind = ProxyConfiguration(cluster_cidrs=())
    assert not Terms.of(replace(scenario, proxy=blind), "iptables").detects
    seeing = replace(blind, detect_local_mode=DetectLocalMode.NODE_CIDR)
    assert Terms.of(replace(scenario, proxy=seeing), "iptables").detects
    found = told("externalTrafficPolicy: Local,", Terms(detects=False), sender="client")
    assert f"client {NODE_PORT} node-b" not in found


def test_node_ports_are_dialled_where_they_are_served() -> None:
    assert not any(NODE_PORT in each for each in told(terms=Terms(node_ports=(ip_network("127.0.0.0/8"),))))


def test_the_source_is_open_where_the_network_itself_masquerades() -> None:
    found = told(terms=Terms(leaves_hidden=True), sender="client")
    assert found == {
        f"client {CLUSTER_IP} node-a": False,
        f"client {NODE_PORT} node-a": None,
        f"client {NODE_PORT} node-b": None,
    }


def test_only_endpoints_reach_themselves() -> None:
    _, subject, diallers = world()
    (loop,) = hairpin_tests(subject, dict.fromkeys(NODES, TERMS), diallers, NODES)
    assert (loop.dialler.name, loop.node, loop.expected) == ("echo", "node-a", ((ip_address("10.244.0.10"), 8080),))
