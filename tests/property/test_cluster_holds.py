"""Invariants of allocation for any Services, and of EndpointSlices for any pods."""

from ipaddress import ip_address, ip_network

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from proxylab.addresses import Family
from proxylab.cluster.allocate import NODE_PORTS, allocate_services
from proxylab.cluster.objects import Pod, PodPort, Service, ServicePort, ServiceType, TrafficPolicy
from proxylab.cluster.slices import MAX_ENDPOINTS_PER_SLICE, derive_slices

examples = settings(max_examples=50, deadline=None)

V4, V6 = ip_network("10.96.0.0/24"), ip_network("fd00:96::/120")
RESERVED = {V4[1], V4[10], V6[1], V6[10]}

service_lists = st.lists(
    st.builds(
        Service,
        name=st.just("to be numbered"),
        type=st.sampled_from([ServiceType.CLUSTER_IP, ServiceType.NODE_PORT, ServiceType.LOAD_BALANCER]),
        ports=st.integers(1, 3).map(
            lambda count: tuple(ServicePort(name=f"p{i}", port=80 + i, target_port=1) for i in range(count))
        ),
        ip_family_policy=st.sampled_from(["SingleStack", "PreferDualStack", "RequireDualStack"]),
        external_traffic_policy=st.sampled_from(TrafficPolicy),
    ),
    max_size=12,
).map(lambda services: [replace(service, name=f"s{number}") for number, service in enumerate(services)])


@given(service_lists, st.integers(0, 12))
@examples
def test_no_address_is_allocated_twice_and_none_moves(services: list[Service], cut: int) -> None:
    allocated = allocate_services(services, [V4, V6])
    addresses = [address for service in allocated for address in service.cluster_ips]
    assert len(addresses) == len(set(addresses)) == sum(len(service.ip_families) for service in allocated)
    assert RESERVED.isdisjoint(addresses)
    numbers = [port.node_port for service in allocated for port in service.ports if port.node_port]
    numbers += [service.health_check_node_port for service in allocated if service.health_check_node_port]
    assert len(numbers) == len(set(numbers))
    assert set(numbers) <= set(NODE_PORTS.numbers)
    assert allocate_services(services[:cut], [V4, V6]) == allocated[:cut]


@given(service_lists)
@examples
def test_what_has_been_allocated_stays(services: list[Service]) -> None:
    allocated = allocate_services(services, [V4, V6])
    assert allocate_services(allocated, [V4, V6]) == allocated


pod_lists = st.lists(
    st.builds(
        Pod,
        name=st.just("to be numbered"),
        node_name=st.sampled_from(["node-a", "node-b"]),
        labels=st.sampled_from([{"app": "echo"}, {"app": "web"}]),
        addresses=st.just(()),
        ports=st.sampled_from([(), (PodPort(name="web", port=8080),), (PodPort(name="web", port=9090),)]),
        ready=st.booleans(),
    ),
    max_size=250,
).map(
    lambda pods: [
        replace(pod, name=f"pod-{number}", addresses=(ip_address("10.42.0.0") + number,))
        for number, pod in enumerate(pods)
    ]
)


@given(pod_lists)
@examples
def test_every_selected_pod_stands_in_exactly_one_slice(pods: list[Pod]) -> None:
    service = Service(
        name="echo",
        selector={"app": "echo"},
        ip_families=(Family.IPV4,),
        ports=(ServicePort(port=80, target_port="web"),),
    )
    slices = derive_slices([service], pods, [])
    targets = [endpoint.target for item in slices for endpoint in item.endpoints]
    assert sorted(targets) == sorted(pod.name for pod in pods if pod.labels["app"] == "echo")
    assert all(len(item.endpoints) <= MAX_ENDPOINTS_PER_SLICE for item in slices)
    assert len({item.name for item in slices}) == len(slices)
    numbers = {pod.name: [port.port for port in pod.ports] for pod in pods}
    assert all([p.port for p in item.ports] == numbers[e.target] for item in slices for e in item.endpoints)
