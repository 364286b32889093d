"""Traces single packets through a node's rules, legacy iptables and nf_tables alike.

A rule of the lab's own nf_tables table marks packets with ``meta nftrace set 1``, at priority -350, before every table
of iptables (raw is at -300). The mark is a bit of the packet (``skb->nf_trace``), and both kinds of rules honour it:

* x_tables logs each matching rule, each return and each policy as ``TRACE: table:chain:kind:number``, with the packet
  as it is there (``trace_packet`` in net/ipv4/netfilter/ip_tables.c). ``kernel.netfilter.nflog`` reads the log.
* nf_tables reports each matching rule, each end of a chain and each policy to NFNLGRP_NFTRACE, by handle and verdict,
  with the headers as they are at the start of a base chain. The reports bear no time. ``kernel.netfilter.nft_trace``
  reads them.

So the lab's own rule also logs the packet. This log line, the *entry*, has the whole packet with its time, and opens a
passage of one packet through the node. What IPVS passes on through OUTPUT opens none. Entries, and nf_tables' reports
of the lab's own rule, come one to one in the same order.

A packet that leaves over a veth loses the mark (``skb_scrub_packet``), and the next node marks it again. The kernel
removes the table when its socket closes. The tool that wrote a rule has its text.
"""

import errno
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from heapq import merge
from operator import itemgetter
from typing import Final

from msgspec import Struct

from proxylab.errors import CapabilityError
from proxylab.kernel.netfilter.nflog import Logged, PacketLog
from proxylab.kernel.netfilter.nft_expressions import (
    MATCH_SENT_HERE,
    TRACE,
    TRANSPORT_HEADER,
    log,
    match_bytes,
    match_protocol,
)
from proxylab.kernel.netfilter.nft_tables import OUTPUT, PREROUTING, ChainHook, OwnTable
from proxylab.kernel.netfilter.nft_trace import NftEvent, NftTrace, RuleOrder
from proxylab.kernel.sandbox.netns import NetNs

ENTRY: Final = "entry"
"""The kind of an event that opens a passage."""

_PRIORITY: Final = -350
_TABLE: Final = "proxylab-trace"
_CHAINS: Final = {"PREROUTING": ChainHook(PREROUTING, _PRIORITY), "OUTPUT": ChainHook(OUTPUT, _PRIORITY)}
_GROUP: Final = 0  # legacy iptables logs traces to this group
_LEGACY: Final = "TRACE: "
_ENTRY_PREFIX: Final = "proxylab entry"  # rules under test may log to the group, too

# The hook of each iptables chain, and the priority of each table there (enum nf_ip_hook_priorities in
# include/uapi/linux/netfilter_ipv4.h). A packet meets hooks by number, and tables of a hook by priority.
_HOOKS: Final = {"PREROUTING": 0, "INPUT": 1, "FORWARD": 2, "OUTPUT": 3, "POSTROUTING": 4}
_PRIORITIES: Final = {"raw": -300, "mangle": -150, "nat": -100, "filter": 0, "security": 50}
_SOURCE_NAT: Final = 100
_SOURCE_HOOKS: Final = frozenset({"INPUT", "POSTROUTING"})


class Bytes(Struct, frozen=True):
    """Bytes at an offset from the start of the transport header."""

    offset: int
    value: bytes


class PacketMatch(Struct, frozen=True):
    """Packets to trace: their protocol number (IANA), and bytes that all must match."""

    protocol: int
    bytes: tuple[Bytes, ...]


