"""What holds of every answer, whatever the Service and its endpoints are."""

from dataclasses import dataclass
from functools import cache
from ipaddress import IPv4Network, ip_address, ip_network

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from oracle_worlds import NEWEST, cluster_of, moment_and_assembly
from thoroughness import examples

from proxylab.addresses import Family, Protocol, Transport
from proxylab.cluster.configuration import Mode
from proxylab.cluster.objects import (
    Endpoint,
    EndpointPort,
    EndpointSlice,
    LoadBalancerIngress,
    Service,
    ServicePort,
    ServiceType,
    TrafficPolicy,
)
from proxylab.oracle.answers import FlowAnswer, FlowQuestion
from proxylab.oracle.flows import Oracle
from proxylab.oracle.moment import Moment
from proxylab.oracle.setting import ProxySetting
from proxylab.oracle.weakest import endpoints_of_port
from proxylab.plan.assembly import Assembly
from proxylab.plan.device_names import ROUTER
from proxylab.plan.resolved import PolicyRoute
from proxylab.scenario.network import NODES
from proxylab.scenario.words import Outcome

NETWORK = """
nodes: {node-a: {labels: {topology.kubernetes.io/zone: east}}, node-b: {labels: {topology.kubernetes.io/zone: west}}}
pods:
  web: {replicas: 6, nodes: [node-a, node-b], ports: [8080]}
  client: {nodes: [node-a]}
hosts: {outside: {}}
"""
CLUSTER_IP, EXTERNAL_IP, BALANCED = map(ip_address, ("10.96.0.100", "198.51.100.7", "192.0.2.1"))
NODE_A = ip_address("172.18.0.2")
NODE_PORT = 30080
MODES = [Mode.IPTABLES, Mode.NFTABLES]


@cache
def network() -> tuple[Moment, Assembly]:
    return moment_and_assembly(cluster_of(NETWORK))


def pods() -> list[tuple[str, str, object]]:
    """The name, node and address of each pod that may be an endpoint."""
    return [(pod.name, pod.node, pod.addresses[0]) for pod in network()[1].plan.pods if pod.name.startswith("web")]


@dataclass(frozen=True)
class Dialled:
    """A sender and what it dials."""

    sender: str
    source: str
    destination: object
    port: int


SENT = [
    Dialled(sender, source, destination, port)
    for sender, source in (("client", "10.244.0.13"), ("outside", "203.0.113.10"), ("node-a", "172.18.0.2"))
    for destination, port in ((CLUSTER_IP, 80), (EXTERNAL_IP, 80), (BALANCED, 80), (NODE_A, NODE_PORT))
]


def ask(service: Service, slices: list[EndpointSlice], dialled: Dialled, mode: Mode = Mode.IPTABLES) -> FlowAnswer:
    return oracle(service, slices, mode).answer(question(dialled))


def oracle(service: Service, slices: list[EndpointSlice], mode: Mode, of_node_b: Mode | None = None) -> Oracle:
    there, assembly = network()
    moment = Moment(
        services=[service],
        slices=slices,
        nodes=there.nodes.values(),
        plan=assembly.plan,
        setting=ProxySetting(mode=mode, version=NEWEST),
        settings={"node-b": ProxySetting(mode=of_node_b or mode, version=NEWEST)},
        pod_networks=assembly.scenario.network.pod_cidrs,
        service_networks=assembly.scenario.network.service_cidrs,
    )
    return Oracle(moment)


def question(dialled: Dialled) -> FlowQuestion:
    return FlowQuestion(
        sender=dialled.sender,
        source=ip_address(dialled.source),
        destination=dialled.destination,  # type: ignore[arg-type]
        port=dialled.port,
        protocol=Transport.TCP,
        policy_route=_route(dialled) if dialled.sender == "outside" else None,
    )


def _route(dialled: Dialled) -> PolicyRoute | None:
    """The router's way to an address that no machine has, as for a probe that names the node."""
    if dialled.destination == NODE_A:
        return None
    return PolicyRoute(namespace=ROUTER, destination=ip_network(f"{dialled.destination}/32"), device=NODES, via=NODE_A)


