"""Reads from a frame's bytes the few fields by which the lab recognises it.

``dissect`` raises on no bytes whatever and verifies no checksums (a veth carries them unfinished, CHECKSUM_PARTIAL). It
reads IPv4 and IPv6 over Ethernet; of IPv6, packets whose transport header follows at once.

scapy would take 265 us for a frame, and this module takes 2.4 us: a probe of 10,000 flows has 80,000 frames.

A packet quoted by an ICMP error may end after eight bytes of its transport header (RFC 792); Linux quotes as much as
fits into 576 bytes (RFC 1812, section 4.3.2.3; ``icmp_send`` in net/ipv4/icmp.c), and of IPv6 what fits into 1280 (RFC
4443, section 2.4).
"""

import struct
from typing import Final, NamedTuple

from proxylab.addresses import IPAddress, unpacked

# IANA protocol numbers
ICMP: Final = 1
TCP: Final = 6
UDP: Final = 17
ICMPV6: Final = 58
SCTP: Final = 132

_ETHERNET_BYTES: Final = 14
_ETHERTYPE_IPV4: Final = b"\x08\x00"
_ETHERTYPE_IPV6: Final = b"\x86\xdd"

_IPV4: Final = struct.Struct("!BxHxxHxBxx4s4s")
_IPV6: Final = struct.Struct("!B3xHBx16s16s")
_IPV6_BYTES: Final = 40
_IPV4_TTL: Final = _ETHERNET_BYTES + 8
_HOP_LIMIT: Final = _ETHERNET_BYTES + 7
_NEXT_HEADER: Final = _ETHERNET_BYTES + 6
_FRAGMENT_HEADER: Final = 44
_LATER: Final = 0x1FFF  # the offset: not 0 in all fragments but the first (RFC 791, section 3.1)
_FRAGMENT: Final = 0x2000 | _LATER
_PORTS_AND_SEQUENCE: Final = struct.Struct("!HHI")
_TCP: Final = struct.Struct("!HHIIBB")
_UDP: Final = struct.Struct("!HHH")
_TCP_BYTES: Final = 20
_SCTP: Final = struct.Struct("!HHI4xB")
_IDENTIFIER: Final = struct.Struct("!H")
_INITIATE_TAG: Final = struct.Struct("!I")
_SCTP_BYTES: Final = 16  # the common header, and the header of one chunk
_UDP_BYTES: Final = 8
_ICMP_BYTES: Final = 8

# The types that quote the packet they are about right behind their header: of RFC 792, and the errors of RFC 4443.
_ICMP_QUOTING: Final = frozenset({3, 4, 5, 11, 12})
_ICMPV6_QUOTING: Final = frozenset({1, 2, 3, 4})

# Of ICMP and of ICMPv6: no number of the one has another meaning in the other.
_ECHO_REQUEST: Final = frozenset({8, 128})
_ECHO_REPLY: Final = frozenset({0, 129})


class TcpFlag:
    """The bits of a TCP header's control field (RFC 9293, section 3.1)."""

    FIN: Final = 0x01
    SYN: Final = 0x02
    RST: Final = 0x04
    ACK: Final = 0x10


class Chunk:
    """The types of the SCTP chunks that begin or refuse an association (RFC 9260, section 3.2)."""

    INIT: Final = 1
    INIT_ACK: Final = 2
    ABORT: Final = 6


class Datagram(NamedTuple):
    """One IP packet, as far as the lab reads it.

    ``flags`` is ``None`` for all but TCP, and for a quoted TCP packet that ends before them. ``icmp`` is ``(type,
    code)``, of ICMP or of ICMPv6 as ``protocol`` says. ``payload`` is what follows the transport header (for ICMP its
    eight bytes). The identifier of an echo request or reply stands in for the requester's port. Of SCTP, ``flags`` is
    the type of the first chunk, ``sequence`` the initiate tag of an INIT, and ``acknowledged`` the verification tag.
    """

    protocol: int
    source: IPAddress
    destination: IPAddress
    source_port: int = 0
    destination_port: int = 0
    sequence: int = 0
    acknowledged: int = 0
    flags: int | None = None
    icmp: tuple[int, int] | None = None
    payload: bytes = b""
    quoted: "Datagram | None" = None


class PacketMarks(NamedTuple):
    """What a header says besides addresses: the time to live or hop limit, and the mark for queues (DSCP; RFC 2474)."""

    ttl: int = 0
    dscp: int = 0


def marks_of(frame: bytes) -> PacketMarks:
    """The marks of an IP packet over Ethernet; zeros for any other frame, and for a fragment.

    A node that fragments a packet again may write its headers over those that a tap has seen (``traffic.fragments``).
    """
    kind = frame[12:_ETHERNET_BYTES]
    if kind == _ETHERTYPE_IPV4 and len(frame) >= _ETHERNET_BYTES + _IPV4.size:
        if _IPV4.unpack_from(frame, _ETHERNET_BYTES)[2] & _FRAGMENT:
            return PacketMarks()
        return PacketMarks(frame[_IPV4_TTL], frame[_ETHERNET_BYTES + 1] >> 2)
    if (
        kind == _ETHERTYPE_IPV6
        and len(frame) >= _ETHERNET_BYTES + _IPV6_BYTES
        and frame[_NEXT_HEADER] != _FRAGMENT_HEADER
    ):
        return PacketMarks(frame[_HOP_LIMIT], (frame[_ETHERNET_BYTES] & 0xF) << 2 | frame[_ETHERNET_BYTES + 1] >> 6)
    return PacketMarks()


