"""Load-balancer addresses that one node announces in the nodes' segment, as MetalLB's speaker does in layer-2 mode.

No machine has such an address, so no kernel answers ARP or neighbour discovery for it. ``Announcements`` does, by
packet sockets on the announcing node's eth0, for the addresses that Services have. When another node takes over, that
node sends a gratuitous ARP (RFC 5227, section 3) or an unsolicited neighbour advertisement (RFC 4861, section 7.2.6),
by which neighbours change the entries that they have; the former node answers no more, not even a neighbour that asks
it alone whether it is still there.
"""

import asyncio
import struct
from collections.abc import Iterator, Mapping
from contextlib import suppress
from ipaddress import IPv4Address, IPv6Address
from typing import Final, NamedTuple

from proxylab.addresses import Family, IPAddress
from proxylab.cluster.objects import Service, ServiceType
from proxylab.cluster.store import Store
from proxylab.kernel.capture.taps import Tap, open_tap
from proxylab.kernel.netlink.build import Wiring
from proxylab.kernel.netlink.requests import keep_neighbours
from proxylab.plan.forwarding import on_segment
from proxylab.scenario.network import UPLINK

_ARP: Final = 0x0806
_IPV6: Final = 0x86DD
_ICMPV6: Final = 58
_REQUEST, _REPLY = 1, 2
_SOLICITATION, _ADVERTISEMENT = 135, 136
_SOLICITED, _OVERRIDE = 0x40000000, 0x20000000  # RFC 4861, section 4.4
_HOP_LIMIT: Final = 255  # a receiver drops every other one: it proves that no router has forwarded the packet
_ALL_NODES: Final = IPv6Address("ff02::1")

_ETHERNET: Final = struct.Struct("!6s6sH")
_ARP_PACKET: Final = struct.Struct("!HHBBH6s4s6s4s")
_IPV6_HEADER: Final = struct.Struct("!IHBB16s16s")
_NEIGHBOUR_MESSAGE: Final = struct.Struct("!BBHI16s")  # type, code, checksum, flags, target
_LINK_LAYER_OPTION: Final = struct.Struct("!BB6s")

_MESSAGE_AT: Final = _ETHERNET.size + _IPV6_HEADER.size

# Classic BPF (include/uapi/linux/bpf_common.h): load the half word or byte at an offset; how many
# steps to skip if it equals a number, and if not.
_HALF, _BYTE, _IF_EQUAL, _RETURN = 0x28, 0x30, 0x15, 0x06
_REQUESTS: Final = b"".join(
    struct.pack("=HBBI", *step)
    for step in (
        (_HALF, 0, 0, 12),
        (_IF_EQUAL, 0, 2, _ARP),
        (_HALF, 0, 0, _ETHERNET.size + 6),
        (_IF_EQUAL, 5, 6, _REQUEST),
        (_IF_EQUAL, 0, 5, _IPV6),
        (_BYTE, 0, 0, _ETHERNET.size + 6),
        (_IF_EQUAL, 0, 3, _ICMPV6),
        (_BYTE, 0, 0, _MESSAGE_AT),
        (_IF_EQUAL, 0, 1, _SOLICITATION),
        (_RETURN, 0, 0, 0x40000),
        (_RETURN, 0, 0, 0),
    )
)
"""The frames that ask for an address: ARP requests and neighbour solicitations."""


class AddressRequest(NamedTuple):
    """Which machine on the link asks who has ``target``."""

    mac: bytes
    asker: IPAddress
    target: IPAddress


class Announcer(NamedTuple):
    """What an answer says of the announcing node: the MAC and the link-local address of its eth0."""

    mac: bytes
    link_local: IPv6Address

    def answer(self, request: AddressRequest) -> bytes:
        """The frame that answers a request."""
        target, asker = request.target, request.asker
        if isinstance(target, IPv4Address):
            return _arp(_REPLY, self.mac, target, request.mac, asker)
        if asker.is_unspecified:  # it tests whether the address is free, and has none of its own yet
            return self.announcement(target)
        return self._advertisement(target, request.mac, asker, _SOLICITED | _OVERRIDE)

    def announcement(self, address: IPAddress) -> bytes:
        """The frame by which the node tells all neighbours that it has an address now."""
        if isinstance(address, IPv4Address):
            return _arp(_REQUEST, self.mac, address, b"\xff" * 6, address)
        return self._advertisement(address, b"\x33\x33" + _ALL_NODES.packed[-4:], _ALL_NODES, _OVERRIDE)

    def _advertisement(self, target: IPAddress, mac: bytes, destination: IPAddress, flags: int) -> bytes:
        option = _LINK_LAYER_OPTION.pack(2, 1, self.mac)  # the target's link-layer address, in units of eight bytes
        ends = self.link_local.packed + destination.packed
        message = _NEIGHBOUR_MESSAGE.pack(_ADVERTISEMENT, 0, 0, flags, target.packed) + option
        checksum = _checksum(ends + struct.pack("!II", len(message), _ICMPV6) + message)
        message = _NEIGHBOUR_MESSAGE.pack(_ADVERTISEMENT, 0, checksum, flags, target.packed) + option
        header = struct.pack("!IHBB", 6 << 28, len(message), _ICMPV6, _HOP_LIMIT) + ends
        return _ETHERNET.pack(mac, self.mac, _IPV6) + header + message


