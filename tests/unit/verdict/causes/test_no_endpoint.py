"""Why a Service has no endpoint to use: its selector, its target port, its slices, and the cure of each."""

from ipaddress import ip_address

import pytest
from golden_words import Told
from judging import dropped_evidence
from msgspec.structs import replace
from recorded import World

from proxylab.addresses import Family
from proxylab.cluster.objects import (
    Endpoint,
    EndpointPort,
    EndpointSlice,
    Pod,
    PodPort,
    Protocol,
    Service,
    ServicePort,
    TrafficPolicy,
)
from proxylab.plan.dialled_service import DialledService
from proxylab.scenario.words import Frontend
from proxylab.verdict.causes.no_endpoint import (
    GIVE_ENDPOINTS,
    RELABEL,
    misplaced,
    nearest_pod,
    why_none_listens,
    why_none_local,
    why_none_usable,
)
from proxylab.verdict.causes.table import cause
from proxylab.verdict.judge import judge

PORT = ServicePort(port=80, target_port=8080)
ADDRESS = ip_address("10.244.0.10")


def pod(name: str = "pod", *, ports: tuple[PodPort, ...] = (), **labels: str) -> Pod:
    return Pod(name=name, node_name="node-a", labels=labels, addresses=(ADDRESS,), ports=ports)


def dialled(
    selector: dict[str, str], *pods: Pod, port: ServicePort = PORT, slices: tuple[EndpointSlice, ...] = ()
) -> DialledService:
    service = Service(name="echo", ports=(port,), selector=selector)
    return DialledService(
        service=service,
        port=port,
        family=Family.IPV4,
        via=Frontend.CLUSTER_IP,
        slices=slices,
        pods=pods,
        nodes=("node-a", "node-b"),
    )


def found(port: EndpointPort, *, node: str = "node-a", family: Family = Family.IPV4) -> EndpointSlice:
    address = ADDRESS if family is Family.IPV4 else ip_address("fd00::10")
    endpoint = Endpoint(addresses=(address,), node_name=node)
    return EndpointSlice(name="echo-1", service="echo", address_type=family, ports=(port,), endpoints=(endpoint,))


@pytest.mark.parametrize(
    ("labels", "nearest"),
    [
        ({"app": "web"}, "pod has app=web"),
        ({"app": "echo", "tier": "v1"}, "pod has tier=v1"),
        ({"app": "echo"}, "pod has no label tier"),
        ({"name": "echo"}, "no pod has the label app"),
        ({}, "no pod has the label app"),
    ],
)
def test_the_label_that_keeps_the_nearest_pod_out_is_named(labels: dict[str, str], nearest: str) -> None:
    far = pod("far", app="database", tier="v9")
    assert nearest_pod({"app": "echo", "tier": "v2"}, [pod(**labels)]) == nearest
    if labels.get("app") == "echo":
        assert nearest_pod({"app": "echo", "tier": "v2"}, [far, pod(**labels)]) == nearest


def test_a_pod_of_another_namespace_is_named_first() -> None:
    there = Pod(namespace="shop", name="there", node_name="node-a", labels={"app": "echo"}, addresses=(ADDRESS,))
    clause = "there has app=echo, but in namespace shop, not in the Service's"
    assert nearest_pod({"app": "echo"}, [pod(app="web")], [there]) == clause
    assert nearest_pod({"app": "echo"}, []) == ""


def test_the_sentence_has_the_selector_and_the_cure() -> None:
    assert why_none_usable(dialled({"app": "echo"})) == f"the selector app=echo matches no pod; {RELABEL}."
    nearest = f"the selector app=echo matches no pod (pod has app=web); {RELABEL}."
    assert why_none_usable(dialled({"app": "echo"}, pod(app="web"))) == nearest


def test_a_service_without_selector_lacks_a_slice() -> None:
    lacks = "default/echo has no selector, and no EndpointSlice names an endpoint for it"
    assert why_none_usable(dialled({})) == f"{lacks}; {GIVE_ENDPOINTS}."


@pytest.mark.parametrize(
    ("ports", "sentence"),
    [
        ((), "targetPort 'http' is the name of no port of pod; it names none; write its number."),
        (
            (PodPort(name="web", port=8080),),
            "targetPort 'http' is the name of no port of pod; it names web; write that as targetPort.",
        ),
        (
            (PodPort(name="http", port=8080, protocol=Protocol.UDP),),
            (
                "targetPort 'http' is the name of no TCP port of pod; http there is a port of UDP: give both one "
                "protocol."
            ),
        ),
    ],
)
def test_a_target_port_by_a_name_that_no_pod_has(ports: tuple[PodPort, ...], sentence: str) -> None:
    port = ServicePort(port=80, target_port="http")
    assert why_none_usable(dialled({"app": "echo"}, pod(app="echo", ports=ports), port=port)) == sentence


def test_a_slice_that_has_not_the_services_port(told: Told) -> None:
    named = ServicePort(name="http", port=80, target_port=8080)
    lacks = "no EndpointSlice of default/echo has IPv4 endpoints of its port "
    other = found(EndpointPort(name="web", port=8080))
    assert why_none_usable(dialled({}, port=named, slices=(other,))) == told()
    assert why_none_usable(dialled({}, slices=(other,))) == told()
    other = found(EndpointPort(port=8080), family=Family.IPV6)
    assert why_none_usable(dialled({}, slices=(other,))) == f"{lacks}80; it has those of IPv6 alone."


def test_a_slice_names_a_wrong_node() -> None:
    for node, clause in (
        ("node-z", "the slice names node node-z, which is no node; pod runs on node-a, so nodeName must be node-a"),
        ("node-b", "the slice names node node-b for pod; pod runs on node-a, so nodeName must be node-a"),
        (
            "",
            (
                "the slice names no node for pod, which is then local to none; pod runs on node-a, so nodeName must "
                "be node-a"
            ),
        ),
    ):
        told = dialled({}, pod(), slices=(found(EndpointPort(port=8080), node=node),))
        assert why_none_local(told, "node-a") == f"internalTrafficPolicy is Local, and {clause}."
    assert misplaced(Endpoint(addresses=(ADDRESS,), node_name="node-a"), "pod", pod(), ("node-a",)) == ""


def test_no_program_listens_on_the_target_port(told: Told) -> None:
    listening = pod(app="echo", ports=(PodPort(port=9090), PodPort(port=9091, protocol=Protocol.UDP)))
    service = Service(name="echo", ports=(PORT,), selector={"app": "echo"})
    assert why_none_listens(service, PORT, listening, 8080) == told()
    assert why_none_listens(service, PORT, pod(app="echo"), 8080) == told()
    assert why_none_listens(replace(service, selector={}), PORT, listening, 8080) == told()
    assert why_none_listens(service, PORT, listening, 9090) == ""
    assert why_none_listens(service, PORT, None, 8080) == ""


def test_a_policy_is_the_cause_of_a_drop_only_where_it_is_local() -> None:
    told = dialled({"app": "echo"}, pod(app="echo"), slices=(found(EndpointPort(port=8080), node="node-b"),))
    world = World(backends=("echo-1",))
    verdict = judge(world.probe, world.resolved, None, dropped_evidence(world))
    failed = next(each for each in verdict.verdicts if each.expectation == "outcome")
    for policy in TrafficPolicy:
        service = replace(told, service=replace(told.service, internal_traffic_policy=policy))
        is_named = "Policy is Local" in cause(verdict.case, failed, service=service)
        assert is_named is (policy is TrafficPolicy.LOCAL)
