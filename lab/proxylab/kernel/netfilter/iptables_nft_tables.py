"""The counters of iptables' tables where nf_tables holds them, read without a process.

iptables-nft gives every rule a ``counter`` expression, and every chain with a policy counters of its own. A dump has
the rules chain by chain in their order (NFT_MSG_GETRULE, NFT_MSG_GETCHAIN in
include/uapi/linux/netfilter/nf_tables.h), so the n-th rule of a chain in a dump is the n-th that iptables-nft-save
prints. Starting that program takes a hundred times as long. The module finds where each counter stands; it does not
decode matches or targets, which iptables-nft-save prints.
"""

import struct
from collections.abc import Iterator, Sequence
from typing import Final

from proxylab.addresses import Family
from proxylab.kernel.netfilter import attributes as nla
from proxylab.kernel.netfilter.iptables_legacy_tables import EntryKind, Snapshot, TableEntryOffsets, counters
from proxylab.kernel.netfilter.nfnetlink import ATTRIBUTE, GET_CHAIN, GET_RULE, NFPROTO, NetfilterSocket, open_netfilter
from proxylab.kernel.sandbox.netns import NetNs, inside

_RULE_TABLE, _RULE_CHAIN, _RULE_EXPRESSIONS = 1, 2, 4
_CHAIN_TABLE, _CHAIN_NAME, _CHAIN_POLICY, _CHAIN_COUNTERS = 1, 3, 5, 8
_EXPRESSION_NAME, _EXPRESSION_DATA = 1, 2
_COUNTER: Final = b"counter\0"
_DROP: Final = 0  # NF_DROP
_TYPE_BITS: Final = 0x3FFF

# In front of each message's attributes: their length, and the kind of the dump.
_PIECE: Final = struct.Struct("=IH2x")

# A counter: NFTA_COUNTER_BYTES and NFTA_COUNTER_PACKETS, each of eight bytes behind its own header. A rule has its
# bytes first (nft_counter_do_dump), a policy its packets (nft_dump_stats).
_NUMBER_BYTES: Final = 8
_APART: Final = _NUMBER_BYTES + ATTRIBUTE.size
_NFGENMSG_BYTES: Final = 4  # its last two bytes change with every transaction


class NftTableReader:
    """Reads the tables of one family in one namespace; ``TableReader`` reads those of legacy iptables."""

    def __init__(self, netns: NetNs, family: Family) -> None:
        with inside(netns):
            opened = open_netfilter()
        self._dump = NetfilterSocket(opened)
        self._family = family

    def read(self, table: str) -> Snapshot | None:
        """The current table; ``None`` where the namespace has none of that name. Raises ``OSError``."""
        head = bytes([NFPROTO[self._family], 0, 0, 0])
        pieces = []
        for kind, wanted in ((GET_RULE, _RULE_TABLE), (GET_CHAIN, _CHAIN_TABLE)):
            # A dump of chains takes no filter (nf_tables_dump_chains), so chains of other tables are skipped below.
            name = nla.text(wanted, table)
            for body in self._dump.all(kind, head + name):
                data = body[_NFGENMSG_BYTES:]
                if data.startswith(name):
                    pieces.append(_PIECE.pack(len(data), kind) + data)
        return Snapshot(self._family, {}, {}, b"".join(pieces)) if pieces else None

    def walk(self, snapshot: Snapshot) -> Iterator[TableEntryOffsets]:
        """Every rule, chain by chain, and then every policy."""
        entries, at = snapshot.entries, 0
        while at < len(entries):
            length, kind = _PIECE.unpack_from(entries, at)
            start = at + _PIECE.size
            found = dict(_attributes(entries, start, start + length))
            entry = _rule(entries, found) if kind == GET_RULE else _policy(entries, found)
            if entry is not None:
                yield entry
            at = start + length

    def counters(self, offsets: Sequence[int]) -> struct.Struct:
        """A struct that unpacks the packet counters at ``offsets`` of the entries."""
        return counters("!", offsets)

    def volatile(self, entry: TableEntryOffsets) -> slice:
        """The bytes of an entry that change while its rule stays the same."""
        begin = entry.counters_at - (_APART if entry.kind is EntryKind.RULE else 0)
        return slice(begin, begin + _APART + _NUMBER_BYTES)

    def close(self) -> None:
        """Close the socket."""
        self._dump.close()


def _rule(entries: bytes, found: dict[int, tuple[int, int]]) -> TableEntryOffsets | None:
    for _, expression in _attributes(entries, *found.get(_RULE_EXPRESSIONS, (0, 0))):
        parts = dict(_attributes(entries, *expression))
        if entries[slice(*parts[_EXPRESSION_NAME])] == _COUNTER:
            packets_at = parts[_EXPRESSION_DATA][0] + ATTRIBUTE.size + _APART
            return TableEntryOffsets(EntryKind.RULE, _text(entries, found[_RULE_CHAIN]), packets_at)
    return None


def _policy(entries: bytes, found: dict[int, tuple[int, int]]) -> TableEntryOffsets | None:
    if _CHAIN_POLICY not in found or _CHAIN_COUNTERS not in found:
        return None
    drops = int.from_bytes(entries[slice(*found[_CHAIN_POLICY])], "big") == _DROP
    kind = EntryKind.DROP_POLICY if drops else EntryKind.ACCEPT_POLICY
    return TableEntryOffsets(kind, _text(entries, found[_CHAIN_NAME]), found[_CHAIN_COUNTERS][0] + ATTRIBUTE.size)


def _attributes(data: bytes, at: int, end: int) -> Iterator[tuple[int, tuple[int, int]]]:
    """Each attribute's type, and the begin and end of its content."""
    while at + ATTRIBUTE.size <= end:
        length, kind = ATTRIBUTE.unpack_from(data, at)
        if length < ATTRIBUTE.size:
            return
        yield kind & _TYPE_BITS, (at + ATTRIBUTE.size, at + length)
        at += length + (-length & 3)


def _text(data: bytes, offset: tuple[int, int]) -> str:
    return data[slice(*offset)].rstrip(b"\0").decode()
