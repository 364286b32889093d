"""UDP flows that must go, sysctls that are written, and what the proxy answers over HTTP: all without a node."""

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from ipaddress import ip_network
from typing import Literal

import pytest
from msgspec.structs import replace
from rule_cases import HERE, LOCAL_OUTSIDE, Addresses, echo, endpoint, load_balancer, slice_of
from whole_ports import service_ports

from proxylab.addresses import Family, IPAddress, Protocol
from proxylab.cluster.configuration import ConntrackTimeouts
from proxylab.cluster.objects import Endpoint, ServicePort
from proxylab.engines.embedded.health import Health
from proxylab.engines.embedded.node import NodeFacts, node_port_addresses
from proxylab.engines.embedded.node_work import healthz, local_endpoints, proxy_sysctls, service_health
from proxylab.engines.embedded.ports import ClusterView, ServicePortInfo
from proxylab.engines.embedded.settings import ProxySettings
from proxylab.engines.embedded.udp import End, UdpReconciler

A = Addresses(Family.IPV4)
NOW = datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC)
PORTS = (ServicePort(name="dns", protocol=Protocol.UDP, port=53, target_port=5353, node_port=30053),)
DNS = load_balancer(A, name="dns", ports=PORTS, external_ips=(A.of("external", 9),))


@dataclass(frozen=True)
class Flow:
    destination: End
    reply_source: End


def ports(*endpoints: Endpoint) -> tuple[ServicePortInfo, ...]:
    return service_ports(ClusterView((DNS,), (slice_of(DNS, A, *endpoints),)), Family.IPV4, HERE)


def flow(kind: str, number: int, port: int, pod: int, pod_port: int = 5353) -> Flow:
    return Flow((A.of(kind, number), port), (A.of("pod", pod), pod_port))


FRONTS = [("cluster", 20, 53), ("external", 9, 53), ("node", 2, 30053), ("vip", 99, 30053), ("vip", 7, 53)]


@pytest.mark.parametrize("frontend", FRONTS)
def test_a_flow_to_an_endpoint_that_serves_may_stay(frontend: tuple[str, int, int]) -> None:
    is_stale = UdpReconciler()
    dying = endpoint(A, 11, ready=False, terminating=True)
    assert is_stale.update(ports(endpoint(A, 10), dying))
    assert not is_stale(flow(*frontend, 10))
    assert not is_stale(flow(*frontend, 11))
    assert is_stale(flow(*frontend, 12))
    assert is_stale(flow(*frontend, 10, pod_port=5354))
    assert is_stale(Flow((A.of(*frontend[:2]), frontend[2]), (A.of(*frontend[:2]), frontend[2]))), "a black hole"


def test_what_is_no_front_is_left_alone() -> None:
    is_stale = UdpReconciler()
    is_stale.update(ports(endpoint(A, 10)))
    assert not is_stale(flow("cluster", 21, 53, 12))
    assert not is_stale(flow("cluster", 20, 54, 12))


def test_a_service_without_node_port_has_no_frontend_of_port_0() -> None:
    inside = replace(DNS, ports=(replace(PORTS[0], node_port=0),))
    is_stale = UdpReconciler()
    assert is_stale.update(service_ports(ClusterView((inside,)), Family.IPV4, HERE))
    assert not is_stale(flow("node", 2, 0, 12))


def test_nothing_is_looked_through_while_no_udp_endpoint_changes() -> None:
    is_stale = UdpReconciler()
    tcp = echo(A)
    assert not is_stale.update(service_ports(ClusterView((tcp,), (slice_of(tcp, A, endpoint(A, 9)),)), A.family, HERE))
    assert is_stale.update(ports(endpoint(A, 10)))
    assert not is_stale.update(ports(endpoint(A, 10)))


@pytest.mark.parametrize(("which", "forgets"), [("always", True), ("1.36", False)])
@pytest.mark.parametrize("after", [ports(), ports(endpoint(A, 10, ready=False, serving=False)), ()])
def test_services_without_endpoint_or_gone_are_forgotten_unless_like_1_36(
    after: tuple[ServicePortInfo, ...], which: Literal["always", "1.36"], forgets: bool
) -> None:
    is_stale = UdpReconciler(which)
    is_stale.update(ports(endpoint(A, 10)))
    is_stale.update(after)
    for frontend in FRONTS:
        assert is_stale(flow(*frontend, 10)) is forgets


def test_mode_userspace_forgets_only_what_led_to_a_deleted_service() -> None:
    """The other end of such a flow is the proxy's process, which is no endpoint."""
    is_stale = UdpReconciler("deleted")
    assert not is_stale.update(ports(endpoint(A, 10)))
    assert not is_stale.update(ports(endpoint(A, 11)))
    assert is_stale.update(())
    for frontend in FRONTS:
        assert is_stale(flow(*frontend, 2, pod_port=40001))


ROUTE_LOCALNET = "net.ipv4.conf.all.route_localnet"


