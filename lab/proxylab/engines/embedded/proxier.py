"""What a mode offers to the sync loop.

Owns: the ``Proxier`` protocol, what it says of a synchronisation, and the error of a failed one.
Must not: know any mode.
"""

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Protocol

from proxylab.engines.embedded.node import NodeFacts
from proxylab.engines.embedded.ports import ClusterView, ServicePortInfo
from proxylab.frozen import dataclass

__all__ = ["Proxier", "SyncFailedError", "Synced"]


@dataclass(frozen=True, slots=True)
class Synced:
    """A synchronisation that succeeded.

    Attributes:
        what: what was done, in a few words.
        full: whether nothing was trusted that is remembered of the kernel.
        rules: how many rules were written, by table.
        left_out: a line for each object that no rule can be written for. The others are served all the same.
        refused: a line for each Service whose rules the kernel did not take.
    """

    what: str
    full: bool = False
    rules: Mapping[str, int] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()


class SyncFailedError(Exception):
    """The kernel could not be brought in step; it keeps the rules it had.

    Attributes:
        what: one line, with the place and the Service that it is about.
        output: all that the tool wrote.
    """

    def __init__(self, what: str, output: str) -> None:
        super().__init__(what)
        self.what = what
        self.output = output


class Proxier(Protocol):
    """One mode in one family on one node."""

    @property
    def ports(self) -> Sequence[ServicePortInfo]:
        """The service ports that were rendered last."""

    @property
    def is_large(self) -> bool:
        """Whether there are so many endpoints that nothing is done without need."""

    def take_over(self) -> tuple[str, ...]:
        """Remove what a proxy of another mode has left and would stand in the way; lines for the log."""

    async def sync(self, cluster: ClusterView, node: NodeFacts, *, full: bool = False) -> Synced:
        """Bring the kernel in step. Raises ``SyncFailedError``.

        Args:
            cluster: the objects, sound or not.
            node: the node as it is now.
            full: trust nothing that is remembered of the kernel.
        """

    async def is_intact(self) -> bool:
        """Whether nobody else has emptied the kernel's tables since the last synchronisation."""

    async def dump(self) -> str:
        """The rules as the kernel holds them, with counters, as the mode's own tool prints them."""
