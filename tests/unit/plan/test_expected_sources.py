"""What masquerading gives the flows of a probe or stream, on each way that they may take."""

import pytest

from proxylab.errors import ScenarioError
from proxylab.plan.assembly import assemble
from proxylab.plan.expected_sources import ANY_BACKEND
from proxylab.scenario.load import parse_scenario

SCENARIO = """
apiVersion: proxylab/v1
kind: Scenario
metadata: {name: ways}
spec:
  network: {podNetwork: PODS, interNode: NODES}
  nodes: {node-a: {}, node-b: {}}
  pods:
    near: {nodes: [node-a], labels: {app: echo}, ports: [8080]}
    far: {nodes: [node-b], labels: {app: echo}, ports: [8080]}
    agent: {nodes: [node-a], labels: {app: echo}, ports: [8080], hostNetwork: true}
    client: {nodes: [node-a]}
  hosts: {outside: {}}
  loadBalancers: {edge: {pool: [192.0.2.16/28], nodes: [node-a, node-b]}}
  probes:
  - name: first
    from: FROM
    to: {service: echo, TO}
    expect: {outcome: delivered, source: masqueraded}
---
apiVersion: v1
kind: Service
metadata: {name: echo}
spec:
  type: LoadBalancer
  selector: {app: echo}
  ports: [{port: 80, targetPort: 8080, nodePort: 30080}]
status: {loadBalancer: {ingress: [{ip: 192.0.2.20}]}}
"""

UPLINK_A, UPLINK_B, GATEWAY_A, GATEWAY_B = "172.18.0.2", "172.18.0.3", "10.244.0.1", "10.244.1.1"
FROM_A = {("node-a", "near"): GATEWAY_A, ("node-a", "far"): UPLINK_A, ("node-a", "agent"): ""}
FROM_B = {("node-b", "near"): UPLINK_B, ("node-b", "far"): GATEWAY_B, ("node-b", "agent"): UPLINK_B}


def ways(sender: str, to: str, pods: str = "bridge", nodes: str = "host-gw") -> dict[tuple[str, str], str]:
    text = SCENARIO.replace("PODS", pods).replace("NODES", nodes).replace("FROM", sender).replace("TO", to)
    (resolved,) = assemble(parse_scenario(text, "f")).resolved_probes
    names = {each.address: each.name for each in resolved.receivers}
    return {(way.node, names[way.backend]): str(way.source or "") for way in resolved.masquerades}


@pytest.mark.parametrize(
    ("sender", "to", "expected"),
    [
        ("client", "via: clusterIP", FROM_A),
        ("client", "via: nodePort, node: node-a", FROM_A),
        ("client", "via: nodePort, node: node-b", FROM_B),
        ("client", "via: loadBalancerIP", FROM_A),
        ("outside", "via: nodePort, node: node-a", FROM_A),
        ("outside", "via: clusterIP, node: node-b", FROM_B),
        ("outside", "via: loadBalancerIP, node: node-b", FROM_B),
        ("outside", "via: loadBalancerIP", FROM_A | FROM_B),
        ("node-b", "via: nodePort, node: node-b", FROM_B),
        ("node-a", "via: nodePort, node: node-b", FROM_B),
        # A node's packet to one of its own addresses leaves by the loopback device and passes POSTROUTING.
        ("node-a", "via: clusterIP", FROM_A | {("node-a", "agent"): UPLINK_A}),
        ("agent", "via: clusterIP", FROM_A | {("node-a", "agent"): UPLINK_A}),
    ],
)
def test_the_nodes_that_may_translate_a_flow(sender: str, to: str, expected: dict[tuple[str, str], str]) -> None:
    assert ways(sender, to) == expected


@pytest.mark.parametrize(
    ("pods", "nodes", "near", "far"),
    [
        ("ptp", "host-gw", GATEWAY_A, UPLINK_A),
        ("bridge", "vxlan", GATEWAY_A, "10.244.0.0"),
        ("ptp-unnumbered", "host-gw", UPLINK_A, UPLINK_A),
    ],
)
def test_the_device_towards_the_backend_gives_the_address(pods: str, nodes: str, near: str, far: str) -> None:
    found = ways("client", "via: clusterIP", pods, nodes)
    assert (found["node-a", "near"], found["node-a", "far"]) == (near, far)


STREAMED = """
  streams:
    queries: {from: FROM, to: {service: echo, TO}}
  steps:
  - {name: one, expect: {queries: {source: SOURCE}}}
"""


def due(sender: str, to: str, source: str) -> dict[str, str]:
    """The sources that each backend of the stream must see."""
    text = SCENARIO.partition("  probes:")[0] + STREAMED.lstrip("\n") + "---" + SCENARIO.partition("---")[2]
    text = text.replace("PODS", "bridge").replace("NODES", "host-gw").replace("SOURCE", source)
    assembly = assemble(parse_scenario(text.replace("FROM", sender).replace("TO", to), "f"))
    return {name: str(address) for name, address in assembly.stream_sources[0]["queries"].items()}


def test_a_stream_is_masqueraded_to_another_address_for_each_backend() -> None:
    found = due("client", "via: nodePort, node: node-a", "masqueraded")
    assert (found["near"], found["far"]) == (GATEWAY_A, UPLINK_A)
    written = due("client", "via: nodePort, node: node-a", "{near: masqueraded, far: 192.0.2.7, agent: preserved}")
    assert written == {"near": GATEWAY_A, "far": "192.0.2.7", "agent": "10.244.0.11"}
    assert due("client", "via: clusterIP", "preserved") == {ANY_BACKEND: "10.244.0.11"}


def test_a_stream_is_masqueraded_nowhere_on_its_way_to_a_program_of_the_node_itself() -> None:
    assert "agent" not in due("outside", "via: nodePort, node: node-a", "masqueraded")
    written = due("outside", "via: nodePort, node: node-a", "{near: masqueraded, agent: masqueraded}")
    assert written == {"near": GATEWAY_A}


def test_the_address_of_a_nodes_device_depends_on_the_backend() -> None:
    """A node with an address in the network of the next hop leaves with that one, else with its first."""
    more = "addresses: [192.0.2.65/28], routes: [{to: 10.244.1.10/32, device: eth0, via: 192.0.2.66}]"
    text = (
        SCENARIO.replace("{node-a: {}", f"{{node-a: {{{more}}}").replace("PODS", "bridge").replace("NODES", "host-gw")
    )
    text = text.replace("FROM", "outside").replace("TO}", "via: nodePort, node: node-a}")
    text = text.replace("source: masqueraded", "source: {node: node-a, device: uplink}")
    (resolved,) = assemble(parse_scenario(text, "f")).resolved_probes
    names = {each.address: each.name for each in resolved.receivers}
    found = {names[way.backend]: str(way.source) for way in resolved.masquerades}
    assert (found["near"], found["far"]) == (UPLINK_A, "192.0.2.65")


def test_a_stream_that_may_enter_by_several_nodes_needs_an_address() -> None:
    said = r"f:\d+:\d+: step 'one': queries: expect.source: the stream may enter the cluster at node-a or node-b"
    with pytest.raises(ScenarioError, match=said):
        due("outside", "via: loadBalancerIP", "masqueraded")
