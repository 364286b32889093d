"""Which networks of a lab may overlap, and what addresses with leading zeros mean."""

from ipaddress import ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxylab.addresses import may_overlap, without_leading_zeros


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


@given(st.ip_addresses(v=4), st.lists(st.integers(0, 3), min_size=4, max_size=4))
def test_an_octet_with_leading_zeros_is_decimal(address: object, zeros: list[int]) -> None:
    octets = str(address).split(".")
    padded = ".".join("0" * count + octet for count, octet in zip(zeros, octets, strict=True))
    assert ip_address(without_leading_zeros(padded)) == address


@pytest.mark.parametrize(
    ("text", "usual"),
    [
        ("192.168.099.022/016", "192.168.99.22/16"),
        (" 010.0.0.0/08", " 10.0.0.0/8"),
        ("000.0.00.0", "0.0.0.0"),
        ("fd00::0001", "fd00::0001"),
        ("::ffff:010.0.0.1", "::ffff:010.0.0.1"),
        ("010.0.1", "010.0.1"),
        ("None", "None"),
    ],
)
def test_only_what_looks_like_ipv4_loses_its_zeros(text: str, usual: str) -> None:
    assert without_leading_zeros(text) == usual
