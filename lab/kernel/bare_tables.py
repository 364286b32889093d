"""Tables of rules without what they counted, by which the same rules are known again.

Owns: ``BareTable``. Must not: know what any byte of a rule means; who reads a table knows which bytes change.
"""

from collections.abc import Iterable

from lab.frozen import dataclass

__all__ = ["BareTable"]


@dataclass(frozen=True, slots=True)
class BareTable:
    """The bytes of a table with every counter blanked. As integers, since they mask and compare megabytes in µs."""

    bare: int
    mask: int

    @classmethod
    def of(cls, entries: bytes, volatile: Iterable[slice]) -> "BareTable":
        """A table's own, where ``volatile`` are the bytes that change without a rule being changed."""
        blank = bytearray(b"\xff" * len(entries))
        for counters in volatile:
            blank[counters] = bytes(counters.stop - counters.start)
        mask = _number(bytes(blank))
        return cls(_number(entries) & mask, mask)

    def fits(self, entries: bytes) -> bool:
        """Whether a reading holds the same rules."""
        return _number(entries) & self.mask == self.bare


def _number(entries: bytes) -> int:
    """Bytes as one number. The one in front of them lets tables of different lengths never be equal."""
    return int.from_bytes(b"\1" + entries, "big")
