"""What nodes, pods and hosts are called in the scenario.

Owns: names of one label each, unlike any other: in a scenario nodes, pods and hosts share one name space.
Must not: know what bears them.
"""

from collections.abc import Callable
from itertools import chain, count
from typing import Final

from lab.scenario.schema.syntax import is_label

__all__ = ["Names"]

_LONGEST: Final = 63


class Names:
    """Hands out names, and remembers to whom."""

    def __init__(self) -> None:
        self._given: dict[tuple[str, ...], str] = {}
        self._taken: set[str] = set()

    def of(self, key: tuple[str, ...], *wanted: str) -> str:
        """The name of whatever ``key`` stands for: the first of those wanted that can be had."""
        if key not in self._given:
            self._given[key] = name = next(filter(self._is_free, _tries(wanted)))
            self._taken.add(name)
        return self._given[key]

    def _is_free(self, name: str) -> bool:
        return is_label(name) and name not in self._taken


def _tries(wanted: tuple[str, ...]) -> "chain[str]":
    cut: Callable[[str], str] = lambda text: text[:_LONGEST].strip("-.")  # noqa: E731 - a word for one line
    labels = [cut(each.lower().replace(".", "-").replace("_", "-")) for each in wanted]
    return chain(wanted, labels, (f"{cut(labels[-1][: _LONGEST - 6])}-{number}" for number in count(2)))
