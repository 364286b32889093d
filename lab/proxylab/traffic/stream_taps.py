"""What taps show of streams: resets and sentinel packets at the sender, and where a packet was last seen.

Where links have netem, a packet or its answer that left a device and came in nowhere was lost on a link. Taps see
single packets of UDP streams only: they keep no data of connections, which the kernel sends again in other segments.
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from msgspec.structs import replace

from proxylab.addresses import IPAddress, Transport
from proxylab.evidence.evidence import LinkCount
from proxylab.kernel.capture.batches import Frame
from proxylab.traffic.dissect import SCTP, TCP, UDP, Chunk, TcpFlag, dissect
from proxylab.traffic.identity import TOKEN_BYTES, WORDS, Identity
from proxylab.traffic.legs import TapPoint
from proxylab.traffic.match import Matcher, SentinelSighting
from proxylab.traffic.watch import AnyTap

_WORD_BYTES: Final = len(b"proxylab pulse ")
"""A packet and its answer have the same token behind its first two words."""


class SenderTap:
    """One stream's part of its sender's tap, which other streams may share."""

    def __init__(self, identity: Identity, protocol: Transport, tap: AnyTap, address: IPAddress) -> None:
        self._ports: set[int] = set()
        self._address = address
        self._protocol = protocol
        self._vantage = TapPoint(tap.netns_name, tap.device, is_sender=True)
        self._matcher = Matcher(identity, Transport.UDP)
        self._resets: list[int] = []

    def watch_port(self, port: int) -> None:
        """Record resets, or aborts, to this port from now on."""
        self._ports.add(port)

    def take(self, frames: Sequence[Frame]) -> None:
        """Take in what the tap saw."""
        if self._protocol is not Transport.UDP:
            self._resets += (frame.at_ns for frame in frames if not frame.outgoing and self._is_reset(frame))
        self._matcher.take(self._vantage, frames)

    def resets(self) -> list[int]:
        """The times of RSTs and ABORTs to the stream's ports since the last call."""
        resets, self._resets = self._resets, []
        return resets

    def sentinels(self) -> list[SentinelSighting]:
        """The sentinels seen since the last call."""
        seen, self._matcher.sentinels = self._matcher.sentinels, []
        return seen

    def _is_reset(self, frame: Frame) -> bool:
        datagram = dissect(frame.data)
        if datagram is None or datagram.destination != self._address or datagram.destination_port not in self._ports:
            return False
        if datagram.protocol == SCTP:
            return datagram.flags == Chunk.ABORT
        return datagram.protocol == TCP and bool((datagram.flags or 0) & TcpFlag.RST)


class _LastSighting(NamedTuple):
    """When and where a tap saw a packet last, and whether it left there. A later one is greater."""

    at: int
    where: str
    outgoing: bool


class StreamPaths:
    """The last sighting of each stream packet or its answer."""

    def __init__(self) -> None:
        self._last: dict[bytes, _LastSighting] = {}

    def take(self, tap: AnyTap, frames: Iterable[Frame]) -> None:
        """Take in what one tap saw."""
        for frame in frames:
            datagram = None if frame.otherhost else dissect(frame.data)
            if datagram is None or datagram.protocol != UDP or not datagram.payload.startswith(WORDS):
                continue
            token = datagram.payload[_WORD_BYTES:TOKEN_BYTES]
            seen = _LastSighting(frame.at_ns, f"{tap.netns_name}/{tap.device}", frame.outgoing)
            self._last[token] = max(self._last.get(token, seen), seen)

    def lost_on(self, token: bytes, budget: list[LinkCount]) -> str:
        """The link that lost the packet with this token, or its answer; empty if none can have.

        ``budget`` is what links dropped; a drop that accounts for a packet leaves it.
        """
        last = self._last.get(token[_WORD_BYTES:TOKEN_BYTES], _LastSighting(0, "", False))
        for at, link in enumerate(budget):
            if last.outgoing and link.dropped and last.where in link.behind:
                budget[at] = replace(link, dropped=link.dropped - 1)
                return link.link
        return ""

    def forget(self) -> None:
        """Forget the packets of a step that has ended."""
        self._last.clear()
