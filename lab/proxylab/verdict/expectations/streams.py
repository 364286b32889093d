"""The expectations of streams in one step.

A step lasts from its change until its streams are settled, before the next step. It begins with a packet of each stream
just before the change. Counts and delays cover the whole step: a packet that the change costs belongs to its step.
``backend`` and ``source`` are about the packets sent after the step's wait, at least five of each stream. A preserved
source has its port, too (``source_ports``).

A packet that netem lost on a link counts as ``lostOnLink`` and not as ``lost``. Of a UDP stream the taps at both ends
of each link tell which; a connection's kernels send again, so its loss is unclear while links drop packets.

A foreign rule (``verdict.foreign``) that may have rewritten packets casts doubt on who answered, and on how few packets
were lost, rejected or reset; so does a Service's stream that conntrack translates nowhere. A rule that may have ended
packets casts doubt where the author expects such ends: they must be the engine's work, or that of the step's change.

Two need no key, and show where something is wrong. ``endpoint``: each answer came from an endpoint that the stream may
be at. A stream stays where conntrack or its connection holds it; after the step's wait it moves to endpoints only that
new flows may reach (``oracle.weakest``). ``whole``: packets and answers came once, and as they were sent.

All need the packets' fates and answers. A loss needs sentinel packets that came back, ``delay`` the times of packets
and answers, and ``source`` the responders' reports.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Final

from proxylab.addresses import IPAddress
from proxylab.evidence.stream_records import BreakKind, StreamPacket, StreamPacketFate
from proxylab.evidence.words import amount, endpoint, listed, tally, times
from proxylab.rules.effects import ENDING, REJECTING, RESETTING
from proxylab.scenario.expect import Preserved, SourceByBackend, SourceExpectation
from proxylab.scenario.steps import Count
from proxylab.verdict.conntrack_tables import entry_words
from proxylab.verdict.expectations.expectation import Expectation
from proxylab.verdict.findings import Findings
from proxylab.verdict.flows.on_links import dropped_meanwhile
from proxylab.verdict.model import Verdict
from proxylab.verdict.source_ports import ConntrackTuple, holders, other_holder
from proxylab.verdict.stream import MILLISECOND, StreamCase, answer_words, may_be_late

_ENDS: Final = {"lost": ENDING, "rejected": REJECTING, "resets": RESETTING}
"""What a foreign rule does to packets that count under a key."""


def _judge_backend(stream: StreamCase, expected: str) -> Verdict:
    """That pod answered every packet."""
    stream = stream.after_wait
    findings = Findings(stream, stream.foreign)
    for packet in stream.packets:
        if may_be_late(packet):
            findings.missing(answer_words(packet), packet.number)
        elif packet.backend != expected:
            findings.wrong(answer_words(packet), packet.number)
    return findings.settle(
        f"{stream.name}.backend",
        expected=expected,
        observed=listed(list(dict.fromkeys(packet.backend or "no backend" for packet in stream.packets))),
        may_be_late=stream.may_be_late,
        witnesses=[f"{expected} answered all {amount(len(stream.packets), 'packet')} sent after the wait"],
    )


def _other_backend(stream: StreamCase, _verdict: Verdict) -> str:
    other = next((each for each in stream.after_wait.answered if each.backend != stream.expect.backend), None)
    return "" if other is None else f"{other.backend} answered packet {other.number}, {stream.sent(other)}."


BACKEND = Expectation[StreamCase, str](
    key="backend", expected=lambda stream: stream.expect.backend, judge=_judge_backend, as_seen=_other_backend
)


def _judge_backends(stream: StreamCase, expected: tuple[str, ...]) -> Verdict:
    """Those pods answered, and no others."""
    findings = Findings(stream, stream.foreign)
    answered = tuple(dict.fromkeys(packet.backend for packet in stream.packets if packet.backend))
    strangers = [name for name in answered if name not in expected]
    silent = [name for name in expected if name not in answered]
    for name in strangers:
        findings.wrong(f"{name} answered, too")
    for name in silent:
        findings.missing(f"{name} answered nothing")
    if answered != expected and not strangers and not silent:
        findings.missing(f"the backends answered in another order: {listed(answered)}")
    return findings.settle(
        f"{stream.name}.backends",
        expected=", ".join(expected),
        observed=", ".join(answered) or "no backend",
        may_be_late=stream.may_be_late,
        witnesses=[f"first answers of {listed(answered)}"],
    )


def _last_backend(stream: StreamCase, _verdict: Verdict) -> str:
    if not stream.answered:
        return ""
    last = stream.answered[-1]
    return f"{last.backend} was the last to answer: packet {last.number}, {stream.sent(last)}."


BACKENDS = Expectation[StreamCase, tuple[str, ...]](
    key="backends", expected=lambda stream: stream.expect.backends, judge=_judge_backends, as_seen=_last_backend
)


def _judge_source(stream: StreamCase, expected: SourceExpectation) -> Verdict:
    """Every backend saw that address, and where it is the sender's own, that port."""
    stream = stream.after_wait
    findings = Findings(stream, chain(stream.foreign, stream.changed_by_others))
    kept: list[StreamPacket] = []
    for packet in stream.packets:
        if packet.peer is None:
            find = findings.missing if may_be_late(packet) else findings.wrong
            find(f"{answer_words(packet)}, so no backend saw its source", packet.number)
        elif (address := stream.expected_source(packet)) is None:
            findings.wrong(f"{packet.backend} saw {packet.peer}, and nothing masquerades what it gets", packet.number)
        elif packet.peer != address:
            instead = f", not {address}" if len(stream.sources) > 1 else ""
            findings.wrong(f"{packet.backend} saw {packet.peer}{instead}", packet.number)
        elif isinstance(_source_expectation(expected, packet.backend), Preserved):
            kept.append(packet)
    noted = _judge_ports(stream, kept, findings)
    reporters = dict.fromkeys(packet.backend for packet in stream.packets if packet.backend)
    return findings.settle(
        f"{stream.name}.source",
        expected=listed(list(dict.fromkeys(map(str, filter(None, map(stream.expected_source, stream.answered))))))
        or "none",
        observed=listed(list(dict.fromkeys(str(each.peer) for each in stream.packets if each.peer is not None))),
        may_be_late=stream.may_be_late,
        witnesses=[f"reported by {listed(list(reporters))}", *noted],
    )


