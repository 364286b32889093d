"""The first three stations, as objects, questions and engines show them: name, endpoints, engine."""

from ipaddress import ip_address

import pytest
from golden_words import Told
from msgspec.structs import replace
from oracle_worlds import PROXY

from proxylab.addresses import Family
from proxylab.cluster.objects import (
    Endpoint,
    EndpointPort,
    EndpointSlice,
    KubeObject,
    Node,
    Pod,
    PodPort,
    Service,
    ServicePort,
    ServiceType,
    TrafficPolicy,
)
from proxylab.cluster.slices import derive_slices
from proxylab.evidence.engine_progress import Progress, ProxyRecord
from proxylab.evidence.lookups import Lookup, NamedRecord
from proxylab.features.diagnose.endpoints_stage import Dial, judge_endpoints, ready_endpoints, without_backing
from proxylab.features.diagnose.engine_stage import judge_engines
from proxylab.features.diagnose.model import Finding, Stage, Standing
from proxylab.features.diagnose.name_stage import judge_name, judge_name_server, missing_service
from proxylab.features.diagnose.subject import DiagnosedService

NODES = (Node(name="node-a", addresses=(ip_address("172.18.0.2"),)), Node(name="node-b"))
ECHO = Service(
    name="echo",
    selector={"app": "echo"},
    cluster_ips=(ip_address("10.96.1.1"),),
    ip_families=(Family.IPV4,),
    ports=(ServicePort(port=80, target_port=8080),),
)
NODE_PORT = replace(ECHO, type=ServiceType.NODE_PORT, ports=(ServicePort(port=80, target_port=8080, node_port=30080),))
LOCAL = replace(NODE_PORT, external_traffic_policy=TrafficPolicy.LOCAL)


def pod(number: int, node: str = "node-a", **changes: object) -> Pod:
    plain = Pod(
        name=f"echo-{number}",
        labels={"app": "echo"},
        node_name=node,
        addresses=(ip_address(f"10.244.0.{number}"),),
        ports=(PodPort(name="web", port=8080),),
    )
    return replace(plain, **changes)


BOTH = (pod(1), pod(2, "node-b"))


def subject(service: Service, *pods: Pod, given: tuple[EndpointSlice, ...] = ()) -> DiagnosedService:
    objects: tuple[KubeObject, ...] = (service, *pods, *NODES, *derive_slices([service], pods, NODES), *given)
    return DiagnosedService.of(service, objects, (Family.IPV4,), PROXY)


def written(name: str, port: str, *, node: str = "node-a") -> EndpointSlice:
    """An EndpointSlice as an author writes it, with the address of echo-1."""
    return EndpointSlice(
        name=name,
        service="echo",
        address_type=Family.IPV4,
        ports=(EndpointPort(name=port, port=8080),),
        endpoints=(Endpoint(addresses=(ip_address("10.244.0.1"),), node_name=node),),
    )


