"""What iptables-save printed of tables of legacy iptables, told again of tables with the same rules.

Owns: ``Prints``. Must not: put a rule into words; each line is one that iptables-save has printed.

What iptables-save prints of a table it has from the table's bytes, so tables with equal bytes everywhere but in the
counters are printed alike, in whichever namespace and lab they stand, except for those numbers. The filter tables of
most nodes of most labs are alike, and starting iptables-save costs more than all else that is done to read a table.
"""

import re
from collections import defaultdict, deque
from collections.abc import Iterator
from typing import Final

from lab.frozen import dataclass
from lab.ip import Family
from lab.kernel.bare_tables import BareTable
from lab.kernel.xtables import COUNTERS, Entry, Kind, Snapshot, volatile, walk

__all__ = ["Prints", "is_of_its_namespace"]

_RULE: Final = re.compile(r"\[\d+:\d+\] -A (\S+)")
_POLICY: Final = re.compile(r":(\S+) (?:ACCEPT|DROP) \[")
_MOST: Final = 64
_MOST_BYTES: Final = 1 << 17
_SETS: Final = ("-m set ", "-j SET ")  # known by a number in the entry, whose name belongs to the namespace


@dataclass(frozen=True, slots=True)
class _Print:
    """Lines of one table: what stands before and behind the counters of each, and where those stand in its bytes."""

    family: Family
    table: str
    rules: BareTable
    lines: tuple[tuple[str, int | None, str], ...]

    def told(self, entries: bytes) -> str:
        return "".join(
            before if at is None else f"{before}[{'{}:{}'.format(*COUNTERS.unpack_from(entries, at))}]{behind}"
            for before, at, behind in self.lines
        )


class Prints:
    """The last tables that were printed, of all labs of this process."""

    def __init__(self) -> None:
        self._known: deque[_Print] = deque(maxlen=_MOST)

    def of(self, table: str, snapshot: Snapshot) -> str | None:
        """What ``iptables-save --counters --table`` would print; ``None`` where it has printed no such table yet."""
        for known in self._known:
            if (known.table, known.family) == (table, snapshot.family) and known.rules.fits(snapshot.entries):
                return known.told(snapshot.entries)
        return None

    def note(self, table: str, snapshot: Snapshot, text: str, later: Snapshot | None) -> None:
        """Remember what was printed of a table between two readings, if it tells the rules of both."""
        if later is None or len(snapshot.entries) > _MOST_BYTES or is_of_its_namespace(text):
            return
        entries = tuple(walk(snapshot))
        rules = BareTable.of(snapshot.entries, map(volatile, entries))
        if rules.fits(later.entries) and (lines := _lines(text, entries)) is not None:
            self._known.append(_Print(snapshot.family, table, rules, lines))


def is_of_its_namespace(text: str) -> bool:
    """Whether rules say something that a table's bytes do not: equal bytes may mean another set elsewhere."""
    return any(words in text for words in _SETS)


def _lines(text: str, entries: tuple[Entry, ...]) -> tuple[tuple[str, int | None, str], ...] | None:
    """The lines with their counters taken out; ``None`` if they do not belong to the entries."""
    counted: defaultdict[str, list[int]] = defaultdict(list)
    policies: dict[str, int] = {}
    for kind, chain, at in entries:
        if kind is Kind.RULE:
            counted[chain].append(at)
        elif kind is not Kind.BOUNDARY:
            policies[chain] = at
    left = {chain: iter(places) for chain, places in counted.items()}
    try:
        lines = tuple(_parted(text, policies, left))
    except (KeyError, StopIteration):
        return None
    return None if any(next(places, None) is not None for places in left.values()) else lines


def _parted(
    text: str, policies: dict[str, int], left: dict[str, Iterator[int]]
) -> Iterator[tuple[str, int | None, str]]:
    for line in text.splitlines(keepends=True):
        if rule := _RULE.match(line):
            yield "", next(left[rule[1]]), line[line.index("]") + 1 :]
        elif policy := _POLICY.match(line):
            yield line[: policy.end() - 1], policies[policy[1]], line[line.index("]") + 1 :]
        else:
            yield line, None, ""
