"""What an engine stands on: one node, and the cluster it is in.

Owns: ``NodeContext`` and ``Cluster``.
Must not: do anything with them; ``catalogue`` hands each engine what it needs.
"""

from proxylab.cluster.store import Store
from proxylab.control.apiserver import ApiServer
from proxylab.engines.barrier import Barrier
from proxylab.frozen import dataclass
from proxylab.kernel.netfilter.rules import IptablesTool
from proxylab.kernel.sandbox.launcher import Launcher
from proxylab.kernel.sandbox.netns import NetNs

__all__ = ["Cluster", "NodeContext"]


@dataclass(frozen=True, slots=True)
class NodeContext:
    """One node: its namespace, what starts commands there and by which name it knows the place, and its iptables."""

    netns: NetNs
    launcher: Launcher
    name: str
    tool: IptablesTool


@dataclass(frozen=True, slots=True)
class Cluster:
    """What the nodes have in common: the objects, who serves them, and by what is seen that they are programmed."""

    store: Store
    api: ApiServer
    barrier: Barrier