def dissect(frame: bytes) -> Datagram | None:
    """The datagram in an Ethernet frame; ``None`` for anything that is not a whole, well-formed one.

    Fragments, which do not hold the whole packet, and protocols other than TCP, UDP, SCTP and ICMP give ``None``, too.
    An ICMP error may quote a first fragment.
    """
    ethertype = frame[12:_ETHERNET_BYTES]
    if ethertype == _ETHERTYPE_IPV4:
        return _ipv4(frame, _ETHERNET_BYTES, quoted=False)
    if ethertype == _ETHERTYPE_IPV6:
        return _ipv6(frame, _ETHERNET_BYTES, quoted=False)
    return None


def _ipv4(data: bytes, start: int, *, quoted: bool) -> Datagram | None:
    if len(data) < start + 20:
        return None
    version_and_length, total, fragment, protocol, source, destination = _IPV4.unpack_from(data, start)
    header = (version_and_length & 0x0F) * 4
    if version_and_length >> 4 != 4 or header < 20 or total < header or fragment & (_LATER if quoted else _FRAGMENT):
        return None
    end = start + total
    if end > len(data):
        if not quoted:
            return None
        end = len(data)
    at = start + header
    if protocol == TCP:
        return _tcp(data, at, end, unpacked(source), unpacked(destination), quoted=quoted)
    if protocol == UDP:
        return _udp(data, at, end, unpacked(source), unpacked(destination), quoted=quoted)
    if protocol == ICMP:
        return _icmp(data, at, end, unpacked(source), unpacked(destination), quoted=quoted)
    if protocol == SCTP:
        return _sctp(data, at, end, unpacked(source), unpacked(destination))
    return None


def _ipv6(data: bytes, start: int, *, quoted: bool) -> Datagram | None:
    at = start + _IPV6_BYTES
    if len(data) < at:
        return None
    version, length, protocol, source, destination = _IPV6.unpack_from(data, start)
    end = at + length
    if version >> 4 != 6 or (end > len(data) and not quoted):
        return None
    end = min(end, len(data))
    if protocol == TCP:
        return _tcp(data, at, end, unpacked(source), unpacked(destination), quoted=quoted)
    if protocol == UDP:
        return _udp(data, at, end, unpacked(source), unpacked(destination), quoted=quoted)
    if protocol == ICMPV6:
        return _icmp(data, at, end, unpacked(source), unpacked(destination), quoted=quoted, protocol=ICMPV6)
    if protocol == SCTP:
        return _sctp(data, at, end, unpacked(source), unpacked(destination))
    return None


def _tcp(data: bytes, at: int, end: int, source: IPAddress, destination: IPAddress, *, quoted: bool) -> Datagram | None:
    if end - at < _TCP_BYTES:
        if not quoted or end - at < _PORTS_AND_SEQUENCE.size:
            return None
        source_port, destination_port, sequence = _PORTS_AND_SEQUENCE.unpack_from(data, at)
        return Datagram(TCP, source, destination, source_port, destination_port, sequence)
    source_port, destination_port, sequence, acknowledged, offset, flags = _TCP.unpack_from(data, at)
    header = (offset >> 4) * 4
    if header < _TCP_BYTES or (at + header > end and not quoted):
        return None
    payload = data[at + header : end]
    return Datagram(
        TCP, source, destination, source_port, destination_port, sequence, acknowledged, flags, None, payload
    )


def _sctp(data: bytes, at: int, end: int, source: IPAddress, destination: IPAddress) -> Datagram | None:
    if end - at < _SCTP_BYTES:
        return None
    source_port, destination_port, verification_tag, kind = _SCTP.unpack_from(data, at)
    tag = 0
    if kind == Chunk.INIT:
        if end - at < _SCTP_BYTES + _INITIATE_TAG.size:
            return None
        (tag,) = _INITIATE_TAG.unpack_from(data, at + _SCTP_BYTES)
    return Datagram(SCTP, source, destination, source_port, destination_port, tag, verification_tag, kind)


def _udp(data: bytes, at: int, end: int, source: IPAddress, destination: IPAddress, *, quoted: bool) -> Datagram | None:
    if end - at < _UDP_BYTES:
        return None
    source_port, destination_port, length = _UDP.unpack_from(data, at)
    if length < _UDP_BYTES or (at + length > end and not quoted):
        return None
    payload = data[at + _UDP_BYTES : min(at + length, end)]
    return Datagram(UDP, source, destination, source_port, destination_port, 0, 0, None, None, payload)


def _icmp(
    data: bytes,
    at: int,
    end: int,
    source: IPAddress,
    destination: IPAddress,
    *,
    quoted: bool,
    protocol: int = ICMP,
) -> Datagram | None:
    if end - at < _ICMP_BYTES:
        return None
    kind = (data[at], data[at + 1])
    body = at + _ICMP_BYTES
    if kind[0] not in (_ICMP_QUOTING if protocol == ICMP else _ICMPV6_QUOTING):
        near, far = 0, 0
        if kind[0] in _ECHO_REQUEST:
            near = _IDENTIFIER.unpack_from(data, at + 4)[0]
        elif kind[0] in _ECHO_REPLY:
            far = _IDENTIFIER.unpack_from(data, at + 4)[0]
        return Datagram(protocol, source, destination, near, far, icmp=kind, payload=data[body:end])
    # An error about an error is never sent (RFC 1122, section 3.2.2); not following it bounds the recursion.
    inner = None
    if not quoted:
        inner = (_ipv4 if protocol == ICMP else _ipv6)(data[:end], body, quoted=True)
    return Datagram(protocol, source, destination, icmp=kind, quoted=inner)
