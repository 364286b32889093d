from ipaddress import ip_address

from msgspec.structs import replace

from proxylab.addresses import Family, Protocol
from proxylab.cluster.objects import ZONE_LABEL, EndpointPort, Node, Pod, PodPort, Service, ServicePort, ServiceType
from proxylab.cluster.slices import MAX_ENDPOINTS_PER_SLICE, derive_slices

ECHO = Service(
    name="echo",
    selector={"app": "echo"},
    labels={"team": "x"},
    ip_families=(Family.IPV4,),
    ports=(ServicePort(name="http", port=80, target_port=8080),),
)
NODES = (Node(name="node-a", labels={ZONE_LABEL: "blue"}), Node(name="node-b"))


def pod(number: int, **fields: object) -> Pod:
    plain = Pod(
        name=f"echo-{number}",
        labels={"app": "echo", "other": "label"},
        node_name="node-a",
        addresses=(ip_address("10.42.0.0") + number, ip_address("fd00:42::") + number),
    )
    return replace(plain, **fields)


def the_endpoint(service: Service, one: Pod):
    (only,) = derive_slices([service], [one], NODES)
    (endpoint,) = only.endpoints
    return endpoint


def test_a_slice_carries_what_the_pods_and_nodes_say() -> None:
    (only,) = derive_slices([ECHO], [pod(1)], NODES)
    assert only.service == "echo"
    assert only.ports == (EndpointPort(name="http", port=8080),)
    assert only.labels["kubernetes.io/service-name"] == "echo"
    assert only.labels["team"] == "x"
    (endpoint,) = only.endpoints
    assert endpoint.addresses == (ip_address("10.42.0.1"),)
    assert (endpoint.node_name, endpoint.zone, endpoint.target) == ("node-a", "blue", "echo-1")
    assert (endpoint.ready, endpoint.serving, endpoint.terminating) == (True, True, False)


def test_only_pods_of_the_namespace_with_all_labels_are_selected() -> None:
    strangers = [pod(1, namespace="other"), pod(2, labels={"app": "web"}), pod(3, labels={})]
    (only,) = derive_slices([ECHO], strangers, NODES)
    assert (only.endpoints, only.ports) == ((), ())


def test_conditions() -> None:
    unready = the_endpoint(ECHO, pod(1, ready=False))
    assert (unready.ready, unready.serving, unready.terminating) == (False, False, False)
    draining = the_endpoint(ECHO, pod(1, ready=False, serving=True, terminating=True))
    assert (draining.ready, draining.serving, draining.terminating) == (False, True, True)
    dying = the_endpoint(ECHO, pod(1, ready=True, serving=False, terminating=True))
    assert (dying.ready, dying.serving, dying.terminating) == (False, False, True)


def test_publish_not_ready_addresses_calls_everything_ready() -> None:
    endpoint = the_endpoint(replace(ECHO, publish_not_ready_addresses=True), pod(1, ready=False, terminating=True))
    assert (endpoint.ready, endpoint.terminating) == (True, True)


def test_named_target_ports_group_pods_into_slices() -> None:
    service = replace(ECHO, ports=(ServicePort(name="http", port=80, target_port="web"),))
    old, new = (PodPort(name="web", port=8080),), (PodPort(name="web", port=9090),)
    slices = derive_slices([service], [pod(1, ports=old), pod(2, ports=new), pod(3, ports=old), pod(4)], NODES)
    found = {tuple(port.port for port in item.ports): [e.target for e in item.endpoints] for item in slices}
    assert found == {(8080,): ["echo-1", "echo-3"], (9090,): ["echo-2"], (): ["echo-4"]}
    assert len({item.name for item in slices}) == 3


def test_a_named_target_port_is_the_pod_s_port_of_that_name_and_protocol() -> None:
    service = replace(ECHO, ports=(ServicePort(name="http", port=80, target_port="web"),))
    others = (
        PodPort(name="web", port=7070, protocol=Protocol.UDP),
        PodPort(name="jobs", port=7071),
        PodPort(name="web", port=8080),
    )
    (item,) = derive_slices([service], [pod(1, ports=others)], NODES)
    assert [port.port for port in item.ports] == [8080]
    (none,) = derive_slices([service], [pod(1, ports=others[:2])], NODES)
    assert none.ports == ()


def test_a_slice_per_family_and_only_pods_that_have_it() -> None:
    service = replace(ECHO, ip_families=(Family.IPV4, Family.IPV6))
    v4, v6 = derive_slices([service], [pod(1), pod(2, addresses=(ip_address("10.42.0.2"),))], NODES)
    assert (v4.address_type, len(v4.endpoints)) == (Family.IPV4, 2)
    assert (v6.address_type, [str(e.addresses[0]) for e in v6.endpoints]) == (Family.IPV6, ["fd00:42::1"])


def test_at_most_a_hundred_endpoints_in_a_slice() -> None:
    pods = [pod(number) for number in range(1, 2 * MAX_ENDPOINTS_PER_SLICE + 2)]
    slices = derive_slices([ECHO], pods, NODES)
    assert [len(item.endpoints) for item in slices] == [100, 100, 1]
    assert {e.target for item in slices for e in item.endpoints} == {one.name for one in pods}


def test_the_order_of_pods_makes_no_difference() -> None:
    pods = [pod(number) for number in range(1, 150)]
    assert derive_slices([ECHO], pods, NODES) == derive_slices([ECHO], pods[::-1], NODES)


def test_a_slice_keeps_its_name_while_endpoints_come_and_go() -> None:
    names = {derive_slices([ECHO], pods, NODES)[0].name for pods in ([pod(1)], [pod(2), pod(3)])}
    assert len(names) == 1
    assert names.pop().startswith("echo-")


def test_no_slices_without_selector_or_for_external_names() -> None:
    services = [replace(ECHO, selector={}), replace(ECHO, name="e", type=ServiceType.EXTERNAL_NAME)]
    assert derive_slices(services, [pod(1)], NODES) == ()


def test_headless_slices_say_so() -> None:
    (only,) = derive_slices([replace(ECHO, headless=True)], [pod(1)], NODES)
    assert only.labels["service.kubernetes.io/headless"] == ""


def test_hints_follow_the_traffic_distribution_for_ready_endpoints() -> None:
    near = the_endpoint(replace(ECHO, traffic_distribution="PreferClose"), pod(1))
    assert (near.for_zones, near.for_nodes) == (("blue",), ())
    same = the_endpoint(replace(ECHO, traffic_distribution="PreferSameNode"), pod(1))
    assert (same.for_zones, same.for_nodes) == (("blue",), ("node-a",))
    unready = the_endpoint(replace(ECHO, traffic_distribution="PreferSameNode"), pod(1, ready=False))
    assert (unready.for_zones, unready.for_nodes) == ((), ())
    zoneless = the_endpoint(replace(ECHO, traffic_distribution="PreferSameZone"), pod(1, node_name="node-b"))
    assert zoneless.for_zones == ()
