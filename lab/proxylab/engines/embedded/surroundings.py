"""What a proxy does on its node besides rules.

Owns: the ``Surroundings`` protocol, and ``NoSurroundings`` for an engine that is to write rules only.
Must not: know any mode, or the kernel.
"""

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Protocol

from proxylab.addresses import Family
from proxylab.engines.embedded.health import Health
from proxylab.engines.embedded.metrics import SyncMetrics
from proxylab.engines.embedded.node import NodeFacts
from proxylab.engines.embedded.ports import ServicePortInfo
from proxylab.frozen import dataclass

__all__ = ["NoSurroundings", "Served", "Surroundings"]


@dataclass(frozen=True, slots=True)
class Served:
    """What the rules in the kernel serve: the service ports of each family, on this node."""

    node: NodeFacts
    ports: Mapping[Family, Sequence[ServicePortInfo]] = field(default_factory=dict)


class Surroundings(Protocol):
    """The node around the rules: sysctls, connection tracking, HTTP servers."""

    async def open(self, health: Health, metrics: SyncMetrics) -> tuple[str, ...]:
        """Prepare the node before the first rule, and say what could not be had. Raises ``EngineError``."""

    async def follow(self, served: Served) -> tuple[str, ...]:
        """Bring all of it in step with rules that have just been loaded; lines for the log."""

    async def close(self) -> None:
        """Stop serving. What stands in the kernel stays, as kube-proxy leaves it."""


class NoSurroundings:
    """Rules and nothing else."""

    async def open(self, health: Health, metrics: SyncMetrics) -> tuple[str, ...]:
        """Nothing to prepare."""
        return ()

    async def follow(self, served: Served) -> tuple[str, ...]:
        """Nothing to follow."""
        return ()

    async def close(self) -> None:
        """Nothing to close."""
