"""The trace of nf_tables, and the position of a traced rule in its chain.

``NftTrace`` reads NFT_MSG_TRACE (include/uapi/linux/netfilter/nf_tables.h, net/netfilter/nf_tables_trace.c).
``RuleOrder`` maps a rule's handle to its number in its chain. The text of a rule comes from the tool that wrote it.
"""

import socket
import struct
from typing import Final, NamedTuple

from proxylab.kernel.netfilter import attributes as nla
from proxylab.kernel.netfilter.nfnetlink import (
    ATTRIBUTE,
    GET_CHAIN,
    GET_RULE,
    SUBSYS_NFTABLES,
    NetfilterSocket,
    attributes,
    messages,
    nested,
    open_netfilter,
)
from proxylab.kernel.netlink.buffers import raise_receive_buffer
from proxylab.kernel.sandbox.netns import NetNs, inside

_GROUP: Final = 9  # NFNLGRP_NFTRACE
_SOL_NETLINK: Final = 270
_ADD_MEMBERSHIP: Final = 1
_TRACE: Final = SUBSYS_NFTABLES | 17
_RULE_TABLE, _RULE_CHAIN, _RULE_HANDLE = 1, 2, 3
_CHAIN_TABLE, _CHAIN_NAME, _CHAIN_HOOK = 1, 3, 4
_HOOK_NUMBER, _HOOK_PRIORITY = 1, 2
_TABLE, _CHAIN, _HANDLE, _TYPE, _VERDICT, _IDENTITY = 1, 2, 3, 4, 5, 6
_NETWORK, _TRANSPORT, _IN_INDEX, _OUT_INDEX, _MARK, _POLICY = 8, 9, 10, 12, 14, 16
_KINDS: Final = {1: "policy", 2: "return", 3: "rule"}
_CODE, _TARGET = 1, 2
_VERDICTS: Final = {
    -5: "return",
    -4: "goto",
    -3: "jump",
    -2: "break",
    -1: "continue",
    0: "drop",
    1: "accept",
    2: "stolen",
    3: "queue",
}
_READ_BYTES: Final = 1 << 20
_MOST_KNOWN: Final = 10_000

# The offset of the packet's identity in a report (nft_trace_notify): after its nfgenmsg and two numbers.
_ID_AT: Final = 4 + 8 + 8 + 4
_ID_BYTES: Final = 4
_ID_HEAD: Final = ATTRIBUTE.pack(8, _IDENTITY)
_SOCKET_BYTES: Final = 128 << 20  # in bytes of truesize
_TRUESIZE: Final = 1280  # of one report: a kilobyte, of which it uses a third, and its struct sk_buff


class ChainKey(NamedTuple):
    """A chain, by the family (an NFPROTO) and name of its table, and its own name."""

    family: int
    table: str
    chain: str


class NftEvent(NamedTuple):
    """One report.

    Attributes:
        identity: of the packet while it is in this namespace.
        family: of the table, an NFPROTO.
        kind: ``rule``, ``return`` or ``policy``.
        verdict: in nft's words, with the target chain of a jump or goto.
        mark: of the packet, after the rule.
        headers: network and transport header; empty except in the first report of a base chain.
    """

    identity: int
    family: int
    table: str
    chain: str
    kind: str
    handle: int
    verdict: str
    mark: int
    headers: bytes
    in_index: int
    out_index: int

    @property
    def chain_key(self) -> ChainKey:
        """The chain of the rule or policy."""
        return ChainKey(self.family, self.table, self.chain)


class NftTrace:
    """The trace reports of one namespace."""

    def __init__(self, netns: NetNs) -> None:
        """Subscribe to reports. Raises ``OSError`` where the kernel refuses."""
        self._known: dict[bytes, NftEvent] = {}
        with inside(netns):
            self._socket = open_netfilter()
        try:
            raise_receive_buffer(self._socket, _SOCKET_BYTES)
            # The kernel sends reports to all ports but 0, the port of a socket before bind(2).
            self._socket.bind((0, 0))
            self._socket.setsockopt(_SOL_NETLINK, _ADD_MEMBERSHIP, _GROUP)
            self._socket.setblocking(False)
        except OSError:
            self._socket.close()
            raise

    def fileno(self) -> int:
        """The descriptor, readable while reports wait."""
        return self._socket.fileno()

    @property
    def room(self) -> int:
        """How many reports the socket's buffer holds. The kernel drops reports beyond that."""
        return self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) // _TRUESIZE

    def read(self) -> list[NftEvent]:
        """The reports since the last call, in order. Never blocks.

        Raises:
            OSError: ENOBUFS if the kernel dropped reports.
        """
        found: list[NftEvent] = []
        while True:
            try:
                data = self._socket.recv(_READ_BYTES)
            except BlockingIOError:
                return found
            found += (self._report(each.body) for each in messages(data) if each.kind == _TRACE)

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def _report(self, body: bytes) -> NftEvent:
        """One report. Most reports equal an earlier one except for the identity, so a cache holds their parsed form."""
        if body[_ID_AT - ATTRIBUTE.size : _ID_AT] != _ID_HEAD:
            return _event(body)
        rest = body[:_ID_AT] + body[_ID_AT + _ID_BYTES :]
        known = self._known.get(rest)
        if known is None:
            known = _event(body)
            if not known.headers and len(self._known) < _MOST_KNOWN:
                self._known[rest] = known
            return known
        return known._replace(identity=_number(body[_ID_AT : _ID_AT + _ID_BYTES]))


