"""Causes of a failed expectation of a stream.

A sentence rests on the conntrack tables at the step's end, or gives the time, which a reader compares with the change
and the logs.
"""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from proxylab.addresses import IPAddress
from proxylab.evidence.stream_records import BreakKind, StreamPacket, StreamPacketFate
from proxylab.evidence.words import amount, endpoint
from proxylab.verdict.stream import MILLISECOND, Stream, when

__all__ = ["StreamFailure", "answered_slowly", "not_answered", "owner", "sent_to_earlier_backend", "was_reset"]


class StreamFailure(Struct, frozen=True):
    """A stream of which an expectation failed.

    Attributes:
        stream: with its record.
        addresses: of every node, pod and host.
    """

    stream: Stream
    addresses: Mapping[str, tuple[IPAddress, ...]]


def owner(addresses: Mapping[str, tuple[IPAddress, ...]], address: IPAddress) -> str:
    """The node, pod or host with an address; empty if the scenario has none."""
    return next((name for name, own in addresses.items() if address in own), "")


def sent_to_earlier_backend(failure: StreamFailure) -> str:
    """Connection tracking still sends the stream to its earlier backend, and no other one answered last."""
    stream = failure.stream
    before = {packet.backend for packet in stream.packets if packet.at < stream.step.settled and packet.backend}
    last = stream.packets[-1].backend if stream.packets else ""
    for entry in stream.record.tracked:
        who = owner(failure.addresses, entry.reply_source)
        if who in before and last in ("", who) and who != stream.expect.backend:
            to = f"{who} ({endpoint(entry.reply_source, entry.reply_source_port)})"
            still = f"conntrack on {entry.node} still sends {stream.name} to {to}, which answered before"
            return f"{still}: nothing deleted that entry."
    return ""


def not_answered(failure: StreamFailure) -> str:
    """When no answer came, and which backend answered next."""
    stream, changed = failure.stream, failure.stream.step.changed
    unanswered = (packet for packet in stream.packets if packet.fate is not StreamPacketFate.ANSWERED)
    missing = [packet for packet in unanswered if not packet.link]
    if not missing:
        return ""
    first, last = missing[0], missing[-1]
    resumed = next((each for each in stream.packets if each.at > last.at and each.backend), None)
    if resumed is None:
        return f"{stream.name} gets no answer from packet {first.number} on, {stream.sent(first)}."
    the_first = "" if first is last else "the first "
    what = f"{_ends(missing)}, {the_first}{stream.sent(first)}"
    return f"{what}; {resumed.backend} answered what was sent {when(resumed.at, changed, 'it')}."


def _ends(missing: Sequence[StreamPacket]) -> str:
    """What became of packets without an answer."""
    lost = sum(packet.fate is StreamPacketFate.LOST for packet in missing)
    parts = [f"{amount(lost, 'packet')} lost"] if lost else []
    if lost < len(missing):
        parts.append(f"{amount(len(missing) - lost, 'packet')} rejected by an ICMP error")
    return " and ".join(parts)


def was_reset(failure: StreamFailure) -> str:
    """When a reset ended a connection."""
    stream = failure.stream
    reset = next((each for each in stream.record.breaks if each.kind is BreakKind.RESET), None)
    return "" if reset is None else f"{stream.name} was reset {when(reset.at, stream.step.changed)}."


def answered_slowly(failure: StreamFailure) -> str:
    """The slowest answer."""
    stream = failure.stream
    slow = max(stream.packets, key=lambda packet: packet.delay)
    took = f"{slow.backend} took {slow.delay / MILLISECOND:.1f} ms"
    return f"{took} to answer packet {slow.number}, which was {stream.sent(slow)}."
