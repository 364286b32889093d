"""When a sync loop may run, and when it must.

Owns ``Periods``, as ``KubeProxyConfiguration`` has them, and ``Pace``, kube-proxy's bounded frequency. It computes
times, in seconds of its caller's clock, and does not wait.
"""

from msgspec import Struct

__all__ = ["Pace", "Periods"]

BURST = 2
"""How many syncs may follow each other at once after a quiet time (pkg/proxy/iptables/proxier.go)."""


class Periods(Struct, frozen=True, kw_only=True):
    """The periods of a sync loop.

    Attributes:
        least: ``minSyncPeriod``, the least time between two syncs once the burst is spent.
        sync: ``syncPeriod``, how often the loop looks for its canary chains, and how soon it retries a failed load.
        full: how often the loop runs a full sync without another reason.
    """

    least: float = 1.0
    sync: float = 30.0
    full: float = 3600.0


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
