"""Messages of route netlink: devices, addresses, routes, rules and neighbours, each with words for an error message.

``kernel.netlink.build`` decides which messages a plan needs, and ``kernel.netlink.socket`` sends them.

Layouts are those of the kernel's headers: ``struct ifinfomsg``, ``rtmsg`` and ``rtnexthop`` of linux/rtnetlink.h,
``ifaddrmsg`` of linux/if_addr.h, ``ndmsg`` and ``ndtmsg`` of linux/neighbour.h, ``fib_rule_hdr`` of linux/fib_rules.h.
"""

import socket
import struct
from typing import Final

from msgspec import Struct

from proxylab.addresses import Family, IPAddress, IPNetwork
from proxylab.kernel.netlink import attributes as nla
from proxylab.kernel.netlink.uapi import NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE
from proxylab.kernel.sandbox.netns import NetNs
from proxylab.plan.model import (
    BEHIND_LOCAL,
    Address,
    Bridge,
    Device,
    ForwardingEntry,
    LinkEnd,
    Neighbour,
    NextHop,
    PolicyRule,
    Route,
    Veth,
    Vxlan,
)

__all__ = [
    "RTM_GETLINK",
    "Request",
    "add_address",
    "add_bridge",
    "add_device",
    "add_forwarding_entry",
    "add_neighbour",
    "add_route",
    "add_rule",
    "add_veth",
    "add_vxlan",
    "blackhole",
    "delete_route",
    "end_blackhole",
    "get_link",
    "put_address",
    "replace_route",
    "set_down",
    "set_hairpin",
    "set_loopback_up",
    "set_proxy_delay",
    "set_up",
]

# include/uapi/linux/netlink.h and rtnetlink.h
_RTM_NEWLINK: Final = 16
RTM_GETLINK: Final = 18
_RTM_SETLINK: Final = 19
_RTM_NEWADDR: Final = 20
_RTM_NEWROUTE: Final = 24
_RTM_DELROUTE: Final = 25
_RTM_NEWNEIGH: Final = 28
_RTM_NEWRULE: Final = 32
_RTM_DELRULE: Final = 33
_RTM_SETNEIGHTBL: Final = 67
_IFF_UP: Final = 0x1
_IFF_PROMISC: Final = 0x100
_IFLA_ADDRESS: Final = 1
_IFLA_IFNAME: Final = 3
_IFLA_MTU: Final = 4
_IFLA_MASTER: Final = 10
_IFLA_PROTINFO: Final = 12
_IFLA_LINKINFO: Final = 18
_IFLA_NET_NS_FD: Final = 28
_IFLA_NUM_TX_QUEUES: Final = 31
_IFLA_NUM_RX_QUEUES: Final = 32
_IFLA_INFO_KIND: Final = 1
_IFLA_INFO_DATA: Final = 2
_VETH_INFO_PEER: Final = 1
_IFLA_BRPORT_MODE: Final = 4
_IFLA_VXLAN_ID: Final = 1
_IFLA_VXLAN_LINK: Final = 3
_IFLA_VXLAN_LOCAL: Final = 4
_IFLA_VXLAN_LEARNING: Final = 7
_IFLA_VXLAN_PORT: Final = 15
_IFLA_VXLAN_LOCAL6: Final = 17
_IFA_ADDRESS: Final = 1
_IFA_LOCAL: Final = 2
_IFA_F_NODAD: Final = 0x02
_RTA_DST: Final = 1
_RTA_OIF: Final = 4
_RTA_GATEWAY: Final = 5
_RTA_PREFSRC: Final = 7
_RTA_MULTIPATH: Final = 9
_RTA_TABLE: Final = 15
_RTNH_F_ONLINK: Final = 0x4
_RT_SCOPE_UNIVERSE: Final = 0
_RT_SCOPE_LINK: Final = 253
_RT_SCOPE_NOWHERE: Final = 255
_RT_TABLE_UNSPEC: Final = 0
_RTPROT_STATIC: Final = 4
_RTN_UNICAST: Final = 1
_RTN_UNREACHABLE: Final = 7
_FRA_SRC: Final = 2
_FRA_PRIORITY: Final = 6
_FRA_TABLE: Final = 15
_FR_ACT_TO_TBL: Final = 1
_FR_ACT_BLACKHOLE: Final = 6
_NDA_DST: Final = 1
_NDA_LLADDR: Final = 2
_NUD_NOARP: Final = 0x40
_NUD_PERMANENT: Final = 0x80
_NDTA_NAME: Final = 1
_NDTA_PARMS: Final = 6
_NDTPA_IFINDEX: Final = 1
_NDTPA_PROXY_DELAY: Final = 13
_NTF_SELF: Final = 0x02
_AF_BRIDGE: Final = 7  # not in every build of the socket module

