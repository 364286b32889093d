"""What kube-proxy says of its synchronisations at ``/metrics``, and of its node at ``/healthz``.

Owns: ``SyncState``, and how both pages are read.
Must not: fetch a page.
"""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import field
from typing import Final

from proxylab.frozen import dataclass

__all__ = ["SyncState", "read_metrics", "says_of_node"]

_PREFIX: Final = "kubeproxy_sync_proxy_rules_"
_FAILURES: Final = (
    _PREFIX + "iptables_restore_failures_total",
    _PREFIX + "nftables_sync_failures_total",
)
_FULL: Final = "kubeproxy_sync_full_proxy_rules_duration_seconds_count"


@dataclass(frozen=True, slots=True)
class SyncState:
    """How far it has come.

    Attributes:
        failures: synchronisations that failed, over all families.
        full: full ones that are over, by family, as ``IPv4``; all under an empty word where the version does not say.
    """

    failures: int = 0
    full: Mapping[str, int] = field(default_factory=dict)

    def is_full_since(self, before: "SyncState", families: int) -> bool:
        """Whether each of so many families was fully synchronised since ``before``."""
        grown = {family: count - before.full.get(family, 0) for family, count in self.full.items()}
        return grown.get("", 0) >= families or sum(count > 0 for count in grown.values()) >= families


def read_metrics(page: bytes) -> SyncState:
    """Read the page (https://prometheus.io/docs/instrumenting/exposition_formats/)."""
    from prometheus_client.parser import text_string_to_metric_families  # noqa: PLC0415 - 40 ms, for those who ask

    lines = [line for line in page.decode(errors="replace").splitlines() if line.startswith((*_FAILURES, _FULL))]
    failures, full = 0.0, Counter[str]()
    for family in text_string_to_metric_families("\n".join(lines) + "\n"):
        for sample in family.samples:
            if sample.name in _FAILURES:
                failures += sample.value
            elif sample.name == _FULL:
                full[sample.labels.get("ip_family", "")] += int(sample.value)
    return SyncState(int(failures), full)


def says_of_node(page: bytes) -> bool | None:
    """Whether its node may get new connections; ``None`` where a version does not say, as none did before 1.28."""
    try:
        said = json.loads(page)
    except ValueError:
        return None
    eligible = said.get("nodeEligible") if isinstance(said, dict) else None
    return eligible if isinstance(eligible, bool) else None
