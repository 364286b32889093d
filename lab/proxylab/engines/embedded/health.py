"""Whether a proxy keeps up with changes.

Owns ``Health``: since when a change has been waiting in each family. It follows kube-proxy's healthz
(pkg/proxy/healthcheck/proxy_health.go): a proxy is stale once a change has waited for twice the sync period, and it is
healthy before its first sync.
"""

from collections.abc import Sequence

from proxylab.addresses import Family
from proxylab.cluster.objects import Node


class Health:
    """The health of one node's proxy. All times are seconds of the engine's clock.

    Attributes:
        node_eligible: whether the Node lets balancers send traffic here.
        last_synced: the last successful sync of each family; ``None`` before the first.
    """

    def __init__(self, families: Sequence[Family], sync_period: float) -> None:
        self._patience = 2 * sync_period
        self._waiting_since: dict[Family, float | None] = dict.fromkeys(families)
        self.node_eligible = False
        self.last_synced: dict[Family, float | None] = dict.fromkeys(families)

    def look_at(self, node: Node | None) -> None:
        """Note whether the Node is leaving."""
        self.node_eligible = node is not None and not node.is_leaving

    def queued(self, now: float) -> None:
        """Note that a change waits in every family. A change that already waits keeps its own time."""
        for family, since in self._waiting_since.items():
            if since is None:
                self._waiting_since[family] = now

    def synced(self, family: Family, began: float, now: float) -> None:
        """Note a successful sync of ``family``. Changes that came after it ``began`` still wait."""
        self.last_synced[family] = now
        since = self._waiting_since[family]
        if since is not None and since <= began:
            self._waiting_since[family] = None

    def all_healthy(self, now: float) -> bool:
        """Whether the proxy keeps up in every family."""
        return all(self.is_healthy(family, now) for family in self._waiting_since)

    def is_healthy(self, family: Family, now: float) -> bool:
        """Whether no change of that family has waited too long."""
        since = self._waiting_since[family]
        return since is None or now - since < self._patience
