from ipaddress import ip_address, ip_network

import pytest
from golden_words import Told
from msgspec.structs import replace

from proxylab.addresses import Family, Protocol
from proxylab.cluster.allocate import NODE_PORTS, PortRange, allocate_services
from proxylab.cluster.objects import Service, ServicePort, ServiceType, TrafficPolicy
from proxylab.errors import ScenarioError

V4, V6 = ip_network("10.96.0.0/16"), ip_network("fd00:96::/112")


def service(name: str, **fields: object) -> Service:
    fields.setdefault("ports", (ServicePort(port=80, target_port=8080),))
    return Service(name=name, **fields)


def problems(*services: Service, cidrs: tuple[object, ...] = (V4,)) -> list[str]:
    with pytest.raises(ScenarioError) as raised:
        allocate_services(services, cidrs)
    return list(raised.value.problems)


def node_port(name: str, *numbers: int, **fields: object) -> Service:
    ports = tuple(ServicePort(port=80 + i, target_port=8080, node_port=n) for i, n in enumerate(numbers))
    return service(name, ports=ports, **{"type": ServiceType.NODE_PORT, **fields})


def test_addresses_come_from_the_upper_band_in_order() -> None:
    first, second = allocate_services([service("a"), service("b")], [V4])
    assert (first.cluster_ips, second.cluster_ips) == ((ip_address("10.96.1.1"),), (ip_address("10.96.1.2"),))
    assert first.ip_families == (Family.IPV4,)


def test_an_address_of_a_further_service_cidr_is_given_only_to_the_service_that_asks_for_it() -> None:
    further, asked = ip_network("10.97.0.0/24"), ip_address("10.97.0.50")
    services = [service("a"), service("b", cluster_ips=(asked,))]
    first, second = allocate_services(services, [V4], further=[further])
    assert (first.cluster_ips, second.cluster_ips) == ((ip_address("10.96.1.1"),), (asked,))
    with pytest.raises(ScenarioError, match=r"10\.97\.0\.50 is not a host address"):
        allocate_services(services, [V4])


def test_a_service_at_the_end_moves_no_other() -> None:
    some = [node_port("a", 0), service("b"), node_port("c", 0)]
    more = [*some, node_port("d", 0), service("e", cluster_ips=(ip_address("10.96.0.77"),))]
    assert allocate_services(more, [V4])[:3] == allocate_services(some, [V4])


def test_an_address_asked_for_later_is_not_handed_out_before() -> None:
    asked = ip_address("10.96.1.1")
    first, second = allocate_services([service("a"), service("b", cluster_ips=(asked,))], [V4])
    assert second.cluster_ips == (asked,)
    assert first.cluster_ips == (ip_address("10.96.1.2"),)


def test_reserved_network_and_broadcast_addresses_are_never_handed_out() -> None:
    usable = ip_network("10.96.0.0/28")
    allocated = allocate_services([service(f"s{number}") for number in range(12)], [usable])
    last_bytes = {int(item.cluster_ips[0]) & 15 for item in allocated}
    assert last_bytes == set(range(1, 15)) - {1, 10}


def test_an_exhausted_range_names_the_service_and_the_range(told: Told) -> None:
    found = problems(*(service(f"s{number}") for number in range(13)), cidrs=(ip_network("10.96.0.0/28"),))
    assert found == told()


@pytest.mark.parametrize(
    ("address", "complaint"),
    [
        ("10.97.0.1", "10.97.0.1 is not a host address of the service CIDR 10.96.0.0/16"),
        ("10.96.0.0", "10.96.0.0 is not a host address of the service CIDR 10.96.0.0/16"),
        ("10.96.255.255", "10.96.255.255 is not a host address of the service CIDR 10.96.0.0/16"),
        ("10.96.0.1", "10.96.0.1 is the address of the API server; choose another one"),
    ],
)
def test_addresses_that_cannot_be_had(address: str, complaint: str) -> None:
    assert problems(service("a", cluster_ips=(ip_address(address),))) == [
        f"Service default/a: spec.clusterIPs[0]: {complaint}"
    ]


def test_every_collision_is_told_at_once(told: Told) -> None:
    same = (ip_address("10.96.0.50"),)
    found = problems(node_port("a", 30001, cluster_ips=same), node_port("b", 30001, cluster_ips=same))
    assert found == told()


def test_the_api_servers_own_service_may_have_its_address() -> None:
    own = service("kubernetes", cluster_ips=(ip_address("10.96.0.1"),))
    assert allocate_services([own], [V4])[0].cluster_ips == own.cluster_ips


def test_dual_stack_policies() -> None:
    single, prefer, second_first = allocate_services(
        [
            service("single"),
            service("prefer", ip_family_policy="PreferDualStack"),
            service("v6", ip_family_policy="RequireDualStack", ip_families=(Family.IPV6,)),
        ],
        [V4, V6],
    )
    assert single.ip_families == (Family.IPV4,)
    assert prefer.ip_families == (Family.IPV4, Family.IPV6)
    assert [Family.of(address) for address in prefer.cluster_ips] == [Family.IPV4, Family.IPV6]
    assert second_first.ip_families == (Family.IPV6, Family.IPV4)


