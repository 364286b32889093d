"""What the engines need of the kernel: to load a rule file and to read the rules back.

Owns: the ``RuleLoader`` protocol, and the error by which a loader says that the tool refused the text.
Must not: implement it (``kernel`` does).
"""

from typing import Protocol

from proxylab.addresses import Family

__all__ = ["RuleLoader", "RulesRefusedError"]


class RulesRefusedError(Exception):
    """The tool refused the text. ``output`` is all it wrote, which names a line."""

    def __init__(self, output: str) -> None:
        super().__init__(output)
        self.output = output


class RuleLoader(Protocol):
    """iptables in one node's namespace."""

    async def load(self, family: Family, text: str) -> None:
        """Load ``text`` with ``iptables-restore --noflush --counters``. Raises ``RulesRefusedError``.

        Each table is replaced as a whole at its ``COMMIT``; tables before a refused one have been loaded.
        """

    async def has_chain(self, family: Family, table: str, chain: str) -> bool:
        """Whether the table has that chain."""

    def drop_nft_table(self, family: Family, name: str) -> bool:
        """Delete the nftables table of that name; whether there was one. Raises ``OSError``."""

    async def save(self, family: Family) -> str:
        """The rules of the tables mangle, filter and nat, as ``iptables-save -c -t TABLE`` prints them.

        Without ``-t``, iptables-legacy-save looks into ``/proc/net/ip_tables_names``, which only the machine's own root
        may read, and prints nothing in a user namespace.
        """
