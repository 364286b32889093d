"""Writes the table of mode nftables in one family."""

import time
from collections.abc import Callable

from proxylab.addresses import Family
from proxylab.engines.embedded.nftables.loader import TableLoader
from proxylab.engines.embedded.nftables.names import REJECT
from proxylab.engines.embedded.nftables.render import Renderer
from proxylab.engines.embedded.nftables.rules import Ruleset
from proxylab.engines.embedded.nftables.transaction import write_changes, write_table
from proxylab.engines.embedded.node import NodeFacts
from proxylab.engines.embedded.ports import ClusterView, ServicePortInfo
from proxylab.engines.embedded.proxier import RulesRefusedError, Written
from proxylab.engines.embedded.settings import ProxySettings

UNUSED_SECONDS = 1.0
"""How long a stale chain stays, as with kube-proxy."""


class NftablesWriter:
    """The ``RuleWriter`` of mode nftables.

    Changes of the fixed part need a full sync: those of the node's addresses, and of the networks of cluster IPs. A
    partial sync of a table that another program has deleted becomes a full one, for which kube-proxy waits a sync
    period.
    """

    def __init__(
        self,
        family: Family,
        loader: TableLoader,
        settings: ProxySettings,
        *,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.family = family
        self._loader = loader
        self._renderer = Renderer(family, settings)
        self._now = now
        self._hooked = False
        self._stale: dict[str, float] = {}

    @property
    def ports(self) -> tuple[ServicePortInfo, ...]:
        """The service ports that were rendered last."""
        return self._renderer.ports

    def render(self, cluster: ClusterView, node: NodeFacts) -> Ruleset:
        """The table of a proxy on that node."""
        return self._renderer.render(cluster, node)

    def is_base(self, loaded: Ruleset, wanted: Ruleset) -> bool:
        """Whether they have the same fixed part."""
        return loaded.fixed == wanted.fixed

    async def write(self, wanted: Ruleset, loaded: Ruleset | None) -> Written:
        """Load the difference. Raises ``RulesRefusedError``."""
        now = self._now()
        if loaded is None:
            text = write_table(wanted, self._loader.present(self.family), rehook=not self._hooked)
            self._stale = {}
        else:
            unused = now - UNUSED_SECONDS
            text = write_changes(wanted, loaded, [name for name, since in self._stale.items() if since < unused])
        try:
            await self._loader.load(text.text)
        except RulesRefusedError as refused:
            lost = loaded is not None and self._is_lost(loaded)
            raise RulesRefusedError(refused.output, text.explain(refused.output), lost=lost) from refused
        self._hooked = True
        for name in (*text.used, *text.deleted):
            self._stale.pop(name, None)
        self._stale |= dict.fromkeys(text.stale, now)
        return Written(f"loaded {len(text.lines)} lines")

    async def is_intact(self, _loaded: Ruleset | None) -> bool:
        """Always true: the table is the proxy's own, so kube-proxy does not watch it, and no firewall flushes it."""
        return True

    async def dump(self) -> str:
        """The table as nft prints it."""
        return await self._loader.dump(self.family)

    def _is_lost(self, loaded: Ruleset) -> bool:
        """Whether the table lacks some of the chains that were loaded."""
        chains = {chain for port in loaded.ports for chain in port.chains} | {REJECT}
        return not chains <= self._loader.present(self.family).chains
