"""Counts a probe's flows in rules without counters; a ``kernel.netfilter.meters.Meter``.

kube-proxy writes no counters into its nftables, and a lab does not change the rules under test. But for marked packets
nf_tables traces each rule that they meet and its verdict. So a table of the lab marks the first packet of every flow
that dials what the probe dials, and ``TraceMeter`` counts the trace events by rule. They are better evidence than a
counter: they cover these packets and no others, and show where a rule with a choice sent each of them.

The kernel's trace id is made of a packet's memory address and its input device (trace_fill_id in
net/netfilter/nf_tables_trace.c). A frame that a bridge passes up to its node gets another one on its way, after its
translation. So the meter follows a packet by its source, which is translated last of all.

The meter must read the events as fast as they come, or some are lost (ENOBUFS). Then it reports that and counts
nothing. An ordinary user's socket holds few of them, so ``max_frames_in_flight`` limits how many
frames may be under way until the meter reads.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from proxylab.addresses import Family, unpacked
from proxylab.evidence.evidence import RuleCount
from proxylab.kernel.netfilter.flow_marker import FlowMarker
from proxylab.kernel.netfilter.nft_trace import NftEvent, NftTrace
from proxylab.kernel.sandbox.netns import NetNs
from proxylab.plan.resolved import ResolvedProbe
from proxylab.rules.nft_listing import ListedRule, listed_rules
from proxylab.rules.nftables import read_rule

Listing = Callable[[], Awaitable[str]]
"""The output of ``nft --handle list table`` for the table."""

_REPORTS: Final = 32
"""The most events of one packet on one node: it meets some twenty rules and policies of kube-proxy."""

_PORT_BYTES: Final = 2

_NAT: Final = frozenset({"dnat", "masquerade", "redirect", "snat"})
"""The statements that translate."""

_FRAMES: Final = 8
"""The most frames of one flow that a tap may see before all taps are read (``proxylab.traffic.packet``)."""


class TraceMeter:
    """Counts the flows that met each rule of one table in one node."""

    def __init__(self, netns: NetNs, family: Family, table: str, listing: Listing) -> None:
        self._netns = netns
        self._family = family
        self._table = table
        self._listing = listing
        self._rules: tuple[ListedRule, ...] = ()
        self._marker: FlowMarker | None = None
        self._trace: NftTrace | None = None
        self._heard: list[NftEvent] = []
        self._lost = False

    @property
    def max_frames_in_flight(self) -> int | None:
        """How many frames may be under way. The first frame of each flow causes an event at each rule that it meets."""
        return None if self._trace is None else max(1, self._trace.room // _REPORTS) * _FRAMES

    @property
    def is_complete(self) -> bool:
        """Whether the count covers everything between ``begin`` and ``end``."""
        return not self._lost

    async def begin(self, resolved: ResolvedProbe) -> None:
        """Mark the flows of ``resolved`` from now on."""
        if not self._rules:
            self._rules = listed_rules(await self._listing())
        if self._trace is None or self._marker is None:
            self._trace = NftTrace(self._netns)
            self._marker = FlowMarker(self._netns, self._family)
            asyncio.get_running_loop().add_reader(self._trace.fileno(), self._hear)
        self._hear()
        self._heard.clear()
        self._lost = False
        self._marker.mark(resolved.protocol_number, resolved.destination, resolved.port)

    async def end(self) -> tuple[RuleCount, ...]:
        """The rules that flows have met since, and how many flows met each."""
        if self._marker is not None:
            self._marker.clear()
        self._hear()
        if self._lost:
            return ()
        known = {rule.handle for rule in self._rules}
        if any(event.table == self._table and event.handle and event.handle not in known for event in self._heard):
            self._rules = listed_rules(await self._listing())
        return tuple(counted_reports(self._netns.name, self._table, self._heard, self._rules))

    def rules_by_chain(self) -> dict[tuple[str, str], list[str]]:
        """The rules by table and chain, in order, as they were last listed."""
        texts: dict[tuple[str, str], list[str]] = {}
        for rule in self._rules:
            texts.setdefault((self._table, rule.chain), []).append(rule.text)
        return texts

    def close(self) -> None:
        """Remove the marking table and close the trace socket."""
        if self._trace is not None:
            asyncio.get_running_loop().remove_reader(self._trace.fileno())
            self._trace.close()
        if self._marker is not None:
            self._marker.close()
        self._trace = self._marker = None

    def _hear(self) -> None:
        try:
            self._heard += () if self._trace is None else self._trace.read()
        except OSError:  # ENOBUFS
            self._lost = True


class _Met(NamedTuple):
    """A rule that packets met: its chain, text and target, and the packed address and port that a DNAT gave them."""

    chain: str
    text: str
    target: str
    end: bytes


def counted_reports(
    node: str, table: str, events: Iterable[NftEvent], rules: Iterable[ListedRule]
) -> Iterator[RuleCount]:
    """How many packets met each rule, in the order in which rules were first met."""
    reports = list(events)
    texts = {rule.handle: rule.text for rule in rules}
    targets: dict[tuple[str, str], str] = {}
    # Thousands of flows make many events: each rule is read once, and addresses are parsed at the end.
    met = Counter[_Met]()
    for event, after in zip(reports, _headers_after(reports), strict=True):
        text = texts.get(event.handle)
        if text is None or event.kind != "rule" or event.table != table:
            continue
        target = targets.get((event.verdict, text))
        if target is None:
            target = targets[event.verdict, text] = _target(event.verdict, text)
        met[_Met(event.chain, text, target, _end(after) if target == "DNAT" else b"")] += 1
    for (chain, text, target, end), count in met.items():
        destination = unpacked(end[:-_PORT_BYTES]) if end else None
        yield RuleCount(node, table, chain, text, count, target, destination, int.from_bytes(end[-_PORT_BYTES:], "big"))


def _headers_after(reports: Sequence[NftEvent]) -> list[bytes]:
    """For each event the packet's headers at its next base chain; empty if it came to none.

    The kernel reports headers where a base chain begins, so a translation is visible in the next one.
    """
    sources: list[bytes] = []
    now: dict[int, bytes] = {}
    for event in reports:
        if event.headers:
            now[event.identity] = _source(event.headers)
        sources.append(now.get(event.identity, b""))
    found, ahead = [], dict[bytes, bytes]()
    for event, source in zip(reversed(reports), reversed(sources), strict=True):
        found.append(ahead.get(source, b"") if source else b"")
        if event.headers:
            ahead[source] = event.headers
    return found[::-1]


def _target(verdict: str, text: str) -> str:
    """A rule's target, in the words of iptables-extensions(8); empty where it only passed the packet on."""
    done = [each.name for each in read_rule(text).actions]
    if verdict == "drop":
        return "REJECT" if "reject" in done else "DROP"
    if verdict == "accept":
        return next((name.upper() for name in reversed(done) if name in _NAT), "")
    return ""


def _end(headers: bytes) -> bytes:
    """Destination address and port in a network header with a transport header behind it; empty for shorter ones."""
    if len(headers) < (transport := _transport(headers)) + 4:
        return b""
    start, length = ((16, 4), (24, 16))[headers[0] >> 4 == 6]
    return headers[start : start + length] + headers[transport + 2 : transport + 4]


def _source(headers: bytes) -> bytes:
    """The fields that a packet keeps until it leaves: protocol, source address and source port."""
    if headers[0] >> 4 == 6:
        return headers[6:7] + headers[8:24] + headers[40:42]
    transport = _transport(headers)
    return headers[9:10] + headers[12:16] + headers[transport : transport + 2]


def _transport(headers: bytes) -> int:
    """The offset of the transport header."""
    return 40 if not headers or headers[0] >> 4 == 6 else (headers[0] & 0xF) * 4
