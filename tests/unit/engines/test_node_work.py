"""What a proxy does on its node after each sync, and what its servers answer; the node only takes notes."""

import asyncio
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from ipaddress import ip_address

import pytest
from msgspec.structs import replace
from rule_cases import HERE, LOCAL_OUTSIDE, Addresses, echo, endpoint, load_balancer, slice_of
from whole_ports import service_ports

from proxylab.addresses import Family, IPAddress, Protocol
from proxylab.cluster.configuration import SocketAddress
from proxylab.cluster.objects import Service, ServicePort, ServiceType
from proxylab.control.http_server import PathHandler
from proxylab.engines.embedded.health import Health
from proxylab.engines.embedded.metrics import SyncMetrics
from proxylab.engines.embedded.node import NodeFacts
from proxylab.engines.embedded.node_work import EngineNode, NodeWork, healthz, service_health
from proxylab.engines.embedded.ports import ClusterView
from proxylab.engines.embedded.settings import ProxySettings
from proxylab.engines.embedded.sync import Served
from proxylab.engines.embedded.udp import UdpReconciler

A = Addresses(Family.IPV4)
NOW = datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC)
PORTS = (ServicePort(name="dns", protocol=Protocol.UDP, port=53, target_port=5353, node_port=30053),)
DNS = echo(A, name="dns", type=ServiceType.NODE_PORT, ports=PORTS)
LOCAL = load_balancer(A, **LOCAL_OUTSIDE, health_check_node_port=30999)
JSON = {"Content-Type": "application/json", "X-Content-Type-Options": "nosniff"}
ANYWHERE = ip_address("0.0.0.0")


class Notes:
    """A node that remembers what it serves, and how often it looked through its UDP flows."""

    def __init__(self) -> None:
        self.served: Mapping[tuple[IPAddress, int], PathHandler] = {}
        self.looked = 0

    def hold(self, *, answers: bool) -> None:
        self.held = answers

    async def serve(self, wanted: Mapping[tuple[IPAddress, int], PathHandler]) -> tuple[str, ...]:
        self.served = wanted
        return ()

    async def close(self) -> None:
        pass

    def forget_udp(self, _family: Family, _is_stale: UdpReconciler) -> int:
        self.looked += 1
        return 3


def follow(notes: Notes, work: NodeWork, *services: Service) -> tuple[str, ...]:
    slices = tuple(slice_of(each, A, endpoint(A, 10)) for each in services)
    ports = service_ports(ClusterView(services, slices), Family.IPV4, HERE)
    return asyncio.run(work.follow(Served(NodeFacts(name=HERE), {Family.IPV4: ports})))


@pytest.fixture
def notes() -> Notes:
    return Notes()


@pytest.fixture
def health() -> Health:
    return Health((Family.IPV4,), sync_period=30)


@pytest.fixture
def metrics() -> SyncMetrics:
    return SyncMetrics("iptables")


@pytest.fixture
def work(notes: Notes, health: Health, metrics: SyncMetrics) -> NodeWork:
    node = EngineNode(flows=notes, servers=notes, write_sysctls=lambda _sysctls: None, close=notes.close)
    healthz_at, metrics_at = (SocketAddress(ip_address("127.0.0.1"), port) for port in (10256, 10249))
    made = NodeWork(node, ProxySettings(), sysctls={}, healthz=healthz_at, metrics=metrics_at, clock=lambda: 1000.0)
    asyncio.run(made.open(health, metrics))
    return made


def test_udp_flows_are_looked_through_after_a_change_of_udp_endpoints_alone(
    notes: Notes, work: NodeWork, metrics: SyncMetrics
) -> None:
    assert follow(notes, work, LOCAL) == ()
    assert notes.looked == 0
    assert follow(notes, work, DNS) == ("IPv4: deleted 3 UDP flows to endpoints that are gone",)
    assert follow(notes, work, DNS) == ()
    assert notes.looked == 1
    assert b'kubeproxy_conntrack_reconciler_deleted_entries_total{ip_family="IPv4"} 3' in metrics.text({})


def test_only_services_with_a_health_check_get_its_server(notes: Notes, work: NodeWork) -> None:
    own = {(ip_address("127.0.0.1"), 10256), (ip_address("127.0.0.1"), 10249)}
    follow(notes, work, DNS, LOCAL)
    assert notes.served.keys() == own | {(ANYWHERE, 30999)}
    follow(notes, work, DNS)
    assert notes.served.keys() == own


def test_a_health_check_answers_for_its_service_and_for_the_proxy(notes: Notes, work: NodeWork, health: Health) -> None:
    follow(notes, work, LOCAL)
    answer = notes.served[ANYWHERE, 30999]
    fine = answer("/any/path")
    assert (fine.status, json.loads(fine.body)["localEndpoints"]) == (200, 1)
    health.queued(900)
    assert answer("/").status == 503, "the proxy is stale"


@pytest.mark.parametrize("count", [0, 1, 2])
def test_the_headers_of_a_health_check(count: int) -> None:
    found = service_health(replace(DNS, namespace="market").key, count, healthy=True)
    assert found.headers == {**JSON, "X-Load-Balancing-Endpoint-Weight": str(count)}
    told = json.loads(found.body)
    assert told["service"] == {"namespace": "market", "name": "dns"}
    assert repr(told["localEndpoints"]) == str(count)


@pytest.mark.parametrize(
    ("path", "eligible", "status"),
    [("/healthz", True, 200), ("/healthz", False, 503), ("/livez", False, 200), ("/other", True, 404)],
)
def test_the_health_server_of_a_leaving_node(health: Health, path: str, eligible: bool, status: int) -> None:
    health.node_eligible = eligible
    found = healthz(path, health, 1000, NOW)
    assert found.status == status
    if status != 404:
        told = json.loads(found.body)
        assert found.headers == JSON
        assert told["healthy"] is (status == 200)
        assert told.get("nodeEligible") == (eligible if path == "/healthz" else None)


def test_the_health_server_before_1_28_does_not_ask_for_the_node(health: Health) -> None:
    health.node_eligible = False
    found = healthz("/healthz", health, 1000, NOW, of_node=False)
    assert found.status == 200
    assert "nodeEligible" not in json.loads(found.body)
    assert healthz("/livez", health, 1000, NOW, of_node=False).status == 404


def test_a_stale_proxy_counts_from_its_oldest_sync() -> None:
    health = Health((Family.IPV4, Family.IPV6), sync_period=30)
    health.node_eligible = True
    health.synced(Family.IPV4, 940, 940)
    health.synced(Family.IPV6, 900, 900)
    health.queued(950)
    told = json.loads(healthz("/healthz", health, 1060, NOW).body)
    assert told["lastUpdated"] == "2030-01-02 03:01:25+00:00"
    assert told["healthy"] is False
