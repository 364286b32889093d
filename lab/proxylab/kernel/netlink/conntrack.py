"""Connection tracking of one namespace: writes, reads and deletes entries (ctnetlink, nf_conntrack_netlink.c).

A dump costs 10 ms even of an empty table, since the kernel walks the buckets of all namespaces; it knows the number of
a namespace's entries without a walk. A look-up of one flow costs microseconds. pyroute2 takes a hundred times as long
to encode or decode one. A probe may have ten thousand flows, an audit asks thousands of times about a few, and a node
may hold a hundred thousand entries. So one look-up of each protocol is encoded, and addresses and ports of others are
written into it; the usual form of an answer is read at fixed offsets.
"""

import errno
import os
import socket
import struct
from collections.abc import Iterable, Sequence
from contextlib import closing
from functools import lru_cache
from ipaddress import ip_address
from typing import Final, NamedTuple

from msgspec import Struct

from proxylab.addresses import Family, IPAddress, Protocol, unpacked
from proxylab.cluster.configuration import SocketAddress
from proxylab.errors import CapabilityError, InternalError
from proxylab.kernel.netlink.messages import Content, Decoded, Kind, NetlinkAnswer, NetlinkRequest
from proxylab.kernel.netlink.socket import NETLINK_NETFILTER, open_netlink
from proxylab.kernel.sandbox.netns import NetNs
from proxylab.scenario.nodes import TrackedConnection

_NLM_F_ACK: Final = 0x4
_NLM_F_EXCL: Final = 0x200
_NLM_F_CREATE: Final = 0x400
_FAMILIES: Final = {4: int(socket.AF_INET), 6: int(socket.AF_INET6)}
_ICMP: Final = {1: "CTA_PROTO_ICMP", 58: "CTA_PROTO_ICMPV6"}
_ECHO_REQUEST: Final = {1: 8, 58: 128}

_SECONDS: Final = 600
_STATUS: Final = 0xE  # IPS_SEEN_REPLY, IPS_ASSURED and IPS_CONFIRMED of nf_conntrack_common.h
_ESTABLISHED: Final[Content] = {"CTA_PROTOINFO_TCP": {"CTA_PROTOINFO_TCP_STATE": 3}}

# In front of a look-up's addresses stand its header, struct nfgenmsg, and the heads of three attributes around them.
_SOURCE_AT: Final = 16 + 4 + 3 * 4
_HEAD_BYTES: Final = 4
# A look-up ends with the attributes of the destination port, or of the type and code of ICMP, eight bytes each.
_SEQUENCE: Final = slice(8, 12)
_PORT: Final = slice(-12, -10)
_DESTINATION_PORT: Final = slice(-4, -2)
_IDENTIFIER: Final = slice(-20, -18)


_ATTRIBUTES_AT: Final = 16 + 4
_PROTOCOL_AT: Final = {4: 52, 6: 76}
"""Of the original direction, which comes first: whatever its protocol, addresses stand before that."""
_ATTRIBUTE: Final = struct.Struct("=HH")
_TYPE: Final = 0x3FFF  # NLA_TYPE_MASK
_CTA_ID: Final = 12
_NUMBER: Final = struct.Struct("!I")


class _UsualForm(NamedTuple):
    """Where a direction stands in an answer: its offset, the heads of nested attributes there, and the rest."""

    at: int
    head: bytes
    rest: struct.Struct


class _Direction(NamedTuple):
    """One direction of an answer: its attribute, and its usual form by IP version.

    The original direction comes at once before that of replies (ctnetlink_dump_tuples). Only ICMP has another form.
    """

    attribute: str
    usual: dict[int, _UsualForm]


_ENDS: Final = {4: struct.Struct("!4x4s4x4s4x4xB3x4xH2x4xH"), 6: struct.Struct("!4x16s4x16s4x4xB3x4xH2x4xH")}
_ORIGINAL: Final = _Direction(
    "CTA_TUPLE_ORIG",
    {
        4: _UsualForm(20, struct.pack("=4H", 52, 0x8001, 20, 0x8001), _ENDS[4]),
        6: _UsualForm(20, struct.pack("=4H", 76, 0x8001, 44, 0x8001), _ENDS[6]),
    },
)
_REPLY: Final = _Direction(
    "CTA_TUPLE_REPLY",
    {
        4: _UsualForm(72, struct.pack("=4H", 52, 0x8002, 20, 0x8001), _ENDS[4]),
        6: _UsualForm(96, struct.pack("=4H", 76, 0x8002, 44, 0x8001), _ENDS[6]),
    },
)


