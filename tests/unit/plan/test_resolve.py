"""Probes with every name looked up."""

from ipaddress import IPv4Address, IPv4Network, IPv6Address, ip_network

import pytest
import yaml
from broken_scenarios import BASE
from msgspec.structs import replace
from network_scenarios import BASIC as WIRES
from network_scenarios import crowded
from scenario_cases import ECHO, at, frontend, host, node, pods, probe, scenario, two_nodes

from proxylab.addresses import Family, Transport
from proxylab.cluster.objects import LoadBalancerIngress, Service, ServicePort, ServiceType
from proxylab.errors import ScenarioError
from proxylab.plan.assembly import assemble
from proxylab.plan.resolve import resolve
from proxylab.plan.resolved import STACK, PolicyRoute, ResolvedProbe
from proxylab.plan.topology import draw
from proxylab.scenario.keys import RefusedError
from proxylab.scenario.load import parse_scenario
from proxylab.scenario.pods import LoadBalancer
from proxylab.scenario.probes import (
    AddressTarget,
    HostTarget,
    OneAddress,
    PodTarget,
    Probe,
    Send,
    ServiceTarget,
    Source,
    Target,
)
from proxylab.scenario.reading import read_plain
from proxylab.scenario.targets import service_port
from proxylab.scenario.words import Frontend, Manner

ALLOCATED = replace(ECHO, cluster_ips=(IPv4Address("10.96.1.7"),))


def resolved(asked: Probe, *services: Service) -> ResolvedProbe:
    case = two_nodes(asked)
    return resolve(case, draw(case), services or (ALLOCATED,), ())[0]


def dialled(asked: Probe) -> tuple[str, int, str]:
    found = resolved(asked)
    return str(found.destination), found.port, found.protocol.value


UDP = Send(protocol=Transport.UDP)
ICMP = Send(protocol=Transport.ICMP)


def by(via: Frontend, node: str | None = None) -> ServiceTarget:
    return replace(frontend(), via=via, node=node)


EXPOSED = replace(
    ALLOCATED,
    type=ServiceType.LOAD_BALANCER,
    ports=tuple(replace(port, node_port=30000 + port.port) for port in ALLOCATED.ports),
    external_ips=(IPv6Address("2001:db8::1"), IPv4Address("192.0.2.1")),
    load_balancer_ingress=(LoadBalancerIngress(hostname="lb"), LoadBalancerIngress(ip=IPv4Address("192.0.2.2"))),
)


def policy_route(network: str, via: str) -> PolicyRoute:
    return PolicyRoute(namespace="router", destination=IPv4Network(network), device="nodes", via=IPv4Address(via))


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (probe("name", "sender", frontend("http")), ("10.96.1.7", 80, "TCP")),
        (probe("number", "sender", frontend(80)), ("10.96.1.7", 80, "TCP")),
        (probe("by protocol", "sender", frontend(53), UDP), ("10.96.1.7", 53, "UDP")),
        (probe("own protocol", "sender", frontend("dns-udp")), ("10.96.1.7", 53, "UDP")),
        (probe("pod", "sender", PodTarget(pod="echo-2")), ("10.244.1.10", 8080, "TCP")),
        (probe("pod by name", "sender", PodTarget(pod="echo-2", port="http")), ("10.244.1.10", 8080, "TCP")),
        (probe("pod closed", "sender", PodTarget(pod="echo-2", port=9)), ("10.244.1.10", 9, "TCP")),
        (probe("pod closed udp", "sender", PodTarget(pod="echo-2", port=9), UDP), ("10.244.1.10", 9, "UDP")),
        (probe("host", "sender", HostTarget(host="client", port=53), UDP), ("203.0.113.10", 53, "UDP")),
        (probe("address", "sender", AddressTarget(address=IPv4Address("192.0.2.1"), port=7)), ("192.0.2.1", 7, "TCP")),
        (probe("pod echo", "sender", PodTarget(pod="echo-2"), ICMP), ("10.244.1.10", 0, "ICMP")),
        (probe("host echo", "sender", HostTarget(host="client", port=None), ICMP), ("203.0.113.10", 0, "ICMP")),
        (probe("front echo", "sender", by(Frontend.CLUSTER_IP), ICMP), ("10.96.1.7", 0, "ICMP")),
    ],
)
def test_target(asked: Probe, expected: tuple[str, int, str]) -> None:
    assert dialled(asked) == expected


