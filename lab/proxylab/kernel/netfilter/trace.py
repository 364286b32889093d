"""What a node's rules do to one packet, as the kernel tells it while it happens.

Owns: the table that marks packets to be traced, and putting together what legacy iptables and nf_tables tell of them.
Must not: touch the rules under test, or know what a rule says.

A packet is marked by ``meta nftrace set 1`` in an nf_tables table of our own, at priority -350, before every table of
iptables (raw is at -300). The mark is a bit of the packet (``skb->nf_trace``) that both kinds of rules honour:

* x_tables logs each rule that matches, each return and each policy as ``TRACE: table:chain:kind:number``, with the
  packet as it comes there (``trace_packet`` in net/ipv4/netfilter/ip_tables.c). ``kernel.nflog`` reads that.
* nf_tables tells each rule that matches, each end of a chain and each policy to NFNLGRP_NFTRACE, by handle and verdict,
  with the headers as they are where a base chain begins (``kernel.nftrace`` reads that). It does not tell the time.

So our rule also logs the packet: that line, the *entry*, has the packet whole, with its time, and opens a passage of
one packet through the node. Entries and nf_tables' reports of our own rule come one to one and in the same order.

A packet that leaves over a veth loses the mark (``skb_scrub_packet``); the next node marks it anew. The table belongs
to its socket and goes with it.
"""

import errno
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from heapq import merge
from operator import itemgetter
from typing import Final

from proxylab.errors import CapabilityError
from proxylab.kernel.netfilter.nflog import Logged, PacketLog
from proxylab.kernel.netfilter.nftables import Hook, OwnTable, equal, expression, number
from proxylab.kernel.netfilter.nftrace import NftEvent, NftTrace, RuleOrder
from proxylab.kernel.netlink import attributes as nla
from proxylab.kernel.sandbox.netns import NetNs

__all__ = ["ENTRY", "Bytes", "Match", "TraceEvent", "Tracer"]

ENTRY: Final = "entry"
"""The kind of an event that opens a passage."""

_TRANSPORT_HEADER: Final = 2  # NFT_PAYLOAD_TRANSPORT_HEADER
_PRIORITY: Final = -350
_TABLE: Final = "proxylab-trace"
_CHAINS: Final = {"PREROUTING": Hook(0, _PRIORITY), "OUTPUT": Hook(3, _PRIORITY)}  # include/uapi/linux/netfilter.h
_REGISTER_1: Final = 1
_META_NFTRACE: Final = 12
_META_L4PROTO: Final = 16
_GROUP: Final = 0  # the group that legacy iptables traces to
_LEGACY: Final = "TRACE: "
_OURS: Final = "proxylab entry"  # rules under test may log to the group, too

# Where iptables hangs its chains: the number of the hook, and the table's priority there (enum nf_ip_hook_priorities in
# include/uapi/linux/netfilter_ipv4.h). A packet meets hooks in the order of their numbers, and tables in theirs.
_HOOKS: Final = {"PREROUTING": 0, "INPUT": 1, "FORWARD": 2, "OUTPUT": 3, "POSTROUTING": 4}
_PRIORITIES: Final = {"raw": -300, "mangle": -150, "nat": -100, "filter": 0, "security": 50}
_SOURCE_NAT: Final = 100
_SOURCE_HOOKS: Final = frozenset({"INPUT", "POSTROUTING"})


@dataclass(frozen=True, slots=True)
class Bytes:
    """Bytes at an offset from the start of the transport header."""

    offset: int
    value: bytes


