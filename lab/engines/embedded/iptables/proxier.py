"""The proxier of one family: keeps the kernel in step with what is to be rendered.

Owns: ``IptablesProxier`` and its memory of what the kernel holds.
Must not: follow the store or decide when to synchronise (``sync`` does).
"""

from lab.engines.embedded.iptables.held import Held, read_held
from lab.engines.embedded.iptables.render import render
from lab.engines.embedded.iptables.restore import restore
from lab.engines.embedded.iptables.rules import Ruleset
from lab.engines.embedded.loader import RuleLoader, RulesRefusedError
from lab.engines.embedded.node import NodeFacts
from lab.engines.embedded.ports import ClusterView
from lab.engines.embedded.proxier import SyncFailedError
from lab.engines.embedded.settings import ProxySettings
from lab.ip import Family

__all__ = ["IptablesProxier"]


class IptablesProxier:
    """kube-proxy's rules of one family in one node.

    After a refused load, and at the start, nothing is known of the kernel: the next synchronisation is a full one,
    which reads the rules back, puts in the jumps that are absent and removes chains that nobody needs any more.
    """

    def __init__(self, family: Family, loader: RuleLoader, settings: ProxySettings) -> None:
        self._family = family
        self._loader = loader
        self._settings = settings
        self._held: Held | None = None
        self._loaded: Ruleset | None = None

    async def sync(self, cluster: ClusterView, node: NodeFacts) -> str:
        """Bring the kernel in step and say in a few words what was done. Raises ``SyncFailedError``."""
        ruleset = render(cluster, node, self._settings, self._family)
        if self._held is not None and ruleset == self._loaded:
            return f"{self._family}: nothing to change"
        full = self._held is None
        held = read_held(await self._loader.save(self._family)) if self._held is None else self._held
        wanted = restore(ruleset, held)
        self._held = None
        try:
            await self._loader.load(self._family, wanted.text)
        except RulesRefusedError as refused:
            raise SyncFailedError(f"{self._family}: {wanted.explain(refused.output)}", refused.output) from refused
        self._held, self._loaded = wanted.leaves, ruleset
        return f"{self._family}: loaded {len(wanted.lines)} lines{' in a full sync' if full else ''}"

    async def dump(self) -> str:
        """The rules as iptables-save prints them."""
        return await self._loader.save(self._family)
