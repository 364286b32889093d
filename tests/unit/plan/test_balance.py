"""Which nodes a balancer checks, and which node then has an address."""

from ipaddress import ip_address, ip_network

import pytest

from proxylab.cluster.objects import LoadBalancerIngress, Service, ServiceType, TrafficPolicy
from proxylab.plan.balance import Followed, follow, followed_route, pool_routes, shared_route
from proxylab.plan.model import Balancer, NextHop, Route

NODES = {
    "node-a": (ip_address("172.18.0.2"), ip_address("fd00:172:18::2")),
    "node-b": (ip_address("172.18.0.3"), ip_address("fd00:172:18::3")),
}
POOL = (ip_network("192.0.2.0/28"), ip_network("2001:db8::/64"))
EDGE = Balancer(name="edge", pool=POOL, nodes=NODES, device="nodes", health_checked=True)
BLIND = Balancer(name="blind", pool=POOL, nodes=NODES, device="nodes", health_checked=False)


def service(*addresses: str, port: int = 30900) -> Service:
    return Service(
        name="web",
        type=ServiceType.LOAD_BALANCER,
        external_traffic_policy=TrafficPolicy.LOCAL,
        health_check_node_port=port,
        load_balancer_ingress=tuple(LoadBalancerIngress(ip=ip_address(address)) for address in addresses),
    )


def test_each_address_asks_the_nodes_in_its_own_family() -> None:
    found = follow([EDGE], [service("192.0.2.1", "2001:db8::1")], ())
    assert [(str(each.address), each.port, [str(node) for node in each.nodes.values()]) for each in found] == [
        ("192.0.2.1", 30900, ["172.18.0.2", "172.18.0.3"]),
        ("2001:db8::1", 30900, ["fd00:172:18::2", "fd00:172:18::3"]),
    ]


@pytest.mark.parametrize(
    ("balancer", "asked"),
    [
        (BLIND, service("192.0.2.1")),
        (EDGE, service("192.0.2.1", port=0)),
        (EDGE, service("198.51.100.1")),
        (EDGE, Service(name="web", type=ServiceType.NODE_PORT, health_check_node_port=30900)),
    ],
    ids=["no health check", "no health-check node port", "another pool", "no load balancer"],
)
def test_addresses_without_health_checks_are_not_followed(balancer: Balancer, asked: Service) -> None:
    assert follow([balancer], [asked], ()) == ()


def test_an_excluded_node_is_not_asked() -> None:
    found = follow([EDGE], [service("192.0.2.1", "2001:db8::1")], {"node-a", "stranger"})
    assert [list(each.nodes) for each in found] == [["node-b"], ["node-b"]]


@pytest.mark.parametrize(
    ("excluded", "ways"), [((), [["a", "b"]] * 2), (("node-a",), [["b"]] * 2), (("node-a", "node-b"), [[], []])]
)
def test_pools_go_to_the_nodes_that_no_label_excludes(excluded: tuple[str, ...], ways: list[list[str]]) -> None:
    routes = pool_routes([BLIND], excluded)
    assert tuple(each.destination for each in routes) == POOL
    names = {address: name[-1] for name, addresses in NODES.items() for address in addresses}
    assert [[names[hop] for hop in (each.via, *(one.via for one in each.hops)) if hop] for each in routes] == ways
    assert [each.unreachable for each in routes] == [not way for way in ways]


VIP = ip_network("192.0.2.1/32")


@pytest.mark.parametrize(
    ("healthy", "route"),
    [
        ([], Route(VIP, "nodes", unreachable=True)),
        (["node-b"], Route(VIP, "nodes", via=ip_address("172.18.0.3"))),
        (
            ["node-b", "node-a", "stranger"],
            Route(
                VIP,
                "nodes",
                hops=(NextHop("nodes", ip_address("172.18.0.2")), NextHop("nodes", ip_address("172.18.0.3"))),
            ),
        ),
    ],
)
def test_healthy_nodes_share_the_address(healthy: list[str], route: Route) -> None:
    nodes = {name: addresses[0] for name, addresses in NODES.items()}
    followed = Followed(address=ip_address("192.0.2.1"), port=30900, nodes=nodes, device="nodes")
    assert followed_route(followed, healthy) == route


def test_a_single_way_is_no_multipath_route() -> None:
    way = ip_address("172.18.0.2")
    assert shared_route(VIP, "nodes", [way]) == Route(VIP, "nodes", via=way)
