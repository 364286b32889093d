"""The proxier of one family in mode ipvs, which makes a node's kernel hold the planned tables and rules.

Owns ``IpvsProxier`` and its memory of what the kernel holds. The order is kube-proxy's: virtual servers come first and
go last, so that no rule leads packets to a frontend that nothing serves.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from proxylab.addresses import Family, IPAddress
from proxylab.engines.embedded.iptables.kernel_state import read_kernel_state
from proxylab.engines.embedded.iptables.names import SERVICES
from proxylab.engines.embedded.iptables.restore import restore, restore_changes
from proxylab.engines.embedded.iptables.rules import Ruleset
from proxylab.engines.embedded.ipvs.mutants import mutated_tables
from proxylab.engines.embedded.ipvs.rules import make_rules
from proxylab.engines.embedded.ipvs.tables import ServerKey, Tables, plan_tables
from proxylab.engines.embedded.mutation import Mutation
from proxylab.engines.embedded.node import NodeFacts
from proxylab.engines.embedded.ports import ClusterView, ServicePortInfo
from proxylab.engines.embedded.proxier import RulesRefusedError, Synced, SyncFailedError
from proxylab.engines.embedded.settings import ProxySettings
from proxylab.engines.embedded.tracker import PortTracker
from proxylab.evidence.ipvs import IpSet, VirtualServer


class Held(Struct, frozen=True):
    """What a node's kernel holds of one family. A destination with weight 0 only keeps its connections."""

    servers: Mapping[ServerKey, VirtualServer]
    sets: Mapping[str, IpSet]
    bound: frozenset[IPAddress]


class NodeTables(Protocol):
    """IPVS, ipset, iptables and the dummy device of one node. Its changes raise ``RulesRefusedError``."""

    def prepare(self) -> None:
        """Make the dummy device, and write the sysctls and timeouts of the mode."""

    def held(self, family: Family) -> Held:
        """What the kernel holds."""

    def served(self) -> Collection[ServerKey]:
        """The virtual servers of both families, cheaper than ``held``."""

    def serve(self, wanted: Iterable[VirtualServer], before: Mapping[ServerKey, VirtualServer]) -> None:
        """Add and change virtual servers; destinations that go end gracefully."""

    def end(self, servers: Iterable[VirtualServer]) -> None:
        """Delete virtual servers."""

    def fill(self, wanted: Iterable[IpSet], before: Mapping[str, IpSet]) -> None:
        """Make the sets, and their members those that are wanted."""

    def bind(self, addresses: Iterable[IPAddress]) -> None:
        """Add addresses to the dummy device."""

    def unbind(self, addresses: Iterable[IPAddress]) -> None:
        """Delete addresses of the dummy device."""

    def look_after_ending(self) -> None:
        """Delete the ending destinations whose connections are gone."""

    async def load(self, family: Family, text: str) -> None:
        """Load rules with iptables-restore."""

    async def rules(self, family: Family) -> str:
        """The rules as iptables-save prints them."""

    async def has_chain(self, family: Family, table: str, chain: str) -> bool:
        """Whether a table of iptables has that chain."""

    async def dump(self, family: Family) -> str:
        """Rules, sets, virtual servers and addresses."""


class IpvsProxier:
    """kube-proxy's mode ipvs in one family on one node."""

    is_large = False
    """kube-proxy writes the same rules however large the cluster is."""

    def __init__(
        self, family: Family, tables: NodeTables, settings: ProxySettings, mutation: Mutation | None = None
    ) -> None:
        self._family = family
        self._mutation = mutation
        self._kernel = tables
        self._settings = settings
        self._tracker: PortTracker | None = None
        self._held: Held | None = None
        self._rules: Ruleset | None = None
        self.ports: Sequence[ServicePortInfo] = ()

    async def sync(self, cluster: ClusterView, node: NodeFacts, *, full: bool = False) -> Synced:
        """Make the kernel's tables and rules those of ``cluster``. Raises ``SyncFailedError``."""
        if self._tracker is None:
            self._tracker = PortTracker(self._family, node.name)
            self._kernel.prepare()
        self.ports = self._tracker.update(cluster)
        wanted = plan_tables(self.ports, node, self._settings, self._family)
        rules = make_rules(wanted, node, self._settings, self._family)
        if self._mutation is not None:
            wanted = mutated_tables(wanted, self._mutation, self._family)
        known = None if full else self._held
        held, self._held = known or self._kernel.held(self._family), None
        try:
            written = await self._change(wanted, held, rules, known)
        except RulesRefusedError as refused:
            what = f"{self._family}: the kernel refused tables or rules of mode ipvs"
            raise SyncFailedError(what, refused.output) from refused
        self._held = Held(wanted.servers, {each.name: each for each in wanted.sets(self._family)}, wanted.bound)
        amount = f"{len(wanted.servers)} virtual servers"
        what = f"{self._family}: {amount} in a {'partial' if known else 'full'} sync"
        return Synced(what, known is None, written)

    async def is_intact(self) -> bool:
        """Whether the kernel still has the rules and virtual servers.

        kube-proxy looks every minute whether the connections of ending destinations are gone. This proxier does it
        here, once in each sync period.
        """
        self._kernel.look_after_ending()
        if self._held is None or not await self._kernel.has_chain(self._family, SERVICES.table, SERVICES.name):
            return False
        return self._held.servers.keys() <= {*self._kernel.served()}

    async def dump(self) -> str:
        """Rules, sets, virtual servers and addresses."""
        return await self._kernel.dump(self._family)

    async def _change(self, wanted: Tables, held: Held, rules: Ruleset, known: Held | None) -> Mapping[str, int]:
        """Change the kernel; returns how many rules were written, by table."""
        self._kernel.serve(wanted.servers.values(), held.servers)
        self._kernel.bind(wanted.bound - held.bound)
        self._kernel.fill(wanted.sets(self._family), held.sets)
        before, self._rules = (None if known is None else self._rules), None
        written: Mapping[str, int] = {}
        if before != rules:
            if before is None:
                text = restore(rules, read_kernel_state(await self._kernel.rules(self._family)), frozenset())
            else:
                text = restore_changes(rules, before)
            await self._kernel.load(self._family, text.text)
            written = text.rule_counts()
        self._rules = rules
        self._kernel.unbind(held.bound - wanted.bound)
        excluded = self._settings.ipvs.exclude_cidrs
        gone = [
            server
            for key, server in held.servers.items()
            if key not in wanted.servers and not any(server.address in network for network in excluded)
        ]
        self._kernel.end(gone)
        return written
