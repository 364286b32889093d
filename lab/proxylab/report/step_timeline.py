"""The timeline of a step, as plain lines without colour.

A timeline has a row for each event in order: successive packets of a stream with the same fate, the end of a
connection, and the marks of the step: its change, the end of its wait, and its own end.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import NamedTuple

from proxylab.addresses import Transport
from proxylab.evidence.stream_records import BreakKind, StepEvidence, StreamPacket, StreamPacketFate, StreamRecord
from proxylab.evidence.words import amount, endpoint, listed
from proxylab.plan.resolved import ResolvedProbe
from proxylab.text import WIDTH, table, wrapped
from proxylab.verdict.causes.stream_failures import owner
from proxylab.verdict.model import StepVerdict

_INDENT = "  "
_MILLISECOND = 1_000_000
_MOST_ROWS = 40


class StepEvent(NamedTuple):
    """An event of a step: its time, the stream (empty for the step itself), and what happened."""

    at: int
    stream: str
    what: str


def step_events(verdict: StepVerdict) -> list[StepEvent]:
    """The events of a step in order."""
    streams = [resolved.name for resolved in expected_streams(verdict)]
    return [*sorted(_rows(verdict.evidence, streams), key=lambda row: row.at)]


def timeline(verdict: StepVerdict, width: int = WIDTH) -> list[str]:
    """The events of a step, row by row."""
    evidence = verdict.evidence
    rows = step_events(verdict)
    shown = rows if len(rows) <= _MOST_ROWS else [*rows[: _MOST_ROWS // 2], *rows[-_MOST_ROWS // 2 :]]
    cells = [("ms", "", "")]
    for number, row in enumerate(shown):
        if len(shown) < len(rows) and number == _MOST_ROWS // 2:
            cells.append(("", "", f"and {amount(len(rows) - len(shown), 'more row')}"))
        cells.append((_since(row.at, evidence.began), row.stream, row.what))
    return [
        f"{_INDENT}what happened, from the beginning of the step:",
        *table(cells, _INDENT * 2, frozenset({0}), width),
    ]


def stream_log(evidence: StepEvidence, record: StreamRecord) -> Iterator[str]:
    """Every packet of a stream, a line each."""
    for packet in record.packets:
        line = f"{_since(packet.at, evidence.began)} ms  packet {packet.number}  {_fate_words(packet)}"
        yield line + (f" after {_milliseconds(packet.delay)} ms" if packet.delay else "")


def expected_streams(verdict: StepVerdict) -> list[ResolvedProbe]:
    """The streams with expectations; all streams if none has any."""
    expected = verdict.step.expect.streams
    return [each for each in verdict.case.streams if each.name in expected] or list(verdict.case.streams)


def stream_head(resolved: ResolvedProbe, evidence: StepEvidence) -> str:
    """What a stream sends, and between which ends."""
    port = next((each.port for each in evidence.streams if each.stream == resolved.name), resolved.sender.port or 0)
    way = f"{endpoint(resolved.sender.address, port)} to {endpoint(resolved.destination, resolved.port)}"
    return (
        f"{resolved.name}: {resolved.sender.name}, {way} over {resolved.protocol}, a packet every {resolved.every} ms"
    )


def _rows(evidence: StepEvidence, streams: Iterable[str]) -> Iterator[StepEvent]:
    yield StepEvent(evidence.changed, "", "the change is made")
    yield StepEvent(evidence.settled, "", "the wait of the step ends")
    yield StepEvent(evidence.ended, "", "every packet is settled: the step ends")
    wanted = tuple(streams)
    for record in evidence.streams:
        if record.stream in wanted:
            marks = (evidence.changed, evidence.settled)
            for _, group in groupby(
                record.packets, key=lambda packet: (_fate_words(packet), *(packet.at >= at for at in marks))
            ):
                yield _of_packets(record, tuple(group))
            yield from (StepEvent(each.at, record.stream, _ENDS[each.kind]) for each in record.breaks)
            yield from (StepEvent(each.at + each.delay, record.stream, _late(each)) for each in record.late)


_ENDS: Mapping[BreakKind, str] = {
    BreakKind.RESET: "its connection is reset",
    BreakKind.CLOSED: "its connection is closed by the other end",
}


def _of_packets(record: StreamRecord, packets: tuple[StreamPacket, ...]) -> StepEvent:
    first, last = packets[0], packets[-1]
    which = f"packet {first.number}" if first is last else f"packets {first.number} to {last.number}"
    longest = _milliseconds(max(packet.delay for packet in packets))
    took = f", in {longest} ms" if first.delay else ""
    if took and first is not last:
        took += " at most"
    return StepEvent(first.at, record.stream, f"{which}: {_fate_words(first)}{took}")


def _fate_words(packet: StreamPacket) -> str:
    match packet.fate:
        case StreamPacketFate.ANSWERED:
            return f"{packet.backend} answers {packet.peer}"
        case StreamPacketFate.REJECTED:
            return f"an ICMP error answers ({packet.error})"
        case _:
            where = f" on the link of {packet.link}" if packet.link else ""
            return f"lost{where}" + (f" ({packet.error})" if packet.error else "")


def _late(packet: StreamPacket) -> str:
    return f"packet {packet.number}, lost to an earlier step, is answered by {packet.backend}"


def memory_of_streams(verdict: StepVerdict, width: int) -> Iterator[str]:
    """Where connection tracking sends the next packet of each stream."""
    resolved_probes = {resolved.name: resolved for resolved in expected_streams(verdict)}
    for record in verdict.evidence.streams:
        if record.stream not in resolved_probes:
            continue
        for entry in record.tracked:
            who = owner(verdict.case.addresses, entry.reply_source)
            where = endpoint(entry.reply_source, entry.reply_source_port)
            named = f"{who} ({where})" if who else where
            yield from wrapped(f"conntrack on {entry.node}: {record.stream} goes to {named}", _INDENT * 2, width=width)
        if not record.tracked and resolved_probes[record.stream].protocol in (Transport.TCP, Transport.UDP):
            yield from wrapped(f"no node's conntrack has an entry for {record.stream}", _INDENT * 2, width=width)
        if record.silent:
            yield from wrapped(f"no sentinel packet came back from {listed(record.silent)}", _INDENT * 2, width=width)
        if record.undrained:
            held = f"the proxy's process on {listed(record.undrained)} may still hold packets"
            yield from wrapped(held, _INDENT * 2, width=width)


def _since(at: int, began: int) -> str:
    return _milliseconds(at - began)


def _milliseconds(nanoseconds: int) -> str:
    return f"{nanoseconds / _MILLISECOND:.1f}"
