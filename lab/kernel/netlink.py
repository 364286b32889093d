"""Route netlink, one socket per namespace, many messages per system call.

Owns: the encoding of links, addresses, routes and neighbours, and the reading of the kernel's answers.
Must not: know a plan; ``kernel.realise`` says what to send.

The messages are pyroute2's; the sockets are ours, since pyroute2's own API forks for every namespace (ten times the
time of a whole lab). A batch goes out in one sendmsg(2), and every message asks for an acknowledgement, so that an
error is that of one message and can name it.
"""

import errno
import os
import socket
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv6Address
from typing import Any, Final

from pyroute2.netlink.rtnl.ifaddrmsg import ifaddrmsg
from pyroute2.netlink.rtnl.ifinfmsg import ifinfmsg
from pyroute2.netlink.rtnl.ndmsg import ndmsg
from pyroute2.netlink.rtnl.rtmsg import rtmsg

from lab.errors import InternalError
from lab.ip import IPAddress, IPNetwork
from lab.kernel.netns import NetNs, inside
from lab.plan.model import Address, Bridge, LinkEnd, Neighbour, Route, Veth

__all__ = [
    "Request",
    "RouteSocket",
    "add_address",
    "add_bridge",
    "add_neighbour",
    "add_route",
    "add_veth",
    "get_link",
    "replace_route",
    "set_loopback_up",
    "set_up",
]

# include/uapi/linux/netlink.h and rtnetlink.h
_NLM_F_REQUEST: Final = 0x1
_NLM_F_ACK: Final = 0x4
_NLM_F_REPLACE: Final = 0x100
_NLM_F_EXCL: Final = 0x200
_NLM_F_CREATE: Final = 0x400
_NLMSG_ERROR: Final = 2
_RTM_NEWLINK: Final = 16
_RTM_GETLINK: Final = 18
_RTM_NEWADDR: Final = 20
_RTM_NEWROUTE: Final = 24
_RTM_NEWNEIGH: Final = 28
_SOL_NETLINK: Final = 270
_NETLINK_CAP_ACK: Final = 10
_NETLINK_EXT_ACK: Final = 11
_NLM_F_CAPPED: Final = 0x100
_NLMSGERR_ATTR_MSG: Final = 1
_IFF_UP: Final = 0x1
_IFA_F_NODAD: Final = 0x02
_RT_SCOPE_UNIVERSE: Final = 0
_RT_SCOPE_LINK: Final = 253
_RT_TABLE_MAIN: Final = 254
_RTPROT_STATIC: Final = 4
_RTN_UNICAST: Final = 1
_NUD_PERMANENT: Final = 0x80

_HEADER: Final = struct.Struct("=IHHII")
_BATCH: Final = 64  # acknowledgements of a batch must fit the socket's receive buffer, 208 KiB for an ordinary user


@dataclass(frozen=True, slots=True)
class Request:
    """One message and the words for it, should the kernel refuse it."""

    what: str
    kind: int
    flags: int
    message: Any


class RouteSocket:
    """A NETLINK_ROUTE socket in one namespace."""

    def __init__(self, netns: NetNs) -> None:
        self._name = netns.name
        self._sequence = 0
        with inside(netns):
            self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE)
        self._socket.setsockopt(_SOL_NETLINK, _NETLINK_CAP_ACK, 1)
        self._socket.setsockopt(_SOL_NETLINK, _NETLINK_EXT_ACK, 1)

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def send(self, requests: Sequence[Request]) -> None:
        """Carry out ``requests`` in order.

        Raises:
            InternalError: naming the first request that the kernel refused, its errno and the kernel's own words.
        """
        for start in range(0, len(requests), _BATCH):
            self._send_batch(requests[start : start + _BATCH])

    def _send_batch(self, requests: Sequence[Request]) -> None:
        waiting: dict[int, Request] = {}
        parts: list[bytes] = []
        for request in requests:
            self._sequence += 1
            waiting[self._sequence] = request
            header = request.message["header"]
            header["type"] = request.kind
            header["flags"] = request.flags | _NLM_F_REQUEST | _NLM_F_ACK
            header["sequence_number"] = self._sequence
            request.message.encode()
            parts.append(bytes(request.message.data))
        self._socket.sendmsg(parts)
        refused: InternalError | None = None
        while waiting:
            data = self._socket.recv(1 << 18)
            for kind, flags, sequence, body in _messages(data):
                if kind != _NLMSG_ERROR:
                    continue  # the link that RTM_GETLINK asked for; its acknowledgement follows
                request = waiting.pop(sequence)
                code = -struct.unpack_from("=i", body)[0]
                if code and refused is None:
                    words = _kernel_words(body, flags)
                    refused = InternalError(
                        f"{self._name}: the kernel refused to {request.what}: "
                        f"{errno.errorcode.get(code, code)} ({os.strerror(code)}){words}"
                    )
        if refused is not None:
            raise refused


