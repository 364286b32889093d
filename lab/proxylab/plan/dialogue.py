"""Dialogues: TCP segments that two places say to each other, each written out beforehand.

Owns: the frozen ``Turn`` and ``Dialogue``, and the two words that begin a turn in a Python test.
Must not: know frames, or what is hoped for.

A connection of kernel sockets says only what a sound stack says. What a proxy does with a segment outside the window,
with half of a handshake or with a reset out of nowhere shows only where somebody writes the segments himself.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from proxylab.frozen import dataclass
from proxylab.plan.resolved import ResolvedProbe

__all__ = ["FLAGS", "MOST_DATA", "MOST_TURNS", "Dialogue", "Speaker", "Turn", "client", "server"]

MOST_TURNS: Final = 32
MOST_DATA: Final = 1200
"""The longest text of one segment: it fits behind IPv6 and VXLAN into the MTU of an Ethernet."""

FLAGS: Final[Mapping[str, int]] = {"FIN": 0x01, "SYN": 0x02, "RST": 0x04, "PSH": 0x08, "ACK": 0x10, "URG": 0x20}
"""The bits of a TCP header's control field (RFC 9293, section 3.1)."""


class Speaker(StrEnum):
    """Who says a segment."""

    CLIENT = "client"
    SERVER = "server"


@dataclass(frozen=True, slots=True)
class Turn:
    """One segment. ``flags`` are bits of the control field.

    Its sequence number is what the speaker has to say next, and ``ahead`` more; a segment with ``ahead`` is a stray one
    and moves neither side on. An acknowledgement is of the last segment that has reached the speaker in its order.
    """

    speaker: Speaker
    flags: int
    data: str = ""
    ahead: int = 0

    @property
    def words(self) -> str:
        """Who says what, as messages name it."""
        said = " ".join(name for name, bit in FLAGS.items() if self.flags & bit) or "no flag"
        return f"{self.speaker}: {said}" + (f", {self.ahead} ahead" if self.ahead else "")


@dataclass(frozen=True, slots=True)
class Dialogue:
    """A dialogue, ready to be held.

    ``there`` is the errand of the client's segments, ``back`` the way from the server straight to the client, by which
    its fences go.
    """

    there: ResolvedProbe
    back: ResolvedProbe
    turns: tuple[Turn, ...]


def client(flags: str, data: str = "", ahead: int = 0) -> Turn:
    """What the client says: ``client("SYN")``, ``client("ACK", "still here")``. Raises ``ValueError``."""
    return _turn(Speaker.CLIENT, flags, data, ahead)


def server(flags: str, data: str = "", ahead: int = 0) -> Turn:
    """What the server says: ``server("SYN ACK")``, ``server("ACK", "late", ahead=9_000)``. Raises ``ValueError``."""
    return _turn(Speaker.SERVER, flags, data, ahead)


def _turn(speaker: Speaker, flags: str, data: str, ahead: int) -> Turn:
    words = flags.split()
    unknown = [word for word in words if word not in FLAGS]
    if unknown or len(set(words)) < len(words):
        raise ValueError(f"{speaker}({flags!r}): flags are some of {', '.join(FLAGS)}, separated by spaces")
    if not data.isascii() or len(data) > MOST_DATA:
        raise ValueError(f"{speaker}({flags!r}): data is ASCII text of at most {MOST_DATA} characters")
    return Turn(speaker, sum(FLAGS[word] for word in words), data, ahead)
