"""The Kubernetes API over a store, without a socket: what is selected, listed, watched and refused."""

import json
from contextlib import suppress
from ipaddress import ip_address, ip_network
from typing import Any

import kubernetes_validate
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from proxylab.addresses import Family
from proxylab.cluster.documents import document_of
from proxylab.cluster.kinds import KEPT_KINDS
from proxylab.cluster.objects import (
    ClusterEvent,
    Endpoint,
    EndpointPort,
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
    Unstructured,
)
from proxylab.cluster.store import Store
from proxylab.control.kubeapi.api import ApiReply, KubeApi, WatchReply
from proxylab.control.kubeapi.following import OpenWatch
from proxylab.control.kubeapi.refusal import Refusal
from proxylab.control.kubeapi.selectors import Selection

SINCE = "2026-01-02T03:04:05Z"
ECHO = Service(
    name="echo",
    labels={"app": "echo"},
    cluster_ips=(ip_address("10.96.0.10"),),
    ip_families=(Family.IPV4,),
    ports=(ServicePort(port=80, target_port=8080),),
)
HEADLESS = Service(name="headless", headless=True, ip_families=(Family.IPV4,))
FOREIGN = replace(ECHO, name="foreign", labels={"service.kubernetes.io/service-proxy-name": "other"})
SLICE = EndpointSlice(
    name="echo-1",
    service="echo",
    address_type=Family.IPV4,
    ports=(EndpointPort(port=8080),),
    endpoints=(Endpoint(addresses=(ip_address("10.244.0.5"),), node_name="node-a", zone="a", for_zones=("a",)),),
)
# As kube-proxy asks, from 1.35 on.
KUBE_PROXY = "labelSelector=%21service.kubernetes.io%2Fservice-proxy-name&fieldSelector=spec.clusterIP%21%3DNone"
STREAMED = "watch=true&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"


def api_with(*things: KubeObject, history: int = 1000) -> KubeApi:
    store = Store(history)
    for thing in things:
        store.apply(thing)
    return KubeApi(store, SINCE)


def get(api: KubeApi, path: str, query: str = "") -> tuple[int, Any]:
    reply = api.answer("GET", path, query, b"", "")
    assert isinstance(reply, ApiReply), "a watch"
    return int(reply.code), json.loads(reply.body)


def watch(api: KubeApi, path: str, query: str) -> OpenWatch:
    reply = api.answer("GET", path, query, b"", "")
    assert isinstance(reply, WatchReply), reply
    return reply.open_watch


def events(open_watch: OpenWatch, size: int = 1 << 20) -> list[Any]:
    return [json.loads(line) for line in open_watch.new_lines(size).splitlines()]


def told(open_watch: OpenWatch, size: int = 1 << 20) -> list[tuple[str, str]]:
    """What is new, as pairs of the kind of event and the name of the object."""
    return [(each["type"], each["object"]["metadata"].get("name", "")) for each in events(open_watch, size)]


def names(document: Any) -> list[str]:
    return [item["metadata"]["name"] for item in document["items"]]


def test_a_list_has_what_its_selectors_ask_for() -> None:
    api = api_with(Namespace(name="default"), ECHO, HEADLESS, FOREIGN, SLICE)
    code, everything = get(api, "/api/v1/services")
    assert (code, everything["kind"], names(everything)) == (200, "ServiceList", ["echo", "foreign", "headless"])
    assert everything["metadata"]["resourceVersion"] == "5"
    assert names(get(api, "/api/v1/services", KUBE_PROXY)[1]) == ["echo"]
    assert names(get(api, "/api/v1/namespaces/default/services", "fieldSelector=metadata.name=echo")[1]) == ["echo"]
    assert names(get(api, "/api/v1/namespaces/other/services")[1]) == []
    slices = get(api, "/apis/discovery.k8s.io/v1/endpointslices", "labelSelector=kubernetes.io/service-name=echo")[1]
    assert names(slices) == ["echo-1"]
    assert slices["items"][0]["metadata"]["labels"] == {"kubernetes.io/service-name": "echo"}


