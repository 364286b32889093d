"""The time of a sync loop.

Owns: the ``Clock`` protocol and the one that every engine runs by.
Must not: know what is waited for.
"""

import asyncio
import math
import time
from typing import Protocol

__all__ = ["Clock", "MonotonicClock"]


class Clock(Protocol):
    """Something to wait by. Tests have one that stands still until it is moved."""

    def now(self) -> float:
        """Seconds since some fixed moment."""

    async def wait(self, event: asyncio.Event, until: float) -> None:
        """Return when ``event`` is set, or when ``until`` has come."""


class MonotonicClock:
    """The kernel's monotonic clock."""

    def now(self) -> float:
        """Seconds of CLOCK_MONOTONIC."""
        return time.monotonic()

    async def wait(self, event: asyncio.Event, until: float) -> None:
        """Return when ``event`` is set, or when ``until`` has come."""
        left = None if math.isinf(until) else max(0.0, until - self.now())
        try:
            async with asyncio.timeout(left):
                await event.wait()
        except TimeoutError:
            return
