"""Sends flows as crafted frames on the sender's tap."""

from collections.abc import Iterable
from itertools import islice
from typing import Final

from proxylab.evidence.evidence import Altered, ConnectReport
from proxylab.traffic.connect import error_name
from proxylab.traffic.fragments import cut
from proxylab.traffic.watch import AnyTap

# A flow crosses a tap at most four times before taps are read: request, reply, and the stacks' answers to those. With
# hairpin traffic one tap is the sender's and the receiver's, which doubles it.
_CROSSINGS: Final = 8

# Even with plenty of room, the rest of the event loop must run every few milliseconds.
_FRAMES_AT_ONCE: Final = 256


class Dispatch:
    """Sends the first packets of a run, some at a time, and counts them."""

    def __init__(self, tap: AnyTap, frames: Iterable[bytes], room: int, mtu: int = 1500) -> None:
        """``room`` is how many frames every tap can hold at least; frames above the ``mtu`` are cut into fragments."""
        self.reports: list[ConnectReport] = []
        self.altered: list[Altered] = []
        self.refused: list[str] = []
        self.sent = 0
        self.finished = False
        self._tap = tap
        self._frames = iter(frames)
        self._mtu = mtu
        self._at_once = max(1, min(_FRAMES_AT_ONCE, room // _CROSSINGS))

    def advance(self) -> bool:
        """Send the next frames. Returns whether there were any.

        An error of the device (EMSGSIZE, ENOBUFS, ENETDOWN) refuses that frame only.
        """
        chunk = tuple(islice(self._frames, self._at_once))
        self.finished = len(chunk) < self._at_once
        for frame in chunk:
            try:
                # No two packets of one run have the same number, so their fragments cannot be confused.
                for piece in cut(frame, self._mtu, self.sent + len(self.refused) + 1):
                    self._tap.send(piece)
            except OSError as error:
                self.refused.append(error_name(error.errno))
            else:
                self.sent += 1
        return bool(chunk)

    def abandon(self) -> bool:
        """Do nothing: a frame that has left holds no resources."""
        return False

    def close(self) -> None:
        """Do nothing: the tap belongs to the lab."""
