"""Details of answers which else only single probes of the catalogue show."""

from ipaddress import ip_address

import pytest
from oracle_worlds import answers, cluster_of, moment_and_assembly

from proxylab.addresses import Family, Protocol
from proxylab.cluster.objects import Endpoint, EndpointPort, EndpointSlice, ServicePort
from proxylab.oracle.choice import candidates_of
from proxylab.oracle.flows import Oracle
from proxylab.oracle.from_scenario import ask, outside_reach
from proxylab.oracle.health import node_health
from proxylab.oracle.names import resolve_name
from proxylab.oracle.rows import rows
from proxylab.oracle.ways import Ways
from proxylab.scenario.versions import Version
from proxylab.scenario.words import Outcome

NETWORK = """
network: {families: [IPv4, IPv6]}
nodes: {node-a: {addresses: [{address: 172.18.0.99/16}]}, node-b: {}}
pods:
  web: {nodes: [node-a], labels: {app: web}, ports: [8080]}
  far: {nodes: [node-b], labels: {app: web}, ports: [8080]}
  client: {nodes: [node-a]}
hosts: {outside: {}}
"""
SERVICE = """
apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  type: LoadBalancer
  ipFamilyPolicy: RequireDualStack
  selector: {app: web}
  ports: [{port: 80, targetPort: 8080, nodePort: 30080}]
"""
HEADLESS = """
apiVersion: v1
kind: Service
metadata: {name: each}
spec: {clusterIP: None, ipFamilyPolicy: RequireDualStack, selector: {app: web}, ports: [{port: 8080}]}
"""
CHECKED = SERVICE.replace("  selector", "  externalTrafficPolicy: Local\n  healthCheckNodePort: 31000\n  selector")


def configuration(text: str) -> str:
    return f"apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n{text}"


def test_a_port_of_a_slice_belongs_to_the_port_of_its_protocol() -> None:
    end = Endpoint(addresses=(moment_and_assembly(cluster_of(NETWORK))[1].plan.pods[0].addresses[0],))
    both = (EndpointPort(protocol=Protocol.UDP, port=5353), EndpointPort(protocol=Protocol.TCP, port=8053))
    own = EndpointSlice(name="s", service="s", address_type=Family.IPV4, ports=both, endpoints=(end,))
    for protocol, number in ((Protocol.UDP, 5353), (Protocol.TCP, 8053)):
        found = candidates_of(ServicePort(port=53, target_port=53, protocol=protocol), Family.IPV4, [own])
        assert [each.port for each in found] == [number]


@pytest.mark.parametrize(("scheduler", "is_scheduled"), [("rr", False), ("wrr", False), ("sh", True), ("lc", True)])
def test_schedulers_that_take_turns_give_even_shares(scheduler: str, is_scheduled: bool) -> None:
    probes = {"p": "from: client, to: {service: web, via: clusterIP, family: IPv4}"}
    settings = configuration(f"mode: ipvs\nipvs: {{scheduler: {scheduler}}}")
    assert answers(cluster_of(NETWORK, SERVICE, settings, probes=probes), "ipvs")["p"].is_scheduled is is_scheduled
    alone = NETWORK.replace("far: {nodes: [node-b], labels: {app: web}", "far: {nodes: [node-b]")
    assert not answers(cluster_of(alone, SERVICE, settings, probes=probes), "ipvs")["p"].is_scheduled


@pytest.mark.parametrize(("version", "is_reached"), [((1, 33), False), ((1, 34), True), ((1, 37), True)])
def test_a_scenario_about_some_versions_is_within_the_reach_in_those(version: Version, is_reached: bool) -> None:
    spec = NETWORK + 'requires: {version: ">=1.34"}'
    probes = {"p": "from: client, to: {service: web, via: clusterIP, family: IPv4}"}
    _, assembly = moment_and_assembly(cluster_of(spec, SERVICE, probes=probes), version=version)
    assert (outside_reach(assembly, assembly.scenario.probes[0], version) == "") is is_reached


