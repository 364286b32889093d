"""What the tap of a stream's sender hears of it, beside the answers that its socket gets.

Owns: the resets that came to its ports, and the fences that came back.
Must not: read the tap: streams that start at one place share it.
"""

from collections.abc import Sequence

from proxylab.addresses import Transport
from proxylab.kernel.capture.batches import Frame
from proxylab.traffic.dissect import TCP, TcpFlag, dissect
from proxylab.traffic.identity import Identity
from proxylab.traffic.match import Matcher, SentinelSighting, Vantage
from proxylab.traffic.watch import AnyTap

__all__ = ["Ear"]


class Ear:
    """Listens for one stream."""

    def __init__(self, identity: Identity, protocol: Transport, tap: AnyTap) -> None:
        self._ports: set[int] = set()
        self._by_tcp = protocol is Transport.TCP
        self._vantage = Vantage(tap.netns_name, tap.device, is_sender=True)
        self._matcher = Matcher(identity, Transport.UDP)
        self._resets: list[int] = []

    def mind(self, port: int) -> None:
        """Listen for what comes to a port from now on."""
        self._ports.add(port)

    def take(self, frames: Sequence[Frame]) -> None:
        """Take in what the tap saw."""
        if self._by_tcp:
            self._resets += (frame.at_ns for frame in frames if not frame.outgoing and self._is_reset(frame))
        self._matcher.take(self._vantage, frames)

    def resets(self) -> list[int]:
        """When an RST came to one of the stream's ports, since this was last asked."""
        heard, self._resets = self._resets, []
        return heard

    def sentinels(self) -> list[SentinelSighting]:
        """The fences that were seen since this was last asked."""
        seen, self._matcher.sentinels = self._matcher.sentinels, []
        return seen

    def _is_reset(self, frame: Frame) -> bool:
        datagram = dissect(frame.data)
        return (
            datagram is not None
            and datagram.protocol == TCP
            and datagram.destination_port in self._ports
            and bool((datagram.flags or 0) & TcpFlag.RST)
        )
