"""The oracle says where the network plugin leads host ports, whom it masquerades, and which port comes first."""

import pytest
from oracle_worlds import answers, cluster_of, sources

from proxylab.scenario.words import Outcome

CLUSTER = """
nodes: {node-1: {internalIPs: [172.18.0.2]}, node-2: {internalIPs: [172.18.0.3]}}
pods:
  web: {nodes: [node-1], ports: [{port: 8080, hostPort: 30080}, {port: 8081, hostPort: 81, hostIP: 127.0.0.1}]}
  echo: {nodes: [node-2], labels: {app: echo}, ports: [8080]}
  near: {nodes: [node-1]}
  far: {nodes: [node-2]}
hosts: {outside: {}}
"""
SERVICE = """
apiVersion: v1
kind: Service
metadata: {name: echo}
spec: {type: NodePort, selector: {app: echo}, ports: [{port: 80, targetPort: 8080, nodePort: 30080}]}
"""
MODES = ["iptables", "nftables", "ipvs"]
AT_80 = "to: {pod: web, via: hostPort, port: 8080}"
CLIENT, FAR = "203.0.113.10", "10.244.1.11"


@pytest.mark.parametrize("mode", MODES)
def test_a_host_port_leads_to_the_pod_and_hides_its_own_network_alone(mode: str) -> None:
    probes = {name: f"from: {name}, {AT_80}" for name in ("outside", "far", "near", "web", "node-1")}
    found = answers(cluster_of(CLUSTER, probes=probes), mode)
    assert {each.outcomes for each in found.values()} == {(Outcome.DELIVERED,)}
    assert sources(found["outside"]) == {"web": CLIENT}
    assert sources(found["far"]) == {"web": FAR}
    masqueraded = {name for name, each in found.items() if each.reached[0].sources[0].is_masqueraded}
    assert masqueraded == {"near", "web"}


def test_a_host_port_at_localhost_is_served_there_alone() -> None:
    probes = {
        "own": "from: node-1, to: {address: 127.0.0.1, port: 81}",
        "other": "from: outside, to: {address: 172.18.0.2, port: 81}",
    }
    found = answers(cluster_of(CLUSTER, probes=probes))
    assert [each.name for each in found["own"].reached] == ["web"]
    assert found["other"].outcomes == (Outcome.REFUSED,)


@pytest.mark.parametrize(("mode", "reached"), [("iptables", "echo"), ("nftables", "echo"), ("ipvs", "web")])
def test_a_node_port_of_its_number_wins_but_in_mode_ipvs(mode: str, reached: str) -> None:
    (found,) = answers(cluster_of(CLUSTER, SERVICE, probes={"it": f"from: outside, {AT_80}"}), mode).values()
    assert [each.name for each in found.reached] == [reached]
    assert found.reached[0].sources[0].is_masqueraded, "also where the pod has it: the proxy has marked the packet"
