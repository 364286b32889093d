"""The addresses that load balancers give to Services."""

from ipaddress import ip_address, ip_network

import pytest
from msgspec.structs import replace

from proxylab.addresses import Family
from proxylab.cluster.allocate import Pool, give_ingress
from proxylab.cluster.objects import LoadBalancerIngress, Service, ServiceType
from proxylab.errors import ScenarioError

FOUR, SIX = Family.IPV4, Family.IPV6
EDGE = Pool("edge", (ip_network("192.0.2.0/30"), ip_network("2001:db8::/126")))


def balanced(name: str, *families: Family, ingress: str = "") -> Service:
    entries = (LoadBalancerIngress(ip=ip_address(ingress)),) if ingress else ()
    return Service(
        name=name, type=ServiceType.LOAD_BALANCER, ip_families=families or (FOUR,), load_balancer_ingress=entries
    )


def given(*services: Service, pools: tuple[Pool, ...] = (EDGE,)) -> dict[str, list[str]]:
    return {
        service.name: [str(entry.ip) for entry in service.load_balancer_ingress]
        for service in give_ingress(services, pools)
    }


def test_each_family_of_a_service_has_the_next_address() -> None:
    assert given(balanced("a", FOUR, SIX), balanced("b", SIX), balanced("c")) == {
        "a": ["192.0.2.1", "2001:db8::1"],
        "b": ["2001:db8::2"],
        "c": ["192.0.2.2"],
    }


def test_an_address_in_the_status_stays_and_goes_to_no_other_service() -> None:
    assert given(balanced("a"), balanced("b", ingress="192.0.2.1")) == {"a": ["192.0.2.2"], "b": ["192.0.2.1"]}


def test_a_further_pool_gives_when_the_first_has_nothing_left() -> None:
    further = Pool("further", (ip_network("198.51.100.7/32"),))
    assert given(balanced("a"), balanced("b"), balanced("c"), pools=(EDGE, further))["c"] == ["198.51.100.7"]


def test_other_services_and_families_without_a_pool_are_left_alone() -> None:
    only_four = (Pool("edge", (ip_network("192.0.2.0/28"),)),)
    inner = replace(balanced("inner"), type=ServiceType.NODE_PORT)
    assert given(inner, balanced("six", SIX), pools=only_four) == {"inner": [], "six": []}
    assert given(balanced("a"), pools=()) == {"a": []}


def test_a_pool_that_is_empty_is_told_with_every_service_that_gets_nothing() -> None:
    with pytest.raises(ScenarioError) as raised:
        give_ingress([balanced(name) for name in "abcd"], (EDGE,))
    words = "no IPv4 address is left in the pools of spec.loadBalancers (edge); give them larger ones"
    assert raised.value.problems == (f"Service default/c: {words}", f"Service default/d: {words}")
