"""What became of a probe's flows in rules that do not count: those of kube-proxy's mode nftables.

Owns: ``TraceMeter``, and reading a listing of nft.
Must not: know what a Service is.

kube-proxy writes no counters into its nftables, and a lab changes nothing in rules that are under test. But nf_tables
tells, for packets that are marked, each rule that they meet and what it decides. So the first packet of every flow that
dials what the probe dials is marked, by a table of the lab's own, and the reports are counted by rule. As a witness
that is better than a counter: it is about these packets and no others, and it says where a rule that has a choice sent
each of them.

The kernel tells packets apart by a number that is made of where a packet lies and which device it came by
(trace_fill_id in net/netfilter/nf_tables_trace.c). A frame that a bridge hands up to its node gets another one on its
way, after its translation. So a packet is followed by its source, which is translated last of all.

The reports must be heard as fast as they come, or some are lost (ENOBUFS). Then the meter says so and counts nothing.
An ordinary user's socket holds few of them, so the meter says how many flows may be under way until it is its turn.
"""

import asyncio
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from proxylab.addresses import Family, unpacked
from proxylab.evidence.evidence import RuleCount
from proxylab.kernel.netfilter.nftmarks import FlowMarker
from proxylab.kernel.netfilter.nftrace import NftEvent, NftTrace
from proxylab.kernel.sandbox.netns import NetNs
from proxylab.plan.resolved import ResolvedProbe

__all__ = ["TraceMeter", "counted_reports", "listed_rules"]

Listing = Callable[[], Awaitable[str]]
"""What ``nft --handle list table`` prints of the table."""

_CHAIN: Final = re.compile(r"\tchain (\S+) \{")
_RULE: Final = re.compile(r"\t\t(.*\S)\s+# handle (\d+)")


_REPORTS: Final = 32
"""Of one packet on one node, at most: kube-proxy has it meet some twenty rules and policies."""

_PORT_BYTES: Final = 2

_FRAMES: Final = 8
"""That a tap may see of one flow before everybody has been heard (``proxylab.traffic.packet``)."""


class ListedRule(NamedTuple):
    """One rule of a listing."""

    chain: str
    handle: int
    text: str


class TraceMeter:
    """Counts the flows that met each rule of one table in one node.

    Args:
        netns: the node.
        family: of the table.
        table: the table's name.
        listing: prints it.
    """

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
    def room(self) -> int | None:
        """How many frames may be under way, of which the first of each flow is told of, at each rule that it meets."""
        return None if self._trace is None else max(1, self._trace.room // _REPORTS) * _FRAMES

    @property
    def is_whole(self) -> bool:
        """Whether all that happened between ``begin`` and ``end`` was counted."""
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
        """The rules that flows have met since, and how many of them each."""
        if self._marker is not None:
            self._marker.clear()
        self._hear()
        if self._lost:
            return ()
        known = {rule.handle for rule in self._rules}
        if any(event.table == self._table and event.handle and event.handle not in known for event in self._heard):
            self._rules = listed_rules(await self._listing())
        return tuple(counted_reports(self._netns.name, self._table, self._heard, self._rules))

    def texts(self) -> dict[tuple[str, str], list[str]]:
        """The rules by table and chain, in order, as they were last listed."""
        texts: dict[tuple[str, str], list[str]] = {}
        for rule in self._rules:
            texts.setdefault((self._table, rule.chain), []).append(rule.text)
        return texts

    def close(self) -> None:
        """Let go of the table, and hear no more."""
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


def listed_rules(listing: str) -> tuple[ListedRule, ...]:
    """The rules of a table, in order. A rule with a long set goes over several lines; its handle stands in the last."""
    rules: list[ListedRule] = []
    chain, begun = "", ""
    for line in listing.splitlines():
        if head := _CHAIN.match(line):
            chain, begun = head[1], ""
        elif chain and line.startswith("\t}"):
            chain = ""
        elif chain:
            begun = f"{begun} {line.strip()}" if begun else line
            if rule := _RULE.fullmatch(begun):
                rules.append(ListedRule(chain, int(rule[2]), rule[1]))
                begun = ""
            elif begun.count("{") == begun.count("}"):
                begun = ""  # the chain's own type, hook and comment
    return tuple(rules)


def counted_reports(
    node: str, table: str, events: Iterable[NftEvent], rules: Iterable[ListedRule]
) -> Iterator[RuleCount]:
    """How many packets met each rule, in the order in which rules were first met."""
    reports = list(events)
    texts = {rule.handle: rule.text for rule in rules}
    targets: dict[tuple[str, str], str] = {}
    # Of thousands of flows there are many reports: each rule is read once, and addresses are made of bytes at the end.
    met = Counter[tuple[str, str, str, bytes]]()
    for event, after in zip(reports, _headers_after(reports), strict=True):
        text = texts.get(event.handle)
        if text is None or event.kind != "rule" or event.table != table:
            continue
        target = targets.get((event.verdict, text))
        if target is None:
            target = targets[event.verdict, text] = _target(event.verdict, text)
        met[event.chain, text, target, _end(after) if target == "DNAT" else b""] += 1
    for (chain, text, target, end), count in met.items():
        destination = unpacked(end[:-_PORT_BYTES]) if end else None
        yield RuleCount(node, table, chain, text, count, target, destination, int.from_bytes(end[-_PORT_BYTES:], "big"))


def _headers_after(reports: Sequence[NftEvent]) -> list[bytes]:
    """For each report what the packet looked like when it came to its next base chain; empty if it came to none.

    Headers are told where a base chain begins: what a translation came to is seen in the next one.
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
    """What a rule decided, in the words of iptables-extensions(8); empty where it only sent the packet on."""
    words = text.split()
    if verdict == "drop":
        return "REJECT" if "reject" in words else "DROP"
    if verdict == "accept":
        return next((word.upper() for word in ("dnat", "masquerade", "redirect", "snat") if word in words), "")
    return ""


def _end(headers: bytes) -> bytes:
    """Destination address and port in a network header with a transport header behind it; nothing of shorter ones."""
    if len(headers) < (transport := _transport(headers)) + 4:
        return b""
    start, length = ((16, 4), (24, 16))[headers[0] >> 4 == 6]
    return headers[start : start + length] + headers[transport + 2 : transport + 4]


def _source(headers: bytes) -> bytes:
    """What a packet keeps until it leaves: protocol, source address and source port."""
    if headers[0] >> 4 == 6:
        return headers[6:7] + headers[8:24] + headers[40:42]
    transport = _transport(headers)
    return headers[9:10] + headers[12:16] + headers[transport : transport + 2]


def _transport(headers: bytes) -> int:
    """Where the transport header begins."""
    return 40 if not headers or headers[0] >> 4 == 6 else (headers[0] & 0xF) * 4
