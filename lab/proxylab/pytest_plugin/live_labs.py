"""Which sessions have a lab at one time, where a run has several engines.

Owns: ``Awake``.
Must not: start a session, or know what an engine is.

A lab stays when its file is done, since the next file may have its wire. With one for each of many engines, in each of
several workers, the kernel would run out of neighbours: those of all namespaces share a table that holds 1,024 in each
family (``gc_thresh3``, net/core/neighbour.c), a lab has some forty, and a packet to one that finds no place is lost.
"""

from collections.abc import Callable
from typing import Final, Generic, Protocol, TypeVar

__all__ = ["Awake"]

_MOST: Final = 3
"""As many as `./dev test` has engines; eight workers then stay below the kernel's limit."""


class Resting(Protocol):
    """What can close its lab, and open another one later."""

    def rest(self) -> None:
        """Close the lab."""


_Session = TypeVar("_Session", bound=Resting)


class Awake(Generic[_Session]):
    """Sessions by name, of which the last few that were asked for may have a lab."""

    def __init__(self, begin: Callable[[str], _Session]) -> None:
        self._begin = begin
        self._sessions: dict[str, _Session] = {}
        self._awake: dict[str, None] = {}

    def session(self, name: str) -> _Session:
        """The session of that name. The one that was asked for the longest ago is put to rest if need be."""
        if name not in self._sessions:
            self._sessions[name] = self._begin(name)
        self._awake.pop(name, None)
        self._awake[name] = None
        while len(self._awake) > _MOST:
            longest_ago = next(iter(self._awake))
            del self._awake[longest_ago]
            self._sessions[longest_ago].rest()
        return self._sessions[name]
