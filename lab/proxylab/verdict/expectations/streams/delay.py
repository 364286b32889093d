"""``delay`` of a stream: the longest that an answer may take. It needs the times of the packets and their answers."""

from proxylab.evidence.words import amount
from proxylab.verdict.expectations.expectation import Expectation
from proxylab.verdict.expectations.streams.subject import MILLISECOND, Stream, may_be_late
from proxylab.verdict.findings import Findings
from proxylab.verdict.model import Verdict

__all__ = ["DELAY"]


def _judge(stream: Stream, most: int) -> Verdict:
    """No answer took longer."""
    findings = Findings(stream)
    longest = max((packet.delay for packet in stream.answered), default=0) / MILLISECOND
    for packet in stream.answered:
        if packet.delay > most * MILLISECOND:
            findings.wrong(f"its answer took longer than {most} ms", packet.number)
    if not stream.answered:
        findings.doubt("nothing was answered")
    if any(map(may_be_late, stream.packets)):
        for clause in stream.silence:
            findings.doubt(clause)
    return findings.settle(
        f"{stream.name}.delay",
        expected=f"{most} ms at most",
        observed=f"{longest:.1f} ms at most",
        witnesses=[f"the longest of {amount(len(stream.answered), 'answer')} took {longest:.1f} ms"],
    )


DELAY = Expectation[Stream, int](key="delay", wanted=lambda stream: stream.expect.delay, judge=_judge)
