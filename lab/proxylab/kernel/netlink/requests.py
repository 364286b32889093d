"""Requests to route netlink: devices, addresses, routes, rules and neighbours, each with words for an error message."""

import socket
from typing import Final

from proxylab.addresses import Family, IPAddress, IPInterface, IPNetwork
from proxylab.kernel.modules import load_modules
from proxylab.kernel.netlink.messages import Content, Kind, NetlinkRequest, Value
from proxylab.kernel.sandbox.netns import NetNs
from proxylab.plan.model import (
    BEHIND_LOCAL,
    Address,
    Bridge,
    Device,
    ForwardingEntry,
    LinkEnd,
    Neighbour,
    PolicyRule,
    Route,
    Veth,
    Vxlan,
)
from proxylab.scenario.network import Netem

# include/uapi/linux: netlink.h, if.h, if_addr.h, rtnetlink.h, fib_rules.h, neighbour.h
_READ: Final = 0
_CHANGE: Final = 0x4  # NLM_F_ACK
_NEW: Final = _CHANGE | 0x600  # NLM_F_CREATE | NLM_F_EXCL
_REPLACE: Final = _CHANGE | 0x500  # NLM_F_CREATE | NLM_F_REPLACE
_IFF_UP: Final = 0x1
_IFF_PROMISC: Final = 0x100
_IFA_F_NODAD: Final = 0x02
_FOREVER: Final = 0xFFFFFFFF
"""The lifetime that never ends (INFINITY_LIFE_TIME of net/addrconf.h)."""

_RTNH_F_ONLINK: Final = 0x4
_RT_SCOPE_LINK: Final = 253
_RT_SCOPE_NOWHERE: Final = 255
_RTPROT_STATIC: Final = 4
_RTN_UNICAST: Final = 1
_RTN_UNREACHABLE: Final = 7
_FR_ACT_TO_TBL: Final = 1
_FR_ACT_BLACKHOLE: Final = 6
_NUD_NOARP: Final = 0x40
_NUD_PERMANENT: Final = 0x80
_NTF_SELF: Final = 0x02
_NLM_F_CREATE: Final = 0x400
_TC_H_ROOT: Final = 0xFFFFFFFF
_NETEM_HANDLE: Final = 0x10000
_NETEM_LIMIT: Final = 100_000  # packets; netem drops those beyond
_NEIGHBOUR_QUEUE: Final = 64 << 20  # bytes of truesize: more than the packets of the largest probe
_STEPS_IN_MILLISECOND: Final = 15_625
_AF_BRIDGE: Final = 7  # not in every build of the socket module


def add_bridge(bridge: Bridge) -> NetlinkRequest:
    """Make a bridge, down.

    It does not look at multicast: with snooping its kernel would join a group of its own, and report that at a random
    time (br_multicast_join_snoopers() in net/bridge/br_multicast.c), which a pod's counter of packets would count.
    """
    info: Content = {"IFLA_INFO_KIND": "bridge", "IFLA_INFO_DATA": {"IFLA_BR_MCAST_SNOOPING": 0}}
    content = {**_named(bridge), "IFLA_LINKINFO": info}
    return NetlinkRequest(f"make the bridge {bridge.device}", Kind.NEW_LINK, _NEW, content)


def add_device(device: str, kind: str, index: int) -> NetlinkRequest:
    """Make a device of a kind that needs only a name, such as ``dummy``."""
    content: Content = {"index": index, "IFLA_IFNAME": device, "IFLA_LINKINFO": {"IFLA_INFO_KIND": kind}}
    return NetlinkRequest(f"make the {kind} device {device}", Kind.NEW_LINK, _NEW, content)


def delete_device(device: str, index: int) -> NetlinkRequest:
    """Delete a device, and with it all its addresses and routes."""
    return NetlinkRequest(f"delete the device {device}", Kind.DELETE_LINK, _CHANGE, {"index": index})


def add_veth(link: Veth, peer: NetNs) -> NetlinkRequest:
    """Make a veth pair: the first end in the socket's namespace, the second in ``peer``, both down.

    Both ends are created in place: moving an end later waits for an RCU grace period (19 ms instead of 0.3). The second
    end must be created down (the kernel answers IFF_UP in VETH_INFO_PEER with ENOTCONN).
    """
    second = {**_end(link.second), "IFLA_NET_NS_FD": peer.fd}
    info: Content = {"IFLA_INFO_KIND": "veth", "IFLA_INFO_DATA": {"VETH_INFO_PEER": second}}
    what = f"make the veth {link.first.device} to {peer.name}/{link.second.device}"
    return NetlinkRequest(what, Kind.NEW_LINK, _NEW, {**_end(link.first), "IFLA_LINKINFO": info})


