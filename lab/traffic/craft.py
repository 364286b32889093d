"""Crafted frames: the first of an errand built by scapy, the others by changing what differs from flow to flow.

Owns: ``first_packets`` and ``fences``.
Must not: send, or import scapy before a frame is asked for (its import costs more than most scenarios).

Building a frame in scapy costs a quarter of a millisecond, and ten thousand flows differ in their source port, in the
initial sequence number or the token, and in the checksum over them. So those bytes are written into a copy, and the
checksum is the template's with the changed words exchanged, in the arithmetic of RFC 1624.
"""

import logging
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from lab.ip import IPAddress, Protocol
from lab.plan.errand import Errand, Sender
from lab.traffic.identity import TOKEN_BYTES, Identity, Kind

__all__ = ["fences", "filling", "first_packets"]

_ETHERNET_BYTES: Final = 14
_IP_BYTES: Final = 20
_TRANSPORT_AT: Final = _ETHERNET_BYTES + _IP_BYTES
_IP_CHECKSUM_AT: Final = _ETHERNET_BYTES + 10
_DESTINATION_AT: Final = _ETHERNET_BYTES + 16
_SEQUENCE_AT: Final = _TRANSPORT_AT + 4
_TCP_CHECKSUM_AT: Final = _TRANSPORT_AT + 16
_UDP_CHECKSUM_AT: Final = _TRANSPORT_AT + 6
_ICMP_CHECKSUM_AT: Final = _TRANSPORT_AT + 2
_NUMBER_AT: Final = _TRANSPORT_AT + 8 + TOKEN_BYTES - 8

_WORD: Final = struct.Struct("!H")
_SEQUENCE: Final = struct.Struct("!I")

# What Linux puts into the SYN of an Ethernet device with an MTU of 1500.
_SEGMENT_SIZE: Final = 1460
_WINDOW: Final = 64240


def filling(size: int) -> bytes:
    """``size`` bytes of printable text without a newline, which is how the payload beyond the token is made."""
    return (b"abcdefghijklmnopqrstuvwxyz" * (size // 26 + 1))[:size]


def first_packets(errand: Errand, identity: Identity, ports: Sequence[int]) -> Iterator[bytes]:
    """The first packet of each flow as an Ethernet frame: a TCP SYN, or a UDP datagram with token and payload.

    Args:
        errand: its ``payload`` is added to UDP datagrams; a SYN carries none.
        identity: gives each flow its initial sequence number or its token.
        ports: one source port per flow, in the order of the flows.

    Raises:
        ValueError: for a protocol of which no packets are crafted.
    """
    match errand.protocol:
        case Protocol.TCP:
            return _syns(errand, identity, ports)
        case Protocol.UDP:
            return _datagrams(errand, identity, ports)
        case _:
            raise ValueError(f"{errand.protocol} packets are not crafted")


def fences(sender: Sender, targets: Sequence[tuple[IPAddress, bytes]]) -> Iterator[bytes]:
    """An ICMP echo request (RFC 792) to each address, carrying the token that stands beside it."""
    inet = _scapy()
    nowhere = type(sender.address)(0)
    template = bytes(_network_header(sender, nowhere) / inet.ICMP(type=8) / bytes(TOKEN_BYTES))
    network = _Template.of(template, _IP_CHECKSUM_AT)
    for destination, token in targets:
        frame = network.changed(((_DESTINATION_AT, destination.packed),))
        # ICMP's checksum covers no addresses.
        yield _Template.of(frame, _ICMP_CHECKSUM_AT).changed(((_TRANSPORT_AT + 8, token),))


def _syns(errand: Errand, identity: Identity, ports: Sequence[int]) -> Iterator[bytes]:
    inet = _scapy()
    header = inet.TCP(sport=0, dport=errand.port, seq=0, flags="S", window=_WINDOW, options=[("MSS", _SEGMENT_SIZE)])
    template = _Template.of(bytes(_network_header(errand.sender, errand.destination) / header), _TCP_CHECKSUM_AT)
    for flow, port in enumerate(ports):
        changes = ((_TRANSPORT_AT, _WORD.pack(port)), (_SEQUENCE_AT, _SEQUENCE.pack(identity.sequence(flow))))
        yield template.changed(changes)


def _datagrams(errand: Errand, identity: Identity, ports: Sequence[int]) -> Iterator[bytes]:
    inet = _scapy()
    # The digits of the number are zero bytes in the template, so that changing them means adding them.
    payload = identity.token(Kind.PROBE, 0)[:-8] + bytes(8) + filling(errand.payload)
    header = inet.UDP(sport=0, dport=errand.port)
    frame = bytes(_network_header(errand.sender, errand.destination) / header / payload)
    template = _Template.of(frame, _UDP_CHECKSUM_AT)
    for flow, port in enumerate(ports):
        yield template.changed(((_TRANSPORT_AT, _WORD.pack(port)), (_NUMBER_AT, b"%08x" % flow)))


@dataclass(frozen=True, slots=True)
class _Template:
    """A frame whose changing bytes are zero, and the sum of 16-bit words that its checksum complements."""

    frame: bytes
    checksum_at: int
    words: int

    @classmethod
    def of(cls, frame: bytes, checksum_at: int) -> "_Template":
        """The template of a frame with a finished checksum at ``checksum_at``."""
        (checksum,) = _WORD.unpack_from(frame, checksum_at)
        return cls(frame, checksum_at, ~checksum & 0xFFFF)

    def changed(self, changes: Sequence[tuple[int, bytes]]) -> bytes:
        """The frame with these bytes written over zeros. All are whole words at even distance from the header."""
        frame = bytearray(self.frame)
        words = self.words
        for at, new in changes:
            frame[at : at + len(new)] = new
            # 2**16 is 1 modulo 2**16 - 1, so a big-endian number of any length is congruent to the sum of its words.
            words += int.from_bytes(new, "big")
        # A sum that is not zero folds to 1..0xFFFF, and its complement is the checksum. UDP writes a checksum of zero
        # as 0xFFFF (RFC 768), TCP as it is.
        checksum = 0xFFFF - (words % 0xFFFF or 0xFFFF)
        if checksum == 0 and self.checksum_at == _UDP_CHECKSUM_AT:
            checksum = 0xFFFF
        _WORD.pack_into(frame, self.checksum_at, checksum)
        return bytes(frame)


def _network_header(sender: Sender, destination: IPAddress) -> object:
    """Ethernet and IP up to the next hop, as the sender's own stack would write them for a routed destination."""
    if destination.version != 4:
        raise ValueError(f"packets to {destination} are not crafted: IPv4 is")
    inet = _scapy()
    return inet.Ether(dst=sender.next_hop_mac, src=sender.mac) / inet.IP(
        src=str(sender.address), dst=str(destination), flags="DF"
    )


@cache
def _scapy() -> Any:
    """scapy.layers.inet, imported quietly and without a look at this machine's routes, which are not the lab's."""
    logging.getLogger("scapy").setLevel(logging.ERROR)
    from scapy.config import conf  # noqa: PLC0415

    conf.route_autoload = False
    conf.route6_autoload = False
    from scapy.layers import inet  # noqa: PLC0415

    return inet