@pytest.mark.parametrize(
    ("sender", "target", "expected", "way"),
    [
        ("sender", by(Frontend.NODE_PORT), ("172.18.0.2", 30080), None),
        ("echo-2", by(Frontend.NODE_PORT), ("172.18.0.3", 30080), None),
        ("sender", by(Frontend.NODE_PORT, "node-b"), ("172.18.0.3", 30080), None),
        ("client", by(Frontend.NODE_PORT), ("172.18.0.2", 30080), None),
        ("client", by(Frontend.NODE_PORT, "node-b"), ("172.18.0.3", 30080), None),
        ("sender", by(Frontend.EXTERNAL_IP), ("192.0.2.1", 80), None),
        ("client", by(Frontend.EXTERNAL_IP, "node-b"), ("192.0.2.1", 80), policy_route("192.0.2.1/32", "172.18.0.3")),
        ("client", by(Frontend.LOAD_BALANCER_IP), ("192.0.2.2", 80), policy_route("192.0.2.2/32", "172.18.0.2")),
    ],
)
def test_front(sender: str, target: ServiceTarget, expected: tuple[str, int], way: PolicyRoute | None) -> None:
    found = resolved(probe("p", sender, target), EXPOSED)
    assert (str(found.destination), found.port) == expected
    assert found.policy_route == way


def test_every_node_and_host_answers_an_echo_request_by_all_its_addresses() -> None:
    found = resolved(probe("p", "echo-2", AddressTarget(address=IPv4Address("172.18.0.2"), port=None), ICMP))
    assert found.manner is Manner.PACKET
    stacks = {(each.name, str(each.address), each.device) for each in found.receivers if each.ports == (0,)}
    assert {("node-a", "172.18.0.2", "stack"), ("node-a", "10.244.0.1", "stack"), ("node-a", "127.0.0.1", "stack")} <= (
        stacks
    )
    assert not any(each.ports not in ((), (0,)) for each in found.receivers), "what listens on a node answers no echo"
    assert ("client", IPv4Address("203.0.113.10")) in {(each.name, each.address) for each in found.receivers}


def shared_errand(asked: Probe) -> ResolvedProbe:
    """Three nodes, two of which share the network that the load balancer's address is of."""
    case = scenario([node("node-a"), node("node-b"), node("node-c")], hosts=[host("client")], probes=[asked])
    edge = LoadBalancer(name="edge", pool=(ip_network("192.0.2.0/28"),), nodes=("node-a", "node-c"), position=at(1))
    case = replace(case, load_balancers=(edge,))
    return resolve(case, draw(case), (EXPOSED,), ())[0]


def test_what_the_router_shares_has_no_policy_route_and_a_sentinel_to_every_node_that_shares() -> None:
    found = shared_errand(probe("p", "client", by(Frontend.LOAD_BALANCER_IP)))
    assert found.policy_route is None
    assert [sentinel.name for sentinel in found.sentinels] == ["node-a", "node-c"]


def test_no_sentinel_stands_in_the_senders_own_namespace() -> None:
    case = crowded(addresses=3)
    to_host = HostTarget(host="client", port=53)
    case = replace(case, probes=(probe("shared", "echo-1", to_host), probe("on the node", "agent-1", to_host)))
    shared, on_the_node = (resolved.sentinels for resolved in resolve(case, draw(case), (), ()))
    every_pod = {pod.name for pod in draw(case).pods}
    assert {sentinel.name for sentinel in shared} == {"node-a"} | every_pod - {"echo-1", "echo-3", "echo-5"}
    assert {sentinel.name for sentinel in on_the_node} == every_pod - {"agent-1"}


