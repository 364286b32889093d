"""Crafted frames: scapy builds the first of a probe, and the others are copies with a few bytes changed.

scapy's import costs more than most scenarios, so this module imports it only when a frame is needed.

scapy takes a quarter of a millisecond for a frame. Ten thousand flows differ in their source port, in the initial
sequence number or the token, in the checksum over them, and with many senders in the sender's address. So those bytes
are written into a copy, and the checksum is the template's with the changed words exchanged, in the arithmetic of RFC
1624.
"""

import logging
import struct
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from proxylab.addresses import IPAddress, Transport
from proxylab.plan.resolved import DEFAULT_TTL, ResolvedProbe, Sender
from proxylab.traffic.chunks import init
from proxylab.traffic.identity import TOKEN_BYTES, Identity, TokenKind

_ETHERNET_BYTES: Final = 14
_IP_BYTES: Final = {4: 20, 6: 40}
_SOURCE_AT: Final = {4: _ETHERNET_BYTES + 12, 6: _ETHERNET_BYTES + 8}
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
# What Linux puts into the SYN of an Ethernet device with an MTU of 1500.
_SEGMENT_SIZE: Final = {4: 1460, 6: 1440}
_WINDOW: Final = 64240


def filling(size: int) -> bytes:
    """``size`` bytes of printable text without a newline: the payload beyond the token."""
    return (b"abcdefghijklmnopqrstuvwxyz" * (size // 26 + 1))[:size]


def first_packets(resolved: ResolvedProbe, identity: Identity, ports: Sequence[int]) -> Iterator[bytes]:
    """The first packet of each flow as an Ethernet frame.

    That is a TCP SYN, an SCTP INIT, a UDP datagram with its token, or an ICMP echo request with its token.

    Args:
        resolved: its ``payload`` extends datagrams and echo requests; a SYN carries none.
        identity: gives each flow its initial sequence number or its token.
        ports: one source port for each flow, in the order of the flows; for an echo request, the identifier.
    """
    addresses = resolved.sender.addresses
    if resolved.protocol is Transport.SCTP:
        for flow, port in enumerate(ports):
            yield _init(resolved, addresses[flow % len(addresses)], port, identity.sequence(flow))
        return
    pattern = _PATTERNS[resolved.protocol](resolved, identity)
    templates = [pattern.sent_by(address) for address in addresses[: len(ports)]]
    for flow, port in enumerate(ports):
        yield templates[flow % len(templates)].changed(pattern.changes(flow, port))


def sentinels(sender: Sender, targets: Sequence[tuple[IPAddress, bytes]]) -> Iterator[bytes]:
    """An ICMP echo request (RFC 792, RFC 4443) to each address, carrying the token paired with that address.

    No answer comes back to a loopback address from a link. In place of an unspecified source, the kernel of a node
    writes its own IPv4 address on the link (IP_HDRINCL in raw(7)).
    """
    version = sender.address.version
    unspecified = type(sender.address)(0)
    source = sender.on_links or (unspecified if version == 4 and sender.address.is_loopback else sender.address)
    header = _network_header((sender.mac, sender.next_hop_mac), (source, unspecified))
    frame = bytes(header / _echo_request(version) / bytes(TOKEN_BYTES))
    transport = _ETHERNET_BYTES + _IP_BYTES[version]
    checksum_at, token_at = transport + _ICMP_CHECKSUM_AT, transport + _PAYLOAD_AT
    template = _FrameTemplate.of(frame, checksum_at if version == 6 else _IPV4_CHECKSUM_AT)
    for destination, token in targets:
        where = (_DESTINATION_AT[version], destination.packed)
        if version == 6:
            # ICMPv6's checksum covers the addresses, and IPv6's header has none.
            yield template.changed((where, (token_at, token)))
        else:
            yield _FrameTemplate.of(template.changed((where,)), checksum_at).changed(((token_at, token),))


def _syn(resolved: ResolvedProbe, identity: Identity) -> "_Pattern":
    at = _transport_at(resolved)
    options = [("MSS", _SEGMENT_SIZE[resolved.destination.version])]
    header = _scapy().TCP(sport=0, dport=resolved.port, seq=0, flags="S", window=_WINDOW, options=options)
    return _Pattern(
        _template(resolved, header, at + _TCP_CHECKSUM_AT),
        lambda flow, port: ((at, _WORD.pack(port)), (at + _SEQUENCE_AT, _SEQUENCE.pack(identity.sequence(flow)))),
    )


def _datagram(resolved: ResolvedProbe, identity: Identity) -> "_Pattern":
    at = _transport_at(resolved)
    header = _scapy().UDP(sport=0, dport=resolved.port)
    return _Pattern(
        _template(resolved, header / _payload(resolved, identity), at + _UDP_CHECKSUM_AT, zero=0xFFFF),
        lambda flow, port: ((at, _WORD.pack(port)), (at + _NUMBER_AT, b"%08x" % flow)),
    )


def _echo(resolved: ResolvedProbe, identity: Identity) -> "_Pattern":
    at, version = _transport_at(resolved), resolved.destination.version
    return _Pattern(
        _template(resolved, _echo_request(version) / _payload(resolved, identity), at + _ICMP_CHECKSUM_AT),
        lambda flow, port: ((at + _IDENTIFIER_AT, _WORD.pack(port)), (at + _NUMBER_AT, b"%08x" % flow)),
        covers_addresses=version == 6,
    )


def _payload(resolved: ResolvedProbe, identity: Identity) -> bytes:
    """The payload of a probe's packets; the digits of the flow's number are zeros, so that writing adds them."""
    return identity.token(TokenKind.PROBE, 0)[:-8] + bytes(8) + filling(resolved.payload)


def _transport_at(resolved: ResolvedProbe) -> int:
    return _ETHERNET_BYTES + _IP_BYTES[resolved.destination.version]


def _template(resolved: ResolvedProbe, content: Any, checksum_at: int, zero: int = 0) -> "_FrameTemplate":
    """The template of a probe's packets with this transport content. Its source address is zero."""
    sender, destination = resolved.sender, resolved.destination
    unspecified = type(destination)(0)
    macs = sender.mac, sender.destination_mac
    frame = framed(macs, (unspecified, destination), content, resolved.ttl, resolved.dscp)
    return _FrameTemplate.of(frame, checksum_at, zero)


_PATTERNS: Final = {Transport.TCP: _syn, Transport.UDP: _datagram, Transport.ICMP: _echo}


def _echo_request(version: int) -> Any:
    """An ICMP echo request (RFC 792, RFC 4443) whose identifier is zero."""
    return _scapy().ICMP(type=8) if version == 4 else _scapy6().ICMPv6EchoRequest()


def _init(resolved: ResolvedProbe, address: IPAddress, port: int, tag: int) -> bytes:
    macs = (_packed(resolved.sender.mac), _packed(resolved.sender.destination_mac))
    packet = init(port, resolved.port, tag)
    ends = address, resolved.destination
    return enveloped(macs, ends, resolved.protocol_number, packet, resolved.ttl, resolved.dscp)


def tcp_segment(ports: tuple[int, int], numbers: tuple[int, int], flags: int, text: bytes) -> Any:
    """A segment for ``framed``; ``numbers`` are its sequence and acknowledgement number."""
    inet = _scapy()
    return inet.TCP(sport=ports[0], dport=ports[1], seq=numbers[0], ack=numbers[1], flags=flags, window=_WINDOW) / text


def framed(
    macs: tuple[str, str],
    ends: tuple[IPAddress, IPAddress],
    content: Any,
    ttl: int = DEFAULT_TTL,
    dscp: int = 0,
) -> bytes:
    """A transport packet of scapy as a frame, from the first of ``macs`` and ``ends`` to the second."""
    return bytes(_network_header(macs, ends, ttl, dscp) / content)


def enveloped(
    macs: tuple[bytes, bytes],
    ends: tuple[IPAddress, IPAddress],
    protocol: int,
    packet: bytes,
    ttl: int = DEFAULT_TTL,
    dscp: int = 0,
) -> bytes:
    """A packet behind Ethernet and IP headers, from the first of ``macs`` and ``ends`` to the second."""
    source, destination = ends
    if source.version == 6:
        header = _IPV6.pack(6 << 28 | dscp << 22, len(packet), protocol, ttl, source.packed, destination.packed)
        return macs[1] + macs[0] + b"\x86\xdd" + header + packet
    size = _IP_BYTES[4] + len(packet)
    mark = dscp << 2
    header = _IPV4.pack(0x45, mark, size, 0, _DO_NOT_FRAGMENT, ttl, protocol, 0, source.packed, destination.packed)
    words = sum(struct.unpack("!10H", header))
    checksum = 0xFFFF - (words % 0xFFFF or 0xFFFF)
    return macs[1] + macs[0] + b"\x08\x00" + header[:10] + _WORD.pack(checksum) + header[12:] + packet


def _packed(mac: str) -> bytes:
    """A MAC address, as ``02:00:00:00:00:01``, in its six bytes."""
    return bytes.fromhex(mac.replace(":", ""))


class _FrameTemplate(Struct, frozen=True):
    """A frame whose changing bytes are zero, and the sum of 16-bit words that its checksum complements.

    ``zero`` replaces a checksum of zero: UDP writes 0xFFFF (RFC 768), the other protocols write zero.
    """

    frame: bytes
    checksum_at: int
    words: int
    zero: int

    @classmethod
    def of(cls, frame: bytes, checksum_at: int, zero: int = 0) -> "_FrameTemplate":
        """The template of a frame with a finished checksum at ``checksum_at``."""
        (checksum,) = _WORD.unpack_from(frame, checksum_at)
        return cls(frame, checksum_at, ~checksum & 0xFFFF, zero)

    def changed(self, changes: Sequence[tuple[int, bytes]]) -> bytes:
        """The frame with these bytes written over zeros. Each is whole words at an even distance from the header."""
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


class _Pattern(Struct, frozen=True):
    """The shared template of a probe's first packets, and the bytes that differ from flow to flow.

    Attributes:
        template: a packet from the address zero.
        changes: the bytes for a flow and its port, each with its offset.
        covers_addresses: whether the template's checksum covers the addresses, too.
    """

    template: _FrameTemplate
    changes: Callable[[int, int], Sequence[tuple[int, bytes]]]
    covers_addresses: bool = True

    def sent_by(self, address: IPAddress) -> _FrameTemplate:
        """The template with this source address."""
        at, packed_address = _SOURCE_AT[address.version], address.packed
        if address.version == 4:
            frame = _FrameTemplate.of(self.template.frame, _IPV4_CHECKSUM_AT).changed(((at, packed_address),))
        else:
            frame = self.template.frame[:at] + packed_address + self.template.frame[at + len(packed_address) :]
        covered = int.from_bytes(packed_address, "big") if self.covers_addresses else 0
        return replace(self.template, frame=frame, words=self.template.words + covered)


def _network_header(
    macs: tuple[str, str], ends: tuple[IPAddress, IPAddress], ttl: int = DEFAULT_TTL, dscp: int = 0
) -> Any:
    """Ethernet and IP headers, from the first of ``macs`` and ``ends`` to the second, as a stack writes them."""
    inet = _scapy()
    ethernet = inet.Ether(src=macs[0], dst=macs[1])
    source, destination = map(str, ends)
    if ends[1].version == 6:
        return ethernet / _scapy6().IPv6(src=source, dst=destination, hlim=ttl, tc=dscp << 2)
    return ethernet / inet.IP(src=source, dst=destination, flags="DF", ttl=ttl, tos=dscp << 2)


@cache
def _scapy() -> Any:
    """scapy.layers.inet, imported without its warnings and without reading the machine's own routes."""
    logging.getLogger("scapy").setLevel(logging.ERROR)
    from scapy.config import conf  # noqa: PLC0415

    conf.route_autoload = False
    conf.route6_autoload = False
    from scapy.layers import inet  # noqa: PLC0415

    return inet


@cache
def _scapy6() -> Any:
    """scapy.layers.inet6, imported only when IPv6 is sent."""
    _scapy()
    from scapy.layers import inet6  # noqa: PLC0415

    return inet6
