"""The proxier of one family, the same for all modes: a full sync, a partial one, or a refusal.

Owns ``ModeProxier`` and its memory of what it has loaded. A mode renders the rules, and writes them by its
``RuleWriter``. At the start and after a refused load the proxier does not know the kernel's rules, so the next sync is
a full one, which trusts no memory. A partial sync writes only what changed.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Generic, Protocol, TypeVar

from msgspec import Struct, field

from proxylab.addresses import Family
from proxylab.cluster.objects import ObjectKey
from proxylab.engines.embedded.node import NodeFacts
from proxylab.engines.embedded.ports import ClusterView, ServicePortInfo

Block = tuple[str, ObjectKey | None]
"""Lines of a text, and their Service if they have one."""


def lines_of(blocks: Iterable[Block]) -> tuple[tuple[str, ObjectKey | None], ...]:
    """Each line of a text with its Service, by which a refusal is explained."""
    return tuple([(line, service) for text, service in blocks for line in text.split("\n")])


class Written(Struct, frozen=True):
    """Rules that the kernel has taken.

    Attributes:
        amount: how much, in a few words.
        rules: how many rules, by table.
        left_out: a line for each service port of which the mode lacks something.
        large: whether the cluster has so many endpoints that the proxy avoids full syncs; only mode iptables does.
    """

    amount: str
    rules: Mapping[str, int] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()
    large: bool = False


class Synced(Struct, frozen=True):
    """A sync that succeeded: what it did, in a few words; the rest as in ``Written``."""

    what: str
    full: bool = False
    rules: Mapping[str, int] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()


class RulesRefusedError(Exception):
    """The mode's tool refused a text.

    Attributes:
        output: all that it printed, which mostly names a line.
        what: one line that names the rule and its Service, once a writer has read that.
        lost: whether another program has deleted rules on which a partial change relied.
    """

    def __init__(self, output: str, what: str = "", *, lost: bool = False) -> None:
        super().__init__(what or output)
        self.output = output
        self.what = what
        self.lost = lost


class SyncFailedError(Exception):
    """A sync failed; the kernel keeps the rules it had.

    Attributes:
        what: one line that names the rule and its Service.
        output: all that the tool printed.
    """

    def __init__(self, what: str, output: str) -> None:
        super().__init__(what)
        self.what = what
        self.output = output


class RulesLeftBehind(Protocol):
    """The rules that a proxy of another mode may have left on the node."""

    async def remove(self, family: Family) -> bool:
        """Remove those of one family; returns whether there were any."""


class Proxier(Protocol):
    """One mode in one family on one node, as the sync loop knows it."""

    @property
    def ports(self) -> Sequence[ServicePortInfo]:
        """The service ports of the last sync."""

    @property
    def is_large(self) -> bool:
        """Whether the cluster has so many endpoints that the proxy avoids full syncs."""

    async def sync(self, cluster: ClusterView, node: NodeFacts, *, full: bool = False) -> Synced:
        """Make the kernel's rules those of ``cluster``. Raises ``SyncFailedError``.

        ``full`` reads the rules back from the kernel first, and trusts no memory of them.
        """

    async def is_intact(self) -> bool:
        """Whether the kernel's tables still have what shows that no other program has flushed them."""

    async def dump(self) -> str:
        """The rules in the kernel with their counters, as the mode's own tool prints them."""


Rules = TypeVar("Rules")


class RuleWriter(Protocol[Rules]):
    """What a mode does for its proxier: it renders the rules of one family, and brings them into a node's kernel."""

    @property
    def family(self) -> Family:
        """That of the rules."""

    @property
    def ports(self) -> Sequence[ServicePortInfo]:
        """The service ports that were rendered last."""

    def render(self, cluster: ClusterView, node: NodeFacts) -> Rules:
        """The rules of a proxy on that node."""

    def is_base(self, loaded: Rules, wanted: Rules) -> bool:
        """Whether a partial change can lead from the one to the other."""

    async def write(self, wanted: Rules, loaded: Rules | None) -> Written:
        """Change the kernel's rules from those that it has; ``None`` for rules that must be read back.

        Raises:
            RulesRefusedError: the mode's tool refuses a text; ``what`` says which rule, and ``lost`` that all rules
                must be written.
            SyncFailedError: something else failed.
        """

    async def is_intact(self, loaded: Rules | None) -> bool:
        """As in ``Proxier``; ``None`` for rules that it does not know."""

    async def dump(self) -> str:
        """As in ``Proxier``."""


class ModeProxier(Generic[Rules]):
    """The proxier of any mode."""

    def __init__(self, writer: RuleWriter[Rules]) -> None:
        self._writer = writer
        self._loaded: Rules | None = None
        self._is_large = False

    @property
    def ports(self) -> Sequence[ServicePortInfo]:
        """The service ports of the last sync."""
        return self._writer.ports

    @property
    def is_large(self) -> bool:
        """Whether the cluster has so many endpoints that the proxy avoids full syncs."""
        return self._is_large

    async def sync(self, cluster: ClusterView, node: NodeFacts, *, full: bool = False) -> Synced:
        """Make the kernel's rules those of ``cluster``. Raises ``SyncFailedError``."""
        wanted, loaded = self._writer.render(cluster, node), self._loaded
        if full or (loaded is not None and not self._writer.is_base(loaded, wanted)):
            loaded = None
        if wanted == loaded:
            return Synced(f"{self._writer.family}: nothing to change")
        self._loaded = None
        try:
            written = await self._writer.write(wanted, loaded)
        except RulesRefusedError as refused:
            if not refused.lost:
                raise self._failed(refused) from refused
            loaded = None
            try:
                written = await self._writer.write(wanted, None)
            except RulesRefusedError as again:
                raise self._failed(again) from again
        self._loaded, self._is_large = wanted, written.large
        kind = "full" if loaded is None else "partial"
        what = f"{self._writer.family}: {written.amount} in a {kind} sync"
        return Synced(what, loaded is None, written.rules, written.left_out)

    async def is_intact(self) -> bool:
        """Whether the kernel's tables still have what shows that no other program has flushed them."""
        return await self._writer.is_intact(self._loaded)

    async def dump(self) -> str:
        """The rules in the kernel with their counters, as the mode's own tool prints them."""
        return await self._writer.dump()

    def _failed(self, refused: RulesRefusedError) -> SyncFailedError:
        return SyncFailedError(f"{self._writer.family}: {refused.what}", refused.output)
