"""Reads kube-proxy's pages: its sync counters at ``/metrics``, its node's eligibility at ``/healthz``."""

import json
from collections import Counter
from collections.abc import Mapping
from typing import Final

from msgspec import Struct, field

from proxylab.engines.modes import MODES

_PREFIX: Final = "kubeproxy_sync_proxy_rules_"
_FAILURES: Final = tuple(f"{_PREFIX}{mode.failures}_total" for mode in MODES.values())
_FULL: Final = "kubeproxy_sync_full_proxy_rules_duration_seconds_count"


class SyncState(Struct, frozen=True):
    """kube-proxy's sync counters.

    Attributes:
        failures: failed syncs of all families.
        full: finished full syncs by family, as ``IPv4``; all under an empty key where the version has no such label.
    """

    failures: int = 0
    full: Mapping[str, int] = field(default_factory=dict)

    def is_full_since(self, before: "SyncState", families: int) -> bool:
        """Whether each of so many families had a full sync since ``before``."""
        grown = {family: count - before.full.get(family, 0) for family, count in self.full.items()}
        return grown.get("", 0) >= families or sum(count > 0 for count in grown.values()) >= families


def read_metrics(page: bytes) -> SyncState:
    """Read the page (https://prometheus.io/docs/instrumenting/exposition_formats/)."""
    from prometheus_client.parser import text_string_to_metric_families  # noqa: PLC0415 - 40 ms, and seldom needed

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
    """Whether the node may get new connections; ``None`` where the page does not say, as before 1.28."""
    try:
        document = json.loads(page)
    except ValueError:
        return None
    eligible = document.get("nodeEligible") if isinstance(document, dict) else None
    return eligible if isinstance(eligible, bool) else None