@pytest.mark.parametrize(
    ("changes", "families", "expected"),
    [
        ({}, (Family.IPV4,), True),
        ({}, (Family.IPV6,), False),
        ({"localhost_node_ports": False}, (Family.IPV4,), False),
        ({"node_port_primary": True}, (Family.IPV4,), False),
        ({"node_port_addresses": (ip_network("172.18.0.0/16"),)}, (Family.IPV4,), False),
        ({"node_port_addresses": (ip_network("127.0.0.1/32"),)}, (Family.IPV4,), True),
        ({"node_port_addresses": (ip_network("fd00::/64"),)}, (Family.IPV4,), True),
    ],
)
def test_loopback_is_routed_only_for_node_ports(
    changes: dict[str, object], families: tuple[Family, ...], expected: bool
) -> None:
    written = proxy_sysctls(replace(ProxySettings(), **changes), ConntrackTimeouts(), families)
    assert (written.get(ROUTE_LOCALNET) == "1") is expected


SIX = Addresses(Family.IPV6)
HOME = NodeFacts(
    name=HERE,
    addresses=(A.of("node", 2),),
    interface_addresses=(A.of("loopback", 1), A.of("node", 3), A.of("node", 2), A.of("vip", 1), SIX.of("node", 2)),
)


@pytest.mark.parametrize(
    ("changes", "family", "expected"),
    [
        ({}, Family.IPV4, None),
        ({"node_port_addresses": (A.narrow("node"),)}, Family.IPV4, (A.of("node", 2), A.of("node", 3))),
        ({"node_port_addresses": (A.narrow("node"),)}, Family.IPV6, None),
        ({"node_port_addresses": (A.narrow("node"), ip_network("0.0.0.0/0"))}, Family.IPV4, None),
        ({"node_port_addresses": (A.narrow("external"),)}, Family.IPV4, ()),
        ({"node_port_primary": True}, Family.IPV4, (A.of("node", 2),)),
        ({"node_port_primary": True}, Family.IPV6, None),
    ],
)
def test_node_ports_are_on_the_addresses_that_are_chosen_of_each_family_by_itself(
    changes: dict[str, object], family: Family, expected: tuple[IPAddress, ...] | None
) -> None:
    assert node_port_addresses(family, replace(ProxySettings(), **changes), HOME) == expected


def test_timeouts_of_zero_are_left_alone() -> None:
    def written(timeouts: ConntrackTimeouts) -> dict[str, str]:
        found = proxy_sysctls(ProxySettings(localhost_node_ports=False), timeouts, (Family.IPV4,))
        return {name.removeprefix("net.netfilter.nf_conntrack_"): value for name, value in found.items()}

    usual = {"tcp_timeout_established": "86400", "tcp_timeout_close_wait": "3600"}
    assert written(ConntrackTimeouts()) == usual
    assert written(ConntrackTimeouts(tcp_established=0, tcp_close_wait=0, udp_stream=9, tcp_be_liberal=True)) == {
        "udp_timeout_stream": "9",
        "tcp_be_liberal": "1",
    }
    assert written(ConntrackTimeouts(tcp_established=7, tcp_close_wait=8, udp=9, udp_stream=10)) == {
        "tcp_timeout_established": "7",
        "tcp_timeout_close_wait": "8",
        "udp_timeout": "9",
        "udp_timeout_stream": "10",
    }


def test_addresses_are_counted_once_over_all_ports_and_only_ready_local_ones() -> None:
    two = load_balancer(A, **LOCAL_OUTSIDE, health_check_node_port=30999)
    two = replace(
        two, ports=(replace(two.ports[0], name="a"), replace(two.ports[0], name="b", port=81, node_port=30081))
    )
    ends = (
        endpoint(A, 10),
        endpoint(A, 11, ready=False, serving=True, terminating=True),
        endpoint(A, 12, "node-b"),
    )
    found = service_ports(ClusterView((two,), (slice_of(two, A, *ends),)), Family.IPV4, HERE)
    assert local_endpoints(found, two.key) == 1
    assert local_endpoints(found, DNS.key) == 0


@pytest.mark.parametrize(("count", "healthy", "status"), [(1, True, 200), (0, True, 503), (1, False, 503)])
def test_a_balancer_is_told_to_look_elsewhere(count: int, healthy: bool, status: int) -> None:
    answer = service_health(DNS.key, count, healthy=healthy)
    assert answer.status == status
    assert answer.headers["X-Load-Balancing-Endpoint-Weight"] == str(count)
    assert json.loads(answer.body) == {
        "service": {"namespace": "default", "name": "dns"},
        "localEndpoints": count,
        "serviceProxyHealthy": healthy,
    }


def test_a_stale_proxy_says_since_when() -> None:
    health = Health((Family.IPV4, Family.IPV6), sync_period=30)
    health.node_eligible = True
    health.synced(Family.IPV4, 100, 100)
    health.synced(Family.IPV6, 100, 100)
    fine = json.loads(healthz("/healthz", health, 1000, NOW).body)
    assert fine["lastUpdated"] == fine["currentTime"] == str(NOW)
    health.queued(1000)
    health.synced(Family.IPV6, 1010, 1010)
    answer = healthz("/healthz", health, 1060, NOW)
    assert answer.status == 503
    told = json.loads(answer.body)
    assert told["status"] == {"IPv4": {"healthy": False}, "IPv6": {"healthy": True}}
    assert told["lastUpdated"] == "2030-01-02 02:48:05+00:00"
    assert healthz("/livez", health, 1060, NOW).status == 503
