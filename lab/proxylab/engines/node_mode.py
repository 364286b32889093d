"""One proxy mode on one node: all that touches the kernel and depends on the mode.

Owns the ``NodeMode`` protocol, and ``node_mode``, which loads its implementation: ``ON_NODE`` in the module ``node`` of
the mode's package. By that name alone, so that a client, which never touches a kernel, can know the modes. The embedded
engine programs a node through it. The real kube-proxy programs by itself, but the lab dumps,
flushes and counts its rules in the same way.
"""

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Protocol

from proxylab.addresses import Family
from proxylab.cluster.configuration import ProxyConfiguration
from proxylab.engines.context import NodeContext
from proxylab.engines.embedded.proxier import Proxier
from proxylab.engines.embedded.settings import ProxySettings
from proxylab.engines.modes import MODES
from proxylab.engines.protocol import ModeProcess
from proxylab.kernel.netfilter.meters import Meter


class NodeMode(Protocol):
    """One mode on one node."""

    def require(self) -> None:
        """Raise ``CapabilityError`` where the machine lacks the mode's tool."""

    def proxiers(
        self,
        families: Sequence[Family],
        settings: ProxySettings,
        configuration: ProxyConfiguration,
        version: tuple[int, ...],
    ) -> Mapping[Family, Proxier]:
        """The embedded engine's proxier of each family that the mode serves, with the rules of that version."""

    @property
    def processes(self) -> Sequence[ModeProcess]:
        """The proxiers' own processes, through which packets pass."""

    async def close(self) -> None:
        """End what the proxiers have started. The rules stay."""

    async def dump(self, family: Family) -> str:
        """The rules in the kernel with their counters, as the mode's own tool prints them."""

    async def flush(self, family: Family) -> None:
        """Remove the rules, as an administrator would."""

    async def remove(self, family: Family) -> bool:
        """Remove what a proxy of this mode has left; returns whether there was anything. Foreign rules stay."""

    def written(self, family: Family) -> list[bytes]:
        """The rules that the proxy writes last, or the names of their chains, as bytes; read without a process."""

    def meter(self, family: Family) -> Meter:
        """The cheapest meter of the rules."""

    @property
    def counted(self) -> tuple[Sequence[str], Sequence[str]]:
        """The tables whose rules meters count: of nftables, each with its family, and of legacy iptables."""


def node_mode(mode: str, context: NodeContext) -> NodeMode:
    """The mode of that name on the node of a context."""
    make: Callable[[NodeContext], NodeMode] = import_module(f"{MODES[mode].package}.node").ON_NODE
    return make(context)


def removed_at_start(mode: str, context: NodeContext) -> dict[str, NodeMode]:
    """The modes on that node, by name, whose rules a starting proxy of a mode removes."""
    return {name: node_mode(name, context) for name in MODES[mode].removes}