def test_a_node_that_is_named_gets_what_the_router_would_share() -> None:
    found = shared_errand(probe("p", "client", by(Frontend.LOAD_BALANCER_IP, "node-b")))
    assert found.policy_route == policy_route("192.0.2.2/32", "172.18.0.3")
    assert [sentinel.name for sentinel in found.sentinels] == ["node-b"]


def test_pod_sends_frames_to_its_nodes_end_of_the_veth() -> None:
    case = two_nodes(probe("p", Source(name="sender", port=4000), frontend()))
    plan = draw(case)
    sender = resolve(case, plan, (ALLOCATED,), ())[0].sender
    assert (sender.namespace, sender.device, str(sender.address), sender.port) == (
        "sender",
        "eth0",
        "10.244.0.12",
        4000,
    )
    assert sender.mac == plan.end("sender", "eth0").mac
    assert sender.next_hop_mac == plan.end("node-a", "sender").mac


def test_host_sends_frames_to_the_routers_leg() -> None:
    case = two_nodes(probe("p", Source(name="client", sends_from=OneAddress(IPv4Address("203.0.113.99"))), frontend()))
    plan = draw(case)
    sender = resolve(case, plan, (ALLOCATED,), ())[0].sender
    assert sender.next_hop_mac == plan.end("router", "outside").mac
    assert str(sender.address) == "203.0.113.99"


def test_every_pod_may_receive() -> None:
    assert [receiver.name for receiver in resolved(probe("p", "sender", frontend())).receivers] == [
        "echo-1",
        "echo-2",
        "echo-3",
        "sender",
    ]


def test_host_that_is_dialled_may_receive_too() -> None:
    receivers = resolved(probe("p", "sender", HostTarget(host="client", port=1))).receivers
    assert str(next(receiver.address for receiver in receivers if receiver.name == "client")) == "203.0.113.10"


@pytest.mark.parametrize(
    ("asked", "sentinels"),
    [
        (probe("pod", "sender", frontend()), ["node-a", "echo-1", "echo-2", "echo-3"]),
        (probe("other node", "echo-2", frontend()), ["node-b", "echo-1", "echo-3", "sender"]),
        (probe("host", "client", frontend()), ["node-a", "echo-1", "echo-2", "echo-3", "sender"]),
        (probe("entrance", "client", frontend(node="node-b")), ["node-b", "echo-1", "echo-2", "echo-3", "sender"]),
        (probe("node", "node-a", frontend()), ["echo-1", "echo-2", "echo-3", "sender"]),
    ],
)
def test_sentinels_of_a_probe(asked: Probe, sentinels: list[str]) -> None:
    assert [sentinel.name for sentinel in resolved(asked).sentinels] == sentinels


def test_sentinel_of_the_node_is_its_address() -> None:
    assert str(resolved(probe("p", "sender", frontend())).sentinels[0].address) == "172.18.0.2"


SERVICES = IPv4Network("10.96.0.0/16")


@pytest.mark.parametrize(
    ("asked", "via"),
    [
        (probe("first node", "client", frontend()), "172.18.0.2"),
        (probe("named node", "client", frontend(node="node-b")), "172.18.0.3"),
        (probe("bare address", "client", AddressTarget(address=IPv4Address("10.96.200.1"), port=1)), "172.18.0.2"),
        (probe("no cluster IP", "client", PodTarget(pod="echo-1")), None),
        (probe("pod", "sender", frontend()), None),
    ],
)
def test_detour_of_a_host_that_dials_a_cluster_ip(asked: Probe, via: str | None) -> None:
    expected = (
        None
        if via is None
        else PolicyRoute(namespace="router", destination=SERVICES, device="nodes", via=IPv4Address(via))
    )
    assert resolved(asked).policy_route == expected


