"""What exists in a namespace, read back from the kernel in the plan's own terms.

A survey omits what the kernel makes by itself (loopback and link-local addresses, routes that follow from addresses),
since no plan has it.
"""

import socket
from collections.abc import Iterator, Mapping
from contextlib import closing
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_interface, ip_network
from typing import Final

from msgspec import Struct

from proxylab.addresses import Family, IPAddress
from proxylab.kernel.netlink.messages import Decoded, Kind
from proxylab.kernel.netlink.socket import Netlink, open_netlink
from proxylab.kernel.sandbox.netns import NetNs
from proxylab.plan.model import Address, Neighbour, NextHop, PolicyRule, Route

__all__ = ["Link", "Survey", "survey"]

# include/uapi/linux: if_arp.h, if.h, if_addr.h, rtnetlink.h, neighbour.h
_ARPHRD_ETHER: Final = 1
_IFF_UP: Final = 0x1
_IFAPROT_KERNEL_LL: Final = 3  # the kernel reports it from 5.18 on
_RTPROT_STATIC: Final = 4
_RTN_UNREACHABLE: Final = 7
_RTNH_F_ONLINK: Final = 0x4
_NUD_PERMANENT: Final = 0x80
_OWN_RULES: Final = frozenset({0, 32766, 32767})  # priorities of the kernel's rules for local, main and default


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
    rules: frozenset[PolicyRule]


def survey(netns: NetNs) -> Survey:
    """What exists in a namespace."""
    with closing(open_netlink(netns)) as netlink:
        return _survey(netlink)


def _survey(netlink: Netlink) -> Survey:
    links = netlink.dump(Kind.GET_LINK)
    names = {link.need(int, "index"): link.need(str, "IFLA_IFNAME") for link in links}
    return Survey(
        frozenset(_link(link, names) for link in links),
        frozenset(_addresses(netlink.dump(Kind.GET_ADDRESS), names)),
        frozenset(_routes(netlink.dump(Kind.GET_ROUTE), names)),
        frozenset(_neighbours(netlink.dump(Kind.GET_NEIGHBOUR), names)),
        frozenset(_rules(netlink.dump(Kind.GET_RULE))),
    )


def _link(found: Decoded, names: Mapping[int, str]) -> Link:
    index, master = found.need(int, "index"), found.find(int, "IFLA_MASTER")
    return Link(
        names[index],
        index,
        found.need(str, "IFLA_ADDRESS") if found.need(int, "ifi_type") == _ARPHRD_ETHER else "",
        bool(found.need(int, "flags") & _IFF_UP),
        found.need(int, "IFLA_MTU"),
        None if master is None else names[master],
    )


def _own(found: Decoded) -> str:
    """This end's address: on a point-to-point link IFA_ADDRESS is the other end's, but IPv6 lacks IFA_LOCAL."""
    return found.find(str, "IFA_LOCAL") or found.need(str, "IFA_ADDRESS")


def _addresses(dumped: list[Decoded], names: Mapping[int, str]) -> Iterator[Address]:
    for found in dumped:
        interface = ip_interface((_own(found), found.need(int, "prefixlen")))
        if not interface.is_loopback and found.find(int, "IFA_PROTO") != _IFAPROT_KERNEL_LL:
            yield Address(names[found.need(int, "index")], interface)


def _routes(dumped: list[Decoded], names: Mapping[int, str]) -> Iterator[Route]:
    for found in dumped:
        if found.need(int, "proto") != _RTPROT_STATIC:
            continue
        hops = tuple(
            NextHop(names[hop.need(int, "oif")], ip_address(hop.need(str, "RTA_GATEWAY")))
            for hop in found.each("RTA_MULTIPATH")
        )
        unreachable = found.need(int, "type") == _RTN_UNREACHABLE
        device = hops[0].device if hops else "" if unreachable else names[found.need(int, "RTA_OIF")]
        anywhere = IPv4Address(0) if found.need(int, "family") == socket.AF_INET else IPv6Address(0)
        yield Route(
            ip_network((_address(found, "RTA_DST") or anywhere, found.need(int, "dst_len"))),
            device,
            via=_address(found, "RTA_GATEWAY"),
            source=_address(found, "RTA_PREFSRC"),
            hops=hops,
            onlink=bool(found.need(int, "flags") & _RTNH_F_ONLINK),
            unreachable=unreachable,
            table=found.need(int, "RTA_TABLE"),
        )


def _address(found: Decoded, attribute: str) -> IPAddress | None:
    text = found.find(str, attribute)
    return None if text is None else ip_address(text)


def _neighbours(dumped: list[Decoded], names: Mapping[int, str]) -> Iterator[Neighbour]:
    for found in dumped:
        if found.need(int, "state") & _NUD_PERMANENT:
            address = ip_address(found.need(str, "NDA_DST"))
            yield Neighbour(names[found.need(int, "ifindex")], address, found.need(str, "NDA_LLADDR"))


def _rules(dumped: list[Decoded]) -> Iterator[PolicyRule]:
    for found in dumped:
        priority, source = found.find(int, "FRA_PRIORITY") or 0, _address(found, "FRA_SRC")
        if priority not in _OWN_RULES:
            family = Family.IPV4 if found.need(int, "family") == socket.AF_INET else Family.IPV6
            network = None if source is None else ip_network((source, found.need(int, "src_len")))
            yield PolicyRule(family, priority, found.need(int, "FRA_TABLE"), network)
