"""The interface of a proxy's work on its node besides rules."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from msgspec import Struct, field

from proxylab.addresses import Family
from proxylab.engines.embedded.health import Health
from proxylab.engines.embedded.metrics import SyncMetrics
from proxylab.engines.embedded.node import NodeFacts
from proxylab.engines.embedded.ports import ServicePortInfo

__all__ = ["Served", "Surroundings"]


class Served(Struct, frozen=True):
    """What the rules in the kernel serve: the service ports of each family, on this node."""

    node: NodeFacts
    ports: Mapping[Family, Sequence[ServicePortInfo]] = field(default_factory=dict)


class Surroundings(Protocol):
    """The node around the rules: sysctls, connection tracking, HTTP servers."""

    async def open(self, health: Health, metrics: SyncMetrics) -> tuple[str, ...]:
        """Prepare the node before the first rule; returns a line for each server that fails. Raises ``EngineError``."""

    async def follow(self, served: Served) -> tuple[str, ...]:
        """Follow rules that have just been loaded; returns lines for the log."""

    async def close(self) -> None:
        """Stop serving. Sysctls and rules stay, as kube-proxy leaves them."""