def test_what_is_sent_is_carried_over() -> None:
    found = resolved(probe("p", "sender", frontend(), Send(manner=Manner.PACKET, flows=30, payload=1400)))
    assert (found.number, found.name, found.manner, found.flows, found.payload) == (0, "p", Manner.PACKET, 30, 1400)
    assert found.nodes == ("node-a", "node-b")


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (probe("p", "nobody", frontend()), "from: 'nobody' is not the name of a sender; allowed: echo-1, "),
        (probe("p", "sender", frontend(service="x")), "to.service: there is no Service default/x; declared: echo"),
        (probe("p", "sender", frontend("x")), "to.port: Service echo has no port 'x'; declared: http (80/TCP)"),
        (probe("p", "sender", frontend(None)),
            "to.port: is missing: Service echo does not have exactly one port; declared: http (80/TCP)",
        ),
        (probe("p", "sender", frontend(53)), "to.port: Service echo has port 53 over several protocols; "),
        (probe("p", "sender", frontend(), UDP), "send.protocol: Service echo has that port over TCP, not UDP; "),
        (probe("p", "sender", by(Frontend.DNS_NAME)),
            "to.via: the lab has no name server: there is no Service kube-system/kube-dns with",
        ),
        (probe("p", "sender", by(Frontend.NODE_PORT)), "to.via: Service default/echo is of type ClusterIP: it has"),
        (probe("p", "sender", by(Frontend.EXTERNAL_IP)), "to.via: Service default/echo has no externalIPs; dial a"),
        (probe("p", "sender", by(Frontend.LOAD_BALANCER_IP)),
            "to.via: Service default/echo is of type ClusterIP: it has no load balancer",
        ),
        (probe("p", "client", frontend(node="x")), "to.node: 'x' is not the name of a node; allowed: node-a, node-b"),
        (probe("p", "sender", PodTarget(pod="x")), "to.pod: 'x' is not the name of a pod; allowed: echo-1"),
        (probe("p", "echo-1", PodTarget(pod="sender")),
            "to.port: is missing: sender does not have exactly one port; declared: none",
        ),
        (probe("p", "sender", HostTarget(host="x", port=1)), "to.host: 'x' is not the name of an outside host; "),
    ],
)  # fmt: skip
def test_what_is_not_there_is_named_at_the_probe(asked: Probe, message: str) -> None:
    case = two_nodes(probe("fine", "sender", frontend()), replace(asked, position=at(30, 5)))
    with pytest.raises(ScenarioError) as raised:
        resolve(case, draw(case), (ALLOCATED,), ())
    assert len(raised.value.problems) == 1
    assert raised.value.problems[0].startswith(f"case.lab.yaml:30:5: probe 'p': {message}")


def test_a_node_port_as_port_is_answered_by_how_to_dial_it() -> None:
    port = ServicePort(port=80, target_port=8080, node_port=30080, name="http")
    service = Service(name="web", type=ServiceType.NODE_PORT, ports=(port,))
    with pytest.raises(RefusedError, match=r"; it is the node port of http: dial that one via nodePort$"):
        service_port(service, 30080, None)


@pytest.mark.parametrize(
    "target",
    [
        "service: ecco, via: clusterIP",
        "service: echo, via: nodePort",
        "service: echo, via: externalIP",
        "service: echo, via: loadBalancerIP",
        "service: echo, via: healthCheckNodePort",
        "service: echo, via: clusterIP, port: web",
        "service: echo, via: clusterIP, port: 81",
        "pod: echo-1, port: web",
        "pod: ecco-1, port: 80",
        "host: outsid, port: 80",
    ],
)
def test_a_lab_says_of_a_target_what_check_says(target: str) -> None:
    asked = BASE.replace("service: echo, via: clusterIP", target, 1)
    with pytest.raises(ScenarioError) as of_check:
        parse_scenario(asked, "f")
    right = parse_scenario(BASE, "f")
    document = yaml.safe_load(asked.partition("---")[0])
    wrong = replace(right.probes[0], target=read_plain(Probe, document["spec"]["probes"][0]).target)
    with pytest.raises(ScenarioError) as of_lab:
        resolve(replace(right, probes=(wrong,)), draw(right), right.services, ())
    (there,) = of_lab.value.problems
    assert there.partition("'first': ")[2] in [said.partition("probes[0].")[2] for said in of_check.value.problems]


