"""``ProxySetting``: which proxy of a node the oracle is asked about, its mode, version and configuration."""

from typing import Final

from proxylab.cluster.configuration import Mode, ProxyConfiguration, Scheduler
from proxylab.encoding import Record
from proxylab.oracle.rows import OracleRow, row_that_holds
from proxylab.scenario.versions import Version

_FIRST_VERSION: Final[Version] = (1, 24)
_NFTABLES: Final[Version] = (1, 31)

_IN_TURN: Final = (Scheduler.RR, Scheduler.WRR)
"""Schedulers of IPVS that look at nothing but whose turn it is: kube-proxy gives all endpoints one weight."""

_DECIDING_GATES: Final = frozenset(
    {
        "PreferSameTrafficDistribution",
        "ProxyTerminatingEndpoints",
        "ServiceInternalTrafficPolicy",
        "ServiceTrafficDistribution",
        "TopologyAwareHints",
    }
)
"""Feature gates that decide which endpoints a proxy uses; the rows state what their defaults in each version mean."""


class ProxySetting(Record, frozen=True, kw_only=True):
    """The proxy of a node: its mode, its version, and its configuration after defaulting."""

    mode: Mode
    version: Version
    configuration: ProxyConfiguration = ProxyConfiguration()

    def row(self, subject: str) -> OracleRow | None:
        """The row of that subject that holds for this proxy; ``None`` if no row says anything about its mode."""
        return row_that_holds(subject, self.mode, self.version)

    @property
    def masquerades_all(self) -> bool:
        """Whether it masquerades everything that nodes send to cluster IPs (``masqueradeAll``)."""
        if self.mode is Mode.NFTABLES:
            return self.configuration.nftables.masquerade_all
        return self.configuration.masquerade_all

    @property
    def allows_external_ips(self) -> bool:
        """Whether it serves external IPs, by the feature gate that will remove them (KEP-5707)."""
        return self.configuration.feature_gates.get("AllowServiceExternalIPs", True)

    @property
    def takes_turns(self) -> bool:
        """Whether endpoints get equal shares of many connections, as of all proxies but some schedulers of IPVS."""
        return self.mode is not Mode.IPVS or self.configuration.ipvs.scheduler in _IN_TURN

    @property
    def undecided(self) -> str:
        """Why the rows cannot decide what this proxy does; empty if they can."""
        if self.version < _FIRST_VERSION:
            return "the rows state what holds since Kubernetes 1.24"
        if self.mode is Mode.NFTABLES and self.version < _NFTABLES:
            return "mode nftables is alpha before Kubernetes 1.31"
        if self.mode is Mode.USERSPACE:
            return "a process of the node ends connections in mode userspace, which Kubernetes removed in 1.26"
        gates = sorted(_DECIDING_GATES & self.configuration.feature_gates.keys())
        return f"the configuration sets the feature gate {gates[0]}, and rows state only defaults" if gates else ""
