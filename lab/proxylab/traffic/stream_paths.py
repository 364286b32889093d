"""Where the packets of streams were last seen, in a lab whose links have netem.

A packet, or its answer, that left a device and came in nowhere was lost on a link. Taps see single packets of UDP
streams only: they keep no data of connections, which the kernel sends again in other segments.
"""

from collections.abc import Iterable
from typing import Final

from msgspec.structs import replace

from proxylab.evidence.evidence import LinkCount
from proxylab.kernel.capture.batches import Frame
from proxylab.traffic.dissect import UDP, dissect
from proxylab.traffic.identity import TOKEN_BYTES, WORDS
from proxylab.traffic.watch import AnyTap

__all__ = ["StreamPaths"]

_WORD_BYTES: Final = len(b"proxylab pulse ")
"""A packet and its answer have the same token behind its first two words."""


class StreamPaths:
    """The last sighting of each stream packet or its answer."""

    def __init__(self) -> None:
        self._last: dict[bytes, tuple[int, str, bool]] = {}

    def take(self, tap: AnyTap, frames: Iterable[Frame]) -> None:
        """Take in what one tap saw."""
        for frame in frames:
            datagram = None if frame.otherhost else dissect(frame.data)
            if datagram is None or datagram.protocol != UDP or not datagram.payload.startswith(WORDS):
                continue
            token = datagram.payload[_WORD_BYTES:TOKEN_BYTES]
            seen = (frame.at_ns, f"{tap.netns_name}/{tap.device}", frame.outgoing)
            self._last[token] = max(self._last.get(token, seen), seen)

    def lost_on(self, token: bytes, budget: list[LinkCount]) -> str:
        """The link that lost the packet with this token, or its answer; empty if none can have.

        ``budget`` is what links dropped; a drop that accounts for a packet leaves it.
        """
        _, where, outgoing = self._last.get(token[_WORD_BYTES:TOKEN_BYTES], (0, "", False))
        for at, link in enumerate(budget):
            if outgoing and link.dropped and where in link.behind:
                budget[at] = replace(link, dropped=link.dropped - 1)
                return link.link
        return ""

    def forget(self) -> None:
        """Forget the packets of a step that has ended."""
        self._last.clear()
