"""What is drawn for a scenario, and what cannot be."""

from ipaddress import IPv4Network, ip_address, ip_interface, ip_network
from pathlib import Path

import pytest
from msgspec.structs import replace
from network_scenarios import BASIC, TUNNELLED, crowded
from scenario_cases import HTTP, at, frontend, host, node, pods, probe, scenario, two_nodes

from proxylab.addresses import Family, Protocol, Transport
from proxylab.cluster.configuration import SocketAddress
from proxylab.errors import ScenarioError
from proxylab.plan.model import Listener, Plan, PlannedNamespace, Role, Sysctl
from proxylab.plan.print import plan_lines
from proxylab.plan.topology import draw
from proxylab.scenario.model import Scenario
from proxylab.scenario.network import RoutedAddress, Segment
from proxylab.scenario.nodes import NodeAddress, NodeRoute, TrackedConnection
from proxylab.scenario.probes import HostTarget, Send

GOLDEN = Path(__file__).parents[2] / "golden/plan"


def test_plan_of_two_nodes_is_the_golden_one() -> None:
    assert "\n".join(plan_lines(draw(two_nodes()))) + "\n" == (GOLDEN / "two-nodes.txt").read_text()


@pytest.mark.parametrize(("name", "scenario"), [(n, (BASIC | TUNNELLED)[n]) for n in ("bridge dual", "vxlan ptp dual")])
def test_plan_of_a_bridge_and_of_an_overlay_is_the_golden_one(name: str, scenario: Scenario) -> None:
    """tests/kernel/test_planned_network.py shows for the other topologies that all addresses reach each other."""
    plan = draw(scenario)
    assert "\n".join(plan_lines(plan)) + "\n" == (GOLDEN / f"{name.replace(' ', '-')}.txt").read_text()


def sysctl_lines(namespace: PlannedNamespace) -> list[str]:
    """As sysctl(8) prints them; a question mark follows those a kernel may lack."""
    return [f"{each.name} = {each.value}{'' if each.required else ' ?'}" for each in namespace.sysctls]


@pytest.mark.parametrize("role", list(Role))
def test_sysctls_of_a_role_in_a_dual_stack_lab_are_the_golden_ones(role: Role) -> None:
    namespace = next(namespace for namespace in draw(BASIC["ptp dual"]).namespaces if namespace.role is role)
    assert "\n".join(sysctl_lines(namespace)) + "\n" == (GOLDEN / f"sysctls-{role}-dual.txt").read_text()


def test_pods_live_where_their_group_says() -> None:
    where = {pod.name: (pod.node, pod.namespace, str(pod.addresses[0])) for pod in draw(BASIC["crowded"]).pods}
    assert where["agent-2"] == ("node-b", "node-b", "172.18.0.3")
    assert where["echo-3"] == ("node-a", "echo@node-a", "10.244.0.11")
    assert where["sender"] == ("node-a", "sender", "10.244.0.13")


def test_pods_that_share_a_namespace_listen_on_their_own_addresses() -> None:
    listeners = draw(BASIC["crowded"]).namespace("echo@node-b").listeners
    assert [(each.name, str(each.address)) for each in listeners[:2]] == [
        ("echo-2", "10.244.1.10"),
        ("echo-2", "fd00:10:244:1::a"),
    ]


def test_a_fixed_address_has_one_owner() -> None:
    plan = draw(BASIC["fixed addresses"])
    where = {pod.name: [str(address) for address in pod.addresses] for pod in plan.pods}
    assert where["in-order"] == ["10.244.0.10", "fd00:10:244::a"]
    assert where["echo-1"] == ["10.244.0.11", "fd00:10:244::b"]
    neighbour = [str(each.interface) for each in plan.namespace("neighbour").addresses]
    assert neighbour[:2] == ["172.18.0.11/16", "fd00:172:18::a/64"], "node-b has written 172.18.0.10 by hand"


