"""Steps and their evidence, made by hand."""

from collections.abc import Mapping
from ipaddress import ip_address
from typing import Any

from msgspec.structs import replace

from proxylab.addresses import Transport
from proxylab.evidence.evidence import ForeignRule, LinkCount, TableEntry, TrackedFlow
from proxylab.evidence.stream_records import (
    Break,
    BreakKind,
    StepEvidence,
    StreamPacket,
    StreamPacketFate,
    StreamRecord,
)
from proxylab.plan.expected_sources import ANY_BACKEND
from proxylab.plan.resolved import ResolvedProbe, Sender
from proxylab.scenario.expect import ConntrackExpect, Entries, SourceAddress
from proxylab.scenario.steps import Count, Step, StepExpect, StreamExpect
from proxylab.scenario.words import Manner, Position
from proxylab.verdict.judge import judge_step
from proxylab.verdict.model import StepVerdict

__all__ = [
    "CLIENT",
    "NEW",
    "OLD",
    "VIP",
    "ZERO",
    "all_well",
    "answered",
    "entry",
    "entry_remains",
    "judged",
    "lost",
    "record",
    "rejected",
    "resolved",
    "step",
    "torn_connection",
    "unproven_loss",
]

CLIENT, OLD, NEW = ip_address("10.244.0.2"), ip_address("10.244.0.3"), ip_address("10.244.1.2")
VIP = ip_address("10.96.0.53")
ADDRESSES = {"client": (CLIENT,), "old": (OLD,), "new": (NEW,)}
MS = 1_000_000
CHANGED, SETTLED, ENDED = 1 * MS, 20 * MS, 50 * MS


def at(line: int, column: int = 5) -> Position:
    return Position("roll.lab.yaml", line, column)


def answered(number: int, ms: float, backend: str, delay: float = 0.2, peer: Any = CLIENT) -> StreamPacket:
    return StreamPacket(number, int(ms * MS), StreamPacketFate.ANSWERED, int(delay * MS), backend, peer, 12345)


def lost(number: int, ms: float, error: str = "") -> StreamPacket:
    return StreamPacket(number, int(ms * MS), StreamPacketFate.LOST, error=error)


def rejected(number: int, ms: float) -> StreamPacket:
    return StreamPacket(number, int(ms * MS), StreamPacketFate.REJECTED, error="ECONNREFUSED")


def record(*packets: StreamPacket, resets: int = 0, closed: float | None = None, **others: Any) -> StreamRecord:
    breaks = [Break(25 * MS, BreakKind.RESET)] * resets
    breaks += [] if closed is None else [Break(int(closed * MS), BreakKind.CLOSED)]
    return StreamRecord(stream="queries", port=12345, packets=packets, breaks=tuple(breaks), **others)


def entry(who: Any, node: str = "node-a") -> TableEntry:
    return TableEntry(node, Transport.UDP, CLIENT, 12345, VIP, 53, who, 5353, CLIENT, 12345)


def tracked(who: Any) -> tuple[TrackedFlow, ...]:
    return (TrackedFlow(0, "node-a", who, 5353, CLIENT, 12345),)


def step(conntrack: bool = False, **expected: Any) -> Step:
    """A step that expects this of the stream, and that no entry is left that ``old`` answers."""
    of_stream = StreamExpect(
        position=at(20), positions={key: at(20, 10 + 10 * index) for index, key in enumerate(expected)}, **expected
    )
    expect = StepExpect(
        streams={"queries": of_stream} if expected else {},
        conntrack=ConntrackExpect(none=Entries(reply_from="old")) if conntrack else None,
        position=at(20),
        positions={"conntrack": at(21)},
    )
    return Step(name="the old one is gone", expect=expect, position=at(19, 11))


def resolved(protocol: Transport = Transport.UDP) -> ResolvedProbe:
    sender = Sender(
        name="client", namespace="client", device="eth0", address=CLIENT, mac="02:00:00:00:00:01", next_hop_mac=""
    )
    return ResolvedProbe(
        number=0,
        name="queries",
        sender=sender,
        destination=VIP,
        port=53,
        protocol=protocol,
        manner=Manner.CONNECT,
        flows=1,
        payload=0,
        every=5,
        receivers=(),
        sentinels=(),
        nodes=("node-a", "node-b"),
    )


def judged(
    wanted: Step,
    *records: StreamRecord,
    entries: tuple[TableEntry, ...] | None = None,
    source: Any = CLIENT,
    links: tuple[LinkCount, ...] = (),
    lacks: Mapping[str, str] | None = None,
    streams: tuple[ResolvedProbe, ...] = (),
    foreign: tuple[ForeignRule, ...] = (),
) -> StepVerdict:
    evidence = StepEvidence(
        began=0,
        changed=CHANGED,
        settled=SETTLED,
        ended=ENDED,
        streams=records,
        entries=entries,
        links=links,
        foreign=foreign,
    )
    sources = (
        {"queries": source if isinstance(source, dict) else {ANY_BACKEND: source}}
        if "queries" in wanted.expect.streams
        else {}
    )
    streams = streams or (resolved(),)
    return judge_step(wanted, 4, streams, sources, ("node-a", "node-b"), ADDRESSES, evidence, lacks or {})


ZERO = Count(at_most=0)


def entry_remains() -> StepVerdict:
    """The proxy has forgotten to forget."""
    packets = (answered(9, 0.2, "old"), *(lost(number, 20 + 5 * (number - 10)) for number in range(10, 15)))
    wanted = step(conntrack=True, backend="new", lost=ZERO)
    seen = replace(record(*packets), tracked=tracked(OLD))
    return replace(judged(wanted, seen, entries=(entry(OLD),)), bundle=".proxylab/bundles/roll/step-004")


def torn_connection() -> StepVerdict:
    """A reset in the midst, and a slow answer."""
    packets = (
        answered(9, 0.2, "old"),
        lost(10, 5.2, "ECONNRESET"),
        rejected(11, 10.2),
        *(answered(number, 20 + 5 * (number - 12), "new", delay=260.0) for number in range(12, 17)),
    )
    wanted = step(backends=("old", "new"), lost=ZERO, rejected=ZERO, resets=ZERO, delay=100)
    late = (answered(3, -400.0, "old", delay=410.0),)
    return judged(wanted, replace(record(*packets, resets=1, closed=30.0), late=late, tracked=tracked(NEW)))


def unproven_loss() -> StepVerdict:
    """Losses that nothing proves."""
    packets = (answered(9, 0.2, "old"), *(lost(number, 20 + 5 * (number - 10)) for number in range(10, 15)))
    return judged(step(lost=Count(at_most=2)), replace(record(*packets), silent=("node-b", "new")))


def all_well() -> StepVerdict:
    """What passes, and what that rests on."""
    packets = (answered(9, 0.2, "old"), *(answered(number, 20 + 5 * (number - 10), "new") for number in range(10, 15)))
    wanted = step(conntrack=True, backend="new", source=SourceAddress(CLIENT), lost=ZERO, delay=100)
    return judged(wanted, replace(record(*packets), tracked=tracked(NEW)), entries=(entry(NEW),))
