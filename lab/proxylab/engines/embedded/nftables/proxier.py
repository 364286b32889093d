"""The proxier of one family, which syncs the kernel with the rendered table."""

import time
from collections.abc import Callable

from proxylab.addresses import Family
from proxylab.engines.embedded.nftables.loader import TableLoader
from proxylab.engines.embedded.nftables.names import REJECT
from proxylab.engines.embedded.nftables.render import Renderer
from proxylab.engines.embedded.nftables.rules import Ruleset
from proxylab.engines.embedded.nftables.transaction import Transaction, write_changes, write_table
from proxylab.engines.embedded.node import NodeFacts
from proxylab.engines.embedded.ports import ClusterView, ServicePortInfo
from proxylab.engines.embedded.proxier import RulesRefusedError, Synced, SyncFailedError
from proxylab.engines.embedded.settings import ProxySettings

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
        self._loaded: Ruleset | None = None
        self._hooked = False
        self._stale: dict[str, float] = {}

    @property
    def ports(self) -> tuple[ServicePortInfo, ...]:
        """The service ports of the last sync."""
        return self._renderer.ports

    async def sync(self, cluster: ClusterView, node: NodeFacts, *, full: bool = False) -> Synced:
        """Make the kernel's table that of ``cluster``. Raises ``SyncFailedError``."""
        wanted, loaded = self._renderer.render(cluster, node), self._loaded
        full = full or loaded is None or loaded.fixed != wanted.fixed
        try:
            text = await self._load(wanted, None if full else loaded)
        except _TableChangedError:
            full, text = True, await self._load(wanted, None)
        what = "nothing to change"
        if text is not None:
            what = f"loaded {len(text.lines)} lines in a {'full' if full else 'partial'} sync"
        return Synced(f"{self._family}: {what}", full=full)

    async def is_intact(self) -> bool:
        """Always true: the table is the proxy's own, so kube-proxy does not watch it, and no firewall flushes it."""
        return True

    async def dump(self) -> str:
        """The table as nft prints it."""
        return await self._loader.dump(self._family)

    async def _load(self, wanted: Ruleset, loaded: Ruleset | None) -> Transaction | None:
        """Load ``wanted`` into a table that has ``loaded``; ``None`` for one that must be read."""
        if wanted == loaded:
            return None
        now = self._now()
        if loaded is None:
            text = write_table(wanted, self._loader.present(self._family), rehook=not self._hooked)
            self._stale = {}
        else:
            unused = now - UNUSED_SECONDS
            text = write_changes(wanted, loaded, [name for name, since in self._stale.items() if since < unused])
        self._loaded = None
        try:
            await self._loader.load(text.text)
        except RulesRefusedError as refused:
            if loaded is not None and not self._has(loaded):
                raise _TableChangedError from refused
            raise SyncFailedError(f"{self._family}: {text.explain(refused.output)}", refused.output) from refused
        self._loaded, self._hooked = wanted, True
        for name in (*text.used, *text.deleted):
            self._stale.pop(name, None)
        self._stale |= dict.fromkeys(text.stale, now)
        return text

    def _has(self, loaded: Ruleset) -> bool:
        """Whether the table has all chains that were loaded."""
        chains = {chain for port in loaded.ports for chain in port.chains} | {REJECT}
        return chains <= self._loader.present(self._family).chains