def test_a_pod_that_dials_a_name_prefers_the_addresses_of_others() -> None:
    probes = {"p": "from: web, to: {service: each, via: dnsName, family: IPv4}"}
    moment, assembly = moment_and_assembly(cluster_of(NETWORK, HEADLESS, probes=probes))
    asked = ask(assembly, assembly.scenario.probes[0], moment, Oracle(moment))
    assert {end.name for _, answer in asked.flows for end in answer.reached} == {"far"}


def test_a_name_gives_addresses_of_the_family_that_is_asked_for() -> None:
    moment, _ = moment_and_assembly(cluster_of(NETWORK, HEADLESS))
    for family in Family:
        found = resolve_name(moment, moment.services["default", "each"], family).addresses
        assert len(found) == 2
        assert {Family.of(each) for each in found} == {family}


@pytest.mark.parametrize("mode", ["iptables", "nftables"])
def test_each_of_several_networks_opens_node_ports(mode: str) -> None:
    probes = {each: f"from: outside, to: {{address: {each}, port: 30080}}" for each in ("172.18.0.2", "172.18.0.99")}
    networks = configuration("nodePortAddresses: [172.18.0.99/32, 172.18.0.2/32]")
    found = answers(cluster_of(NETWORK, SERVICE, networks, probes=probes), mode)
    assert {answer.outcomes for answer in found.values()} == {(Outcome.DELIVERED,)}


def test_a_health_check_counts_each_pod_once_in_either_family() -> None:
    network = NETWORK.replace("web: {nodes: [node-a]", "web: {replicas: 3, nodes: [node-a]")
    probes = {"p": "from: outside, to: {address: 172.18.0.2, port: 31000}"}
    health = answers(cluster_of(network, CHECKED, probes=probes))["p"].health
    assert health is not None
    assert (health.status, health.local_endpoints) == (200, 3)


@pytest.mark.parametrize("mode", ["iptables", "nftables"])
def test_an_interface_of_another_name_is_of_no_pod(mode: str) -> None:
    settings = configuration("detectLocalMode: InterfaceNamePrefix\ndetectLocal: {interfaceNamePrefix: client}")
    probes = {
        "of a pod": "from: client, to: {service: web, via: clusterIP, family: IPv4}",
        "of others": "from: outside, to: {service: web, via: clusterIP, node: node-a, family: IPv4}",
    }
    found = answers(cluster_of(NETWORK, SERVICE, settings, probes=probes), mode)
    hidden = {
        name: {seen.is_masqueraded for end in answer.reached for seen in end.sources} for name, answer in found.items()
    }
    assert hidden == {"of a pod": {False}, "of others": {True}}


def test_a_row_follows_from_its_document_or_from_what_was_seen() -> None:
    assert rows()["health-check-with-endpoint"].because.startswith("https://")
    assert rows()["strict-reverse-path"].because.startswith("observed on Linux")


def test_a_proxy_that_a_step_stops_counts_beside_one_that_it_restarts() -> None:
    probe = "{name: p, from: client, to: {service: web, via: clusterIP, family: IPv4}, expect: {outcome: dropped}}"
    change = "{engines: {node-a: restart, node-b: stop}}"
    spec = f"{NETWORK}steps:\n- {{name: s, change: {change}, until: {{elapsed: 1s}}, probes: [{probe}]}}"
    _, assembly = moment_and_assembly(cluster_of(spec, SERVICE))
    assert "no later one starts it anew" in outside_reach(assembly, assembly.scenario.all_probes[0], (1, 37))


