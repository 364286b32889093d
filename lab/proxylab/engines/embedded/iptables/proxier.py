"""The proxier of one family, which syncs the kernel with the rendered rules."""

import math
import time
from collections.abc import Callable

from msgspec.structs import replace

from proxylab.addresses import Family
from proxylab.engines.embedded.iptables.kernel_state import KernelState, read_kernel_state
from proxylab.engines.embedded.iptables.loader import RuleLoader
from proxylab.engines.embedded.iptables.names import CANARIES
from proxylab.engines.embedded.iptables.render import CURRENT, Renderer
from proxylab.engines.embedded.iptables.restore import RestoreText, restore, restore_changes, stale_chains
from proxylab.engines.embedded.iptables.rules import Generation, Ruleset
from proxylab.engines.embedded.node import NodeFacts
from proxylab.engines.embedded.ports import ClusterView, ServicePortInfo
from proxylab.engines.embedded.proxier import RulesRefusedError, Synced, SyncFailedError
from proxylab.engines.embedded.settings import ProxySettings


class IptablesProxier:
    """kube-proxy's rules of one family in one node.

    At the start and after a refused load the proxier does not know the kernel's rules, so the next sync is a full one:
    it reads the rules back, inserts missing jumps and deletes stale chains. A partial sync writes only what changed.

    In a large cluster stale chains stay for a sync period, as with kube-proxy: no rule jumps to them, and one load
    deletes them together with those that follow.

    Args:
        generation: of kube-proxy's rules.
        sync_period: how long stale chains may stay in a large cluster, in seconds.
        now: seconds of the engine's clock.
    """

    def __init__(
        self,
        family: Family,
        loader: RuleLoader,
        settings: ProxySettings,
        generation: Generation = CURRENT,
        *,
        sync_period: float = 30.0,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._family = family
        self._loader = loader
        self._renderer = Renderer(family, settings, generation)
        self._sync_period = sync_period
        self._now = now
        self._loaded: Ruleset | None = None
        self.is_large = False
        self._stale: frozenset[str] = frozenset()
        self._cleaned_at = -math.inf

    @property
    def ports(self) -> tuple[ServicePortInfo, ...]:
        """The service ports of the last sync."""
        return self._renderer.ports

    async def sync(self, cluster: ClusterView, node: NodeFacts, *, full: bool = False) -> Synced:
        """Make the kernel's rules those of ``cluster``. Raises ``SyncFailedError``."""
        wanted = self._renderer.render(cluster, node)
        before: KernelState | Ruleset
        if full or self._loaded is None:
            full, before = True, read_kernel_state(await self._loader.dump(self._family))
        else:
            before = self._loaded
        text = None if wanted == before else await self._load(wanted, before)
        what = "nothing to change"
        if text is not None:
            what = f"loaded {len(text.lines)} lines in a {'full' if full else 'partial'} sync"
        return Synced(
            f"{self._family}: {what}",
            full=full,
            rules={} if text is None else text.rule_counts(),
        )

    async def is_intact(self) -> bool:
        """Whether the canary chains exist. A flush removes them together, so the first one mostly decides."""
        for canary in CANARIES:
            if not await self._loader.has_chain(self._family, canary.table, canary.name):
                return False
        return True

    async def dump(self) -> str:
        """The rules as iptables-save prints them."""
        return await self._loader.dump(self._family)

    async def _load(self, wanted: Ruleset, before: KernelState | Ruleset) -> RestoreText:
        now = self._now()
        postpone = wanted.large and now - self._cleaned_at <= self._sync_period
        text = self._write(wanted, before, postpone=postpone)
        self._loaded = None
        try:
            await self._loader.load(self._family, text.text)
        except RulesRefusedError as refused:
            raise SyncFailedError(f"{self._family}: {text.explain(refused.output)}", refused.output) from refused
        self._loaded, self.is_large, self._stale = wanted, wanted.large, text.left
        self._cleaned_at = self._cleaned_at if postpone else now
        return text

    def _write(self, ruleset: Ruleset, before: KernelState | Ruleset, *, postpone: bool) -> RestoreText:
        """The text that changes the kernel from ``before`` to ``ruleset``; ``postpone`` keeps stale chains."""
        stale = (
            before.owned_chains if isinstance(before, KernelState) else self._stale.union(stale_chains(ruleset, before))
        )
        if stale:
            stale = stale.difference(*[port.chains for port in ruleset.ports])
        gone, left = (frozenset[str](), stale) if postpone else (stale, frozenset[str]())
        if isinstance(before, KernelState):
            return replace(restore(ruleset, before, gone), left=left)
        return replace(restore_changes(ruleset, before, gone), left=left)
