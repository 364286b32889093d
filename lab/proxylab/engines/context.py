"""The node and the cluster that an engine works on; ``catalogue`` hands each engine the parts that it needs."""

from msgspec import Struct

from proxylab.cluster.store import Store
from proxylab.control.apiserver import ApiServer
from proxylab.engines.barrier import Barrier
from proxylab.engines.embedded.mutation import Mutation
from proxylab.kernel.netfilter.iptables_tool import IptablesTool
from proxylab.kernel.sandbox.launcher import Launcher
from proxylab.kernel.sandbox.netns import NetNs


class NodeContext(Struct, frozen=True):
    """One node: its namespace, the launcher of commands and the name by which it knows the namespace, its iptables.

    An embedded engine loads its rules with the ``mutation``, if there is one.
    """

    netns: NetNs
    launcher: Launcher
    name: str
    tool: IptablesTool
    mutation: Mutation | None = None


class Cluster(Struct, frozen=True):
    """What all nodes share: the objects, the API server, and the barrier that shows how far a proxy has come."""

    store: Store
    api: ApiServer
    barrier: Barrier
