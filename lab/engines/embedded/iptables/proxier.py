"""The proxier of one family: keeps the kernel in step with what is to be rendered.

Owns: ``IptablesProxier`` and its memory of what the kernel holds.
Must not: follow the store or decide when to synchronise (``sync`` does).
"""

from lab.engines.embedded.iptables.held import Held, read_held
from lab.engines.embedded.iptables.names import CANARIES
from lab.engines.embedded.iptables.render import CURRENT, Renderer
from lab.engines.embedded.iptables.restore import RestoreText, restore, restore_changes
from lab.engines.embedded.iptables.rules import Ruleset
from lab.engines.embedded.iptables.shape import Shape
from lab.engines.embedded.loader import RuleLoader, RulesRefusedError
from lab.engines.embedded.node import NodeFacts
from lab.engines.embedded.ports import ClusterView, ServicePortInfo
from lab.engines.embedded.proxier import Synced, SyncFailedError
from lab.engines.embedded.settings import ProxySettings
from lab.ip import Family

__all__ = ["IptablesProxier", "plan_load"]


def plan_load(
    renderer: Renderer, cluster: ClusterView, node: NodeFacts, before: Held | Ruleset
) -> tuple[Ruleset, RestoreText]:
    """What is wanted for ``cluster``, and the text that leads there.

    Args:
        renderer: of one family.
        cluster: the objects.
        node: the node as it is now.
        before: what was read back from the kernel, for a full sync, or the ruleset that it holds, for a partial one.
    """
    ruleset = renderer.render(cluster, node)
    return ruleset, restore(ruleset, before) if isinstance(before, Held) else restore_changes(ruleset, before)


class IptablesProxier:
    """kube-proxy's rules of one family in one node.

    After a refused load, and at the start, nothing is known of the kernel: the next synchronisation is a full one,
    which reads the rules back, puts in the jumps that are absent and removes chains that nobody needs any more. All
    others write only what changed.
    """

    def __init__(self, family: Family, loader: RuleLoader, settings: ProxySettings, shape: Shape = CURRENT) -> None:
        self._family = family
        self._loader = loader
        self._renderer = Renderer(family, settings, shape)
        self._loaded: Ruleset | None = None

    @property
    def ports(self) -> tuple[ServicePortInfo, ...]:
        """The service ports that were rendered last."""
        return self._renderer.ports

    async def sync(self, cluster: ClusterView, node: NodeFacts, *, full: bool = False) -> Synced:
        """Bring the kernel in step. Raises ``SyncFailedError``."""
        before = None if full else self._loaded
        held = read_held(await self._loader.save(self._family)) if before is None else None
        ruleset, wanted = plan_load(self._renderer, cluster, node, held or before or Held())
        if ruleset == before:
            return Synced(f"{self._family}: nothing to change", left_out=self._renderer.left_out)
        self._loaded = None
        try:
            await self._loader.load(self._family, wanted.text)
        except RulesRefusedError as refused:
            raise SyncFailedError(f"{self._family}: {wanted.explain(refused.output)}", refused.output) from refused
        self._loaded = ruleset
        how = "full" if before is None else "partial"
        return Synced(
            f"{self._family}: loaded {len(wanted.lines)} lines in a {how} sync",
            full=before is None,
            rules=wanted.rule_counts(),
            left_out=self._renderer.left_out,
        )

    async def is_intact(self) -> bool:
        """Whether the canary chains stand. Nobody else would remove one of them alone, so the first answers mostly."""
        for canary in CANARIES:
            if not await self._loader.has_chain(self._family, canary.table, canary.name):
                return False
        return True

    async def dump(self) -> str:
        """The rules as iptables-save prints them."""
        return await self._loader.save(self._family)
