"""Names of nodes, pods and hosts in the scenario: one DNS label each, and unique, since all share one name space."""

from collections.abc import Iterator
from itertools import count
from typing import Final

from proxylab.scenario.syntax import is_label

__all__ = ["Names"]

_LABEL_CHARACTERS: Final = 63


class Names:
    """Gives names, and remembers them by key."""

    def __init__(self) -> None:
        self._given: dict[tuple[str, ...], str] = {}
        self._taken: set[str] = set()

    def of(self, key: tuple[str, ...], *wanted: str) -> str:
        """The name of the object with that key: the first of the wanted names that is free."""
        if key not in self._given:
            self._given[key] = name = next(filter(self._is_free, _tries(wanted)))
            self._taken.add(name)
        return self._given[key]

    def _is_free(self, name: str) -> bool:
        return is_label(name) and name not in self._taken


def _tries(wanted: tuple[str, ...]) -> Iterator[str]:
    """The names themselves, then as labels, then numbered without end."""
    yield from wanted
    labels = [_cut(each.lower().replace(".", "-").replace("_", "-")) for each in wanted]
    yield from labels
    last = labels[-1] if is_label(labels[-1]) else "nameless"
    yield from (f"{_cut(last[: _LABEL_CHARACTERS - 6])}-{number}" for number in count(2))


def _cut(text: str) -> str:
    return text[:_LABEL_CHARACTERS].strip("-")
