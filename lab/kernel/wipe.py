"""The rules of one node taken away, whoever wrote them.

Owns: emptying the tables of legacy iptables and deleting those of nf_tables, each in one step and without a process.
Must not: know what a rule says, or make a table that is not there: to ask legacy iptables for one makes it.

A process of iptables or nft takes milliseconds to start, and as long again to end, since closing a netlink socket waits
for the grace period after which deleted rules are freed (``nf_tables_rcv_nl_event``, net/netfilter/nf_tables_api.c).
The work itself takes microseconds; so it is done here, by sockets that stay open as long as the wire stands. What goes
with its rule needs no mention: lists of xt_recent, sets and maps of nf_tables, and with them every affinity.
"""

import ctypes
import errno
import os
import socket
import struct
from collections.abc import Sequence
from typing import Final

from lab.ip import Family
from lab.kernel.framing import HEADER, messages
from lab.kernel.netlink import ask
from lab.kernel.netns import NetNs, inside
from lab.kernel.uapi import NETLINK_NETFILTER, NLM_F_ACK, NLM_F_REQUEST, NLMSG_ERROR
from lab.kernel.xtables import CHAINS, SHAPES, Snapshot, TableReader

__all__ = ["RuleWiper"]

_TABLES: Final = ("mangle", "filter", "nat")  # those in which kube-proxy has chains

# include/uapi/linux/netfilter_ipv4/ip_tables.h, netfilter/x_tables.h: struct ipt_replace and what an entry ends with.
_SET_REPLACE: Final = 64
_REPLACE: Final = struct.Struct("=32sIII5I5IIQ")
_STANDARD: Final = struct.Struct("=H29sBi4x")
_ERROR: Final = struct.Struct("=H29sB30s2x")
_ACCEPT: Final = -2  # -NF_ACCEPT - 1
_COUNTER_BYTES: Final = 16

# include/uapi/linux/netlink.h, netfilter/nfnetlink.h, netfilter/nf_tables.h
_BATCH_BEGIN: Final = 0x10
_BATCH_END: Final = 0x11
_SUBSYS_NFTABLES: Final = 10
_GETTABLE: Final = _SUBSYS_NFTABLES << 8 | 1
_DELTABLE: Final = _SUBSYS_NFTABLES << 8 | 2
_NFGENMSG: Final = struct.Struct("!BBH")
_PATIENCE: Final = 10.0  # seconds; the kernel answers before send(2) returns

_libc: Final = ctypes.CDLL(None, use_errno=True)


class RuleWiper:
    """Takes the rules of one node away, as often as it is asked."""

    def __init__(self, netns: NetNs) -> None:
        self._netns = netns
        self._readers: dict[Family, TableReader] = {}
        self._nftables: socket.socket | None = None

    def wipe(self, legacy: Sequence[Family]) -> None:
        """Take all rules away.

        Args:
            legacy: the families whose tables of legacy iptables are in use; they stay, empty and with counters at 0.

        Raises:
            OSError: the kernel refused; what is left is unknown.
        """
        for family in legacy:
            reader = self._readers.get(family)
            if reader is None:
                reader = self._readers[family] = TableReader(self._netns, family)
            for table in _TABLES:
                snapshot = reader.read(table)
                if snapshot is not None:
                    _replace(reader, table, snapshot)
        if self._has_nft_tables():
            self._delete_nft_tables()

    def close(self) -> None:
        """Close the sockets. Waits for a grace period if rules of nf_tables were deleted."""
        for reader in self._readers.values():
            reader.close()
        if self._nftables is not None:
            self._nftables.close()

    def _has_nft_tables(self) -> bool:
        try:
            return bool(ask(self._netns, NETLINK_NETFILTER, _GETTABLE, _NFGENMSG.pack(0, 0, 0), dump=True))
        except OSError as error:
            if error.errno in (errno.EINVAL, errno.EOPNOTSUPP, errno.EPROTONOSUPPORT):
                return False  # a kernel without nf_tables
            raise

    def _delete_nft_tables(self) -> None:
        """One transaction that deletes the table of no name in the family of no name: all of them (``nft_flush``)."""
        if self._nftables is None:
            with inside(self._netns):
                self._nftables = socket.socket(
                    socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, NETLINK_NETFILTER
                )
            self._nftables.settimeout(_PATIENCE)
        frame = _NFGENMSG.pack(0, 0, _SUBSYS_NFTABLES)
        asked = NLM_F_REQUEST | NLM_F_ACK
        batch = (
            (_BATCH_BEGIN, NLM_F_REQUEST, frame),
            (_DELTABLE, asked, bytes(4)),
            (_BATCH_END, NLM_F_REQUEST, frame),
        )
        self._nftables.send(
            b"".join(
                HEADER.pack(HEADER.size + len(body), kind, flags, number, 0) + body
                for number, (kind, flags, body) in enumerate(batch)
            )
        )
        for kind, _, _, body in messages(self._nftables.recv(1 << 16)):
            code = -struct.unpack_from("=i", body)[0] if kind == NLMSG_ERROR else 0
            if code:
                raise OSError(code, f"{self._netns.name}: nf_tables would not be emptied: {os.strerror(code)}")


def _replace(reader: TableReader, table: str, old: Snapshot) -> None:
    """Put an empty table in the place of ``old``: for each chain a policy that accepts, and the end."""
    shape = SHAPES[old.family]
    chains = [old.hooks[at] for at in sorted(old.hooks)]
    policy = bytes(shape.offsets) + struct.pack("=HHI", shape.size, shape.size + _STANDARD.size, 0)
    policy = policy.ljust(shape.size, b"\0") + _STANDARD.pack(_STANDARD.size, b"", 0, _ACCEPT)
    end = bytes(shape.offsets) + struct.pack("=HHI", shape.size, shape.size + _ERROR.size, 0)
    end = end.ljust(shape.size, b"\0") + _ERROR.pack(_ERROR.size, b"ERROR", 0, b"ERROR")
    entries = policy * len(chains) + end
    places = [chains.index(chain) * len(policy) if chain in chains else 0 for chain in CHAINS]
    valid = sum(1 << number for number, chain in enumerate(CHAINS) if chain in chains)
    # The kernel hands back what the old rules have counted, and wants the room for it.
    counters = ctypes.create_string_buffer(old.total * _COUNTER_BYTES)
    head = _REPLACE.pack(
        table.encode(), valid, len(chains) + 1, len(entries), *places, *places, old.total, ctypes.addressof(counters)
    )
    data = head + entries
    if _libc.setsockopt(reader.fileno(), shape.level, _SET_REPLACE, data, len(data)) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"table {table} would not be emptied: {os.strerror(number)}")