def test_a_streaming_list_ends_with_its_bookmark_and_goes_on() -> None:
    api = api_with(ECHO, HEADLESS)
    open_watch = watch(api, "/api/v1/services", f"{STREAMED}&{KUBE_PROXY}")
    added, bookmark = events(open_watch)
    assert (added["type"], added["object"]["metadata"]["name"]) == ("ADDED", "echo")
    assert bookmark == {
        "type": "BOOKMARK",
        "object": {
            "kind": "Service",
            "apiVersion": "v1",
            "metadata": {
                "resourceVersion": "2",
                "creationTimestamp": None,
                "annotations": {"k8s.io/initial-events-end": "true"},
            },
        },
    }
    api.store.apply(replace(ECHO, annotations={"a": "b"}))
    assert told(open_watch) == [("MODIFIED", "echo")]
    assert told(open_watch) == []


def test_a_client_takes_lines_piece_by_piece_while_objects_change() -> None:
    api = api_with(ECHO, HEADLESS)
    open_watch = watch(api, "/api/v1/services", STREAMED)
    assert told(open_watch, size=1) == [("ADDED", "echo")]
    api.store.delete(HEADLESS.key)
    api.store.apply(replace(ECHO, annotations={"a": "b"}))
    taken = [told(open_watch, size=1) for _ in range(5)]
    assert taken == [[("ADDED", "headless")], [("BOOKMARK", "")], [("DELETED", "headless")], [("MODIFIED", "echo")], []]


def test_what_stops_being_selected_is_deleted_and_what_begins_is_added() -> None:
    api = api_with(ECHO)
    open_watch = watch(api, "/api/v1/services", f"watch=1&resourceVersion=1&{KUBE_PROXY}")
    api.store.apply(replace(ECHO, labels={"service.kubernetes.io/service-proxy-name": "other"}))
    api.store.apply(replace(ECHO, labels={"service.kubernetes.io/service-proxy-name": "third"}))
    api.store.apply(ECHO)
    api.store.delete(ECHO.key)
    lines = events(open_watch)
    assert [line["type"] for line in lines] == ["DELETED", "ADDED", "DELETED"]
    # A deletion bears the revision of the change that made it, and the object as it was last selected.
    assert [line["object"]["metadata"]["resourceVersion"] for line in lines] == ["2", "4", "5"]
    assert lines[0]["object"]["metadata"]["labels"] == {"app": "echo"}


def test_a_watch_goes_on_from_a_revision_or_says_that_it_cannot() -> None:
    api = api_with(ECHO, HEADLESS, SLICE, history=2)
    assert told(watch(api, "/api/v1/services", "watch=true&resourceVersion=1")) == [("ADDED", "headless")]
    assert get(api, "/api/v1/services", "watch=true&resourceVersion=9")[0] == 504
    api.store.apply(FOREIGN)
    code, status = get(api, "/api/v1/services", "watch=true&resourceVersion=1")
    assert (code, status["reason"], status["kind"]) == (410, "Expired", "Status")


def test_a_watch_that_falls_behind_the_history_is_told_and_ends() -> None:
    api = api_with(ECHO, history=2)
    open_watch = watch(api, "/api/v1/services", STREAMED)
    assert told(open_watch) == [("ADDED", "echo"), ("BOOKMARK", "")]
    for number in range(3):
        api.store.apply(replace(ECHO, annotations={"n": str(number)}))
    (line,) = events(open_watch)
    assert (line["type"], line["object"]["code"], line["object"]["reason"]) == ("ERROR", 410, "Expired")
    assert open_watch.ended
    assert open_watch.new_lines(1) == b""


def test_a_watch_that_the_server_forgets_is_told_and_ends() -> None:
    api = api_with(ECHO)
    open_watch = watch(api, "/api/v1/services", STREAMED)
    assert told(open_watch) == [("ADDED", "echo"), ("BOOKMARK", "")]
    open_watch.expire()
    (line,) = events(open_watch)
    assert (line["type"], line["object"]["code"]) == ("ERROR", 410)
    assert open_watch.ended


