"""Copies of stream packets: a request or an answer that comes in more often than it was sent, or somewhere else, too.

Every device of a pod or outside host has a tap. A datagram is known by its token, and so is a segment with data. The
packet that begins a connection is known by its initial sequence number, which its sender's tap shows first. A kernel
sends segments again; they then have left as often as they come in. Translation keeps sequence numbers, and a program
that ends connections sends others, so only segments count that a tap saw leave.

A frame for another device's MAC is no copy (PACKET_OTHERHOST), nor is what passes a node. What comes to a node's own
programs is not counted here: over UDP they answer each copy, which the ledger of the sender's socket counts; over TCP
and SCTP their kernel takes it for its own. Of SCTP taps read only how an association begins.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from proxylab.addresses import Transport
from proxylab.evidence.evidence import Packet
from proxylab.evidence.stream_records import StreamCopy
from proxylab.kernel.capture.batches import Frame
from proxylab.plan.resolved import ResolvedProbe
from proxylab.traffic.dissect import SCTP, TCP, UDP, Chunk, Datagram, TcpFlag
from proxylab.traffic.identity import Identity, is_of_stream
from proxylab.traffic.watch import AnyTap

_CONTROL = TcpFlag.SYN | TcpFlag.RST
_BEGINNING = _CONTROL | TcpFlag.ACK


class _Known(NamedTuple):
    """What a packet is known by: a datagram's or segment's number, or the initial sequence number of a connection."""

    packet: Packet
    begins: bool
    number: int


@dataclass(slots=True)
class _Seen:
    """How often a packet left its sender, by sequence number, and where it came in; of a datagram that is 0."""

    sent: Counter[int] = field(default_factory=Counter)
    came: list[tuple[int, str]] = field(default_factory=list)

    def where(self, sequence: int) -> tuple[str, ...]:
        """Where it came in with that sequence number."""
        return tuple(where for number, where in self.came if number == sequence)


class StreamCopies:
    """The sightings of one stream's packets."""

    def __init__(self, resolved: ResolvedProbe, identity: Identity, tap: AnyTap) -> None:
        """Of a stream that leaves by ``tap``."""
        self._resolved = resolved
        self._identity = identity
        self._sender = tap
        self._passed = frozenset((*resolved.nodes, *resolved.forwarders))
        self._seen: dict[_Known, _Seen] = {}

    def take(self, tap: AnyTap, seen: Iterable[tuple[Frame, Datagram]], ports: Collection[int]) -> None:
        """Take in what a tap saw; ``ports`` are those that the stream has sent from."""
        by_datagrams, on_node = self._resolved.protocol is Transport.UDP, tap.netns_name in self._passed
        for frame, datagram in seen:
            leaves = frame.outgoing and tap is self._sender
            found = self._found(datagram, ports, leaves=leaves)
            if found is None:
                continue
            sequence = 0 if by_datagrams or found.begins else datagram.sequence
            if frame.outgoing:
                if leaves if found.packet is Packet.REQUEST else not (by_datagrams or on_node):
                    self._seen.setdefault(found, _Seen()).sent[sequence] += 1
            elif not on_node:
                self._seen.setdefault(found, _Seen()).came.append((sequence, tap.netns_name))

    def take_copies(self, *, lossy: bool = False) -> tuple[StreamCopy, ...]:
        """The copies since the last call. With ``lossy``, taps missed frames, so segments may have left unseen."""
        copies = tuple(self._copies(lossy=lossy))
        # A segment that has come less often than it left may still come.
        self._seen = {
            known: each
            for known, each in self._seen.items()
            if not known.begins and each.sent.total() > len(each.came) and self._resolved.protocol is Transport.TCP
        }
        return copies

    def _copies(self, *, lossy: bool) -> Iterator[StreamCopy]:
        by_datagrams = self._resolved.protocol is Transport.UDP
        for known, each in self._seen.items():
            if by_datagrams or known.begins:
                sent, came = max(1, each.sent[0]), each.where(0)
                if len(came) > sent:
                    yield StreamCopy(known.number if by_datagrams else None, known.packet, sent, came)
                continue
            for sequence, sent in each.sent.items() if not lossy else ():
                if len(came := each.where(sequence)) > sent:
                    yield StreamCopy(known.number, known.packet, sent, came)

    def _found(self, datagram: Datagram, ports: Collection[int], *, leaves: bool) -> _Known | None:
        """What the packet is known by; ``None`` for others."""
        flags = datagram.flags or 0
        has_number = (datagram.protocol == UDP and self._resolved.protocol is Transport.UDP) or (
            datagram.protocol == TCP and self._resolved.protocol is Transport.TCP and not flags & _CONTROL
        )
        if has_number:
            number = self._identity.read_stream(datagram.payload)
            if number is None:
                return None
            return _Known(Packet.REQUEST if is_of_stream(datagram.payload) else Packet.REPLY, False, number)
        begins = (datagram.protocol == TCP and flags & _BEGINNING == TcpFlag.SYN) or (
            datagram.protocol == SCTP and datagram.flags == Chunk.INIT
        )
        if not begins or (leaves and not self._is_own(datagram, ports)):
            return None
        found = _Known(Packet.REQUEST, True, datagram.sequence)
        return found if leaves or found in self._seen else None

    def _is_own(self, datagram: Datagram, ports: Collection[int]) -> bool:
        dialled = (self._resolved.destination, self._resolved.port)
        return datagram.source_port in ports and (datagram.destination, datagram.destination_port) == dialled
