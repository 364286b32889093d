"""The proxier of one family, which syncs the kernel with the rendered table.

Owns ``NftablesProxier`` and its memory of the loaded table; ``sync`` follows the store and decides when to sync.
"""

import time
from collections.abc import Callable

from proxylab.addresses import Family
from proxylab.engines.embedded.fault_isolation import FaultIsolation, Loaded
from proxylab.engines.embedded.nftables.loader import Present, TableLoader
from proxylab.engines.embedded.nftables.names import REJECT
from proxylab.engines.embedded.nftables.render import Renderer
from proxylab.engines.embedded.nftables.rules import Ruleset
from proxylab.engines.embedded.nftables.transaction import Transaction, write_changes, write_table
from proxylab.engines.embedded.node import NodeFacts
from proxylab.engines.embedded.ports import ClusterView, ServicePortInfo
from proxylab.engines.embedded.proxier import RulesRefusedError, Synced
from proxylab.engines.embedded.settings import ProxySettings

__all__ = ["NftablesProxier"]

UNUSED_SECONDS = 1.0
"""How long a stale chain stays, as with kube-proxy."""


class _TableChangedError(Exception):
    """Another program has deleted chains of the table, or all of it."""


class NftablesProxier:
    """kube-proxy's table of one family in one node.

    At the start and after a refused load the proxier does not know the kernel's table, so the next sync is a full one.
    A full sync also writes changes of the fixed part: of the node's addresses, and of the networks of cluster IPs. A
    partial sync of a table that another program has deleted becomes a full one, for which kube-proxy waits a sync
    period.

    Args:
        family: of the table.
        loader: nft in the node's namespace.
        settings: of the proxy.
        now: seconds of the engine's clock.
    """

    is_large = False
    """kube-proxy runs its hourly full sync in this mode however large the cluster is."""

    def __init__(
        self,
        family: Family,
        loader: TableLoader,
        settings: ProxySettings,
        *,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._family = family
        self._loader = loader
        self._renderer = Renderer(family, settings)
        self._now = now
        self._isolation = FaultIsolation[Ruleset, Transaction](family, self._run)
        self._is_known = False
        self._is_partial = False
        self._hooked = False
        self._stale: dict[str, float] = {}

    @property
    def ports(self) -> tuple[ServicePortInfo, ...]:
        """The service ports of the last sync."""
        return self._renderer.ports

    async def take_over(self) -> tuple[str, ...]:
        """Remove the chains of modes with iptables, as kube-proxy does at its start (platformCleanup)."""
        if not await self._loader.remove_iptables(self._family):
            return ()
        return (f"{self._family}: removed the rules of a proxy in a mode with iptables",)

    async def sync(self, cluster: ClusterView, node: NodeFacts, *, full: bool = False) -> Synced:
        """Make the kernel's table that of ``cluster``. Raises ``SyncFailedError``."""
        wanted, loaded = self._renderer.render(cluster, node), self._isolation.ruleset
        full = full or not self._is_known or loaded is None or loaded.fixed != wanted.fixed
        try:
            done = await self._load(wanted, None if full else loaded)
        except _TableChangedError:
            full, done = True, await self._load(wanted, None)
        return Synced(
            self._summary(done, full=full),
            full=full,
            left_out=self._renderer.left_out,
            refused=self._isolation.refused,
        )

    async def is_intact(self) -> bool:
        """Always true: the table is the proxy's own, so kube-proxy does not watch it, and no firewall flushes it."""
        return True

    async def dump(self) -> str:
        """The table as nft prints it."""
        return await self._loader.dump(self._family)

    async def _load(self, wanted: Ruleset, loaded: Ruleset | None) -> Loaded[Ruleset, Transaction]:
        """Load ``wanted`` into a table that has ``loaded``; ``None`` for one that must be read."""
        self._is_known, self._is_partial = False, loaded is not None
        if loaded is None:
            self._isolation.forget()
        done = await self._isolation.load(wanted, loaded or self._loader.present(self._family), self._write)
        self._is_known = self._hooked = True
        if loaded is None:
            self._stale = {}
        now = self._now()
        for text in done.texts:
            for name in (*text.used, *text.deleted):
                self._stale.pop(name, None)
            self._stale |= dict.fromkeys(text.stale, now)
        return done

    def _write(self, ruleset: Ruleset, before: Present | Ruleset) -> Transaction:
        """The text that changes the kernel from ``before`` to ``ruleset``."""
        if isinstance(before, Present):
            return write_table(ruleset, before, rehook=not self._hooked)
        unused = self._now() - UNUSED_SECONDS
        return write_changes(ruleset, before, [name for name, since in self._stale.items() if since < unused])

    async def _run(self, text: str) -> None:
        """Load a text. If chains are gone that the table had, no Service is at fault."""
        try:
            await self._loader.load(text)
        except RulesRefusedError as refused:
            loaded = self._isolation.ruleset
            if self._is_partial and loaded is not None:
                chains = {chain for port in loaded.ports for chain in port.chains} | {REJECT}
                if not chains <= self._loader.present(self._family).chains:
                    raise _TableChangedError from refused
            raise

    def _summary(self, done: Loaded[Ruleset, Transaction], *, full: bool) -> str:
        if not done.texts:
            return f"{self._family}: nothing to change"
        lines = sum(len(text.lines) for text in done.texts)
        return f"{self._family}: loaded {lines} lines in a {'full' if full else 'partial'} sync"
