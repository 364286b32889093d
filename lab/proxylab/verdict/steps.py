"""The judge of steps: records of streams and conntrack tables against what a step expects.

It passes nothing without proof (``case`` explains how findings weigh).

A step lasts from its change until its streams are settled, before the next step. It begins with a packet of each stream
just before the change. Counts and delays cover the whole step: a packet that the change costs belongs to its step. The
expectations ``backend`` and ``source`` are about the packets sent after the step's wait, at least five of each stream.
"""

from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from proxylab.addresses import IPAddress
from proxylab.errors import InternalError
from proxylab.evidence.streams import BreakKind, StepEvidence, StreamPacket, StreamPacketFate, StreamRecord
from proxylab.evidence.words import amount, listed, times
from proxylab.plan.resolved import ResolvedProbe
from proxylab.scenario.model import Count, Position, Step, StreamExpect
from proxylab.verdict.case import Findings
from proxylab.verdict.conntrack import judge_conntrack
from proxylab.verdict.model import StepVerdict, Verdict

__all__ = ["judge_step"]

_MILLISECOND = 1_000_000


class _Case(Struct, frozen=True):
    """One stream in one step, or the tables at its end: the subject of findings."""

    step: Step
    stream: str = ""
    packets: tuple[StreamPacket, ...] = ()
    doubts: tuple[str, ...] = ()

    @property
    def counted(self) -> tuple[int, str]:
        """The number of stream packets, and the word for one."""
        return len(self.packets), "packet"

    def position(self, key: str) -> Position:
        """Where the author wrote that expectation."""
        expect = self.step.expect
        if self.stream in expect.streams:
            stream = expect.streams[self.stream]
            return stream.positions.get(key.rpartition(".")[2], stream.position)
        return expect.positions.get(key, expect.position)


def judge_step(
    step: Step,
    number: int,
    streams: Sequence[ResolvedProbe],
    sources: Mapping[str, IPAddress],
    nodes: Sequence[str],
    addresses: Mapping[str, tuple[IPAddress, ...]],
    evidence: StepEvidence,
) -> StepVerdict:
    """Judge every expectation of a step; see ``StepVerdict`` for the arguments.

    Raises:
        InternalError: the step expects something of a stream without a record.
    """
    verdicts: list[Verdict] = []
    for name, expect in step.expect.streams.items():
        record = next((each for each in evidence.streams if each.stream == name), None)
        if record is None:
            raise InternalError(f"{expect.position}: nothing was recorded of stream {name!r}; please report this")
        verdicts += _Stream(step, name, expect, record, evidence.settled).verdicts(sources.get(name))
    if step.expect.conntrack is not None:
        verdicts.append(judge_conntrack(_Case(step), step.expect.conntrack, evidence.entries, nodes, addresses))
    return StepVerdict(
        step=step,
        number=number,
        streams=tuple(streams),
        sources=sources,
        nodes=tuple(nodes),
        addresses=addresses,
        verdicts=tuple(verdicts),
        evidence=evidence,
    )


