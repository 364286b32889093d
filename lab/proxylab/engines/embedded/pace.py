"""When a sync loop may run.

Owns ``Pace``, kube-proxy's bounded frequency, and the clock that the loop waits by. ``Pace`` computes times, in seconds
of its caller's clock, and does not wait.
"""

import asyncio
import math
import time
from typing import Protocol

__all__ = ["Clock", "MonotonicClock", "Pace"]

BURST = 2
"""How many syncs may follow each other at once after a quiet time (pkg/proxy/iptables/proxier.go)."""


class Pace:
    """A token bucket: one more token every ``period`` seconds, ``BURST`` at most."""

    def __init__(self, period: float, now: float) -> None:
        self._period = period
        self._tokens = float(BURST)
        self._at = now

    def ready_at(self, now: float) -> float:
        """The first time from ``now`` on at which there is a token."""
        if not self._period:
            return now
        lacking = 1.0 - self._tokens - (now - self._at) / self._period
        return now + lacking * self._period if lacking > 1e-9 else now

    def take(self, now: float) -> None:
        """Take one token. A sync that must run without a token leaves a debt."""
        if self._period:
            self._tokens = min(float(BURST), self._tokens + (now - self._at) / self._period) - 1.0
        self._at = now


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
