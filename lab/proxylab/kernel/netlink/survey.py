"""What exists in a namespace, read back from the kernel in the plan's own terms.

``Kernel`` builds plans, and ``Survey`` is what one namespace of a built plan shows. A survey omits what the kernel
makes by itself (loopback and link-local addresses, routes that follow from addresses), since no plan has it.
``proxylab.testing`` has a stand-in for ``Kernel`` that needs no kernel.
"""

import socket
import struct
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from ipaddress import ip_address, ip_interface, ip_network
from typing import Final

from msgspec import Struct

from proxylab.addresses import IPAddress
from proxylab.kernel.netlink.build import realise
from proxylab.kernel.netlink.dumps import Dump
from proxylab.kernel.netlink.framing import attributes, nested
from proxylab.kernel.sandbox.netns import NetNs, inside
from proxylab.kernel.sandbox.sysctl import read_sysctl
from proxylab.plan.model import Address, Neighbour, NextHop, Plan, Route

__all__ = ["Kernel", "Link", "RealNetwork", "Survey", "read_addresses"]

# include/uapi/linux/rtnetlink.h, if_link.h, if_addr.h, neighbour.h
_RTM_GETLINK, _RTM_GETADDR, _RTM_GETROUTE, _RTM_GETNEIGH = 18, 22, 26, 30
_IFINFOMSG: Final = struct.Struct("=BxHiII")
_IFADDRMSG: Final = struct.Struct("=BBBBI")
_RTMSG: Final = struct.Struct("=BBBBBBBBI")
_RTNEXTHOP: Final = struct.Struct("=HBBi")
_NDMSG: Final = struct.Struct("=BxxxiHBB")
_IFF_UP: Final = 0x1
_IFLA_ADDRESS, _IFLA_IFNAME, _IFLA_MTU, _IFLA_MASTER = 1, 3, 4, 10
_IFA_ADDRESS, _IFA_LOCAL, _IFA_PROTO = 1, 2, 11
_IFAPROT_KERNEL_LL: Final = 3  # the kernel reports it from 5.18 on
_RTA_DST, _RTA_OIF, _RTA_GATEWAY, _RTA_PREFSRC, _RTA_MULTIPATH, _RTA_TABLE = 1, 4, 5, 7, 9, 15
_RTPROT_STATIC: Final = 4
_RTN_UNREACHABLE: Final = 7
_RTNH_F_ONLINK: Final = 0x4
_NDA_DST, _NDA_LLADDR = 1, 2
_NUD_PERMANENT: Final = 0x80


class Link(Struct, frozen=True):
    """A device. ``master`` is the bridge of a port; ``mac`` is empty for a device without one."""

    device: str
    index: int
    mac: str
    up: bool
    mtu: int
    master: str | None = None


class Survey(Struct, frozen=True):
    """One namespace."""

    links: frozenset[Link]
    addresses: frozenset[Address]
    routes: frozenset[Route]
    neighbours: frozenset[Neighbour]


class RealNetwork:
    """A built plan, to look at."""

    def __init__(self, namespaces: Mapping[str, NetNs]) -> None:
        self._netns_by_name = namespaces

    @property
    def namespaces(self) -> tuple[str, ...]:
        """The names of namespaces, in the order of the plan."""
        return tuple(self._netns_by_name)

    def survey(self, namespace: str) -> Survey:
        """What exists in a namespace. Raises ``KeyError``."""
        return _survey(self._netns_by_name[namespace])

    def sysctl(self, namespace: str, name: str) -> str | None:
        """A sysctl of a namespace; ``None`` where this kernel lacks it. Raises ``KeyError``."""
        return read_sysctl(self._netns_by_name[namespace], name)


class Kernel:
    """The machine's kernel, as the builder of plans."""

    @contextmanager
    def realise(self, plan: Plan) -> Iterator[RealNetwork]:
        """Build a plan for the length of the block (see ``kernel.netlink.build``).

        Raises:
            CapabilityError: the machine lacks something that the plan needs.
            InternalError: the kernel refused a request, so the plan is wrong.
        """
        with realise(plan) as wiring:
            yield RealNetwork(wiring.namespaces)


def read_addresses(netns: NetNs) -> tuple[IPAddress, ...]:
    """Every address in ``netns``, loopback included, in the kernel's order."""
    dump = _open_dump(netns)
    try:
        found = [nested(body, _IFADDRMSG.size) for body in dump.all(_RTM_GETADDR, bytes(_IFADDRMSG.size))]
    finally:
        dump.close()
    # On a point-to-point link IFA_ADDRESS is the other end's. IFA_LOCAL is always this end's; IPv6 lacks it.
    return tuple(ip_address(each.get(_IFA_LOCAL, each[_IFA_ADDRESS])) for each in found)