def _end(end: LinkEnd) -> Content:
    """One queue each: the default is one per possible processor, which costs up to 2 ms a pair on a big machine."""
    return {**_named(end), "IFLA_NUM_TX_QUEUES": 1, "IFLA_NUM_RX_QUEUES": 1, "IFLA_MTU": end.mtu}


def add_vxlan(vxlan: Vxlan, underlay: int) -> NetlinkRequest:
    """Make a VXLAN device, down, over the device with index ``underlay``. It learns no addresses."""
    data: Content = {
        "IFLA_VXLAN_ID": vxlan.vni,
        "IFLA_VXLAN_LINK": underlay,
        "IFLA_VXLAN_LOCAL" if vxlan.local.version == 4 else "IFLA_VXLAN_LOCAL6": str(vxlan.local),
        "IFLA_VXLAN_LEARNING": 0,
        "IFLA_VXLAN_PORT": vxlan.port,
    }
    info: Content = {"IFLA_INFO_KIND": "vxlan", "IFLA_INFO_DATA": data}
    content = {**_named(vxlan), "IFLA_LINKINFO": info}
    needs = ("VXLAN devices", load_modules("vxlan"))
    return NetlinkRequest(f"make the VXLAN device {vxlan.device}", Kind.NEW_LINK, _NEW, content, needs)


def move_vxlan(vxlan: Vxlan) -> NetlinkRequest:
    """Let the tunnels of a VXLAN device begin at its new local address."""
    data: Content = {"IFLA_VXLAN_LOCAL" if vxlan.local.version == 4 else "IFLA_VXLAN_LOCAL6": str(vxlan.local)}
    info: Content = {"IFLA_INFO_KIND": "vxlan", "IFLA_INFO_DATA": data}
    content: Content = {"index": vxlan.index, "IFLA_LINKINFO": info}
    return NetlinkRequest(f"move {vxlan.device} to {vxlan.local}", Kind.NEW_LINK, _CHANGE, content)


def _named(device: Device) -> Content:
    return {"index": device.index, "IFLA_IFNAME": device.device, "IFLA_ADDRESS": device.mac}


def set_up(device: Device, master: int | None = None) -> NetlinkRequest:
    """Bring a device up, as a port of the bridge with index ``master`` if given."""
    promiscuous = isinstance(device, Bridge) and device.promiscuous
    flags = _IFF_UP | (_IFF_PROMISC if promiscuous else 0)
    content: Content = {"index": device.index, "flags": flags, "change": flags, "IFLA_MASTER": master}
    return NetlinkRequest(f"bring {device.device} up", Kind.NEW_LINK, _CHANGE, content)


def set_down(end: LinkEnd) -> NetlinkRequest:
    """Take an end of a link down: both ends lose their carrier."""
    return NetlinkRequest(f"take {end.device} down", Kind.NEW_LINK, _CHANGE, {"index": end.index, "change": _IFF_UP})


def set_loopback_up() -> NetlinkRequest:
    """Bring ``lo`` up; it has index 1 in every namespace (net/core/dev.c)."""
    return NetlinkRequest("bring lo up", Kind.NEW_LINK, _CHANGE, {"index": 1, "flags": _IFF_UP, "change": _IFF_UP})


def set_port(end: LinkEnd) -> NetlinkRequest:
    """Set how a bridge treats a port: ``hairpin`` and ``learning`` of bridge(8)."""
    settings: Content = {"IFLA_BRPORT_MODE": int(end.hairpin), "IFLA_BRPORT_LEARNING": int(end.learning)}
    content: Content = {"family": _AF_BRIDGE, "index": end.index, "IFLA_PROTINFO": settings}
    return NetlinkRequest(f"set up the bridge port {end.device}", Kind.SET_LINK, _CHANGE, content)


def set_netem(end: LinkEnd, netem: Netem) -> NetlinkRequest:
    """Let netem hold what leaves by a device (tc-netem(8)). Times are in steps of 64 ns (PSCHED_SHIFT)."""
    options: dict[str, Value] = {
        "delay": netem.delay * _STEPS_IN_MILLISECOND,
        "jitter": netem.jitter * _STEPS_IN_MILLISECOND,
        "limit": _NETEM_LIMIT,
        "loss": _share(netem.loss),
        "duplicate": _share(netem.duplicate),
        "gap": 1 if netem.reorder else 0,
        "TCA_NETEM_REORDER": {"prob_reorder": _share(netem.reorder)} if netem.reorder else None,
    }
    content: Content = {
        "index": end.index,
        "parent": _TC_H_ROOT,
        "handle": _NETEM_HANDLE,
        "TCA_KIND": "netem",
        "TCA_OPTIONS": options,
    }
    needs = ("netem", load_modules("sch_netem"))
    return NetlinkRequest(f"set up netem on {end.device}", Kind.NEW_QUEUE, _CHANGE | _NLM_F_CREATE, content, needs)


