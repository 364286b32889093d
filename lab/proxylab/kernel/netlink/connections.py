"""Ends the connections that are left in a namespace: of a closed lab, or of a run that is over.

A socket that closed with unsent data goes on sending, and holds its namespace for as long. So does a half-open
connection, whose SYN-ACK gets no answer: closing the listener leaves it to its timer, which comes after up to a minute
(reqsk_timer_handler, net/ipv4/inet_connection_sock.c). SOCK_DESTROY ends both (net/ipv4/tcp.c, tcp_abort). TIME_WAIT
keeps a 5-tuple for a minute but holds no namespace: the kernel purges it with the namespace (inet_twsk_purge).
"""

import errno
import os
import re
import socket
import struct
from collections.abc import Collection
from contextlib import closing
from ipaddress import ip_address
from typing import Final, NamedTuple, Self

from proxylab.addresses import IPAddress
from proxylab.kernel.netlink.messages import Content, Decoded, Kind, NetlinkRequest
from proxylab.kernel.netlink.socket import NETLINK_SOCK_DIAG, open_netlink
from proxylab.kernel.sandbox.netns import NetNs, inside

_NLM_F_ACK: Final = 0x4
_TCP_LISTEN: Final = 10  # include/net/tcp_states.h
_TCP_STATES: Final = 13
_NOT_LISTENING: Final = (1 << _TCP_STATES) - 2 & ~(1 << _TCP_LISTEN)

_NO_COOKIE: Final = (1 << 64) - 1

_ABSENT: Final = frozenset({errno.ENOENT, errno.EPROTONOSUPPORT, errno.EINVAL, errno.EOPNOTSUPP})
"""Errors of a kernel that cannot list sockets."""


class TcpConnection(NamedTuple):
    """A TCP connection by its ends, as its own namespace sees them."""

    own: tuple[IPAddress, int]
    peer: tuple[IPAddress, int]


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
    statistics count any, and for TIME_WAIT alone only with ``even_waiting``. They count no half-open connections, but
    the handshakes that were sent again. It ends neither packets that wait for fragments nor SCTP associations without
    sockets.
    """
    left = _left(netns)
    if not any(left._replace(waiting=left.waiting if even_waiting else 0)) and not _sent_handshakes_again(netns):
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


def end_these(netns: NetNs, connections: Collection[TcpConnection]) -> None:
    """End these connections of a namespace, as far as they are still there."""
    for family in (socket.AF_INET, socket.AF_INET6):
        version = 4 if family == socket.AF_INET else 6
        wanted = {
            "sdiag_family": int(family),
            "sdiag_protocol": int(socket.IPPROTO_TCP),
            "idiag_states": _NOT_LISTENING,
        }
        asked = [_ask(each, wanted) for each in connections if each.own[0].version == version]
        if not asked:
            continue
        try:
            with closing(open_netlink(netns, NETLINK_SOCK_DIAG)) as netlink:
                answers = [each for each in netlink.exchange(asked) if not each.is_last]
                found = [answer.decode(Kind.GET_SOCKETS) for answer in answers]
                # Without its connection the kernel names the listener, which must stay.
                there = [each for each in found if each.need(int, "idiag_state") != _TCP_LISTEN]
                netlink.exchange([_end(each, wanted) for each in there])
        except OSError as error:
            if error.errno not in _ABSENT:
                raise


def _ask(connection: TcpConnection, wanted: Content) -> NetlinkRequest:
    """Ask for a connection by its ends. No cookie is known yet (INET_DIAG_NOCOOKIE)."""
    (own, port), (peer, peer_port) = connection
    ends = {"idiag_src": _words(str(own)), "idiag_dst": _words(str(peer))}
    ports = {"idiag_sport": port, "idiag_dport": peer_port}
    return NetlinkRequest(
        "find a connection", Kind.GET_SOCKETS, 0, {**wanted, **ports, **ends, "idiag_cookie": _NO_COOKIE}
    )


def _end_family(netns: NetNs, family: int) -> None:
    wanted = {"sdiag_family": family, "sdiag_protocol": int(socket.IPPROTO_TCP), "idiag_states": _NOT_LISTENING}
    try:
        with closing(open_netlink(netns, NETLINK_SOCK_DIAG)) as netlink:
            netlink.exchange([_end(found, wanted) for found in netlink.dump(Kind.GET_SOCKETS, **wanted)])
    except OSError as error:
        if error.errno not in _ABSENT:
            raise


def _end(found: Decoded, wanted: Content) -> NetlinkRequest:
    """The kernel finds a socket by its ends, device and cookie (struct inet_diag_sockid)."""
    same = {name: found.need(int, name) for name in ("idiag_sport", "idiag_dport", "idiag_if", "idiag_cookie")}
    ends = {name: _words(found.need(str, name)) for name in ("idiag_src", "idiag_dst")}
    return NetlinkRequest("end a connection", Kind.DESTROY_SOCKET, _NLM_F_ACK, {**wanted, **same, **ends})


def _words(address: str) -> tuple[int, ...]:
    """An address as pyroute2 takes it here: four numbers, of which an IPv4 address is the first."""
    return struct.unpack("!4I", ip_address(address).packed.ljust(16, b"\0"))


def _left(netns: NetNs) -> Left:
    with inside(netns):
        return Left.read(_statistics("sockstat") + _statistics("sockstat6"), _statistics("sctp/assocs"))


def _sent_handshakes_again(netns: NetNs) -> bool:
    with inside(netns):
        names, values = (line.split() for line in _statistics("netstat").splitlines()[:2])
    return bool(int(dict(zip(names, values, strict=True)).get(b"TCPSynRetrans", 0)))


def _statistics(name: str) -> bytes:
    """The beginning of a statistics file of the thread's namespace; empty where the kernel lacks the file."""
    try:
        fd = os.open(f"/proc/thread-self/net/{name}", os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return b""
    try:
        return os.read(fd, 1 << 14)
    finally:
        os.close(fd)
