"""Writes the planned tables and rules of mode ipvs in one family.

Owns ``IpvsWriter``. The order is kube-proxy's: virtual servers come first and go last, so that no rule leads packets to
a frontend that nothing serves.
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
from proxylab.engines.embedded.ipvs.tables import Tables, plan_tables
from proxylab.engines.embedded.mutation import Mutation
from proxylab.engines.embedded.node import NodeFacts
from proxylab.engines.embedded.ports import ClusterView, PortTracker, ServicePortInfo
from proxylab.engines.embedded.proxier import RulesRefusedError, Written
from proxylab.engines.embedded.settings import ProxySettings
from proxylab.evidence.ipvs import IpSet, ServerKey, VirtualServer


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


class IpvsRules(Struct, frozen=True):
    """Virtual servers, sets and addresses, and the rules around them."""

    tables: Tables
    rules: Ruleset


class IpvsWriter:
    """The ``RuleWriter`` of mode ipvs."""

    def __init__(
        self, family: Family, tables: NodeTables, settings: ProxySettings, mutation: Mutation | None = None
    ) -> None:
        self.family = family
        self.ports: Sequence[ServicePortInfo] = ()
        self._mutation = mutation
        self._kernel = tables
        self._settings = settings
        self._tracker: PortTracker | None = None

    def render(self, cluster: ClusterView, node: NodeFacts) -> IpvsRules:
        """The tables and rules of a proxy on that node."""
        if self._tracker is None:
            self._tracker = PortTracker(self.family, node.name)
            self._kernel.prepare()
        self.ports = self._tracker.update(cluster)
        tables = plan_tables(self.ports, node, self._settings, self.family)
        rules = make_rules(tables, node, self._settings, self.family)
        return IpvsRules(
            tables if self._mutation is None else mutated_tables(tables, self._mutation, self.family), rules
        )

    def is_base(self, _loaded: IpvsRules, _wanted: IpvsRules) -> bool:
        """Always: every difference can be written by itself."""
        return True

    async def write(self, wanted: IpvsRules, loaded: IpvsRules | None) -> Written:
        """Change tables and rules. Raises ``RulesRefusedError``."""
        if loaded is None:
            held = self._kernel.held(self.family)
        else:
            known = loaded.tables
            held = Held(known.servers, {each.name: each for each in known.sets(self.family)}, known.bound)
        try:
            written = await self._change(wanted, held, None if loaded is None else loaded.rules)
        except RulesRefusedError as refused:
            raise RulesRefusedError(refused.output, "the kernel refused tables or rules of mode ipvs") from refused
        return Written(f"{len(wanted.tables.servers)} virtual servers", written)

    async def is_intact(self, loaded: IpvsRules | None) -> bool:
        """Whether the kernel still has the rules and virtual servers.

        kube-proxy looks every minute whether the connections of ending destinations are gone. This writer does it
        here, once in each sync period.
        """
        self._kernel.look_after_ending()
        if loaded is None or not await self._kernel.has_chain(self.family, SERVICES.table, SERVICES.name):
            return False
        return loaded.tables.servers.keys() <= {*self._kernel.served()}

    async def dump(self) -> str:
        """Rules, sets, virtual servers and addresses."""
        return await self._kernel.dump(self.family)

    async def _change(self, wanted: IpvsRules, held: Held, before: Ruleset | None) -> Mapping[str, int]:
        """Change the kernel; returns how many rules were written, by table."""
        tables = wanted.tables
        self._kernel.serve(tables.servers.values(), held.servers)
        self._kernel.bind(tables.bound - held.bound)
        self._kernel.fill(tables.sets(self.family), held.sets)
        written: Mapping[str, int] = {}
        if before != wanted.rules:
            if before is None:
                state = read_kernel_state(await self._kernel.rules(self.family))
                text = restore(wanted.rules, state, frozenset())
            else:
                text = restore_changes(wanted.rules, before)
            await self._kernel.load(self.family, text.text)
            written = text.rule_counts()
        self._kernel.unbind(held.bound - tables.bound)
        excluded = self._settings.ipvs.exclude_cidrs
        gone = [
            server
            for key, server in held.servers.items()
            if key not in tables.servers and not any(server.address in network for network in excluded)
        ]
        self._kernel.end(gone)
        return written