def _share(percent: float) -> int:
    return round(percent / 100 * 0xFFFFFFFF)


def set_proxy_delay(end: LinkEnd) -> NetlinkRequest:
    """Let a device answer proxy ARP at once, not after a random part of 0.8 s (proxy_delay, arp(7))."""
    parameters: Content = {"NDTPA_IFINDEX": end.index, "NDTPA_PROXY_DELAY": 0}
    content: Content = {"family": int(socket.AF_INET), "NDTA_NAME": "arp_cache", "NDTA_PARMS": parameters}
    return NetlinkRequest(f"answer proxy ARP at once on {end.device}", Kind.SET_NEIGHBOUR_TABLE, _CHANGE, content)


def keep_neighbours(end: LinkEnd, family: Family) -> NetlinkRequest:
    """Let a device keep its neighbour entries for an hour, and many packets for a neighbour that it asks for.

    The kernel asks again after some 15 to 45 s (base_reachable_time, arp(7)), 5 s after an entry was only announced
    (delay_first_probe_time), and it keeps some 280 packets meanwhile (unres_qlen_bytes).
    """
    hour = 3_600_000
    parameters: Content = {
        "NDTPA_IFINDEX": end.index,
        "NDTPA_BASE_REACHABLE_TIME": hour,
        "NDTPA_DELAY_PROBE_TIME": hour,
        "NDTPA_GC_STALETIME": hour,
        "NDTPA_QUEUE_LENBYTES": _NEIGHBOUR_QUEUE,
    }
    name = "arp_cache" if family is Family.IPV4 else "ndisc_cache"
    content: Content = {"family": _number(family), "NDTA_NAME": name, "NDTA_PARMS": parameters}
    return NetlinkRequest(f"keep neighbours of {end.device}", Kind.SET_NEIGHBOUR_TABLE, _CHANGE, content)


def get_link(device: Device) -> NetlinkRequest:
    """Read one device, which makes the kernel handle its pending carrier event at once (rtnl_getlink)."""
    return NetlinkRequest(f"read {device.device}", Kind.GET_LINK, _READ, {"index": device.index})


def add_address(address: Address, index: int) -> NetlinkRequest:
    """Add an address to a device, without duplicate address detection, which takes a second or two."""
    return _address(address, index, _NEW)


def put_address(address: Address, index: int) -> NetlinkRequest:
    """Add an address to a device that may have it already."""
    return _address(address, index, _REPLACE)


def delete_address(address: Address, index: int) -> NetlinkRequest:
    """Delete an address of a device."""
    what = f"delete the address {address.interface} of {address.device}"
    return NetlinkRequest(what, Kind.DELETE_ADDRESS, _CHANGE, _content(address, index))


def _address(address: Address, index: int, flags: int) -> NetlinkRequest:
    what = f"add the address {address.interface} to {address.device}"
    return NetlinkRequest(what, Kind.NEW_ADDRESS, flags, _content(address, index))


def _content(address: Address, index: int) -> Content:
    interface = address.interface
    return {
        "family": _family(interface),
        "prefixlen": interface.network.prefixlen,
        "flags": _IFA_F_NODAD if interface.version == 6 else 0,
        "index": index,
        "IFA_LOCAL": str(interface.ip),
        "IFA_ADDRESS": str(interface.ip),
        "IFA_CACHEINFO": {"ifa_preferred": 0, "ifa_valid": _FOREVER} if address.deprecated else None,
    }


def add_route(route: Route, *indexes: int) -> NetlinkRequest:
    """Add a route. ``indexes`` are those of its devices: one, one for each next hop, or none if unreachable."""
    return _route(route, _NEW, indexes)


def replace_route(route: Route, *indexes: int) -> NetlinkRequest:
    """Add a route, or replace the one with the same destination."""
    return _route(route, _REPLACE, indexes)


def delete_route(route: Route) -> NetlinkRequest:
    """Delete the route with that destination in that table, by whatever next hop."""
    content = {**_destination(route), "scope": _RT_SCOPE_NOWHERE}
    return NetlinkRequest(f"delete the route {route.destination}", Kind.DELETE_ROUTE, _CHANGE, content)