_NEW: Final = NLM_F_CREATE | NLM_F_EXCL
_REPLACE: Final = NLM_F_CREATE | NLM_F_REPLACE

_IFINFOMSG: Final = struct.Struct("=BxHiII")
_IFADDRMSG: Final = struct.Struct("=BBBBI")
_RTMSG: Final = struct.Struct("=8BI")
_RTNEXTHOP: Final = struct.Struct("=HBBi")
_NDMSG: Final = struct.Struct("=BxxxiHBB")
_NDTMSG: Final = struct.Struct("=Bxxx")


class Request(Struct, frozen=True):
    """One message without its ``struct nlmsghdr``, and words for it in an error message.

    ``needs`` names what a kernel may lack, and the cure: EOPNOTSUPP is then the machine's fault and not the plan's.
    """

    what: str
    kind: int
    flags: int
    body: bytes
    needs: tuple[str, str] | None = None


def _family(address: IPAddress | IPNetwork) -> int:
    return int(socket.AF_INET if address.version == 4 else socket.AF_INET6)


def _link(index: int, *attributes: bytes, family: int = 0, flags: int = 0) -> bytes:
    return _IFINFOMSG.pack(family, 0, index, flags, flags) + b"".join(attributes)


def _kind(name: str, *data: bytes) -> bytes:
    info = [nla.text(_IFLA_INFO_KIND, name)]
    if data:
        info.append(nla.nested(_IFLA_INFO_DATA, *data))
    return nla.nested(_IFLA_LINKINFO, *info)


def add_bridge(bridge: Bridge) -> Request:
    """Make a bridge, down."""
    body = _link(
        bridge.index, nla.text(_IFLA_IFNAME, bridge.device), nla.mac(_IFLA_ADDRESS, bridge.mac), _kind("bridge")
    )
    return Request(f"make the bridge {bridge.device}", _RTM_NEWLINK, _NEW, body)


def add_device(device: str, kind: str, index: int) -> Request:
    """Make a device of a kind that needs only a name, such as ``dummy``."""
    body = _link(index, nla.text(_IFLA_IFNAME, device), _kind(kind))
    return Request(f"make the {kind} device {device}", _RTM_NEWLINK, _NEW, body)


def add_veth(link: Veth, peer: NetNs) -> Request:
    """Make a veth pair: the first end in the socket's namespace, the second in ``peer``, both down.

    Both ends are created in place: moving an end later waits for an RCU grace period (19 ms instead of 0.3). Each end
    has one queue: the default is one per possible processor, which costs up to 2 ms a pair on a big machine. The second
    end must be created down (the kernel answers IFF_UP in VETH_INFO_PEER with ENOTCONN).
    """
    peer_end = _link(link.second.index, *_end(link.second), nla.integer(_IFLA_NET_NS_FD, peer.fd))
    body = _link(link.first.index, *_end(link.first), _kind("veth", nla.nested(_VETH_INFO_PEER, peer_end)))
    what = f"make the veth {link.first.device} to {peer.name}/{link.second.device}"
    return Request(what, _RTM_NEWLINK, _NEW, body)


def _end(end: LinkEnd) -> tuple[bytes, ...]:
    mtu = () if end.mtu is None else (nla.integer(_IFLA_MTU, end.mtu),)
    return (
        nla.text(_IFLA_IFNAME, end.device),
        nla.mac(_IFLA_ADDRESS, end.mac),
        nla.integer(_IFLA_NUM_TX_QUEUES, 1),
        nla.integer(_IFLA_NUM_RX_QUEUES, 1),
        *mtu,
    )


def add_vxlan(vxlan: Vxlan, underlay: int) -> Request:
    """Make a VXLAN device, down, over the device with index ``underlay``. It learns no addresses."""
    local = _IFLA_VXLAN_LOCAL if vxlan.local.version == 4 else _IFLA_VXLAN_LOCAL6
    body = _link(
        vxlan.index,
        nla.text(_IFLA_IFNAME, vxlan.device),
        nla.mac(_IFLA_ADDRESS, vxlan.mac),
        _kind(
            "vxlan",
            nla.integer(_IFLA_VXLAN_ID, vxlan.vni),
            nla.integer(_IFLA_VXLAN_LINK, underlay),
            nla.address(local, vxlan.local),
            nla.tiny(_IFLA_VXLAN_LEARNING, 0),
            nla.short(_IFLA_VXLAN_PORT, vxlan.port),
        ),
    )
    needs = ("VXLAN devices", "load the kernel's module as root: 'modprobe vxlan'")
    return Request(f"make the VXLAN device {vxlan.device}", _RTM_NEWLINK, _NEW, body, needs)