@dataclass(frozen=True, slots=True)
class Match:
    """Packets to be traced: their protocol number (IANA), and bytes that all must be there."""

    protocol: int
    bytes: tuple[Bytes, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceEvent:
    """One step of a traced packet.

    Attributes:
        table: of the rules, without its family.
        chain: in which it happened.
        kind: ``entry``, or the kernel's word: ``rule``, ``return`` or ``policy``.
        number: of the rule in its chain, from 1; 0 where there is none.
        verdict: what came of it, such as ``drop`` or ``jump KUBE-SERVICES``; empty where the kernel does not tell.
        packet: as it came there, from the IP header on.
        mark: as it came there.
        in_index: of the device; 0 where there is none, as for ``out_index``.
        at_ns: CLOCK_REALTIME; 0 where the kernel does not tell it.
    """

    table: str
    chain: str
    kind: str
    number: int = 0
    verdict: str = ""
    packet: bytes
    mark: int
    in_index: int = 0
    out_index: int = 0
    at_ns: int = 0


@dataclass(slots=True)
class _Passage:
    """One packet through the node: its entry, and what each kind of rules told."""

    entry: Logged
    legacy: list[Logged] = field(default_factory=list)
    events: list[NftEvent] = field(default_factory=list)


_Where = tuple[int, int]
"""Hook and priority, by which steps of both kinds of rules fall into one order."""


class Tracer:
    """Traces packets in one node. Silent until armed."""

    def __init__(self, netns: NetNs) -> None:
        """Make the table, bind the log and join the trace.

        Raises:
            CapabilityError: the kernel has no nf_tables or no NFNETLINK_LOG for this namespace.
        """
        with ExitStack() as opened:
            try:
                self._log = PacketLog(netns, _GROUP)
                opened.callback(self._log.close)
                self._trace = NftTrace(netns)
                opened.callback(self._trace.close)
                self._table = OwnTable(netns, _TABLE, _CHAINS)
                opened.callback(self._table.close)
                self._order = RuleOrder(netns)
            except OSError as error:
                raise CapabilityError(
                    f"tracing of packets in a network namespace ({error})",
                    "as root: 'modprobe -a nf_tables nfnetlink_log nft_log'",
                ) from error
            opened.pop_all()

    def arm(self, matches: Sequence[Match]) -> None:
        """Trace packets of any of ``matches`` from now on. What was told before is forgotten."""
        self._log.read()
        self._log.lost()
        self._trace.read()
        self._table.append([[*_tracing(match)] for match in matches])

    def disarm(self) -> None:
        """Trace nothing any more."""
        self._table.clear()

    def read(self) -> list[TraceEvent]:
        """What has been told since this was last asked, passage after passage. Never waits.

        Rules of nf_tables are told by handle, and are looked up in their chains now: they must be as they were.

        Raises:
            OSError: ENOBUFS if it did not fit its buffer: then the trace is not whole.
        """
        logged, told_by_nft = self._log.read(), self._trace.read()
        if self._log.lost():
            raise OSError(errno.ENOBUFS, os.strerror(errno.ENOBUFS))
        self._order.forget()
        events: list[TraceEvent] = []
        for passage in _passages(logged, told_by_nft):
            told = merge(_legacy_events(passage.legacy), self._nft_events(passage), key=itemgetter(0))
            events += (_entry(passage.entry), *(event for _, event in told))
        return events

    def close(self) -> None:
        """Close every socket; the table goes with its owner."""
        self._order.close()
        self._table.close()
        self._trace.close()
        self._log.close()

    def _nft_events(self, passage: _Passage) -> Iterator[tuple[_Where, TraceEvent]]:
        entry = passage.entry
        packet, mark, in_index, out_index = entry.packet, entry.mark, entry.in_index, entry.out_index
        where = (0, 0)
        for event in passage.events:
            if event.headers:
                if passage.legacy:
                    where = self._order.hook(event)
                packet = event.headers + entry.packet[len(event.headers) :]
                in_index, out_index = event.in_index, event.out_index
            yield (
                where,
                TraceEvent(
                    table=event.table,
                    chain=event.chain,
                    kind=event.kind,
                    number=self._order.number(event),
                    verdict=event.verdict,
                    packet=packet,
                    mark=mark,
                    in_index=in_index,
                    out_index=out_index,
                ),
            )
            mark = event.mark  # it is told as the rule left it


def _passages(logged: Sequence[Logged], told: Sequence[NftEvent]) -> list[_Passage]:
    """What belongs together: lines of legacy iptables follow their entry, events of nf_tables bear an identity.

    A rule that rejects makes a packet of its own, whose passage is told in the midst of the rejected one's.
    """
    passages: list[_Passage] = []
    for line in logged:
        if line.prefix == _OURS:
            passages.append(_Passage(line))
        elif passages and line.prefix.startswith(_LEGACY):
            passages[-1].legacy.append(line)
    by_identity: dict[int, _Passage] = {}
    opened = iter(passages)
    for event in told:
        if event.table != _TABLE:
            if event.identity in by_identity:
                by_identity[event.identity].events.append(event)
        elif event.kind == "rule" and (passage := next(opened, None)) is not None:
            by_identity[event.identity] = passage
    return passages


def _entry(entry: Logged) -> TraceEvent:
    return TraceEvent(
        table=_TABLE,
        chain=next((chain for chain, hook in _CHAINS.items() if hook.number == entry.hook), ""),
        kind=ENTRY,
        packet=entry.packet,
        mark=entry.mark,
        in_index=entry.in_index,
        out_index=entry.out_index,
        at_ns=entry.at_ns,
    )


def _legacy_events(lines: Sequence[Logged]) -> Iterator[tuple[_Where, TraceEvent]]:
    where = (0, 0)
    for line in lines:
        table, chain, kind, netns_name = line.prefix.removeprefix(_LEGACY).strip().split(":")
        if chain in _HOOKS:
            to_source = table == "nat" and chain in _SOURCE_HOOKS
            where = (_HOOKS[chain], _SOURCE_NAT if to_source else _PRIORITIES.get(table, 0))
        event = TraceEvent(
            table=table,
            chain=chain,
            kind=kind,
            number=int(netns_name),
            packet=line.packet,
            mark=line.mark,
            in_index=line.in_index,
            out_index=line.out_index,
            at_ns=line.at_ns,
        )
        yield where, event


def _tracing(match: Match) -> Iterator[bytes]:
    """The expressions of a rule that logs and traces a packet."""
    register = number(1, _REGISTER_1)
    yield from equal(expression("meta", register, number(2, _META_L4PROTO)), bytes([match.protocol]))
    for wanted in match.bytes:
        netns_name = (number(2, _TRANSPORT_HEADER), number(3, wanted.offset), number(4, len(wanted.value)))
        yield from equal(expression("payload", register, *netns_name), wanted.value)
    yield expression("immediate", register, nla.nested(2, nla.raw(1, b"\1")))
    yield expression("meta", number(2, _META_NFTRACE), number(3, _REGISTER_1))
    yield expression("log", nla.short(1, _GROUP), nla.text(2, _OURS))
