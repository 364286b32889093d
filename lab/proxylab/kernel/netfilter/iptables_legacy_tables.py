"""The tables of legacy iptables as the kernel holds them, read without a process.

``iptables-save`` itself reads a table by IPT_SO_GET_INFO and IPT_SO_GET_ENTRIES (include/uapi/linux/netfilter_ipv4/
ip_tables.h; net/ipv4/netfilter/ip_tables.c), and starting it costs a hundred times as much as those two calls. A table
is one array of entries, chain by chain. The built-in chains begin at ``hook_entry`` and end with their policy at
``underflow``. A user's chain begins with an ERROR target that bears its name and ends with a RETURN. A last ERROR ends
the table. libiptc writes and lists chains and rules in that order (iptables, libiptc/libiptc.c).

The module finds where each counter stands; it does not decode matches or targets, which iptables-save prints.
"""

import ctypes
import errno
import os
import socket
import struct
from collections.abc import Iterable, Iterator, Sequence
from enum import Enum, auto
from typing import Final, NamedTuple

from proxylab.addresses import Family
from proxylab.kernel.sandbox.netns import NetNs, inside

# include/uapi/linux/netfilter_ipv4/ip_tables.h, netfilter_ipv6/ip6_tables.h: both families use the same numbers.
_GET_INFO: Final = 64
_GET_ENTRIES: Final = 65
_INFO: Final = struct.Struct("=32sI5I5III")  # name, valid hooks, hook entries, underflows, entries, size
_HEAD_BYTES: Final = 40  # struct ipt_get_entries: name, size, and padding up to the first entry

_OFFSETS: Final = struct.Struct("=HH")  # target_offset, next_offset
COUNTERS: Final = struct.Struct("=QQ")
"""struct xt_counters: packets, bytes."""

_PACKETS_BYTES: Final = 8
_TARGET: Final = struct.Struct("=H29sB")  # struct xt_entry_target: size, name, revision
_VERDICT: Final = struct.Struct("=i")
_DROP: Final = -1  # -NF_DROP - 1
_ERROR: Final = b"ERROR"

# The order of hooks in include/uapi/linux/netfilter.h.
CHAINS: Final = ("PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING")

# A replacement of the table between the two calls changes its size, and the second call fails with EAGAIN.
_ATTEMPTS: Final = 16

_libc: Final = ctypes.CDLL(None, use_errno=True)


class EntryShape(NamedTuple):
    """Offsets of the needed fields in struct ipt_entry or ip6t_entry, and its size."""

    level: int
    offsets: int
    counters: int
    size: int


SHAPES: Final = {
    Family.IPV4: EntryShape(socket.IPPROTO_IP, 88, 96, 112),
    Family.IPV6: EntryShape(socket.IPPROTO_IPV6, 140, 152, 168),
}


class Snapshot(NamedTuple):
    """One table at one moment.

    ``hooks`` has the chain that begins at an offset, and ``ends`` the chain with its policy at an offset.
    """

    family: Family
    hooks: dict[int, str]
    ends: dict[int, str]
    entries: bytes


class EntryKind(Enum):
    """The kind of an entry. iptables-save lists rules, and a policy in the line of its chain."""

    RULE = auto()
    ACCEPT_POLICY = auto()
    DROP_POLICY = auto()
    BOUNDARY = auto()  # the head of a user's chain, its RETURN, and the end of the table


class TableEntryOffsets(NamedTuple):
    """One entry: its kind, its chain, and the offset of its counters in the snapshot's entries."""

    kind: EntryKind
    chain: str
    counters_at: int