class Tuple(NamedTuple):
    """One direction of a flow. For ICMP echo, the identifier is the port of the side that sent the request."""

    protocol: int
    source: IPAddress
    source_port: int
    destination: IPAddress
    destination_port: int


class ConntrackEntry(Struct, frozen=True):
    """One connection.

    Attributes:
        original: as its first packet came; the destination is what the sender dialled.
        reply: as replies come, after translation: the source of replies differs from ``original.destination`` after
            DNAT, their destination from ``original.source`` after SNAT.
        number: distinguishes the entry from a later one of the same flow.
    """

    original: Tuple
    reply: Tuple
    number: int

    @property
    def destination(self) -> tuple[IPAddress, int]:
        """The address and port that the sender dialled."""
        return self.original[3:]

    @property
    def reply_source(self) -> tuple[IPAddress, int]:
        """The address and port that replies come from."""
        return self.reply[1:3]


class _LookUp(Struct, frozen=True):
    """The look-up of a flow that differs from an encoded one in one port."""

    encoded: bytes
    port_at: slice
    port: int

    def encode(self, sequence: int) -> bytes:
        message = bytearray(self.encoded)
        message[_SEQUENCE] = struct.pack("=I", sequence)
        message[self.port_at] = self.port.to_bytes(2, "big")
        return bytes(message)


class _Addition(Struct, frozen=True):
    """The request for an entry that differs from an encoded one in the sender's port, which stands in both ways."""

    encoded: bytes
    ports_at: tuple[int, ...]
    port: int

    def encode(self, sequence: int) -> bytes:
        message = bytearray(self.encoded)
        message[_SEQUENCE] = struct.pack("=I", sequence)
        for at in self.ports_at:
            message[at : at + 2] = self.port.to_bytes(2, "big")
        return bytes(message)


