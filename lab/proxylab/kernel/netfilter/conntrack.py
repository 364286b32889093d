"""Connection tracking of one namespace: reads entries and deletes them.

The module encodes ctnetlink (include/uapi/linux/netfilter/nfnetlink_conntrack.h).

A dump costs 10 ms even of an empty table, since the kernel walks the buckets of all namespaces. The kernel knows the
number of a namespace's entries without a walk. So the module dumps a table only where there are entries.
"""

import errno
import os
import socket
import struct
from collections.abc import Collection, Iterable, Mapping
from ipaddress import ip_address
from typing import Final

from msgspec import Struct

from proxylab.addresses import Family, IPAddress
from proxylab.errors import CapabilityError, InternalError
from proxylab.kernel.netlink import attributes as nla
from proxylab.kernel.netlink.dumps import Dump
from proxylab.kernel.netlink.framing import attributes, nested
from proxylab.kernel.netlink.uapi import NETLINK_NETFILTER
from proxylab.kernel.sandbox.netns import NetNs, inside

__all__ = ["Conntrack", "Entry", "flush"]

_CT_GET: Final = 1 << 8 | 1
_CT_DELETE: Final = 1 << 8 | 2
_CT_STATS: Final = 1 << 8 | 5
_CTA_STATS_GLOBAL_ENTRIES: Final = 1
_CTA_TUPLE_ORIG: Final = 1
_CTA_TUPLE_REPLY: Final = 2
_CTA_ID: Final = 12
_CTA_TUPLE_IP: Final = 1
_CTA_TUPLE_PROTO: Final = 2
_CTA_IP_SRC: Final = {Family.IPV4: 1, Family.IPV6: 3}
_CTA_IP_DST: Final = {Family.IPV4: 2, Family.IPV6: 4}
_CTA_PROTO_NUM: Final = 1
_CTA_PROTO_SRC_PORT: Final = 2
_CTA_PROTO_DST_PORT: Final = 3
_CTA_ICMP_ID: Final = {1: 4, 58: 7}  # by protocol; the type follows
_ECHO_REQUEST: Final = frozenset({8, 128})
_FAMILIES: Final = {Family.IPV4: socket.AF_INET, Family.IPV6: socket.AF_INET6}
_NFGENMSG: Final = struct.Struct("=BBH")


class Entry(Struct, frozen=True):
    """One connection.

    Attributes:
        protocol: its number in the IP header.
        source: the sender's address and port.
        destination: the address and port that the sender dialled.
        reply_source: the source of replies; differs from ``destination`` after DNAT.
        reply_destination: the destination of replies; differs from ``source`` after SNAT.
        identity: the attributes by which the kernel finds the entry.
    """

    family: Family
    protocol: int
    source: tuple[IPAddress, int]
    destination: tuple[IPAddress, int]
    reply_source: tuple[IPAddress, int]
    reply_destination: tuple[IPAddress, int]
    identity: bytes


class Conntrack:
    """The connection-tracking table of one namespace."""

    def __init__(self, netns: NetNs) -> None:
        self._name = netns.name
        with inside(netns):
            opened = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, NETLINK_NETFILTER)
        self._dump = Dump(opened)

    def close(self) -> None:
        """Close the socket."""
        self._dump.close()

    def entries(self, family: Family, *protocols: int) -> list[Entry]:
        """The entries of one family, and of protocols that have ports or are ICMP. Raises ``InternalError``."""
        try:
            if not self._count():
                return []
            bodies = self._dump.all(_CT_GET, _NFGENMSG.pack(_FAMILIES[family], 0, 0))
        except OSError as error:
            raise InternalError(f"{self._name}: the kernel refused to dump conntrack ({error.strerror})") from error
        return [entry for body in bodies if (entry := _entry(body, family, protocols)) is not None]

    def _count(self) -> int:
        """How many entries the namespace has (``ctnetlink_stat_ct``), unconfirmed ones included."""
        statistics = nested(self._dump.one(_CT_STATS, _NFGENMSG.pack(socket.AF_UNSPEC, 0, 0)), _NFGENMSG.size)
        return int.from_bytes(statistics[_CTA_STATS_GLOBAL_ENTRIES])

    def delete(self, entries: Iterable[Entry]) -> int:
        """Delete entries and return how many still existed. Raises ``InternalError``."""
        deleted = 0
        for entry in entries:
            code = self._dump.ask(_CT_DELETE, _NFGENMSG.pack(_FAMILIES[entry.family], 0, 0) + entry.identity)
            if code not in (0, errno.ENOENT):
                raise InternalError(
                    f"{self._name}: the kernel refused to delete a conntrack entry ({os.strerror(code)})"
                )
            deleted += code == 0
        return deleted

    def flush(self) -> None:
        """Delete every entry: a deletion without a tuple deletes all (``ctnetlink_del_conntrack``).

        The kernel acknowledges after the deletion. Each later packet is a new connection and meets the rules.

        Raises:
            CapabilityError: the kernel refuses to flush conntrack; nf_conntrack_netlink may be missing.
        """
        code = self._dump.ask(_CT_DELETE, _NFGENMSG.pack(socket.AF_UNSPEC, 0, 0))
        if code:
            raise CapabilityError(
                f"flushing the connection tracking of {self._name} ({os.strerror(code)})",
                "load the kernel module nf_conntrack_netlink: 'modprobe nf_conntrack_netlink' as root",
            )


def flush(netns: NetNs) -> None:
    """Delete every entry of a namespace. Raises ``CapabilityError``."""
    conntrack = Conntrack(netns)
    try:
        conntrack.flush()
    finally:
        conntrack.close()


def _entry(body: bytes, family: Family, protocols: Collection[int]) -> Entry | None:
    found = dict(attributes(body, _NFGENMSG.size))
    protocol = nested(nested(found[_CTA_TUPLE_ORIG])[_CTA_TUPLE_PROTO])[_CTA_PROTO_NUM][0]
    if protocol not in protocols:
        return None
    original = _ends(found[_CTA_TUPLE_ORIG], family, protocol)
    reply = _ends(found[_CTA_TUPLE_REPLY], family, protocol)
    identity = nla.nested(_CTA_TUPLE_ORIG, found[_CTA_TUPLE_ORIG])
    if _CTA_ID in found:  # so that a newer entry of the same flow stays
        identity += nla.raw(_CTA_ID, found[_CTA_ID])
    return Entry(family, protocol, *original, *reply, identity)


def _ends(data: bytes, family: Family, protocol: int) -> tuple[tuple[IPAddress, int], tuple[IPAddress, int]]:
    """Source and destination of a tuple."""
    parts = nested(data)
    addresses = nested(parts[_CTA_TUPLE_IP])
    source_port, destination_port = _ports(nested(parts[_CTA_TUPLE_PROTO]), protocol)
    return (
        (ip_address(addresses[_CTA_IP_SRC[family]]), source_port),
        (ip_address(addresses[_CTA_IP_DST[family]]), destination_port),
    )


def _ports(transport: Mapping[int, bytes], protocol: int) -> tuple[int, int]:
    """Both ports. For ICMP the identifier is the port of the side that sent the request; the other side has 0."""
    if protocol not in _CTA_ICMP_ID:
        return int.from_bytes(transport[_CTA_PROTO_SRC_PORT]), int.from_bytes(transport[_CTA_PROTO_DST_PORT])
    at = _CTA_ICMP_ID[protocol]
    identifier = int.from_bytes(transport[at])
    return (identifier, 0) if transport[at + 1][0] in _ECHO_REQUEST else (0, identifier)