def _source_expectation(expected: SourceExpectation, backend: str) -> SourceExpectation | None:
    return expected.of.get(backend) if isinstance(expected, SourceByBackend) else expected


def _judge_ports(stream: StreamCase, packets: Sequence[StreamPacket], findings: Findings) -> list[str]:
    """Judge the ports of packets that must keep their source. It returns what excuses the kernel that changed one.

    A program that ends the connection opens another one, from a port of its own.
    """
    changed = [each for each in packets if each.port and each.peer_port != each.port]
    held, excused = holders(stream.step.entries or ()) if changed else {}, list[str]()
    for packet in changed if stream.is_led_by_kernels else ():
        if packet.own is None or packet.peer is None:
            continue
        clause = f"{packet.backend} saw port {packet.peer_port}, not port {packet.port}"
        replies = ConntrackTuple(stream.resolved.protocol, packet.own, packet.own_port, packet.peer, packet.peer_port)
        if (other := other_holder(held, stream.resolved.nodes, replies, packet.port)) is not None:
            excused.append(f"{clause}: another connection on {other.node} holds that one ({entry_words(other)})")
        else:
            findings.wrong(clause, packet.number)
    return tally(excused, *stream.size)


def _stranger(stream: StreamCase) -> StreamPacket | None:
    return next((each for each in stream.after_wait.answered if each.peer != stream.expected_source(each)), None)


def _other_source(stream: StreamCase, _verdict: Verdict) -> str:
    other = _stranger(stream)
    if other is None:
        return ""
    return f"{other.backend} saw {other.peer} as the sender of packet {other.number}, {stream.sent(other)}."


def _seen_address(stream: StreamCase, _verdict: Verdict) -> IPAddress | None:
    other = _stranger(stream)
    return None if other is None else other.peer


SOURCE = Expectation[StreamCase, SourceExpectation](
    key="source",
    expected=lambda stream: stream.expect.source,
    judge=_judge_source,
    as_seen=_other_source,
    seen_address=_seen_address,
)


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
    """Foreign rules to which the stream may owe its number: they ended its packets, or kept them from ending."""
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