def set_up(device: Device, master: int | None = None) -> Request:
    """Bring a device up, as a port of the bridge with index ``master`` if given."""
    attributes = () if master is None else (nla.integer(_IFLA_MASTER, master),)
    promiscuous = isinstance(device, Bridge) and device.promiscuous
    flags = _IFF_UP | (_IFF_PROMISC if promiscuous else 0)
    return Request(f"bring {device.device} up", _RTM_NEWLINK, 0, _link(device.index, *attributes, flags=flags))


def set_down(end: LinkEnd) -> Request:
    """Take an end of a link down: both ends lose their carrier."""
    body = _IFINFOMSG.pack(0, 0, end.index, 0, _IFF_UP)
    return Request(f"take {end.device} down", _RTM_NEWLINK, 0, body)


def set_hairpin(end: LinkEnd) -> Request:
    """Let a bridge send frames back out of the port they came in by (IFLA_BRPORT_MODE; ``hairpin`` of bridge(8))."""
    body = _link(end.index, nla.nested(_IFLA_PROTINFO, nla.tiny(_IFLA_BRPORT_MODE, 1)), family=_AF_BRIDGE)
    return Request(f"set the bridge port {end.device} to hairpin", _RTM_SETLINK, 0, body)


def set_proxy_delay(end: LinkEnd) -> Request:
    """Let a device answer proxy ARP at once, not after a random part of 0.8 s (proxy_delay, arp(7))."""
    parms = nla.nested(_NDTA_PARMS, nla.integer(_NDTPA_IFINDEX, end.index), nla.long(_NDTPA_PROXY_DELAY, 0))
    body = _NDTMSG.pack(socket.AF_INET) + nla.text(_NDTA_NAME, "arp_cache") + parms
    return Request(f"answer proxy ARP at once on {end.device}", _RTM_SETNEIGHTBL, 0, body)


def set_loopback_up() -> Request:
    """Bring ``lo`` up; it has index 1 in every namespace (net/core/dev.c)."""
    return Request("bring lo up", _RTM_NEWLINK, 0, _link(1, flags=_IFF_UP))


def get_link(device: Device) -> Request:
    """Read one device, which makes the kernel handle its pending carrier event at once (rtnl_getlink)."""
    return Request(f"read {device.device}", RTM_GETLINK, 0, _link(device.index))


def add_address(address: Address, index: int) -> Request:
    """Add an address to a device, without duplicate address detection, which takes a second or two."""
    return _address(address, index, _NEW)


def put_address(address: Address, index: int) -> Request:
    """Add an address to a device that may have it already."""
    return _address(address, index, _REPLACE)


def _address(address: Address, index: int, flags: int) -> Request:
    interface = address.interface
    no_dad = _IFA_F_NODAD if interface.version == 6 else 0
    body = (
        _IFADDRMSG.pack(_family(interface.ip), interface.network.prefixlen, no_dad, _RT_SCOPE_UNIVERSE, index)
        + nla.address(_IFA_LOCAL, interface.ip)
        + nla.address(_IFA_ADDRESS, interface.ip)
    )
    return Request(f"add the address {interface} to {address.device}", _RTM_NEWADDR, flags, body)


def add_route(route: Route, *indexes: int) -> Request:
    """Add a route. ``indexes`` are those of its devices: one, one for each next hop, or none if unreachable."""
    return _route(route, _NEW, indexes)


def replace_route(route: Route, *indexes: int) -> Request:
    """Add a route, or replace the one with the same destination."""
    return _route(route, _REPLACE, indexes)


def delete_route(route: Route) -> Request:
    """Delete the route with that destination in that table, by whatever next hop."""
    family, length = _family(route.destination), route.destination.prefixlen
    head = _RTMSG.pack(family, length, 0, 0, _RT_TABLE_UNSPEC, 0, _RT_SCOPE_NOWHERE, 0, 0)
    body = head + nla.integer(_RTA_TABLE, route.table) + nla.address(_RTA_DST, route.destination.network_address)
    return Request(f"delete the route {route.destination}", _RTM_DELROUTE, 0, body)