def addresses_of(plan: Plan, name: str, device: str = "eth0") -> list[str]:
    found = [each.interface for each in plan.namespace(name).addresses if each.device == device]
    return [str(each) for each in found if not each.is_link_local]


def test_the_first_addresses_belong_to_the_machines_that_fix_them() -> None:
    plan = draw(BASIC["first addresses"])
    assert addresses_of(plan, "node-a") == ["172.18.0.1/16", "fd00:172:18::2/64"]
    assert addresses_of(plan, "neighbour") == ["172.18.77.7/16", "fd00:172:18::1/64"]
    assert addresses_of(plan, "client") == ["203.0.113.1/24", "203.0.113.99/24", "2001:db8:203:113::a/64"]
    assert addresses_of(plan, "disk") == ["192.168.7.1/24", "fd00:192:168:7::2/64"]
    assert addresses_of(plan, "router", "nodes") == ["172.18.255.254/16", "fd00:172:18::fe/64"]
    assert addresses_of(plan, "router", "storage") == ["192.168.7.254/24", "fd00:192:168:7::1/64"]
    assert {str(each.via) for each in plan.namespace("disk").routes} == {"192.168.7.254", "fd00:192:168:7::1"}


@pytest.mark.parametrize("name", ["first addresses", "first addresses on a bridge"])
def test_a_gateway_has_the_first_address_that_no_pod_has(name: str) -> None:
    plan = draw(BASIC[name])
    for node_name, echo, gateway in (("node-a", "echo-1", "10.244.0.2"), ("node-b", "echo-2", "10.244.1.2")):
        (way,) = (str(each.via) for each in plan.namespace(echo).routes if str(each.destination) == "0.0.0.0/0")
        assert way == gateway
        assert gateway in {str(each.interface.ip) for each in plan.namespace(node_name).addresses}


def test_a_fixed_address_outside_its_nodes_part_is_routed_by_itself() -> None:
    plan = draw(BASIC["fixed addresses"])
    for netns_name in ("node-b", "router"):
        ways = {str(route.destination): str(route.via) for route in plan.namespace(netns_name).routes}
        assert ways["10.244.1.77/32"] == ways["10.244.200.9/32"] == "172.18.0.2"
        assert ways["fd00:10:244:1::77/128"] == ways["fd00:10:244:c8::9/128"] == "fd00:172:18::2"
        assert "10.244.0.10/32" not in ways
    overlay = draw(TUNNELLED["vxlan fixed addresses"]).namespace("node-b").routes
    assert [route.device for route in overlay if str(route.destination) == "10.244.1.77/32"] == ["flannel.1"]


def test_the_author_may_route_the_cluster_ips_to_another_node_than_the_first() -> None:
    text = two_nodes()
    routed = (RoutedAddress(network=ip_network("10.96.0.0/16"), nodes=("node-b",), position=at(9)),)
    plan = draw(replace(text, network=replace(text.network, routed=routed)))
    ways = [str(each.via) for each in plan.namespace("router").routes if str(each.destination) == "10.96.0.0/16"]
    assert ways == ["172.18.0.3"]


def test_connections_from_before_the_engine_are_printed() -> None:
    source, destination, former = map(SocketAddress.parse, ("10.244.0.9:40000", "10.96.0.8:53", "10.244.1.9:5353"))
    known = TrackedConnection(protocol=Protocol.UDP, source=source, destination=destination, reply_from=former)
    lines = plan_lines(draw(scenario([node("a", conntrack=(known,))])))
    assert "  tracked UDP from 10.244.0.9:40000 to 10.96.0.8:53 replyFrom 10.244.1.9:5353" in lines


def test_a_sysctl_of_a_device_is_kept_until_there_are_devices() -> None:
    node_b = draw(BASIC["crowded"]).namespace("node-b")
    assert node_b.device_sysctls == (Sysctl("net.ipv4.conf.eth0.rp_filter", "2"),)
    assert not [sysctl for sysctl in node_b.sysctls if ".eth0." in sysctl.name]


