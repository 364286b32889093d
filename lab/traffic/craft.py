"""Crafted frames: the first of an errand built by scapy, the others by changing what differs from flow to flow.

Owns: ``first_packets`` and ``fences``, and the ``enveloped`` packets of others.
Must not: send, or import scapy before a frame is asked for (its import costs more than most scenarios).

Building a frame in scapy costs a quarter of a millisecond, and ten thousand flows differ in their source port, in the
initial sequence number or the token, and in the checksum over them. So those bytes are written into a copy, and the
checksum is the template's with the changed words exchanged, in the arithmetic of RFC 1624.
"""

import logging
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import zip_longest
from typing import Any, Final

from lab.ip import IPAddress, Transport
from lab.plan.errand import Errand, Sender
from lab.traffic.chunks import init
from lab.traffic.identity import TOKEN_BYTES, Identity, Kind

__all__ = ["enveloped", "fences", "filling", "first_packets", "packed"]

_ETHERNET_BYTES: Final = 14
_IP_BYTES: Final = {4: 20, 6: 40}
_DESTINATION_AT: Final = {4: _ETHERNET_BYTES + 16, 6: _ETHERNET_BYTES + 24}
_IPV4_CHECKSUM_AT: Final = _ETHERNET_BYTES + 10

# From the start of the transport header.
_SEQUENCE_AT: Final = 4
_TCP_CHECKSUM_AT: Final = 16
_UDP_CHECKSUM_AT: Final = 6
_ICMP_CHECKSUM_AT: Final = 2
_IDENTIFIER_AT: Final = 4
_PAYLOAD_AT: Final = 8  # behind a header of UDP or ICMP
_NUMBER_AT: Final = _PAYLOAD_AT + TOKEN_BYTES - 8

_WORD: Final = struct.Struct("!H")
_SEQUENCE: Final = struct.Struct("!I")
_IPV4: Final = struct.Struct("!BBHHHBBH4s4s")
_IPV6: Final = struct.Struct("!IHBB16s16s")
_DO_NOT_FRAGMENT: Final = 0x4000
_HOPS: Final = 64

# What Linux puts into the SYN of an Ethernet device with an MTU of 1500.
_SEGMENT_SIZE: Final = {4: 1460, 6: 1440}
_WINDOW: Final = 64240


