"""Copies of stream packets: a request or an answer that comes in more often than it was sent, or somewhere else, too.

Every device of a pod or outside host has a tap. A datagram is known by its token, and the packet that begins a
connection by its initial sequence number, which its sender's tap shows first. A kernel sends the latter again; it then
has left as often as it comes in. Taps keep no data of connections, and a kernel takes copies of those for its own.

A frame for another device's MAC is no copy (PACKET_OTHERHOST), nor is what passes a node. What comes to a node's own
programs is not counted here: they answer each copy, which the ledger of the sender's socket counts.
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field

from proxylab.addresses import Transport
from proxylab.evidence.evidence import Packet
from proxylab.evidence.stream_records import StreamCopy
from proxylab.kernel.capture.batches import Frame
from proxylab.plan.resolved import ResolvedProbe
from proxylab.traffic.dissect import SCTP, TCP, UDP, Chunk, Datagram, TcpFlag
from proxylab.traffic.identity import Identity, is_of_stream
from proxylab.traffic.watch import AnyTap

__all__ = ["StreamCopies"]

_BEGINNING = TcpFlag.SYN | TcpFlag.ACK | TcpFlag.RST


@dataclass(slots=True)
class _Seen:
    """How often a packet left its sender, and where it came in."""

    sent: int = 0
    came: list[str] = field(default_factory=list)


class StreamCopies:
    """The sightings of one stream's packets."""

    def __init__(self, resolved: ResolvedProbe, identity: Identity, tap: AnyTap) -> None:
        """Of a stream that leaves by ``tap``."""
        self._resolved = resolved
        self._identity = identity
        self._sender = tap
        self._nodes = frozenset(resolved.nodes)
        self._seen: dict[tuple[Packet, int], _Seen] = {}

    def take(self, tap: AnyTap, seen: Iterable[tuple[Frame, Datagram]], ports: Collection[int]) -> None:
        """Take in what a tap saw; ``ports`` are those that the stream has sent from."""
        for frame, datagram in seen:
            found = self._found(datagram, ports, leaves=frame.outgoing and tap is self._sender)
            if found is None:
                continue
            if frame.outgoing:
                if tap is self._sender and found[0] is Packet.REQUEST:
                    self._seen.setdefault(found, _Seen()).sent += 1
            elif tap.netns_name not in self._nodes:
                self._seen.setdefault(found, _Seen()).came.append(tap.netns_name)

    def take_copies(self) -> tuple[StreamCopy, ...]:
        """The copies since the last call."""
        copies = tuple(self._copies())
        self._seen.clear()
        return copies

    def _copies(self) -> Iterator[StreamCopy]:
        by_datagrams = self._resolved.protocol is Transport.UDP
        for (packet, number), each in self._seen.items():
            sent = max(1, each.sent)
            if len(each.came) > sent:
                yield StreamCopy(number if by_datagrams else None, packet, sent, tuple(each.came))

    def _found(self, datagram: Datagram, ports: Collection[int], *, leaves: bool) -> tuple[Packet, int] | None:
        """The kind of the packet and its number, or the initial sequence number of its connection."""
        if datagram.protocol == UDP and self._resolved.protocol is Transport.UDP:
            number = self._identity.read_stream(datagram.payload)
            if number is None:
                return None
            return (Packet.REQUEST if is_of_stream(datagram.payload) else Packet.REPLY), number
        begins = (datagram.protocol == TCP and (datagram.flags or 0) & _BEGINNING == TcpFlag.SYN) or (
            datagram.protocol == SCTP and datagram.flags == Chunk.INIT
        )
        if not begins or (leaves and not self._is_own(datagram, ports)):
            return None
        found = (Packet.REQUEST, datagram.sequence)
        return found if leaves or found in self._seen else None

    def _is_own(self, datagram: Datagram, ports: Collection[int]) -> bool:
        dialled = (self._resolved.destination, self._resolved.port)
        return datagram.source_port in ports and (datagram.destination, datagram.destination_port) == dialled
