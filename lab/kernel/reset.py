"""A standing wire made as new: what a lab has left in its namespaces, taken away.

Owns: what the kernel remembers of connections, peers and ways, kind by kind, and how each is forgotten.
Must not: take away what it does not know; a wire with something of that kind is given up (``NotAsNewError``).

==================  ===========================================================================================
rules               of every kind, whoever wrote them (``kernel.wipe``)
sysctls             those that a Service proxy writes, back to what they were when the wire was made
TCP sockets         none may be left: TIME_WAIT keeps a 5-tuple for a minute, and what was closed with something
                    unsaid goes on to say it (SOCK_DESTROY; net/ipv4/tcp.c, tcp_abort)
conntrack           one message of ctnetlink without a tuple deletes every entry of a namespace
route exceptions    what ICMP redirects and "packet too big" have taught (net.ipv4.route.flush; IPv6's go with routes)
neighbours          learnt link-layer addresses; the plan's own are permanent and stay
forwarding entries  those that bridges have learnt: to somebody unknown a bridge sends to all, which taps see
routes              those that errands and balancers have moved or added
==================  ===========================================================================================

An association of SCTP that outlives its sockets is seen and not ended: such a wire is given up.
Where engines run on, nodes keep their rules and sysctls, and what the engines listen on and are told by.
What TCP learns of a peer's path is never kept (net.ipv4.tcp_no_metrics_save): only the machine's root may delete it.
What devices and protocols have counted stays counted; whoever reads such a counter compares two readings.
"""

import errno
import os
import re
import socket
import struct
import sys
from collections.abc import Collection, Iterator, Sequence
from ipaddress import ip_address, ip_network
from typing import Final, NamedTuple, Self

from lab.ip import Family
from lab.kernel.framing import nested
from lab.kernel.netlink import ask
from lab.kernel.netns import NetNs, inside
from lab.kernel.realise import Wiring
from lab.kernel.requests import delete_route, forget_forwarding, forget_neighbour, replace_route
from lab.kernel.sysctl import read_sysctl, write_sysctls
from lab.kernel.uapi import NETLINK_NETFILTER, NETLINK_SOCK_DIAG
from lab.kernel.wipe import RuleWiper
from lab.plan.model import Device, Namespace, Role, Route, Sysctl, ends_by_namespace

__all__ = ["Left", "NotAsNewError", "Renewal", "end_connections"]

# include/uapi/linux/netlink.h, netfilter/nfnetlink.h, netfilter/nfnetlink_conntrack.h
_CTNETLINK_DELETE: Final = 1 << 8 | 2
# include/uapi/linux/sock_diag.h, inet_diag.h; include/net/tcp_states.h
_SOCK_DIAG_BY_FAMILY: Final = 20
_SOCK_DESTROY: Final = 21
_TCP_LISTEN: Final = 10
_TCP_STATES: Final = 13
_NOT_LISTENING: Final = (1 << _TCP_STATES) - 2 & ~(1 << _TCP_LISTEN)
_DIAG_REQUEST: Final = struct.Struct("=BBBxI")  # struct inet_diag_req_v2, without its socket id
_DIAG_SOCKET_ID: Final = slice(4, 52)  # of struct inet_diag_msg
_PORTS: Final = struct.Struct("!HH")  # the first of struct inet_diag_sockid
_RTM_GETROUTE: Final = 26
_RTMSG: Final = struct.Struct("=BBBBBBBBI")
_RTPROT_STATIC: Final = 4
_RTM_F_CLONED: Final = 0x200
_RTA_DST: Final = 1
_RTA_TABLE: Final = 15
_RTM_GETNEIGH: Final = 30
_NDMSG: Final = struct.Struct("=BxxxiHBB")
_LASTING: Final = 0x80 | 0x40  # NUD_PERMANENT | NUD_NOARP
_NDA_DST: Final = 1

_ABSENT: Final = frozenset({errno.ENOENT, errno.EPROTONOSUPPORT, errno.EINVAL, errno.EOPNOTSUPP})
"""What a kernel answers that has no such memory, and so has nothing to forget."""