def test_without_a_revision_a_watch_begins_with_what_there_is() -> None:
    api = api_with(ECHO)
    for query in ("watch=true", "watch=true&resourceVersion=0"):
        assert told(watch(api, "/api/v1/services", query)) == [("ADDED", "echo")]
    quiet = "watch=true&sendInitialEvents=false&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    assert told(watch(api, "/api/v1/services", quiet)) == []


@pytest.mark.parametrize(
    ("path", "query", "code", "reason"),
    [
        ("/api/v1/widgets", "", 404, "NotFound"),
        ("/api/v1/services", "resourceVersion=7", 504, "Timeout"),
        ("/api/v1/services", "resourceVersion=1&resourceVersionMatch=Exact", 410, "Expired"),
        ("/api/v1/services", "resourceVersion=x", 400, "BadRequest"),
        ("/api/v1/services", "resourceVersionMatch=NotOlderThan", 422, "Invalid"),
        ("/api/v1/services", "watch=true&sendInitialEvents=true", 422, "Invalid"),
        ("/api/v1/services", "sendInitialEvents=true", 422, "Invalid"),
        ("/api/v1/services", "watch=perhaps", 400, "BadRequest"),
        ("/api/v1/services", "labelSelector=a+in+b", 400, "BadRequest"),
        ("/api/v1/services", "fieldSelector=spec.color=red", 400, "BadRequest"),
        ("/api/v1/namespaces/default/services/none", "", 404, "NotFound"),
        ("/api/v1/namespaces/default/nodes", "", 404, "NotFound"),
        ("/nonsense/%00/..", "", 404, "NotFound"),
    ],
)
def test_refusals_are_statuses(path: str, query: str, code: int, reason: str) -> None:
    got, status = get(api_with(ECHO, HEADLESS), path, query)
    assert (got, status["kind"], status["reason"], status["code"]) == (code, "Status", reason, code)


