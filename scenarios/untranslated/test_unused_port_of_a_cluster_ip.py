"""A packet to an unused port of a cluster IP circles between its node and the router in mode iptables.

https://github.com/kubernetes/kubernetes/issues/22952: the default route of a node leads to the router, and the router
sends the ServiceCIDR to the node. Each turn takes two from the packet's TTL of 64: one at the node, one at the router.
"""

from typing import Final

import pytest

from proxylab.pytest_plugin import Lab

ADDRESSES: Final = {"IPv4": "10.96.0.50", "IPv6": "fd00:10:96::50"}
TURNS: Final = range(32, 40)
"""How often the node forwards that packet, and the lab's sentinel packets once each."""


def forwarded(lab: Lab, family: str) -> int:
    """How many packets of that family node-a has forwarded."""
    if family == "IPv6":
        lines = lab.execute("node-a", "cat", "/proc/net/snmp6").stdout.splitlines()
        return int(dict(map(str.split, lines))["Ip6OutForwDatagrams"])
    lines = lab.execute("node-a", "cat", "/proc/net/snmp").stdout.splitlines()
    names, values = [line.split() for line in lines if line.startswith("Ip:")]
    return int(dict(zip(names, values, strict=True))["ForwDatagrams"])


@pytest.mark.parametrize("family", ["IPv4", "IPv6"])
@pytest.mark.lab("unused-port-of-a-cluster-ip.lab.yaml")
def test_a_packet_to_an_unused_port_circles_until_its_ttl_ends(lab: Lab, family: str) -> None:
    ends_at_once = lab.mode in ("nftables", "ipvs")
    expected = (
        {"outcome": "rejected", "at": "node-a"} if ends_at_once else {"outcome": "untranslated", "at": "node-a/eth0"}
    )
    before = forwarded(lab, family)
    lab.probe("client", to={"address": ADDRESSES[family], "port": 81}, send={"as": "packet"}, expect=expected)
    circled = forwarded(lab, family) - before
    assert circled < 8 if ends_at_once else circled in TURNS, circled