def test_prefer_dual_stack_is_content_with_one_family() -> None:
    (only,) = allocate_services([service("a", ip_family_policy="PreferDualStack")], [V4])
    assert only.ip_families == (Family.IPV4,)


def test_family_complaints(told: Told) -> None:
    found = problems(
        service("require", ip_family_policy="RequireDualStack"),
        service("v6", ip_families=(Family.IPV6,)),
        service("mixed", ip_families=(Family.IPV4,), cluster_ips=(ip_address("fd00:96::20"),)),
    )
    assert found == told()


def test_headless_and_external_name_services_get_no_address() -> None:
    headless, external = allocate_services(
        [service("h", headless=True), service("e", type=ServiceType.EXTERNAL_NAME, external_name="example.org")], [V4]
    )
    assert headless.cluster_ips == external.cluster_ips == ()
    assert headless.ip_families == (Family.IPV4,)


def test_node_ports_come_from_the_upper_band() -> None:
    first, second = allocate_services([node_port("a", 0, 0), node_port("b", 0)], [V4])
    assert [port.node_port for port in (*first.ports, *second.ports)] == [30086, 30087, 30088]


def test_a_service_of_type_cluster_ip_gets_no_node_port() -> None:
    (found,) = allocate_services([node_port("a", 0, type=ServiceType.CLUSTER_IP)], [V4])
    assert [port.node_port for port in found.ports] == [0]


def test_each_protocol_of_a_port_keeps_the_node_port_that_it_asks_for() -> None:
    asked = ((Protocol.UDP, 30053), (Protocol.TCP, 30054), (Protocol.SCTP, 0))
    ports = tuple(
        ServicePort(name=protocol.lower(), protocol=protocol, port=53, target_port=53, node_port=number)
        for protocol, number in asked
    )
    (found,) = allocate_services([service("dns", type=ServiceType.NODE_PORT, ports=ports)], [V4])
    assert [port.node_port for port in found.ports] == [30053, 30054, 30053]


@pytest.mark.parametrize(
    ("node_ports", "drawn"),
    [(PortRange(20, 8079), [148, 149]), (PortRange(80, 99), [96, 97]), (PortRange(7, 8), [7, 8])],
)
def test_node_ports_come_from_the_range_of_the_cluster(node_ports: PortRange, drawn: list[int]) -> None:
    (service,) = allocate_services([node_port("a", 0, 0)], [V4], node_ports)
    assert [port.node_port for port in service.ports] == drawn


def test_one_node_port_serves_both_protocols_of_a_port() -> None:
    ports = (
        ServicePort(name="udp", protocol=Protocol.UDP, port=53, target_port=53),
        ServicePort(name="tcp", protocol=Protocol.TCP, port=53, target_port=53),
    )
    drawn, asked = allocate_services(
        [
            service("a", type=ServiceType.NODE_PORT, ports=ports),
            service("b", type=ServiceType.NODE_PORT, ports=(ports[0], replace(ports[1], node_port=30053))),
        ],
        [V4],
    )
    assert [port.node_port for port in drawn.ports] == [30086, 30086]
    assert [port.node_port for port in asked.ports] == [30053, 30053]


def test_node_port_complaints(told: Told) -> None:
    found = problems(node_port("low", 29999), node_port("none", 30001, type=ServiceType.CLUSTER_IP))
    assert found == told()


def test_exhausted_node_ports(told: Told) -> None:
    most = [node_port(f"s{number}", *[0] * 64) for number in range(len(NODE_PORTS.numbers) // 64)]
    whole = allocate_services([*most, node_port("rest", *[0] * 16)], [V4])
    assert {port.node_port for item in whole for port in item.ports} == set(NODE_PORTS.numbers)
    assert problems(*most, node_port("rest", *[0] * 17)) == told()


def test_health_check_node_ports(told: Told) -> None:
    local = {"type": ServiceType.LOAD_BALANCER, "external_traffic_policy": TrafficPolicy.LOCAL}
    drawn, asked, cluster = allocate_services(
        [
            node_port("a", 0, **local),
            node_port("b", 0, **local, health_check_node_port=30999),
            node_port("c", 0, type=ServiceType.LOAD_BALANCER),
        ],
        [V4],
    )
    assert drawn.health_check_node_port not in {0, drawn.ports[0].node_port}
    assert asked.health_check_node_port == 30999
    assert cluster.health_check_node_port == 0
    assert problems(node_port("d", 30999, **local, health_check_node_port=30999)) == told()


def test_a_load_balancer_without_allocation_gets_only_the_node_ports_that_it_requests() -> None:
    balanced = {"type": ServiceType.LOAD_BALANCER, "allocate_node_ports": False}
    none, one, ignored = allocate_services(
        [
            node_port("a", 0, **balanced),
            node_port("b", 0, 30080, **balanced),
            node_port("c", 0, allocate_node_ports=False),
        ],
        [V4],
    )
    assert [port.node_port for port in none.ports] == [0]
    assert [port.node_port for port in one.ports] == [0, 30080]
    assert ignored.ports[0].node_port  # a Service of type NodePort always has one