_CONNTRACK: Final = "net.netfilter.nf_conntrack_"
_PROXY_SYSCTLS: Final = (
    "net.ipv4.ip_forward",
    "net.ipv4.conf.all.route_localnet",
    "net.bridge.bridge-nf-call-iptables",
    "net.bridge.bridge-nf-call-ip6tables",
    _CONNTRACK + "tcp_be_liberal",
    _CONNTRACK + "tcp_timeout_established",
    _CONNTRACK + "tcp_timeout_close_wait",
    _CONNTRACK + "udp_timeout",
    _CONNTRACK + "udp_timeout_stream",
)
"""Written by kube-proxy (cmd/kube-proxy/app/server_linux.go, pkg/proxy/iptables/proxier.go), and so by its likes here.

``test_reuse`` compares all of /proc/sys/net in a node that had an engine with one that had none.
"""


class NotAsNewError(Exception):
    """Something is left in a wire that is not known how to take away; the wire must be given up."""


class Left(NamedTuple):
    """What a namespace's own statistics say is left in it."""

    sockets: int
    waiting: int
    fragments: int
    associations: int

    @classmethod
    def read(cls, sockstat: bytes, associations: bytes) -> Self:
        """From sockstat and sockstat6 (proc(5)), and from sctp/assocs: a headline, and a line for each association."""
        return cls(
            sum(map(int, re.findall(rb"^(?:TCP|UDP)6?: inuse (\d+)", sockstat, re.MULTILINE))),
            sum(map(int, re.findall(rb"^TCP: .*\btw (\d+)", sockstat, re.MULTILINE))),
            sum(map(int, re.findall(rb"^FRAG6?: inuse (\d+)", sockstat, re.MULTILINE))),
            max(0, len(associations.splitlines()) - 1),
        )


class Renewal:
    """Makes one wire as new, as often as it is asked. To be made when the wire is, before anything uses it."""

    def __init__(self, wiring: Wiring) -> None:
        self._wiring = wiring
        self._nodes = [each.name for each in wiring.plan.namespaces if each.role is Role.NODE]
        self._wipers = {name: RuleWiper(wiring.namespaces[name]) for name in self._nodes}
        self._sysctls = {
            name: {key: read_sysctl(wiring.namespaces[name], key) for key in _PROXY_SYSCTLS} for name in self._nodes
        }
        self._ends = ends_by_namespace(wiring.plan)

    def make_as_new(self, legacy: Sequence[Family], served: Collection[int] = ()) -> None:
        """Take away, in every namespace of the wire, all that a lab has left there.

        Whatever the lab held open must be closed by now, but for what stands as long as the wire.

        Args:
            legacy: the families for which rules of legacy iptables were loaded.
            served: the ports of the nodes by which engines run on; none where no engine does.

        Raises:
            NotAsNewError: something was left that no reset takes away.
            OSError: the kernel refused; what is left is unknown.
        """
        for name, wiper in self._wipers.items() if not served else ():
            wiper.wipe(legacy)
            self._restore_sysctls(name)
        # Everywhere first: a connection that is ended says so (RST), and whoever forwards that learns neighbours.
        for namespace in self._wiring.plan.namespaces:
            if namespace.role is not Role.SEGMENT:
                kept = served if namespace.role is Role.NODE else ()
                end_connections(self._wiring.namespaces[namespace.name], kept)
        for namespace in self._wiring.plan.namespaces:
            netns = self._wiring.namespaces[namespace.name]
            self._forget_neighbours(netns)
            self._wiring.routes[namespace.name].send([forget_forwarding(bridge) for bridge in namespace.bridges])
            if namespace.role is Role.SEGMENT:
                continue
            _flush_route_exceptions(netns)
            self._renew_routes(namespace)
        for name in self._nodes:  # when nobody has anything left to say that could be tracked
            _try(self._wiring.namespaces[name], NETLINK_NETFILTER, _CTNETLINK_DELETE, bytes(4))

    def close(self) -> None:
        """Close what is held open to be quick."""
        for wiper in self._wipers.values():
            wiper.close()

    def _restore_sysctls(self, node: str) -> None:
        netns, first = self._wiring.namespaces[node], self._sysctls[node]
        changed = [
            Sysctl(key, value) for key, value in first.items() if value is not None and read_sysctl(netns, key) != value
        ]
        write_sysctls(netns, changed)

    def _renew_routes(self, namespace: Namespace) -> None:
        """Put every planned route in its own place: what errands have moved comes back, and IPv6's exceptions go.

        An exception of IPv6 belongs to its route and goes with it; flush only ages them (fib6_run_gc in
        net/ipv6/ip6_fib.c).
        """
        tops: list[Device] = [*self._ends[namespace.name], *namespace.bridges, *namespace.vxlans]
        indexes = {device.device: device.index for device in tops}
        planned = {(route.destination, route.table) for route in namespace.routes}
        added = [
            delete_route(route)
            for route in _static_routes(self._wiring.namespaces[namespace.name])
            if (route.destination, route.table) not in planned
        ]
        renewed = [replace_route(route, *(indexes[device] for device in route.devices)) for route in namespace.routes]
        self._wiring.routes[namespace.name].send([*added, *renewed])

    def _forget_neighbours(self, netns: NetNs) -> None:
        learnt = []
        for answer in _try(netns, socket.NETLINK_ROUTE, _RTM_GETNEIGH, _NDMSG.pack(0, 0, 0, 0, 0), dump=True):
            family, index, state, _, _ = _NDMSG.unpack_from(answer)
            if not state & _LASTING:
                learnt.append(forget_neighbour(family, index, nested(answer, _NDMSG.size)[_NDA_DST]))
        self._wiring.routes[netns.name].send(learnt)


