"""What a mode offers to the sync loop.

Owns: the ``Proxier`` protocol and the error of a failed synchronisation.
Must not: know any mode.
"""

from typing import Protocol

from lab.engines.embedded.node import NodeFacts
from lab.engines.embedded.ports import ClusterView

__all__ = ["Proxier", "SyncFailedError"]


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

    async def sync(self, cluster: ClusterView, node: NodeFacts) -> str:
        """Bring the kernel in step and say in a few words what was done. Raises ``SyncFailedError``."""

    async def dump(self) -> str:
        """The rules as the kernel holds them, with counters, as the mode's own tool prints them."""
