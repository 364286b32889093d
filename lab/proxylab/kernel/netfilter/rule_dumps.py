"""The rules in the kernel as bytes, in which an engine searches for a name.

Comments of iptables rules stand there as text, and so do names of nftables chains. An engine polls a hundred times a
second, so the module reads the rules in this process and starts no program.
"""

import struct
from typing import Final

from proxylab.addresses import Family
from proxylab.kernel.netfilter import attributes as nla
from proxylab.kernel.netfilter.iptables_legacy_tables import TableReader
from proxylab.kernel.netfilter.nfnetlink import GET_CHAIN, GET_RULE, NFPROTO, SUBSYS_NFTABLES, ask, nested
from proxylab.kernel.sandbox.netns import NetNs

# include/uapi/linux/netfilter/nfnetlink.h and nf_tables.h
_GET_SET: Final = SUBSYS_NFTABLES | 10
_TABLE: Final = 1
_CHAIN_NAME: Final = 3
_RULE_CHAIN: Final = 2
_SET_NAME: Final = 2
_SET_TIMEOUT: Final = 11
_HEAD: Final = struct.Struct("=BBH")  # struct nfgenmsg: family, version, resource


def xtables_rules(netns: NetNs, family: Family, table: str) -> list[bytes]:
    """A table of legacy iptables in one piece (xt_comment stores a comment as text)."""
    reader = TableReader(netns, family)
    try:
        snapshot = reader.read(table)
    finally:
        reader.close()
    return [] if snapshot is None else [snapshot.entries]


def iptables_nft_rules(netns: NetNs, family: Family, table: str) -> list[bytes]:
    """Every rule of a table of iptables-nft."""
    return _dump(netns, GET_RULE, _HEAD.pack(NFPROTO[family], 0, 0) + nla.text(_TABLE, table))


def nft_rules(netns: NetNs, family: Family, table: str, chain: str) -> list[bytes]:
    """Every rule of one chain of an nftables table; a comment stands in it as text."""
    where = nla.text(_TABLE, table) + nla.text(_RULE_CHAIN, chain)
    return _dump(netns, GET_RULE, _HEAD.pack(NFPROTO[family], 0, 0) + where)


def nft_chains(netns: NetNs, family: Family, table: str) -> list[bytes]:
    """The name of every chain of an nftables table."""
    return [each[_CHAIN_NAME].rstrip(b"\0") for each in _of_table(netns, family, table, GET_CHAIN)]


def nft_sets(netns: NetNs, family: Family, table: str) -> dict[str, int]:
    """Every named set and map of an nftables table, with the timeout of its elements in seconds, or 0."""
    return {
        each[_SET_NAME].rstrip(b"\0").decode(): int.from_bytes(each.get(_SET_TIMEOUT, b""), "big") // 1000
        for each in _of_table(netns, family, table, _GET_SET)
    }


def _of_table(netns: NetNs, family: Family, table: str, kind: int) -> list[dict[int, bytes]]:
    """The attributes of each chain or set of a table; both have the table's name first."""
    dumped = [nested(found, _HEAD.size) for found in _dump(netns, kind, _HEAD.pack(NFPROTO[family], 0, 0))]
    wanted = table.encode()
    return [each for each in dumped if each[_TABLE].rstrip(b"\0") == wanted]


def _dump(netns: NetNs, kind: int, body: bytes) -> list[bytes]:
    try:
        return ask(netns, kind, body, dump=True)
    except FileNotFoundError:  # ENOENT: no such table yet
        return []