class Conntrack:
    """The connection-tracking table of one namespace."""

    def __init__(self, netns: NetNs) -> None:
        self._name = netns.name
        self._netlink = open_netlink(netns, NETLINK_NETFILTER)

    def close(self) -> None:
        """Close the socket."""
        self._netlink.close()

    def entries(self, family: Family, *protocols: int) -> list[ConntrackEntry]:
        """The entries of one family, and of protocols that have ports or are ICMP. Raises ``InternalError``."""
        try:
            counted = self._netlink.one(NetlinkRequest("count connections", Kind.COUNT_CONNECTIONS, 0, {}))
            if not counted.need(int, "CTA_STATS_GLOBAL_ENTRIES"):
                return []
            version = 4 if family is Family.IPV4 else 6
            dumped = self._netlink.dump_undecoded(Kind.GET_CONNECTION, nfgen_family=_FAMILIES[version])
        except OSError as error:
            raise InternalError(f"{self._name}: the kernel refused to dump conntrack ({error.strerror})") from error
        protocol_at = _PROTOCOL_AT[version]
        return [
            ConntrackEntry(_way(each, _ORIGINAL, version), _way(each, _REPLY, version), _number(each))
            for each in dumped
            if each.data[protocol_at] in protocols
        ]

    def replies(self, original: Tuple, source_ports: Sequence[int]) -> list[Tuple | None]:
        """The reply direction of each flow, or ``None`` without an entry; the flows differ only in source port."""
        encoded, port_at = look_up(original), _IDENTIFIER if original.protocol in _ICMP else _PORT
        found = self._netlink.exchange([_LookUp(encoded, port_at, port) for port in source_ports])
        return [None if answer.is_last else _way(answer, _REPLY, original.source.version) for answer in found]

    def holding(self, tuple_: Tuple, destination_ports: Sequence[int]) -> list[tuple[Tuple, Tuple] | None]:
        """Both directions of the entry that holds each tuple in either of them, or ``None``.

        The tuples have ports and differ only in the one of their destination. The kernel has one table for both
        directions, so that the look-up of an original tuple finds an entry of which it is the reply
        (``ctnetlink_get_conntrack``).
        """
        encoded = look_up(tuple_)
        found = self._netlink.exchange([_LookUp(encoded, _DESTINATION_PORT, port) for port in destination_ports])
        version = tuple_.source.version
        return [
            None if answer.is_last else (_way(answer, _ORIGINAL, version), _way(answer, _REPLY, version))
            for answer in found
        ]

    def add(self, connection: TrackedConnection) -> None:
        """Write its entries with their translation; they last ten minutes, or as packets renew them.

        The reply direction of the message is that without translation, which the kernel then applies
        (``nf_nat_setup_info``). Both kinds are settled with the entry, so that no rule translates it again.

        Raises:
            OSError: the kernel refuses one: EEXIST for a second entry of a flow, ENOMEM where the table is full.
        """
        encoded, other = (_addition(connection, port).encode(0) for port in (0x0101, 0xFEFE))
        offsets = tuple(at for at in range(0, len(encoded), 2) if encoded[at : at + 2] != other[at : at + 2])
        for answer in self._netlink.exchange([_Addition(encoded, offsets, port) for port in connection.ports]):
            code, _ = answer.refusal()
            if code:
                raise OSError(code, os.strerror(code))

    def delete(self, entries: Iterable[ConntrackEntry]) -> int:
        """Delete entries and return how many still existed. Raises ``InternalError``."""
        deleted = 0
        for entry in entries:
            content = {**_about(entry.original), "CTA_ID": entry.number}
            request = NetlinkRequest("delete a connection", Kind.DELETE_CONNECTION, _NLM_F_ACK, content)
            (answer,) = self._netlink.exchange([request])
            code, _ = answer.refusal()
            if code not in (0, errno.ENOENT):
                raise InternalError(
                    f"{self._name}: the kernel refused to delete a conntrack entry ({os.strerror(code)})"
                )
            deleted += code == 0
        return deleted

    def flush(self) -> None:
        """Delete every entry: a deletion without a tuple deletes all (``ctnetlink_del_conntrack``).

        The kernel acknowledges after the deletion. Each later packet is a new connection and meets the rules.
        Raises ``CapabilityError``.
        """
        (answer,) = self._netlink.exchange([NetlinkRequest("flush conntrack", Kind.DELETE_CONNECTION, _NLM_F_ACK, {})])
        code, _ = answer.refusal()
        if code:
            raise CapabilityError(
                f"flushing the connection tracking of {self._name} ({os.strerror(code)})",
                "load the kernel module nf_conntrack_netlink: 'modprobe nf_conntrack_netlink' as root",
            )


def flush(netns: NetNs) -> None:
    """Delete every entry of a namespace. Raises ``CapabilityError``."""
    with closing(Conntrack(netns)) as conntrack:
        conntrack.flush()


def _addition(connection: TrackedConnection, port: int) -> NetlinkRequest:
    """The request for the entry with that port of the sender."""
    source, destination = connection.source, connection.destination
    straight = Tuple(connection.protocol.number, source.address, port, destination.address, destination.port)
    back = Tuple(straight.protocol, destination.address, destination.port, source.address, port)
    content = {
        **_about(straight),
        "CTA_TUPLE_REPLY": _direction(back),
        "CTA_TIMEOUT": _SECONDS,
        "CTA_STATUS": _STATUS,
        "CTA_NAT_DST": _translation(connection.reply_from),
        "CTA_NAT_SRC": _translation(connection.reply_to),
        "CTA_PROTOINFO": _ESTABLISHED if connection.protocol is Protocol.TCP else None,
    }
    flags = _NLM_F_ACK | _NLM_F_CREATE | _NLM_F_EXCL
    return NetlinkRequest("write a connection", Kind.NEW_CONNECTION, flags, content)


def look_up(original: Tuple) -> bytes:
    """The look-up of the entry with this original direction, without a sequence number."""
    source, destination = original.source.packed, original.destination.packed
    message = bytearray(_blank_look_up(original.source.version, original.protocol))
    destination_at = _SOURCE_AT + len(source) + _HEAD_BYTES
    message[_SOURCE_AT : _SOURCE_AT + len(source)] = source
    message[destination_at : destination_at + len(destination)] = destination
    port_at = _IDENTIFIER if original.protocol in _ICMP else _PORT
    message[port_at] = original.source_port.to_bytes(2, "big")
    if original.protocol not in _ICMP:
        message[_DESTINATION_PORT] = original.destination_port.to_bytes(2, "big")
    return bytes(message)


