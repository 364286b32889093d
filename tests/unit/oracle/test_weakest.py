"""The weakest promise: a flow may reach the ready endpoints, and as a last resort those that leave and still serve."""

from ipaddress import ip_address

import pytest
from msgspec.structs import replace

from proxylab.addresses import Family, Protocol
from proxylab.cluster.objects import (
    HEADLESS_LABEL,
    Endpoint,
    EndpointPort,
    EndpointSlice,
    Service,
    ServicePort,
    TrafficPolicy,
)
from proxylab.oracle.weakest import endpoints_of_port, named_addresses

PORT = ServicePort(name="http", port=80, target_port=8080)
SERVICE = Service(name="web", ports=(PORT,))
LOCAL = {
    "internal": replace(SERVICE, internal_traffic_policy=TrafficPolicy.LOCAL),
    "external": replace(SERVICE, external_traffic_policy=TrafficPolicy.LOCAL),
}


def endpoint(last: int, node: str = "", *, ready: bool = True, serving: bool = True, going: bool = False) -> Endpoint:
    address = ip_address(f"10.244.0.{last}")
    return Endpoint(addresses=(address,), ready=ready, serving=serving, terminating=going, node_name=node)


def leaving(last: int, node: str = "", *, serving: bool = True) -> Endpoint:
    return endpoint(last, node, ready=False, serving=serving, going=True)


def slice_of(*endpoints: Endpoint, number: int = 8080, name: str = "http", service: str = "web") -> EndpointSlice:
    port = EndpointPort(name=name, port=number)
    return EndpointSlice(
        name=f"{service}-{number}", service=service, address_type=Family.IPV4, ports=(port,), endpoints=endpoints
    )


def reachable(service: Service, *slices: EndpointSlice) -> list[str]:
    found = endpoints_of_port(service, PORT, slices)
    return [f"{int(each.address) & 255}:{each.port}" for each in found if each.is_reachable]


def test_ready_endpoints_keep_all_others_from_new_flows() -> None:
    unready = endpoint(2, ready=False, serving=False)
    assert reachable(SERVICE, slice_of(endpoint(1), unready, leaving(3), leaving(4, serving=False))) == ["1:8080"]
    assert reachable(SERVICE, slice_of(unready, leaving(3), leaving(4, serving=False))) == ["3:8080"]
    assert reachable(SERVICE, slice_of(unready, leaving(4, serving=False))) == []


@pytest.mark.parametrize("policy", LOCAL)
def test_under_policy_local_each_node_has_its_own_last_resort(policy: str) -> None:
    there = slice_of(endpoint(1, "node-a"), leaving(2, "node-a"), leaving(3, "node-b"))
    assert reachable(LOCAL[policy], there) == ["1:8080", "3:8080"]
    assert reachable(SERVICE, there) == ["1:8080"]


def test_an_endpoint_has_the_number_of_its_own_slice() -> None:
    assert reachable(SERVICE, slice_of(endpoint(1)), slice_of(endpoint(2), number=9090)) == ["1:8080", "2:9090"]


def test_other_ports_services_and_protocols_have_other_endpoints() -> None:
    udp = replace(slice_of(endpoint(3)), ports=(EndpointPort(name="http", port=8080, protocol=Protocol.UDP),))
    others = (slice_of(endpoint(1), name="admin"), slice_of(endpoint(2), service="db"), udp)
    assert reachable(SERVICE, *others) == []


def test_an_endpoint_is_ready_if_one_of_two_slices_says_so() -> None:
    assert reachable(SERVICE, slice_of(endpoint(1, ready=False)), slice_of(endpoint(1))) == ["1:8080"]


def test_proxies_do_not_read_the_slices_of_a_headless_service() -> None:
    labelled = replace(slice_of(endpoint(1)), labels={HEADLESS_LABEL: ""})
    assert reachable(SERVICE, labelled) == []
    assert named_addresses(SERVICE, [labelled]) == (ip_address("10.244.0.1"),)


def test_a_name_gives_ready_endpoints_without_a_last_resort() -> None:
    there = slice_of(endpoint(1), endpoint(2, ready=False, serving=False), leaving(3))
    assert named_addresses(SERVICE, [there, slice_of(endpoint(4), service="db")]) == (ip_address("10.244.0.1"),)
    assert named_addresses(SERVICE, [slice_of(leaving(3))]) == ()


def test_a_name_gives_every_address_of_an_endpoint() -> None:
    several = tuple(map(ip_address, ("10.244.0.1", "10.244.0.9")))
    assert named_addresses(SERVICE, [slice_of(replace(endpoint(1), addresses=several))]) == several