def test_without_hosts_there_is_no_outside() -> None:
    plan = draw(scenario([node("a")]))
    assert [bridge.device for bridge in plan.namespace("fabric").bridges] == ["nodes"]
    with pytest.raises(KeyError):
        plan.end("router", "outside")


def test_long_names_get_short_devices() -> None:
    name = "a-very-long-name-for-a-pod"
    plan = draw(scenario([node("node")], [pods(name, "node", replicas=2)]))
    devices = [plan.peer(f"{name}-{number}", "eth0").device for number in (1, 2)]
    assert all(device.startswith("a-very-lon-") and len(device) == 15 for device in devices)
    assert len(set(devices)) == 2


@pytest.mark.parametrize("name", ["eth0", "lo", "all", "default", "tunl0"])
def test_pods_named_like_other_devices_of_a_node_get_another(name: str) -> None:
    plan = draw(scenario([node("node")], [pods(name, "node")]))
    device = plan.peer(name, "eth0").device
    assert device != name
    assert device.startswith(f"{name}-")


def test_places_named_like_segments_do_not_clash_with_the_bridges() -> None:
    plan = draw(scenario([node("nodes")], hosts=[host("outside")]))
    ports = {end.device for link in plan.links for end in link.ends if end.namespace == "fabric"}
    assert len(ports) == 4
    assert not ports & {"nodes", "outside"}


def test_pods_listen_on_their_ports_and_hosts_on_those_that_are_dialled() -> None:
    target = HostTarget(host="client", port=53)
    plan = draw(
        two_nodes(
            probe("tcp", "sender", target),
            probe("udp", "sender", target, Send(protocol=Transport.UDP)),
            probe("again", "echo-1", target),
            probe("other", "sender", frontend()),
        )
    )
    assert plan.namespace("echo-2").listeners == (Listener("echo-2", Protocol.TCP, 8080),)
    assert plan.namespace("client").listeners == (
        Listener("client", Protocol.TCP, 53),
        Listener("client", Protocol.UDP, 53),
    )


def test_sysctls_of_a_node_override_the_labs_own_and_are_required() -> None:
    overrides = {
        "net.ipv4.conf.all.rp_filter": "1",
        "net/netfilter/nf_conntrack_tcp_be_liberal": "1",
        "net.core.x": "y",
    }
    plan = draw(scenario([node("a", sysctls=overrides), node("b")]))
    changed = {sysctl.name: sysctl for sysctl in plan.namespace("a").sysctls}
    own = {sysctl.name: sysctl for sysctl in plan.namespace("b").sysctls}
    assert len(changed) == len(plan.namespace("a").sysctls) == len(own) + 1
    for name in ("net.ipv4.conf.all.rp_filter", "net.netfilter.nf_conntrack_tcp_be_liberal", "net.core.x"):
        assert changed[name].required
    assert changed["net.netfilter.nf_conntrack_tcp_be_liberal"].value == "1"
    assert own["net.netfilter.nf_conntrack_tcp_be_liberal"].value == "0"


def test_sysctls_of_pods_hosts_and_the_router_override_the_labs_own() -> None:
    plan = draw(BASIC["crowded"])
    wanted = {
        "sender": Sysctl("net.ipv4.tcp_syncookies", "0"),
        "router": Sysctl("net.ipv4.icmp_ratelimit", "2000"),
        "neighbour": Sysctl("net.ipv4.conf.eth0.arp_ignore", "1"),
    }
    for namespace in plan.namespaces:
        found = {*namespace.sysctls, *namespace.device_sysctls} & {*wanted.values()}
        assert found == ({wanted[namespace.name]} if namespace.name in wanted else set())


NODE = node("a", line=5)

THREE_NODES = [node(f"n{number}", line=number) for number in range(3)]
MANY_HOSTS = [host(f"h{number}", line=number) for number in range(247)]


