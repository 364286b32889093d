"""The way of a packet by the plan alone."""

from ipaddress import IPv4Address, IPv4Network, ip_address

import pytest
from msgspec.structs import replace
from network_scenarios import BASIC, TUNNELLED
from scenario_cases import two_nodes

from proxylab.plan.forwarding import UnreachableError, next_hop, path, route_to
from proxylab.plan.model import Plan, Route
from proxylab.plan.topology import draw

WIRES = {**BASIC, **TUNNELLED}


def netns_names(plan: Plan, start: str, destination: str) -> list[str]:
    return [hop.into.namespace for hop in path(plan, start, IPv4Address(destination))]


@pytest.mark.parametrize(
    ("start", "destination", "through"),
    [
        ("echo-1", "10.244.0.12", ["node-a", "sender"]),
        ("echo-1", "10.244.1.10", ["node-a", "node-b", "echo-2"]),
        ("echo-2", "203.0.113.10", ["node-b", "router", "client"]),
        ("client", "10.244.1.10", ["router", "node-b", "echo-2"]),
        ("node-b", "10.244.0.10", ["node-a", "echo-1"]),
        ("echo-1", "10.244.0.1", ["node-a"]),
        ("client", "203.0.113.10", []),
    ],
)
def test_way(start: str, destination: str, through: list[str]) -> None:
    assert netns_names(draw(two_nodes()), start, destination) == through


@pytest.mark.parametrize(
    ("network", "start", "destination", "through"),
    [
        ("bridge dual", "echo-1", "10.244.0.12", ["sender"]),
        ("bridge dual", "echo-1", "10.244.1.10", ["node-a", "node-b", "echo-2"]),
        ("bridge dual", "client", "fd00:10:244::a", ["router", "node-a", "echo-1"]),
        ("bridge dual", "echo-1", "10.244.0.1", ["node-a"]),
        ("unnumbered dual", "echo-1", "10.244.0.12", ["node-a", "sender"]),
        ("unnumbered dual", "echo-1", "fd00:10:244:1::a", ["node-a", "node-b", "echo-2"]),
        ("vxlan ptp dual", "echo-1", "10.244.1.10", ["node-a", "node-b", "echo-2"]),
        ("vxlan ptp dual", "node-a", "fd00:10:244:1::a", ["node-b", "echo-2"]),
        ("crowded", "neighbour", "198.51.100.7", ["router", "node-a"]),
        ("crowded", "disk", "172.18.0.3", ["router", "node-b"]),
    ],
)
def test_way_on_other_wires(network: str, start: str, destination: str, through: list[str]) -> None:
    hops = path(draw(WIRES[network]), start, ip_address(destination))
    assert [hop.into.namespace for hop in hops] == through


def test_the_way_into_a_bridge_or_tunnel_leads_to_its_own_mac() -> None:
    plan = draw(WIRES["vxlan bridge"])
    node_a, node_b = plan.namespace("node-a"), plan.namespace("node-b")
    into_bridge = next_hop(plan, "echo-1", IPv4Address("10.96.0.10")).into
    into_tunnel = next_hop(plan, "node-a", IPv4Address("10.244.1.10"))
    assert (into_bridge.device, into_bridge.mac) == ("cni0", node_a.bridges[0].mac)
    assert (into_tunnel.out.mac, into_tunnel.into.mac) == (node_a.vxlans[0].mac, node_b.vxlans[0].mac)


def test_cluster_ips_from_outside_go_to_the_first_node() -> None:
    hop = next_hop(draw(two_nodes()), "router", IPv4Address("10.96.0.10"))
    assert (hop.out.device, hop.into.namespace) == ("nodes", "node-a")


def test_longest_prefix_wins() -> None:
    plan = draw(two_nodes())
    assert route_to(plan.namespace("node-a"), IPv4Address("10.244.0.10")).device == "echo-1"
    assert route_to(plan.namespace("node-a"), IPv4Address("10.244.1.10")).device == "eth0"
    assert route_to(plan.namespace("node-a"), IPv4Address("10.244.1.10")).via == IPv4Address("172.18.0.3")


def with_routes(plan: Plan, name: str, *routes: Route) -> Plan:
    changed = (replace(each, routes=routes) if each.name == name else each for each in plan.namespaces)
    return replace(plan, namespaces=tuple(changed))


def test_missing_route_is_named() -> None:
    plan = with_routes(draw(two_nodes()), "node-a")
    with pytest.raises(UnreachableError, match=r"node-a has no route to 10\.244\.1\.10"):
        path(plan, "echo-1", IPv4Address("10.244.1.10"))


def test_a_missing_gateway_is_named() -> None:
    nowhere = Route(IPv4Network("0.0.0.0/0"), "eth0", IPv4Address("172.18.0.99"))
    with pytest.raises(UnreachableError, match=r"no device on the segment of node-b/eth0 has 172\.18\.0\.99"):
        path(with_routes(draw(two_nodes()), "node-b", nowhere), "node-b", IPv4Address("10.244.0.10"))


def test_a_packet_to_its_own_sender_is_refused() -> None:
    with pytest.raises(UnreachableError, match=r"10\.244\.0\.10 is echo-1's own address, and a packet to it"):
        next_hop(draw(two_nodes()), "echo-1", IPv4Address("10.244.0.10"))


def test_circle_is_found() -> None:
    back = Route(IPv4Network("10.244.1.0/24"), "eth0", IPv4Address("172.18.0.2"))
    with pytest.raises(UnreachableError, match="comes back to node-"):
        path(with_routes(draw(two_nodes()), "node-b", back), "echo-1", IPv4Address("10.244.1.10"))
