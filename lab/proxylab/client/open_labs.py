"""The sessions of a run by engine, and how many keep a lab open at once when a run has several engines.

A session keeps its lab open after a file. With a lab for each of many engines, in each of several workers, the kernel
would run out of neighbour entries: all namespaces share a table of 1,024 entries per family (``gc_thresh3``,
net/core/neighbour.c), a lab uses about forty, and the kernel drops a packet whose neighbour finds no entry.
"""

from collections.abc import Callable
from typing import Final, Generic, Protocol, TypeVar

from proxylab.errors import EngineError
from proxylab.scenario.model import Scenario
from proxylab.verdict.model import KnownFailure

MOST_JOBS: Final = 8
"""How many workers may have labs at the same time."""

_MOST_LABS: Final = 3
"""The number of engines in `./dev test`; with it, so many workers stay below the kernel's limit."""

Opened = TypeVar("Opened")


class ReopeningSession(Protocol):
    """A session that can close its lab, and open another one later."""

    def close_lab(self) -> None:
        """Close the lab."""


_Session = TypeVar("_Session", bound=ReopeningSession)


class OpenLabs(Generic[_Session]):
    """Sessions by name; only the few most recently used keep their labs open."""

    def __init__(self, begin: Callable[[str], _Session]) -> None:
        self._begin = begin
        self._sessions: dict[str, _Session] = {}
        self._open: dict[str, None] = {}

    def session(self, name: str) -> _Session:
        """The session of that name. If too many labs are open, the least recently used session closes its lab."""
        if name not in self._sessions:
            self._sessions[name] = self._begin(name)
        self._open.pop(name, None)
        self._open[name] = None
        while len(self._open) > _MOST_LABS:
            least_recent = next(iter(self._open))
            del self._open[least_recent]
            self._sessions[least_recent].close_lab()
        return self._sessions[name]


def open_or_foresee(open_lab: Callable[[Scenario], Opened], scenario: Scenario) -> Opened | KnownFailure:
    """Open the lab of a scenario, or return the engine's failure if the scenario foresees it.

    Raises:
        EngineError: an engine failed in a way that the scenario does not foresee, or a foreseen failure did not happen.
        LabError: every other error of ``open_lab``.
    """
    failure = next(iter(scenario.failures), None)
    try:
        lab = open_lab(scenario)
    except EngineError as error:
        if failure is None:
            raise
        line_found = next((line for line in reversed(error.log.splitlines()) if failure.says in line), "")
        if not line_found:
            what = f"{error.what}; its log has no {failure.says!r}, which {failure.position} foresees"
            raise EngineError(error.node, what, error.log) from error
        return KnownFailure(failure.because, line_found.strip(), failure.position)
    if failure is not None:
        node = scenario.nodes[0].name
        what = f"it programmed what {failure.position} says it cannot ({failure.because}); narrow that exception"
        raise EngineError(node, what)
    return lab
