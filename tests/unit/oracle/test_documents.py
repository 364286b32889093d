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


# https://kubernetes.io/docs/reference/labels-annotations-taints/#node-kubernetes-io-exclude-from-external-load-balancers
# The page's command sets the value true; https://github.com/kubernetes/kubernetes/pull/131085 has the others.
EXCLUDED = "node.kubernetes.io/exclude-from-external-load-balancers"


@pytest.mark.parametrize(
    ("value", "is_left_out"), [("true", True), ("", True), ("no", True), ("false", False), ("0", False), (None, False)]
)
@pytest.mark.parametrize("policy", ["Cluster", "Local"])
def test_a_load_balancer_leaves_out_a_node_by_its_label(value: str | None, is_left_out: bool, policy: str) -> None:
    labels = "{}" if value is None else f'{{labels: {{{EXCLUDED}: "{value}"}}}}'
    cluster = CLUSTER.replace("node-2: {}", f"node-2: {labels}").replace("nodes: [node-1], labels", "labels")
    cluster = cluster.replace("endpoint: {", "endpoint: {replicas: 2, nodes: [node-1, node-2], ")
    to = "to: {service: app, via: loadBalancerIP}"
    named = "to: {service: app, via: loadBalancerIP, node: node-2}"
    probes = {"outside": f"from: client, {to}", "pod": f"from: far, {to}", "named": f"from: client, {named}"}
    found = answers(cluster_of(cluster, SERVICE.format(kind="LoadBalancer", policy=policy), probes=probes))
    entered = {seen.address for end in found["outside"].reached for seen in end.sources if seen.is_masqueraded}
    if policy == "Local":
        assert [each.name for each in found["outside"].reached] == ["endpoint-1"] + ["endpoint-2"] * (not is_left_out)
    else:
        assert (ip_address(NODE_2) in entered) is not is_left_out
    said = "balancer-leaves-out-excluded"
    assert (said in found["outside"].rows["outcome"]) is is_left_out
    assert said not in found["pod"].rows["outcome"], "a pod's own node translates"
    assert said not in found["named"].rows["outcome"], "the probe chooses the node"
    assert found["named"].outcomes == (Outcome.DELIVERED,)


# KEP-2447, "Overview"; KEP-1860, "Proposal"; and the page of labels on service.kubernetes.io/headless.
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("label", "row"),
    [
        ('service.kubernetes.io/service-proxy-name: ""', "of-another-proxy"),
        ("service.kubernetes.io/service-proxy-name: mesh", "of-another-proxy"),
        ('service.kubernetes.io/headless: ""', "labelled-headless"),
    ],
)
def test_a_service_with_a_label_of_exclusion_does_not_exist_to_a_proxy(mode: str, label: str, row: str) -> None:
    service = SERVICE.format(kind="LoadBalancer", policy="Local").replace(
        "name: app", f"name: app, labels: {{{label}}}"
    )
    to = "to: {service: app, via: %s, node: node-1}"
    probes = {
        "address": f"from: client, {to % 'loadBalancerIP'}",
        "node port": f"from: client, {to % 'nodePort'}",
        "check": f"from: client, {to % 'healthCheckNodePort'}",
    }
    found = answers(cluster_of(CLUSTER, service, probes=probes), mode)
    assert found["address"].outcomes == (Outcome.UNTRANSLATED,)
    assert found["address"].rows["outcome"] == (row,)
    assert found["node port"].outcomes == found["check"].outcomes == (Outcome.REFUSED,)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("ip_mode", "outcome"), [("VIP", Outcome.DELIVERED), ("Proxy", Outcome.UNTRANSLATED)])
def test_ip_mode_proxy_leaves_the_address_to_the_load_balancer(mode: str, ip_mode: str, outcome: Outcome) -> None:
    status = f"status: {{loadBalancer: {{ingress: [{{ip: 192.0.2.9, ipMode: {ip_mode}}}]}}}}"
    service = SERVICE.format(kind="LoadBalancer", policy="Cluster") + status
    probes = {who: f"from: {who}, to: {{service: app, via: loadBalancerIP}}" for who in ("near", "node-1")}
    found = answers(cluster_of(CLUSTER, service, probes=probes), mode)
    assert {each.outcomes for each in found.values()} == {(outcome,)}
    assert all(("ip-mode-proxy" in each.rows["outcome"]) is (ip_mode == "Proxy") for each in found.values())


# KEP-1672, "Design Details": the comments of the fields of EndpointConditions.
@pytest.mark.parametrize(
    ("conditions", "serves", "serves_last"),
    [
        ("{}", True, True),  # a nil ready counts as ready
        ("{ready: true}", True, True),
        ("{ready: false}", False, False),
        ("{ready: false, serving: true}", False, False),  # a nil terminating: it does not terminate
        ("{ready: false, serving: true, terminating: true}", False, True),
        ("{ready: false, serving: false, terminating: true}", False, False),
        ("{ready: false, terminating: true}", False, False),  # a nil serving is as ready is
    ],
)
def test_conditions_mean_what_the_fields_comments_say(conditions: str, serves: bool, serves_last: bool) -> None:
    service = CLUSTER_IP.replace("selector: {app: source-ip-app}, ", "")
    slice_ = """
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: app-1, labels: {kubernetes.io/service-name: app}}
addressType: IPv4
ports: [{port: 8080}]
endpoints:
"""
    this = f"- {{addresses: [10.244.0.10], nodeName: node-1, conditions: {conditions}}}\n"
    ready = "- {addresses: [10.244.1.10], nodeName: node-2}\n"
    probes = {"flow": "from: near, to: {service: app, via: clusterIP}"}
    beside = answers(cluster_of(CLUSTER, service, slice_ + this + ready, probes=probes))["flow"]
    alone = answers(cluster_of(CLUSTER, service, slice_ + this, probes=probes))["flow"]
    assert ("10.244.0.10" in {str(each.address) for each in beside.reached}) is serves
    assert (alone.outcomes == (Outcome.DELIVERED,)) is serves_last
    assert ("terminating-is-not-ready" in beside.rows["endpoints"]) is (serves_last and not serves)