def at_eth0(*addresses: str) -> tuple[NodeAddress, ...]:
    return tuple(NodeAddress(device="eth0", interface=ip_interface(address)) for address in addresses)


def cidr(key: str, network: str) -> dict[str, object]:
    return {key: (IPv4Network(network),)}


IMPOSSIBLE: list[tuple[Scenario, list[str]]] = [
    (
        scenario([NODE, node("router", line=6)]),
        ["case.lab.yaml:6:1: router: fabric and router are the lab's own network namespaces"],
    ),
    (
        scenario([NODE], [pods("fabric", "a")]),
        ["case.lab.yaml:1:1: fabric: fabric and router are the lab's own"],
    ),
    (
        scenario(THREE_NODES, network=cidr("pod_cidrs", "10.0.0.0/23")),
        ["case.lab.yaml:2:1: n2: no /24 is left in spec.network.podCIDR (10.0.0.0/23): it has room for 2 nodes"],
    ),
    (
        scenario([NODE], [pods("p", "a", replicas=246, line=4)]),
        ["case.lab.yaml:4:1: p-246: no address is left in the pod network of a"],
    ),
    (
        scenario([NODE], hosts=MANY_HOSTS),
        ["case.lab.yaml:245:1: h245 and 1 more: no address is left"],
    ),
    (
        scenario([NODE], network=cidr("node_cidrs", "10.0.0.0/31")),
        ["case.lab.yaml:5:1: a: no address is left in spec.network.nodeCIDR (10.0.0.0/31), which serves 0"],
    ),
    (
        scenario([NODE], network=cidr("pod_cidrs", "10.96.0.0/12")),
        ["spec.network.podCIDR: 10.96.0.0/12 and spec.network.serviceCIDR 10.96.0.0/16 overlap"],
    ),
    (
        scenario([NODE], network={"node_cidrs": ()}),
        ["spec.network.nodeCIDR: expected one IPv4 network, found 0"],
    ),
    (
        scenario([node("a", sysctls={"net/ipv4/conf/eth0.1/rp_filter": "1"})]),
        ["a: sysctl net.ipv4.conf.eth0/1.rp_filter: there is no such device; use all, default, lo, eth0"],
    ),
    (
        scenario(
            [NODE],
            [pods("p", "a", line=6, replicas=2, shared_netns=True, sysctls={"net.ipv4.conf.eth7.rp_filter": "1"})],
            [host("h", line=7, sysctls={"net.ipv4.conf.eth8.rp_filter": "1"})],
            network={"router_sysctls": {"net.ipv4.conf.eth9.rp_filter": "1"}},
        ),
        [
            "case.lab.yaml: router: sysctl net.ipv4.conf.eth9.rp_filter: there is no such device; use all,",
            "case.lab.yaml:6:1: p@a: sysctl net.ipv4.conf.eth7.rp_filter: there is no such device; use all,",
            "case.lab.yaml:7:1: h: sysctl net.ipv4.conf.eth8.rp_filter: there is no such device; use all,",
        ],
    ),
    (
        scenario([NODE], network={"families": (Family.IPV6,)}),
        [f"spec.network.{key}CIDR: expected one IPv6 network" for key in ("pod", "node", "service", "outside")],
    ),
    (
        scenario(
            [
                node(
                    "a",
                    line=5,
                    routes=(NodeRoute(ip_network("192.0.2.0/24"), "lo", ip_address("fd00::1")),),
                )
            ]
        ),
        [
            "case.lab.yaml:5:1: a: route to 192.0.2.0/24: no packet leaves a node through lo; use another device",
            "case.lab.yaml:5:1: a: route to 192.0.2.0/24: via fd00::1 is of the other IP family",
        ],
    ),
    (
        scenario(
            [node("a", addresses=at_eth0("172.18.0.3", "172.18.0.9", "172.18.0.9")), node("b", line=2)],
            [
                pods(f"p{number}", "a", line=3 + number, addresses=(ip_address(address),))
                for number, address in enumerate(
                    ("10.0.0.1", "10.244.1.1", "10.244.0.0", "10.244.1.255", "10.244.0.9", "10.244.0.9")
                )
            ],
            [host("h", segment="nodes")],
        ),
        [
            "case.lab.yaml:3:1: p0: 10.0.0.1 is not in the pod network or the nodes'; choose one of 10.244",
            "case.lab.yaml:8:1: p5: 10.244.0.9 is p4's already; choose another one",
            "case.lab.yaml:1:1: a: 172.18.0.3 is b's already; choose another one",
            "case.lab.yaml:1:1: a: 172.18.0.9 is a's on eth0 already; choose another one",
        ],
    ),
    (
        scenario(
            [
                node("a", internal_ips=(ip_address("172.18.0.1"),)),
                node("b", line=2, internal_ips=(ip_address("172.18.0.9"),)),
            ],
            [
                pods(f"p{number}", "a", line=3 + number, addresses=(ip_address(address),))
                for number, address in enumerate(("10.244.0.0", "10.244.0.255", "10.244.0.1"))
            ],
            [host("h", line=7, segment="nodes", addresses=(ip_address("172.18.0.9"), ip_address("172.18.0.10")))],
            network={"pod_network": "bridge"},
        ),
        [
            "case.lab.yaml:1:1: a: 172.18.0.1 is the router's already; choose another one",
            "case.lab.yaml:7:1: h: 172.18.0.9 is b's already; choose another one",
            "case.lab.yaml:3:1: p0: 10.244.0.0 is the network address of a's pods already; choose another one",
            "case.lab.yaml:4:1: p1: 10.244.0.255 is the broadcast address of a's pods already; choose another one",
        ],
    ),
    (
        scenario(
            [NODE, node("b", line=6)],
            [pods("p", "a", line=7, addresses=(ip_address("10.244.1.9"),))],
            network={"pod_network": "bridge"},
        ),
        [
            "case.lab.yaml:7:1: p: 10.244.1.9 is not in a's part of the pod network (a bridge is one network)",
        ],
    ),
    (
        scenario([NODE], [pods("p", "a", replicas=2, line=6, host_network=True, ports=(HTTP,))]),
        [
            "case.lab.yaml:6:1: p-2: p-1 listens on TCP 8080 of a already",
        ],
    ),
    (
        scenario([NODE], network={"segments": (Segment(name="nodes", cidrs=(), position=at(9)),)}),
        ["case.lab.yaml:9:1: segment nodes: another segment has this name; rename one of the two"],
    ),
]


