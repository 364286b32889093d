"""Writes the rules of mode iptables in one family."""

import math
import time
from collections.abc import Callable

from proxylab.addresses import Family
from proxylab.engines.embedded.iptables.kernel_state import KernelState, read_kernel_state
from proxylab.engines.embedded.iptables.loader import RuleLoader
from proxylab.engines.embedded.iptables.names import CANARIES
from proxylab.engines.embedded.iptables.render import CURRENT, Renderer
from proxylab.engines.embedded.iptables.restore import restore, restore_changes, stale_chains
from proxylab.engines.embedded.iptables.rules import Generation, Ruleset
from proxylab.engines.embedded.node import NodeFacts
from proxylab.engines.embedded.ports import ClusterView, ServicePortInfo
from proxylab.engines.embedded.proxier import RulesRefusedError, Written
from proxylab.engines.embedded.settings import ProxySettings


class IptablesWriter:
    """The ``RuleWriter`` of mode iptables. A full sync inserts missing jumps and deletes stale chains, too.

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
        self.family = family
        self._loader = loader
        self._renderer = Renderer(family, settings, generation)
        self._sync_period = sync_period
        self._now = now
        self._stale: frozenset[str] = frozenset()
        self._cleaned_at = -math.inf

    @property
    def ports(self) -> tuple[ServicePortInfo, ...]:
        """The service ports that were rendered last."""
        return self._renderer.ports

    def render(self, cluster: ClusterView, node: NodeFacts) -> Ruleset:
        """The rules of a proxy on that node."""
        return self._renderer.render(cluster, node)

    def is_base(self, _loaded: Ruleset, _wanted: Ruleset) -> bool:
        """Always: every difference can be written by itself."""
        return True

    async def write(self, wanted: Ruleset, loaded: Ruleset | None) -> Written:
        """Load the difference. Raises ``RulesRefusedError``."""
        before: Ruleset | KernelState = KernelState() if loaded is None else loaded
        if loaded is None and self._loader.has_chains_of_proxies(self.family):
            before = read_kernel_state(await self._loader.dump(self.family))
        now = self._now()
        postpone = wanted.large and now - self._cleaned_at <= self._sync_period
        stale = self._stale.union(stale_chains(wanted, before)) if isinstance(before, Ruleset) else before.owned_chains
        if stale:
            stale = stale.difference(*[port.chains for port in wanted.ports])
        gone, left = (frozenset[str](), stale) if postpone else (stale, frozenset[str]())
        write = restore_changes(wanted, before, gone) if isinstance(before, Ruleset) else restore(wanted, before, gone)
        try:
            await self._loader.load(self.family, write.text)
        except RulesRefusedError as refused:
            raise RulesRefusedError(refused.output, write.explain(refused.output)) from refused
        self._stale = left
        self._cleaned_at = self._cleaned_at if postpone else now
        return Written(f"loaded {len(write.lines)} lines", write.rule_counts(), large=wanted.large)

    async def is_intact(self, _loaded: Ruleset | None) -> bool:
        """Whether the canary chains exist. A flush removes them together, so the first one mostly decides."""
        for canary in CANARIES:
            if not await self._loader.has_chain(self.family, canary.table, canary.name):
                return False
        return True

    async def dump(self) -> str:
        """The rules as iptables-save prints them."""
        return await self._loader.dump(self.family)
