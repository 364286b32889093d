"""IPVS of one namespace by generic netlink: virtual servers, their destinations, timeouts and counters.

The records are those of ``evidence.ipvs``; pyroute2 encodes the messages (net/netfilter/ipvs/ip_vs_ctl.c,
include/uapi/linux/ip_vs.h). Only the machine's own root may use the family (GENL_ADMIN_PERM), or root of a guest.
"""

import errno
import os
import sys
from collections.abc import Iterable
from ipaddress import IPv4Address, ip_address
from typing import Final

from msgspec.structs import replace

from proxylab.addresses import IPAddress, Protocol
from proxylab.errors import CapabilityError
from proxylab.evidence.ipvs import IpvsCounts, IpvsDestination, IpvsTimeouts, ServerKey, VirtualServer
from proxylab.kernel.netlink.messages import Content, Decoded, Kind, NetlinkRequest, Value
from proxylab.kernel.netlink.socket import NETLINK_GENERIC, open_netlink
from proxylab.kernel.sandbox.netns import NetNs

CURE: Final = "use a kernel that has it: '--kernel uml' runs labs on one"

_CTRL_CMD_GETFAMILY: Final = 3
_NLM_F_ACK: Final = 0x4

# include/uapi/linux/ip_vs.h
_NEW_SERVICE, _SET_SERVICE, _DELETE_SERVICE, _GET_SERVICE = 1, 2, 3, 4
_NEW_DESTINATION, _SET_DESTINATION, _DELETE_DESTINATION, _GET_DESTINATION = 5, 6, 7, 8
_SET_CONFIG, _GET_CONFIG = 12, 13
_PERSISTENT: Final = 0x1
_SCHEDULER_FLAGS: Final = 0x38
_ALL_FLAGS: Final = 0xFFFFFFFF

_AF: Final = {4: 2, 6: 10}
_PROTOCOLS: Final = {protocol.number: protocol for protocol in Protocol}


class IpvsRefusedError(Exception):
    """The kernel refused a change. The message has the change in ipvsadm's options, and the kernel's reason."""


