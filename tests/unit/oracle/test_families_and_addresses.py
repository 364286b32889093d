"""What holds of one family or one address alone: cluster CIDRs, source ranges, the primary address, ipMode."""

import pytest
from golden_words import Told
from oracle_worlds import answers, cluster_of, moment_and_assembly

from proxylab.oracle.flows import Oracle
from proxylab.oracle.from_scenario import ask
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
  loadBalancerSourceRanges: [198.51.100.0/24]
status: {loadBalancer: {ingress: [{ip: 192.0.2.1}, {ip: "2001:db8:192::1"}, {ip: 192.0.2.2, ipMode: Proxy}]}}
"""
LOCAL = SERVICE.replace("  selector", "  externalTrafficPolicy: Local\n  selector")
MODES = ["iptables", "nftables"]


def configuration(text: str) -> str:
    return f"apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n{text}"


def masqueraded(mode: str, settings: str, family: str) -> set[bool]:
    probes = {"p": f"from: outside, to: {{service: web, via: clusterIP, node: node-a, family: {family}}}"}
    (answer,) = answers(cluster_of(NETWORK, SERVICE, configuration(settings), probes=probes), mode).values()
    assert answer.outcomes == (Outcome.DELIVERED,)
    return {seen.is_masqueraded for end in answer.reached for seen in end.sources}


@pytest.mark.parametrize("mode", MODES)
def test_a_cluster_cidr_of_one_family_tells_pods_of_that_family_alone(mode: str) -> None:
    settings = "clusterCIDR: 10.244.0.0/16"
    assert masqueraded(mode, settings, "IPv4") == {True}
    assert masqueraded(mode, settings, "IPv6") == {False}, "nothing tells pods of IPv6, so no source counts as foreign"


@pytest.mark.parametrize("mode", MODES)
def test_a_pod_of_a_family_without_cluster_cidr_is_not_exempt_from_local(mode: str) -> None:
    probes = {
        family: f"from: client, to: {{service: web, via: loadBalancerIP, family: {family}}}"
        for family in ("IPv4", "IPv6")
    }
    both = LOCAL.replace("  loadBalancerSourceRanges: [198.51.100.0/24]\n", "")
    found = answers(cluster_of(NETWORK, both, configuration("clusterCIDR: 10.244.0.0/16"), probes=probes), mode)
    assert {end.name for end in found["IPv4"].reached} == {"web", "far"}
    assert {end.name for end in found["IPv6"].reached} == {"web"}


@pytest.mark.parametrize("mode", MODES)
def test_source_ranges_hold_for_their_own_family(mode: str) -> None:
    probes = {
        family: f"from: client, to: {{service: web, via: loadBalancerIP, family: {family}}}"
        for family in ("IPv4", "IPv6")
    }
    found = answers(cluster_of(NETWORK, SERVICE, probes=probes), mode)
    assert found["IPv4"].outcomes == (Outcome.DROPPED,)
    assert found["IPv6"].outcomes == (Outcome.DELIVERED,)
    assert "ranges-of-the-other-family" in found["IPv6"].rows["outcome"]


@pytest.mark.parametrize(
    ("mode", "settings", "served"),
    [
        ("nftables", "", {"172.18.0.2"}),
        ("iptables", "", {"172.18.0.2", "172.18.0.99"}),
        ("nftables", "nodePortAddresses: [172.18.0.99/32]", {"172.18.0.99"}),
        ("iptables", "nodePortAddresses: [primary]", {"172.18.0.2"}),
        ("nftables", "bindAddress: 172.18.0.99", {"172.18.0.99"}),
        ("nftables", 'nodePortAddresses: ["fd00::/8"]', {"172.18.0.2", "172.18.0.99"}),
    ],
)
def test_a_node_opens_node_ports_at_these_of_its_addresses(mode: str, settings: str, served: set[str]) -> None:
    probes = {each: f"from: outside, to: {{address: {each}, port: 30080}}" for each in ("172.18.0.2", "172.18.0.99")}
    found = answers(cluster_of(NETWORK, SERVICE, configuration(settings), probes=probes), mode)
    assert {name for name, answer in found.items() if answer.outcomes == (Outcome.DELIVERED,)} == served
    assert {answer.outcomes for name, answer in found.items() if name not in served} <= {(Outcome.REFUSED,)}


@pytest.mark.parametrize("mode", MODES)
def test_ip_mode_proxy_leaves_the_address_to_the_load_balancer_since_1_30(mode: str, told: Told) -> None:
    text = cluster_of(NETWORK, SERVICE, probes={"p": "from: client, to: {address: 192.0.2.2, port: 80}"})
    assert answers(text, mode)["p"].outcomes == (Outcome.UNTRANSLATED,)
    assert answers(text, "iptables", (1, 29))["p"].outside == told()


def test_two_services_at_one_address_are_outside_the_reach(told: Told) -> None:
    spec = "spec: {externalIPs: [198.51.100.7], selector: {app: web}, ports: [{port: 80}]}"
    other = f"apiVersion: v1\nkind: Service\nmetadata: {{name: %s}}\n{spec}"
    probes = {"p": "from: client, to: {address: 198.51.100.7, port: 80}"}
    answer = answers(cluster_of(NETWORK, other % "one", other % "two", probes=probes))["p"]
    assert answer.outcomes == ()
    assert answer.outside == told()


@pytest.mark.parametrize("mode", MODES)
def test_out_of_range_drops_where_another_node_has_an_endpoint_and_is_open_without_any(mode: str) -> None:
    probes = {"p": "from: outside, to: {service: web, via: loadBalancerIP, node: node-b, family: IPv4}"}
    elsewhere = cluster_of(
        NETWORK.replace("far: {nodes: [node-b], labels: {app: web}", "far: {nodes: [node-b]"), LOCAL, probes=probes
    )
    assert answers(elsewhere, mode)["p"].outcomes == (Outcome.DROPPED,)
    nowhere = cluster_of(NETWORK, LOCAL.replace("app: web", "app: none"), probes=probes)
    assert set(answers(nowhere, mode)["p"].outcomes) == {Outcome.REJECTED, Outcome.DROPPED}


@pytest.mark.parametrize(("sent", "outcome"), [("TCP", Outcome.DELIVERED), ("UDP", Outcome.REFUSED)])
def test_only_tcp_is_a_health_check_and_only_at_a_node(sent: str, outcome: Outcome) -> None:
    checked = LOCAL.replace("  selector", "  healthCheckNodePort: 31000\n  selector")
    send = f"send: {{protocol: {sent}}}"
    probes = {
        "node": f"from: outside, to: {{address: 172.18.0.2, port: 31000}}, {send}",
        "healthz": f"from: outside, to: {{address: 172.18.0.2, port: 10256}}, {send}",
        "pod": f"from: outside, to: {{pod: web, port: 31000}}, {send}",
        "another port": f"from: outside, to: {{address: 172.18.0.2, port: 31001}}, {send}",
    }
    found = answers(cluster_of(NETWORK, checked, probes=probes))
    assert {name: each.outcomes for name, each in found.items()} == {
        "node": (outcome,),
        "healthz": (outcome,),
        "pod": (Outcome.REFUSED,),
        "another port": (Outcome.REFUSED,),
    }


def test_slices_that_disagree_about_an_endpoint_are_outside_the_reach() -> None:
    def of(name: str, *, ready: bool) -> str:
        end = f"{{addresses: [10.244.0.10], conditions: {{ready: {str(ready).lower()}}}, nodeName: node-a}}"
        head = f"metadata: {{name: {name}, labels: {{kubernetes.io/service-name: web}}}}\naddressType: IPv4"
        kind = "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice"
        return f"{kind}\n{head}\nports: [{{port: 8080}}]\nendpoints: [{end}]"

    service = SERVICE.replace("  selector: {app: web}\n", "")
    probes = {"p": "from: client, to: {service: web, via: clusterIP, family: IPv4}"}
    alike = cluster_of(NETWORK, service, of("a", ready=True), of("b", ready=True), probes=probes)
    assert [each.name for each in answers(alike)["p"].reached] == ["web"]
    apart = cluster_of(NETWORK, service, of("a", ready=True), of("b", ready=False), probes=probes)
    why = "two EndpointSlices disagree about 10.244.0.10, and no document says which one counts"
    assert answers(apart)["p"].outside == why


ALONE = NETWORK.replace("far: {nodes: [node-b], labels: {app: web}", "far: {nodes: [node-b]")
BALANCED = f'{ALONE}loadBalancers: {{edge: {{pool: [192.0.2.0/28, "2001:db8:192::/64"], healthChecked: true}}}}\n'


@pytest.mark.parametrize(("family", "address"), [("IPv4", "192.0.2.1"), ("IPv6", "2001:db8:192::1")])
def test_a_balancer_leaves_out_nodes_that_do_not_answer_its_checks(family: str, address: str) -> None:
    to = f"to: {{service: web, via: loadBalancerIP, family: {family}"
    probes = {"p": f"from: outside, {to}}}", "named": f"from: outside, {to}, node: node-a}}"}
    service = LOCAL.replace("  loadBalancerSourceRanges: [198.51.100.0/24]\n", "")
    found = answers(cluster_of(BALANCED, service, probes=probes))
    assert found["p"].outcomes == (Outcome.DELIVERED,)
    assert "balancer-leaves-out-nodes" in found["p"].rows["outcome"]
    assert "balancer-leaves-out-nodes" not in found["named"].rows["outcome"]
    closed = configuration('nodePortAddresses: [127.0.0.0/8, "::1/128"]')
    why = f"router has no way to {address} at present"
    assert answers(cluster_of(BALANCED, service, closed, probes=probes))["p"].outside == why


def test_a_name_gives_the_first_family_that_has_addresses() -> None:
    service = "apiVersion: v1\nkind: Service\nmetadata: {name: db}\n"
    service += "spec: {clusterIP: None, ipFamilyPolicy: RequireDualStack, ports: [{port: 8080}]}"
    head = "metadata: {name: db-1, labels: {kubernetes.io/service-name: db}}\naddressType: IPv6"
    ends = 'ports: [{port: 8080}]\nendpoints: [{addresses: ["fd00:10:244::a"]}]'
    slices = f"apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\n{head}\n{ends}"
    text = cluster_of(NETWORK, service, slices, probes={"p": "from: client, to: {service: db, via: dnsName}"})
    moment, assembly = moment_and_assembly(text)
    asked = ask(assembly, assembly.scenario.probes[0], moment, Oracle(moment))
    assert asked.name is not None
    assert [str(each) for each in asked.name.addresses] == ["fd00:10:244::a"]
    assert [end.name for _, answer in asked.flows for end in answer.reached] == ["web"]


@pytest.mark.parametrize("family", ["IPv4", "IPv6"])
def test_an_echo_request_is_answered_by_the_pod_that_has_the_address(family: str) -> None:
    shared = NETWORK.replace("  client:", "  duo: {replicas: 2, nodes: [node-a], sharedNetns: true}\n  client:")
    probes = {"p": f"from: client, to: {{pod: duo-2, family: {family}}}, send: {{protocol: ICMP}}"}
    answer = answers(cluster_of(shared, probes=probes))["p"]
    assert [end.name for end in answer.reached] == ["duo-2"]
    assert answer.rows["outcome"] == ("echo-is-answered",)


@pytest.mark.parametrize(
    ("mode", "version", "settings", "outside"),
    [
        ("iptables", (1, 24), "", ""),
        ("iptables", (1, 23), "", "the rows state what holds since Kubernetes 1.24"),
        ("nftables", (1, 31), "", ""),
        ("nftables", (1, 30), "", "mode nftables is alpha before Kubernetes 1.31"),
        ("ipvs", (1, 37), "", ""),
        (
            "userspace",
            (1, 25),
            "",
            "a process of the node ends connections in mode userspace, which Kubernetes removed in 1.26",
        ),
        (
            "iptables",
            (1, 25),
            "featureGates: {ProxyTerminatingEndpoints: true}",
            "the configuration sets the feature gate ProxyTerminatingEndpoints, and rows state only defaults",
        ),
    ],
)
def test_the_oracle_answers_about_these_proxies_alone(
    mode: str, version: tuple[int, int], settings: str, outside: str
) -> None:
    probes = {"p": "from: client, to: {service: web, via: clusterIP, family: IPv4}"}
    answer = answers(cluster_of(NETWORK, SERVICE, configuration(settings), probes=probes), mode, version)["p"]
    assert answer.outside == outside
    assert bool(answer.outcomes) is not bool(outside)


@pytest.mark.parametrize(
    ("mode", "settings", "row", "outcome"),
    [
        ("iptables", "", "node-port-on-localhost/iptables", Outcome.DELIVERED),
        ("iptables", "iptables: {localhostNodePorts: false}", "node-port-off-localhost", Outcome.REFUSED),
        ("iptables", "nodePortAddresses: [172.18.0.0/16]", "node-port-addresses-outside", Outcome.REFUSED),
        ("iptables", "nodePortAddresses: [primary]", "node-port-addresses-outside", Outcome.REFUSED),
        ("iptables", "nodePortAddresses: [127.0.0.0/8]", "node-port-on-localhost/iptables", Outcome.DELIVERED),
        ("nftables", "", "node-port-on-localhost/others", Outcome.REFUSED),
        ("nftables", "nodePortAddresses: [0.0.0.0/0]", "node-port-on-localhost/others", Outcome.REFUSED),
    ],
)
def test_a_node_port_on_localhost_has_its_reason(mode: str, settings: str, row: str, outcome: Outcome) -> None:
    probes = {"p": "from: {name: node-a, loopback: true}, to: {address: 127.0.0.1, port: 30080}"}
    answer = answers(cluster_of(NETWORK, SERVICE, configuration(settings), probes=probes), mode)["p"]
    assert answer.outcomes == (outcome,)
    assert row in answer.rows["outcome"]


@pytest.mark.parametrize(
    ("mode", "outcome"),
    [("iptables", Outcome.UNTRANSLATED), ("ipvs", Outcome.UNTRANSLATED), ("nftables", Outcome.DROPPED)],
)
def test_an_echo_request_to_an_unassigned_address_fares_as_any_packet(mode: str, outcome: Outcome) -> None:
    probes = {"p": "from: client, to: {address: 10.96.255.254}, send: {protocol: ICMP, as: packet}"}
    assert answers(cluster_of(NETWORK, SERVICE, probes=probes), mode)["p"].outcomes == (outcome,)
