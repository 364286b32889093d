"""Every object that the API can express is read from its document as it was, whatever its fields are."""

from ipaddress import IPv4Address, IPv4Network, IPv6Address, ip_network
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import fields, replace

from proxylab.addresses import Family, Protocol
from proxylab.cluster.documents import TABLES, document_of, object_of, table_of
from proxylab.cluster.objects import (
    ClusterEvent,
    Endpoint,
    EndpointPort,
    Endpoints,
    EndpointSlice,
    KubeObject,
    LoadBalancerIngress,
    Namespace,
    Node,
    ObjectKey,
    Pod,
    PodPort,
    Service,
    ServiceCIDR,
    ServicePort,
    ServiceType,
    TrafficPolicy,
    Unstructured,
)
from proxylab.encoding import MisfitError

SINCE = "2026-01-02T03:04:05Z"
OF_METADATA = {"namespace", "name", "labels", "annotations", "stored"}

words = st.from_regex(r"[a-z][a-z0-9]{0,6}", fullmatch=True)
texts = st.one_of(st.just(""), words)
labels = st.dictionaries(words, texts, max_size=2)
ports = st.integers(1, 65535)
fours = st.integers(1, 2**32 - 1).map(IPv4Address)
sixes = st.integers(1, 2**128 - 1).map(IPv6Address)
ips = st.one_of(fours, sixes)
networks = st.builds(lambda ip, bits: ip_network((ip, bits), strict=False), ips, st.integers(1, 32))
protocols = st.sampled_from(Protocol)


def tuples(each: st.SearchStrategy[Any], at_most: int = 3) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.lists(each, max_size=at_most, unique=True).map(tuple)


service_ports = st.builds(
    ServicePort, name=texts, protocol=protocols, port=ports, target_port=st.one_of(ports, words), node_port=ports
)
ingress = st.one_of(
    st.builds(LoadBalancerIngress, ip=ips, hostname=texts, ip_mode=st.sampled_from(["VIP", "Proxy"])),
    st.builds(LoadBalancerIngress, hostname=words),
)


@st.composite
def services(draw: st.DrawFn) -> Service:
    """A Service as the API server lets it be: which fields it keeps depends on others."""
    kind = draw(st.sampled_from(ServiceType))
    inside = kind is not ServiceType.EXTERNAL_NAME
    headless = inside and draw(st.booleans())
    external_ips = draw(tuples(ips))
    outside = kind in (ServiceType.NODE_PORT, ServiceType.LOAD_BALANCER) or external_ips
    written: dict[str, Any] = {}
    if inside:
        written["ip_families"] = draw(tuples(st.sampled_from(Family)))
        written["ip_family_policy"] = draw(st.sampled_from(["SingleStack", "PreferDualStack", "RequireDualStack"]))
        written["internal_traffic_policy"] = draw(st.sampled_from(TrafficPolicy))
        written["cluster_ips"] = () if headless else draw(tuples(ips, 2))
    else:
        written["external_name"] = draw(words)
    if outside:
        written["external_traffic_policy"] = draw(st.sampled_from(TrafficPolicy))
    if kind is ServiceType.LOAD_BALANCER:
        written["allocate_node_ports"] = draw(st.booleans())
    return Service(
        namespace=draw(words),
        name=draw(words),
        labels=draw(labels),
        annotations=draw(labels),
        type=kind,
        selector=draw(labels),
        ports=draw(tuples(service_ports)),
        headless=headless,
        external_ips=external_ips,
        load_balancer_ingress=draw(tuples(ingress)),
        source_ranges=draw(tuples(networks)),
        health_check_node_port=draw(st.one_of(st.just(0), ports)),
        affinity_timeout=draw(st.one_of(st.none(), st.integers(1, 86400))),
        publish_not_ready_addresses=draw(st.booleans()),
        traffic_distribution=draw(texts),
        **written,
    )


endpoint_ports = st.builds(EndpointPort, name=texts, protocol=protocols, port=ports)
endpoints_of_slices = st.builds(
    Endpoint,
    addresses=tuples(ips),
    ready=st.booleans(),
    serving=st.booleans(),
    terminating=st.booleans(),
    node_name=texts,
    zone=texts,
    hostname=texts,
    for_zones=tuples(words),
    for_nodes=tuples(words),
    target=texts,
)


def pods() -> st.SearchStrategy[Pod]:
    """Pods of one condition Ready, as Kubernetes has it."""
    made = st.builds(
        Pod,
        namespace=words,
        name=words,
        labels=labels,
        node_name=words,
        addresses=tuples(ips, 2),
        ports=tuples(st.builds(PodPort, name=texts, protocol=protocols, port=ports)),
        host_network=st.booleans(),
        hostname=texts,
        subdomain=texts,
        ready=st.booleans(),
        terminating=st.booleans(),
    )
    return made.map(lambda pod: replace(pod, serving=pod.ready))


