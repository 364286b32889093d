"""The address that a masquerade gives."""

from dataclasses import replace

import pytest
from scenario_cases import node, scenario, two_nodes

from lab.plan.sources import snat_source
from lab.plan.topology import draw


@pytest.mark.parametrize(
    ("place", "device", "address"),
    [
        ("node-a", "uplink", "172.18.0.2"),
        ("node-b", "uplink", "172.18.0.3"),
        ("node-a", "pods", "10.244.0.1"),
        ("node-b", "pods", "10.244.1.1"),
    ],
)
def test_source(place: str, device: str, address: str) -> None:
    assert str(snat_source(draw(two_nodes()), place, device)) == address


def test_device_without_address_borrows_the_nodes_first() -> None:
    plan = draw(two_nodes())
    bare = [
        replace(each, addresses=tuple(address for address in each.addresses if address.device == "eth0"))
        for each in plan.namespaces
    ]
    assert str(snat_source(replace(plan, namespaces=tuple(bare)), "node-a", "pods")) == "172.18.0.2"


@pytest.mark.parametrize(
    ("place", "device", "message"),
    [
        ("node-c", "uplink", "there is no node 'node-c'; there are node-a"),
        ("client", "uplink", "there is no node 'client'; there are node-a"),
        ("node-a", "overlay", "a node has no device 'overlay'; there are uplink, pods"),
        ("node-a", "pods", "node-a has no pods"),
    ],
)
def test_what_is_not_there_is_named(place: str, device: str, message: str) -> None:
    with pytest.raises(LookupError, match=message):
        snat_source(draw(scenario([node("node-a")])), place, device)
