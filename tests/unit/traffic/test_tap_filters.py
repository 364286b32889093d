"""What the taps' filter keeps, by the kernel's own interpreter on a socket pair that needs no privilege."""

import socket
import struct
from collections.abc import Iterator
from ipaddress import IPv4Address

import pytest

from proxylab.kernel.capture.taps import attach_filter
from proxylab.traffic.identity import Identity, TokenKind
from proxylab.traffic.tap_filters import FLOW_FRAMES, STREAM_FRAMES

A, B = IPv4Address("10.0.0.1"), IPv4Address("10.0.0.2")
IDENTITY = Identity(bytes(8), 0, 1000, 5)
FIN, SYN, RST, PSH, ACK = 1, 2, 4, 8, 16
TOKENS = {kind: IDENTITY.token(kind, 3) for kind in TokenKind}


def ip(protocol: int, rest: bytes, *, options: bytes = b"", fragment: int = 0) -> bytes:
    head = struct.pack(
        "!BBHHHBBH", 0x45 + len(options) // 4, 0, 20 + len(options) + len(rest), 0, fragment, 64, protocol, 0
    )
    return head + A.packed + B.packed + options + rest


def tcp(flags: int, payload: bytes = b"", *, options: bytes = b"") -> bytes:
    length = (20 + len(options)) // 4 << 4
    return ip(6, struct.pack("!HHIIBBHHH", 1024, 80, 1, 2, length, flags, 0, 0, 0) + options + payload)


def udp(payload: bytes, **header: int | bytes) -> bytes:
    return ip(17, struct.pack("!HHHH", 1024, 80, 8 + len(payload), 0) + payload, **header)  # type: ignore[arg-type]


def icmp(kind: int, rest: bytes) -> bytes:
    return ip(1, struct.pack("!BBHI", kind, 3, 0, 0) + rest)


def ip6(protocol: int, rest: bytes) -> bytes:
    return struct.pack("!IHBB", 6 << 28, len(rest), protocol, 64) + bytes(32) + rest


def six(packet: bytes) -> bytes:
    """An IPv4 packet of TCP or UDP as one of IPv6."""
    return ip6(packet[9], packet[20:])


def icmp6(kind: int, rest: bytes) -> bytes:
    return ip6(58, struct.pack("!BBHI", kind, 4, 0, 0) + rest)


@pytest.fixture
def network() -> Iterator[tuple[socket.socket, socket.socket]]:
    near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
    with near, far:
        attach_filter(far, FLOW_FRAMES)
        yield near, far


def kept(network: tuple[socket.socket, socket.socket], packet: bytes, ethertype: int = 0x0800) -> bool:
    near, far = network
    frame = bytes(12) + struct.pack("!H", ethertype) + packet
    near.send(frame)
    try:
        return far.recv(4096) == frame
    except BlockingIOError:
        return False


@pytest.mark.parametrize(
    "packet",
    [
        tcp(SYN),
        tcp(SYN | ACK),
        tcp(RST | ACK),
        *(udp(token) for token in TOKENS.values()),
        udp(TOKENS[TokenKind.PROBE], options=bytes(8)),
        udp(TOKENS[TokenKind.PROBE] + bytes(1000), fragment=0x2000),
        udp(TOKENS[TokenKind.PROBE], fragment=1),
        icmp(8, TOKENS[TokenKind.SENTINEL]),
        icmp(0, TOKENS[TokenKind.SENTINEL]),
        icmp(3, udp(TOKENS[TokenKind.PROBE])),
        icmp(3, tcp(SYN)[:28]),
        icmp(11, tcp(SYN)),
        icmp(3, udp(TOKENS[TokenKind.PROBE], options=bytes(4))),
        ip(132, bytes(40)),
    ],
)
def test_what_has_an_identity_is_kept(network: tuple[socket.socket, socket.socket], packet: bytes) -> None:
    assert kept(network, packet)


@pytest.mark.parametrize(
    "packet",
    [
        b"",
        tcp(ACK),
        tcp(PSH | ACK),
        tcp(FIN | ACK),
        tcp(RST),
        udp(b"foreign data"),
        udp(b""),
        ip(6, bytes(20), fragment=1),
        icmp(8, b"an ordinary ping"),
        icmp(3, udp(TOKENS[TokenKind.REPLY])),
    ],
)
def test_what_has_none_is_not(network: tuple[socket.socket, socket.socket], packet: bytes) -> None:
    assert not kept(network, packet)


@pytest.mark.parametrize(
    "packet",
    [
        six(tcp(SYN)),
        six(tcp(RST | ACK)),
        *(six(udp(token)) for token in TOKENS.values()),
        icmp6(128, TOKENS[TokenKind.SENTINEL]),
        icmp6(129, TOKENS[TokenKind.SENTINEL]),
        icmp6(1, six(udp(TOKENS[TokenKind.PROBE]))),
        icmp6(1, six(tcp(SYN))),
        icmp6(3, six(tcp(SYN))),
        ip6(132, bytes(40)),
        ip6(44, bytes(40)),
    ],
)
def test_what_has_an_identity_is_kept_of_ipv6_too(network: tuple[socket.socket, socket.socket], packet: bytes) -> None:
    assert kept(network, packet, ethertype=0x86DD)


@pytest.mark.parametrize(
    "packet",
    [
        b"",
        six(tcp(ACK)),
        six(tcp(RST)),
        six(udp(b"foreign data")),
        icmp6(128, b"an ordinary ping"),
        icmp6(135, bytes(24)),
        icmp6(137, six(tcp(SYN))),
        icmp6(1, six(udp(TOKENS[TokenKind.REPLY]))),
        ip6(0, bytes(40)),
    ],
)
def test_what_has_none_is_not_of_ipv6_either(network: tuple[socket.socket, socket.socket], packet: bytes) -> None:
    assert not kept(network, packet, ethertype=0x86DD)


def test_other_network_protocols_are_not_kept(network: tuple[socket.socket, socket.socket]) -> None:
    assert not kept(network, bytes(28), ethertype=0x0806)
    assert not kept(network, tcp(SYN), ethertype=0x8100)


@pytest.mark.parametrize("version", [4, 6])
@pytest.mark.parametrize("options", [b"", bytes(12), bytes(40)])
def test_of_streams_segments_whose_data_begin_with_a_token_are_kept_too(
    network: tuple[socket.socket, socket.socket], options: bytes, version: int
) -> None:
    def is_kept(packet: bytes) -> bool:
        return kept(network, packet) if version == 4 else kept(network, six(packet), ethertype=0x86DD)

    data = tcp(PSH | ACK, IDENTITY.stream_token(3), options=options)
    assert not is_kept(data)
    attach_filter(network[1], STREAM_FRAMES)
    assert is_kept(data)
    assert is_kept(tcp(SYN, options=options))
    assert is_kept(tcp(RST | ACK))
    assert not is_kept(tcp(ACK, options=options))
    assert not is_kept(tcp(PSH | ACK, b"foreign data", options=options))
    assert not is_kept(tcp(RST))
