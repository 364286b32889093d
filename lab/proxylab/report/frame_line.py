"""A frame in one line of text, for ``proxylab capture``: addresses, ports, flags and lengths.

The module reads ARP, IPv4 and IPv6 over Ethernet, and in them TCP, UDP, ICMP, SCTP and VXLAN; it names the type of
anything else. It never raises, whatever the bytes. It ignores checksums: a veth carries them unfinished.
"""

import struct
from collections.abc import Callable, Mapping
from ipaddress import IPv4Address, IPv6Address
from typing import Final

from proxylab.evidence.words import endpoint

__all__ = ["frame_line"]

_ETHERNET: Final = struct.Struct("!6s6sH")
_ARP: Final = struct.Struct("!6xH6s4s6s4s")
_IPV4: Final = struct.Struct("!BxHHHBBxx4s4s")
_IPV6: Final = struct.Struct("!4xHBx16s16s")
_PORTS: Final = struct.Struct("!HH")
_TCP: Final = struct.Struct("!HHIIBB")
_UDP: Final = struct.Struct("!HHH")
_TARGET: Final = struct.Struct("!8x16s")  # of neighbour discovery
_VXLAN_PORT: Final = 4789
_VXLAN_BYTES: Final = 16  # of UDP and of VXLAN

_FLAGS: Final = ("FIN", "SYN", "RST", "PSH", "ACK", "URG", "ECE", "CWR")
_ICMP: Final[Mapping[tuple[int, int | None], str]] = {
    (0, None): "echo reply", (8, None): "echo request", (5, None): "redirect", (11, None): "time exceeded",
    (3, 0): "network unreachable", (3, 1): "host unreachable", (3, 3): "port unreachable",
    (3, 4): "fragmentation needed", (3, 13): "administratively prohibited", (3, None): "unreachable",
}  # fmt: skip
_ICMPV6: Final[Mapping[tuple[int, int | None], str]] = {
    (128, None): "echo request", (129, None): "echo reply", (1, 0): "no route", (1, 1): "administratively prohibited",
    (1, 4): "port unreachable", (1, None): "unreachable", (2, None): "packet too big", (3, None): "time exceeded",
    (133, None): "router solicitation", (134, None): "router advertisement", (135, None): "neighbour solicitation",
    (136, None): "neighbour advertisement", (143, None): "multicast listener report",
}  # fmt: skip
_CHUNKS: Final[Mapping[int, str]] = {
    0: "DATA", 1: "INIT", 2: "INIT ACK", 3: "SACK", 4: "HEARTBEAT", 5: "HEARTBEAT ACK", 6: "ABORT", 7: "SHUTDOWN",
    8: "SHUTDOWN ACK", 9: "ERROR", 10: "COOKIE ECHO", 11: "COOKIE ACK", 14: "SHUTDOWN COMPLETE",
}  # fmt: skip

Address = IPv4Address | IPv6Address


def frame_line(frame: bytes) -> str:
    """Describe a frame.

    Args:
        frame: the frame from its Ethernet header on; it may be truncated anywhere.

    Example:
        >>> frame_line(bytes.fromhex("ffffffffffff020000000001" "0806" "0001080006040001" "020000000001" "0a000001"
        ...                          "000000000000" "0a000002"))
        'ARP who has 10.0.0.2, asks 10.0.0.1'
    """
    try:
        _, _, kind = _ETHERNET.unpack_from(frame)
        packet = frame[_ETHERNET.size :]
        match kind:
            case 0x0806:
                return _arp(packet)
            case 0x0800:
                return _ipv4(packet)
            case 0x86DD:
                return _ipv6(packet)
            case _:
                return f"Ethernet type 0x{kind:04x}, {len(packet)} bytes"
    except (struct.error, IndexError):
        return f"truncated after {len(frame)} bytes"


def _arp(packet: bytes) -> str:
    operation, sender, source, _, target = _ARP.unpack_from(packet)
    if operation == 1:
        return f"ARP who has {IPv4Address(target)}, asks {IPv4Address(source)}"
    return f"ARP {IPv4Address(source)} is at {sender.hex(':')}"