def test_what_is_too_new_names_the_cause_that_clients_wait_for() -> None:
    reply = api_with(ECHO).answer("GET", "/api/v1/services", "resourceVersion=7", b"", "")
    assert isinstance(reply, ApiReply)
    assert json.loads(reply.body)["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge"
    assert reply.headers == (("Retry-After", "1"),)


def test_objects_cannot_be_changed_through_the_api() -> None:
    for method in ("PUT", "POST", "DELETE", "PATCH"):
        reply = api_with(ECHO).answer(method, "/api/v1/namespaces/default/services", "", b"{}", "application/json")
        assert isinstance(reply, ApiReply)
        assert reply.code == 405


EVENT = {
    "metadata": {"name": "node-a.1", "namespace": "default"},
    "regarding": {"kind": "Node", "name": "node-a"},
    "reason": "Starting",
    "note": "",
    "type": "Normal",
    "reportingController": "kube-proxy",
}
EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"


def test_events_are_kept_and_counted_up() -> None:
    api = api_with()
    created = api.answer("POST", EVENTS, "", json.dumps(EVENT).encode(), "application/json")
    assert isinstance(created, ApiReply)
    assert created.code == 201
    event = api.store.get(ObjectKey("Event", "default", "node-a.1"))
    assert isinstance(event, ClusterEvent)
    assert (event.regarding, event.reporter) == (ObjectKey("Node", "", "node-a"), "kube-proxy")
    patch = json.dumps({"series": {"count": 7}}).encode()
    patched = api.answer("PATCH", f"{EVENTS}/node-a.1", "", patch, "application/strategic-merge-patch+json")
    assert isinstance(patched, ApiReply)
    assert json.loads(patched.body)["series"]["count"] == 7
    assert names(get(api, EVENTS, "fieldSelector=regarding.kind=Node")[1]) == ["node-a.1"]


@pytest.mark.parametrize(
    ("method", "path", "body", "kind", "code"),
    [
        ("POST", EVENTS, b"k8s\0", "application/vnd.kubernetes.protobuf", 415),
        ("POST", EVENTS, b"[" * 100_000, "application/json", 400),
        ("POST", EVENTS, b"[]", "application/json", 400),
        ("POST", EVENTS, b"{}", "application/json", 422),
        ("PATCH", f"{EVENTS}/none", b"{}", "application/json", 404),
    ],
)
def test_events_that_are_none(method: str, path: str, body: bytes, kind: str, code: int) -> None:
    reply = api_with().answer(method, path, "", body, kind)
    assert isinstance(reply, ApiReply)
    assert reply.code == code


def test_a_flood_of_events_is_refused() -> None:
    api = api_with(*(ClusterEvent(name=str(n), regarding=ObjectKey("Node", "", "a"), reason="x") for n in range(1000)))
    reply = api.answer("POST", EVENTS, "", json.dumps(EVENT).encode(), "application/json")
    assert isinstance(reply, ApiReply)
    assert reply.code == 429


def test_discovery_leads_to_every_resource() -> None:
    api = api_with(ECHO)
    groups = [version["groupVersion"] for group in get(api, "/apis")[1]["groups"] for version in group["versions"]]
    found = set()
    for root in ("/api/v1", *(f"/apis/{group}" for group in groups)):
        for resource in get(api, root)[1]["resources"]:
            found.add(resource["name"])
            assert get(api, f"{root}/{resource['name']}")[0] == 200
    wanted = {"services", "endpoints", "endpointslices", "nodes", "pods", "namespaces", "servicecidrs", "events"}
    assert found == wanted | {each.plural for each in KEPT_KINDS.values()}
    assert get(api, "/apis/v1")[0] == 404
    assert get(api, "/version")[1]["gitVersion"].startswith("v1.")


def test_an_object_without_a_type_is_served_as_it_is_written() -> None:
    content = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "b"}}
    settings = Unstructured(
        api_version="v1", kind="ConfigMap", plural="configmaps", namespace="shop", name="settings", content=content
    )
    custom = Unstructured(
        api_version="example.org/v1",
        kind="Service",
        plural="services",
        namespace="shop",
        name="front",
        labels={"app": "front"},
        content={"apiVersion": "example.org/v1", "kind": "Service", "spec": {"deep": [1, None]}},
    )
    api = api_with(ECHO, settings, custom)
    code, document = get(api, "/api/v1/namespaces/shop/configmaps/settings")
    assert (code, document["data"], document["metadata"]["name"]) == (200, {"a": "b"}, "settings")
    root = "/apis/example.org/v1"
    assert [each["kind"] for each in get(api, root)[1]["resources"]] == ["Service"]
    listed = get(api, f"{root}/services", "labelSelector=app%3Dfront")[1]["items"]
    assert [each["spec"] for each in listed] == [{"deep": [1, None]}]
    assert [each["metadata"]["name"] for each in get(api, "/api/v1/services")[1]["items"]] == ["echo"]
    assert get(api, "/api/v1/secrets")[1]["items"] == []


@pytest.mark.parametrize(
    ("selector", "labels", "selected"),
    [
        ("", {}, True),
        ("a", {"a": ""}, True),
        ("a", {}, False),
        ("!a", {}, True),
        ("! a", {"a": ""}, False),
        ("a=b", {"a": "b"}, True),
        ("a==b", {"a": "c"}, False),
        ("a=", {"a": ""}, True),
        ("a!=b", {}, True),
        ("a in (b, c)", {"a": "c"}, True),
        ("a in (b, c)", {}, False),
        ("a notin (b,c)", {}, True),
        ("x.io/a notin (b),d", {"x.io/a": "c", "d": "1"}, True),
        ("a=b,!c", {"a": "b", "c": ""}, False),
    ],
)
def test_label_selectors(selector: str, labels: dict[str, str], selected: bool) -> None:
    assert Selection.of(selector, "").accepts(labels, {}) is selected


