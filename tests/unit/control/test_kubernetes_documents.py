"""Objects that are written for the real API server, and read from it again."""

from ipaddress import ip_address, ip_network

import pytest

from proxylab.addresses import Family, Protocol
from proxylab.cluster.documents import object_of
from proxylab.cluster.objects import (
    Endpoint,
    EndpointPort,
    EndpointSlice,
    KubeObject,
    LoadBalancerIngress,
    Namespace,
    Node,
    Pod,
    PodPort,
    Service,
    ServicePort,
    ServiceType,
    TrafficPolicy,
    Unstructured,
)
from proxylab.control.kubernetes.documents import (
    collection_of,
    created,
    kept_of,
    node_of,
    node_status,
    pod_status,
    seconds_to_ready,
    service_status,
    slice_of,
)

PORT = ServicePort(name="http", port=80, target_port="web", node_port=30080)
DUAL = {"cluster_ips": (ip_address("10.96.0.7"), ip_address("fd00:96::7")), "ip_families": (Family.IPV4, Family.IPV6)}
SERVICES = [
    Service(name="one", ports=(PORT,), **DUAL, ip_family_policy="RequireDualStack", selector={"app": "echo"}),
    Service(name="headless", headless=True, ip_families=(Family.IPV4,), publish_not_ready_addresses=True),
    Service(name="named", type=ServiceType.EXTERNAL_NAME, external_name="example.com"),
    Service(
        namespace="shop",
        name="balanced",
        labels={"tier": "front"},
        annotations={"owner": "us"},
        type=ServiceType.LOAD_BALANCER,
        ports=(ServicePort(port=53, protocol=Protocol.UDP, target_port=5353, node_port=30053),),
        **DUAL,
        external_ips=(ip_address("198.51.100.7"),),
        load_balancer_ingress=(LoadBalancerIngress(ip=ip_address("203.0.113.9"), ip_mode="Proxy"),),
        source_ranges=(ip_network("198.51.100.0/24"),),
        external_traffic_policy=TrafficPolicy.LOCAL,
        internal_traffic_policy=TrafficPolicy.LOCAL,
        health_check_node_port=32000,
        affinity_timeout=30,
        traffic_distribution="PreferSameZone",
        allocate_node_ports=False,
    ),
]
NODE = Node(
    name="node-a",
    labels={"topology.kubernetes.io/zone": "a"},
    addresses=(ip_address("192.168.0.1"),),
    pod_cidrs=(ip_network("10.244.1.0/24"),),
    taints=("dedicated=us:NoSchedule", "ToBeDeletedByClusterAutoscaler:NoSchedule"),
)


@pytest.mark.parametrize("service", SERVICES, ids=lambda each: each.name)
def test_a_service_that_is_created_is_read_as_it_was(service: Service) -> None:
    assert object_of(Service, created(service) | service_status(service)) == service


def test_a_slice_that_is_created_is_read_as_it_was() -> None:
    endpoint = Endpoint(
        addresses=(ip_address("10.244.1.2"),),
        ready=False,
        serving=True,
        terminating=True,
        node_name="node-a",
        zone="a",
        hostname="web-0",
        for_zones=("a", "b"),
        for_nodes=("node-a",),
        target="web-0",
    )
    written = EndpointSlice(
        name="web-x",
        service="web",
        labels={"managed": "here"},
        address_type=Family.IPV4,
        ports=(EndpointPort(name="http", port=8080),),
        endpoints=(endpoint, Endpoint(addresses=(ip_address("10.244.1.3"),))),
    )
    assert slice_of(created(written)) == written


def test_unknown_conditions_count_as_ready() -> None:
    """discovery.k8s.io/v1: a nil ready should be interpreted as true, and a nil serving as ready."""
    document = created(EndpointSlice(name="s", service="web", address_type=Family.IPV4))
    document["endpoints"] = [{"addresses": ["10.244.1.2"], "conditions": {}}]
    document["ports"] = None
    found = slice_of(document)
    assert found is not None
    assert [(each.ready, each.serving, each.terminating) for each in found.endpoints] == [(True, True, False)]


@pytest.mark.parametrize("change", [{"addressType": "FQDN"}, {"metadata": {"name": "s", "namespace": "default"}}])
def test_a_slice_that_no_proxy_reads_is_none(change: dict[str, object]) -> None:
    document = created(EndpointSlice(name="s", service="web", address_type=Family.IPV4)) | change
    assert slice_of(document) is None


