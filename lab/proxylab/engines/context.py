"""The node and the cluster that an engine works on; ``catalogue`` hands each engine the parts that it needs."""

from collections.abc import Mapping

from msgspec import Struct, field

from proxylab.cluster.store import Store
from proxylab.control.apiserver import ApiServer
from proxylab.engines.barrier import Barrier
from proxylab.engines.embedded.mutation import Mutation
from proxylab.engines.rule_loads import NodeLoads
from proxylab.kernel.netfilter.iptables_tool import IptablesTool
from proxylab.kernel.sandbox.iptables_links import links_to
from proxylab.kernel.sandbox.launcher import Launcher
from proxylab.kernel.sandbox.netns import NetNs


class NodeContext(Struct, frozen=True):
    """One node: its namespace, the launcher of commands and the name by which it knows the namespace, its iptables.

    An embedded engine loads its rules with the ``mutation``, if there is one. ``programs`` are the paths of nft and
    iptables that the node's proxy runs, where they are not the machine's own; ``loads`` may let them fail.
    """

    netns: NetNs
    launcher: Launcher
    name: str
    tool: IptablesTool
    mutation: Mutation | None = None
    programs: Mapping[str, str] = field(default_factory=dict)
    loads: NodeLoads | None = None

    @property
    def links(self) -> dict[str, str]:
        """Links to the node's programs, by which commands find them (``kernel.sandbox.iptables_links``)."""
        own = links_to(self.tool.variant.name, self.programs)
        return own if self.loads is None else own | self.loads.links

    def loader(self, command: str) -> str:
        """What to run for a command that loads rules."""
        return command if self.loads is None else self.loads.instead_of(command)


class Cluster(Struct, frozen=True):
    """What all nodes share: the objects, the API server, and the barrier that shows how far a proxy has come."""

    store: Store
    api: ApiServer
    barrier: Barrier
