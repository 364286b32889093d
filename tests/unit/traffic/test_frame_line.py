"""A frame in one line, of frames that scapy makes, and of any bytes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scapy.layers.inet import ICMP, IP, TCP, UDP, fragment
from scapy.layers.inet6 import ICMPv6DestUnreach, ICMPv6ND_NS, IPv6
from scapy.layers.l2 import ARP, Ether
from scapy.layers.sctp import SCTP, SCTPChunkInit
from scapy.layers.vxlan import VXLAN
from scapy.packet import Packet, Raw

from proxylab.traffic.frame_line import frame_line

ETHER = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")
THERE = IP(src="10.0.0.1", dst="10.0.0.2")
SIX = IPv6(src="fd00::1", dst="fd00::2")

LINES: dict[str, tuple[Packet, str]] = {
    "a SYN": (
        ETHER / THERE / TCP(sport=1024, dport=80, flags="S", seq=7),
        "10.0.0.1 > 10.0.0.2 TCP 1024 > 80 S seq 7 ack 0",
    ),
    "data": (
        ETHER / SIX / TCP(sport=1024, dport=80, flags="PA", seq=8, ack=9) / Raw(b"four"),
        "fd00::1 > fd00::2 TCP 1024 > 80 PA seq 8 ack 9 4 bytes",
    ),
    "a datagram": (
        ETHER / THERE / UDP(sport=5353, dport=53) / Raw(b"123"),
        "10.0.0.1 > 10.0.0.2 UDP 5353 > 53 3 bytes",
    ),
    "an ICMP error": (
        ETHER / THERE / ICMP(type=3, code=3) / IP(src="10.0.0.2", dst="10.0.0.1") / UDP(sport=53, dport=5353),
        "10.0.0.1 > 10.0.0.2 ICMP dest-unreach port-unreachable 10.0.0.2 > 10.0.0.1 UDP in ICMP 53 > 5353",
    ),
    "an ICMPv6 error": (
        ETHER / SIX / ICMPv6DestUnreach(code=4) / IPv6(src="fd00::2", dst="fd00::1") / UDP(sport=53, dport=5353),
        "fd00::1 > fd00::2 ICMPv6 Destination Unreachable Port unreachable fd00::2 > fd00::1 UDP in ICMP 53 > 5353",
    ),
    "a neighbour solicitation": (
        ETHER / SIX / ICMPv6ND_NS(tgt="fd00::9"),
        "fd00::1 > fd00::2 ICMPv6 Neighbor Discovery - Neighbor Solicitation (tgt: fd00::9)",
    ),
    "a ping": (ETHER / THERE / ICMP(type=8), "10.0.0.1 > 10.0.0.2 ICMP echo-request 0"),
    "an INIT": (
        ETHER / THERE / SCTP(sport=1, dport=2) / SCTPChunkInit(),
        "10.0.0.1 > 10.0.0.2 SCTP 1 > 2 SCTPChunkInit",
    ),
    "ARP": (
        Ether(src="02:00:00:00:00:01", dst="ff:ff:ff:ff:ff:ff") / ARP(op=1, psrc="10.0.0.1", pdst="10.0.0.2"),
        "ARP who has 10.0.0.2 says 10.0.0.1",
    ),
    "an answer of ARP": (
        ETHER / ARP(op=2, hwsrc="02:00:00:00:00:01", psrc="10.0.0.1", pdst="10.0.0.2"),
        "ARP is at 02:00:00:00:00:01 says 10.0.0.1",
    ),
    "a tunnel": (
        ETHER / THERE / UDP(sport=4000, dport=4789) / VXLAN(vni=1) / ETHER / THERE / ICMP(type=0),
        "10.0.0.1 > 10.0.0.2 UDP 4000 > 4789 VXLAN 1 10.0.0.1 > 10.0.0.2 ICMP echo-reply 0",
    ),
    "another protocol": (ETHER / IP(src="10.0.0.1", dst="10.0.0.2", proto=50) / Raw(b"xy"),
                         "10.0.0.1 > 10.0.0.2 protocol esp 2 bytes"),
    "another kind": (Ether(type=0x88CC) / Raw(b"xy"), "Ethernet type LLDP 2 bytes"),
}  # fmt: skip


@pytest.mark.parametrize("name", LINES)
def test_a_frame_is_told_in_one_line(name: str) -> None:
    frame, line = LINES[name]
    assert frame_line(bytes(frame)) == line


def test_fragments_are_told_apart() -> None:
    first, second = fragment(IP(src="10.0.0.1", dst="10.0.0.2", id=5) / UDP(sport=1, dport=2) / Raw(bytes(900)), 500)
    assert frame_line(bytes(ETHER / first)) == "10.0.0.1 > 10.0.0.2 fragment 5 at 0 UDP 1 > 2 488 bytes"
    assert frame_line(bytes(ETHER / second)) == "10.0.0.1 > 10.0.0.2 fragment 5 at 496 protocol udp 412 bytes"


@given(st.binary(max_size=200), st.sampled_from(sorted(LINES)), st.integers(0, 120))
def test_no_bytes_whatever_are_too_much(noise: bytes, name: str, cut: int) -> None:
    for frame in (noise, bytes(LINES[name][0])[:cut], bytes(LINES[name][0])[:cut] + noise):
        line = frame_line(frame)
        assert line
        assert "\n" not in line
