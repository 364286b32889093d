"""What no verdict on a step may pass, written a second time: from pulses and entries, without the verdict room."""

from collections.abc import Callable, Iterator

from forbidden_entries import other_entries
from made_steps import ADDRESSES, SETTLED

from proxylab.addresses import Transport
from proxylab.scenario.model import ConntrackExpect, Count, StreamExpect
from proxylab.evidence.evidence import TableEntry
from proxylab.evidence.streams import Pulse, StreamRecord

LIMIT = 1_000_000
"""Nanoseconds in a millisecond."""

NAMED = {name: own[0] for name, own in ADDRESSES.items()}
STREAMED = {Transport.TCP, Transport.UDP, Transport.SCTP}
"""What a step means that names no protocol: no echo requests."""


def behind(record: StreamRecord) -> list[Pulse]:
    return [pulse for pulse in record.pulses if pulse.at >= SETTLED]


def silent(pulse: Pulse) -> bool:
    """Nothing was heard of it, neither from the network nor from the sender's own socket."""
    return pulse.fate == "lost" and pulse.error == ""


def may_still_come(record: StreamRecord) -> int:
    """How many answers nobody has proven to be gone: some fence is not back."""
    return len([pulse for pulse in record.pulses if silent(pulse)]) if record.silent else 0


def badly_recorded(record: StreamRecord) -> Iterator[str]:
    if not record.pulses:
        yield "nothing was sent"
    for before, after in zip(record.pulses, record.pulses[1:], strict=False):
        if after.number != before.number + 1:
            yield "a pulse is not in the record, or twice"


def another_backend(expect: StreamExpect, record: StreamRecord) -> Iterator[str]:
    if not behind(record):
        yield "nobody was asked behind the wait"
    for pulse in behind(record):
        if pulse.fate != "answered" or pulse.backend != expect.backend:
            yield f"pulse {pulse.number} was not answered by {expect.backend}"


def other_backends(expect: StreamExpect, record: StreamRecord) -> Iterator[str]:
    order: list[str] = []
    for pulse in record.pulses:
        if pulse.fate == "answered" and pulse.backend not in order:
            order.append(pulse.backend)
    if order != list(expect.backends or ()):
        yield f"they answered in the order {order}"


def another_source(expect: StreamExpect, record: StreamRecord) -> Iterator[str]:
    if not behind(record):
        yield "nobody was asked behind the wait"
    for pulse in behind(record):
        if pulse.peer != expect.source:
            yield f"pulse {pulse.number} was seen as {pulse.peer}"


def outside(wanted: Count | None, least: int, most: int) -> Iterator[str]:
    assert wanted is not None
    for number in range(least, most + 1):
        if number < wanted.at_least or (wanted.at_most is not None and number > wanted.at_most):
            yield f"it may have been {number}"


def other_losses(expect: StreamExpect, record: StreamRecord) -> Iterator[str]:
    lost = len([pulse for pulse in record.pulses if pulse.fate == "lost"])
    yield from outside(expect.lost, lost - may_still_come(record), lost)


def other_rejections(expect: StreamExpect, record: StreamRecord) -> Iterator[str]:
    rejected = len([pulse for pulse in record.pulses if pulse.fate == "rejected"])
    yield from outside(expect.rejected, rejected, rejected)


def other_resets(expect: StreamExpect, record: StreamRecord) -> Iterator[str]:
    resets = len([each for each in record.breaks if each.kind == "reset"])
    yield from outside(expect.resets, resets, resets)


def longer(expect: StreamExpect, record: StreamRecord) -> Iterator[str]:
    assert expect.delay is not None
    delays = [pulse.delay for pulse in record.pulses if pulse.fate == "answered"]
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