def _ipv4(packet: bytes) -> str:
    head, length, number, fragment, _, protocol, source, target = _IPV4.unpack_from(packet)
    ends = IPv4Address(source), IPv4Address(target)
    payload = packet[(head & 0x0F) * 4 : length]
    offset = (fragment & 0x1FFF) * 8
    if offset:
        return f"{ends[0]} > {ends[1]} fragment {number} at {offset}, {len(payload)} bytes"
    return _transport(protocol, *ends, payload) + (f", first fragment {number}" if fragment & 0x2000 else "")


def _ipv6(packet: bytes) -> str:
    length, protocol, source, target = _IPV6.unpack_from(packet)
    payload = packet[40 : 40 + length]
    if protocol == 0:  # hop-by-hop options, as multicast listener reports have them
        protocol, payload = payload[0], payload[(payload[1] + 1) * 8 :]
    return _transport(protocol, IPv6Address(source), IPv6Address(target), payload)


def _transport(protocol: int, source: Address, target: Address, payload: bytes) -> str:
    reader = _READERS.get(protocol)
    if reader is None:
        return f"{source} > {target} protocol {protocol}, {len(payload)} bytes"
    return reader(source, target, payload)


def _ends(source: Address, target: Address, payload: bytes) -> str:
    here, there = _PORTS.unpack_from(payload)
    return f"{endpoint(source, here)} > {endpoint(target, there)}"


def _tcp(source: Address, target: Address, payload: bytes) -> str:
    _, _, sequence, acknowledged, offset, bits = _TCP.unpack_from(payload)
    flags = [name for number, name in enumerate(_FLAGS) if bits >> number & 1]
    data = len(payload) - (offset >> 4) * 4
    answers = f" ack {acknowledged}" if bits & 0x10 else ""
    carried = f", {data} bytes" if data > 0 else ""
    return f"{_ends(source, target, payload)} TCP {'+'.join(flags) or 'no flag'} seq {sequence}{answers}{carried}"


def _udp(source: Address, target: Address, payload: bytes) -> str:
    _, port, length = _UDP.unpack_from(payload)
    ends = _ends(source, target, payload)
    if port == _VXLAN_PORT:
        return f"{ends} VXLAN {int.from_bytes(payload[12:15])}: {frame_line(payload[_VXLAN_BYTES:])}"
    return f"{ends} UDP {max(0, length - 8)} bytes"


def _icmp(names: Mapping[tuple[int, int | None], str], quoted: Callable[[bytes], str], word: str) -> "_Reader":
    def read(source: Address, target: Address, payload: bytes) -> str:
        kind, code = payload[0], payload[1]
        name = names.get((kind, code)) or names.get((kind, None)) or f"type {kind} code {code}"
        quotes = f", about {quoted(payload[8:])}" if kind in (1, 2, 3, 4, 11) and len(payload) > 8 else ""
        if word == "ICMPv6" and kind in (135, 136):
            name += f" of {IPv6Address(*_TARGET.unpack_from(payload))}"
            quotes = ""
        return f"{source} > {target} {word} {name}{quotes}"

    return read


def _quoted(read: Callable[[bytes], str]) -> Callable[[bytes], str]:
    def about(packet: bytes) -> str:
        try:
            return read(packet)
        except (struct.error, IndexError):
            return "a packet that is not quoted far enough"

    return about


def _sctp(source: Address, target: Address, payload: bytes) -> str:
    return f"{_ends(source, target, payload)} SCTP {_CHUNKS.get(payload[12], f'chunk {payload[12]}')}"


_Reader = Callable[[Address, Address, bytes], str]

_READERS: Final[Mapping[int, _Reader]] = {
    1: _icmp(_ICMP, _quoted(_ipv4), "ICMP"),
    6: _tcp,
    17: _udp,
    58: _icmp(_ICMPV6, _quoted(_ipv6), "ICMPv6"),
    132: _sctp,
}
