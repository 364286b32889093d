"""A host on the node's link that forges a loopback source passes the rule against CVE-2020-8558: a limit of upstream.

https://github.com/kubernetes/kubernetes/issues/92315: the rule drops packets for 127.0.0.0/8 from other sources than
127.0.0.0/8, and the kernel itself drops only the source 127.0.0.1, which the node has. Strict reverse path filtering
(rp_filter) drops them all.
"""

import sys
from pathlib import Path
from typing import Final

import pytest

from proxylab.pytest_plugin import Lab, LabFactory

SCENARIO: Final = Path(__file__).with_name("92315-neighbours-reach-loopback.lab.yaml")
SEND: Final = """
import socket, struct, sys
node, source = bytes.fromhex(sys.argv[1].replace(":", "")), socket.inet_aton(sys.argv[2])
link = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
link.bind(("eth0", 0))
udp = struct.pack("!HHHH", 40000, 9999, 12, 0) + b"data"  # without a checksum
ip = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 32, 1, 0, 64, 17, 0, source, socket.inet_aton("127.0.0.1"))
total = sum(struct.unpack("!10H", ip))
ip = ip[:10] + struct.pack("!H", ~(total + (total >> 16)) & 0xFFFF) + ip[12:]
link.send(node + link.getsockname()[4] + b"\\x08\\x00" + ip + udp)
"""


def received(lab: Lab) -> int:
    """How many datagrams programs of node-a have got."""
    lines = lab.execute("node-a", "cat", "/proc/net/snmp").stdout.splitlines()
    names, values = [line.split() for line in lines if line.startswith("Udp:")]
    return int(dict(zip(names, values, strict=True))["InDatagrams"])


def arrives(lab: Lab, source: str) -> bool:
    """Whether a datagram for 127.0.0.1 with that source reaches the program there, by a frame from the neighbour."""
    address = lab.execute("node-a", "ip", "-brief", "link", "show", "eth0").stdout.split()[2]
    before = received(lab)
    assert lab.execute("neighbour", sys.executable, "-c", SEND, address, source).status == 0
    # What the node refuses takes the same way behind the frame.
    closed = {"address": "172.18.0.2", "port": 9999}
    lab.probe("neighbour", to=closed, send={"protocol": "UDP", "as": "packet"}, expect={"outcome": "refused"})
    return received(lab) > before


@pytest.mark.lab(SCENARIO.name)
def test_a_forged_loopback_source_passes_the_rule_where_loopback_is_routed(lab: Lab) -> None:
    assert not arrives(lab, "203.0.113.77")
    assert not arrives(lab, "127.0.0.1")
    assert arrives(lab, "127.0.0.2") == (lab.mode == "iptables")


def test_strict_reverse_path_filtering_drops_a_forged_loopback_source(lab_factory: LabFactory) -> None:
    strict = "node-a: {sysctls: {net.ipv4.conf.all.rp_filter: 1}, daemons"
    lab = lab_factory(SCENARIO.read_text().replace("node-a: {daemons", strict))
    assert not arrives(lab, "127.0.0.2")
