"""``source`` of a stream: the address that the backend sees after the step's wait. It needs the responders' reports."""

from proxylab.addresses import IPAddress
from proxylab.errors import InternalError
from proxylab.evidence.stream_records import StreamPacket
from proxylab.evidence.words import listed
from proxylab.scenario.expect import SourceExpectation
from proxylab.verdict.expectations.expectation import Expectation
from proxylab.verdict.expectations.streams.subject import Stream, answer_words, may_be_late
from proxylab.verdict.findings import Findings
from proxylab.verdict.model import Verdict

__all__ = ["SOURCE"]


def _judge(stream: Stream, _wanted: SourceExpectation) -> Verdict:
    """Every backend saw that address."""
    if not stream.sources:
        raise InternalError(f"{stream.expect.position}: the plan gave no address for the source; please report this")
    stream = stream.after_wait
    findings = Findings(stream)
    for packet in stream.packets:
        if packet.peer is None:
            find = findings.missing if may_be_late(packet) else findings.wrong
            find(f"{answer_words(packet)}, so no backend saw its source", packet.number)
        elif packet.peer != (due := stream.due_source(packet)):
            instead = f", not {due}" if len(stream.sources) > 1 else ""
            findings.wrong(f"{packet.backend} saw {packet.peer}{instead}", packet.number)
    reporters = dict.fromkeys(packet.backend for packet in stream.packets if packet.backend)
    return findings.settle(
        f"{stream.name}.source",
        expected=listed(list(dict.fromkeys(map(str, filter(None, map(stream.due_source, stream.answered)))))) or "none",
        observed=listed(list(dict.fromkeys(str(each.peer) for each in stream.packets if each.peer is not None))),
        silence=stream.silence,
        witnesses=[f"reported by {listed(list(reporters))}"],
    )


def _stranger(stream: Stream) -> StreamPacket | None:
    return next((each for each in stream.after_wait.answered if each.peer != stream.due_source(each)), None)


def _as_seen(stream: Stream, _verdict: Verdict) -> str:
    other = _stranger(stream)
    if other is None:
        return ""
    return f"{other.backend} saw {other.peer} as the sender of packet {other.number}, {stream.sent(other)}."


def _seen_address(stream: Stream, _verdict: Verdict) -> IPAddress | None:
    other = _stranger(stream)
    return None if other is None else other.peer


SOURCE = Expectation[Stream, SourceExpectation](
    key="source", wanted=lambda stream: stream.expect.source, judge=_judge, as_seen=_as_seen, seen_address=_seen_address
)