def test_a_node_is_read_with_what_people_changed() -> None:
    document = created(NODE)
    assert node_of(document, NODE) == Node(
        name="node-a",
        labels=NODE.labels,
        addresses=NODE.addresses,
        pod_cidrs=NODE.pod_cidrs,
        taints=NODE.taints,
    )
    document["spec"]["taints"] = []
    document["metadata"]["deletionTimestamp"] = "2026-11-28T00:00:00Z"
    changed = node_of(document, NODE)
    assert (changed.taints, changed.deleting) == ((), True)
    document["metadata"]["labels"]["beta.kubernetes.io/os"] = "linux"  # its controller adds it
    assert node_of(document, NODE).labels == NODE.labels
    status = node_status(NODE, "v1.37.2", "2026-11-28T00:00:00Z")["status"]
    assert {"type": "InternalIP", "address": "192.168.0.1"} in status["addresses"]
    assert [each["status"] for each in status["conditions"]] == ["True"]


def test_a_pod_is_created_with_an_image_and_reported_as_ready_as_it_is() -> None:
    pod = Pod(
        name="web-0",
        node_name="node-a",
        addresses=(ip_address("10.244.1.2"), ip_address("fd00::2")),
        ports=(PodPort(name="web", port=8080),),
        hostname="web-0",
        ready=False,
    )
    document = created(pod)
    assert "uid" not in document["metadata"]
    assert document["spec"]["nodeName"] == "node-a"
    assert document["spec"]["hostname"] == "web-0"
    (container,) = document["spec"]["containers"]
    assert container["image"]
    assert container["ports"] == [{"containerPort": 8080, "protocol": "TCP", "name": "web"}]
    status = pod_status(pod, NODE.addresses, "2026-11-28T00:00:00Z")["status"]
    assert status["podIPs"] == [{"ip": "10.244.1.2"}, {"ip": "fd00::2"}]
    conditions = {each["type"]: each["status"] for each in status["conditions"]}
    assert (conditions["Ready"], conditions["PodScheduled"]) == ("False", "True")


@pytest.mark.parametrize(
    ("containers", "seconds"),
    [
        ([{}], 0),
        ([{"readinessProbe": {}}], 0),
        ([{"readinessProbe": {"initialDelaySeconds": 3, "successThreshold": 3}}], 23),
        ([{"readinessProbe": {"initialDelaySeconds": 3, "successThreshold": 2, "periodSeconds": 1}}], 4),
        ([{"startupProbe": {"initialDelaySeconds": 2}, "readinessProbe": {"initialDelaySeconds": 3}}], 5),
        ([{"readinessProbe": {"initialDelaySeconds": 3}}, {"readinessProbe": {"initialDelaySeconds": 7}}], 7),
    ],
)
def test_a_pod_is_ready_as_soon_as_its_probes_may_succeed(containers: list[dict[str, object]], seconds: int) -> None:
    assert seconds_to_ready({"spec": {"containers": containers}}) == seconds


def test_an_ingress_that_is_created_is_read_as_it_was() -> None:
    written = Unstructured(
        api_version="networking.k8s.io/v1",
        kind="Ingress",
        plural="ingresses",
        namespace="shop",
        name="web",
        labels={"a": "b"},
        annotations={"c": "d"},
        content={"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "spec": {"rules": []}},
    )
    document = {key: value for key, value in created(written).items() if key not in ("apiVersion", "kind")}
    assert kept_of("networking.k8s.io/v1", "Ingress", {**document, "status": {"loadBalancer": {}}}) == written


@pytest.mark.parametrize(
    ("thing", "path"),
    [
        (Namespace(name="shop"), "/api/v1/namespaces"),
        (NODE, "/api/v1/nodes"),
        (
            Unstructured(api_version="v1", kind="ConfigMap", plural="configmaps", namespace="shop", name="c"),
            "/api/v1/namespaces/shop/configmaps",
        ),
        (
            Unstructured(
                api_version="networking.k8s.io/v1", kind="IngressClass", plural="ingressclasses", name="nginx"
            ),
            "/apis/networking.k8s.io/v1/ingressclasses",
        ),
        (SERVICES[3], "/api/v1/namespaces/shop/services"),
        (
            EndpointSlice(name="s", service="web", address_type=Family.IPV4),
            "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices",
        ),
    ],
)
def test_each_kind_has_its_collection(thing: KubeObject, path: str) -> None:
    assert collection_of(thing) == path


def test_a_namespace_is_read_with_its_labels() -> None:
    assert object_of(Namespace, {"metadata": {"name": "shop", "labels": {"a": "b"}}}) == Namespace(
        name="shop", labels={"a": "b"}
    )
