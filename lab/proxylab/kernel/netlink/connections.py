"""Ends the connections that are left in a namespace of a closed lab.

TIME_WAIT keeps a 5-tuple for a minute. A socket that closed with unsent data goes on sending, and holds its namespace
for as long. SOCK_DESTROY ends both (net/ipv4/tcp.c, tcp_abort).
"""

import errno
import os
import re
import socket
import struct
from typing import Final, NamedTuple, Self

from proxylab.kernel.netlink.socket import ask
from proxylab.kernel.netlink.uapi import NETLINK_SOCK_DIAG
from proxylab.kernel.sandbox.netns import NetNs, inside

__all__ = ["Left", "end_connections"]

# include/uapi/linux/sock_diag.h, inet_diag.h; include/net/tcp_states.h
_SOCK_DIAG_BY_FAMILY: Final = 20
_SOCK_DESTROY: Final = 21
_TCP_LISTEN: Final = 10
_TCP_STATES: Final = 13
_NOT_LISTENING: Final = (1 << _TCP_STATES) - 2 & ~(1 << _TCP_LISTEN)
_DIAG_REQUEST: Final = struct.Struct("=BBBxI")  # struct inet_diag_req_v2, without its socket id
_DIAG_SOCKET_ID: Final = slice(4, 52)  # of struct inet_diag_msg

_ABSENT: Final = frozenset({errno.ENOENT, errno.EPROTONOSUPPORT, errno.EINVAL, errno.EOPNOTSUPP})
"""Errors of a kernel that cannot list or end sockets."""


class Left(NamedTuple):
    """What is left in a namespace, by its own statistics."""

    sockets: int
    waiting: int
    fragments: int
    associations: int

    @classmethod
    def read(cls, sockstat: bytes, associations: bytes) -> Self:
        """Parse sockstat and sockstat6 (proc(5)), and sctp/assocs: a heading, and a line for each association."""
        return cls(
            sum(map(int, re.findall(rb"^(?:TCP|UDP)6?: inuse (\d+)", sockstat, re.MULTILINE))),
            sum(map(int, re.findall(rb"^TCP: .*\btw (\d+)", sockstat, re.MULTILINE))),
            sum(map(int, re.findall(rb"^FRAG6?: inuse (\d+)", sockstat, re.MULTILINE))),
            max(0, len(associations.splitlines()) - 1),
        )


def end_connections(netns: NetNs) -> str:
    """End every TCP connection that is left in a namespace; return in words what is left even then.

    To list sockets the kernel walks the whole machine's table (inet_diag), so the function does it only where the
    statistics count any. It ends neither packets that wait for fragments nor SCTP associations without sockets.
    """
    if not any(_left(netns)):
        return ""
    for family in (socket.AF_INET, socket.AF_INET6):
        head = _DIAG_REQUEST.pack(family, socket.IPPROTO_TCP, 0, _NOT_LISTENING)
        for answer in _try(netns, _SOCK_DIAG_BY_FAMILY, head + bytes(48), dump=True):
            _try(netns, _SOCK_DESTROY, head + answer[_DIAG_SOCKET_ID])
    left = _left(netns)
    if not any(left):
        return ""
    return (
        f"{netns.name}: {left.sockets} sockets, {left.waiting} connections in TIME_WAIT, "
        f"{left.fragments} packets that wait for fragments, {left.associations} SCTP associations"
    )


def _try(netns: NetNs, kind: int, body: bytes, *, dump: bool = False) -> list[bytes]:
    """The answers to one request; none where the kernel does not support it."""
    try:
        return ask(netns, NETLINK_SOCK_DIAG, kind, body, dump=dump)
    except OSError as error:
        if error.errno in _ABSENT:
            return []
        raise


def _left(netns: NetNs) -> Left:
    with inside(netns):
        return Left.read(_statistics("sockstat") + _statistics("sockstat6"), _statistics("sctp/assocs"))


def _statistics(name: str) -> bytes:
    """The beginning of a statistics file of the thread's namespace; empty where the kernel lacks the file."""
    try:
        fd = os.open(f"/proc/thread-self/net/{name}", os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return b""
    try:
        return os.read(fd, 1 << 12)
    finally:
        os.close(fd)
