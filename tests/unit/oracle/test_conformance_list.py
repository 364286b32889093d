"""The fifteen entries about Services in Kubernetes' conformance list, as questions to the oracle.

https://github.com/kubernetes/kubernetes/blob/v1.37.2/test/conformance/testdata/conformance.yaml, the entries whose code
names begin with ``[sig-network] Services``. Three of them are about the API alone.
"""

from collections.abc import Mapping

import pytest
from oracle_worlds import answers, cluster_of, moment_and_assembly

from proxylab.addresses import Family
from proxylab.oracle.names import resolve_name
from proxylab.scenario.words import Outcome

ABOUT_THE_API = [
    "complete a service status lifecycle",
    "delete a collection of services",
    "find a service from listing all namespaces",
]
ABOUT_PACKETS = [
    "change the type from ClusterIP to ExternalName",
    "change the type from ExternalName to ClusterIP",
    "change the type from ExternalName to NodePort",
    "change the type from NodePort to ExternalName",
    "create a functioning NodePort service",
    "switch session affinity for NodePort service",
    "switch session affinity for service with type clusterIP",
    "have session affinity work for NodePort service",
    "have session affinity work for service with type clusterIP",
    "serve a basic endpoint from pods",
    "serve endpoints on same port and different protocols",
    "serve multiport endpoints from pods",
]

PODS = """
nodes: {node-a: {}, node-b: {}}
pods:
  web: {replicas: 3, nodes: [node-a, node-b], labels: {app: web}, ports: [8080, {port: 8080, protocol: UDP}]}
  one: {nodes: [node-a], labels: {app: multi}, ports: [{name: first, port: 100}]}
  two: {nodes: [node-b], labels: {app: multi}, ports: [{name: second, port: 101}]}
  client: {nodes: [node-a]}
dns: {}
"""
ADDRESS, NODE_PORT = "10.96.0.100", 30080
BY_ADDRESS = f"from: client, to: {{address: {ADDRESS}, port: 80}}"
BY_NODE_PORT = f"from: client, to: {{address: 172.18.0.3, port: {NODE_PORT}}}"
EXTERNAL_NAME = "spec: {type: ExternalName, externalName: foo.example.org}"
CLUSTER_IP = f"spec: {{clusterIP: {ADDRESS}, selector: {{app: web}}, ports: [{{port: 80, targetPort: 8080}}]}}"
NODE_PORTED = (
    f"spec: {{type: NodePort, clusterIP: {ADDRESS}, selector: {{app: web}}, "
    f"ports: [{{port: 80, targetPort: 8080, nodePort: {NODE_PORT}}}]}}"
)
WEB = {"web-1", "web-2", "web-3"}
MODES = ["iptables", "nftables", "ipvs"]


def world(spec: str, probes: Mapping[str, str], further: str = "") -> str:
    sticky = spec.replace("selector:", f"{further}, selector:") if further else spec
    return cluster_of(PODS, f"apiVersion: v1\nkind: Service\nmetadata: {{name: web}}\n{sticky}", probes=probes)


def backends(answer: object) -> set[str]:
    return {each.name for each in answer.reached}  # type: ignore[attr-defined]


def test_the_list_has_fifteen_entries() -> None:
    assert len(ABOUT_THE_API) + len(ABOUT_PACKETS) == 15


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("before", [CLUSTER_IP, NODE_PORTED])
def test_a_service_that_becomes_an_external_name_is_not_proxied_any_more(mode: str, before: str) -> None:
    probes = {"cluster IP": BY_ADDRESS, "node port": BY_NODE_PORT}
    served = answers(world(before, probes), mode)
    assert served["cluster IP"].outcomes == (Outcome.DELIVERED,)
    assert backends(served["cluster IP"]) == WEB
    after = world(EXTERNAL_NAME, probes)
    found = answers(after, mode)
    # Mode nftables drops what is for an address that no Service has.
    assert found["cluster IP"].outcomes == ((Outcome.DROPPED,) if mode == "nftables" else (Outcome.UNTRANSLATED,))
    assert found["node port"].outcomes == (Outcome.REFUSED,)
    moment, _ = moment_and_assembly(after, mode)
    answer = resolve_name(moment, moment.services["default", "web"], Family.IPV4)
    assert (answer.alias, answer.addresses) == ("foo.example.org", frozenset())