def _open_dump(netns: NetNs) -> Dump:
    with inside(netns):
        opened = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE)
    return Dump(opened)


def _survey(netns: NetNs) -> Survey:
    dump = _open_dump(netns)
    try:
        bodies = dump.all(_RTM_GETLINK, _IFINFOMSG.pack(0, 0, 0, 0, 0))
        names = {_IFINFOMSG.unpack_from(body)[2]: _name(body) for body in bodies}
        return Survey(
            frozenset(_link(body, names) for body in bodies),
            frozenset(_addresses(dump.all(_RTM_GETADDR, bytes(_IFADDRMSG.size)), names)),
            frozenset(_routes(dump.all(_RTM_GETROUTE, bytes(_RTMSG.size)), names)),
            frozenset(_neighbours(dump.all(_RTM_GETNEIGH, bytes(_NDMSG.size)), names)),
        )
    finally:
        dump.close()


def _name(body: bytes) -> str:
    return nested(body, _IFINFOMSG.size)[_IFLA_IFNAME].rstrip(b"\0").decode()


def _number(value: bytes) -> int:
    return int.from_bytes(value, sys.byteorder)


def _link(body: bytes, names: Mapping[int, str]) -> Link:
    _, _, index, flags, _ = _IFINFOMSG.unpack_from(body)
    found = nested(body, _IFINFOMSG.size)
    master = names[_number(found[_IFLA_MASTER])] if _IFLA_MASTER in found else None
    mac = found[_IFLA_ADDRESS].hex(":") if any(found[_IFLA_ADDRESS]) else ""
    return Link(names[index], index, mac, bool(flags & _IFF_UP), _number(found[_IFLA_MTU]), master)


def _addresses(bodies: list[bytes], names: Mapping[int, str]) -> Iterator[Address]:
    for body in bodies:
        _, length, _, _, index = _IFADDRMSG.unpack_from(body)
        found = nested(body, _IFADDRMSG.size)
        interface = ip_interface((found.get(_IFA_LOCAL, found[_IFA_ADDRESS]), length))
        if not interface.is_loopback and found.get(_IFA_PROTO) != bytes([_IFAPROT_KERNEL_LL]):
            yield Address(names[index], interface)


def _routes(bodies: list[bytes], names: Mapping[int, str]) -> Iterator[Route]:
    for body in bodies:
        family, length, _, _, _, protocol, _, kind, flags = _RTMSG.unpack_from(body)
        if protocol != _RTPROT_STATIC:
            continue
        found = nested(body, _RTMSG.size)
        hops = tuple(_hops(found.get(_RTA_MULTIPATH, b""), names))
        unreachable = kind == _RTN_UNREACHABLE
        device = hops[0].device if hops else "" if unreachable else names[_number(found[_RTA_OIF])]
        yield Route(
            ip_network((found.get(_RTA_DST, bytes(4 if family == socket.AF_INET else 16)), length)),
            device,
            via=_address(found.get(_RTA_GATEWAY)),
            source=_address(found.get(_RTA_PREFSRC)),
            hops=hops,
            onlink=bool(flags & _RTNH_F_ONLINK),
            unreachable=unreachable,
            table=_number(found[_RTA_TABLE]),
        )


def _hops(data: bytes, names: Mapping[int, str]) -> Iterator[NextHop]:
    """Next hops: each ``struct rtnexthop`` has its own attributes after it (rtnetlink(7))."""
    at = 0
    while at + _RTNEXTHOP.size <= len(data):
        length, _, _, index = _RTNEXTHOP.unpack_from(data, at)
        own = dict(attributes(data[at : at + length], _RTNEXTHOP.size))
        yield NextHop(names[index], ip_address(own[_RTA_GATEWAY]))
        at += length + (-length & 3)


def _address(packed: bytes | None) -> IPAddress | None:
    return None if packed is None else ip_address(packed)


def _neighbours(bodies: list[bytes], names: Mapping[int, str]) -> Iterator[Neighbour]:
    for body in bodies:
        _, index, state, _, _ = _NDMSG.unpack_from(body)
        if state & _NUD_PERMANENT:
            found = nested(body, _NDMSG.size)
            yield Neighbour(names[index], ip_address(found[_NDA_DST]), found[_NDA_LLADDR].hex(":"))