@pytest.mark.parametrize(("impossible", "messages"), IMPOSSIBLE)
def test_all_that_cannot_be_drawn_is_said_at_once(impossible: Scenario, messages: list[str]) -> None:
    with pytest.raises(ScenarioError) as raised:
        draw(impossible)
    assert len(raised.value.problems) == len(messages)
    for problem, message in zip(raised.value.problems, messages, strict=True):
        assert message in problem


def test_the_last_address_short_of_broadcast_is_used() -> None:
    plan = draw(scenario([NODE], [pods("p", "a", replicas=245)]))
    assert str(plan.namespace("p-245").addresses[0].interface) == "10.244.0.254/32"


def test_a_crowd_is_known_to_its_neighbours_for_good() -> None:
    """The kernel finds 1,024 neighbours of a family by itself, for all namespaces together."""
    plan = draw(crowded(addresses=40))
    (name,) = (each.name for each in plan.namespaces if each.role is Role.HOST and len(each.addresses) > 40)
    (end,) = (end for link in plan.links for end in link.ends if end.namespace == name)
    own = {each.interface.ip for each in plan.namespace(name).addresses if not each.interface.ip.is_link_local}
    known = plan.namespace("router").neighbours
    assert {each.address for each in known if each.mac == end.mac} == own - {ip_address("127.0.0.1"), ip_address("::1")}
