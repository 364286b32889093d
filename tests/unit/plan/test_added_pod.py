"""A pod that is added to a lab that stands is connected as one that was drawn with it."""

from collections.abc import Mapping, Sequence
from ipaddress import ip_address, ip_network

import pytest
from network_scenarios import BASIC
from scenario_cases import DUAL, host, node, pods, scenario

from proxylab.addresses import IPNetwork, Protocol
from proxylab.plan.added_pod import Additions, addresses_of, with_added
from proxylab.plan.model import Listener, Plan, PlannedNamespace
from proxylab.plan.topology import draw
from proxylab.scenario.model import Scenario

NETWORKS: Mapping[str, Sequence[IPNetwork]] = {
    "node-a": (ip_network("10.244.0.0/24"), ip_network("fd00:10:244::/64")),
    "node-b": (ip_network("10.244.1.0/24"), ip_network("fd00:10:244:1::/64")),
}


def cluster(*names: str) -> Scenario:
    groups = [pods(name, "node-a") for name in names]
    return scenario([node("node-a"), node("node-b")], groups, [host("client")], network=DUAL)


def additions(drawn: Scenario) -> tuple[Plan, Additions]:
    plan = draw(drawn)
    return plan, Additions(plan, drawn.network.families, NETWORKS)


def ways(namespace: PlannedNamespace, device: str) -> set[tuple[str, str]]:
    return {(str(each.destination), str(each.via)) for each in namespace.routes if each.device == device}


def test_it_has_the_routes_addresses_and_neighbours_of_one_that_was_drawn() -> None:
    """The third pod, added to a lab of two and drawn in a lab of three; only its address is another."""
    plan, adds = additions(cluster("one", "two"))
    there = draw(cluster("one", "two", "three"))
    added = adds.add("default", "three", "node-a", [])
    drawn = there.namespace("three")
    assert ways(added.pod, "eth0") == ways(drawn, "eth0")
    assert added.pod.sysctls == drawn.sysctls
    assert [str(each.address) for each in added.pod.neighbours] == [str(each.address) for each in drawn.neighbours]
    assert {each.mac for each in added.pod.neighbours} == {added.link.first.mac}
    assert {each.mac for each in added.node.neighbours} == {added.link.second.mac}
    on_node = there.namespace("node-a")
    (device,) = {each.device for each in on_node.addresses if each.device.startswith("three")}
    assert [each.interface for each in added.node.addresses] == [
        each.interface for each in on_node.addresses if each.device == device
    ]
    assert ways(added.node, added.link.first.device) == {
        (f"{each}/{each.max_prefixlen}", "None") for each in addresses_of(added)
    }
    assert not set(addresses_of(added)) & {address for pod in plan.pods for address in pod.addresses}


def test_a_node_without_pods_has_the_first_address_as_gateway_as_the_others() -> None:
    _, adds = additions(cluster("one"))
    added = adds.add("default", "web", "node-b", [(Protocol.TCP, 80)])
    assert [str(each.interface.ip) for each in added.node.addresses] == ["10.244.1.1", "fd00:10:244:1::1"]
    assert [str(each) for each in addresses_of(added)] == ["10.244.1.2", "fd00:10:244:1::2"]
    assert added.pod.listeners == (Listener("web", Protocol.TCP, 80),)


def test_names_devices_and_indexes_are_unique_and_addresses_come_back() -> None:
    plan, adds = additions(cluster("web"))
    many = [adds.add("default", "web", "node-a", []) for _ in range(20)]
    ends = [end for link in (*plan.links, *(each.link for each in many)) for end in link.ends]
    assert len({(end.namespace, end.device) for end in ends}) == len(ends)
    assert len({(end.namespace, end.index) for end in ends}) == len(ends)
    assert len({end.mac for end in ends}) == len(ends)
    assert len({each.pod.name for each in many} | {each.name for each in plan.namespaces}) == 20 + len(plan.namespaces)
    first = addresses_of(many[0])
    adds.give_back(many[0])
    assert addresses_of(adds.add("default", "other", "node-a", [])) == first


def test_pods_of_one_name_in_two_namespaces_have_two_in_the_plan_which_then_has_both() -> None:
    plan, adds = additions(cluster("one"))
    added = [adds.add(namespace, "web", "node-b", [(Protocol.UDP, 53)]) for namespace in ("default", "team", "team")]
    assert [each.pod.name for each in added] == ["web", "web.team", "web@2"]
    assert added[1].pod.listeners == (Listener("web.team", Protocol.UDP, 53),)
    grown = with_added(plan, added)
    assert with_added(plan, []) is plan
    assert [each.name for each in grown.pods] == ["one", "web", "web.team", "web@2"]
    node_b = grown.namespace("node-b")
    for each, placed in zip(added, grown.pods[1:], strict=True):
        assert placed.addresses == addresses_of(each)
        assert grown.peer(each.pod.name, placed.device).namespace == "node-b"
        assert {*each.node.addresses} < {*node_b.addresses}
        assert {*each.node.routes} < {*node_b.routes}


def test_one_on_the_host_network_has_its_node_s_addresses_and_no_link() -> None:
    plan, adds = additions(cluster("web"))
    own = plan.addresses_by_name["node-b"]
    primary = [next(each for each in own if each.version == version) for version in (4, 6)]
    added = [adds.add_on_host("default", "web", "node-b", own, [(Protocol.TCP, port)]) for port in (80, 81)]
    grown = with_added(plan, added)
    assert grown.links == plan.links
    assert len(grown.namespaces) == len(plan.namespaces)
    assert [(each.name, each.namespace, list(each.addresses)) for each in grown.pods[1:]] == [
        ("web.default", "node-b", primary),
        ("web@2", "node-b", primary),
    ]
    new = [each for each in grown.namespace("node-b").listeners if each not in plan.namespace("node-b").listeners]
    assert new == [Listener("web.default", Protocol.TCP, 80), Listener("web@2", Protocol.TCP, 81)]
    adds.give_back(added[0])
    assert adds.add_on_host("default", "web", "node-b", own, []).placement.name == "web.default"


def test_a_network_without_a_free_address_refuses() -> None:
    drawn = cluster("one")
    small = {"node-a": (ip_network("10.244.0.8/29"),)}
    adds = Additions(draw(drawn), drawn.network.families, small)
    found = [adds.add("default", "more", "node-a", []) for _ in range(4)]
    assert ip_address("10.244.0.10") not in {address for each in found for address in addresses_of(each)}
    with pytest.raises(ValueError, match=r"no address of 10\.244\.0\.8/29 is free"):
        adds.add("default", "more", "node-a", [])


@pytest.mark.parametrize(("name", "can"), [("ptp dual", True), ("bridge dual", False)])
def test_only_pods_with_a_device_of_their_own_can_be_added(name: str, can: bool) -> None:
    drawn = BASIC[name]
    assert Additions(draw(drawn), drawn.network.families, NETWORKS).can_add_to("node-a") is can
