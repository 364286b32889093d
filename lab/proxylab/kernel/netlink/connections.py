"""Ends the connections that are left in a namespace of a closed lab.

A socket that closed with unsent data goes on sending, and holds its namespace for as long. SOCK_DESTROY ends it
(net/ipv4/tcp.c, tcp_abort). TIME_WAIT keeps a 5-tuple for a minute but holds no namespace: the kernel purges it with
the namespace (inet_twsk_purge).
"""

import errno
import os
import re
import socket
import struct
from contextlib import closing
from ipaddress import ip_address
from typing import Final, NamedTuple, Self

from proxylab.kernel.netlink.messages import Content, Decoded, Kind, Request
from proxylab.kernel.netlink.socket import NETLINK_SOCK_DIAG, open_netlink
from proxylab.kernel.sandbox.netns import NetNs, inside

__all__ = ["Left", "end_connections"]

_NLM_F_ACK: Final = 0x4
_TCP_LISTEN: Final = 10  # include/net/tcp_states.h
_TCP_STATES: Final = 13
_NOT_LISTENING: Final = (1 << _TCP_STATES) - 2 & ~(1 << _TCP_LISTEN)

_ABSENT: Final = frozenset({errno.ENOENT, errno.EPROTONOSUPPORT, errno.EINVAL, errno.EOPNOTSUPP})
"""Errors of a kernel that cannot list sockets."""


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


def end_connections(netns: NetNs, *, even_waiting: bool = False) -> str:
    """End every TCP connection that is left in a namespace; return in words what is left even then.

    To list sockets the kernel walks the whole machine's table (inet_diag), so the function does it only where the
    statistics count any, and for TIME_WAIT alone only with ``even_waiting``. It ends neither packets that wait for
    fragments nor SCTP associations without sockets.
    """
    left = _left(netns)
    if not any(left._replace(waiting=left.waiting if even_waiting else 0)):
        return ""
    for family in (socket.AF_INET, socket.AF_INET6):
        _end_family(netns, int(family))
    left = _left(netns)
    if not any(left):
        return ""
    return (
        f"{netns.name}: {left.sockets} sockets, {left.waiting} connections in TIME_WAIT, "
        f"{left.fragments} packets that wait for fragments, {left.associations} SCTP associations"
    )


def _end_family(netns: NetNs, family: int) -> None:
    wanted = {"sdiag_family": family, "sdiag_protocol": int(socket.IPPROTO_TCP), "idiag_states": _NOT_LISTENING}
    try:
        with closing(open_netlink(netns, NETLINK_SOCK_DIAG)) as netlink:
            netlink.exchange([_end(found, wanted) for found in netlink.dump(Kind.GET_SOCKETS, **wanted)])
    except OSError as error:
        if error.errno not in _ABSENT:
            raise


def _end(found: Decoded, wanted: Content) -> Request:
    """The kernel finds a socket by its ends, device and cookie (struct inet_diag_sockid)."""
    same = {name: found.need(int, name) for name in ("idiag_sport", "idiag_dport", "idiag_if", "idiag_cookie")}
    ends = {name: _words(found.need(str, name)) for name in ("idiag_src", "idiag_dst")}
    return Request("end a connection", Kind.DESTROY_SOCKET, _NLM_F_ACK, {**wanted, **same, **ends})


def _words(address: str) -> tuple[int, ...]:
    """An address as pyroute2 takes it here: four numbers, of which an IPv4 address is the first."""
    return struct.unpack("!4I", ip_address(address).packed.ljust(16, b"\0"))


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
