from ipaddress import ip_address, ip_network

import pytest
from msgspec.structs import replace
from rule_cases import (
    ELSEWHERE,
    HERE,
    Addresses,
    case,
    echo,
    endpoint,
    external_ip,
    here_and_there,
    load_balancer,
    node_port,
    slice_of,
)
from whole_ports import service_ports

from proxylab.addresses import Family, Protocol
from proxylab.cluster.objects import EndpointPort, LoadBalancerIngress, Service, ServicePort, ServiceType, TrafficPolicy
from proxylab.engines.embedded.ports import ClusterView, ServicePortInfo
from proxylab.engines.modes import MODES

A = Addresses(Family.IPV4)
B = Addresses(Family.IPV6)


def only(service: Service, *slices: object, family: Family = Family.IPV4) -> ServicePortInfo:
    (port,) = service_ports(ClusterView((service,), slices), family, HERE)
    return port


@pytest.mark.parametrize(
    "service",
    [
        echo(A, headless=True, cluster_ips=()),
        echo(A, headless=True),
        echo(A, type=ServiceType.EXTERNAL_NAME),
        echo(A, labels={"service.kubernetes.io/service-proxy-name": "mine"}),
        node_port(B, external_ips=(A.of("external", 9),)),
        echo(A, cluster_ips=()),
    ],
    ids=[
        "headless",
        "headless with an address",
        "external name",
        "another proxy's",
        "no cluster IP of the family",
        "unallocated",
    ],
)
def test_services_that_do_not_count(service: Service) -> None:
    assert service_ports(ClusterView((service,)), Family.IPV4, HERE) == ()


def test_each_family_has_its_own_addresses() -> None:
    service = load_balancer(
        A,
        cluster_ips=(A.of("cluster", 20), B.of("cluster", 20)),
        external_ips=(A.of("external", 9), B.of("external", 9)),
        load_balancer_ingress=tuple(LoadBalancerIngress(ip=each.of("vip", 7)) for each in (A, B)),
        source_ranges=(A.narrow("external"), B.narrow("external")),
    )
    for own in (A, B):
        port = only(service, family=own.family)
        assert port.cluster_ip == own.of("cluster", 20)
        assert port.external_ips == (own.of("external", 9),)
        assert port.load_balancer_vips == (own.of("vip", 7),)
        assert port.source_ranges == (own.narrow("external"),)


def test_names() -> None:
    ports = (ServicePort(port=80, target_port=80), ServicePort(name="x", port=81, target_port=81))
    found = service_ports(ClusterView((echo(A, ports=ports),)), Family.IPV4, HERE)
    assert [port.name for port in found] == ["default/echo", "default/echo:x"]


def test_balancers_that_translate_themselves_do_not_count() -> None:
    ingress = (
        LoadBalancerIngress(ip=A.of("vip", 7), ip_mode="Proxy"),
        LoadBalancerIngress(hostname="lb.example.org"),
        LoadBalancerIngress(ip=A.of("vip", 8)),
    )
    assert only(load_balancer(A, load_balancer_ingress=ingress)).load_balancer_vips == (A.of("vip", 8),)


@pytest.mark.parametrize(
    ("mode", "version", "serves"),
    [("iptables", (1, 37), False), ("iptables", (1, 23), True), ("userspace", (1, 25), True)],
)
def test_a_proxy_before_1_29_serves_the_address_of_a_balancer_that_translates_itself(
    mode: str, version: tuple[int, int], serves: bool
) -> None:
    proxied = LoadBalancerIngress(ip=A.of("vip", 7), ip_mode="Proxy")
    service = case(A, (load_balancer(A, load_balancer_ingress=(proxied,)), here_and_there(A)))
    rules = MODES[mode].load(service.cluster, service.node, service.settings, Family.IPV4, version)
    assert (str(A.of("vip", 7)) in rules) is serves


def test_a_range_of_everything_lifts_all_ranges() -> None:
    ranges = (A.narrow("external"), ip_network("0.0.0.0/0"))
    assert only(load_balancer(A, source_ranges=ranges)).source_ranges == ()


def test_external_policy_counts_only_where_something_is_external() -> None:
    local = {"external_traffic_policy": TrafficPolicy.LOCAL}
    assert not only(echo(A, **local)).external_policy_local
    assert only(external_ip(A, **local)).external_policy_local
    assert only(node_port(A, **local)).external_policy_local


