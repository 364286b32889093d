from ipaddress import ip_address, ip_network

import pytest

from proxylab.addresses import Protocol
from proxylab.cluster.allocate import allocate_services, keep_allocated
from proxylab.cluster.objects import LoadBalancerIngress, Service, ServicePort, ServiceType, TrafficPolicy

CIDR = ip_network("10.96.0.0/16")
WEB = ServicePort(name="web", port=80, target_port=8080)
ADMIN = ServicePort(name="admin", port=90, target_port=9090)


def allocated(**fields: object) -> Service:
    return allocate_services([Service(name="echo", **fields)], [CIDR])[0]


def updated(before: Service, **fields: object) -> Service:
    return allocate_services([keep_allocated(Service(name="echo", **fields), before)], [CIDR])[0]


def test_a_service_that_was_allocated_asks_for_what_it_has() -> None:
    for type_ in ServiceType:
        made = allocated(type=type_, ports=(WEB, ADMIN), external_traffic_policy=TrafficPolicy.LOCAL)
        assert allocate_services([made], [CIDR]) == (made,)


def test_it_keeps_its_address_and_node_ports_by_the_names_of_ports() -> None:
    before = allocated(type=ServiceType.NODE_PORT, ports=(WEB, ADMIN), cluster_ips=(ip_address("10.96.0.7"),))
    after = updated(before, type=ServiceType.NODE_PORT, ports=(ADMIN, WEB))
    assert after.cluster_ips == (ip_address("10.96.0.7"),)
    assert {port.name: port.node_port for port in after.ports} == {port.name: port.node_port for port in before.ports}


def test_a_node_port_that_another_port_asks_for_is_not_kept() -> None:
    before = allocated(type=ServiceType.NODE_PORT, ports=(WEB,))
    taken = before.ports[0].node_port
    moved = ServicePort(name="admin", port=90, target_port=9090, node_port=taken)
    after = updated(before, type=ServiceType.NODE_PORT, ports=(WEB, moved))
    assert after.ports[1].node_port == taken
    assert after.ports[0].node_port not in (0, taken)


@pytest.mark.parametrize("type_", [ServiceType.CLUSTER_IP, ServiceType.EXTERNAL_NAME])
def test_what_it_no_longer_needs_it_gives_up(type_: ServiceType) -> None:
    before = allocated(type=ServiceType.NODE_PORT, ports=(WEB,))
    after = updated(before, type=type_, ports=(WEB,))
    assert [port.node_port for port in after.ports] == [0]
    assert bool(after.cluster_ips) is (type_ is ServiceType.CLUSTER_IP)


def test_a_headless_service_keeps_no_address() -> None:
    assert updated(allocated(ports=(WEB,)), headless=True, ports=(WEB,)).cluster_ips == ()


def test_a_balancer_keeps_its_ingress_and_its_health_check_as_long_as_it_is_one() -> None:
    vip = LoadBalancerIngress(ip=ip_address("198.51.100.1"))
    said = {"type": ServiceType.LOAD_BALANCER, "ports": (WEB,), "external_traffic_policy": TrafficPolicy.LOCAL}
    before = allocated(**said, load_balancer_ingress=(vip,), health_check_node_port=32000)
    same = updated(before, **said)
    assert (same.load_balancer_ingress, same.health_check_node_port) == ((vip,), 32000)
    other = updated(before, type=ServiceType.NODE_PORT, ports=(WEB,))
    assert (other.load_balancer_ingress, other.health_check_node_port) == ((), 0)


def test_only_the_first_of_two_ports_keeps_a_number_that_both_had() -> None:
    """Two protocols may share a node port; whether they do so again is up to the author."""
    shared = (
        ServicePort(name="web", port=80, target_port=8080, node_port=30080),
        ServicePort(name="quic", protocol=Protocol.UDP, port=81, target_port=8081, node_port=30080),
    )
    without = tuple(
        ServicePort(name=each.name, protocol=each.protocol, port=each.port, target_port=each.target_port)
        for each in shared
    )
    before = Service(name="echo", type=ServiceType.NODE_PORT, ports=shared)
    kept = keep_allocated(Service(name="echo", type=ServiceType.NODE_PORT, ports=without), before)
    assert [port.node_port for port in kept.ports] == [30080, 0]