class _Stream(Struct, frozen=True):
    """The expectations of one stream in one step."""

    step: Step
    name: str
    expect: StreamExpect
    record: StreamRecord
    settled: int

    def verdicts(self, source: IPAddress | None) -> Iterator[Verdict]:
        expect = self.expect
        if expect.backend is not None:
            yield self._backend(expect.backend)
        if expect.backends is not None:
            yield self._backends(expect.backends)
        if expect.source is not None:
            yield self._source(source)
        yield from self._counts()
        if expect.delay is not None:
            yield self._delay(expect.delay)

    @property
    def _behind(self) -> tuple[StreamPacket, ...]:
        """The packets sent after the step's wait."""
        return tuple(packet for packet in self.record.packets if packet.at >= self.settled)

    @property
    def _silence(self) -> tuple[str, ...]:
        """Why a missing answer may only be late."""
        silent = self.record.silent
        return (
            (f"no sentinel packet came back from {listed(silent, 'or')}, so silence proves nothing",) if silent else ()
        )

    def _case(self, packets: tuple[StreamPacket, ...]) -> _Case:
        doubts = [] if packets else [f"no packet of {self.name} was sent"]
        numbers = [packet.number for packet in self.record.packets]
        if numbers != list(range(numbers[0], numbers[0] + len(numbers)) if numbers else ()):
            doubts.append(f"the record of {self.name} misses packets, or holds some twice")
        return _Case(self.step, self.name, packets, tuple(doubts))

    def _backend(self, wanted: str) -> Verdict:
        findings, behind = Findings(), self._behind
        for packet in behind:
            if _may_be_late(packet):
                findings.missing.append((packet.number, _answer_words(packet)))
            elif packet.backend != wanted:
                findings.wrong.append((packet.number, _answer_words(packet)))
        observed = listed(list(dict.fromkeys(packet.backend or "no backend" for packet in behind)))
        witnesses = [f"{wanted} answered all {amount(len(behind), 'packet')} sent after the wait"]
        return findings.settle(
            self._case(behind),
            f"{self.name}.backend",
            expected=wanted,
            observed=observed,
            silence=self._silence,
            witnesses=witnesses,
        )

    def _backends(self, wanted: tuple[str, ...]) -> Verdict:
        findings = Findings()
        answered = tuple(dict.fromkeys(packet.backend for packet in self.record.packets if packet.backend))
        if answered != wanted:
            strangers = [name for name in answered if name not in wanted]
            silent = [name for name in wanted if name not in answered]
            findings.wrong_overall += (f"{name} answered, too" for name in strangers)
            findings.missing_overall += (f"{name} answered nothing" for name in silent)
            if not strangers and not silent:
                findings.missing_overall.append(f"the backends answered in another order: {listed(answered)}")
        return findings.settle(
            self._case(self.record.packets),
            f"{self.name}.backends",
            expected=", ".join(wanted),
            observed=", ".join(answered) or "no backend",
            silence=self._silence,
            witnesses=[f"first answers of {listed(answered)}"],
        )

    def _source(self, wanted: IPAddress | None) -> Verdict:
        if wanted is None:
            raise InternalError(f"{self.expect.position}: the plan gave no address for the source; please report this")
        findings, behind = Findings(), self._behind
        for packet in behind:
            if packet.peer is None:
                found = findings.missing if _may_be_late(packet) else findings.wrong
                found.append((packet.number, f"{_answer_words(packet)}, so no backend saw its source"))
            elif packet.peer != wanted:
                findings.wrong.append((packet.number, f"{packet.backend} saw {packet.peer}"))
        seen = dict.fromkeys(str(packet.peer) for packet in behind if packet.peer is not None)
        return findings.settle(
            self._case(behind),
            f"{self.name}.source",
            expected=str(wanted),
            observed=listed(list(seen)),
            silence=self._silence,
            witnesses=[f"reported by {listed(list(dict.fromkeys(each.backend for each in behind if each.backend)))}"],
        )

    def _counts(self) -> Iterator[Verdict]:
        packets = self.record.packets
        lost = [packet for packet in packets if packet.fate is StreamPacketFate.LOST]
        rejected = [packet for packet in packets if packet.fate is StreamPacketFate.REJECTED]
        resets = [each for each in self.record.breaks if each.kind is BreakKind.RESET]
        of_all = f"of {amount(len(packets), 'packet')}"
        if self.expect.lost is not None:
            clause = f"{len(lost):,} {of_all} {_were(lost)} lost"
            yield self._count("lost", self.expect.lost, len(lost), clause, lost)
        if self.expect.rejected is not None:
            clause = f"{len(rejected):,} {of_all} {_were(rejected)} rejected"
            yield self._count("rejected", self.expect.rejected, len(rejected), clause, rejected)
        if self.expect.resets is not None:
            yield self._count(
                "resets", self.expect.resets, len(resets), f"its connection was reset {times(len(resets))}"
            )

    def _count(
        self, key: str, wanted: Count, number: int, clause: str, packets: Sequence[StreamPacket] = ()
    ) -> Verdict:
        findings = Findings()
        late = sum(map(_may_be_late, packets)) if self.record.silent else 0
        possible = [each in wanted for each in range(number - late, number + 1)]
        if any(possible) and not all(possible):
            findings.missing_overall.append(clause)
        elif number not in wanted:
            findings.wrong_overall.append(clause)
            errors = dict.fromkeys(packet.error for packet in packets if packet.error)
            if errors:
                findings.wrong_overall.append(f"its socket reported {listed(list(errors))}")
        return findings.settle(
            self._case(self.record.packets),
            f"{self.name}.{key}",
            expected=_bounds(wanted),
            observed=f"{number:,}",
            silence=self._silence,
            witnesses=[clause],
        )

    def _delay(self, most: int) -> Verdict:
        findings = Findings()
        answered = [packet for packet in self.record.packets if packet.fate is StreamPacketFate.ANSWERED]
        longest = max((packet.delay for packet in answered), default=0)
        for packet in answered:
            if packet.delay > most * _MILLISECOND:
                findings.wrong.append((packet.number, f"its answer took longer than {most} ms"))
        if not answered:
            findings.doubts_overall.append("nothing was answered")
        if any(map(_may_be_late, self.record.packets)):
            findings.doubts_overall += self._silence
        return findings.settle(
            self._case(self.record.packets),
            f"{self.name}.delay",
            expected=f"{most} ms at most",
            observed=f"{longest / _MILLISECOND:.1f} ms at most",
            witnesses=[f"the longest of {amount(len(answered), 'answer')} took {longest / _MILLISECOND:.1f} ms"],
        )


def _may_be_late(packet: StreamPacket) -> bool:
    """Whether an answer may still come: only a sentinel packet proves that none will."""
    return packet.fate is StreamPacketFate.LOST and not packet.error


def _answer_words(packet: StreamPacket) -> str:
    match packet.fate:
        case StreamPacketFate.ANSWERED:
            return f"{packet.backend} answered"
        case StreamPacketFate.REJECTED:
            return f"an ICMP error answered ({packet.error})"
        case _:
            return "no answer came" + (f" ({packet.error})" if packet.error else "")


def _were(packets: Sequence[StreamPacket]) -> str:
    return "was" if len(packets) == 1 else "were"


def _bounds(count: Count) -> str:
    if count.at_most is None:
        return f"{count.at_least:,} or more"
    if count.at_least == count.at_most:
        return f"{count.at_least:,}"
    return f"{count.at_least:,} to {count.at_most:,}" if count.at_least else f"{count.at_most:,} at most"
