"""Looks up single flows in a node's connection tracking, by their tuple.

A lookup costs microseconds. A dump walks the buckets of all namespaces and costs 10 ms even of an empty table. The
encoding is that of include/uapi/linux/netfilter/nfnetlink_conntrack.h.
"""

import socket
import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from proxylab.addresses import IPAddress, unpacked
from proxylab.kernel.netlink import attributes as nla
from proxylab.kernel.netlink.framing import ATTRIBUTE, HEADER, messages, nested
from proxylab.kernel.netlink.uapi import NETLINK_NETFILTER, NLM_F_REQUEST
from proxylab.kernel.sandbox.netns import NetNs, inside

__all__ = ["FlowLookup", "Tuple"]

_CT_NEW: Final = 1 << 8 | 0
_CT_GET: Final = 1 << 8 | 1
_CTA_TUPLE_ORIG, _CTA_TUPLE_REPLY = 1, 2
_CTA_TUPLE_IP, _CTA_TUPLE_PROTO = 1, 2
_CTA_PROTO_NUM, _CTA_PROTO_SRC_PORT, _CTA_PROTO_DST_PORT = 1, 2, 3
_CTA_ICMP: Final = {1: (4, 5, 6), 58: (7, 8, 9)}  # identifier, type and code, by protocol
_ECHO_REQUEST: Final = {1: 8, 58: 128}
_CTA_IP: Final = {4: (1, 2), 6: (3, 4)}  # source and destination, by IP version

_SEQUENCE: Final = struct.Struct("=I")
_SEQUENCE_AT: Final = 8
_PORT: Final = struct.Struct("!H")
_SOURCE_PORT_FROM_END: Final = 12  # the destination port's attribute comes last, eight bytes with its padding
_IDENTIFIER_FROM_END: Final = 20  # the attributes of type and code come last

# Offset and layout of an IPv4 entry's reply direction, where it follows the original direction at once
# (ctnetlink_dump_tuples in net/netfilter/nf_conntrack_netlink.c). ``_reply`` parses any other layout by attributes.
_V4_REPLY_AT: Final = 4 + 52
_V4_REPLY_HEAD: Final = ATTRIBUTE.pack(52, 0x8000 | _CTA_TUPLE_REPLY) + ATTRIBUTE.pack(20, 0x8000 | _CTA_TUPLE_IP)
_V4_REPLY: Final = struct.Struct("!4x4s4x4s4x4xB3x4xH2x4xH2x")
_AT_ONCE: Final = 64  # answers of some 300 bytes each must fit the receive buffer of an ordinary user, 208 KiB


class Tuple(NamedTuple):
    """One direction of a flow. For ICMP echo, the identifier is the port of the side that sent the request."""

    protocol: int
    source: IPAddress
    source_port: int
    destination: IPAddress
    destination_port: int


class FlowLookup:
    """Looks up flows in one namespace."""

    def __init__(self, netns: NetNs) -> None:
        with inside(netns):
            self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, NETLINK_NETFILTER)

    def replies(self, original: Tuple, source_ports: Sequence[int]) -> list[Tuple | None]:
        """The reply direction of each flow, or ``None`` without an entry; the flows differ only in source port."""
        request = bytearray(_request(original))
        port_at = len(request) - (_IDENTIFIER_FROM_END if original.protocol in _CTA_ICMP else _SOURCE_PORT_FROM_END)
        found: list[Tuple | None] = []
        for start in range(0, len(source_ports), _AT_ONCE):
            batch = bytearray()
            ports = source_ports[start : start + _AT_ONCE]
            for number, port in enumerate(ports):
                _SEQUENCE.pack_into(request, _SEQUENCE_AT, number)
                _PORT.pack_into(request, port_at, port)
                batch += request
            self._socket.send(batch)
            found += self._answers(len(ports))
        return found

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def _answers(self, waiting: int) -> list[Tuple | None]:
        found: list[Tuple | None] = [None] * waiting
        while waiting:
            for kind, _, sequence, body in messages(self._socket.recv(1 << 16)):
                # Each request has one answer: the entry, or an error such as ENOENT.
                waiting -= 1
                if kind == _CT_NEW:
                    found[sequence] = _reply(body)
        return found


def _request(original: Tuple) -> bytes:
    source, destination = _CTA_IP[original.source.version]
    body = bytes([socket.AF_INET if original.source.version == 4 else socket.AF_INET6, 0, 0, 0]) + nla.nested(
        _CTA_TUPLE_ORIG,
        nla.nested(_CTA_TUPLE_IP, nla.address(source, original.source), nla.address(destination, original.destination)),
        nla.nested(_CTA_TUPLE_PROTO, nla.tiny(_CTA_PROTO_NUM, original.protocol), *_ends(original)),
    )
    return HEADER.pack(HEADER.size + len(body), _CT_GET, NLM_F_REQUEST, 0, 0) + body


def _ends(original: Tuple) -> tuple[bytes, ...]:
    if original.protocol in _CTA_ICMP:
        identifier, kind, code = _CTA_ICMP[original.protocol]
        request_type = nla.tiny(kind, _ECHO_REQUEST[original.protocol])
        return nla.short(identifier, original.source_port), request_type, nla.tiny(code, 0)
    return (
        nla.short(_CTA_PROTO_SRC_PORT, original.source_port),
        nla.short(_CTA_PROTO_DST_PORT, original.destination_port),
    )


def _reply(body: bytes) -> Tuple:
    if body[_V4_REPLY_AT : _V4_REPLY_AT + 8] == _V4_REPLY_HEAD:
        source, destination, protocol, source_port, destination_port = _V4_REPLY.unpack_from(body, _V4_REPLY_AT + 8)
        return Tuple(protocol, unpacked(source), source_port, unpacked(destination), destination_port)
    direction = nested(nested(body[4:])[_CTA_TUPLE_REPLY])
    addresses, transport = nested(direction[_CTA_TUPLE_IP]), nested(direction[_CTA_TUPLE_PROTO])
    source, destination = _CTA_IP[4 if 1 in addresses else 6]
    protocol = transport[_CTA_PROTO_NUM][0]
    source_port, destination_port = transport.get(_CTA_PROTO_SRC_PORT, b""), transport.get(_CTA_PROTO_DST_PORT, b"")
    if protocol in _CTA_ICMP:
        destination_port = transport[_CTA_ICMP[protocol][0]]
    return Tuple(
        protocol,
        unpacked(addresses[source]),
        int.from_bytes(source_port, "big"),
        unpacked(addresses[destination]),
        int.from_bytes(destination_port, "big"),
    )
