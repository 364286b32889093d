"""Whether a proxy keeps up.

Owns: ``Health``: since when a change has been waiting for each family, and what follows from it.
Must not: serve HTTP (``control.servers`` does), or wait.

As kube-proxy's healthz (pkg/proxy/healthcheck/proxy_health.go): a proxy is stale if a change has waited for twice the
sync period. It is healthy before its first synchronisation.
"""

from collections.abc import Sequence

from proxylab.addresses import Family
from proxylab.cluster.objects import Node

__all__ = ["Health"]


class Health:
    """The health of one node's proxy. All moments are those of the engine's clock, in seconds.

    Attributes:
        node_eligible: whether balancers may send traffic here, as far as the node itself is concerned.
        last_synced: when each family was last brought in step; ``None`` before the first time.
    """

    def __init__(self, families: Sequence[Family], sync_period: float) -> None:
        self._patience = 2 * sync_period
        self._waiting_since: dict[Family, float | None] = dict.fromkeys(families)
        self.node_eligible = False
        self.last_synced: dict[Family, float | None] = dict.fromkeys(families)

    def look_at(self, node: Node | None) -> None:
        """Take note of the Node object."""
        self.node_eligible = node is not None and not node.is_leaving

    def queued(self, now: float) -> None:
        """A change waits, in every family; one that waits already counts from its own time."""
        for family, since in self._waiting_since.items():
            if since is None:
                self._waiting_since[family] = now

    def synced(self, family: Family, began: float, now: float) -> None:
        """A synchronisation of ``family`` succeeded; what came in after it ``began`` still waits."""
        self.last_synced[family] = now
        since = self._waiting_since[family]
        if since is not None and since <= began:
            self._waiting_since[family] = None

    def all_healthy(self, now: float) -> bool:
        """Whether it keeps up in every family."""
        return all(self.is_healthy(family, now) for family in self._waiting_since)

    def is_healthy(self, family: Family, now: float) -> bool:
        """Whether no change of that family has waited too long."""
        since = self._waiting_since[family]
        return since is None or now - since < self._patience