@pytest.mark.parametrize("mode", MODES)
def test_an_external_name_that_becomes_a_node_port_is_served_everywhere(mode: str) -> None:
    text = world(NODE_PORTED, {"cluster IP": BY_ADDRESS, "node port": BY_NODE_PORT})
    found = answers(text, mode)
    assert {name: (each.outcomes, backends(each)) for name, each in found.items()} == dict.fromkeys(
        found, ((Outcome.DELIVERED,), WEB)
    )
    moment, _ = moment_and_assembly(text, mode)
    assert {str(each) for each in resolve_name(moment, moment.services["default", "web"], Family.IPV4).addresses} == {
        ADDRESS
    }


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("spec", [CLUSTER_IP, NODE_PORTED])
def test_session_affinity_keeps_a_client_at_one_pod_and_none_does_not(mode: str, spec: str) -> None:
    probes = {"cluster IP": BY_ADDRESS} | ({"node port": BY_NODE_PORT} if spec is NODE_PORTED else {})
    loose = answers(world(spec, probes), mode)
    sticky = answers(world(spec, probes, "sessionAffinity: ClientIP"), mode)
    assert {each.sticky for each in loose.values()} == {None}
    assert {each.sticky for each in sticky.values()} == {10800}
    assert all(backends(each) == WEB for each in (*loose.values(), *sticky.values()))


@pytest.mark.parametrize("mode", MODES)
def test_one_number_over_two_protocols_leads_to_both_and_to_one_that_is_left(mode: str) -> None:
    both = "[{name: t, port: 80, targetPort: 8080}, {name: u, port: 80, targetPort: 8080, protocol: UDP}]"
    probes = {"TCP": BY_ADDRESS, "UDP": f"{BY_ADDRESS}, send: {{protocol: UDP}}"}
    spec = f"spec: {{clusterIP: {ADDRESS}, selector: {{app: web}}, ports: {both}}}"
    assert {name: each.outcomes for name, each in answers(world(spec, probes), mode).items()} == dict.fromkeys(
        probes, (Outcome.DELIVERED,)
    )
    for left, gone in (("TCP", "UDP"), ("UDP", "TCP")):
        ports = f"[{{name: x, port: 80, targetPort: 8080, protocol: {left}}}]"
        found = answers(world(spec.replace(both, ports), probes), mode)
        assert found[left].outcomes == (Outcome.DELIVERED,)
        assert Outcome.DELIVERED not in found[gone].outcomes


@pytest.mark.parametrize("mode", MODES)
def test_each_port_of_a_service_leads_to_the_pods_that_have_it(mode: str) -> None:
    ports = "[{name: a, port: 80, targetPort: first}, {name: b, port: 81, targetPort: second}]"
    spec = f"spec: {{clusterIP: {ADDRESS}, selector: {{app: multi}}, ports: {ports}}}"
    probes = {"first": BY_ADDRESS, "second": BY_ADDRESS.replace("port: 80", "port: 81")}
    found = answers(world(spec, probes), mode)
    assert {name: {(each.name, each.port) for each in answer.reached} for name, answer in found.items()} == {
        "first": {("one", 100)},
        "second": {("two", 101)},
    }


@pytest.mark.parametrize("mode", MODES)
def test_a_service_without_pods_serves_nothing(mode: str) -> None:
    found = answers(world(CLUSTER_IP.replace("app: web", "app: none"), {"cluster IP": BY_ADDRESS}), mode)
    assert found["cluster IP"].outcomes == (Outcome.REJECTED,)
    assert found["cluster IP"].rows["outcome"] == ("frontend-clusterIP", "no-endpoint")
