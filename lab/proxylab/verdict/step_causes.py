"""The sentence that names why a step failed, where the evidence shows it.

A sentence rests on the conntrack tables at the step's end, or gives the time, which a reader compares with the change
and the logs.
"""

from collections.abc import Mapping, Sequence

from proxylab.addresses import IPAddress
from proxylab.evidence.streams import BreakKind, StreamPacket, StreamPacketFate, StreamRecord
from proxylab.evidence.words import amount, endpoint
from proxylab.verdict.conntrack import entry_words, unwanted_entries
from proxylab.verdict.model import Judgement, StepVerdict

__all__ = ["cause_of_step", "owner"]

_MILLISECOND = 1_000_000


def cause_of_step(verdict: StepVerdict) -> str:
    """Why the step failed, as a sentence, or else what was observed; empty if it did not fail."""
    failed = [each.expectation for each in verdict.verdicts if each.judgement is Judgement.FAIL]
    records = {record.stream: record for record in verdict.evidence.streams}
    sentences = [
        _of_stream(verdict, records[stream], key)
        for stream, _, key in (expectation.rpartition(".") for expectation in failed)
        if stream in records
    ]
    if "conntrack" in failed:
        sentences.append(_of_tables(verdict))
    return next(filter(None, sentences), "") or _as_seen(verdict, records)


def _as_seen(verdict: StepVerdict, records: Mapping[str, StreamRecord]) -> str:
    """The observation behind the first failed expectation; empty if none failed."""
    for each in verdict.verdicts:
        if each.judgement is Judgement.FAIL:
            stream, _, key = each.expectation.rpartition(".")
            seen = _instead(verdict, records[stream], key) if stream in records else ""
            return seen or f"{each.reasons[0]} when the step ended."
    return ""


def _instead(verdict: StepVerdict, record: StreamRecord, key: str) -> str:
    """Which backend answered instead, which source it saw, or that nothing stopped the stream."""
    changed, settled = verdict.evidence.changed, verdict.evidence.settled
    expect = verdict.step.expect.streams[record.stream]
    answered = [packet for packet in record.packets if packet.fate is StreamPacketFate.ANSWERED]
    behind = [packet for packet in answered if packet.at >= settled]
    match key:
        case "backend":
            other = next((each for each in behind if each.backend != expect.backend), None)
            if other is None:
                return ""
            return f"{other.backend} answered packet {other.number}, {_sent(other, changed)}."
        case "backends" if answered:
            last = answered[-1]
            return f"{last.backend} was the last to answer: packet {last.number}, {_sent(last, changed)}."
        case "source":
            wanted = verdict.sources.get(record.stream)
            other = next((each for each in behind if each.peer != wanted), None)
            if other is None:
                return ""
            return f"{other.backend} saw {other.peer} as the sender of packet {other.number}, {_sent(other, changed)}."
        case "lost" | "rejected" | "resets":
            got = f"{len(answered):,} of {amount(len(record.packets), 'packet')} got an answer"
            return f"nothing stopped {record.stream}: {got}."
        case _:
            return ""


def _sent(packet: StreamPacket, changed: int) -> str:
    return f"sent {_when(packet.at, changed)}"


def owner(addresses: Mapping[str, tuple[IPAddress, ...]], address: IPAddress) -> str:
    """The node, pod or host with an address; empty if the scenario has none."""
    return next((name for name, own in addresses.items() if address in own), "")


def _of_stream(verdict: StepVerdict, record: StreamRecord, key: str) -> str:
    changed = verdict.evidence.changed
    match key:
        case "backend" | "lost" | "rejected":
            return _remembered(verdict, record) or _of_missing(record, changed)
        case "resets":
            reset = next((each for each in record.breaks if each.kind is BreakKind.RESET), None)
            return f"{record.stream} was reset {_when(reset.at, changed)}." if reset is not None else ""
        case "delay":
            slow = max(record.packets, key=lambda packet: packet.delay)
            took = f"{slow.delay / _MILLISECOND:.1f} ms"
            return (
                f"{slow.backend} took {took} to answer packet {slow.number}, which was sent {_when(slow.at, changed)}."
            )
        case _:
            return ""


def _remembered(verdict: StepVerdict, record: StreamRecord) -> str:
    """The sentence that conntrack still sends the stream to its earlier backend; empty if another one answered last."""
    settled = verdict.evidence.settled
    before = {packet.backend for packet in record.packets if packet.at < settled and packet.backend}
    last = record.packets[-1].backend if record.packets else ""
    for entry in record.tracked:
        who = owner(verdict.addresses, entry.reply_source)
        if who in before and last in ("", who) and who != verdict.step.expect.streams[record.stream].backend:
            where = endpoint(entry.reply_source, entry.reply_source_port)
            return (
                f"conntrack on {entry.node} still sends {record.stream} to {who} ({where}), which answered before: "
                f"nothing deleted that entry."
            )
    return ""


def _of_missing(record: StreamRecord, changed: int) -> str:
    """When no answer came, and which backend answered next."""
    missing = [packet for packet in record.packets if packet.fate is not StreamPacketFate.ANSWERED]
    if not missing:
        return ""
    first, last = missing[0], missing[-1]
    resumed = next((each for each in record.packets if each.at > last.at and each.backend), None)
    if resumed is None:
        return f"{record.stream} gets no answer from packet {first.number} on, sent {_when(first.at, changed)}."
    what = f"{_ends(missing)}, sent {_when(first.at, changed)}"
    if first is not last:
        what = f"{_ends(missing)}, the first sent {_when(first.at, changed)}"
    return f"{what}; {resumed.backend} answered what was sent {_when(resumed.at, changed, 'it')}."


def _ends(missing: Sequence[StreamPacket]) -> str:
    """What became of packets without an answer."""
    lost = sum(packet.fate is StreamPacketFate.LOST for packet in missing)
    parts = [f"{amount(lost, 'packet')} lost"] if lost else []
    if lost < len(missing):
        parts.append(f"{amount(len(missing) - lost, 'packet')} rejected by an ICMP error")
    return " and ".join(parts)


def _when(at: int, changed: int, what: str = "the change was made") -> str:
    return f"{abs(at - changed) / _MILLISECOND:.1f} ms {'before' if at < changed else 'after'} {what}"


def _of_tables(verdict: StepVerdict) -> str:
    wanted = verdict.step.expect.conntrack
    left = unwanted_entries(wanted, verdict.evidence.entries, verdict.nodes, verdict.addresses)
    return f"conntrack on {left[0].node} still holds {entry_words(left[0])}: nothing deleted it." if left else ""
