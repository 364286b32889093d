"""What health-check node ports tell balancers, against the endpoints that stand on each node."""

from ipaddress import ip_address, ip_network

import pytest
from msgspec.structs import replace
from oracle_worlds import PROXY

from proxylab.addresses import Family
from proxylab.cluster.objects import Endpoint, EndpointSlice, Node, PodPort, Service, ServicePort
from proxylab.features.diagnose.health_stage import Checked, expected_on, judge_health
from proxylab.features.diagnose.model import Standing
from proxylab.features.diagnose.path_tests import Dialler, DiallerKind, Terms, askers, nodes_at
from proxylab.features.diagnose.subject import DiagnosedService

A, B = ip_address("172.18.0.2"), ip_address("172.18.0.3")
PORTS = (PodPort(name="web", port=8080), PodPort(name="admin", port=9090))
ENDPOINTS = (
    Endpoint(addresses=(ip_address("10.244.1.2"),), node_name="node-b", target="echo-1"),
    Endpoint(addresses=(ip_address("10.244.1.3"),), node_name="node-b", target="echo-2"),
    Endpoint(addresses=(ip_address("10.244.1.4"),), node_name="node-b", target="gone", ready=False, terminating=True),
)
SERVICE = Service(
    name="echo",
    cluster_ips=(ip_address("10.96.0.10"),),
    ip_families=(Family.IPV4,),
    ports=(ServicePort(name="web", port=80, target_port=8080), ServicePort(name="admin", port=90, target_port=9090)),
    health_check_node_port=31000,
)
SUBJECT = DiagnosedService(
    service=SERVICE,
    slices=(EndpointSlice(name="echo-1", service="echo", address_type=Family.IPV4, ports=PORTS, endpoints=ENDPOINTS),),
    pods=(),
    nodes=(Node(name="node-a", addresses=(A,)), Node(name="node-b", addresses=(B,))),
    families=(Family.IPV4,),
    setting=PROXY,
)
NONE = Checked(node="node-a", address=A, sender="outside", status=503, reported=0)
TWO = Checked(node="node-b", address=B, sender="outside", status=200, reported=2)


def test_ready_endpoints_count_once_and_leaving_ones_do_not() -> None:
    assert expected_on(SUBJECT, "node-b", Family.IPV4) == ("echo-1", "echo-2")
    assert expected_on(SUBJECT, "node-b", Family.IPV6) == ()
    assert expected_on(SUBJECT, "node-a", Family.IPV4) == ()


def test_who_says_what_is_there_holds() -> None:
    finding = judge_health(SUBJECT, (NONE, TWO))
    assert finding.standing is Standing.HOLDS
    assert finding.seen == ("node-b answers 200", "node-a answers 503, without endpoints")


@pytest.mark.parametrize(
    ("answer", "cause"),
    [
        (
            replace(NONE, status=200),
            "answers 200, though no endpoint is ready there: balancers send what node-a drops.",
        ),
        (
            replace(TWO, status=503),
            "answers 503, though echo-1 and echo-2 are ready there: balancers send nothing to node-b.",
        ),
        (
            replace(TWO, reported=3),
            "reports 3 endpoints, but echo-1 and echo-2 are ready there: balancers that weigh nodes by it send",
        ),
        (replace(TWO, reported=None), "reports no number, but echo-1 and echo-2 are ready there"),
        (
            replace(NONE, status=0, error="ECONNREFUSED"),
            "does not answer outside: the socket reports ECONNREFUSED; and no endpoint is ready there.",
        ),
    ],
)
def test_what_a_node_says_wrongly_is_told_with_what_follows(answer: Checked, cause: str) -> None:
    finding = judge_health(SUBJECT, (NONE if answer.node == "node-b" else TWO, answer))
    assert finding.standing is Standing.BREAKS
    assert f"{answer.node}'s health-check port {answer.address}:31000 {cause}" in finding.cause
    assert finding.look_at[0] == f"trace outside {answer.address}:31000"


def test_an_unproven_answer_is_unclear_and_no_health_check_is_nothing() -> None:
    silent = replace(TWO, status=0, error="timeout", proven=False)
    assert judge_health(SUBJECT, (silent,)).standing is Standing.UNCLEAR
    assert judge_health(SUBJECT, ()).standing is Standing.NOTHING
    other = replace(SUBJECT, service=replace(SERVICE, health_check_node_port=0))
    assert judge_health(other, ()).standing is Standing.NOTHING


def test_hosts_ask_first_and_the_node_itself_last_where_it_serves_node_ports() -> None:
    diallers = [
        Dialler(name="pod", kind=DiallerKind.POD, node="node-a", addresses=(ip_address("10.244.0.2"),)),
        Dialler(name="outside", kind=DiallerKind.HOST, node="", addresses=(ip_address("203.0.113.10"),)),
        Dialler(name="six", kind=DiallerKind.HOST, node="", addresses=(ip_address("fd00::1"),)),
        Dialler(name="node-a", kind=DiallerKind.NODE, node="node-a", addresses=(A,)),
        Dialler(name="node-b", kind=DiallerKind.NODE, node="node-b", addresses=(B,)),
    ]
    assert list(askers(diallers, "node-a", A)) == ["outside", "node-b", "node-a", "pod"]
    assert list(nodes_at(SUBJECT, {"node-b": Terms()}, ["node-b"])) == [("node-b", B)]
    chosen = Terms(node_ports=(ip_network("172.18.0.2/32"),))
    assert list(nodes_at(SUBJECT, {"node-a": chosen, "node-b": chosen}, ["node-a", "node-b"])) == [("node-a", A)]
