"""One proxy mode on one node: all that touches the kernel and depends on the mode.

Owns the ``NodeMode`` protocol and ``node_mode``, the table of its implementations; ``modes`` is the table of all that
is pure. The embedded engine programs a node through it. The real kube-proxy programs by itself, but the lab dumps,
flushes and counts its rules in the same way.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

from proxylab.addresses import Family
from proxylab.cluster.configuration import ProxyConfiguration
from proxylab.engines.context import NodeContext
from proxylab.engines.embedded.iptables.node import IptablesNode
from proxylab.engines.embedded.ipvs.node import IpvsNode
from proxylab.engines.embedded.nftables.node import NftablesNode
from proxylab.engines.embedded.proxier import Proxier
from proxylab.engines.embedded.settings import ProxySettings
from proxylab.engines.embedded.userspace.node import UserspaceNode
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


_NODE_MODES: Final[Mapping[str, Callable[[NodeContext], NodeMode]]] = {
    "iptables": IptablesNode,
    "nftables": NftablesNode,
    "ipvs": IpvsNode,
    "userspace": UserspaceNode,
}


_REMOVED: Final[Mapping[str, Sequence[str]]] = {
    "iptables": ("nftables", "userspace"),
    # The chains of mode ipvs go first, since mode iptables has some of their names too.
    "nftables": ("ipvs", "iptables", "userspace"),
    "ipvs": ("nftables",),
    "userspace": ("nftables", "iptables"),
}
"""By mode, the modes whose rules kube-proxy removes when it starts (platformCleanup in cmd/kube-proxy/app).

Modes iptables and ipvs leave each other's: ``kube-proxy --cleanup`` or a restart of the node removes those. Mode
userspace ended with 1.25, before there was a mode nftables, whose rules would translate first.
"""


def removed_at_start(mode: str, context: NodeContext) -> dict[str, NodeMode]:
    """The modes on that node, by name, whose rules a starting proxy of a mode removes."""
    return {name: _NODE_MODES[name](context) for name in _REMOVED[mode]}


def node_mode(mode: str, context: NodeContext) -> NodeMode:
    """The mode of that name on the node of a context."""
    return _NODE_MODES[mode](context)
