"""Dialogues: TCP segments between two ends, each written out in advance.

Kernel sockets send only what a correct stack sends. To test a proxy with a segment outside the window, half of a
handshake or an unexpected reset, a Python test writes the segments with ``client`` and ``server``.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from proxylab.encoding import Record
from proxylab.plan.resolved import ResolvedProbe

__all__ = ["FLAGS", "MOST_DATA", "MOST_TURNS", "Dialogue", "Speaker", "Turn", "client", "server"]

MOST_TURNS: Final = 32
MOST_DATA: Final = 1200
"""The longest text of one segment: with IPv6 and VXLAN headers it fits into Ethernet's MTU."""

FLAGS: Final[Mapping[str, int]] = {"FIN": 0x01, "SYN": 0x02, "RST": 0x04, "PSH": 0x08, "ACK": 0x10, "URG": 0x20}
"""The bits of a TCP header's control field (RFC 9293, section 3.1)."""


class Speaker(StrEnum):
    """The sender of a segment."""

    CLIENT = "client"
    SERVER = "server"


class Turn(Record, frozen=True):
    """One segment. ``flags`` are bits of the control field.

    Its sequence number is the speaker's next one plus ``ahead``; a segment with ``ahead`` is out of order and advances
    neither side. It acknowledges the last segment that reached the speaker in order.
    """

    speaker: Speaker
    flags: int
    data: str = ""
    ahead: int = 0

    @property
    def words(self) -> str:
        """The turn, for messages."""
        said = " ".join(name for name, bit in FLAGS.items() if self.flags & bit) or "no flag"
        return f"{self.speaker}: {said}" + (f", {self.ahead} ahead" if self.ahead else "")


class Dialogue(Record, frozen=True):
    """A resolved dialogue.

    ``there`` is the resolved probe of the client's segments. ``back`` is the path from the server straight to the
    client, for its sentinel packets.
    """

    there: ResolvedProbe
    back: ResolvedProbe
    turns: tuple[Turn, ...]


def client(flags: str, data: str = "", ahead: int = 0) -> Turn:
    """A segment of the client: ``client("SYN")``, ``client("ACK", "still here")``. Raises ``ValueError``."""
    return _turn(Speaker.CLIENT, flags, data, ahead)


def server(flags: str, data: str = "", ahead: int = 0) -> Turn:
    """A segment of the server: ``server("SYN ACK")``, ``server("ACK", "late", ahead=9_000)``. Raises ``ValueError``."""
    return _turn(Speaker.SERVER, flags, data, ahead)


def _turn(speaker: Speaker, flags: str, data: str, ahead: int) -> Turn:
    words = flags.split()
    unknown = [word for word in words if word not in FLAGS]
    if unknown or len(set(words)) < len(words):
        raise ValueError(f"{speaker}({flags!r}): flags are some of {', '.join(FLAGS)}, separated by spaces")
    if not data.isascii() or len(data) > MOST_DATA:
        raise ValueError(f"{speaker}({flags!r}): data is ASCII text of at most {MOST_DATA} characters")
    return Turn(speaker, sum(FLAGS[word] for word in words), data, ahead)
