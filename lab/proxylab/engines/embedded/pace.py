"""When a sync loop may run, and when it must.

Owns: ``Periods``, as ``KubeProxyConfiguration`` has them, and ``Pace``, kube-proxy's bounded frequency.
Must not: wait. It answers with moments of whatever clock it is asked by; all times are in seconds.
"""

from proxylab.frozen import dataclass

__all__ = ["Pace", "Periods"]

BURST = 2
"""How many synchronisations may follow each other at once after a quiet time (pkg/proxy/iptables/proxier.go)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Periods:
    """The periods of a sync loop.

    Attributes:
        least: ``minSyncPeriod``, the least time between two synchronisations once the burst is spent.
        sync: ``syncPeriod``, how often the rules are looked after, and how soon a failed load is tried again.
        full: how often nothing is trusted that is remembered of the kernel.
    """

    least: float = 1.0
    sync: float = 30.0
    full: float = 3600.0


class Pace:
    """A bucket of permissions, one more every ``period`` seconds, of which it holds ``BURST`` at most."""

    def __init__(self, period: float, now: float) -> None:
        self._period = period
        self._held = float(BURST)
        self._at = now

    def ready_at(self, now: float) -> float:
        """The first moment from ``now`` on at which there is a permission."""
        if not self._period:
            return now
        lacking = 1.0 - self._held - (now - self._at) / self._period
        return now + lacking * self._period if lacking > 1e-9 else now

    def take(self, now: float) -> None:
        """Use one up. What must run without permission leaves a debt."""
        if self._period:
            self._held = min(float(BURST), self._held + (now - self._at) / self._period) - 1.0
        self._at = now
