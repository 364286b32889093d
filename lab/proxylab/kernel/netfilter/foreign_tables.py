"""Names of a namespace's tables that decide anything: nftables and legacy iptables tables with a rule or a drop policy.

Tools that look for rules create the tables that they look into, so an empty table is common and means nothing. The
module starts no process; nft(8) and iptables-save(8) list the rules themselves.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Final

from proxylab.addresses import Family
from proxylab.kernel.netfilter import attributes as nla
from proxylab.kernel.netfilter.iptables_legacy_tables import EntryKind, TableReader, jumps
from proxylab.kernel.netfilter.nfnetlink import (
    GET_CHAIN,
    GET_RULE,
    GET_TABLE,
    NFPROTO,
    NetfilterSocket,
    nested,
    open_netfilter,
)
from proxylab.kernel.sandbox.netns import NetNs, inside

# include/uapi/linux/netfilter/nf_tables.h, netfilter.h
_TABLE_NAME: Final = 1  # NFTA_TABLE_NAME, NFTA_RULE_TABLE, NFTA_CHAIN_TABLE
_CHAIN_NAME: Final = 3
_CHAIN_POLICY: Final = 5
_CHAIN_COUNTERS: Final = 8
_COUNTER_PACKETS: Final = 2
_DROP: Final = bytes(4)  # NF_DROP
_EVERY_FAMILY: Final = bytes(4)
_FAMILIES: Final = {1: "inet", 2: "ip", 3: "arp", 5: "netdev", 7: "bridge", 10: "ip6"}
_NUMBERS: Final = {name: number for number, name in _FAMILIES.items()}
_NFGENMSG_BYTES: Final = 4
_RULE_CHAIN: Final = 2
_RULE_EXPRESSIONS: Final = 4
_JUMP: Final = re.compile(rb"\x02\0([\w-]+)\0")  # NFTA_VERDICT_CHAIN
_LEGACY: Final = {Family.IPV4: "ip_tables_names", Family.IPV6: "ip6_tables_names"}


class TableNames:
    """Reads the tables of one namespace."""

    def __init__(self, netns: NetNs) -> None:
        self._netns = netns
        with inside(netns):
            opened = open_netfilter()
        self._dump = NetfilterSocket(opened)
        self._absent: set[tuple[Family, str]] = set()  # a second lookup would start modprobe again

    def nft(self) -> list[str]:
        """The tables of nf_tables as nft names them, family first. Raises ``OSError``."""
        found = []
        for body in self._dump.all(GET_TABLE, _EVERY_FAMILY):
            name = nested(body, _NFGENMSG_BYTES)[_TABLE_NAME].rstrip(b"\0").decode(errors="replace")
            if body[0] in _FAMILIES:
                found.append(f"{_FAMILIES[body[0]]} {name}")
        return found

    def decides(self, table: str) -> bool:
        """Whether a table of nf_tables has a rule, or a policy that drops. Raises ``OSError``."""
        family, _, name = table.partition(" ")
        head, name_of = bytes([_NUMBERS[family], 0, 0, 0]), nla.text(_TABLE_NAME, name)
        return bool(self._dump.all(GET_RULE, head + name_of)) or any(self._shut(head, name_of))

    def dropped_by_policies(self, table: str) -> dict[str, int]:
        """What the policies of a table of nf_tables have dropped, by chain; without those that do not count.

        nft(8) lists no such counter. iptables-nft gives its chains one. Raises ``OSError``.
        """
        family, _, name = table.partition(" ")
        found = {}
        for chain in self._shut(bytes([_NUMBERS[family], 0, 0, 0]), nla.text(_TABLE_NAME, name)):
            if counters := chain.get(_CHAIN_COUNTERS):
                packets = int.from_bytes(nested(counters)[_COUNTER_PACKETS])
                found[_name_of(chain)] = packets
        return found

    def _shut(self, head: bytes, name_of: bytes) -> Iterator[dict[int, bytes]]:
        """The chains of a table of nf_tables with a policy that drops."""
        for body in self._dump.all(GET_CHAIN, head):
            chain = body[_NFGENMSG_BYTES:]
            if chain.startswith(name_of) and (read := nested(chain)).get(_CHAIN_POLICY) == _DROP:
                yield read

    def legacy(self, family: Family, known: Collection[str]) -> list[str]:
        """The tables of legacy iptables that decide anything, except those in ``known``.

        Only the machine's root may read their names. For an ordinary user the method looks up each table by name,
        which creates an empty table where there was none; that changes the path of no packet.
        """
        try:
            with inside(self._netns):
                found = Path("/proc/thread-self/net", _LEGACY[family]).read_text(encoding="ascii").split()
        except FileNotFoundError:
            return []  # the kernel has no legacy tables of this family
        except PermissionError:
            found = [table for table in ("raw", "security") if (family, table) not in self._absent]
        tables = [table for table in found if table not in known]
        reader = TableReader(self._netns, family) if tables else None
        if reader is None:
            return []
        try:
            read = {table: reader.read(table) for table in tables}
        finally:
            reader.close()
        self._absent.update((family, table) for table, snapshot in read.items() if snapshot is None)
        return [
            table
            for table, snapshot in read.items()
            if snapshot is not None
            and any(entry.kind in (EntryKind.RULE, EntryKind.DROP_POLICY) for entry in reader.walk(snapshot))
        ]

    def legacy_rules(self, family: Family, table: str) -> list[tuple[str, str]]:
        """The chain of each rule of a table of legacy iptables, and the chain that it leads to if it names one.

        A policy that drops is a rule here.
        """
        reader = TableReader(self._netns, family)
        try:
            snapshot = reader.read(table)
        finally:
            reader.close()
        return [] if snapshot is None else list(jumps(snapshot))

    def nft_rules(self, family: Family, table: str) -> Iterator[tuple[str, str]]:
        """The same of a table of iptables-nft. Raises ``OSError``."""
        head, name_of = bytes([NFPROTO[family], 0, 0, 0]), nla.text(_TABLE_NAME, table)
        for body in self._dump.all(GET_RULE, head + name_of):
            rule = nested(body, _NFGENMSG_BYTES)
            jump = _JUMP.search(rule.get(_RULE_EXPRESSIONS, b""))
            yield rule[_RULE_CHAIN].rstrip(b"\0").decode(), jump[1].decode() if jump else ""
        yield from ((_name_of(chain), "") for chain in self._shut(head, name_of))

    def close(self) -> None:
        """Close the socket."""
        self._dump.close()


def _name_of(chain: Mapping[int, bytes]) -> str:
    return chain[_CHAIN_NAME].rstrip(b"\0").decode()
