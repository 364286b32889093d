"""The address that a masquerade gives."""

from ipaddress import ip_interface

import pytest
from msgspec.structs import replace
from network_scenarios import BASIC, DUAL, TUNNELLED, network
from scenario_cases import node, pods, scenario, two_nodes

from proxylab.addresses import Family
from proxylab.plan.sources import snat_source
from proxylab.plan.topology import draw
from proxylab.scenario.nodes import NodeAddress


@pytest.mark.parametrize(
    ("netns_name", "device", "address"),
    [
        ("node-a", "uplink", "172.18.0.2"),
        ("node-b", "uplink", "172.18.0.3"),
        ("node-a", "pods", "10.244.0.1"),
        ("node-b", "pods", "10.244.1.1"),
    ],
)
def test_source(netns_name: str, device: str, address: str) -> None:
    assert str(snat_source(draw(two_nodes()), netns_name, device)) == address


def test_device_without_address_borrows_the_nodes_first() -> None:
    plan = draw(two_nodes())
    bare = [
        replace(each, addresses=tuple(address for address in each.addresses if address.device == "eth0"))
        for each in plan.namespaces
    ]
    assert str(snat_source(replace(plan, namespaces=tuple(bare)), "node-a", "pods")) == "172.18.0.2"


@pytest.mark.parametrize(
    ("network", "device", "family", "address"),
    [
        ("bridge dual", "pods", Family.IPV4, "10.244.0.1"),
        ("bridge dual", "pods", Family.IPV6, "fd00:10:244::1"),
        ("unnumbered dual", "pods", Family.IPV4, "172.18.0.2"),
        ("unnumbered dual", "pods", Family.IPV6, "fd00:172:18::2"),
        ("vxlan ptp dual", "overlay", Family.IPV4, "10.244.0.0"),
        ("vxlan ptp dual", "uplink", Family.IPV6, "fd00:172:18::2"),
        ("crowded", "uplink", Family.IPV4, "172.18.0.2"),
    ],
)
def test_source_on_other_wires(network: str, device: str, family: Family, address: str) -> None:
    assert str(snat_source(draw({**BASIC, **TUNNELLED}[network]), "node-a", device, family)) == address


@pytest.mark.parametrize(("family", "address"), [(Family.IPV4, "172.18.0.2"), (Family.IPV6, "fd00:10:244::")])
def test_device_without_address_borrows_in_ipv6_the_one_nearest_to_the_pods(family: Family, address: str) -> None:
    plan = draw(network(**DUAL, pod_network="ptp-unnumbered", inter_node="vxlan"))
    assert str(snat_source(plan, "node-a", "pods", family)) == address


def test_device_without_address_borrows_loopbacks_before_any_other() -> None:
    unnumbered = scenario(
        [node("a", addresses=(NodeAddress(device="lo", interface=ip_interface("192.0.2.1/32")),))],
        [pods("p", "a")],
        network={"pod_network": "ptp-unnumbered"},
    )
    assert str(snat_source(draw(unnumbered), "a", "pods")) == "192.0.2.1"


@pytest.mark.parametrize(
    ("netns_name", "device", "message"),
    [
        ("node-c", "uplink", "there is no node 'node-c'; use node-a"),
        ("client", "uplink", "there is no node 'client'; use node-a"),
        ("node-a", "overlay", "a node has no device 'overlay'; use uplink, pods"),
        ("node-a", "pods", "node-a has no pods"),
    ],
)
def test_what_is_not_there_is_named(netns_name: str, device: str, message: str) -> None:
    with pytest.raises(LookupError, match=message):
        snat_source(draw(scenario([node("node-a")])), netns_name, device)


def test_a_family_that_the_node_has_not_is_named() -> None:
    with pytest.raises(LookupError, match="node-a has no IPv6 address"):
        snat_source(draw(two_nodes()), "node-a", "uplink", Family.IPV6)
