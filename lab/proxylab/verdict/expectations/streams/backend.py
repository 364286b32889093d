"""``backend`` of a stream: the pod that answers every packet after the step's wait. It needs the packets' answers."""

from proxylab.evidence.words import amount, listed
from proxylab.verdict.expectations.expectation import Expectation
from proxylab.verdict.expectations.streams.subject import Stream, answer_words, may_be_late
from proxylab.verdict.findings import Findings
from proxylab.verdict.model import Verdict

__all__ = ["BACKEND"]


def _judge(stream: Stream, wanted: str) -> Verdict:
    """That pod answered every packet."""
    stream = stream.after_wait
    findings = Findings(stream)
    for packet in stream.packets:
        if may_be_late(packet):
            findings.missing(answer_words(packet), packet.number)
        elif packet.backend != wanted:
            findings.wrong(answer_words(packet), packet.number)
    return findings.settle(
        f"{stream.name}.backend",
        expected=wanted,
        observed=listed(list(dict.fromkeys(packet.backend or "no backend" for packet in stream.packets))),
        silence=stream.silence,
        witnesses=[f"{wanted} answered all {amount(len(stream.packets), 'packet')} sent after the wait"],
    )


def _as_seen(stream: Stream, _verdict: Verdict) -> str:
    other = next((each for each in stream.after_wait.answered if each.backend != stream.expect.backend), None)
    return "" if other is None else f"{other.backend} answered packet {other.number}, {stream.sent(other)}."


BACKEND = Expectation[Stream, str](
    key="backend", wanted=lambda stream: stream.expect.backend, judge=_judge, as_seen=_as_seen
)