def _route(route: Route, flags: int, indexes: tuple[int, ...]) -> Request:
    on_link = route.via is None and not route.hops and not route.unreachable
    scope = _RT_SCOPE_LINK if on_link else _RT_SCOPE_UNIVERSE
    onlink = _RTNH_F_ONLINK if route.onlink else 0
    head = _RTMSG.pack(
        _family(route.destination),
        route.destination.prefixlen,
        0,
        0,
        _RT_TABLE_UNSPEC,  # RTA_TABLE has the table, which may need more than 8 bits
        _RTPROT_STATIC,
        scope,
        _RTN_UNREACHABLE if route.unreachable else _RTN_UNICAST,
        onlink,
    )
    attributes = [nla.integer(_RTA_TABLE, route.table)]
    if route.destination.prefixlen:
        attributes.append(nla.address(_RTA_DST, route.destination.network_address))
    if route.unreachable:
        way = "unreachable"
    elif route.hops:
        hops = zip(route.hops, indexes, strict=True)
        attributes.append(nla.raw(_RTA_MULTIPATH, b"".join(_next_hop(hop, index) for hop, index in hops)))
        way = "via " + " or ".join(f"{hop.via} on {hop.device}" for hop in route.hops)
    else:
        attributes.append(nla.integer(_RTA_OIF, indexes[0]))
        way = f"on {route.device}" if route.via is None else f"via {route.via} on {route.device}"
    if route.via is not None:
        attributes.append(nla.address(_RTA_GATEWAY, route.via))
    if route.source is not None:
        attributes.append(nla.address(_RTA_PREFSRC, route.source))
    return Request(f"add the route {route.destination} {way}", _RTM_NEWROUTE, flags, head + b"".join(attributes))


def _next_hop(hop: NextHop, index: int) -> bytes:
    gateway = nla.address(_RTA_GATEWAY, hop.via)
    return _RTNEXTHOP.pack(_RTNEXTHOP.size + len(gateway), 0, 0, index) + gateway


def add_rule(rule: PolicyRule) -> Request:
    """Add a policy rule (ip-rule(8)): packets from a network use their own routing table."""
    family = int(socket.AF_INET if rule.family is Family.IPV4 else socket.AF_INET6)
    length = 0 if rule.source is None else rule.source.prefixlen
    body = _RTMSG.pack(family, 0, length, 0, _RT_TABLE_UNSPEC, 0, 0, _FR_ACT_TO_TBL, 0)
    body += nla.integer(_FRA_PRIORITY, rule.priority) + nla.integer(_FRA_TABLE, rule.table)
    if rule.source is not None:
        body += nla.address(_FRA_SRC, rule.source.network_address)
    what = f"add the rule from {rule.source or 'all'} lookup {rule.table}"
    return Request(what, _RTM_NEWRULE, _NEW, body)


def blackhole(family: Family) -> Request:
    """Drop all packets that leave a namespace: a rule after that for local addresses and before all others."""
    return Request(f"add the blackhole rule for {family}", _RTM_NEWRULE, _NEW, _blackhole(family))


def end_blackhole(family: Family) -> Request:
    """Delete the blackhole rule."""
    return Request(f"delete the blackhole rule for {family}", _RTM_DELRULE, 0, _blackhole(family))


def _blackhole(family: Family) -> bytes:
    number = int(socket.AF_INET if family is Family.IPV4 else socket.AF_INET6)
    head = _RTMSG.pack(number, 0, 0, 0, _RT_TABLE_UNSPEC, 0, 0, _FR_ACT_BLACKHOLE, 0)
    return head + nla.integer(_FRA_PRIORITY, BEHIND_LOCAL)


def add_neighbour(neighbour: Neighbour, index: int) -> Request:
    """Add a permanent neighbour."""
    body = (
        _NDMSG.pack(_family(neighbour.address), index, _NUD_PERMANENT, 0, 0)
        + nla.address(_NDA_DST, neighbour.address)
        + nla.mac(_NDA_LLADDR, neighbour.mac)
    )
    return Request(f"add the neighbour {neighbour.address} on {neighbour.device}", _RTM_NEWNEIGH, _REPLACE, body)


def add_forwarding_entry(entry: ForwardingEntry, index: int) -> Request:
    """Map a MAC address to a remote tunnel end on a VXLAN device (``bridge fdb`` of bridge(8))."""
    body = (
        _NDMSG.pack(_AF_BRIDGE, index, _NUD_NOARP | _NUD_PERMANENT, _NTF_SELF, 0)
        + nla.address(_NDA_DST, entry.remote)
        + nla.mac(_NDA_LLADDR, entry.mac)
    )
    return Request(
        f"add the forwarding entry {entry.mac} to {entry.remote} on {entry.device}", _RTM_NEWNEIGH, _REPLACE, body
    )
