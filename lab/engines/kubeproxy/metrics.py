"""What kube-proxy says of its synchronisations at ``/metrics``.

Owns: ``SyncState``.
Must not: fetch the page.
"""

from dataclasses import dataclass
from typing import Final

__all__ = ["SyncState", "read_metrics"]

_PREFIX: Final = "kubeproxy_sync_proxy_rules_"
_FAILURES: Final = (
    _PREFIX + "iptables_restore_failures_total",
    _PREFIX + "nftables_sync_failures_total",
)
_FULL: Final = "kubeproxy_sync_full_proxy_rules_duration_seconds_count"


@dataclass(frozen=True, slots=True)
class SyncState:
    """How far it has come: synchronisations that failed, and full ones that were done, over all families."""

    failures: int = 0
    full: int = 0


def read_metrics(page: bytes) -> SyncState:
    """Read the page (https://prometheus.io/docs/instrumenting/exposition_formats/).

    Versions before 1.33 or so have no ``ip_family`` label; sums are the same for all.
    """
    from prometheus_client.parser import text_string_to_metric_families  # noqa: PLC0415 - for those who ask

    wanted = (*_FAILURES, _FULL)
    lines = [line for line in page.decode(errors="replace").splitlines() if line.startswith(wanted)]
    sums = dict.fromkeys(wanted, 0.0)
    for family in text_string_to_metric_families("\n".join(lines) + "\n"):
        for sample in family.samples:
            if sample.name in sums:
                sums[sample.name] += sample.value
    return SyncState(failures=int(sum(sums[name] for name in _FAILURES)), full=int(sums[_FULL]))
