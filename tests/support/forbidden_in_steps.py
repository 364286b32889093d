"""What no verdict on a step may pass, derived from stream packets and entries without the verdict package."""

from collections.abc import Callable, Iterator

from forbidden_entries import other_entries
from made_steps import ADDRESSES, SETTLED

from proxylab.addresses import Transport
from proxylab.evidence.evidence import TableEntry
from proxylab.evidence.stream_records import StreamPacket, StreamRecord
from proxylab.scenario.expect import ConntrackExpect
from proxylab.scenario.steps import Count, StreamExpect

LIMIT = 1_000_000
"""Nanoseconds in a millisecond."""

NAMED = {name: own[0] for name, own in ADDRESSES.items()}
STREAMED = {Transport.TCP, Transport.UDP, Transport.SCTP}
"""What a step means that names no protocol: no echo requests."""


def behind(record: StreamRecord) -> list[StreamPacket]:
    return [packet for packet in record.packets if packet.at >= SETTLED]


def silent(packet: StreamPacket) -> bool:
    """Nothing was heard of it, neither from the network nor from the sender's own socket."""
    return packet.fate == "lost" and packet.error == ""


def may_still_come(record: StreamRecord) -> int:
    """How many answers may still come: some sentinel packet is not back."""
    return len([packet for packet in record.packets if silent(packet)]) if record.silent else 0


def badly_recorded(record: StreamRecord) -> Iterator[str]:
    if not record.packets:
        yield "nothing was sent"
    for before, after in zip(record.packets, record.packets[1:], strict=False):
        if after.number != before.number + 1:
            yield "a packet is missing from the record, or in it twice"


def another_backend(expect: StreamExpect, record: StreamRecord) -> Iterator[str]:
    if not behind(record):
        yield "no packet was answered after the wait"
    for packet in behind(record):
        if packet.fate != "answered" or packet.backend != expect.backend:
            yield f"packet {packet.number} was not answered by {expect.backend}"


def other_backends(expect: StreamExpect, record: StreamRecord) -> Iterator[str]:
    order: list[str] = []
    for packet in record.packets:
        if packet.fate == "answered" and packet.backend not in order:
            order.append(packet.backend)
    if order != list(expect.backends or ()):
        yield f"they answered in the order {order}"


def another_source(expect: StreamExpect, record: StreamRecord) -> Iterator[str]:
    if not behind(record):
        yield "no packet was answered after the wait"
    for packet in behind(record):
        if packet.peer != expect.source:
            yield f"packet {packet.number} was seen as {packet.peer}"


def outside(wanted: Count | None, least: int, most: int) -> Iterator[str]:
    assert wanted is not None
    for number in range(least, most + 1):
        if number < wanted.at_least or (wanted.at_most is not None and number > wanted.at_most):
            yield f"it may have been {number}"


def other_losses(expect: StreamExpect, record: StreamRecord) -> Iterator[str]:
    lost = len([packet for packet in record.packets if packet.fate == "lost"])
    yield from outside(expect.lost, lost - may_still_come(record), lost)


def other_rejections(expect: StreamExpect, record: StreamRecord) -> Iterator[str]:
    rejected = len([packet for packet in record.packets if packet.fate == "rejected"])
    yield from outside(expect.rejected, rejected, rejected)


def other_resets(expect: StreamExpect, record: StreamRecord) -> Iterator[str]:
    resets = len([each for each in record.breaks if each.kind == "reset"])
    yield from outside(expect.resets, resets, resets)


def longer(expect: StreamExpect, record: StreamRecord) -> Iterator[str]:
    assert expect.delay is not None
    delays = [packet.delay for packet in record.packets if packet.fate == "answered"]
    if not delays:
        yield "nothing was answered"
    if any(delay > expect.delay * LIMIT for delay in delays):
        yield "an answer took longer"
    if may_still_come(record):
        yield "an answer may still come, and will have taken longer"


FORBIDDEN: dict[str, Callable[[StreamExpect, StreamRecord], Iterator[str]]] = {
    "backend": another_backend,
    "backends": other_backends,
    "source": another_source,
    "lost": other_losses,
    "rejected": other_rejections,
    "resets": other_resets,
    "delay": longer,
}


def other_tables(wanted: ConntrackExpect, entries: tuple[TableEntry, ...] | None) -> Iterator[str]:
    return other_entries(wanted, entries, NAMED, STREAMED)