DRAWN: dict[type[Any], st.SearchStrategy[Any]] = {
    Service: services(),
    EndpointSlice: st.builds(
        EndpointSlice,
        namespace=words,
        name=words,
        service=words,
        labels=labels,
        address_type=st.sampled_from(Family),
        ports=tuples(endpoint_ports),
        endpoints=tuples(endpoints_of_slices),
    ),
    Endpoints: st.builds(
        Endpoints,
        namespace=words,
        name=words,
        subsets=st.lists(st.tuples(tuples(ips), tuples(endpoint_ports)), max_size=2).map(tuple),
    ),
    Node: st.builds(
        Node,
        name=words,
        labels=labels,
        addresses=tuples(ips, 2),
        pod_cidrs=tuples(networks, 2),
        taints=tuples(st.from_regex(r"[a-z]{1,4}(=[a-z]{1,4})?:No(Schedule|Execute)", fullmatch=True)),
        deleting=st.booleans(),
    ),
    Pod: pods(),
    Namespace: st.builds(Namespace, name=words, labels=labels),
    ServiceCIDR: st.builds(ServiceCIDR, name=words, cidrs=tuples(networks, 2)),
    ClusterEvent: st.builds(
        ClusterEvent,
        namespace=words,
        name=words,
        regarding=st.builds(ObjectKey, words, texts, words),
        reason=words,
        note=texts,
        type=words,
        action=texts,
        reporter=texts,
        reporting_instance=texts,
        time=texts,
        count=st.integers(1, 9),
    ),
}


def test_every_kind_that_has_a_record_has_a_table_with_all_its_fields() -> None:
    assert {*DRAWN} == {*TABLES} == {*get_args(KubeObject)} - {Unstructured}
    for kind, table in TABLES.items():
        assert {each.name for each in fields(kind)} - OF_METADATA == {*table.fields}, kind


@pytest.mark.parametrize("kind", TABLES)
@given(data=st.data())
def test_an_object_is_read_from_its_document_as_it_was(kind: type[Any], data: st.DataObject) -> None:
    thing = data.draw(DRAWN[kind])
    assert object_of(kind, document_of(thing, 7, SINCE)) == thing


@given(service=services(), four=fours)
def test_an_address_with_leading_zeros_stays_as_an_old_server_stored_it(service: Service, four: IPv4Address) -> None:
    old = ".".join(f"{int(part):03}" for part in str(four).split("."))
    network = IPv4Network((four, 8), strict=False)
    stored = {str(four): old, str(network): old + "/8"} if old != str(four) else {}
    thing = replace(service, external_ips=(four,), source_ranges=(network,), stored=stored)
    document = document_of(thing, 7, SINCE)
    assert document["spec"]["externalIPs"] == [old]
    assert object_of(Service, document).stored.items() >= {str(four): old}.items() - {str(four): str(four)}.items()
    assert document_of(object_of(Service, document), 7, SINCE) == document


@pytest.mark.parametrize(
    ("kind", "key", "value"),
    [
        (Service, "spec", {"type": "Nonsense"}),
        (Service, "spec", {"externalIPs": ["10.0.0.300"]}),
        (Service, "spec", {"ports": ["http"]}),
        (EndpointSlice, "endpoints", [{"addresses": "10.0.0.1"}]),
        (EndpointSlice, "endpoints", 7),
        (Node, "spec", {"taints": [{}]}),
        (Pod, "status", {"podIPs": [{"ip": 7}]}),
        (ClusterEvent, "regarding", "Service web"),
        (ClusterEvent, "series", {"count": "many"}),
        (Namespace, "metadata", None),
    ],
)
def test_a_document_of_another_shape_is_refused(kind: type[Any], key: str, value: object) -> None:
    given_here = {
        "metadata": {"name": "web"},
        "addressType": "IPv4",
        "regarding": {"kind": "Service", "name": "web"},
        "reason": "Tried",
    }
    with pytest.raises(MisfitError, match=f"^{kind.__name__}: "):
        object_of(kind, {**given_here, key: value})


class ClassedService(Service, frozen=True):
    """A Service with one more field."""

    load_balancer_class: str = ""


def test_a_further_field_is_one_line_in_its_record(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = {name: path for name, path in TABLES[Service].fields.items() if name != "traffic_distribution"}
    monkeypatch.setitem(TABLES, ClassedService, table_of(ClassedService, "v1", rows))  # type: ignore[arg-type]
    thing = ClassedService(name="web", load_balancer_class="example.com/lb", traffic_distribution="PreferSameZone")
    document = document_of(thing, 7, SINCE)
    assert document["spec"]["loadBalancerClass"] == "example.com/lb"
    assert document["spec"]["trafficDistribution"] == "PreferSameZone"
    assert object_of(ClassedService, document) == thing  # type: ignore[type-var]
