"""What an engine stands on in one node.

Owns: ``Ground``.
Must not: do anything with it; ``catalogue`` hands each engine what it needs.
"""

from dataclasses import dataclass

from lab.cluster.store import Store
from lab.control.apiserver import ApiServer
from lab.engines.barrier import Barrier
from lab.kernel.launcher import Launcher
from lab.kernel.netns import NetNs
from lab.kernel.rules import IptablesTool

__all__ = ["Ground"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """One node, and the cluster it is in.

    Attributes:
        node: its name, as its Node object and endpoints have it.
        netns: its namespace.
        launcher: starts commands there.
        place: as the launcher knows it.
        tool: its iptables.
        store: the cluster.
        api: the cluster's API server.
        barrier: the Service by which is seen that the cluster has been programmed.
    """

    node: str
    netns: NetNs
    launcher: Launcher
    place: str
    tool: IptablesTool
    store: Store
    api: ApiServer
    barrier: Barrier