@lru_cache
def _blank_look_up(version: int, protocol: int) -> bytes:
    nowhere = ip_address(bytes(4 if version == 4 else 16))
    about = _about(Tuple(protocol, nowhere, 0, nowhere, 0))
    return NetlinkRequest("look up a connection", Kind.GET_CONNECTION, 0, about).encode(0)


def _about(original: Tuple) -> Content:
    """The content of a message about the entry with this original direction."""
    return {"nfgen_family": _FAMILIES[original.source.version], "CTA_TUPLE_ORIG": _direction(original)}


def _direction(ends: Tuple) -> Content:
    version = ends.source.version
    addresses = {f"CTA_IP_V{version}_SRC": str(ends.source), f"CTA_IP_V{version}_DST": str(ends.destination)}
    return {"CTA_TUPLE_IP": addresses, "CTA_TUPLE_PROTO": {"CTA_PROTO_NUM": ends.protocol, **_ends(ends)}}


def _translation(end: SocketAddress | None) -> Content | None:
    if end is None:
        return None
    version, address = end.address.version, str(end.address)
    ports = {"CTA_PROTONAT_PORT_MIN": end.port, "CTA_PROTONAT_PORT_MAX": end.port}
    return {f"CTA_NAT_V{version}_MINIP": address, f"CTA_NAT_V{version}_MAXIP": address, "CTA_NAT_PROTO": ports}


def _ends(original: Tuple) -> dict[str, int]:
    if original.protocol not in _ICMP:
        return {"CTA_PROTO_SRC_PORT": original.source_port, "CTA_PROTO_DST_PORT": original.destination_port}
    name = _ICMP[original.protocol]
    request_type = _ECHO_REQUEST[original.protocol]
    return {f"{name}_ID": original.source_port, f"{name}_TYPE": request_type, f"{name}_CODE": 0}


def _tuple(entry: Decoded, direction: str) -> Tuple:
    found = entry.part(direction)
    addresses, transport = found.part("CTA_TUPLE_IP"), found.part("CTA_TUPLE_PROTO")
    version = 6 if addresses.find(str, "CTA_IP_V4_SRC") is None else 4
    protocol = transport.need(int, "CTA_PROTO_NUM")
    if protocol in _ICMP:
        identifier = transport.need(int, f"{_ICMP[protocol]}_ID")
        asks = transport.need(int, f"{_ICMP[protocol]}_TYPE") == _ECHO_REQUEST[protocol]
        ports = (identifier, 0) if asks else (0, identifier)
    else:
        ports = transport.need(int, "CTA_PROTO_SRC_PORT"), transport.need(int, "CTA_PROTO_DST_PORT")
    source, destination = (ip_address(addresses.need(str, f"CTA_IP_V{version}_{end}")) for end in ("SRC", "DST"))
    return Tuple(protocol, source, ports[0], destination, ports[1])


def _number(answer: NetlinkAnswer) -> int:
    """The number of an entry: attributes follow the header and struct nfgenmsg, each with its length and type."""
    at = _ATTRIBUTES_AT
    while at < len(answer.data):
        length, kind = _ATTRIBUTE.unpack_from(answer.data, at)
        if kind & _TYPE == _CTA_ID:
            (number,) = _NUMBER.unpack_from(answer.data, at + _ATTRIBUTE.size)
            return int(number)
        at += length + (-length & 3)
    raise InternalError("the kernel dumped a conntrack entry without a number")


def _way(answer: NetlinkAnswer, direction: _Direction, version: int) -> Tuple:
    at, head, rest = direction.usual[version]
    if not answer.data.startswith(head, at):
        return _tuple(answer.decode(Kind.GET_CONNECTION), direction.attribute)
    source, destination, protocol, source_port, destination_port = rest.unpack_from(answer.data, at + len(head))
    return Tuple(protocol, unpacked(source), source_port, unpacked(destination), destination_port)
