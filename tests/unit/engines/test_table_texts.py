# ruff: noqa: E101 - as nft indents
"""What is read from the output of ``nft list table``: the parts of a dump, and what it means."""

import pytest

from proxylab.addresses import Family
from proxylab.engines.modes import MODES

NFTABLES = MODES["nftables"]
TABLE = """\
table ip kube-proxy {
	comment "rules for kube-proxy"
	set cluster-ips {
		type ipv4_addr
		comment "Active ClusterIPs"
		elements = { 10.96.0.20, 192.0.0.8,
			     10.96.0.21 }
	}

	set affinity-AAAAAAAA-default/echo/tcp/__10.42.0.10/8080 {
		type ipv4_addr
		size 65535
		flags dynamic,timeout
		timeout 1m
		elements = { 10.42.0.99 expires 50s }
	}

	map no-endpoint-services {
		type ipv4_addr . inet_proto . inet_service : verdict
		elements = { 10.96.0.21 . tcp . 80 comment "default/other" : goto reject-chain }
	}

	chain services {
		ip daddr . meta l4proto . th dport vmap @service-ips
		fib daddr type local ip daddr != 127.0.0.0/8 meta l4proto . th dport vmap @service-nodeports
	}

	chain service-AAAAAAAA-proxylab/barrier/tcp/b000001 {
		meta l4proto tcp dnat to 192.0.0.9:1
	}

	chain service-AAAAAAAA-default/gone/tcp/ {
	}
}
"""
OTHER_ORDER = TABLE.replace(
    "10.96.0.20, 192.0.0.8,\n\t\t\t     10.96.0.21", "10.96.0.21, 10.96.0.20,\n\t\t\t     192.0.0.8"
)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("", ""),
        ("\tchain service-AAAAAAAA-default/gone/tcp/ {\n\t}\n", ""),
        ('comment "default/other"', 'comment "default/another"'),
        ("10.42.0.99 expires 50s", "10.42.0.98 expires 20s"),
    ],
    ids=["order of elements", "an emptied chain", "a comment of an element", "remembered clients"],
)
def test_what_means_the_same(old: str, new: str) -> None:
    assert NFTABLES.differences(TABLE, OTHER_ORDER.replace(old, new)) == []


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("10.96.0.20", "10.96.0.22", {"- IPv4 set cluster-ips: 10.96.0.20", "+ IPv4 set cluster-ips: 10.96.0.22"}),
        ("timeout 1m", "timeout 2m", {"timeout 1m", "timeout 2m"}),
        (
            ": goto reject-chain",
            ": drop",
            {"10.96.0.21 . tcp . 80 : goto reject-chain", "10.96.0.21 . tcp . 80 : drop"},
        ),
        ("192.0.0.9:1", "192.0.0.9:2", {"dnat to 192.0.0.9:1", "dnat to 192.0.0.9:2"}),
    ],
)
def test_what_does_not(old: str, new: str, said: set[str]) -> None:
    lines = NFTABLES.differences(TABLE, TABLE.replace(old, new))
    assert len(lines) == len(said)
    assert all(any(each in line for line in lines) for each in said)


def test_the_order_of_rules_counts() -> None:
    first, second = TABLE.splitlines(keepends=True)[23:25]
    (line,) = NFTABLES.differences(TABLE, TABLE.replace(first + second, second + first))
    assert line == "+ IPv4 chain services: the same rules in another order"


def test_a_service_is_taken_out_with_its_chains_and_addresses() -> None:
    left = NFTABLES.without(TABLE, "proxylab/barrier", {"192.0.0.8", "192.0.0.9"})
    assert "barrier" not in left
    assert "192.0.0." not in left
    assert "elements = { 10.96.0.20,\n\t\t\t     10.96.0.21 }" in left
    assert "elements" not in NFTABLES.without(
        "\tset cluster-ips {\n\t\telements = { 192.0.0.8 }\n\t}\n", "proxylab/barrier", {"192.0.0.8"}
    )


def test_families_are_told_apart() -> None:
    both = TABLE + TABLE.replace("table ip ", "table ip6 ")
    parts = NFTABLES.by_family(both, list(Family))
    assert parts[Family.IPV4] == TABLE
    assert parts[Family.IPV6].startswith("table ip6 kube-proxy")
    assert NFTABLES.by_family(TABLE, list(Family))[Family.IPV6] == ""
    (line,) = {line.partition(" set")[0] for line in NFTABLES.differences(TABLE, both) if " set " in line}
    assert line == "+ IPv6"


def test_whether_a_node_holds_the_table() -> None:
    assert NFTABLES.holds(TABLE, True)
    assert not NFTABLES.holds(TABLE, False)
    assert NFTABLES.holds("", False)
