"""The examples of Kubernetes' documents, typed in as data: the tutorial on source IPs, and KEP-3015's three steps.

https://kubernetes.io/docs/tutorials/services/source-ip/ and
https://github.com/kubernetes/enhancements/tree/master/keps/sig-network/3015-prefer-same-node#design-details
"""

from ipaddress import ip_address

import pytest
from oracle_worlds import answers, cluster_of, sources

from proxylab.cluster.configuration import Mode
from proxylab.cluster.objects import Endpoint, Service
from proxylab.oracle.choice import Candidate, choose
from proxylab.oracle.setting import ProxySetting
from proxylab.scenario.versions import Version
from proxylab.scenario.words import Outcome

CLUSTER = """
nodes: {node-1: {}, node-2: {}}
pods:
  endpoint: {nodes: [node-1], labels: {app: source-ip-app}, ports: [8080]}
  near: {nodes: [node-1]}
  far: {nodes: [node-2]}
hosts: {client: {}}
loadBalancers: {edge: {pool: [192.0.2.0/28]}}
"""
SERVICE = """
apiVersion: v1
kind: Service
metadata: {{name: app}}
spec:
  type: {kind}
  externalTrafficPolicy: {policy}
  selector: {{app: source-ip-app}}
  ports: [{{port: 80, targetPort: 8080}}]
"""
CLUSTER_IP = """
apiVersion: v1
kind: Service
metadata: {name: app}
spec: {selector: {app: source-ip-app}, ports: [{port: 80, targetPort: 8080}]}
"""
MODES = ["iptables", "nftables", "ipvs"]
CLIENT, NODE_2 = "203.0.113.10", "172.18.0.3"


@pytest.mark.parametrize("mode", MODES)
def test_cluster_ip_keeps_the_address_of_a_pod_on_the_same_node_or_another(mode: str) -> None:
    to = "to: {service: app, via: clusterIP}"
    found = answers(
        cluster_of(CLUSTER, CLUSTER_IP, probes={"same": f"from: near, {to}", "other": f"from: far, {to}"}), mode
    )
    assert sources(found["same"]) == {"endpoint": "10.244.0.11"}
    assert sources(found["other"]) == {"endpoint": "10.244.1.10"}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("kind", "via"), [("NodePort", "nodePort"), ("LoadBalancer", "loadBalancerIP")])
def test_packets_from_outside_are_masqueraded_by_the_node_that_gets_them(mode: str, kind: str, via: str) -> None:
    probes = {node: f"from: client, to: {{service: app, via: {via}, node: {node}}}" for node in ("node-1", "node-2")}
    found = answers(cluster_of(CLUSTER, SERVICE.format(kind=kind, policy="Cluster"), probes=probes), mode)
    assert {node: each.outcomes for node, each in found.items()} == dict.fromkeys(probes, (Outcome.DELIVERED,))
    assert all(seen.is_masqueraded for each in found.values() for end in each.reached for seen in end.sources)
    if kind == "NodePort":
        assert sources(found["node-2"]) == {"endpoint": NODE_2}


@pytest.mark.parametrize("mode", MODES)
def test_policy_local_keeps_the_client_and_drops_on_the_other_node(mode: str) -> None:
    probes = {node: f"from: client, to: {{service: app, via: nodePort, node: {node}}}" for node in ("node-1", "node-2")}
    found = answers(cluster_of(CLUSTER, SERVICE.format(kind="NodePort", policy="Local"), probes=probes), mode)
    assert sources(found["node-1"]) == {"endpoint": CLIENT}
    assert found["node-2"].outcomes == (Outcome.DROPPED,)
    assert found["node-2"].at == ("node-2",)
    assert "external-local-elsewhere" in found["node-2"].rows["outcome"]


@pytest.mark.parametrize("mode", MODES)
def test_a_load_balancer_with_policy_local_keeps_the_client_and_checks_the_nodes(mode: str) -> None:
    service = SERVICE.format(kind="LoadBalancer", policy="Local")
    probes = {
        node: f"from: client, to: {{service: app, via: healthCheckNodePort, node: {node}}}"
        for node in ("node-1", "node-2")
    }
    probes["request"] = "from: client, to: {service: app, via: loadBalancerIP, node: node-1}"
    found = answers(cluster_of(CLUSTER, service, probes=probes), mode)
    assert sources(found["request"]) == {"endpoint": CLIENT}
    checks = {node: found[node].health for node in ("node-1", "node-2")}
    assert {node: each and (each.status, each.local_endpoints) for node, each in checks.items()} == {
        "node-1": (200, 1),
        "node-2": (503, 0),
    }
    assert "health-check-with-endpoint" in found["node-1"].rows["outcome"]
    assert "health-check-without-endpoint" in found["node-2"].rows["outcome"]


