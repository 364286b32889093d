"""The sets of ipset in one namespace: made, filled and listed by netlink.

The records are those of ``evidence.ipvs``; pyroute2 encodes the messages (net/netfilter/ipset/ip_set_core.c,
include/uapi/linux/netfilter/ipset/ip_set.h).
"""

import os
from collections.abc import Iterable, Mapping
from ipaddress import ip_address, ip_network
from typing import Final

from msgspec.structs import replace

from proxylab.addresses import Family, IPAddress, IPNetwork, Protocol
from proxylab.evidence.ipvs import IpSet, Member
from proxylab.kernel.netlink.messages import Content, Decoded, Kind, NetlinkRequest, Value
from proxylab.kernel.netlink.socket import NETLINK_NETFILTER, open_netlink
from proxylab.kernel.sandbox.netns import NetNs

_PROTOCOL: Final = 6  # the oldest that kernels still take, and ipset 6 and 7 speak
_NLM_F_ACK: Final = 0x4
_NLM_F_CREATE: Final = 0x400
_AF: Final = {Family.IPV4: 2, Family.IPV6: 10, None: 0}
_FAMILIES: Final = {number: family for family, number in _AF.items()}
_PROTOCOLS: Final = {protocol.number: protocol for protocol in Protocol}
_LAST_PORT: Final = 65535
_NETWORK: Final = "net"
_PORTS: Final = "bitmap:port"
_REASONS: Final[Mapping[int, str | None]] = {
    4097: "another protocol",
    4098: "the kernel lacks that type of set",
    4099: "too many sets",
    4100: "a rule uses the set",
    4103: "it exists already, or does not exist",
    4352: "the set is full",
}
"""IPSET_ERR_* of ip_set.h, which stand where other families have an errno."""


class SetsRefusedError(Exception):
    """The kernel refused a change; the message has a line for each, in ipset's words."""


class IpSets:
    """All sets of one namespace."""

    def __init__(self, netns: NetNs) -> None:
        self._netlink = open_netlink(netns, NETLINK_NETFILTER)
        self._revisions: dict[tuple[str, Family | None], int] = {}

    def close(self) -> None:
        """Close the socket."""
        self._netlink.close()

    def sets(self) -> list[IpSet]:
        """Every set with its members. Raises ``OSError``."""
        found: dict[str, IpSet] = {}
        for part in self._netlink.dump(Kind.LIST_SETS, IPSET_ATTR_PROTOCOL=_PROTOCOL):
            name = part.need(str, "IPSET_ATTR_SETNAME")
            kind = part.find(str, "IPSET_ATTR_TYPENAME")
            if kind is not None:  # a set with many members comes in several parts, and the first one has its type
                family = _FAMILIES[part.need(int, "IPSET_ATTR_FAMILY")]
                found[name] = IpSet(name=name, kind=kind, family=None if kind == _PORTS else family)
            members = part.find(dict, "IPSET_ATTR_ADT")
            if members is not None:
                known = found[name]
                read = (_read_member(each, known.kind) for each in part.part("IPSET_ATTR_ADT").parts("IPSET_ATTR_DATA"))
                found[name] = replace(known, members=known.members.union(read))
        return list(found.values())

    def create(self, sets: Iterable[IpSet]) -> None:
        """Make sets and their members. Raises ``SetsRefusedError``, as all changes do."""
        for each in sets:
            self._send([self._create(each)])
            self.add(each, each.members)

    def destroy(self, names: Iterable[str]) -> None:
        """Destroy sets; the kernel refuses for a set that a rule names."""
        self._send([_about(Kind.DESTROY_SET, f"destroy {name}", name) for name in names])

    def add(self, to: IpSet, members: Iterable[Member]) -> None:
        """Add members; those that the set has stay as they are."""
        self._send([_of_member(Kind.ADD_MEMBER, "add", to, each) for each in members])

    def delete(self, of: IpSet, members: Iterable[Member]) -> None:
        """Delete members; nothing happens for those that the set does not have."""
        self._send([_of_member(Kind.DELETE_MEMBER, "del", of, each) for each in members])

    def _create(self, wanted: IpSet) -> NetlinkRequest:
        ports: Content = {"IPSET_ATTR_PORT_FROM": 0, "IPSET_ATTR_PORT_TO": _LAST_PORT}
        content: Content = {
            "IPSET_ATTR_TYPENAME": wanted.kind,
            "IPSET_ATTR_REVISION": self._revision(wanted),
            "IPSET_ATTR_FAMILY": _AF[wanted.family],
            "IPSET_ATTR_DATA": ports if wanted.kind == _PORTS else {},
        }
        return _about(Kind.CREATE_SET, f"create {wanted.name} {wanted.kind}", wanted.name, content, _NLM_F_CREATE)

    def _revision(self, wanted: IpSet) -> int:
        """The newest revision of a type that the kernel has."""
        kind = wanted.kind, wanted.family
        if kind not in self._revisions:
            content: Content = {
                "IPSET_ATTR_PROTOCOL": _PROTOCOL,
                "IPSET_ATTR_TYPENAME": wanted.kind,
                "IPSET_ATTR_FAMILY": _AF[wanted.family],
            }
            try:
                found = self._netlink.one(NetlinkRequest("find the type of a set", Kind.GET_SET_TYPE, 0, content))
            except OSError as error:
                reason = _REASONS.get(error.errno or 0, error.strerror)
                raise SetsRefusedError(f"create {wanted.name} {wanted.kind}: {reason}") from error
            self._revisions[kind] = found.need(int, "IPSET_ATTR_REVISION")
        return self._revisions[kind]

    def _send(self, requests: list[NetlinkRequest]) -> None:
        """Send all requests, then raise for those that the kernel refused."""
        if refused := self._netlink.refused(requests):
            reasons = (f"{what}: {_REASONS.get(code) or os.strerror(code)}" for what, code in refused)
            raise SetsRefusedError("\n".join(reasons))