@pytest.mark.parametrize("selector", [",", "a in", "a in b", "!", "a=b c", "=b", "a>1", "(a)", "a in (b", "a,,b"])
def test_label_selectors_that_are_none(selector: str) -> None:
    with pytest.raises(Refusal):
        Selection.of(selector, "")


@given(st.text(), st.text())
def test_any_text_is_a_selector_or_refused(labels: str, fields: str) -> None:
    with suppress(Refusal):
        Selection.of(labels, fields).accepts({"a": "b"}, {})


@given(st.sampled_from(["GET", "POST", "PATCH", "DELETE"]), st.text(), st.text(), st.binary())
def test_no_request_ends_in_an_error_of_ours(method: str, path: str, query: str, body: bytes) -> None:
    api = api_with(ECHO)
    for prefix in ("", "/api/v1/services", EVENTS):
        reply = api.answer(method, prefix + path, query, body, "application/json")
        if isinstance(reply, ApiReply):
            assert 200 <= reply.code < 600


FULL = (
    replace(
        ECHO,
        type=ServiceType.LOAD_BALANCER,
        ports=(ServicePort(name="web", port=80, target_port="web", node_port=30080),),
        external_ips=(ip_address("198.51.100.1"),),
        load_balancer_ingress=(LoadBalancerIngress(ip=ip_address("192.0.2.9"), ip_mode="Proxy"),),
        source_ranges=(ip_network("203.0.113.0/24"),),
        affinity_timeout=600,
        health_check_node_port=30999,
        traffic_distribution="PreferClose",
    ),
    Service(name="elsewhere", type=ServiceType.EXTERNAL_NAME, external_name="example.org"),
    HEADLESS,
    SLICE,
    Node(name="node-a", addresses=(ip_address("172.18.0.2"),), pod_cidrs=(ip_network("10.244.0.0/24"),)),
    Node(name="node-b", taints=("ToBeDeletedByClusterAutoscaler",), deleting=True),
    Pod(name="p", node_name="node-a", addresses=(ip_address("10.244.0.5"),), ports=(PodPort(name="web", port=80),)),
    Pod(name="q", node_name="node-a", addresses=(ip_address("10.244.0.6"),), terminating=True, serving=False),
    Namespace(name="default"),
    ServiceCIDR(cidrs=(ip_network("10.96.0.0/16"),)),
)


@pytest.mark.parametrize("thing", FULL, ids=lambda thing: str(thing.key))
def test_documents_are_what_kubernetes_takes_for_its_own(thing: KubeObject) -> None:
    document = document_of(thing, 7, SINCE)
    kubernetes_validate.validate(document, "1.34", strict=False)
    assert document["metadata"]["resourceVersion"] == "7"


def test_a_pod_that_terminates_says_since_when() -> None:
    (leaving,) = [thing for thing in FULL if thing.name == "q"]
    document = document_of(leaving, 1, SINCE)
    assert document["metadata"]["deletionTimestamp"] == SINCE
    assert document["status"]["conditions"] == [{"type": "Ready", "status": "False"}]


AS_TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
STARTING = ClusterEvent(
    name="node-a.1",
    regarding=ObjectKey("Node", "", "node-a"),
    reason="Starting",
    note="kube-proxy starts",
    action="StartKubeProxy",
    reporter="kube-proxy",
    reporting_instance="kube-proxy-node-a",
    time="2026-01-02T03:04:05.000006Z",
)


def table(api: KubeApi, path: str, query: str = "") -> Any:
    reply = api.answer("GET", path, query, b"", "", AS_TABLE)
    assert isinstance(reply, ApiReply), "a watch"
    return json.loads(reply.body)


