"""Flows by crafted frames on the sender's tap.

Owns: how many frames leave before everybody has been heard, and what the device would not take.
Must not: look at answers.
"""

from collections.abc import Iterable
from itertools import islice
from typing import Final

from proxylab.evidence.evidence import ConnectReport
from proxylab.traffic.connect import error_name
from proxylab.traffic.fragments import cut
from proxylab.traffic.watch import AnyTap

__all__ = ["Dispatch"]

# A flow crosses a tap at most four times before taps are read: request, reply, and what the stacks say to that. One
# tap may be both sender's and receiver's (hairpin), which doubles it.
_CROSSINGS: Final = 8

# Even with all the room there is, others of the event loop are to get their turn after a few milliseconds.
_AT_ONCE: Final = 256


class Dispatch:
    """Sends the first packets of a run, some at a time, and counts them."""

    def __init__(self, tap: AnyTap, frames: Iterable[bytes], room: int, mtu: int = 1500) -> None:
        """``room`` is how many frames every tap can hold at least; what is above the ``mtu`` is cut into fragments."""
        self.reports: list[ConnectReport] = []
        self.refused: list[str] = []
        self.sent = 0
        self.finished = False
        self._tap = tap
        self._frames = iter(frames)
        self._mtu = mtu
        self._at_once = max(1, min(_AT_ONCE, room // _CROSSINGS))

    def advance(self) -> bool:
        """Send the next frames. Whether there were any.

        An error of the device (EMSGSIZE, ENOBUFS, ENETDOWN) refuses that frame only.
        """
        chunk = tuple(islice(self._frames, self._at_once))
        self.finished = len(chunk) < self._at_once
        for frame in chunk:
            try:
                # No two packets of one run have the same number, so their fragments cannot be taken for each other's.
                for piece in cut(frame, self._mtu, self.sent + len(self.refused) + 1):
                    self._tap.send(piece)
            except OSError as error:
                self.refused.append(error_name(error.errno))
            else:
                self.sent += 1
        return bool(chunk)

    def abandon(self) -> bool:
        """Nothing is held for a frame that has left."""
        return False

    def close(self) -> None:
        """The tap is the lab's."""
