"""What the mode needs of iptables: loading a text and reading the rules back; ``node`` implements it."""

from typing import Protocol

from proxylab.addresses import Family


class RuleLoader(Protocol):
    """iptables in one node's namespace."""

    async def load(self, family: Family, text: str) -> None:
        """Load ``text`` with ``iptables-restore --noflush --counters``. Raises ``RulesRefusedError``.

        Each table is replaced as a whole at its ``COMMIT``; tables before a refused one have been loaded.
        """

    async def has_chain(self, family: Family, table: str, chain: str) -> bool:
        """Whether the table has that chain."""

    def has_chains_of_proxies(self, family: Family) -> bool:
        """Whether table nat or filter has a chain of kube-proxy or the kubelet; no program is started."""

    async def dump(self, family: Family) -> str:
        """The rules of the tables mangle, filter and nat, as ``iptables-save -c -t TABLE`` prints them.

        Without ``-t``, iptables-legacy-save reads ``/proc/net/ip_tables_names``, which only the machine's own root may
        read, and prints nothing in a user namespace.
        """