class TableReader:
    """Reads the tables of one family in one namespace, through a socket of that namespace."""

    def __init__(self, netns: NetNs, family: Family) -> None:
        """Open the socket, which needs CAP_NET_RAW over the namespace; reading needs CAP_NET_ADMIN."""
        self._family = family
        kind = socket.AF_INET if family is Family.IPV4 else socket.AF_INET6
        with inside(netns):
            self._socket = socket.socket(kind, socket.SOCK_RAW, socket.IPPROTO_RAW)

    def read(self, table: str) -> Snapshot | None:
        """The current table; ``None`` where the namespace has none of that name.

        Raises:
            OSError: EPERM, or EAGAIN when every attempt met a replacement of the table.
        """
        for _ in range(_ATTEMPTS):
            try:
                return self._read(table)
            except OSError as error:
                if error.errno in (errno.ENOENT, errno.ENOPROTOOPT):
                    return None
                if error.errno != errno.EAGAIN:
                    raise
        raise OSError(errno.EAGAIN, f"each of {_ATTEMPTS} readings met a replacement of the table {table}")

    def walk(self, snapshot: Snapshot) -> Iterator[TableEntryOffsets]:
        """Every entry, in the table's order: ``walk`` of this module."""
        return walk(snapshot)

    def counters(self, offsets: Sequence[int]) -> struct.Struct:
        """A struct that unpacks the packet counters at ``offsets`` of the entries."""
        return counters("=", offsets)

    def volatile(self, entry: TableEntryOffsets) -> slice:
        """The bytes of an entry that change while its rule stays the same: ``volatile`` of this module."""
        return volatile(entry)

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def _read(self, table: str) -> Snapshot:
        name = table.encode()
        info = ctypes.create_string_buffer(name, _INFO.size)
        self._getsockopt(_GET_INFO, info)
        fields = _INFO.unpack(info)
        valid, hooks, ends, size = fields[1], fields[2:7], fields[7:12], fields[13]
        numbers = [number for number in range(len(CHAINS)) if valid & 1 << number]
        entries = ctypes.create_string_buffer(_HEAD_BYTES + size)
        struct.pack_into("=32sI", entries, 0, name, size)
        self._getsockopt(_GET_ENTRIES, entries)
        return Snapshot(
            self._family,
            {hooks[number]: CHAINS[number] for number in numbers},
            {ends[number]: CHAINS[number] for number in numbers},
            entries.raw[_HEAD_BYTES:],
        )

    def _getsockopt(self, option: int, buffer: "ctypes.Array[ctypes.c_char]") -> None:
        """getsockopt(2) with a buffer that the kernel also reads, which Python's own cannot do."""
        length = ctypes.c_uint(len(buffer))
        level = SHAPES[self._family].level
        if _libc.getsockopt(self._socket.fileno(), level, option, buffer, ctypes.byref(length)) != 0:
            number = ctypes.get_errno()
            raise OSError(number, f"getsockopt: {os.strerror(number)}")


def walk(snapshot: Snapshot) -> Iterator[TableEntryOffsets]:
    """Every entry, in the table's order.

    Raises:
        ValueError: an entry has an impossible length.
    """
    shape, entries = SHAPES[snapshot.family], snapshot.entries
    chain, at = "", 0
    last: TableEntryOffsets | None = None  # of a user's chain: the RETURN if a boundary follows, otherwise a rule
    while at < len(entries):
        to_target, to_next = _OFFSETS.unpack_from(entries, at + shape.offsets)
        if to_next <= to_target or at + to_next > len(entries):
            raise ValueError(f"entry at {at} of {len(entries)} bytes ends at {at + to_next}")
        _size, name, _revision = _TARGET.unpack_from(entries, at + to_target)
        body, counters = at + to_target + _TARGET.size, at + shape.counters
        boundary = name.startswith(_ERROR)
        if last is not None:
            yield last._replace(kind=EntryKind.BOUNDARY) if boundary else last
            last = None
        if boundary:
            chain = entries[body : at + to_next].split(b"\0", 1)[0].decode()
            yield TableEntryOffsets(EntryKind.BOUNDARY, chain, counters)
        elif at in snapshot.ends:
            drops = _VERDICT.unpack_from(entries, body)[0] == _DROP
            yield TableEntryOffsets(
                EntryKind.DROP_POLICY if drops else EntryKind.ACCEPT_POLICY, snapshot.ends[at], counters
            )
        else:
            chain = snapshot.hooks.get(at, chain)
            entry = TableEntryOffsets(EntryKind.RULE, chain, counters)
            if chain in CHAINS:
                yield entry
            else:
                last = entry
        at += to_next


def jumps(snapshot: Snapshot) -> Iterator[tuple[str, str]]:
    """The chain of each rule and dropping policy, and the user's chain that it leads to; empty for another target."""
    shape, entries = SHAPES[snapshot.family], snapshot.entries
    found = list(walk(snapshot))
    chains = {entry.counters_at - shape.counters: entry.chain for entry in found}
    for entry in found:
        if entry.kind is EntryKind.RULE:
            at = entry.counters_at - shape.counters
            at += _OFFSETS.unpack_from(entries, at + shape.offsets)[0]
            to_chain = not _TARGET.unpack_from(entries, at)[1].rstrip(b"\0")
            to = _VERDICT.unpack_from(entries, at + _TARGET.size)[0] if to_chain else -1
            yield entry.chain, chains.get(to, "")
        elif entry.kind is EntryKind.DROP_POLICY:
            yield entry.chain, ""


def volatile(entry: TableEntryOffsets) -> slice:
    """The bytes of an entry that change while its rule stays the same."""
    return slice(entry.counters_at, entry.counters_at + COUNTERS.size)


def counters(order: str, offsets: Iterable[int]) -> struct.Struct:
    """A struct that unpacks the 64-bit numbers at ascending ``offsets``; ``order`` is the sign of its byte order.

    A table has thousands of counters. To unpack them one by one would cost more than the rest of a probe.
    """
    formats, end = [order], 0
    for offset in offsets:
        formats.append(f"{offset - end}xQ")
        end = offset + _PACKETS_BYTES
    return struct.Struct("".join(formats))
