"""Counting which rules matched while a probe ran: the interface, of which each mode has its own implementation."""

from typing import Protocol

from proxylab.evidence.evidence import RuleCount
from proxylab.plan.resolved import ResolvedProbe


class Meter(Protocol):
    """Counts between ``begin`` and ``end``."""

    @property
    def max_frames_in_flight(self) -> int | None:
        """How many frames may be under way before the event loop must run; ``None`` for any number."""

    @property
    def is_complete(self) -> bool:
        """Whether the count covers everything between ``begin`` and ``end``."""

    async def begin(self, resolved: ResolvedProbe) -> None:
        """Remember the node's counters; from now on they count the packets of ``resolved``."""

    async def end(self) -> tuple[RuleCount, ...]:
        """The rules that have counted since."""

    def rules_by_chain(self) -> dict[tuple[str, str], list[str]]:
        """The rules by table and chain, in order, as they were at ``begin``."""

    def close(self) -> None:
        """Close what the meter holds open."""