class Ipvs:
    """The table of virtual servers of one namespace. Raises ``CapabilityError``."""

    def __init__(self, netns: NetNs) -> None:
        self._netlink = open_netlink(netns, NETLINK_GENERIC)
        content: Content = {"cmd": _CTRL_CMD_GETFAMILY, "version": 1, "CTRL_ATTR_FAMILY_NAME": "IPVS"}
        try:
            family = self._netlink.one(NetlinkRequest("find IPVS", Kind.GET_GENERIC_FAMILY, 0, content))
        except OSError as error:
            self._netlink.close()
            raise CapabilityError(f"IPVS in the kernel ({error.strerror})", CURE) from error
        self._number = family.need(int, "CTRL_ATTR_FAMILY_ID")

    def close(self) -> None:
        """Close the socket."""
        self._netlink.close()

    def server(self, key: ServerKey) -> VirtualServer | None:
        """One virtual server with its destinations; ``None`` where there is none. Raises ``OSError``."""
        content = {"IPVS_CMD_ATTR_SERVICE": _identity(VirtualServer(**key._asdict()))}
        try:
            found = self._netlink.one(self._request(_GET_SERVICE, "read a virtual server", content, flags=0))
        except OSError as error:
            if error.errno == errno.ESRCH:
                return None
            raise
        server = _read_server(found.part("IPVS_CMD_ATTR_SERVICE"))
        return replace(server, destinations=self.destinations(server))

    def servers(self) -> list[VirtualServer]:
        """All virtual servers with their destinations and counters, in the kernel's order. Raises ``OSError``."""
        return [replace(each, destinations=self.destinations(each)) for each in self.servers_alone()]

    def servers_alone(self) -> list[VirtualServer]:
        """All virtual servers without their destinations, which take a request for each. Raises ``OSError``."""
        dumped = self._netlink.dump(Kind.IPVS, number=self._number, cmd=_GET_SERVICE, version=1)
        return [_read_server(each.part("IPVS_CMD_ATTR_SERVICE")) for each in dumped]

    def destinations(self, server: VirtualServer) -> tuple[IpvsDestination, ...]:
        """The destinations of one virtual server, in the kernel's order. Raises ``OSError``."""
        dumped = self._netlink.dump(
            Kind.IPVS, number=self._number, cmd=_GET_DESTINATION, version=1, IPVS_CMD_ATTR_SERVICE=_identity(server)
        )
        return tuple(_read_destination(each.part("IPVS_CMD_ATTR_DEST")) for each in dumped)

    def add(self, servers: Iterable[VirtualServer]) -> None:
        """Add virtual servers and their destinations. Raises ``IpvsRefusedError``, as all changes do."""
        requests = []
        for server in servers:
            requests.append(self._about(_NEW_SERVICE, "add", server))
            requests += [self._about(_NEW_DESTINATION, "add", server, each) for each in server.destinations]
        self._send(requests)

    def edit(self, servers: Iterable[VirtualServer]) -> None:
        """Change scheduler, persistence and flags of virtual servers; their destinations stay."""
        self._send([self._about(_SET_SERVICE, "edit", server) for server in servers])

    def delete(self, servers: Iterable[VirtualServer]) -> None:
        """Delete virtual servers and their destinations."""
        self._send([self._about(_DELETE_SERVICE, "delete", server) for server in servers])

    def add_destinations(self, pairs: Iterable[tuple[VirtualServer, IpvsDestination]]) -> None:
        """Add destinations, each to the virtual server that it comes with."""
        self._send([self._about(_NEW_DESTINATION, "add", *pair) for pair in pairs])

    def edit_destinations(self, pairs: Iterable[tuple[VirtualServer, IpvsDestination]]) -> None:
        """Change the weights of destinations."""
        self._send([self._about(_SET_DESTINATION, "edit", *pair) for pair in pairs])

    def delete_destinations(self, pairs: Iterable[tuple[VirtualServer, IpvsDestination]]) -> None:
        """Delete destinations. Connections that they have end when their next packet comes, or go on for a while."""
        self._send([self._about(_DELETE_DESTINATION, "delete", *pair) for pair in pairs])

    def timeouts(self) -> IpvsTimeouts:
        """The timeouts of connections. Raises ``OSError``."""
        found = self._netlink.one(self._request(_GET_CONFIG, "read the timeouts", flags=0))
        names = ("TIMEOUT_TCP", "TIMEOUT_TCP_FIN", "TIMEOUT_UDP")
        return IpvsTimeouts(*(found.need(int, f"IPVS_CMD_ATTR_{name}") for name in names))

    def set_timeouts(self, timeouts: IpvsTimeouts) -> None:
        """Set the timeouts that are not 0."""
        content: Content = {
            "IPVS_CMD_ATTR_TIMEOUT_TCP": timeouts.tcp,
            "IPVS_CMD_ATTR_TIMEOUT_TCP_FIN": timeouts.tcp_fin,
            "IPVS_CMD_ATTR_TIMEOUT_UDP": timeouts.udp,
        }
        self._send([self._request(_SET_CONFIG, "set the timeouts", content)])

    def _about(
        self, command: int, verb: str, server: VirtualServer, destination: IpvsDestination | None = None
    ) -> NetlinkRequest:
        """A request about a virtual server, or about one destination of it."""
        what = f"{verb} {server.option}{'' if destination is None else f' -r {destination}'}"
        whole = destination is None and command != _DELETE_SERVICE
        content: dict[str, Value] = {
            "IPVS_CMD_ATTR_SERVICE": {**_identity(server), **(_properties(server) if whole else {})}
        }
        if destination is not None:
            content["IPVS_CMD_ATTR_DEST"] = _destination(destination)
        return self._request(command, what, content)

    def _request(
        self, command: int, what: str, content: Content | None = None, flags: int = _NLM_F_ACK
    ) -> NetlinkRequest:
        header: Content = {"cmd": command, "version": 1}
        return NetlinkRequest(what, Kind.IPVS, flags, {**header, **(content or {})}, number=self._number)

    def _send(self, requests: list[NetlinkRequest]) -> None:
        """Send all requests, then raise for those that the kernel refused."""
        if refused := self._netlink.refused(requests):
            reasons = (f"the kernel refused to {what}: {os.strerror(code)}" for what, code in refused)
            raise IpvsRefusedError("\n".join(reasons))


