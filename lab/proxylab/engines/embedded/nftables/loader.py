"""What the mode needs of nft and of the node: loading a text and reading back what there is; ``node`` implements it."""

from collections.abc import Mapping
from typing import Protocol

from msgspec import Struct, field

from proxylab.addresses import Family


class Present(Struct, frozen=True):
    """The table as the kernel has it, as far as it decides the content of a load; empty where there is none.

    Attributes:
        chains: their names.
        sets: the names of sets and maps, each with the timeout of its elements in seconds; 0 where they have none.
    """

    chains: frozenset[str] = frozenset()
    sets: Mapping[str, int] = field(default_factory=dict)


class TableLoader(Protocol):
    """nft in one node's namespace."""

    async def load(self, text: str) -> None:
        """Load ``text`` as one transaction with ``nft -f -``. Raises ``RulesRefusedError``; nothing is loaded then."""

    def present(self, family: Family) -> Present:
        """The names of chains, sets and maps in the table."""

    async def dump(self, family: Family) -> str:
        """The table as nft prints it; empty where there is none."""