def test_headless_service_has_no_cluster_ip_to_dial() -> None:
    case = two_nodes(probe("p", "sender", frontend()))
    with pytest.raises(ScenarioError, match="Service default/echo is headless: it has no clusterIP"):
        resolve(case, draw(case), (replace(ECHO, headless=True),), ())


def test_only_port_need_not_be_named() -> None:
    asked = probe("p", "s", frontend(None))
    case = scenario([node("a")], [pods("s", "a")], probes=[asked])
    only = replace(ALLOCATED, ports=ALLOCATED.ports[:1])
    assert resolve(case, draw(case), (only,), ())[0].port == 80


def test_a_pod_of_the_host_network_sends_and_receives_in_its_nodes_namespace() -> None:
    case = replace(WIRES["crowded"], probes=(probe("p", "agent-1", PodTarget(pod="echo-2")),))
    found = resolve(case, draw(case), (), ())[0]
    assert (found.sender.namespace, str(found.sender.address), found.sender.device) == ("node-a", "172.18.0.2", STACK)
    where = {(each.name, each.namespace, str(each.address)) for each in found.receivers}
    assert {("agent-2", "node-b", "172.18.0.3"), ("echo-4", "echo@node-b", "10.244.1.11")} <= where
    assert (str(found.destination), found.port) == ("10.244.1.10", 8080), "a port is said once, whatever the family"


def test_receivers_are_of_the_family_of_the_dialled_address() -> None:
    target = AddressTarget(address=IPv6Address("fd00:10:96::7"), port=80)
    case = replace(WIRES["ptp dual"], probes=(probe("p", "client", target),))
    found = resolve(case, draw(case), (), ())[0]
    assert {each.address.version for each in (found.sender, *found.receivers, *found.sentinels)} == {6}
    assert found.policy_route is not None
    assert str(found.policy_route.via) == "fd00:172:18::2"


DUAL = (Family.IPV6, Family.IPV4)


def two_families(asked: Probe, service: Service) -> ResolvedProbe:
    case = replace(two_nodes(asked), network=WIRES["ptp dual"].network)
    return resolve(case, draw(case), (service,), ())[0]


@pytest.mark.parametrize(
    ("families", "expected"), [(DUAL, "fd00:10:96::7"), (DUAL[::-1], "10.96.1.7"), ((), "10.96.1.7")]
)
def test_of_two_families_the_service_s_own_first_is_dialled(families: tuple[Family, ...], expected: str) -> None:
    both = (IPv4Address("10.96.1.7"), IPv6Address("fd00:10:96::7"))
    service = replace(ECHO, cluster_ips=both, ip_families=families)
    found = two_families(probe("dual", "sender", frontend("http")), service)
    assert str(found.destination) == expected
    assert found.sender.address.version == found.destination.version
    assert {sentinel.address.version for sentinel in found.sentinels} == {found.destination.version}


def test_the_address_of_a_front_may_be_chosen_and_must_be_one_of_it() -> None:
    several = replace(EXPOSED, external_ips=(IPv4Address("192.0.2.1"), IPv4Address("192.0.2.9")))
    chosen = replace(by(Frontend.EXTERNAL_IP), address=IPv4Address("192.0.2.9"))
    assert str(resolved(probe("chosen", "sender", chosen), several).destination) == "192.0.2.9"
    stranger = replace(by(Frontend.EXTERNAL_IP), address=IPv4Address("192.0.2.8"))
    with pytest.raises(ScenarioError, match=r"has no externalIP 192\.0\.2\.8; allowed: 192\.0\.2\.1, 192\.0\.2\.9"):
        resolved(probe("stranger", "sender", stranger), several)