def read_request(frame: bytes) -> AddressRequest | None:
    """Read an ARP request or a neighbour solicitation; ``None`` for other frames."""
    if len(frame) < _ETHERNET.size:
        return None
    _, mac, kind = _ETHERNET.unpack_from(frame)
    if kind == _ARP and len(frame) >= _ETHERNET.size + _ARP_PACKET.size:
        *_, operation, asker_mac, asker, _, target = _ARP_PACKET.unpack_from(frame, _ETHERNET.size)
        return AddressRequest(asker_mac, IPv4Address(asker), IPv4Address(target)) if operation == _REQUEST else None
    if kind == _IPV6 and len(frame) >= _MESSAGE_AT + _NEIGHBOUR_MESSAGE.size:
        _, _, protocol, _, source, _ = _IPV6_HEADER.unpack_from(frame, _ETHERNET.size)
        sort, _, _, _, target = _NEIGHBOUR_MESSAGE.unpack_from(frame, _MESSAGE_AT)
        if (protocol, sort) == (_ICMPV6, _SOLICITATION):
            return AddressRequest(mac, IPv6Address(source), IPv6Address(target))
    return None


class Announcements:
    """The announced load balancers of one lab, each with the node that answers for it.

    Args:
        wiring: the lab's network; its plan says which node announces at first.
        store: the API, whose Services have the addresses.
    """

    def __init__(self, wiring: Wiring, store: Store) -> None:
        self._wiring = wiring
        self._store = store
        announced = [each for each in wiring.plan.balancers if each.announced_by]
        self._pools: Final = {each.name: each.pool for each in announced}
        self._nodes = {each.name: each.announced_by for each in announced}
        self._announcers: dict[str, Announcer] = {}
        self._taps: dict[str, Tap] = {}

    def start(self) -> None:
        """Begin to answer.

        From then on the segment's machines do not ask again for an address that they know: which node they know must
        not depend on how long a step takes.
        """
        plan, families = self._wiring.plan, {Family.of(each) for pool in self._pools.values() for each in pool}
        for node in dict.fromkeys(self._nodes.values()):
            for end in (plan.end(node, UPLINK), *on_segment(plan, node, UPLINK)):
                requests = [keep_neighbours(end, family) for family in sorted(families)]
                self._wiring.routes[end.namespace].send(requests)
            self._open(node)

    def move(self, name: str, node: str, *, heard: bool) -> None:
        """Let another node answer for a load balancer, and announce that where neighbours are to hear it."""
        self._nodes[name] = node
        self._open(node)
        for address in self._addresses(name) if heard else ():
            self._send(node, self._announcers[node].announcement(address))

    def close(self) -> None:
        """Answer no more."""
        for tap in self._taps.values():
            asyncio.get_running_loop().remove_reader(tap.fileno())
            tap.close()
        self._taps.clear()

    def _open(self, node: str) -> None:
        if node in self._taps:
            return
        plan = self._wiring.plan
        own = (each for each in plan.namespace(node).addresses if each.device == UPLINK)
        link_local = next((each.interface.ip for each in own if each.interface.ip.is_link_local), None)
        mac = bytes.fromhex(plan.end(node, UPLINK).mac.replace(":", ""))
        found = link_local if isinstance(link_local, IPv6Address) else IPv6Address(0)  # no solicitation comes by IPv4
        self._announcers[node] = Announcer(mac, found)
        self._taps[node] = open_tap(self._wiring.namespaces[node], node, UPLINK, _REQUESTS)
        asyncio.get_running_loop().add_reader(self._taps[node].fileno(), self._answer, node)

    def _answer(self, node: str) -> None:
        for frame in self._taps[node].drain():
            request = None if frame.outgoing or frame.otherhost else read_request(frame.data)
            if request is not None and self._answers_for(node, request.target):
                self._send(node, self._announcers[node].answer(request))

    def _answers_for(self, node: str, address: IPAddress) -> bool:
        return any(address in self._addresses(name) for name, each in self._nodes.items() if each == node)

    def _addresses(self, name: str) -> Mapping[IPAddress, None]:
        """The addresses of a balancer's pool that Services have."""
        return dict.fromkeys(each for each in self._given() if any(each in pool for pool in self._pools[name]))

    def _given(self) -> Iterator[IPAddress]:
        for service in self._store.list(Service):
            if service.type is ServiceType.LOAD_BALANCER:
                yield from (address for each in service.load_balancer_ingress for address in each.addresses)

    def _send(self, node: str, frame: bytes) -> None:
        with suppress(OSError):  # ENETDOWN, ENOBUFS: a step has cut the link, which then loses the frame
            self._taps[node].send(frame)


def _arp(operation: int, mac: bytes, address: IPAddress, to_mac: bytes, to_address: IPAddress) -> bytes:
    """An ARP packet for Ethernet and IPv4 that says that ``mac`` has ``address``."""
    asked = bytes(6) if operation == _REQUEST else to_mac
    packet = _ARP_PACKET.pack(1, 0x0800, 6, 4, operation, mac, address.packed, asked, to_address.packed)
    return _ETHERNET.pack(to_mac, mac, _ARP) + packet


def _checksum(data: bytes) -> int:
    """The Internet checksum (RFC 1071) of an even number of bytes."""
    total: int = sum(word for (word,) in struct.iter_unpack("!H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF
