"""nf_tables by netlink, as far as the lab itself needs it: small transactions, and the order of a chain's rules.

Owns: the batch in which nf_tables takes changes, and the few expressions that the lab's own rules are made of
(include/uapi/linux/netfilter/nf_tables.h; nfnetlink_rcv_batch in net/netfilter/nfnetlink.c).
Must not: read what a rule says. Its text comes from the tool that wrote it.
"""

import os
import socket
import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from lab.kernel import attributes as nla
from lab.kernel.dumps import Dump
from lab.kernel.framing import HEADER, attributes, messages
from lab.kernel.netns import NetNs, inside

__all__ = ["NFNL_TRACE", "Change", "NfTables", "chain", "equal", "expression", "no_rules", "number", "rule", "table"]

NFNL_TRACE: Final = 9
"""The group of nfnetlink that traces are told to (NFNLGRP_NFTRACE)."""

_NETLINK_NETFILTER: Final = 12
_NLM_F_REQUEST: Final = 0x1
_NLM_F_ACK: Final = 0x4
_NLM_F_CREATE: Final = 0x400
_NLM_F_APPEND: Final = 0x800
_NLMSG_ERROR: Final = 2
_NFPROTO_INET: Final = 1
_BATCH_BEGIN: Final = 0x10
_BATCH_END: Final = 0x11
_SUBSYS_NFTABLES: Final = 10 << 8
_NEWTABLE: Final = _SUBSYS_NFTABLES | 0
_NEWCHAIN: Final = _SUBSYS_NFTABLES | 3
_NEWRULE: Final = _SUBSYS_NFTABLES | 6
_GETRULE: Final = _SUBSYS_NFTABLES | 7
_DELRULE: Final = _SUBSYS_NFTABLES | 8
_TABLE_F_OWNER: Final = 0x2
_RULE_TABLE, _RULE_CHAIN, _RULE_HANDLE, _RULE_EXPRESSIONS = 1, 2, 3, 4
_REGISTER_1: Final = 1
_BUFFER: Final = 1 << 16


class Change(NamedTuple):
    """One message of a transaction: its type, its flags, and its attributes."""

    kind: int
    flags: int
    body: bytes


class NfTables:
    """The nf_tables of one namespace."""

    def __init__(self, netns: NetNs) -> None:
        with inside(netns):
            self._control = _open()
            asking = _open()
        self._dump = Dump(asking)
        self._sequence = 0

    def commit(self, changes: Sequence[Change]) -> None:
        """Make changes that take effect together, or not at all. Raises ``OSError`` with the kernel's errno."""
        subsystem = bytes([socket.AF_UNSPEC, 0, 0, _SUBSYS_NFTABLES >> 8])
        bodies = [
            Change(kind, flags | _NLM_F_ACK, bytes([_NFPROTO_INET, 0, 0, 0]) + body) for kind, flags, body in changes
        ]
        parts = []
        for kind, flags, body in ((_BATCH_BEGIN, 0, subsystem), *bodies, (_BATCH_END, 0, subsystem)):
            self._sequence += 1
            size = HEADER.size + len(body)
            parts.append(HEADER.pack(size, kind, flags | _NLM_F_REQUEST, self._sequence, 0) + body + bytes(-size & 3))
        self._control.send(b"".join(parts))
        self._expect(len(bodies))

    def handles(self, family: int, of_table: str, of_chain: str) -> list[int]:
        """The handles of a chain's rules, in order; none if there is no such chain. ``family`` is an NFPROTO."""
        wanted = nla.text(_RULE_TABLE, of_table) + nla.text(_RULE_CHAIN, of_chain)
        found = []
        for body in self._dump.all(_GETRULE, bytes([family, 0, 0, 0]) + wanted):
            fields = attributes(body, 4)
            # The first three attributes, in this order (nf_tables_fill_rule_info in net/netfilter/nf_tables_api.c).
            names = [content.rstrip(b"\0").decode() for kind, content in (next(fields), next(fields))]
            handle = next(content for kind, content in fields if kind == _RULE_HANDLE)
            if names == [of_table, of_chain]:
                found.append(int.from_bytes(handle, "big"))
        return found

    def close(self) -> None:
        """Close the sockets; a table that belongs to them goes with them."""
        self._control.close()
        self._dump.close()

    def _expect(self, acknowledgements: int) -> None:
        failed = 0
        while acknowledgements:
            for kind, _, _, body in messages(self._control.recv(_BUFFER)):
                if kind == _NLMSG_ERROR:
                    acknowledgements -= 1
                    failed = failed or -int(struct.unpack_from("=i", body)[0])
        if failed:
            raise OSError(failed, os.strerror(failed))


def table(name: str) -> Change:
    """An inet table that nobody else can change, and that goes when its maker closes (NFT_TABLE_F_OWNER)."""
    return Change(_NEWTABLE, _NLM_F_CREATE, nla.text(1, name) + number(2, _TABLE_F_OWNER))


def chain(of_table: str, name: str, hook: int, priority: int) -> Change:
    """A base chain of type ``filter`` whose policy accepts."""
    where = nla.nested(4, number(1, hook), number(2, priority & 0xFFFFFFFF))
    return Change(_NEWCHAIN, _NLM_F_CREATE, nla.text(1, of_table) + nla.text(3, name) + where + nla.text(7, "filter"))


def rule(of_table: str, of_chain: str, *expressions: bytes) -> Change:
    """A rule at the end of its chain."""
    body = (
        nla.text(_RULE_TABLE, of_table) + nla.text(_RULE_CHAIN, of_chain) + nla.nested(_RULE_EXPRESSIONS, *expressions)
    )
    return Change(_NEWRULE, _NLM_F_CREATE | _NLM_F_APPEND, body)


def no_rules(of_table: str, of_chain: str) -> Change:
    """Every rule of a chain deleted."""
    return Change(_DELRULE, 0, nla.text(_RULE_TABLE, of_table) + nla.text(_RULE_CHAIN, of_chain))


def expression(name: str, *attributes_: bytes) -> bytes:
    """One expression of a rule, by its name in the kernel."""
    return nla.nested(1, nla.text(1, name), nla.nested(2, *attributes_))


def equal(load: bytes, value: bytes) -> tuple[bytes, bytes]:
    """Load something into register 1, and go on only if it is ``value``."""
    return load, expression("cmp", number(1, _REGISTER_1), number(2, 0), nla.nested(3, nla.raw(1, value)))


def number(kind: int, value: int) -> bytes:
    """A 32-bit number in network byte order, as nf_tables has all of them."""
    return nla.raw(kind, struct.pack("!I", value))


def _open() -> socket.socket:
    return socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _NETLINK_NETFILTER)