FAULTS = {
    "the selector matches no pod, but nearly one": (
        subject(replace(ECHO, selector={"app": "ecko"}), *BOTH),
        "the selector of echo, app=ecko, matches no pod; echo-1 has app=echo; change the selector, or label a pod so.",
    ),
    "the pods are in another namespace": (
        subject(ECHO, pod(1, namespace="shop")),
        (
            "the selector of echo, app=echo, matches no pod; echo-1 has app=echo, but in namespace shop, not in the "
            "Service's; change the selector, or label a pod so."
        ),
    ),
    "no endpoint is ready": (
        subject(ECHO, pod(1, ready=False), pod(2, ready=False)),
        (
            "none of 2 endpoints is ready: echo-1 and echo-2 are not ready; a passing readiness probe or "
            "publishNotReadyAddresses: true lets such a pod get connections."
        ),
    ),
    "all have gone": (
        subject(ECHO, pod(1, ready=False, terminating=True, serving=False)),
        "none of 1 endpoint is ready: echo-1 is terminating and not serving.",
    ),
    "no pod has a port of that name": (
        subject(replace(ECHO, ports=(ServicePort(port=80, target_port="http"),)), *BOTH),
        "targetPort 'http' is the name of no port of echo-1 or echo-2; they name web; write that as targetPort.",
    ),
    "a slice has another port": (
        subject(replace(ECHO, selector={}), pod(1), given=(written("echo-1", "http"),)),
        (
            "no EndpointSlice of echo has IPv4 endpoints of its port 80; they have http (TCP), and a slice's port must "
            "have no name, as the Service's."
        ),
    ),
    "a slice names another node, under policy Local": (
        subject(replace(LOCAL, selector={}), pod(1), given=(written("echo-1", "", node="node-b"),)),
        (
            "externalTrafficPolicy is Local, and the slice names node node-b for echo-1; echo-1 runs on node-a, so "
            "nodeName must be node-a."
        ),
    ),
    "no selector and no endpoint": (
        subject(replace(ECHO, selector={})),
        (
            "echo has no selector, and no EndpointSlice names an endpoint for it; give it a selector, or write an "
            "EndpointSlice."
        ),
    ),
    "policy Local, and no endpoint is on a node": (
        subject(
            replace(LOCAL, selector={}),
            given=(
                EndpointSlice(
                    name="echo-1",
                    service="echo",
                    address_type=Family.IPV4,
                    ports=(EndpointPort(port=8080),),
                    endpoints=(Endpoint(addresses=(ip_address("203.0.113.10"),)),),
                ),
            ),
        ),
        "externalTrafficPolicy is Local, and the slice names no node for 203.0.113.10, which is then local to none.",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_what_objects_lack_is_named(name: str) -> None:
    about, cause = FAULTS[name]
    found = without_backing(about, None)
    assert found is not None
    assert (found.stage, found.standing, found.cause) == (Stage.ENDPOINTS, Standing.BREAKS, cause)
    assert found.look_at


def test_a_node_without_an_endpoint_breaks_only_where_it_is_asked_about() -> None:
    about = subject(LOCAL, pod(1))
    assert without_backing(about, None) is None
    assert without_backing(about, "node-a") is None
    found = without_backing(about, "node-b")
    assert found is not None
    assert "no endpoint is on node-b" in found.cause
    assert found.cause.endswith("nodes with one: node-a; Cluster uses those from every node.")
    assert without_backing(about, None, "node-b") is None, "a pod is sent to all endpoints"
    inner = subject(replace(ECHO, internal_traffic_policy=TrafficPolicy.LOCAL), pod(1))
    assert without_backing(inner, None, "node-a") is None
    dropped = without_backing(inner, None, "node-b")
    assert dropped is not None
    assert dropped.cause.startswith("internalTrafficPolicy is Local and no endpoint is on node-b")
    held = judge_endpoints(about, [dial("10.244.0.1")])
    assert held.seen[-1] == "externalTrafficPolicy Local: node-b drops packets from outside"


def test_those_that_terminate_are_the_last_resort() -> None:
    last = pod(1, ready=False, terminating=True, serving=True)
    assert without_backing(subject(ECHO, last), None) is None
    assert ready_endpoints(subject(ECHO, last)) == ((ip_address("10.244.0.1"), 8080),)
    assert ready_endpoints(subject(ECHO, last, pod(2))) == ((ip_address("10.244.0.2"), 8080),)


def dial(address: str, *, answered: bool = True, at_home: bool | None = None) -> Dial:
    return Dial(
        backend=(ip_address(address), 8080), sender="client", answered=answered, why="it was lost.", at_home=at_home,
        node="node-b",
    )  # fmt: skip


def test_an_endpoint_that_does_not_answer_breaks(told: Told) -> None:
    about = subject(ECHO, *BOTH)
    held = judge_endpoints(about, [dial("10.244.0.1"), dial("10.244.0.2")])
    assert held.standing is Standing.HOLDS
    assert held.seen[1] == told()
    silent = judge_endpoints(about, [dial("10.244.0.1"), dial("10.244.0.2", answered=False)])
    assert silent.cause == told()
    near = judge_endpoints(about, [dial("10.244.0.2", answered=False, at_home=True)])
    assert near.cause == told()
    assert near.look_at[0] == "trace client 10.244.0.2:8080"


def test_an_endpoint_on_whose_target_port_no_program_listens_has_the_cure() -> None:
    silent = judge_endpoints(subject(ECHO, pod(1, ports=(PodPort(port=9090),))), [dial("10.244.0.1", answered=False)])
    assert silent.cause.endswith(
        "it was lost. The Service's targetPort is 8080/TCP, and echo-1 listens on 9090/TCP; make both the same."
    )


def test_an_endpoint_of_two_families_has_one_name() -> None:
    held = judge_endpoints(subject(ECHO, pod(1)), [dial("10.244.0.1"), dial("10.244.0.1")])
    assert held.seen[1] == "echo-1 answers when dialled past the Service"


def test_an_unready_endpoint_is_told_beside_the_ready_ones() -> None:
    held = judge_endpoints(subject(ECHO, pod(1), pod(2, ready=False)), [dial("10.244.0.1")])
    assert held.seen[0] == "1 of 2 endpoints ready"
    assert "not ready: echo-2" in held.seen


def test_a_service_that_is_not_there_may_be_meant_otherwise(told: Told) -> None:
    assert missing_service("default", "ecko", [ECHO]).cause == told()
    assert missing_service("shop", "echo", [ECHO]).cause.endswith("there is one in default: write default/echo.")
    assert missing_service("default", "zebra", [ECHO]).cause.endswith("; there are echo.")
    assert missing_service("default", "echo", []).cause == told()


def lookup(*addresses: str, alias: str = "", error: str = "", server: str = "10.96.0.10") -> Lookup:
    name = "echo.default.svc.cluster.local"
    answers = [NamedRecord(name, "A", each, 5) for each in addresses]
    answers += [NamedRecord(name, "CNAME", alias, 5)] if alias else []
    return Lookup(
        name=name, kind="A", server=ip_address(server), error=error, code="" if error else "NOERROR",
        answers=tuple(answers),
        served_by="coredns",
    )  # fmt: skip


def named(about: DiagnosedService, *lookups: Lookup) -> Finding:
    return judge_name(about, "client", lookups)


def test_a_name_gives_what_the_service_has(told: Told) -> None:
    about = subject(ECHO, *BOTH)
    assert judge_name(about, "client", None).standing is Standing.HOLDS
    assert named(about, lookup("10.96.1.1")).standing is Standing.HOLDS
    wrong = named(about, lookup("10.96.1.9"))
    assert wrong.cause == told()
    assert "resolves to no address" in named(about, lookup()).cause


def test_a_headless_name_gives_the_ready_pods() -> None:
    headless = subject(replace(ECHO, headless=True, cluster_ips=()), pod(1), pod(2, ready=False))
    assert named(headless, lookup("10.244.0.1")).standing is Standing.HOLDS
    assert named(headless, lookup("10.244.0.1", "10.244.0.2")).standing is Standing.BREAKS


def test_an_external_name_is_an_alias() -> None:
    away = subject(replace(ECHO, type=ServiceType.EXTERNAL_NAME, external_name="outside.example", cluster_ips=()))
    assert named(away, lookup(alias="outside.example")).standing is Standing.HOLDS
    assert "must be an alias of outside.example" in named(away, lookup(alias="elsewhere.example")).cause


def test_silence_is_told_from_a_server_that_answers_past_its_service() -> None:
    silent = lookup(error="timeout")
    found = named(subject(ECHO, *BOTH), silent, lookup("10.96.1.1", server="10.244.0.2"))
    assert found.cause.endswith("did not answer (timeout); queried past the Service, the name server answers.")
    assert found.look_at[0] == "diagnose kube-system/kube-dns"
    about = subject(replace(ECHO, namespace="kube-system", name="kube-dns"))
    assert judge_name_server(about, [("client", lookup("10.96.0.10"))]).seen == ("coredns answered client",)
    assert judge_name_server(about, [("client", silent)]).standing is Standing.BREAKS


def record(
    node: str = "node-a", *, healthz: int | None = 200, eligible: bool = True, **progress: object
) -> ProxyRecord:
    plain = Progress(runs=True, reflects=14, due=14)
    asked = "http://127.0.0.1:10256/healthz"
    return ProxyRecord(
        node=node,
        engine="embedded/iptables",
        progress=replace(plain, **progress),
        healthz=healthz,
        asked=asked,
        eligible=eligible,
    )


SOUND = {
    "all is well": record(),
    "flushed rules tell nothing": record(reflects=None),
    "a node that goes is not eligible": record(healthz=503, eligible=False),
    "no health server": replace(record(healthz=None), asked=""),
}
UNSOUND = {
    "it was killed": (
        record(runs=False, trouble="kube-proxy was killed by signal 9"),
        "the engine of node-a does not run: kube-proxy was killed by signal 9, and its rules stay as they last were.",
    ),
    "it is behind": (
        record(reflects=9, trouble="E1122 failed\nmore"),
        (
            "the engine of node-a is behind: its rules are of revision 9, and the API's is 14; its last error: "
            "E1122 failed."
        ),
    ),
    "no answer": (record(healthz=None), "http://127.0.0.1:10256/healthz on node-a does not answer."),
    "it says that it is ill": (
        record(healthz=503),
        "the engine of node-a is not healthy: http://127.0.0.1:10256/healthz answers 503.",
    ),
}


@pytest.mark.parametrize("name", SOUND)
def test_sound_engines_hold(name: str) -> None:
    assert judge_engines([SOUND[name], record("node-b")]).standing is Standing.HOLDS


@pytest.mark.parametrize("name", UNSOUND)
def test_unsound_engines_break(name: str) -> None:
    found, cause = UNSOUND[name]
    judged = judge_engines([record("node-b"), found])
    assert (judged.standing, judged.cause) == (Standing.BREAKS, cause)
    assert judged.look_at[0] == "logs node-a"
