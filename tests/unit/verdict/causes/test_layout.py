"""What a plan says of bridges and reverse path filters, on plans that scenarios draw."""

from ipaddress import ip_address

import pytest
from msgspec.structs import replace
from network_scenarios import BASIC, TUNNELLED
from scenario_cases import frontend, probe, two_nodes

from proxylab.plan.model import Plan, Sysctl
from proxylab.plan.topology import draw
from proxylab.verdict.causes.layout import bridge_of, calls_iptables, holder, is_hairpin, port_of, rp_filter_refusal

ON_A_BRIDGE = {"pod_network": "bridge"}
NODE_B = ip_address("172.18.0.3")
POD_ON_A = ip_address("10.244.0.12")


def plan(**network: object) -> Plan:
    return draw(two_nodes(probe("p", "sender", frontend()), network=network))


def strict(drawn: Plan, node: str) -> Plan:
    changed = (
        replace(each, value="1") if each.name == "net.ipv4.conf.all.rp_filter" else each
        for each in drawn.namespace(node).sysctls
    )
    return drawn.with_sysctls({node: tuple(changed)})


def test_a_pod_hangs_on_a_port_of_its_nodes_bridge_or_on_none() -> None:
    assert port_of(plan(), "sender", "eth0") is None
    port = port_of(plan(**ON_A_BRIDGE), "sender", "eth0")
    assert port is not None
    assert (port.node, port.bridge, port.end.device) == ("node-a", "cni0", "sender")


def test_two_pods_share_a_bridge_only_on_one_node() -> None:
    drawn = plan(**ON_A_BRIDGE)
    assert bridge_of(drawn, ("sender", "eth0"), ("echo-1", "eth0")) is not None
    assert bridge_of(drawn, ("sender", "eth0"), ("echo-2", "eth0")) is None


def test_hairpin_is_a_matter_of_the_port_or_of_a_promiscuous_bridge() -> None:
    found = {}
    for mode in ("hairpin-veth", "promiscuous-bridge", "none"):
        drawn = plan(**ON_A_BRIDGE, hairpin=mode)
        port = port_of(drawn, "sender", "eth0")
        assert port is not None
        found[mode] = is_hairpin(drawn, port)
    assert found == {"hairpin-veth": True, "promiscuous-bridge": True, "none": False}


def test_rules_see_what_a_bridge_carries_unless_the_node_says_no() -> None:
    drawn = plan(**ON_A_BRIDGE)
    assert calls_iptables(drawn, "node-a", POD_ON_A)
    silent = drawn.with_sysctls({"node-a": (Sysctl("net.bridge.bridge-nf-call-iptables", "0"),)})
    assert not calls_iptables(silent, "node-a", POD_ON_A)
    assert calls_iptables(silent, "node-a", ip_address("fd00::1"))


def test_a_strict_filter_refuses_what_comes_by_another_way_than_answers_would_go() -> None:
    overlay = plan(inter_node="vxlan")
    assert rp_filter_refusal(overlay, "sender", POD_ON_A, NODE_B) is None
    found = rp_filter_refusal(strict(overlay, "node-b"), "sender", POD_ON_A, NODE_B)
    assert found is not None
    assert (found.node, found.device, found.back) == ("node-b", "eth0", "flannel.1")


def test_ipv6_has_no_such_filter() -> None:
    drawn = strict(draw(TUNNELLED["vxlan ptp dual"]), "node-b")
    found = rp_filter_refusal(drawn, "node-a", ip_address("10.244.0.10"), NODE_B)
    assert found is not None
    assert found.node == "node-b"
    assert rp_filter_refusal(drawn, "node-a", ip_address("fd00:10:244::a"), ip_address("fd00:172:18::3")) is None


def test_a_strict_filter_lets_pass_what_comes_the_way_it_would_answer() -> None:
    assert rp_filter_refusal(strict(plan(), "node-b"), "sender", POD_ON_A, NODE_B) is None
    assert rp_filter_refusal(strict(plan(inter_node="vxlan"), "node-a"), "sender", POD_ON_A, NODE_B) is None


@pytest.mark.parametrize("network", [{}, ON_A_BRIDGE, {"pod_network": "ptp-unnumbered"}], ids=str)
def test_each_address_of_the_plan_has_a_holder_that_a_reader_knows(network: dict[str, object]) -> None:
    drawn = plan(**network)
    assert holder(drawn, NODE_B) == "node-b on its uplink"
    assert holder(drawn, POD_ON_A) == "pod sender"
    assert holder(drawn, ip_address("10.244.0.1")) in ("", "node-a's gateway to its pods")
    assert holder(drawn, ip_address("192.0.2.99")) == ""


def test_the_holders_of_addresses_that_the_author_fixes_are_named() -> None:
    drawn = draw(BASIC["first addresses on a bridge"])
    held = {
        "10.244.1.1": "pod other-first",
        "10.244.1.2": "node-b's gateway to its pods",
        "172.18.0.1": "node-a on its uplink",
        "172.18.255.254": "the router",
        "fd00:172:18::1": "host neighbour",
        "203.0.113.99": "host client",
    }
    assert {address: holder(drawn, ip_address(address)) for address in held} == held


def test_a_gateway_that_only_one_node_has_is_named() -> None:
    assert holder(plan(**ON_A_BRIDGE), ip_address("10.244.0.1")) == "node-a's gateway to its pods"