class RuleOrder:
    """The number of a report's rule in its chain, from 1, and the hook of that chain; in one namespace."""

    def __init__(self, netns: NetNs) -> None:
        with inside(netns):
            opened = open_netfilter()
        self._dump = NetfilterSocket(opened)
        self._numbers: dict[ChainKey, dict[int, int]] = {}
        self._hooks: dict[ChainKey, tuple[int, int]] = {}

    def number(self, event: NftEvent) -> int:
        """The number of the report's rule; 0 for a report without a rule, or a deleted rule. Raises ``OSError``."""
        if not event.handle:
            return 0
        key = event.chain_key
        if key not in self._numbers:
            self._numbers[key] = {handle: number for number, handle in enumerate(self._handles(key), 1)}
        return self._numbers[key].get(event.handle, 0)

    def hook(self, event: NftEvent) -> tuple[int, int]:
        """The hook and priority of the report's base chain; zeros for a deleted chain. Raises ``OSError``."""
        if not self._hooks:
            self._hooks = dict(map(_hook, self._dump.all(GET_CHAIN, bytes(4))))
        return self._hooks.get(event.chain_key, (0, 0))

    def forget(self) -> None:
        """Clear the cache: the next call reads the chains again."""
        self._numbers.clear()
        self._hooks.clear()

    def close(self) -> None:
        """Close the socket."""
        self._dump.close()

    def _handles(self, key: ChainKey) -> list[int]:
        """The handles of a chain's rules, in the order of the rules (nf_tables_dump_rules)."""
        wanted = nla.text(_RULE_TABLE, key.table) + nla.text(_RULE_CHAIN, key.chain)
        bodies = self._dump.all(GET_RULE, bytes([key.family, 0, 0, 0]) + wanted)
        return [
            next(_number(content) for kind, content in attributes(body, 4) if kind == _RULE_HANDLE) for body in bodies
        ]


def _event(body: bytes) -> NftEvent:
    found = nested(body, 4)
    handle = _number(found.get(_HANDLE, b""))
    kind = _KINDS.get(_number(found.get(_TYPE, b"")), "unknown")
    if kind == "rule" and not handle:
        kind = "return"  # the end of a chain: the kernel reports a last rule without a handle
    return NftEvent(
        identity=_number(found.get(_IDENTITY, b"")),
        family=body[0],
        table=_text(found.get(_TABLE, b"")),
        chain=_text(found.get(_CHAIN, b"")),
        kind=kind,
        handle=handle,
        verdict=_verdict(found),
        mark=_number(found.get(_MARK, b"")),
        headers=found.get(_NETWORK, b"") + found.get(_TRANSPORT, b""),
        in_index=_number(found.get(_IN_INDEX, b"")),
        out_index=_number(found.get(_OUT_INDEX, b"")),
    )


def _hook(body: bytes) -> tuple[ChainKey, tuple[int, int]]:
    """A chain, and its hook and priority; zeros for a regular chain."""
    found = nested(body, 4)
    hook = nested(found.get(_CHAIN_HOOK, b""))
    priority = int.from_bytes(hook.get(_HOOK_PRIORITY, b""), "big", signed=True)
    key = ChainKey(body[0], _text(found.get(_CHAIN_TABLE, b"")), _text(found.get(_CHAIN_NAME, b"")))
    return key, (_number(hook.get(_HOOK_NUMBER, b"")), priority)


def _verdict(found: dict[int, bytes]) -> str:
    if _POLICY in found:
        return _VERDICTS.get(_number(found[_POLICY]), "")
    parts = nested(found.get(_VERDICT, b""))
    if _CODE not in parts:
        return ""
    (code,) = struct.unpack("!i", parts[_CODE])
    # The upper half of a netfilter verdict may hold an errno or a queue number.
    word = _VERDICTS.get(code if code < 0 else code & 0xFF, "")
    return f"{word} {_text(parts[_TARGET])}" if _TARGET in parts else word


def _number(content: bytes) -> int:
    return int.from_bytes(content, "big")


def _text(content: bytes) -> str:
    return content.rstrip(b"\0").decode(errors="replace")