@pytest.mark.parametrize(
    ("mtu", "payload", "reason"),
    [
        ("", "", ""),
        ("mtu: {nodes: 1400}", "", ""),
        ("", "1000", ""),
        ("mtu: {nodes: 1400}", "1000", "the packets may be above an MTU of the network"),
    ],
)
def test_a_payload_is_outside_the_reach_only_where_the_network_sets_an_mtu(mtu: str, payload: str, reason: str) -> None:
    spec = NETWORK.replace("network: {families", f"network: {{{mtu}{mtu and ', '}families")
    send = f"{{protocol: UDP, payload: {payload}}}" if payload else "{protocol: UDP}"
    service = SERVICE.replace("{port: 80", "{protocol: UDP, port: 80")
    probes = {"p": f"from: client, to: {{service: web, via: clusterIP, family: IPv4}}, send: {send}"}
    _, assembly = moment_and_assembly(cluster_of(spec, service, probes=probes))
    assert outside_reach(assembly, assembly.scenario.probes[0], (1, 37)) == reason


@pytest.mark.parametrize(
    ("path", "status"), [("/metrics", 200), ("/proxyMode", 200), ("/healthz", None), ("/livez", None)]
)
def test_the_port_of_metrics_answers_about_metrics_alone(path: str, status: int | None) -> None:
    moment, _ = moment_and_assembly(cluster_of(NETWORK, SERVICE))
    found = node_health(moment, "node-a", ip_address("127.0.0.1"), 10249, path)
    assert (found and found.answer.status) == status


@pytest.mark.parametrize("bridges_count", [True, False])
def test_packets_between_pods_of_a_bridge_pass_the_node_s_rules_where_bridges_count(bridges_count: bool) -> None:
    network = NETWORK.replace("network: {families", "network: {podNetwork: bridge, families")
    plan = moment_and_assembly(cluster_of(network, SERVICE))[1].plan
    for home in plan.namespace("client").addresses:
        passes = Ways(plan).lead_through("web", home.interface.ip, "node-a", bridges_count=bridges_count)
        assert passes is (bridges_count or home.interface.ip.is_loopback)


def test_a_frame_goes_to_the_machine_that_it_names() -> None:
    network = NETWORK.replace("hosts: {outside: {}}", "hosts: {near: {segment: nodes}}")
    send = "send: {protocol: UDP, as: packet, frameTo: %s}"
    probes = {each: f"from: near, to: {{address: 192.0.2.77, port: 9}}, {send % each}" for each in ("node-a", "node-b")}
    found = answers(cluster_of(network, SERVICE, probes=probes))
    assert {name: answer.at for name, answer in found.items()} == {each: (each,) for each in probes}


@pytest.mark.parametrize("masquerade", ["true", "false"])
def test_the_network_masquerades_what_pods_send_out_of_the_cluster(masquerade: str) -> None:
    network = NETWORK.replace("network: {families", f"network: {{outboundMasquerade: {masquerade}, families")
    probes = {
        "out": "from: client, to: {host: outside, family: IPv4, port: 80}",
        "in": "from: client, to: {pod: far, family: IPv4}",
    }
    found = answers(cluster_of(network, SERVICE, probes=probes))
    seen = {
        name: {each.is_masqueraded for end in answer.reached for each in end.sources} for name, answer in found.items()
    }
    assert seen == {"out": {masquerade == "true"}, "in": {False}}


@pytest.mark.parametrize("home", ["node-a", "node-b"])
def test_a_balancer_checks_each_of_its_nodes(home: str) -> None:
    network = NETWORK.replace("web: {nodes: [node-a], labels: {app: web}, ", "web: {nodes: [node-a], ")
    network = network.replace("far: {nodes: [node-b]", f"far: {{nodes: [{home}]")
    balancer = "loadBalancers: {edge: {pool: [192.0.2.0/28], healthChecked: true}}"
    service = CHECKED.replace("  ipFamilyPolicy", "  loadBalancerIP: 192.0.2.1\n  ipFamilyPolicy")
    probes = {"p": "from: outside, to: {service: web, via: loadBalancerIP, family: IPv4}"}
    answer = answers(cluster_of(f"{network}{balancer}", service, probes=probes))["p"]
    assert answer.outcomes == (Outcome.DELIVERED,)
    assert [each.name for each in answer.reached] == ["far"]
