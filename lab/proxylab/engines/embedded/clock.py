"""The clock of a sync loop: its protocol, and the kernel's clock that every engine uses."""

import asyncio
import math
import time
from typing import Protocol

__all__ = ["Clock", "MonotonicClock"]


class Clock(Protocol):
    """A clock to wait by. Tests have one that they advance themselves."""

    def now(self) -> float:
        """Seconds since some fixed moment."""

    async def wait(self, event: asyncio.Event, until: float) -> None:
        """Return when ``event`` is set, or at ``until``."""


class MonotonicClock:
    """The kernel's monotonic clock."""

    def now(self) -> float:
        """Seconds of CLOCK_MONOTONIC."""
        return time.monotonic()

    async def wait(self, event: asyncio.Event, until: float) -> None:
        """Return when ``event`` is set, or at ``until``."""
        left = None if math.isinf(until) else max(0.0, until - self.now())
        try:
            async with asyncio.timeout(left):
                await event.wait()
        except TimeoutError:
            return