def test_a_list_an_object_and_each_change_are_tables_for_a_client_that_asks_for_them() -> None:
    api = api_with(ECHO, FOREIGN)
    listed = table(api, "/api/v1/namespaces/default/services", "labelSelector=app%3Decho")
    assert listed["kind"] == "Table"
    assert listed["rows"][0]["cells"][:5] == ["echo", "ClusterIP", "10.96.0.10", "<none>", "80/TCP"]
    assert listed["rows"][0]["object"]["kind"] == "PartialObjectMetadata"
    one = table(api, "/api/v1/namespaces/default/services/echo", "includeObject=Object")
    assert [row["cells"][0] for row in one["rows"]] == ["echo"]
    assert one["rows"][0]["object"]["spec"]["clusterIP"] == "10.96.0.10"
    reply = api.answer("GET", "/api/v1/services", f"watch=true&resourceVersion={api.store.revision}", b"", "", AS_TABLE)
    assert isinstance(reply, WatchReply)
    api.store.apply(replace(ECHO, external_ips=(ip_address("198.51.100.7"),)))
    api.store.delete(FOREIGN.key)
    changed, gone = map(json.loads, reply.open_watch.new_lines(1 << 20).splitlines())
    assert (changed["type"], changed["object"]["rows"][0]["cells"][3]) == ("MODIFIED", "198.51.100.7")
    assert (gone["type"], gone["object"]["rows"][0]["cells"][0]) == ("DELETED", "foreign")
    plain = watch(api, "/api/v1/services", "watch=true&resourceVersion=2")
    assert b'"kind":"Table"' not in plain.new_lines(1 << 20)


def test_events_are_also_those_of_the_core_group_which_kubectl_lists() -> None:
    api = api_with(STARTING)
    _, listed = get(api, "/api/v1/events", "fieldSelector=involvedObject.name%3Dnode-a")
    (event,) = listed["items"]
    assert (event["apiVersion"], event["message"], event["count"]) == ("v1", "kube-proxy starts", 1)
    assert event["involvedObject"] == {"kind": "Node", "name": "node-a"}
    assert event["source"] == {"component": "kube-proxy", "host": "kube-proxy-node-a"}
    assert (event["firstTimestamp"], event["lastTimestamp"]) == (STARTING.time, STARTING.time)
    assert get(api, "/api/v1/events", "fieldSelector=involvedObject.name%3Dnode-b")[1]["items"] == []
    assert get(api, "/apis/events.k8s.io/v1/events")[1]["items"][0]["note"] == "kube-proxy starts"
    code, refused = get(api, "/api/v1/events", "fieldSelector=regarding.name%3Dnode-a")
    assert (code, refused["message"]) == (400, "field label not supported: regarding.name")


def test_endpoints_follow_from_slices_where_the_store_has_none() -> None:
    terminating = replace(SLICE.endpoints[0], addresses=(ip_address("10.244.0.6"),), ready=False)
    six = replace(SLICE, name="echo-2", address_type=Family.IPV6, endpoints=())
    api = api_with(ECHO, replace(SLICE, endpoints=(*SLICE.endpoints, terminating)), six)
    (listed,) = get(api, "/api/v1/endpoints")[1]["items"]
    assert listed["subsets"][0]["addresses"] == [{"ip": "10.244.0.5"}]
    assert get(api, "/api/v1/namespaces/default/endpoints/echo")[1]["subsets"] == listed["subsets"]
    assert get(api, "/api/v1/namespaces/default/endpoints/none")[0] == 404
    assert table(api, "/api/v1/endpoints")["rows"][0]["cells"][:2] == ["echo", "10.244.0.5:8080"]


def test_kubectl_finds_what_all_stands_for() -> None:
    found = [get(api_with(), f"/{path}")[1]["resources"] for path in ("api/v1", "apis/apps/v1", "apis/batch/v1")]
    of_all = [each["name"] for resources in found for each in resources if "all" in each["categories"]]
    core, apps = ["pods", "replicationcontrollers", "services"], ["daemonsets", "deployments", "replicasets"]
    assert of_all == [*core, *apps, "statefulsets", "cronjobs", "jobs"]