class TraceEvent(Struct, frozen=True, kw_only=True):
    """One step of a traced packet.

    Attributes:
        table: of the rules, without its family.
        chain: of the rule.
        kind: ``entry``, or the kernel's word: ``rule``, ``return`` or ``policy``.
        number: of the rule in its chain, from 1; 0 where there is none.
        verdict: such as ``drop`` or ``jump KUBE-SERVICES``; empty where the kernel does not report it.
        packet: before this step, from the IP header on.
        mark: before this step.
        in_index: of the device, or 0; likewise ``out_index``.
        at_ns: CLOCK_REALTIME; 0 where the kernel does not report it.
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
class _TracedPacket:
    """One packet through the node: its entry, and the events of each kind of rules."""

    entry: Logged
    legacy: list[Logged] = field(default_factory=list)
    events: list[NftEvent] = field(default_factory=list)


_Where = tuple[int, int]
"""Hook and priority, by which steps of both kinds of rules fall into one order."""


class Tracer:
    """Traces packets in one node. Silent until armed."""

    def __init__(self, netns: NetNs) -> None:
        """Make the table, bind the log and join the trace. Raises ``CapabilityError``."""
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

    def arm(self, matches: Sequence[PacketMatch]) -> None:
        """Trace packets that fit any of ``matches`` from now on, and discard earlier events."""
        self._log.forget()
        self._trace.read()
        self._table.append([[*_tracing(match)] for match in matches], "PREROUTING")
        self._table.append([[*MATCH_SENT_HERE, *_tracing(match)] for match in matches], "OUTPUT")

    def disarm(self) -> None:
        """Stop tracing."""
        self._table.clear()

    def read(self) -> list[TraceEvent]:
        """The events since the last call, passage by passage. Never blocks.

        nf_tables reports rules by handle. This call looks up their numbers, so the rules must not have changed since.

        Raises:
            OSError: ENOBUFS if events did not fit the buffer: the trace is incomplete.
        """
        logged, reports = self._log.read(), self._trace.read()
        if self._log.take_lost():
            raise OSError(errno.ENOBUFS, os.strerror(errno.ENOBUFS))
        self._order.forget()
        events: list[TraceEvent] = []
        for passage in _passages(logged, reports):
            merged = merge(_legacy_events(passage.legacy), self._nft_events(passage), key=itemgetter(0))
            events += (_entry(passage.entry), *(event for _, event in merged))
        return events

    def close(self) -> None:
        """Close all sockets, which removes the table."""
        self._order.close()
        self._table.close()
        self._trace.close()
        self._log.close()

    def _nft_events(self, passage: _TracedPacket) -> Iterator[tuple[_Where, TraceEvent]]:
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
            mark = event.mark  # the report has the mark after the rule


def _passages(logged: Sequence[Logged], reports: Sequence[NftEvent]) -> list[_TracedPacket]:
    """Group events by packet: lines of legacy iptables follow their entry, reports of nf_tables bear an identity.

    A REJECT rule makes a packet of its own, and that passage comes in the middle of the rejected packet's passage.
    """
    passages: list[_TracedPacket] = []
    for line in logged:
        if line.prefix == _ENTRY_PREFIX:
            passages.append(_TracedPacket(line))
        elif passages and line.prefix.startswith(_LEGACY):
            passages[-1].legacy.append(line)
    by_identity: dict[int, _TracedPacket] = {}
    opened = iter(passages)
    for event in reports:
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
        table, chain, kind, rule_number = line.prefix.removeprefix(_LEGACY).strip().split(":")
        if chain in _HOOKS:
            to_source = table == "nat" and chain in _SOURCE_HOOKS
            where = (_HOOKS[chain], _SOURCE_NAT if to_source else _PRIORITIES.get(table, 0))
        event = TraceEvent(
            table=table,
            chain=chain,
            kind=kind,
            number=int(rule_number),
            packet=line.packet,
            mark=line.mark,
            in_index=line.in_index,
            out_index=line.out_index,
            at_ns=line.at_ns,
        )
        yield where, event


def _tracing(match: PacketMatch) -> Iterator[bytes]:
    """The expressions of a rule that logs and traces a packet."""
    yield from match_protocol(match.protocol)
    for wanted in match.bytes:
        yield from match_bytes(TRANSPORT_HEADER, wanted.offset, wanted.value)
    yield from TRACE
    yield log(_GROUP, _ENTRY_PREFIX)