POLICIES = st.sampled_from(TrafficPolicy)
SERVICES = st.builds(
    Service,
    name=st.just("web"),
    type=st.just(ServiceType.LOAD_BALANCER),
    ports=st.just((ServicePort(port=80, target_port=8080, node_port=NODE_PORT),)),
    cluster_ips=st.just((CLUSTER_IP,)),
    ip_families=st.just((Family.IPV4,)),
    external_ips=st.just((EXTERNAL_IP,)),
    load_balancer_ingress=st.just((LoadBalancerIngress(ip=BALANCED),)),
    internal_traffic_policy=POLICIES,
    external_traffic_policy=POLICIES,
    affinity_timeout=st.sampled_from([None, 30]),
    source_ranges=st.lists(
        st.sampled_from([ip_network("203.0.113.0/28"), ip_network("10.244.0.0/24"), ip_network("172.18.0.0/16")]),
        max_size=2,
        unique=True,
    ).map(tuple),
)
CONDITIONS = st.sampled_from([(True, True, False), (False, False, False), (False, True, True), (False, False, True)])
ZONES = st.sampled_from([(), ("east",), ("west",), ("east", "west")])


@st.composite
def endpoints(draw: st.DrawFn) -> list[Endpoint]:
    made = []
    for _, node, address in draw(st.lists(st.sampled_from(pods()), max_size=5, unique=True)):
        ready, serving, terminating = draw(CONDITIONS)
        made.append(
            Endpoint(
                addresses=(address,),  # type: ignore[arg-type]
                ready=ready,
                serving=serving,
                terminating=terminating,
                node_name=node,
                for_zones=draw(ZONES),
                for_nodes=draw(st.sampled_from([(), (node,)])),
            )
        )
    return made


def slice_of(*ends: Endpoint, name: str = "web-1", service: str = "web") -> EndpointSlice:
    ports = (EndpointPort(protocol=Protocol.TCP, port=8080),)
    return EndpointSlice(name=name, service=service, address_type=Family.IPV4, ports=ports, endpoints=ends)


def seen(answer: FlowAnswer) -> object:
    """The answer without the order of its parts."""
    return frozenset(answer.outcomes), frozenset(answer.reached), frozenset(answer.at), answer.sticky, answer.outside


DIALLED = st.sampled_from(SENT)
MODE = st.sampled_from(MODES)


@given(SERVICES, endpoints(), DIALLED, MODE)
@settings(max_examples=examples(60), deadline=None)
def test_the_order_and_the_slices_of_endpoints_do_not_matter(
    service: Service, ends: list[Endpoint], dialled: Dialled, mode: Mode
) -> None:
    together = ask(service, [slice_of(*ends)], dialled, mode)
    apart = ask(service, [slice_of(each, name=f"web-{n}") for n, each in enumerate(reversed(ends))], dialled, mode)
    assert seen(together) == seen(apart)


@given(SERVICES, endpoints(), DIALLED, MODE)
@settings(max_examples=examples(60), deadline=None)
def test_an_endpoint_that_is_not_ready_changes_nothing(
    service: Service, ends: list[Endpoint], dialled: Dialled, mode: Mode
) -> None:
    used = {each.addresses[0] for each in ends}
    name, node, address = next(each for each in pods() if each[2] not in used)
    idle = Endpoint(addresses=(address,), ready=False, serving=False, node_name=node)  # type: ignore[arg-type]
    assert seen(ask(service, [slice_of(*ends)], dialled, mode)) == seen(
        ask(service, [slice_of(*ends, idle)], dialled, mode)
    ), name


@given(SERVICES, endpoints(), DIALLED, st.text("abcdefgh", min_size=1, max_size=9))
@settings(max_examples=examples(40), deadline=None)
def test_the_name_of_a_service_changes_nothing(
    service: Service, ends: list[Endpoint], dialled: Dialled, name: str
) -> None:
    renamed = ask(replace(service, name=name), [slice_of(*ends, service=name)], dialled)
    assert seen(ask(service, [slice_of(*ends)], dialled)) == seen(renamed)


@given(SERVICES, endpoints(), DIALLED, MODE)
@settings(max_examples=examples(60), deadline=None)
def test_more_source_ranges_never_lose_a_client(
    service: Service, ends: list[Endpoint], dialled: Dialled, mode: Mode
) -> None:
    before = ask(service, [slice_of(*ends)], dialled, mode)
    wider = replace(service, source_ranges=(*service.source_ranges, IPv4Network("0.0.0.0/0")))
    after = ask(wider, [slice_of(*ends)], dialled, mode)
    if Outcome.DELIVERED in before.outcomes:
        assert seen(after) == seen(before)
    assert seen(after) == seen(ask(replace(service, source_ranges=()), [slice_of(*ends)], dialled, mode))


