"""Mode iptables on one node: the ``NodeMode`` that runs iptables-restore, and reads tables from the kernel."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from msgspec.structs import replace

from proxylab.addresses import Family
from proxylab.cluster.configuration import ProxyConfiguration
from proxylab.engines.context import NodeContext
from proxylab.engines.embedded.iptables.cleanup import remove
from proxylab.engines.embedded.iptables.legacy import generation_of
from proxylab.engines.embedded.iptables.matches import INVALID_COUNTER, LOCALHOST_COUNTER
from proxylab.engines.embedded.iptables.meter import COUNTED_TABLES, TableMeter
from proxylab.engines.embedded.iptables.mutants import MUTANT_LINES
from proxylab.engines.embedded.iptables.render import CURRENT
from proxylab.engines.embedded.iptables.texts import TCP_BE_LIBERAL
from proxylab.engines.embedded.iptables.writer import IptablesWriter
from proxylab.engines.embedded.mutation import MutantLines, mutated, refused_mutant
from proxylab.engines.embedded.proxier import ModeProxier, Proxier, RulesRefusedError
from proxylab.engines.embedded.settings import ProxySettings
from proxylab.engines.node_mode import NodeMode
from proxylab.engines.protocol import ModeProcess
from proxylab.kernel.netfilter.iptables_legacy_tables import TableReader
from proxylab.kernel.netfilter.iptables_nft_tables import NftTableReader
from proxylab.kernel.netfilter.iptables_tool import IptablesTool, RestoreRefusedError
from proxylab.kernel.netfilter.nfacct import ensure_counters
from proxylab.kernel.netfilter.rule_dumps import iptables_nft_rules, nft_chains, xtables_rules
from proxylab.kernel.sandbox.sysctl import read_sysctl


class IptablesNode:
    """Mode iptables on the node of a context; also the ``RuleLoader`` of its proxiers."""

    def __init__(self, context: NodeContext, mutants: MutantLines = MUTANT_LINES) -> None:
        """On that node; another mode that loads rules here has its own ``mutants``."""
        self._context = context
        self._mutants = mutants
        self._tool = context.tool
        program, variant = context.programs.get("iptables", ""), self._tool.variant
        self._loading = IptablesTool(context.launcher, context.netns, context.name, variant, program, context.loader)
        self._is_legacy = context.tool.variant.name == "legacy"

    def require(self) -> None:
        """Nothing: no lab starts without iptables."""

    def proxiers(
        self,
        families: Sequence[Family],
        settings: ProxySettings,
        configuration: ProxyConfiguration,
        version: tuple[int, ...],
    ) -> Mapping[Family, Proxier]:
        """A proxier for each family. Some rules depend on what the node's kernel has when a proxy starts."""
        netns, generation = self._context.netns, generation_of(version)
        counters = generation is CURRENT and ensure_counters(netns, (INVALID_COUNTER, LOCALHOST_COUNTER))
        liberal = read_sysctl(netns, TCP_BE_LIBERAL) not in (None, "0")
        settings = replace(
            settings,
            packet_counters=counters,
            conntrack_tcp_be_liberal=settings.conntrack_tcp_be_liberal or liberal,
        )
        period = configuration.sync_period
        return {
            family: ModeProxier(IptablesWriter(family, self, settings, generation, sync_period=period))
            for family in families
        }

    @property
    def processes(self) -> Sequence[ModeProcess]:
        """None: the mode has no process."""
        return ()

    async def close(self) -> None:
        """Nothing: the mode has no process, and its rules stay."""

    async def dump(self, family: Family) -> str:
        """The rules as iptables-save prints them."""
        return await self._tool.save(family)

    async def flush(self, family: Family) -> None:
        """Delete every rule and chain of the tables that kube-proxy uses."""
        await self._tool.flush(family)

    def has_chains_of_proxies(self, family: Family) -> bool:
        """Whether table nat or filter has a chain of kube-proxy or the kubelet; no program is started."""
        read = xtables_rules if self._is_legacy else nft_chains
        names = [each for table in ("nat", "filter") for each in read(self._context.netns, family, table)]
        return any(b"KUBE-" in each for each in names)

    async def remove(self, family: Family) -> bool:
        """Remove the chains of kube-proxy. Most nodes have none."""
        return self.has_chains_of_proxies(family) and await remove(self, family)

    def written(self, family: Family) -> list[bytes]:
        """The rules of table nat, which kube-proxy writes last."""
        return self._read(family, "nat")

    def _read(self, family: Family, table: str) -> list[bytes]:
        read = xtables_rules if self._is_legacy else iptables_nft_rules
        return read(self._context.netns, family, table)

    def meter(self, family: Family) -> TableMeter:
        """A meter that reads the counters of rules."""
        reader = TableReader if self._is_legacy else NftTableReader
        netns = self._context.netns
        return TableMeter(netns.name, reader(netns, family), partial(self._tool.save_all, family))

    @property
    def counted(self) -> tuple[Sequence[str], Sequence[str]]:
        """The tables in which kube-proxy has chains."""
        if self._is_legacy:
            return (), COUNTED_TABLES
        return [f"{family} {table}" for table in COUNTED_TABLES for family in ("ip", "ip6")], ()

    async def load(self, family: Family, text: str) -> None:
        """Load a text, with the node's mutation if it has one.

        Raises:
            RulesRefusedError: iptables-restore refuses the text.
            EngineError: it refuses the mutated text, and not the text.
        """
        mutation = self._context.mutation
        try:
            await self._loading.load(family, text if mutation is None else mutated(text, mutation, self._mutants))
        except RestoreRefusedError as refused:
            # A step may flush tables that a partial load relies on. Then iptables-restore refuses either text.
            if mutation is not None and await self._takes(family, text):
                raise refused_mutant(self._context.netns.name, mutation, refused.output) from refused
            raise RulesRefusedError(refused.output) from refused

    async def _takes(self, family: Family, text: str) -> bool:
        """Load a text without the mutation; returns whether iptables-restore takes it."""
        try:
            await self._loading.load(family, text)
        except RestoreRefusedError:
            return False
        return True

    async def has_chain(self, family: Family, table: str, chain: str) -> bool:
        """Whether the table has that chain."""
        return await self._tool.has_chain(family, table, chain)


ON_NODE: Final[Callable[[NodeContext], NodeMode]] = IptablesNode
