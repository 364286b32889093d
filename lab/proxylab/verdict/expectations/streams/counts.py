"""``lost``, ``rejected`` and ``resets`` of a stream: how often each happened in the step.

They need the packets' fates and the ends of its connections; a loss needs sentinel packets that came back.
"""

from collections.abc import Sequence

from proxylab.evidence.stream_records import BreakKind, StreamPacket, StreamPacketFate
from proxylab.evidence.words import amount, listed, times
from proxylab.scenario.steps import Count
from proxylab.verdict.expectations.expectation import Expectation
from proxylab.verdict.expectations.streams.subject import Stream, may_be_late
from proxylab.verdict.findings import Findings
from proxylab.verdict.model import Verdict

__all__ = ["LOST", "REJECTED", "RESETS"]


def _judge_lost(stream: Stream, wanted: Count) -> Verdict:
    return _judge_packets(stream, "lost", wanted, stream.of_fate(StreamPacketFate.LOST))


def _judge_rejected(stream: Stream, wanted: Count) -> Verdict:
    return _judge_packets(stream, "rejected", wanted, stream.of_fate(StreamPacketFate.REJECTED))


def _judge_resets(stream: Stream, wanted: Count) -> Verdict:
    number = sum(each.kind is BreakKind.RESET for each in stream.record.breaks)
    return _judge(stream, "resets", wanted, number, f"its connection was reset {times(number)}")


def _judge_packets(stream: Stream, key: str, wanted: Count, packets: Sequence[StreamPacket]) -> Verdict:
    was = "was" if len(packets) == 1 else "were"
    clause = f"{len(packets):,} of {amount(len(stream.packets), 'packet')} {was} {key}"
    return _judge(stream, key, wanted, len(packets), clause, packets)


def _judge(
    stream: Stream, key: str, wanted: Count, number: int, clause: str, packets: Sequence[StreamPacket] = ()
) -> Verdict:
    """The number is within bounds, also if each answer that may be late still came."""
    findings = Findings(stream)
    late = sum(map(may_be_late, packets)) if stream.record.silent else 0
    possible = [each in wanted for each in range(number - late, number + 1)]
    if any(possible) and not all(possible):
        findings.missing(clause)
    elif number not in wanted:
        findings.wrong(clause)
        errors = dict.fromkeys(packet.error for packet in packets if packet.error)
        if errors:
            findings.wrong(f"its socket reported {listed(list(errors))}")
    return findings.settle(
        f"{stream.name}.{key}",
        expected=_bounds(wanted),
        observed=f"{number:,}",
        silence=stream.silence,
        witnesses=[clause],
    )


def _bounds(count: Count) -> str:
    if count.at_most is None:
        return f"{count.at_least:,} or more"
    if count.at_least == count.at_most:
        return f"{count.at_least:,}"
    return f"{count.at_least:,} to {count.at_most:,}" if count.at_least else f"{count.at_most:,} at most"


def _as_seen(stream: Stream, _verdict: Verdict) -> str:
    got = f"{len(stream.answered):,} of {amount(len(stream.packets), 'packet')} got an answer"
    return f"nothing stopped {stream.name}: {got}."


LOST = Expectation[Stream, Count](
    key="lost", wanted=lambda stream: stream.expect.lost, judge=_judge_lost, as_seen=_as_seen
)
REJECTED = Expectation[Stream, Count](
    key="rejected", wanted=lambda stream: stream.expect.rejected, judge=_judge_rejected, as_seen=_as_seen
)
RESETS = Expectation[Stream, Count](
    key="resets", wanted=lambda stream: stream.expect.resets, judge=_judge_resets, as_seen=_as_seen
)
