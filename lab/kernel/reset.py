"""A standing wire made as new: what traffic has left in its namespaces, taken away.

Owns: what the kernel remembers of connections, peers and ways, kind by kind, and how each is forgotten.
Must not: touch rules, which their engine takes away, or anything that the plan says.

==================  ===========================================================================================
conntrack           one message of ctnetlink without a tuple deletes every entry of a namespace
route exceptions    what ICMP redirects and "packet too big" have taught (net.ipv4.route.flush; IPv6's go with routes)
sockets in waiting  TIME_WAIT keeps a 5-tuple for a minute (SOCK_DESTROY; net/ipv4/tcp.c, tcp_abort)
neighbours          learnt link-layer addresses; the plan's own are permanent and stay
routes              those that errands have moved
==================  ===========================================================================================

What TCP learns of a peer's path is never kept (net.ipv4.tcp_no_metrics_save): only the machine's root may delete it.
"""

import errno
import os
import socket
import struct
from collections.abc import Sequence
from typing import Final

from lab.kernel.netlink import ask
from lab.kernel.netns import NetNs, inside
from lab.kernel.realise import Wiring
from lab.kernel.requests import forget_neighbour, replace_route
from lab.plan.model import Device, LinkEnd, Namespace, Role, ends_by_namespace

__all__ = ["make_as_new"]

# include/uapi/linux/netlink.h, netfilter/nfnetlink.h, netfilter/nfnetlink_conntrack.h
_NETLINK_ROUTE: Final = 0
_NETLINK_SOCK_DIAG: Final = 4
_NETLINK_NETFILTER: Final = 12
_CTNETLINK_DELETE: Final = 1 << 8 | 2
# include/uapi/linux/sock_diag.h, inet_diag.h; include/net/tcp_states.h
_SOCK_DIAG_BY_FAMILY: Final = 20
_SOCK_DESTROY: Final = 21
_TCP_TIME_WAIT: Final = 6
_DIAG_REQUEST: Final = struct.Struct("=BBBxI")  # struct inet_diag_req_v2, without its socket id
_DIAG_SOCKET_ID: Final = slice(4, 52)  # of struct inet_diag_msg
_RTM_GETNEIGH: Final = 30
_NDMSG: Final = struct.Struct("=BxxxiHBB")
_LASTING: Final = 0x80 | 0x40  # NUD_PERMANENT | NUD_NOARP
_NDA_DST: Final = 1

_ABSENT: Final = frozenset({errno.ENOENT, errno.EPROTONOSUPPORT, errno.EINVAL, errno.EOPNOTSUPP})
"""What a kernel answers that has no such memory, and so has nothing to forget."""


def make_as_new(wiring: Wiring) -> None:
    """Forget, in every namespace of the wire, all that traffic has left there."""
    ends = ends_by_namespace(wiring.plan)
    for namespace in wiring.plan.namespaces:
        netns = wiring.namespaces[namespace.name]
        _forget_neighbours(wiring, namespace)
        if namespace.role is Role.SEGMENT:
            continue
        if namespace.role is Role.NODE:
            _try(netns, _NETLINK_NETFILTER, _CTNETLINK_DELETE, bytes(4))
        _destroy_waiting_sockets(netns)
        _flush_route_exceptions(netns)
        _renew_routes(wiring, namespace, ends[namespace.name])


def _renew_routes(wiring: Wiring, namespace: Namespace, ends: Sequence[LinkEnd]) -> None:
    """Put every planned route in its own place: what errands have moved comes back, and IPv6's exceptions go.

    An exception of IPv6 belongs to its route and goes with it; flush only ages them (fib6_run_gc, net/ipv6/ip6_fib.c).
    """
    tops: list[Device] = [*ends, *namespace.bridges, *namespace.vxlans]
    indexes = {device.device: device.index for device in tops}
    wiring.routes[namespace.name].send(
        [
            replace_route(route, *([indexes[hop.device] for hop in route.hops] or [indexes[route.device]]))
            for route in namespace.routes
        ]
    )


def _try(netns: NetNs, protocol: int, kind: int, body: bytes, *, dump: bool = False) -> list[bytes]:
    """The answers to one request; none where the kernel has not what is asked about."""
    try:
        return ask(netns, protocol, kind, body, dump=dump)
    except OSError as error:
        if error.errno in _ABSENT:
            return []
        raise


def _flush_route_exceptions(netns: NetNs) -> None:
    """Forget IPv4's: the write is the order."""
    with inside(netns):
        fd = os.open("/proc/sys/net/ipv4/route/flush", os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(fd, b"1")
        finally:
            os.close(fd)


def _destroy_waiting_sockets(netns: NetNs) -> None:
    for family in (socket.AF_INET, socket.AF_INET6):
        head = _DIAG_REQUEST.pack(family, socket.IPPROTO_TCP, 0, 1 << _TCP_TIME_WAIT)
        for answer in _try(netns, _NETLINK_SOCK_DIAG, _SOCK_DIAG_BY_FAMILY, head + bytes(48), dump=True):
            _try(netns, _NETLINK_SOCK_DIAG, _SOCK_DESTROY, head + answer[_DIAG_SOCKET_ID])


def _forget_neighbours(wiring: Wiring, namespace: Namespace) -> None:
    netns = wiring.namespaces[namespace.name]
    learnt = []
    for answer in _try(netns, _NETLINK_ROUTE, _RTM_GETNEIGH, _NDMSG.pack(0, 0, 0, 0, 0), dump=True):
        family, index, state, _, _ = _NDMSG.unpack_from(answer)
        if not state & _LASTING:
            address = _attributes(answer[_NDMSG.size :])[_NDA_DST]
            learnt.append(forget_neighbour(family, index, address))
    wiring.routes[namespace.name].send(learnt)


def _attributes(data: bytes) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    offset = 0
    while offset + 4 <= len(data):
        length, kind = struct.unpack_from("=HH", data, offset)
        found[kind & 0x3FFF] = data[offset + 4 : offset + length]
        offset += max(4, (length + 3) & ~3)
    return found
