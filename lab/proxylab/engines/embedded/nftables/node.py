"""Mode nftables on one node: the ``NodeMode`` that runs nft, and follows packets through a table without counters."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from proxylab.addresses import Family
from proxylab.cluster.configuration import ProxyConfiguration
from proxylab.engines.context import NodeContext
from proxylab.engines.embedded.mutation import mutated, refused_mutant
from proxylab.engines.embedded.nftables.loader import Present
from proxylab.engines.embedded.nftables.meter import TraceMeter
from proxylab.engines.embedded.nftables.mutants import MUTANT_LINES
from proxylab.engines.embedded.nftables.names import TABLE
from proxylab.engines.embedded.nftables.writer import NftablesWriter
from proxylab.engines.embedded.proxier import ModeProxier, Proxier, RulesRefusedError
from proxylab.engines.embedded.settings import ProxySettings
from proxylab.engines.node_mode import NodeMode
from proxylab.engines.protocol import ModeProcess
from proxylab.kernel.netfilter.nft_tables import delete_table
from proxylab.kernel.netfilter.nft_tool import NftRefusedError, NftTool
from proxylab.kernel.netfilter.rule_dumps import nft_chains, nft_sets


class NftablesNode:
    """Mode nftables on the node of a context; also the ``TableLoader`` of its proxiers."""

    def __init__(self, context: NodeContext) -> None:
        self._context = context
        self._netns = context.netns
        self._mutation = context.mutation
        program = partial(context.loader, context.programs.get("nft", "nft"))
        self._tool = NftTool(context.launcher, context.netns, context.name, program)

    def require(self) -> None:
        """Raise ``CapabilityError`` where the machine has no nft."""
        self._tool.require()

    def proxiers(
        self,
        families: Sequence[Family],
        settings: ProxySettings,
        configuration: ProxyConfiguration,
        version: tuple[int, ...],
    ) -> Mapping[Family, Proxier]:
        """A proxier for each family. They write the table of one version only."""
        del configuration, version
        return {family: ModeProxier(NftablesWriter(family, self, settings)) for family in families}

    @property
    def processes(self) -> Sequence[ModeProcess]:
        """None: the mode has no process."""
        return ()

    async def close(self) -> None:
        """Nothing: the mode has no process, and its rules stay."""

    async def dump(self, family: Family) -> str:
        """The table as nft prints it."""
        return await self._tool.list_table(family, TABLE)

    async def flush(self, family: Family) -> None:
        """Delete the table."""
        delete_table(self._netns, family, TABLE)

    async def remove(self, family: Family) -> bool:
        """Delete the table; returns whether there was one."""
        return delete_table(self._netns, family, TABLE)

    def written(self, family: Family) -> list[bytes]:
        """The names of chains; a Service without endpoints has no chain of its own, in any version."""
        return nft_chains(self._netns, family, TABLE)

    def meter(self, family: Family) -> TraceMeter:
        """A meter that counts traces of packets: kube-proxy writes no counters into its table."""
        listing = partial(self._tool.list_table, family, TABLE, handles=True)
        return TraceMeter(self._netns, family, TABLE, listing)

    @property
    def counted(self) -> tuple[Sequence[str], Sequence[str]]:
        """The table in both families."""
        return [f"{family} {TABLE}" for family in ("ip", "ip6")], ()

    async def load(self, text: str) -> None:
        """Load a text, with the node's mutation if it has one.

        Raises:
            RulesRefusedError: nft refuses the text.
            EngineError: it refuses the mutated text, and not the text.
        """
        mutation = self._mutation
        try:
            await self._tool.load(text if mutation is None else mutated(text, mutation, MUTANT_LINES))
        except NftRefusedError as refused:
            # A step may delete the table. Then nft refuses either text, and the proxier answers with the whole table.
            if mutation is not None and await self._takes(text):
                raise refused_mutant(self._netns.name, mutation, str(refused)) from refused
            raise RulesRefusedError(str(refused)) from refused

    async def _takes(self, text: str) -> bool:
        """Load a text without the mutation; returns whether nft takes it."""
        try:
            await self._tool.load(text)
        except NftRefusedError:
            return False
        return True

    def present(self, family: Family) -> Present:
        """The names in the table."""
        chains = frozenset(name.decode() for name in nft_chains(self._netns, family, TABLE))
        return Present(chains, nft_sets(self._netns, family, TABLE))


ON_NODE: Final[Callable[[NodeContext], NodeMode]] = NftablesNode
