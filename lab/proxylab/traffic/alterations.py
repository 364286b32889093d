"""What came otherwise than it was sent: data, the mark of a request for queues (DSCP), and more.

That is the IP checksum of an answer, and the packet that an ICMP error quotes.

A proxy changes addresses and ports, and nothing else. The data of a request is known: a token and a filling. Of a UDP
answer the first sighting counts, where the pod sends it; a stack answers an echo request with its own data. Sockets
compare what TCP carries (``answer``), since taps keep no data of connections.

Transport checksums are unfinished on a veth (CHECKSUM_PARTIAL), and the kernel at each end verifies those of crafted
packets. It verifies IP checksums, too, but for the answer to a crafted packet: no socket waits for it.
"""

import struct
from typing import Final, NamedTuple

from proxylab.addresses import IPAddress
from proxylab.evidence.evidence import Altered, Packet, Part
from proxylab.evidence.words import endpoint
from proxylab.traffic.dissect import ICMP, ICMPV6, UDP, Datagram, PacketMarks
from proxylab.traffic.identity import TOKEN_BYTES
from proxylab.traffic.legs import TapPoint

_ETHERNET: Final = 14
_IPV4: Final = b"\x08\x00"
_WORDS: Final = struct.Struct("!10H")
_PLAIN_HEADER: Final = 0x45
_SHOWN_BYTES: Final = 4
_WITH_DATA: Final = frozenset({UDP, ICMP, ICMPV6})


class _SentEnds(NamedTuple):
    """The ends of a packet, in the order in which a datagram has them."""

    source: IPAddress
    destination: IPAddress
    source_port: int
    destination_port: int


class _AlteredPart(NamedTuple):
    """What is reported once: a part of the requests, or of the answers, of one flow."""

    flow: int
    packet: Packet
    part: Part


def has_ip_checksum(frame: bytes) -> bool:
    """Whether an IPv4 header has its checksum (RFC 1071); also true of any other frame, and of a header with options.

    A sum of 16-bit words that includes its own complement is a multiple of 2**16 - 1.
    """
    if frame[12:_ETHERNET] != _IPV4 or len(frame) < _ETHERNET + _WORDS.size or frame[_ETHERNET] != _PLAIN_HEADER:
        return True
    words: tuple[int, ...] = _WORDS.unpack_from(frame, _ETHERNET)
    return sum(words) % 0xFFFF == 0


class Alterations:
    """Compares the packets of one run with what was sent. ``tail`` is what follows the token of a request."""

    def __init__(self, tail: bytes) -> None:
        self._tail = tail
        self._sent: dict[int, _SentEnds] = {}
        self._marks: dict[int, int] = {}
        self._answers: dict[int, int] = {}
        self._found: dict[_AlteredPart, Altered] = {}

    @property
    def found(self) -> tuple[Altered, ...]:
        """The first alteration of each kind of a flow's requests and answers."""
        return tuple(self._found.values())

    def look(
        self,
        tap: TapPoint,
        outgoing: bool,
        frame: bytes,
        datagram: Datagram,
        flow: int,
        packet: Packet,
        marks: PacketMarks,
        *,
        by_program: bool = False,
    ) -> None:
        """Compare a packet of a flow that a tap saw, out of or into its device.

        A request that a program sends on (``by_program``) bears the program's own mark.
        """
        if packet is Packet.REQUEST:
            if not by_program:
                self._compare_marks(tap, outgoing, marks, flow)
            if tap.is_sender and outgoing:
                self._sent.setdefault(flow, _SentEnds(*datagram[1:5]))
            if datagram.protocol in _WITH_DATA and datagram.payload[TOKEN_BYTES:] != self._tail:
                self._note(tap, flow, packet, Part.DATA, *_first_difference(self._tail, datagram.payload[TOKEN_BYTES:]))
            return
        if packet is Packet.REPLY and datagram.protocol in _WITH_DATA and not self._is_answer(datagram, flow):
            self._note(tap, flow, packet, Part.DATA)
        if not tap.is_sender or outgoing:
            return
        if not has_ip_checksum(frame):
            self._note(tap, flow, packet, Part.CHECKSUM)
        sent = self._sent.get(flow)
        if datagram.quoted is not None and sent is not None and datagram.quoted[1:5] != sent:
            self._note(tap, flow, packet, Part.QUOTE, _words(sent), _words(_SentEnds(*datagram.quoted[1:5])))

    def _compare_marks(self, tap: TapPoint, outgoing: bool, marks: PacketMarks, flow: int) -> None:
        dscp = marks.dscp
        if not marks.ttl:
            return
        if tap.is_sender and outgoing:
            self._marks.setdefault(flow, dscp)
        elif (sent := self._marks.get(flow, dscp)) != dscp:
            self._note(tap, flow, Packet.REQUEST, Part.DSCP, str(sent), str(dscp))

    def _is_answer(self, datagram: Datagram, flow: int) -> bool:
        """Whether the answer has the data that the pod sent. Datagrams of any length cost one number each."""
        if datagram.protocol != UDP:
            return datagram.payload[TOKEN_BYTES:] == self._tail
        data = hash(datagram.payload)
        return self._answers.setdefault(flow, data) == data

    def _note(self, tap: TapPoint, flow: int, packet: Packet, part: Part, sent: str = "", seen: str = "") -> None:
        altered = Altered(flow, packet, tap.netns_name, tap.device, part, sent, seen)
        self._found.setdefault(_AlteredPart(flow, packet, part), altered)


def _first_difference(sent: bytes, seen: bytes) -> tuple[str, str]:
    """The bytes from the first that differs on, of what was sent and of what was seen, each with its offset."""
    at = next((at for at, (one, other) in enumerate(zip(sent, seen, strict=False)) if one != other), None)
    at = min(len(sent), len(seen)) if at is None else at
    there = slice(at, at + _SHOWN_BYTES)
    one, other = (f"{data[there].hex(' ') or 'its end'} at byte {TOKEN_BYTES + at}" for data in (sent, seen))
    return one, other


def _words(ends: _SentEnds) -> str:
    return f"{endpoint(ends.source, ends.source_port)} > {endpoint(ends.destination, ends.destination_port)}"
