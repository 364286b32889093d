"""The mode's work on a node: it keeps how many Services it was shown, in memory in place of a kernel."""

from collections.abc import Callable, Mapping, Sequence

from proxylab.addresses import Family
from proxylab.cluster.configuration import ProxyConfiguration
from proxylab.engines.context import NodeContext
from proxylab.engines.embedded.node import NodeFacts
from proxylab.engines.embedded.ports import ClusterView, PortTracker, ServicePortInfo
from proxylab.engines.embedded.proxier import ModeProxier, Proxier, RulesRefusedError, Written
from proxylab.engines.embedded.settings import ProxySettings
from proxylab.engines.node_mode import NodeMode
from proxylab.engines.protocol import Draining
from proxylab.evidence.evidence import RuleCount
from proxylab.plan.resolved import ResolvedProbe


class CountingWriter:
    """``refuse`` refuses the next change, and ``lost`` says that another program is to blame."""

    def __init__(self, family: Family) -> None:
        self.family = family
        self.ports: Sequence[ServicePortInfo] = ()
        self.writes: list[tuple[int, int | None]] = []
        self.refuse = self.lost = False

    def render(self, cluster: ClusterView, node: NodeFacts) -> int:
        self.ports = PortTracker(self.family, node.name).update(cluster)
        return len(cluster.services)

    def is_base(self, loaded: int, wanted: int) -> bool:
        return wanted >= loaded

    async def write(self, wanted: int, loaded: int | None) -> Written:
        self.writes.append((wanted, loaded))
        if self.refuse:
            self.refuse = False
            raise RulesRefusedError("no", "the kernel says no", lost=self.lost)
        return Written(f"counted {wanted} Services", left_out=("all of them have no rule",))

    async def is_intact(self, loaded: int | None) -> bool:
        return loaded is not None

    async def dump(self) -> str:
        return f"{self.writes}\n"


class NoMeter:
    """Counts nothing, since there is no rule."""

    max_frames_in_flight = None
    is_complete = True

    async def begin(self, resolved: ResolvedProbe) -> None:
        pass

    async def end(self) -> tuple[RuleCount, ...]:
        return ()

    def rules_by_chain(self) -> dict[tuple[str, str], list[str]]:
        return {}

    def close(self) -> None:
        pass


class CountingNode:
    """The ``NodeMode``; it needs nothing of the context."""

    def __init__(self, _context: NodeContext) -> None:
        self.writers: dict[Family, CountingWriter] = {}
        self.processes: Sequence[Draining] = ()
        self.counted: tuple[Sequence[str], Sequence[str]] = ((), ())

    def require(self) -> None:
        pass

    def proxiers(
        self,
        families: Sequence[Family],
        settings: ProxySettings,
        configuration: ProxyConfiguration,
        version: tuple[int, ...],
    ) -> Mapping[Family, Proxier]:
        del settings, configuration, version
        self.writers = {family: CountingWriter(family) for family in families}
        return {family: ModeProxier(writer) for family, writer in self.writers.items()}

    async def close(self) -> None:
        pass

    async def dump(self, family: Family) -> str:
        return await self.writers[family].dump()

    async def flush(self, family: Family) -> None:
        self.writers[family].writes.clear()

    async def remove(self, family: Family) -> bool:
        del family
        return False

    def written(self, family: Family) -> list[bytes]:
        del family
        return []

    def meter(self, family: Family) -> NoMeter:
        del family
        return NoMeter()


ON_NODE: Callable[[NodeContext], NodeMode] = CountingNode