@given(SERVICES, endpoints(), DIALLED, MODE)
@settings(max_examples=examples(60), deadline=None)
def test_a_flow_reaches_only_what_can_serve_and_all_shares_are_one(
    service: Service, ends: list[Endpoint], dialled: Dialled, mode: Mode
) -> None:
    answer = ask(service, [slice_of(*ends)], dialled, mode)
    reachable = endpoints_of_port(service, service.ports[0], [slice_of(*ends)])
    may = {(each.address, each.port) for each in reachable if each.is_reachable}
    assert {(each.address, each.port) for each in answer.reached} <= may
    assert bool(answer.reached) is (answer.outcomes == (Outcome.DELIVERED,))
    if answer.reached:
        assert sum(each.share for each in answer.reached) == pytest.approx(1)
        assert len({each.share for each in answer.reached}) == 1
    else:
        assert answer.at == ("node-a",)


@given(SERVICES, endpoints(), st.sampled_from([each for each in SENT if each.sender == "outside"]), MODE)
@settings(max_examples=examples(60), deadline=None)
def test_under_local_an_outside_host_is_seen_and_reaches_the_entry_node_alone(
    service: Service, ends: list[Endpoint], dialled: Dialled, mode: Mode
) -> None:
    answer = ask(replace(service, external_traffic_policy=TrafficPolicy.LOCAL), [slice_of(*ends)], dialled, mode)
    if dialled.destination != CLUSTER_IP:
        nodes = {address: node for _, node, address in pods()}
        assert {nodes[each.address] for each in answer.reached} <= {"node-a"}
        for each in answer.reached:
            assert [(str(source.address), source.is_masqueraded) for source in each.sources] == [
                (dialled.source, False)
            ]


@given(SERVICES, endpoints(), st.sampled_from([each for each in SENT if each.sender != "node-a"]))
@settings(max_examples=examples(60), deadline=None)
def test_modes_iptables_and_nftables_serve_alike(service: Service, ends: list[Endpoint], dialled: Dialled) -> None:
    one, other = (ask(service, [slice_of(*ends)], dialled, mode) for mode in MODES)
    assert seen(one) == seen(other)


@given(SERVICES, endpoints(), DIALLED, MODE, MODE)
@settings(max_examples=examples(60), deadline=None)
def test_the_mode_of_a_node_that_a_flow_does_not_enter_changes_nothing(
    service: Service, ends: list[Endpoint], dialled: Dialled, mode: Mode, of_node_b: Mode
) -> None:
    alike, beside = (
        oracle(service, [slice_of(*ends)], mode, each).answer(question(dialled)) for each in (mode, of_node_b)
    )
    assert seen(alike) == seen(beside)
    assert ("modes-beside-each-other" in beside.rows["outcome"]) is (mode is not of_node_b)


@given(SERVICES, endpoints(), DIALLED, MODE)
@settings(max_examples=examples(40), deadline=None)
def test_every_part_of_an_answer_has_its_rows(
    service: Service, ends: list[Endpoint], dialled: Dialled, mode: Mode
) -> None:
    answer = ask(service, [slice_of(*ends)], dialled, mode)
    assert answer.rows["outcome"]
    assert answer.rows.get("endpoints") or answer.outcomes == (Outcome.DROPPED,)
    assert ("source" in answer.rows) is bool(answer.reached)
    assert ("affinity" in answer.rows) is (answer.sticky is not None)


@given(SERVICES, endpoints(), MODE, st.permutations(SENT))
@settings(max_examples=examples(20), deadline=None)
def test_what_was_asked_before_changes_no_answer(
    service: Service, ends: list[Endpoint], mode: Mode, order: list[Dialled]
) -> None:
    asked = oracle(service, [slice_of(*ends)], mode)
    together = {dialled: asked.answer(question(dialled)) for dialled in order}
    assert together == {dialled: ask(service, [slice_of(*ends)], dialled, mode) for dialled in SENT}
