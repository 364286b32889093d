"""Netlink to netfilter where pyroute2 has no counterpart: sockets, requests, dumps, and the parsing of answers.

nf_tables, NFNETLINK_LOG and nfacct pass this module. Route netlink and connection tracking pass pyroute2, in
``kernel.netlink``. The structures are ``struct nlmsghdr`` and ``struct nlattr`` (include/uapi/linux/netlink.h);
``kernel.netfilter.attributes`` packs attributes.
"""

import errno
import os
import socket
import struct
from collections.abc import Iterator
from contextlib import closing
from typing import Final, NamedTuple

from proxylab.addresses import Family
from proxylab.kernel.sandbox.netns import NetNs, inside

ATTRIBUTE: Final = struct.Struct("=HH")  # length, type
NFPROTO: Final = {Family.IPV4: 2, Family.IPV6: 10}  # include/uapi/linux/netfilter.h
"""The number of a family in messages about its tables."""

# include/uapi/linux/netfilter/nfnetlink.h and nf_tables.h: a message's type is its subsystem and its own number.
SUBSYS_NFTABLES: Final = 10 << 8
GET_TABLE: Final = SUBSYS_NFTABLES | 1
GET_CHAIN: Final = SUBSYS_NFTABLES | 4
GET_RULE: Final = SUBSYS_NFTABLES | 7

NLM_F_ACK: Final = 0x4
NLM_F_EXCL: Final = 0x200
NLM_F_CREATE: Final = 0x400
NLM_F_APPEND: Final = 0x800

# include/uapi/linux/netlink.h
_HEADER: Final = struct.Struct("=IHHII")  # length, type, flags, sequence number, port
_TYPE_BITS: Final = 0x3FFF  # a type without NLA_F_NESTED and NLA_F_NET_BYTEORDER
_NLM_F_REQUEST: Final = 0x1
_NLM_F_DUMP_INTR: Final = 0x10
_NLM_F_DUMP: Final = 0x300
_NLMSG_ERROR: Final = 2
_NLMSG_DONE: Final = 3
_NETLINK_NETFILTER: Final = 12
_READ_BYTES: Final = 1 << 16
_DUMP_ROUNDS: Final = 5


def open_netfilter() -> socket.socket:
    """A netlink socket to netfilter in the thread's namespace."""
    return socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _NETLINK_NETFILTER)


def message(kind: int, flags: int, sequence: int, body: bytes) -> bytes:
    """One request as bytes, padded."""
    size = _HEADER.size + len(body)
    return _HEADER.pack(size, kind, flags | _NLM_F_REQUEST, sequence, 0) + body + bytes(-size & 3)


class NetfilterMessage(NamedTuple):
    """One message: its type, flags and body."""

    kind: int
    flags: int
    body: bytes


def messages(data: bytes) -> Iterator[NetfilterMessage]:
    """Each message that was read. Raises ``OSError`` (EBADMSG) for an impossible length."""
    at = 0
    while at + _HEADER.size <= len(data):
        length, kind, flags, _, _ = _HEADER.unpack_from(data, at)
        if length < _HEADER.size:
            raise OSError(errno.EBADMSG, "a netlink message is shorter than its header")
        yield NetfilterMessage(kind, flags, data[at + _HEADER.size : at + length])
        at += length + (-length & 3)


def attributes(data: bytes, at: int = 0) -> Iterator[tuple[int, bytes]]:
    """The attributes from ``at`` on, each with its content, up to the first impossible length."""
    while at + ATTRIBUTE.size <= len(data):
        length, kind = ATTRIBUTE.unpack_from(data, at)
        if length < ATTRIBUTE.size:
            return
        yield kind & _TYPE_BITS, data[at + ATTRIBUTE.size : at + length]
        at += length + (-length & 3)


def nested(data: bytes, at: int = 0) -> dict[int, bytes]:
    """The attributes from ``at`` on, by their type."""
    return dict(attributes(data, at))


def expect(control: socket.socket, acknowledgements: int) -> None:
    """Read that many acknowledgements. Raises ``OSError`` with the first errno that is not zero."""
    failed = 0
    while acknowledgements:
        for each in messages(control.recv(_READ_BYTES)):
            if each.kind == _NLMSG_ERROR:
                acknowledgements -= 1
                failed = failed or -int(struct.unpack_from("=i", each.body)[0])
    if failed:
        raise OSError(failed, os.strerror(failed))


def ask(netns: NetNs, kind: int, body: bytes, *, dump: bool = False) -> list[bytes]:
    """Send one request through a new socket, and return the bodies of the answers. Raises ``OSError``."""
    with inside(netns):
        control = open_netfilter()
    with closing(NetfilterSocket(control)) as asked:
        return asked.all(kind, body) if dump else [asked.one(kind, body)]


class NetfilterSocket:
    """A netlink socket for requests and dumps, used by one caller at a time."""

    def __init__(self, opened: socket.socket) -> None:
        self._socket = opened

    def close(self) -> None:
        self._socket.close()

    def all(self, kind: int, body: bytes) -> list[bytes]:
        """The body of every object of a complete dump.

        Raises:
            OSError: the kernel's errno; EINTR where objects changed during every round.
        """
        for _ in range(_DUMP_ROUNDS):
            self._socket.send(message(kind, _NLM_F_DUMP, 1, body))
            found, interrupted = self._gather()
            if not interrupted:
                return found
        raise OSError(errno.EINTR, "the dumped objects changed during every round")

    def one(self, kind: int, body: bytes) -> bytes:
        """The body of the one object that answers a request. Raises ``OSError`` with the kernel's errno."""
        self._socket.send(message(kind, 0, 1, body))
        for answer in messages(self._socket.recv(_READ_BYTES)):
            if answer.kind != _NLMSG_ERROR:
                return answer.body
            code = -struct.unpack_from("=i", answer.body)[0]
            raise OSError(code, os.strerror(code))
        raise OSError(errno.EPROTO, "the kernel sent an empty answer")

    def _gather(self) -> tuple[list[bytes], bool]:
        found: list[bytes] = []
        interrupted = False
        while True:
            for kind, flags, content in messages(self._socket.recv(_READ_BYTES)):
                interrupted = interrupted or bool(flags & _NLM_F_DUMP_INTR)
                if kind in (_NLMSG_DONE, _NLMSG_ERROR):
                    # A dump that fails on the way ends like any other, with its errno (netlink_dump_done).
                    code = -struct.unpack_from("=i", content)[0]
                    if code:
                        raise OSError(code, os.strerror(code))
                    if kind == _NLMSG_ERROR:
                        raise OSError(errno.EPROTO, "the kernel acknowledged a dump without making it")
                    return found, interrupted
                found.append(content)
