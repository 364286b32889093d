"""``backends`` of a stream: the pods that answer in the step, in the order of their first answers.

It needs the packets' answers.
"""

from proxylab.evidence.words import listed
from proxylab.verdict.expectations.expectation import Expectation
from proxylab.verdict.expectations.streams.subject import Stream
from proxylab.verdict.findings import Findings
from proxylab.verdict.model import Verdict

__all__ = ["BACKENDS"]


def _judge(stream: Stream, wanted: tuple[str, ...]) -> Verdict:
    """Those pods answered, and no others."""
    findings = Findings(stream)
    answered = tuple(dict.fromkeys(packet.backend for packet in stream.packets if packet.backend))
    strangers = [name for name in answered if name not in wanted]
    silent = [name for name in wanted if name not in answered]
    for name in strangers:
        findings.wrong(f"{name} answered, too")
    for name in silent:
        findings.missing(f"{name} answered nothing")
    if answered != wanted and not strangers and not silent:
        findings.missing(f"the backends answered in another order: {listed(answered)}")
    return findings.settle(
        f"{stream.name}.backends",
        expected=", ".join(wanted),
        observed=", ".join(answered) or "no backend",
        silence=stream.silence,
        witnesses=[f"first answers of {listed(answered)}"],
    )


def _as_seen(stream: Stream, _verdict: Verdict) -> str:
    if not stream.answered:
        return ""
    last = stream.answered[-1]
    return f"{last.backend} was the last to answer: packet {last.number}, {stream.sent(last)}."


BACKENDS = Expectation[Stream, tuple[str, ...]](
    key="backends", wanted=lambda stream: stream.expect.backends, judge=_judge, as_seen=_as_seen
)