def _messages(data: bytes) -> list[tuple[int, int, int, bytes]]:
    """Split what one recv gave into (type, flags, sequence number, body)."""
    found = []
    offset = 0
    while offset + _HEADER.size <= len(data):
        length, kind, flags, sequence, _ = _HEADER.unpack_from(data, offset)
        found.append((kind, flags, sequence, data[offset + _HEADER.size : offset + length]))
        offset += (length + 3) & ~3
    return found


def _kernel_words(body: bytes, flags: int) -> str:
    """The text of an extended acknowledgement (NLMSGERR_ATTR_MSG), or nothing."""
    offset = 4 + _HEADER.size
    if not flags & _NLM_F_CAPPED:
        return ""
    while offset + 4 <= len(body):
        length, kind = struct.unpack_from("=HH", body, offset)
        if kind == _NLMSGERR_ATTR_MSG:
            return ": " + body[offset + 4 : offset + length].rstrip(b"\0").decode(errors="replace")
        offset += max(4, (length + 3) & ~3)
    return ""


def _family(address: IPAddress | IPNetwork) -> int:
    return int(socket.AF_INET if address.version == 4 else socket.AF_INET6)


def _link(index: int, *attributes: tuple[str, Any], up: bool = False) -> Any:
    message = ifinfmsg()
    message["index"] = index
    if up:
        message["flags"] = _IFF_UP
        message["change"] = _IFF_UP
    message["attrs"] = list(attributes)
    return message


def add_bridge(bridge: Bridge) -> Request:
    """Make a bridge, down."""
    message = _link(
        bridge.index,
        ("IFLA_IFNAME", bridge.device),
        ("IFLA_ADDRESS", bridge.mac),
        ("IFLA_LINKINFO", {"attrs": [("IFLA_INFO_KIND", "bridge")]}),
    )
    return Request(f"make the bridge {bridge.device}", _RTM_NEWLINK, _NLM_F_CREATE | _NLM_F_EXCL, message)


def add_veth(link: Veth, peer: NetNs) -> Request:
    """Make a veth pair: the first end in the socket's namespace, the second in ``peer``, both down.

    Made in place, since moving an end afterwards waits for an RCU grace period (19 ms instead of 0.3). One queue a
    side: the default is one per possible processor, which costs up to 2 ms a pair on a big machine. The second end
    must be created down (IFF_UP in VETH_INFO_PEER is answered with ENOTCONN).
    """
    queues = [("IFLA_NUM_TX_QUEUES", 1), ("IFLA_NUM_RX_QUEUES", 1)]
    peer_message = {
        "index": link.second.index,
        "attrs": [
            ("IFLA_IFNAME", link.second.device),
            ("IFLA_ADDRESS", link.second.mac),
            ("IFLA_NET_NS_FD", peer.fd),
            *queues,
        ],
    }
    data = {"attrs": [("VETH_INFO_PEER", peer_message)]}
    message = _link(
        link.first.index,
        ("IFLA_IFNAME", link.first.device),
        ("IFLA_ADDRESS", link.first.mac),
        *queues,
        ("IFLA_LINKINFO", {"attrs": [("IFLA_INFO_KIND", "veth"), ("IFLA_INFO_DATA", data)]}),
    )
    what = f"make the veth {link.first.device} to {peer.name}/{link.second.device}"
    return Request(what, _RTM_NEWLINK, _NLM_F_CREATE | _NLM_F_EXCL, message)


