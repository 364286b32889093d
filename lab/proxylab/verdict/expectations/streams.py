"""What a stream counts in one step, and how long its answers took.

A step lasts from its change until its streams are settled, before the next step. It begins with a packet of each stream
just before the change. Counts and delays cover the whole step: a packet that the change costs belongs to its step.
Where its packets arrived, from which source, and what came back is judged beside the same expectations of probes
(``arrivals``, ``source``, ``reply``); ``backend`` and ``source`` are about the packets sent after the step's wait, at
least five of each stream.

A packet that netem lost on a link counts as ``lostOnLink`` and not as ``lost``. Of a UDP stream the taps at both ends
of each link tell which; a connection's kernels send again, so its loss is unclear while links drop packets.

A foreign rule (``verdict.foreign``) that may have rewritten packets casts doubt on how few packets were lost, rejected
or reset; so does a Service's stream that conntrack translates nowhere. A rule that may have ended packets casts doubt
where the author expects such ends: they must be the engine's work, or that of the step's change.

All need the packets' fates and answers; a loss needs sentinel packets that came back.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from proxylab.evidence.stream_records import BreakKind, StreamPacket, StreamPacketFate
from proxylab.evidence.words import amount, listed, times
from proxylab.rules.effects import ENDING, REJECTING, RESETTING
from proxylab.scenario.steps import Count
from proxylab.verdict.findings import Expectation, Findings
from proxylab.verdict.hops import dropped_meanwhile
from proxylab.verdict.model import Verdict
from proxylab.verdict.step_case import MILLISECOND, StreamCase, may_be_late

_ENDS: Final = {"lost": ENDING, "rejected": REJECTING, "resets": RESETTING}
"""What a foreign rule does to packets that count under a key."""


def _judge_lost(stream: StreamCase, expected: Count) -> Verdict:
    return _judge_packets(stream, "lost", expected, stream.lost)


def _judge_lost_on_link(stream: StreamCase, expected: Count) -> Verdict:
    return _judge_packets(stream, "lostOnLink", expected, stream.lost_on_link, "lost on a link")


def _judge_rejected(stream: StreamCase, expected: Count) -> Verdict:
    return _judge_packets(stream, "rejected", expected, stream.of_fate(StreamPacketFate.REJECTED))


def _judge_resets(stream: StreamCase, expected: Count) -> Verdict:
    number = sum(each.kind is BreakKind.RESET for each in stream.record.breaks)
    return _judge_count(stream, "resets", expected, number, f"its connection was reset {times(number)}")


def _judge_packets(
    stream: StreamCase, key: str, expected: Count, packets: Sequence[StreamPacket], became: str = ""
) -> Verdict:
    was = "was" if len(packets) == 1 else "were"
    clause = f"{len(packets):,} of {amount(len(stream.packets), 'packet')} {was} {became or key}"
    return _judge_count(stream, key, expected, len(packets), clause, packets)


def _judge_count(
    stream: StreamCase, key: str, expected: Count, number: int, clause: str, packets: Sequence[StreamPacket] = ()
) -> Verdict:
    """The number is within bounds, also if each answer that may be late still came."""
    findings = Findings(stream, _work_of_others(stream, key, expected))
    late = sum(map(may_be_late, packets)) if stream.may_be_late else 0
    possible = [each in expected for each in range(number - late, number + 1)]
    if any(possible) and not all(possible):
        findings.missing(clause)
    elif number not in expected:
        findings.wrong(clause)
        errors = dict.fromkeys(packet.error for packet in packets if packet.error)
        if errors:
            findings.wrong(f"its socket reported {listed(list(errors))}")
    return findings.settle(
        f"{stream.name}.{key}",
        expected=_bounds(expected),
        observed=f"{number:,}",
        may_be_late=stream.may_be_late,
        witnesses=[clause],
    )


def _work_of_others(stream: StreamCase, key: str, expected: Count) -> Iterator[str]:
    """Foreign rules that may have made the number: they ended packets of the stream, or kept packets from ending."""
    if key in _ENDS:
        if expected.at_least:
            yield from stream.ended_by_others(_ENDS[key])
        elif expected.at_most is not None and stream.answered:
            yield from stream.foreign


def _bounds(count: Count) -> str:
    if count.at_most is None:
        return f"{count.at_least:,} or more"
    if count.at_least == count.at_most:
        return f"{count.at_least:,}"
    return f"{count.at_least:,} to {count.at_most:,}" if count.at_least else f"{count.at_most:,} at most"


def _nothing_stopped(stream: StreamCase, _verdict: Verdict) -> str:
    got = f"{len(stream.answered):,} of {amount(len(stream.packets), 'packet')} got an answer"
    return f"nothing stopped {stream.name}: {got}."


def _on_link(stream: StreamCase, verdict: Verdict) -> str:
    """What the links did in the step, or else what became of the stream."""
    dropped = dropped_meanwhile(stream.step.links)
    return f"{dropped}." if dropped else _nothing_stopped(stream, verdict)


LOST = Expectation[StreamCase, Count](key="lost", judge=_judge_lost, as_seen=_nothing_stopped)
LOST_ON_LINK = Expectation[StreamCase, Count](
    key="lostOnLink", expected=lambda stream: stream.expect.lost_on_link, judge=_judge_lost_on_link, as_seen=_on_link
)
REJECTED = Expectation[StreamCase, Count](key="rejected", judge=_judge_rejected, as_seen=_nothing_stopped)
RESETS = Expectation[StreamCase, Count](key="resets", judge=_judge_resets, as_seen=_nothing_stopped)


def _judge_delay(stream: StreamCase, most: int) -> Verdict:
    """No answer took longer."""
    findings = Findings(stream)
    longest = max((packet.delay for packet in stream.answered), default=0) / MILLISECOND
    for packet in stream.answered:
        if packet.delay > most * MILLISECOND:
            findings.wrong(f"its answer took longer than {most} ms", packet.number)
    if not stream.answered:
        findings.doubt("nothing was answered")
    if any(map(may_be_late, stream.packets)):
        for clause in stream.may_be_late:
            findings.doubt(clause)
    return findings.settle(
        f"{stream.name}.delay",
        expected=f"{most} ms at most",
        observed=f"{longest:.1f} ms at most",
        witnesses=[f"the longest of {amount(len(stream.answered), 'answer')} took {longest:.1f} ms"],
    )


DELAY = Expectation[StreamCase, int](key="delay", judge=_judge_delay)