def _route(route: Route, flags: int, indexes: tuple[int, ...]) -> NetlinkRequest:
    content: dict[str, Value] = {
        **_destination(route),
        "proto": _RTPROT_STATIC,
        "type": _RTN_UNREACHABLE if route.unreachable else _RTN_UNICAST,
        "flags": _RTNH_F_ONLINK if route.onlink else 0,
        "RTA_GATEWAY": None if route.via is None else str(route.via),
        "RTA_PREFSRC": None if route.source is None else str(route.source),
        "RTA_METRICS": None if route.mtu is None else {"RTAX_MTU": route.mtu},
    }
    if route.unreachable:
        way = "unreachable"
    elif route.hops:
        hops = zip(route.hops, indexes, strict=True)
        content["RTA_MULTIPATH"] = [{"oif": index, "RTA_GATEWAY": str(hop.via)} for hop, index in hops]
        way = "via " + " or ".join(f"{hop.via} on {hop.device}" for hop in route.hops)
    else:
        content |= {"RTA_OIF": indexes[0], "scope": _RT_SCOPE_LINK if route.via is None else 0}
        way = f"on {route.device}" if route.via is None else f"via {route.via} on {route.device}"
    return NetlinkRequest(f"add the route {route.destination} {way}", Kind.NEW_ROUTE, flags, content)


def _destination(route: Route) -> Content:
    """The table is an attribute, since its number may need more bits than the field has."""
    return {
        "family": _family(route.destination),
        "dst_len": route.destination.prefixlen,
        "RTA_TABLE": route.table,
        "RTA_DST": str(route.destination.network_address),
    }


def add_rule(rule: PolicyRule) -> NetlinkRequest:
    """Add a policy rule (ip-rule(8)): packets from a network use their own routing table."""
    content: Content = {
        "family": _number(rule.family),
        "src_len": 0 if rule.source is None else rule.source.prefixlen,
        "action": _FR_ACT_TO_TBL,
        "FRA_PRIORITY": rule.priority,
        "FRA_TABLE": rule.table,
        "FRA_SRC": None if rule.source is None else str(rule.source.network_address),
    }
    return NetlinkRequest(f"add the rule from {rule.source or 'all'} lookup {rule.table}", Kind.NEW_RULE, _NEW, content)


def blackhole(family: Family) -> NetlinkRequest:
    """Drop all packets that leave a namespace: a rule after that for local addresses and before all others."""
    return NetlinkRequest(f"add the blackhole rule for {family}", Kind.NEW_RULE, _NEW, _blackhole(family))


def end_blackhole(family: Family) -> NetlinkRequest:
    """Delete the blackhole rule."""
    return NetlinkRequest(f"delete the blackhole rule for {family}", Kind.DELETE_RULE, _CHANGE, _blackhole(family))


def _blackhole(family: Family) -> Content:
    return {"family": _number(family), "action": _FR_ACT_BLACKHOLE, "FRA_PRIORITY": BEHIND_LOCAL}


def add_neighbour(neighbour: Neighbour, index: int) -> NetlinkRequest:
    """Add a permanent neighbour."""
    what = f"add the neighbour {neighbour.address} on {neighbour.device}"
    content: Content = {
        "family": _family(neighbour.address),
        "ifindex": index,
        "state": _NUD_PERMANENT,
        "NDA_DST": str(neighbour.address),
        "NDA_LLADDR": neighbour.mac,
    }
    return NetlinkRequest(what, Kind.NEW_NEIGHBOUR, _REPLACE, content)


def add_forwarding_entry(entry: ForwardingEntry, index: int) -> NetlinkRequest:
    """Map a MAC address to a remote tunnel end on a VXLAN device (``bridge fdb`` of bridge(8))."""
    what = f"add the forwarding entry {entry.mac} to {entry.remote} on {entry.device}"
    content: Content = {
        "family": _AF_BRIDGE,
        "ifindex": index,
        "state": _NUD_NOARP | _NUD_PERMANENT,
        "flags": _NTF_SELF,
        "NDA_DST": str(entry.remote),
        "NDA_LLADDR": entry.mac,
    }
    return NetlinkRequest(what, Kind.NEW_NEIGHBOUR, _REPLACE, content)


def _family(address: IPAddress | IPNetwork | IPInterface) -> int:
    return _number(Family.of(address))


def _number(family: Family) -> int:
    return int(socket.AF_INET if family is Family.IPV4 else socket.AF_INET6)