@pytest.mark.parametrize(
    ("target", "source"),
    [
        (frontend("http"), "172.18.0.2"),
        (PodTarget(pod="echo-1", port=8080), "10.244.0.1"),
        (PodTarget(pod="echo-2", port=8080), "172.18.0.2"),
        (AddressTarget(address=IPv4Address("172.18.0.2"), port=80), "172.18.0.2"),
        (AddressTarget(address=IPv4Address("10.244.0.1"), port=80), "10.244.0.1"),
        (AddressTarget(address=IPv4Address("127.0.0.1"), port=80), "127.0.0.1"),
    ],
)
def test_a_node_sends_with_the_source_that_its_kernel_chooses(target: Target, source: str) -> None:
    found = resolved(probe("p", "node-a", target))
    assert (found.sender.device, str(found.sender.address)) == (STACK, source)
    assert "node-a" not in {sentinel.name for sentinel in found.sentinels}


def test_from_loopback_a_node_dials_its_own_port_there() -> None:
    itself = Source(name="node-a", loopback=True)
    to_port = resolved(probe("p", itself, by(Frontend.NODE_PORT, "node-a")), EXPOSED)
    assert (str(to_port.sender.address), str(to_port.destination)) == ("127.0.0.1", "127.0.0.1")
    to_service = resolved(probe("p", itself, frontend("http")))
    assert (str(to_service.sender.address), str(to_service.destination)) == ("127.0.0.1", "10.96.1.7")


def test_a_sender_s_address_is_of_the_family_that_is_dialled() -> None:
    stranger = Source(name="node-a", sends_from=OneAddress(IPv6Address("fd00::1")))
    with pytest.raises(ScenarioError, match=r"from\.address: fd00::1 cannot dial 10\.96\.1\.7"):
        resolved(probe("p", stranger, frontend("http")))


def test_what_listens_on_a_node_is_known_by_its_ports() -> None:
    case = replace(WIRES["crowded"], probes=(probe("p", "agent-1", PodTarget(pod="echo-2")),))
    found = {each.name: each for each in resolve(case, draw(case), (), ())[0].receivers if each.namespace == "node-b"}
    assert {(each.device, bool(each.ports)) for each in found.values()} == {(STACK, True)}


MACHINES = """\
apiVersion: proxylab/v1
kind: Scenario
metadata: {name: machines}
spec:
  nodes: {node-a: {internalIPs: [172.18.0.77]}}
  pods: {client: {}}
  hosts: {database: {addresses: 3}, idle: {}}
  probes:
  - name: a Service without selector
    from: client
    to: {service: db, via: clusterIP}
    expect: {outcome: delivered, source: preserved}
---
{apiVersion: v1, kind: Service, metadata: {name: db}, spec: {ports: [{port: 5432}]}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: db-1, labels: {kubernetes.io/service-name: db}}
addressType: IPv4
ports: [{port: 5432}]
endpoints: [{addresses: [203.0.113.10]}, {addresses: [203.0.113.12]}]
"""


def test_a_host_may_send_from_all_of_its_addresses() -> None:
    crowd = MACHINES.replace("from: client", "from: {name: database, address: all}\n    send: {as: packet}")
    (resolved,) = assemble(parse_scenario(crowd, "f")).resolved_probes
    assert [str(each) for each in resolved.sender.addresses] == ["203.0.113.10", "203.0.113.11", "203.0.113.12"]
    (alone,) = assemble(parse_scenario(crowd.replace(", address: all", ""), "f")).resolved_probes
    assert [str(each) for each in alone.sender.addresses] == ["203.0.113.10"]


def test_hosts_that_slices_name_listen_receive_and_have_sentinels() -> None:
    assembly = assemble(parse_scenario(MACHINES, "f"))
    listening = {
        netns_name.name: [str(each.port) for each in netns_name.listeners] for netns_name in assembly.plan.namespaces
    }
    assert (listening["database"], listening["idle"]) == (["5432"], [])
    (resolved,) = assembly.resolved_probes
    hosts = [(each.name, str(each.address)) for each in resolved.receivers if each.name != "client"]
    assert hosts == [("database", "203.0.113.10"), ("database", "203.0.113.12")]
    assert [(sentinel.name, str(sentinel.address)) for sentinel in resolved.sentinels] == [
        ("node-a", "172.18.0.77"),
        ("database", "203.0.113.10"),
    ]