def _about(kind: Kind, what: str, name: str, content: Content | None = None, flags: int = 0) -> NetlinkRequest:
    head: Content = {"IPSET_ATTR_PROTOCOL": _PROTOCOL, "IPSET_ATTR_SETNAME": name}
    return NetlinkRequest(what, kind, flags | _NLM_F_ACK, {**head, **(content or {})})


def _of_member(kind: Kind, verb: str, of: IpSet, member: Member) -> NetlinkRequest:
    data: dict[str, Value] = {}
    if member.address is not None:
        data["IPSET_ATTR_IP"] = _address(member.address)
    if isinstance(member.other, IPNetwork):
        data |= {"IPSET_ATTR_IP2": _address(member.other.network_address), "IPSET_ATTR_CIDR2": member.other.prefixlen}
    elif member.other is not None:
        data["IPSET_ATTR_IP2"] = _address(member.other)
    if member.port is not None:
        data["IPSET_ATTR_PORT"] = member.port
    if member.protocol is not None:
        data["IPSET_ATTR_PROTO"] = member.protocol.number
    return _about(kind, f"{verb} {of.name} {member}", of.name, {"IPSET_ATTR_DATA": data})


def _address(address: IPAddress) -> Content:
    return {f"IPSET_ATTR_IPADDR_IPV{address.version}": str(address)}


def _read_member(found: Decoded, kind: str) -> Member:
    protocol, other = found.find(int, "IPSET_ATTR_PROTO"), _read_address(found, "IPSET_ATTR_IP2")
    return Member(
        address=_read_address(found, "IPSET_ATTR_IP_FROM"),
        protocol=None if protocol is None else _PROTOCOLS.get(protocol),
        port=found.find(int, "IPSET_ATTR_PORT_FROM"),
        other=ip_network((other, found.find(int, "IPSET_ATTR_CIDR2") or 0))
        if other is not None and kind.endswith(_NETWORK)
        else other,
    )


def _read_address(found: Decoded, attribute: str) -> IPAddress | None:
    for version in (4, 6):
        text = found.find(str, attribute, f"IPSET_ATTR_IPADDR_IPV{version}")
        if text is not None:
            return ip_address(text)
    return None
