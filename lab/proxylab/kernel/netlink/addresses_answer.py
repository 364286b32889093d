"""The addresses of a namespace: reading them, the one of the default route, and waiting until IPv6 addresses answer.

The wait is the second gate of every build with IPv6, after ``kernel.netlink.links_carry``.

RTM_NEWADDR returns before an IPv6 address works, even one without duplicate address detection. A work item
(``addrconf_dad_work``, net/ipv6/addrconf.c) joins the solicited-node group and then inserts the address's route into
the local table, and it needs the RTNL lock that all namespaces of the machine share. Until then the namespace answers
no neighbour solicitation for the address, and the kernel does not deliver packets to it. The route comes last, so the
module waits for the route. IPv4 has no such interval (``fib_add_ifaddr`` runs within the request).
"""

import select
import socket
from collections.abc import Mapping, Set
from contextlib import closing
from ipaddress import IPv6Address, ip_address
from typing import Final

from proxylab.addresses import Family, IPAddress
from proxylab.errors import InternalError
from proxylab.kernel.netlink.messages import Decoded, Kind
from proxylab.kernel.netlink.socket import Netlink, open_netlink
from proxylab.kernel.sandbox.netns import NetNs, inside
from proxylab.plan.model import Plan
from proxylab.timing import Deadline

# include/uapi/linux/rtnetlink.h
_RTMGRP_IPV6_ROUTE: Final = 0x400
_RTN_UNICAST: Final = 1
_RTN_LOCAL: Final = 2
_RT_TABLE_MAIN: Final = 254
_RT_SCOPE_UNIVERSE: Final = 0
_FAMILIES: Final = {Family.IPV4: socket.AF_INET, Family.IPV6: socket.AF_INET6}
_PATIENCE: Final = 20.0
_LOOK: Final = 0.05


def read_addresses(netns: NetNs, *, but: str = "") -> tuple[IPAddress, ...]:
    """Every address in ``netns``, loopback included, in the kernel's order; without those of the device ``but``."""
    with closing(open_netlink(netns)) as netlink:
        links = netlink.dump(Kind.GET_LINK) if but else []
        skipped = {each.need(int, "index") for each in links if each.find(str, "IFLA_IFNAME") == but}
        return tuple(
            _address(each) for each in netlink.dump(Kind.GET_ADDRESS) if each.need(int, "index") not in skipped
        )


def default_route_address(netns: NetNs, family: Family) -> IPAddress | None:
    """The first global address of a family on the device of the default route; ``None`` without such a route."""
    with closing(open_netlink(netns)) as netlink:
        routes = netlink.dump(Kind.GET_ROUTE, family=int(_FAMILIES[family]))
        devices = {each.find(int, "RTA_OIF") for each in routes if _is_default(each)}
        held = [each for each in netlink.dump(Kind.GET_ADDRESS) if each.need(int, "index") in devices]
    found = (_address(each) for each in held if each.need(int, "scope") == _RT_SCOPE_UNIVERSE)
    return next((each for each in found if Family.of(each) is family), None)


def _address(held: Decoded) -> IPAddress:
    # On a point-to-point link IFA_ADDRESS is the other end's, but IPv6 lacks IFA_LOCAL.
    return ip_address(held.find(str, "IFA_LOCAL") or held.need(str, "IFA_ADDRESS"))


def _is_default(route: Decoded) -> bool:
    """Whether a route leads everywhere, for packets that no policy rule sends to another table."""
    is_main = route.find(int, "RTA_TABLE") == _RT_TABLE_MAIN
    return is_main and route.need(int, "type") == _RTN_UNICAST and not route.need(int, "dst_len")


def make_addresses_answer(
    plan: Plan,
    namespaces: Mapping[str, NetNs],
    routes: Mapping[str, Netlink],
    *,
    only: str | None = None,
    patience: float = _PATIENCE,
) -> None:
    """Return when every IPv6 address of ``plan`` is local in its namespace. ``patience`` is in seconds.

    With ``only``, wait for the addresses of that namespace. Raises ``InternalError``.
    """
    deadline = Deadline.after(patience)
    for namespace in plan.namespaces:
        if only not in (None, namespace.name):
            continue
        wanted = {each.interface.ip for each in namespace.addresses if isinstance(each.interface.ip, IPv6Address)}
        wait_until_local(namespaces[namespace.name], routes[namespace.name], wanted, deadline)


def wait_until_local(netns: NetNs, routes: Netlink, wanted: Set[IPv6Address], deadline: Deadline) -> None:
    """Return when these addresses are local. Raises ``InternalError`` at the deadline."""
    if not wanted or not wanted - _local(routes):
        return
    # It looks again after each route event. The socket joins the group first, so that no route is missed. A large lab
    # has more descriptors than select(2) can wait for.
    with closing(_route_events(netns)) as events:
        coming = select.poll()
        coming.register(events, select.POLLIN)
        while missing := wanted - _local(routes):
            if deadline.passed:
                raise InternalError(f"{netns.name}: the address {min(missing)} did not become local after RTM_NEWADDR")
            coming.poll(1000 * min(_LOOK, deadline.remaining))
            _drain(events)


def _local(routes: Netlink) -> set[IPv6Address]:
    """The IPv6 addresses in the local table. A look-up of one may find a route to the subnet's routers (anycast)."""
    dumped = routes.dump(Kind.GET_ROUTE, family=int(socket.AF_INET6))
    return {IPv6Address(each.need(str, "RTA_DST")) for each in dumped if each.need(int, "type") == _RTN_LOCAL}


def _route_events(netns: NetNs) -> socket.socket:
    with inside(netns):
        made = socket.socket(
            socket.AF_NETLINK,
            socket.SOCK_RAW | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK,
            socket.NETLINK_ROUTE,
        )
    made.bind((0, _RTMGRP_IPV6_ROUTE))
    return made


def _drain(events: socket.socket) -> None:
    """Read the pending events, at most one buffer. An overrun (ENOBUFS) also makes the socket readable."""
    try:
        events.recv(1 << 16)
    except OSError:
        return