A, B, C = ("node-a", "zone-1"), ("node-b", "zone-1"), ("node-c", "zone-2")
PREFERENCES: list[tuple[str, list[tuple[str, str]], tuple[str, str], Version, set[str]]] = [
    ("an endpoint on the node", [A, B, C], A, (1, 34), {"node-a"}),
    ("none on the node, but in its zone", [B, C], A, (1, 34), {"node-b"}),
    ("neither on the node nor in its zone", [C], A, (1, 34), {"node-c"}),
    ("a proxy that knows no hints for nodes", [A, B, C], A, (1, 33), {"node-a", "node-b"}),
    ("a proxy that knows no hints without an annotation", [A, B, C], A, (1, 30), {"node-a", "node-b", "node-c"}),
]


@pytest.mark.parametrize(
    ("case", "ends", "client", "version", "expected"),
    PREFERENCES,
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_prefer_same_node_takes_the_nearest_that_has_an_endpoint(
    case: str, ends: list[tuple[str, str]], client: tuple[str, str], version: Version, expected: set[str]
) -> None:
    candidates = [
        Candidate(
            Endpoint(addresses=(ip_address(f"10.0.0.{n}"),), node_name=node, for_nodes=(node,), for_zones=(zone,)), 80
        )
        for n, (node, zone) in enumerate(ends)
    ]
    setting = ProxySetting(mode=Mode.NFTABLES, version=version)
    choice = choose(Service(name="s"), candidates, setting, node=client[0], zone=client[1], is_local=False)
    assert {each.endpoint.node_name for each in choice.chosen} == expected, case


def test_an_old_proxy_follows_hints_of_a_service_that_asks_for_it() -> None:
    candidates = [
        Candidate(Endpoint(addresses=(ip_address(f"10.0.0.{n}"),), node_name=node, for_zones=(zone,)), 80)
        for n, (node, zone) in enumerate([A, C])
    ]
    setting = ProxySetting(mode=Mode.IPTABLES, version=(1, 27))
    service = Service(name="s", annotations={"service.kubernetes.io/topology-mode": "Auto"})
    choice = choose(service, candidates, setting, node="node-b", zone="zone-1", is_local=False)
    assert [each.endpoint.node_name for each in choice.chosen] == ["node-a"]


@pytest.mark.parametrize(("zones", "nodes"), [(("zone-1",), ()), ((), ("node-a",))])
def test_a_choice_under_local_says_that_hints_do_not_count(zones: tuple[str, ...], nodes: tuple[str, ...]) -> None:
    end = Endpoint(addresses=(ip_address("10.0.0.1"),), node_name="node-a", for_zones=zones, for_nodes=nodes)
    setting = ProxySetting(mode=Mode.IPTABLES, version=(1, 37))
    choice = choose(Service(name="s"), [Candidate(end, 80)], setting, node="node-a", zone="", is_local=True)
    assert choice.rows == ("local-endpoints", "ready-endpoints", "hints-under-local")


@pytest.mark.parametrize(("version", "is_used"), [((1, 25), False), ((1, 26), True)])
@pytest.mark.parametrize("is_local", [False, True])
def test_endpoints_that_terminate_serve_since_1_26_where_none_is_ready(
    version: Version, is_used: bool, is_local: bool
) -> None:
    end = Endpoint(addresses=(ip_address("10.0.0.1"),), node_name="node-a", ready=False, terminating=True)
    setting = ProxySetting(mode=Mode.IPTABLES, version=version)
    for node in ("node-a", "node-b"):
        choice = choose(Service(name="s"), [Candidate(end, 80)], setting, node=node, zone="", is_local=is_local)
        is_here = node == "node-a" or not is_local
        assert bool(choice.chosen) is (is_used and is_here)
        assert choice.is_elsewhere is (is_used and not is_here)
        assert any(row.startswith("terminating-endpoints") for row in choice.rows) is is_here
