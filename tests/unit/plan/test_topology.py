"""What is drawn for a scenario, and what cannot be."""

from ipaddress import IPv4Network
from pathlib import Path

import pytest
from scenario_cases import front, host, node, pods, probe, scenario, two_nodes

from lab.errors import ScenarioError
from lab.ip import Family, Protocol
from lab.plan.model import Listener, Role
from lab.plan.print import plan_lines, sysctl_lines
from lab.plan.topology import draw
from lab.scenario.model import HostTarget, Scenario, Send

GOLDEN = Path(__file__).parents[2] / "golden/plan"


def test_plan_of_two_nodes_is_the_golden_one() -> None:
    assert "\n".join(plan_lines(draw(two_nodes()))) + "\n" == (GOLDEN / "two-nodes.txt").read_text()


@pytest.mark.parametrize("role", list(Role))
def test_sysctls_of_a_role_are_the_golden_ones(role: Role) -> None:
    namespace = next(namespace for namespace in draw(two_nodes()).namespaces if namespace.role is role)
    assert "\n".join(sysctl_lines(namespace)) + "\n" == (GOLDEN / f"sysctls-{role}.txt").read_text()


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
            probe("udp", "sender", target, Send(protocol=Protocol.UDP)),
            probe("again", "echo-1", target),
            probe("other", "sender", front()),
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


NODE = node("a", line=5)

THREE_NODES = [node(f"n{number}", line=number) for number in range(3)]
MANY_HOSTS = [host(f"h{number}", line=number) for number in range(247)]


def cidr(key: str, network: str) -> dict[str, object]:
    return {key: (IPv4Network(network),)}


IMPOSSIBLE: list[tuple[Scenario, list[str]]] = [
    (scenario(), ["case.lab.yaml: spec.nodes: a lab needs at least one node"]),
    (
        scenario([NODE, node("router", line=6)]),
        ["case.lab.yaml:6:1: router: fabric and router are names of the lab's own namespaces"],
    ),
    (
        scenario([NODE], [pods("fabric", "a")]),
        ["case.lab.yaml:1:1: fabric: fabric and router are names of the lab's own"],
    ),
    (
        scenario([NODE], [pods("a", "a", line=7)], [host("a", line=8)]),
        ["case.lab.yaml:7:1: a: case.lab.yaml:5:1 has this name", "case.lab.yaml:8:1: a: case.lab.yaml:5:1 has this"],
    ),
    (
        scenario([NODE], [pods("p", "b", line=9)]),
        ["case.lab.yaml:9:1: p: there is no node 'b'; there are a"],
    ),
    (
        scenario(THREE_NODES, network=cidr("pod_cidrs", "10.0.0.0/23")),
        ["case.lab.yaml:2:1: n2: no /24 is left in spec.network.podCIDRs (10.0.0.0/23): 2 nodes have one"],
    ),
    (
        scenario([NODE], [pods("p", "a", replicas=246, line=4)]),
        ["case.lab.yaml:4:1: p-246: no address is left in the pod network of a"],
    ),
    (
        scenario([NODE], hosts=MANY_HOSTS),
        ["case.lab.yaml:245:1: h245: no address is left", "case.lab.yaml:246:1: h246: no address is left"],
    ),
    (
        scenario([NODE], network=cidr("node_cidrs", "10.0.0.0/31")),
        ["case.lab.yaml:5:1: a: no address is left in spec.network.nodeCIDRs (10.0.0.0/31): 0 have one"],
    ),
    (
        scenario([NODE], network=cidr("pod_cidrs", "10.96.0.0/12")),
        ["spec.network.podCIDRs: 10.96.0.0/12 and spec.network.serviceCIDRs 10.96.0.0/16 overlap"],
    ),
    (
        scenario([NODE], network={"node_cidrs": ()}),
        ["spec.network.nodeCIDRs: expected one IPv4 network, found 0"],
    ),
    (
        scenario([NODE], network={"pod_network": "bridge"}),
        ["spec.network.podNetwork: 'bridge' cannot be drawn; use ptp"],
    ),
    (
        scenario([NODE], network={"inter_node": "vxlan", "families": (Family.IPV4, Family.IPV6)}),
        ["spec.network.interNode: 'vxlan' cannot", "spec.network.families: 'IPv4, IPv6' cannot be drawn; use IPv4"],
    ),
    (
        scenario([node("a", sysctls={"kernel.pid_max": "1"})]),
        ["case.lab.yaml:1:1: a: sysctl kernel.pid_max: only those below net belong"],
    ),
    (
        scenario([node("a", sysctls={"net/ipv4/conf/eth0.1/rp_filter": "1"})]),
        ["a: sysctl net.ipv4.conf.eth0/1.rp_filter: there is no device 'eth0/1' yet"],
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
