"""Which networks of a lab may overlap."""

from ipaddress import ip_network

import pytest

from proxylab.addresses import may_overlap


@pytest.mark.parametrize(
    ("pods", "nodes", "may"),
    [
        ("172.18.128.0/17", "172.18.0.0/16", True),
        ("172.18.200.0/24", "172.18.0.0/16", True),
        ("172.18.0.0/17", "172.18.0.0/16", False),
        ("172.18.64.0/18", "172.18.0.0/16", False),
        ("172.18.0.0/16", "172.18.0.0/16", False),
        ("172.0.0.0/8", "172.18.0.0/16", False),
        ("fd00:172:18:8000::/49", "fd00:172:18::/48", True),
        ("172.18.128.0/17", "fd00:172:18::/48", False),
        ("10.0.0.1/32", "10.0.0.1/32", False),
    ],
)
def test_pods_may_have_addresses_of_the_upper_half_of_their_nodes_network(pods: str, nodes: str, may: bool) -> None:
    one, other = ("podCIDR", ip_network(pods)), ("nodeCIDR", ip_network(nodes))
    assert may_overlap(one, other) is may_overlap(other, one) is may


def test_no_other_two_may() -> None:
    one, other = ip_network("172.18.128.0/17"), ip_network("172.18.0.0/16")
    assert not may_overlap(("serviceCIDR", one), ("nodeCIDR", other))
    assert not may_overlap(("podCIDR", one), ("outsideCIDR", other))