def filling(size: int) -> bytes:
    """``size`` bytes of printable text without a newline, which is how the payload beyond the token is made."""
    return (b"abcdefghijklmnopqrstuvwxyz" * (size // 26 + 1))[:size]


def first_packets(errand: Errand, identity: Identity, ports: Sequence[int]) -> Iterator[bytes]:
    """The first packet of each flow as an Ethernet frame.

    That is a TCP SYN, an SCTP INIT, a UDP datagram with its token, or an ICMP echo request with its token.

    Args:
        errand: its ``payload`` is added to datagrams and echo requests; a SYN carries none.
        identity: gives each flow its initial sequence number or its token.
        ports: one source port per flow, in the order of the flows; of an echo request, the identifier.
    """
    flows, addresses = tuple(enumerate(ports)), errand.sender.addresses
    turns = [
        _frames(
            replace(errand, sender=replace(errand.sender, address=address)), identity, flows[turn :: len(addresses)]
        )
        for turn, address in enumerate(addresses)
    ]
    return turns[0] if len(turns) == 1 else _dealt(turns)


def _dealt(turns: Sequence[Iterator[bytes]]) -> Iterator[bytes]:
    """One frame of each in turn, until none has any more."""
    for frames in zip_longest(*turns):
        yield from (frame for frame in frames if frame is not None)


def _frames(errand: Errand, identity: Identity, flows: Sequence[tuple[int, int]]) -> Iterator[bytes]:
    """Those of some flows, each with its source port, which all leave from the sender's own address."""
    match errand.protocol:
        case Transport.TCP:
            return _syns(errand, identity, flows)
        case Transport.UDP:
            return _datagrams(errand, identity, flows)
        case Transport.SCTP:
            return _inits(errand, identity, flows)
        case Transport.ICMP:
            return _echoes(errand, identity, flows)


def fences(sender: Sender, targets: Sequence[tuple[IPAddress, bytes]]) -> Iterator[bytes]:
    """An ICMP echo request (RFC 792, RFC 4443) to each address, carrying the token that stands beside it."""
    version = sender.address.version
    nowhere = type(sender.address)(0)
    frame = bytes(_network_header(sender, nowhere, sender.next_hop_mac) / _echo_request(version) / bytes(TOKEN_BYTES))
    transport = _ETHERNET_BYTES + _IP_BYTES[version]
    checksum_at, token_at = transport + _ICMP_CHECKSUM_AT, transport + _PAYLOAD_AT
    template = _Template.of(frame, checksum_at if version == 6 else _IPV4_CHECKSUM_AT)
    for destination, token in targets:
        where = (_DESTINATION_AT[version], destination.packed)
        if version == 6:
            # ICMPv6's checksum covers the addresses, and IPv6's header has none.
            yield template.changed((where, (token_at, token)))
        else:
            yield _Template.of(template.changed((where,)), checksum_at).changed(((token_at, token),))


def _syns(errand: Errand, identity: Identity, flows: Sequence[tuple[int, int]]) -> Iterator[bytes]:
    inet = _scapy()
    version = errand.destination.version
    options = [("MSS", _SEGMENT_SIZE[version])]
    header = inet.TCP(sport=0, dport=errand.port, seq=0, flags="S", window=_WINDOW, options=options)
    at = _ETHERNET_BYTES + _IP_BYTES[version]
    frame = bytes(_network_header(errand.sender, errand.destination, errand.sender.framed_to) / header)
    template = _Template.of(frame, at + _TCP_CHECKSUM_AT)
    for flow, port in flows:
        changes = ((at, _WORD.pack(port)), (at + _SEQUENCE_AT, _SEQUENCE.pack(identity.sequence(flow))))
        yield template.changed(changes)


def _datagrams(errand: Errand, identity: Identity, flows: Sequence[tuple[int, int]]) -> Iterator[bytes]:
    inet = _scapy()
    # The digits of the number are zero bytes in the template, so that changing them means adding them.
    payload = identity.token(Kind.PROBE, 0)[:-8] + bytes(8) + filling(errand.payload)
    header = inet.UDP(sport=0, dport=errand.port)
    frame = bytes(_network_header(errand.sender, errand.destination, errand.sender.framed_to) / header / payload)
    at = _ETHERNET_BYTES + _IP_BYTES[errand.destination.version]
    template = _Template.of(frame, at + _UDP_CHECKSUM_AT, zero=0xFFFF)
    for flow, port in flows:
        yield template.changed(((at, _WORD.pack(port)), (at + _NUMBER_AT, b"%08x" % flow)))


def _echoes(errand: Errand, identity: Identity, flows: Sequence[tuple[int, int]]) -> Iterator[bytes]:
    version = errand.destination.version
    payload = identity.token(Kind.PROBE, 0)[:-8] + bytes(8) + filling(errand.payload)
    frame = bytes(
        _network_header(errand.sender, errand.destination, errand.sender.framed_to) / _echo_request(version) / payload
    )
    at = _ETHERNET_BYTES + _IP_BYTES[version]
    template = _Template.of(frame, at + _ICMP_CHECKSUM_AT)
    for flow, port in flows:
        yield template.changed(((at + _IDENTIFIER_AT, _WORD.pack(port)), (at + _NUMBER_AT, b"%08x" % flow)))


def _echo_request(version: int) -> Any:
    """An ICMP echo request (RFC 792, RFC 4443) whose identifier is zero."""
    return _scapy().ICMP(type=8) if version == 4 else _scapy6().ICMPv6EchoRequest()


def _inits(errand: Errand, identity: Identity, flows: Sequence[tuple[int, int]]) -> Iterator[bytes]:
    sender = errand.sender
    macs = (packed(sender.mac), packed(sender.framed_to))
    for flow, port in flows:
        packet = init(port, errand.port, identity.sequence(flow))
        yield enveloped(macs, (sender.address, errand.destination), errand.protocol_number, packet)


def enveloped(macs: tuple[bytes, bytes], ends: tuple[IPAddress, IPAddress], protocol: int, packet: bytes) -> bytes:
    """A packet behind headers of Ethernet and IP, from the first of ``macs`` and of ``ends`` to the second."""
    source, destination = ends
    if source.version == 6:
        header = _IPV6.pack(6 << 28, len(packet), protocol, _HOPS, source.packed, destination.packed)
        return macs[1] + macs[0] + b"\x86\xdd" + header + packet
    size = _IP_BYTES[4] + len(packet)
    header = _IPV4.pack(0x45, 0, size, 0, _DO_NOT_FRAGMENT, _HOPS, protocol, 0, source.packed, destination.packed)
    words = sum(struct.unpack("!10H", header))
    checksum = 0xFFFF - (words % 0xFFFF or 0xFFFF)
    return macs[1] + macs[0] + b"\x08\x00" + header[:10] + _WORD.pack(checksum) + header[12:] + packet


def packed(mac: str) -> bytes:
    """A MAC address, as ``02:00:00:00:00:01``, in its six bytes."""
    return bytes.fromhex(mac.replace(":", ""))


@dataclass(frozen=True, slots=True)
class _Template:
    """A frame whose changing bytes are zero, and the sum of 16-bit words that its checksum complements.

    ``zero`` is how a checksum of zero is written: by UDP as 0xFFFF (RFC 768), by the others as it is.
    """

    frame: bytes
    checksum_at: int
    words: int
    zero: int

    @classmethod
    def of(cls, frame: bytes, checksum_at: int, zero: int = 0) -> "_Template":
        """The template of a frame with a finished checksum at ``checksum_at``."""
        (checksum,) = _WORD.unpack_from(frame, checksum_at)
        return cls(frame, checksum_at, ~checksum & 0xFFFF, zero)

    def changed(self, changes: Sequence[tuple[int, bytes]]) -> bytes:
        """The frame with these bytes written over zeros. All are whole words at even distance from the header."""
        frame = bytearray(self.frame)
        words = self.words
        for at, new in changes:
            frame[at : at + len(new)] = new
            # 2**16 is 1 modulo 2**16 - 1, so a big-endian number of any length is congruent to the sum of its words.
            words += int.from_bytes(new, "big")
        # A sum that is not zero folds to 1..0xFFFF, and its complement is the checksum.
        checksum = 0xFFFF - (words % 0xFFFF or 0xFFFF) or self.zero
        _WORD.pack_into(frame, self.checksum_at, checksum)
        return bytes(frame)


def _network_header(sender: Sender, destination: IPAddress, mac: str) -> object:
    """Ethernet and IP, as the sender's own stack would write them if it took ``mac`` for that of the next hop."""
    inet = _scapy()
    ethernet = inet.Ether(dst=mac, src=sender.mac)
    if destination.version == 6:
        return ethernet / _scapy6().IPv6(src=str(sender.address), dst=str(destination))
    return ethernet / inet.IP(src=str(sender.address), dst=str(destination), flags="DF")


@cache
def _scapy() -> Any:
    """scapy.layers.inet, imported quietly and without a look at this machine's routes, which are not the lab's."""
    logging.getLogger("scapy").setLevel(logging.ERROR)
    from scapy.config import conf  # noqa: PLC0415

    conf.route_autoload = False
    conf.route6_autoload = False
    from scapy.layers import inet  # noqa: PLC0415

    return inet


@cache
def _scapy6() -> Any:
    """scapy.layers.inet6, for those who send IPv6."""
    _scapy()
    from scapy.layers import inet6  # noqa: PLC0415

    return inet6
