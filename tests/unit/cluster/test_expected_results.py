"""What a pod is promised, from objects alone."""

from ipaddress import ip_address, ip_network

import pytest
from msgspec.structs import replace

from proxylab.addresses import Family, Protocol
from proxylab.cluster.expected_results import Caller, ExpectedResult, through_cluster_ip, through_other_frontend
from proxylab.cluster.objects import Endpoint, EndpointPort, EndpointSlice, Service, ServicePort, TrafficPolicy

LOCAL = TrafficPolicy.LOCAL
PORT = ServicePort(name="http", port=80, target_port=8080, node_port=30080)
SERVICE = Service(namespace="shop", name="web", ports=(PORT,))
CALLER = Caller(node="n1", zone="a")
ONE = Endpoint(addresses=(ip_address("10.244.0.5"),), node_name="n1", zone="a")
TWO = Endpoint(addresses=(ip_address("10.244.1.5"),), node_name="n2", zone="b")
POD_NETWORK = ip_network("10.244.0.0/16")


def sliced(*endpoints: Endpoint) -> list[EndpointSlice]:
    port = EndpointPort(name="http", port=8080)
    own = EndpointSlice(
        namespace="shop", name="w", service="web", address_type=Family.IPV4, ports=(port,), endpoints=endpoints
    )
    return [own, replace(own, namespace="other"), replace(own, service="else"), replace(own, address_type=Family.IPV6)]


def reached(promise: ExpectedResult) -> list[str]:
    return [str(each.address) for each in promise.used]


def from_inside(*endpoints: Endpoint, service: Service = SERVICE) -> ExpectedResult:
    return through_cluster_ip(service, PORT, Family.IPV4, sliced(*endpoints), CALLER)


def from_outside(
    *endpoints: Endpoint, service: Service = SERVICE, allowed: str = "", programs: bool = False
) -> ExpectedResult:
    on_the_node = {(each.addresses[0], (Protocol.TCP, 8080)) for each in endpoints} if programs else set()
    ranges = [ip_network(allowed)] if allowed else []
    return through_other_frontend(
        service,
        PORT,
        Family.IPV4,
        sliced(*endpoints),
        CALLER,
        on_the_node=on_the_node,
        allowed=ranges,
        own=[POD_NETWORK],
    )


def test_ready_endpoints_as_oneself() -> None:
    promise = from_inside(ONE, TWO)
    assert (promise.outcome, promise.source) == ("delivered", "preserved")
    assert reached(promise) == ["10.244.0.5", "10.244.1.5"]


def test_those_that_still_serve_only_where_none_is_ready() -> None:
    leaving = replace(TWO, ready=False, serving=True, terminating=True)
    silent = replace(TWO, ready=False, serving=False)
    assert reached(from_inside(ONE, leaving, silent)) == ["10.244.0.5"]
    assert reached(from_inside(leaving, silent)) == ["10.244.1.5"]
    assert from_inside(silent).outcome == "rejected"


def test_internal_policy_local() -> None:
    service = replace(SERVICE, internal_traffic_policy=LOCAL)
    assert reached(from_inside(ONE, TWO, service=service)) == ["10.244.0.5"]
    assert from_inside(TWO, service=service).outcome == "dropped"
    assert from_inside(service=service).outcome == "rejected"


def test_hints_count_where_every_endpoint_has_one() -> None:
    near, far = replace(ONE, for_zones=("a",)), replace(TWO, for_zones=("b",))
    assert reached(from_inside(near, far)) == ["10.244.0.5"]
    assert len(from_inside(near, TWO).used) == 2
    assert len(from_inside(replace(near, for_zones=("c",)), far).used) == 2
    assert reached(from_inside(replace(near, for_nodes=("n2",)), replace(far, for_nodes=("n1",)))) == ["10.244.1.5"]


@pytest.mark.parametrize(
    ("endpoints", "source"),
    [
        ([ONE], {"node": "n1", "device": "pods"}),
        ([TWO], {"node": "n1", "device": "uplink"}),
        ([ONE, TWO], None),
    ],
)
def test_a_node_hides_pods_by_the_device_that_they_leave_by(endpoints: list[Endpoint], source: object) -> None:
    assert from_outside(*endpoints).source == source


def test_programs_of_the_callers_node_see_it_as_it_is() -> None:
    assert from_outside(ONE, programs=True).source == "preserved"
    assert from_outside(TWO, programs=True).source == {"node": "n1", "device": "uplink"}


def test_external_policy_local_sends_pods_everywhere_as_themselves() -> None:
    promise = from_outside(ONE, TWO, service=replace(SERVICE, external_traffic_policy=LOCAL))
    assert len(promise.used) == 2
    assert promise.source == "preserved"


def test_source_ranges() -> None:
    assert from_outside(ONE, allowed="198.51.100.0/24").outcome == "dropped"
    assert from_outside(ONE, allowed="10.0.0.0/8").outcome == "delivered"
    assert from_outside(allowed="198.51.100.0/24").outcome == "rejected"
