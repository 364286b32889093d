"""The interface of a mode to the sync loop: the ``Proxier`` protocol, and the text, result and errors of one sync."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from msgspec import Struct, field

from proxylab.addresses import Family
from proxylab.cluster.objects import Key
from proxylab.engines.embedded.node import NodeFacts
from proxylab.engines.embedded.ports import ClusterView, ServicePortInfo

Block = tuple[str, Key | None]
"""Lines of a text, and their Service if they have one."""


def lines_of(blocks: Iterable[Block]) -> tuple[tuple[str, Key | None], ...]:
    """Each line of a text with its Service, by which a refusal is explained."""
    return tuple([(line, service) for text, service in blocks for line in text.split("\n")])


class Synced(Struct, frozen=True):
    """A sync that succeeded.

    Attributes:
        what: what it did, in a few words.
        rules: how many rules it wrote, by table.
        left_out: a line for each service port of which the mode lacks something.
    """

    what: str
    full: bool = False
    rules: Mapping[str, int] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()


class RulesRefusedError(Exception):
    """The mode's tool refused a text. ``output`` is all that it printed, which mostly names a line."""

    def __init__(self, output: str) -> None:
        super().__init__(output)
        self.output = output


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


class Leftovers(Protocol):
    """The rules that a proxy of another mode may have left on the node."""

    async def remove(self, family: Family) -> bool:
        """Remove those of one family; returns whether there were any."""


class Proxier(Protocol):
    """One mode in one family on one node."""

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
