"""A proxy's metrics, by kube-proxy's names.

Owns ``SyncMetrics`` and its text in the format of Prometheus. Names and meanings are those of
pkg/proxy/metrics/metrics.go, as far as this engine can fill them truthfully. Prometheus' library takes longer to load
than the rest of an engine, so the first request for metrics imports it.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from proxylab.addresses import Family
from proxylab.engines.modes import MODES

if TYPE_CHECKING:
    from prometheus_client.core import Metric

_PREFIX: Final = "kubeproxy_sync_proxy_rules_"
_ANY: Final = f"{_PREFIX}duration_seconds"
_FULL: Final = "kubeproxy_sync_full_proxy_rules_duration_seconds"
_PARTIAL: Final = "kubeproxy_sync_partial_proxy_rules_duration_seconds"
_SYNCED: Final = f"{_PREFIX}last_timestamp_seconds"
_QUEUED: Final = f"{_PREFIX}last_queued_timestamp_seconds"
_RULES: Final = f"{_PREFIX}iptables_last"
_WITHOUT_LOCAL: Final = f"{_PREFIX}no_local_endpoints_total"
_FORGOTTEN: Final = "kubeproxy_conntrack_reconciler_deleted_entries_total"
_KINDS: Final = ("service", "endpoint")

_BOUNDS: Final = tuple(0.001 * 2**power for power in range(15))
"""The upper bounds of kube-proxy's buckets, in seconds."""

_HELP: Final = {
    _ANY: "SyncProxyRules latency in seconds",
    _FULL: "SyncProxyRules latency in seconds for full resyncs",
    _PARTIAL: "SyncProxyRules latency in seconds for partial resyncs",
    _SYNCED: "The last time proxy rules were successfully synced",
    _QUEUED: "The last time a sync of proxy rules was queued",
    _RULES: "Number of iptables rules written by kube-proxy in last sync",
    _WITHOUT_LOCAL: "Number of services with a Local traffic policy and no endpoints",
    _FORGOTTEN: "Cumulative conntrack flows deleted by conntrack reconciler",
    "kubeproxy_iptables_ct_state_invalid_dropped_packets_total": (
        "packets dropped by iptables to work around conntrack problems"
    ),
    "kubeproxy_iptables_localhost_nodeports_accepted_packets_total": (
        "Number of packets accepted on nodeports of loopback interface"
    ),
    **{f"{_PREFIX}{kind}_changes_total": f"Cumulative proxy rules {kind} changes" for kind in _KINDS},
    **{f"{_PREFIX}{kind}_changes_pending": f"Pending proxy rules {kind} changes" for kind in _KINDS},
}

_SECOND_LABEL: Final = {_RULES: "table", _WITHOUT_LOCAL: "traffic_policy"}

Labels = tuple[str, ...]
"""Values of ``ip_family`` and of the label in ``_SECOND_LABEL``, if the metric has one."""


@dataclass(slots=True)
class _Durations:
    """A histogram: how many durations fell into each bucket, the last of which has no bound."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(_BOUNDS) + 1))
    total: float = 0.0

    def observe(self, seconds: float) -> None:
        index = next((index for index, bound in enumerate(_BOUNDS) if seconds <= bound), len(_BOUNDS))
        self.counts[index] += 1
        self.total += seconds

    def buckets(self) -> list[tuple[str, float]]:
        bounds = [*map(str, _BOUNDS), "+Inf"]
        return [(bound, float(count)) for bound, count in zip(bounds, accumulate(self.counts), strict=True)]


class SyncMetrics:
    """The metrics of one node's proxy. ``mode`` is its mode, as ``/proxyMode`` names it."""

    def __init__(self, mode: str) -> None:
        self.mode = mode
        failures = MODES[mode].failures
        self._failures = f"{_PREFIX}{failures}_total"
        self._help = _HELP | {self._failures: f"Cumulative proxy {failures.replace('_', ' ')}"}
        self._values: dict[str, dict[Labels, float]] = defaultdict(lambda: defaultdict(float))
        self._durations: dict[str, dict[Labels, _Durations]] = defaultdict(lambda: defaultdict(_Durations))
        for kind in _KINDS:
            self._values[f"{_PREFIX}{kind}_changes_total"][()] = 0
            self._values[f"{_PREFIX}{kind}_changes_pending"][()] = 0

    def queued(self, family: Family, timestamp: float) -> None:
        """A sync was queued. ``timestamp`` is in seconds since 1970."""
        self._values[_QUEUED][family,] = timestamp

    def changed(self, kind: str) -> None:
        """A Service (``service``) or an EndpointSlice (``endpoint``) changed."""
        self._values[f"{_PREFIX}{kind}_changes_total"][()] += 1
        self._values[f"{_PREFIX}{kind}_changes_pending"][()] += 1

    def taken(self) -> None:
        """The sync that begins now takes all pending changes."""
        for kind in _KINDS:
            self._values[f"{_PREFIX}{kind}_changes_pending"][()] = 0

    def synced(self, family: Family, seconds: float, timestamp: float, *, full: bool) -> None:
        """A sync succeeded."""
        for name in (_ANY, _FULL if full else _PARTIAL):
            self._durations[name][family,].observe(seconds)
        self._values[_SYNCED][family,] = timestamp

    def wrote(self, family: Family, table: str, rules: int) -> None:
        """How many rules the last sync wrote into one table."""
        self._values[_RULES][family, table] = rules

    def without_local(self, family: Family, internal: int, external: int) -> None:
        """How many service ports drop packets, since the policy is Local and all endpoints are on other nodes."""
        self._values[_WITHOUT_LOCAL][family, "internal"] = internal
        self._values[_WITHOUT_LOCAL][family, "external"] = external

    def failed(self, family: Family) -> None:
        """The kernel refused a load."""
        self._values[self._failures][family,] += 1

    def forgot(self, family: Family, entries: int) -> None:
        """The engine deleted conntrack entries."""
        self._values[_FORGOTTEN][family,] += entries

    def text(self, packets: Mapping[str, float]) -> bytes:
        """All metrics, as ``/metrics`` serves them, with ``packets`` that the kernel has counted, by metric."""
        # 36 ms, which every start of a lab process would pay, and few labs serve a request for metrics.
        from prometheus_client import CollectorRegistry, generate_latest  # noqa: PLC0415
        from prometheus_client.core import (  # noqa: PLC0415
            CounterMetricFamily,
            GaugeMetricFamily,
            HistogramMetricFamily,
        )

        families: list[Metric] = []
        counted: dict[str, Mapping[Labels, float]] = {name: {(): count} for name, count in packets.items()}
        for name, values in (self._values | counted).items():
            is_counter = name.endswith("_total") and name != _WITHOUT_LOCAL  # kube-proxy misnames this gauge
            kind = CounterMetricFamily if is_counter else GaugeMetricFamily
            keys = ["ip_family", _SECOND_LABEL.get(name, "")]
            metric = kind(name, self._help[name], labels=keys[: len(next(iter(values)))])
            for labels, value in values.items():
                metric.add_metric(list(labels), value)
            families.append(metric)
        for name, durations in self._durations.items():
            histogram = HistogramMetricFamily(name, self._help[name], labels=["ip_family"])
            for labels, one in durations.items():
                histogram.add_metric(list(labels), one.buckets(), one.total)
            families.append(histogram)
        registry = CollectorRegistry()
        registry.register(_Collected(families))
        return generate_latest(registry)


class _Collected(Struct, frozen=True, eq=False):
    """A collector of Prometheus' library."""

    families: list["Metric"]

    def collect(self) -> list["Metric"]:
        return self.families
