"""Whether the kernel holds rules that bear a name.

Owns: ``xtables_hold``, ``iptables_nft_holds`` and ``nft_table_holds``, by reading the kernel in this process.
Must not: know what the name stands for, or run a program: this is asked a hundred times a second.
"""

import re
import socket
import struct
from typing import Final

from lab.ip import Family
from lab.kernel import attributes as nla
from lab.kernel.framing import nested
from lab.kernel.netlink import ask
from lab.kernel.netns import NetNs
from lab.kernel.uapi import NETLINK_NETFILTER
from lab.kernel.xtables import TableReader

__all__ = ["iptables_nft_holds", "nft_table_holds", "xtables_hold"]

# include/uapi/linux/netfilter/nfnetlink.h and nf_tables.h
_SUBSYS_NFTABLES: Final = 10 << 8
_GETCHAIN: Final = _SUBSYS_NFTABLES | 4
_GETRULE: Final = _SUBSYS_NFTABLES | 7
_RULE_TABLE: Final = 1
_CHAIN_TABLE: Final = 1
_CHAIN_NAME: Final = 3
_HEAD: Final = struct.Struct("=BBH")  # struct nfgenmsg: family, version, resource

_PROTOCOLS: Final = {Family.IPV4: socket.AF_INET, Family.IPV6: socket.AF_INET6}


def xtables_hold(reader: TableReader, table: str, text: str) -> bool:
    """Whether a table of legacy iptables has a rule with ``text`` in its comment (xt_comment keeps it as it is)."""
    snapshot = reader.read(table)
    return snapshot is not None and text.encode() in snapshot.entries


def iptables_nft_holds(netns: NetNs, family: Family, table: str, text: str) -> bool:
    """Whether a table of iptables-nft has a rule with ``text`` in its comment."""
    body = _HEAD.pack(_PROTOCOLS[family], 0, 0) + nla.text(_RULE_TABLE, table)
    return any(text.encode() in rule for rule in _dump(netns, _GETRULE, body))


def nft_table_holds(netns: NetNs, family: Family, table: str, chain: re.Pattern[bytes]) -> bool:
    """Whether an nftables table has a chain whose name begins like that."""
    body = _HEAD.pack(_PROTOCOLS[family], 0, 0)
    for found in _dump(netns, _GETCHAIN, body):
        parts = nested(found, _HEAD.size)
        if parts.get(_CHAIN_TABLE, b"").rstrip(b"\0") == table.encode() and chain.match(parts.get(_CHAIN_NAME, b"")):
            return True
    return False


def _dump(netns: NetNs, kind: int, body: bytes) -> list[bytes]:
    try:
        return ask(netns, NETLINK_NETFILTER, kind, body, dump=True)
    except FileNotFoundError:  # ENOENT: no such table yet
        return []