def _try(netns: NetNs, protocol: int, kind: int, body: bytes, *, dump: bool = False) -> list[bytes]:
    """The answers to one request; none where the kernel has not what is asked about."""
    try:
        return ask(netns, protocol, kind, body, dump=dump)
    except OSError as error:
        if error.errno in _ABSENT:
            return []
        raise


def _static_routes(netns: NetNs) -> Iterator[Route]:
    """Destination and table of every route that somebody has set; the kernel's own follow from addresses."""
    for body in _try(netns, socket.NETLINK_ROUTE, _RTM_GETROUTE, bytes(_RTMSG.size), dump=True):
        family, length, _, _, _, protocol, _, _, flags = _RTMSG.unpack_from(body)
        if protocol == _RTPROT_STATIC and not flags & _RTM_F_CLONED:  # IPv6 lists its exceptions, too
            found = nested(body, _RTMSG.size)
            where = ip_address(found.get(_RTA_DST, bytes(4 if family == socket.AF_INET else 16)))
            yield Route(ip_network((where, length)), "", table=int.from_bytes(found[_RTA_TABLE], sys.byteorder))


def _flush_route_exceptions(netns: NetNs) -> None:
    """Forget IPv4's: the write is the order."""
    with inside(netns):
        fd = os.open("/proc/sys/net/ipv4/route/flush", os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(fd, b"1")
        finally:
            os.close(fd)


def end_connections(netns: NetNs, kept: Collection[int] = ()) -> None:
    """End every connection that is left in a namespace; nobody holds any of them any more.

    The look for them walks the whole machine's table of sockets (inet_diag), so it is taken only where there are some.

    Args:
        netns: the namespace.
        kept: ports; a connection from or to one of them goes on, and so does who listens.

    Raises:
        NotAsNewError: some could not be ended, are still held, or packets wait for their fragments.
    """
    if not any(_left(netns)):
        return
    for head, socket_id in _connections(netns, kept):
        _try(netns, NETLINK_SOCK_DIAG, _SOCK_DESTROY, head + socket_id)
    left = _left(netns)
    if kept:
        left = left._replace(sockets=len(_connections(netns, kept)), waiting=0)
    if any(left):
        raise NotAsNewError(
            f"{netns.name}: {left.sockets} sockets, {left.waiting} connections in TIME_WAIT, "
            f"{left.fragments} packets that wait for their fragments, {left.associations} associations of SCTP"
        )


def _connections(netns: NetNs, kept: Collection[int]) -> list[tuple[bytes, bytes]]:
    """The connections of TCP in a namespace, but for those of ports that are ``kept``: by family, and by socket."""
    found = []
    for family in (socket.AF_INET, socket.AF_INET6):
        head = _DIAG_REQUEST.pack(family, socket.IPPROTO_TCP, 0, _NOT_LISTENING)
        for answer in _try(netns, NETLINK_SOCK_DIAG, _SOCK_DIAG_BY_FAMILY, head + bytes(48), dump=True):
            socket_id = answer[_DIAG_SOCKET_ID]
            if not set(_PORTS.unpack_from(socket_id)).intersection(kept):
                found.append((head, socket_id))
    return found


def _left(netns: NetNs) -> Left:
    with inside(netns):
        return Left.read(_statistics("sockstat") + _statistics("sockstat6"), _statistics("sctp/assocs"))


def _statistics(name: str) -> bytes:
    """The beginning of a file of the thread's namespace; nothing where the kernel lacks what it tells of."""
    try:
        fd = os.open(f"/proc/thread-self/net/{name}", os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return b""
    try:
        return os.read(fd, 1 << 12)
    finally:
        os.close(fd)