LOST = Expectation[StreamCase, Count](
    key="lost", expected=lambda stream: stream.expect.lost, judge=_judge_lost, as_seen=_nothing_stopped
)
LOST_ON_LINK = Expectation[StreamCase, Count](
    key="lostOnLink", expected=lambda stream: stream.expect.lost_on_link, judge=_judge_lost_on_link, as_seen=_on_link
)
REJECTED = Expectation[StreamCase, Count](
    key="rejected", expected=lambda stream: stream.expect.rejected, judge=_judge_rejected, as_seen=_nothing_stopped
)
RESETS = Expectation[StreamCase, Count](
    key="resets", expected=lambda stream: stream.expect.resets, judge=_judge_resets, as_seen=_nothing_stopped
)


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


DELAY = Expectation[StreamCase, int](key="delay", expected=lambda stream: stream.expect.delay, judge=_judge_delay)


def _strays(stream: StreamCase) -> dict[int, str] | None:
    """The packets that reached what is no expected endpoint, each with a clause; ``None`` without any.

    An author may name a backend that is no reachable endpoint, as for probes (``expected_ends``).
    """
    ends = {(each.address, each.port): each.is_reachable for each in stream.resolved.endpoints}
    named = {stream.expect.backend, *(stream.expect.backends or ())}
    addresses = {address for address, _ in ends}
    known = {each.name for each in stream.resolved.receivers if each.address in addresses}
    found: dict[int, str] = {}
    before: tuple[IPAddress, int] | None = None
    for packet in stream.answered:
        if packet.own is None:
            continue
        end, earlier = (packet.own, packet.own_port), before
        before = end
        if end not in ends and not (packet.backend in named and packet.backend not in known):
            found[packet.number] = f"{packet.backend} got it at {endpoint(*end)}, {_no_end(stream)}"
        moved = earlier not in (None, end) and packet.at >= stream.step.settled
        if moved and not ends.get(end, True) and packet.backend not in named:
            found[packet.number] = f"it moved to {packet.backend}, an endpoint that is not ready"
    return found or None


def _no_end(stream: StreamCase) -> str:
    if stream.resolved.service_port:
        return f"which was no endpoint of {stream.resolved.service_port} at any time"
    return f"not at {endpoint(stream.resolved.destination, stream.resolved.port)} that was dialled"


def _judge_endpoint(stream: StreamCase, strays: dict[int, str]) -> Verdict:
    findings = Findings(stream)
    for number, clause in strays.items():
        findings.wrong(clause, number)
    ends = [(each.own, each.own_port) for each in stream.answered if each.own is not None]
    return findings.settle(
        f"{stream.name}.endpoint",
        expected=listed([endpoint(each.address, each.port) for each in stream.resolved.endpoints], "or"),
        observed=listed([endpoint(*end) for end in dict.fromkeys(ends)]),
    )


def _broken(stream: StreamCase) -> list[tuple[int | None, str]] | None:
    """How packets came in several copies or otherwise than they were sent; ``None`` if none did.

    A link with netem may copy packets, which shows nothing of the proxy.
    """
    found: list[tuple[int | None, str]] = []
    for copy in stream.record.copies if not any(link.copies for link in stream.step.links) else ():
        what = "the packet that begins its connection" if copy.number is None else f"the {copy.packet}"
        came = listed([f"{where} {times(count)}" for where, count in sorted(Counter(copy.came).items())])
        found.append((copy.number, f"{what} was sent {times(copy.sent)}, and came in at {came}"))
    changed = ((each.number, each.altered) for each in stream.packets if each.altered)
    found += ((number, f"the data of the {what} changed on the way") for number, what in changed)
    return found or None


def _judge_whole(stream: StreamCase, broken: list[tuple[int | None, str]]) -> Verdict:
    findings = Findings(stream)
    for number, clause in broken:
        findings.wrong(clause, number)
    what = "packets and answers"
    return findings.settle(
        f"{stream.name}.whole", expected=f"{what} once, as sent", observed=f"others: {len(broken):,}"
    )


ENDPOINT = Expectation[StreamCase, dict[int, str]](key="endpoint", expected=_strays, judge=_judge_endpoint)
WHOLE = Expectation[StreamCase, list[tuple[int | None, str]]](key="whole", expected=_broken, judge=_judge_whole)