def set_up(end: LinkEnd | Bridge, master: int | None = None) -> Request:
    """Bring a device up; as a port of the bridge with index ``master`` if given."""
    attributes = [] if master is None else [("IFLA_MASTER", master)]
    return Request(f"bring {end.device} up", _RTM_NEWLINK, 0, _link(end.index, *attributes, up=True))


def set_loopback_up() -> Request:
    """Bring ``lo`` up; it has index 1 in every namespace (net/core/dev.c)."""
    return Request("bring lo up", _RTM_NEWLINK, 0, _link(1, up=True))


def get_link(end: LinkEnd | Bridge) -> Request:
    """Ask for one device, which makes the kernel handle its pending carrier event at once (rtnl_getlink)."""
    return Request(f"read {end.device}", _RTM_GETLINK, 0, _link(end.index))


def add_address(address: Address, index: int) -> Request:
    """Give a device an address, without duplicate address detection."""
    interface = address.interface
    message = ifaddrmsg()
    message["family"] = _family(interface.ip)
    message["prefixlen"] = interface.network.prefixlen
    message["index"] = index
    message["scope"] = _RT_SCOPE_UNIVERSE
    attributes: list[tuple[str, Any]] = [("IFA_LOCAL", str(interface.ip)), ("IFA_ADDRESS", str(interface.ip))]
    if isinstance(interface.ip, IPv6Address):
        message["flags"] = _IFA_F_NODAD
    message["attrs"] = attributes
    what = f"give {address.device} the address {interface}"
    return Request(what, _RTM_NEWADDR, _NLM_F_CREATE | _NLM_F_EXCL, message)


def add_route(route: Route, index: int) -> Request:
    """Add a route to the main table."""
    return _route(route, index, _NLM_F_CREATE | _NLM_F_EXCL)


def replace_route(route: Route, index: int) -> Request:
    """Add a route, or put it in the place of the one with the same destination."""
    return _route(route, index, _NLM_F_CREATE | _NLM_F_REPLACE)


def _route(route: Route, index: int, flags: int) -> Request:
    message = rtmsg()
    message["family"] = _family(route.destination)
    message["dst_len"] = route.destination.prefixlen
    message["table"] = _RT_TABLE_MAIN
    message["proto"] = _RTPROT_STATIC
    message["type"] = _RTN_UNICAST
    message["scope"] = _RT_SCOPE_LINK if route.via is None else _RT_SCOPE_UNIVERSE
    attributes: list[tuple[str, Any]] = [("RTA_OIF", index)]
    if route.destination.prefixlen:
        attributes.append(("RTA_DST", str(route.destination.network_address)))
    if route.via is not None:
        attributes.append(("RTA_GATEWAY", str(route.via)))
    if route.source is not None:
        attributes.append(("RTA_PREFSRC", str(route.source)))
    message["attrs"] = attributes
    way = f"via {route.via} on {route.device}" if route.via else f"on {route.device}"
    return Request(f"route {route.destination} {way}", _RTM_NEWROUTE, flags, message)


def add_neighbour(neighbour: Neighbour, index: int) -> Request:
    """Add a permanent neighbour."""
    message = ndmsg()
    message["family"] = _family(neighbour.address)
    message["ifindex"] = index
    message["state"] = _NUD_PERMANENT
    message["attrs"] = [("NDA_DST", str(neighbour.address)), ("NDA_LLADDR", neighbour.mac)]
    what = f"note the neighbour {neighbour.address} on {neighbour.device}"
    return Request(what, _RTM_NEWNEIGH, _NLM_F_CREATE | _NLM_F_REPLACE, message)