def test_health_check_node_port_needs_a_balancer_and_policy_local() -> None:
    local = {"external_traffic_policy": TrafficPolicy.LOCAL, "health_check_node_port": 30999}
    assert only(load_balancer(A, **local)).health_check_node_port == 30999
    assert only(node_port(A, **local)).health_check_node_port == 0
    assert only(load_balancer(A, health_check_node_port=30999)).health_check_node_port == 0


def test_which_endpoints_a_port_uses() -> None:
    inside = {"internal_traffic_policy": TrafficPolicy.LOCAL}
    outside = {"external_traffic_policy": TrafficPolicy.LOCAL}

    def uses(service: Service) -> tuple[bool, bool]:
        port = only(service)
        return port.uses_cluster_endpoints, port.uses_local_endpoints

    assert uses(echo(A)) == (True, False)
    assert uses(echo(A, **inside)) == (False, True)
    assert uses(node_port(A, **inside)) == (True, True)
    assert uses(node_port(A, **outside)) == (True, True)
    assert uses(node_port(A)) == (True, False)
    assert uses(external_ip(A, **inside)) == (True, True)
    of_balancer = load_balancer(A, ports=(ServicePort(port=80, target_port=8080),))
    assert uses(replace(of_balancer, **inside)) == (True, True)
    assert uses(replace(of_balancer, **outside, load_balancer_ingress=())) == (True, False), "nothing is external yet"


def test_ports_and_protocols_are_matched_by_name() -> None:
    ports = (
        ServicePort(name="dns", protocol=Protocol.UDP, port=53, target_port=1),
        ServicePort(name="dns", protocol=Protocol.TCP, port=53, target_port=1),
        ServicePort(name="web", port=80, target_port=1),
    )
    service = echo(A, ports=ports)
    carried = (
        EndpointPort(name="dns", protocol=Protocol.UDP, port=5353),
        EndpointPort(name="web", port=0),
        EndpointPort(name="web-2", port=8080),
    )
    view = ClusterView((service,), (slice_of(service, A, endpoint(A, 10), ports=carried),))
    found = service_ports(view, Family.IPV4, HERE)
    assert [[e.name for e in port.endpoints] for port in found] == [["10.42.0.10:5353"], [], []]


def test_endpoints_are_sorted_as_strings() -> None:
    service = echo(A)
    port = only(service, slice_of(service, A, endpoint(A, 2), endpoint(A, 10)))
    assert [e.name for e in port.endpoints] == ["10.42.0.10:8080", "10.42.0.2:8080"]


def test_slices_of_other_services_families_and_headless_ones_do_not_count() -> None:
    service = echo(A)
    own = slice_of(service, A, endpoint(A, 10))
    strangers = (
        replace(own, service="web"),
        replace(own, namespace="other"),
        replace(own, address_type=Family.IPV6),
        replace(own, labels={"service.kubernetes.io/headless": ""}),
    )
    assert only(service, *strangers).endpoints == ()


def test_local_is_who_names_this_node() -> None:
    service = echo(A)
    members = (endpoint(A, 10), endpoint(A, 11, ELSEWHERE), endpoint(A, 12, ""))
    port = only(service, slice_of(service, A, *members))
    assert [e.is_local for e in port.endpoints] == [True, False, False]
    (nameless,) = service_ports(ClusterView((service,), (slice_of(service, A, *members),)), Family.IPV4, "")
    assert [e.is_local for e in nameless.endpoints] == [False, False, False], "a proxy that does not know its node"


@pytest.mark.parametrize("names", [("x", "y"), ("y", "x")])
def test_of_two_entries_for_one_endpoint_the_living_one_counts(names: tuple[str, str]) -> None:
    service = echo(A)
    living, dying = endpoint(A, 10), endpoint(A, 10, ready=False, terminating=True)
    slices = [
        replace(slice_of(service, A, member), name=name) for member, name in zip((living, dying), names, strict=True)
    ]
    (found,) = only(service, *slices).endpoints
    assert not found.terminating


def test_ipv6_endpoints_have_brackets() -> None:
    service = echo(B)
    (found,) = only(service, slice_of(service, B, endpoint(B, 10)), family=Family.IPV6).endpoints
    assert (found.name, found.address) == ("[fd00:42::10]:8080", ip_address("fd00:42::10"))