def _identity(server: VirtualServer) -> dict[str, int | str]:
    return {
        "IPVS_SVC_ATTR_AF": _AF[server.address.version],
        "IPVS_SVC_ATTR_PROTOCOL": server.protocol.number,
        "IPVS_SVC_ATTR_ADDR": str(server.address),
        "IPVS_SVC_ATTR_PORT": server.port,
    }


def _properties(server: VirtualServer) -> Content:
    flags = server.scheduler_flags | (_PERSISTENT if server.persistence else 0)
    # One client is one address. The kernel takes a mask for IPv4, and a prefix's length as a number for IPv6.
    of_a_client = bytes([255] * 4) if server.address.version == 4 else (128).to_bytes(4, sys.byteorder)
    return {
        "IPVS_SVC_ATTR_SCHED_NAME": server.scheduler,
        "IPVS_SVC_ATTR_FLAGS": {"flags": flags, "mask": _ALL_FLAGS},
        "IPVS_SVC_ATTR_TIMEOUT": server.persistence,
        "IPVS_SVC_ATTR_NETMASK": str(IPv4Address(of_a_client)),
    }


def _read_server(found: Decoded) -> VirtualServer:
    flags = found.need(int, "IPVS_SVC_ATTR_FLAGS", "flags")
    return VirtualServer(
        address=ip_address(found.need(str, "IPVS_SVC_ATTR_ADDR")),
        port=found.need(int, "IPVS_SVC_ATTR_PORT"),
        protocol=_PROTOCOLS[found.need(int, "IPVS_SVC_ATTR_PROTOCOL")],
        scheduler=found.need(str, "IPVS_SVC_ATTR_SCHED_NAME"),
        persistence=found.need(int, "IPVS_SVC_ATTR_TIMEOUT") if flags & _PERSISTENT else 0,
        scheduler_flags=flags & _SCHEDULER_FLAGS,
        counts=_counts(found.part("IPVS_SVC_ATTR_STATS64")),
    )


def _destination(destination: IpvsDestination) -> Content:
    return {
        "IPVS_DEST_ATTR_ADDR_FAMILY": _AF[destination.address.version],
        "IPVS_DEST_ATTR_ADDR": str(destination.address),
        "IPVS_DEST_ATTR_PORT": destination.port,
        "IPVS_DEST_ATTR_FWD_METHOD": destination.forwarding,
        "IPVS_DEST_ATTR_WEIGHT": destination.weight,
        "IPVS_DEST_ATTR_U_THRESH": 0,
        "IPVS_DEST_ATTR_L_THRESH": 0,
    }


def _read_destination(found: Decoded) -> IpvsDestination:
    address: IPAddress = ip_address(found.need(str, "IPVS_DEST_ATTR_ADDR"))
    return IpvsDestination(
        address=address,
        port=found.need(int, "IPVS_DEST_ATTR_PORT"),
        weight=found.need(int, "IPVS_DEST_ATTR_WEIGHT"),
        forwarding=found.need(int, "IPVS_DEST_ATTR_FWD_METHOD"),
        active=found.need(int, "IPVS_DEST_ATTR_ACTIVE_CONNS"),
        inactive=found.need(int, "IPVS_DEST_ATTR_INACT_CONNS"),
        persistent=found.need(int, "IPVS_DEST_ATTR_PERSIST_CONNS"),
        counts=_counts(found.part("IPVS_DEST_ATTR_STATS64")),
    )


def _counts(found: Decoded) -> IpvsCounts:
    return IpvsCounts(*(found.need(int, f"IPVS_STATS_ATTR_{name}") for name in ("CONNS", "INPKTS", "OUTPKTS")))
