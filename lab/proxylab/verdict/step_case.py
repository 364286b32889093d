"""``StepCase``: one step before its judge, with the connection tracking at its end; ``StreamCase``: a stream in it."""

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property

from msgspec import Struct
from msgspec.structs import replace

from proxylab.addresses import IPAddress, Transport
from proxylab.errors import InternalError
from proxylab.evidence.stream_records import StepEvidence, StreamPacket, StreamPacketFate, StreamRecord
from proxylab.evidence.words import endpoint, listed
from proxylab.plan.expected_sources import ANY_BACKEND
from proxylab.plan.resolved import ResolvedProbe
from proxylab.rules.effects import EXEMPTING, MARKING, REWRITING, Effects
from proxylab.scenario.steps import Step, StepExpect, StreamExpect
from proxylab.scenario.words import Position
from proxylab.verdict.conntrack_tables import ConntrackTables
from proxylab.verdict.foreign import suspicion
from proxylab.verdict.hops import dropped_meanwhile

MILLISECOND = 1_000_000
"""In nanoseconds."""


class StreamCase(Struct, frozen=True):
    """One stream in one step: the subject of findings.

    Attributes:
        expect: what the author expects of it.
        record: what became of its packets.
        step: the record of the whole step.
        sources: the address that each backend must see, by its name or ``ANY_BACKEND``; empty if not expected.
        resolved: who sends it, and where.
        packets: those that the findings are about; at first all.
    """

    expect: StreamExpect
    record: StreamRecord
    step: StepEvidence
    sources: Mapping[str, IPAddress]
    resolved: ResolvedProbe
    packets: tuple[StreamPacket, ...]

    @property
    def name(self) -> str:
        return self.record.stream

    @property
    def size(self) -> tuple[int, str]:
        """The number of stream packets, and the word for one."""
        return len(self.packets), "packet"

    @property
    def doubts(self) -> tuple[str, ...]:
        """Reasons to doubt the record."""
        why = "links lost every packet" if self.record.packets else "no packet was sent"
        doubts = [] if self.packets else [f"{why} of {self.name}"]
        numbers = [packet.number for packet in self.record.packets]
        if numbers != list(range(numbers[0], numbers[0] + len(numbers)) if numbers else ()):
            doubts.append(f"the record of {self.name} misses packets, or holds some twice")
        return tuple(doubts)

    @property
    def may_be_late(self) -> tuple[str, ...]:
        """Why a missing answer may only be late, or may be missing because of a link."""
        clauses = []
        if self.record.silent:
            clauses.append(f"no sentinel packet came back from {listed(self.record.silent, 'or')}")
        if self.record.undrained:
            clauses.append(f"the proxy's process on {listed(self.record.undrained, 'or')} may still hold packets")
        clauses = [f"{clause}, so silence proves nothing" for clause in clauses]
        if self.record.by_connection and (dropped := dropped_meanwhile(self.step.links)):
            clauses.append(f"{dropped}, and the kernels were still sending again what it lost")
        return tuple(clauses)

    @property
    def foreign(self) -> Iterator[str]:
        """Why something else than the engine may have led its packets: foreign rules, or no translation at all."""
        yield from self._may_have((REWRITING,), "led packets in place of the engine's rules")
        last = self.record.packets[-1:]
        of_service = self.resolved.service_port and self.resolved.protocol in (Transport.TCP, Transport.UDP)
        if of_service and last and last[0].fate is StreamPacketFate.ANSWERED and not self._is_translated(last[0]):
            dialled = endpoint(self.resolved.destination, self.resolved.port)
            yield f"no node's conntrack translates {dialled} at the step's end, so the engine's rules may lead nothing"

    def _is_translated(self, last: StreamPacket) -> bool:
        """Whether a node translates the address that it dials: a backend's own needs no translation.

        After the end of a connection, the entries are of another one than the last packet's.
        """
        dialled = self.resolved.destination, self.resolved.port
        own = any(
            each.address == dialled[0] and (not each.ports or dialled[1] in each.ports)
            for each in self.resolved.receivers
        )
        translated = any((each.reply_source, each.reply_source_port) != dialled for each in self.record.tracked)
        return own or translated or any(each.at > last.at for each in self.record.breaks)

    @property
    def is_led_by_kernels(self) -> bool:
        """Whether the kernels translate its packets to the backends, or nothing does: no program ends connections."""
        ends = {(each.own, each.own_port) for each in self.answered}
        dialled = (self.resolved.destination, self.resolved.port)
        return dialled in ends or any(
            (each.reply_source, each.reply_source_port) in ends for each in self.record.tracked
        )

    @property
    def changed_by_others(self) -> Iterator[str]:
        """Foreign rules that may have marked its packets for masquerading, where backends must see a node's address."""
        if not set(self.sources.values()) <= set(self.resolved.sender.addresses):
            yield from self._may_have((MARKING,), "marked packets in place of the engine's rules")

    def ended_by_others(self, ends: Effects) -> Iterator[str]:
        """Foreign rules that may have ended its packets so, led them astray, or kept them from the engine's rules."""
        effects = (ends, EXEMPTING, REWRITING)
        return self._may_have(effects, "ended packets in place of the engine's rules or the step's change")

    def _may_have(self, effects: Iterable[Effects], done: str) -> Iterator[str]:
        for node in self.resolved.nodes if self.resolved.service_port else ():
            found = (suspicion(self.resolved, self.step, node, effect) for effect in effects)
            if clause := next(filter(None, found), ""):
                yield f"{clause}, and may have {done}"

    @property
    def lost(self) -> list[StreamPacket]:
        """The packets that got no answer, without those that a link with netem lost."""
        return [packet for packet in self.of_fate(StreamPacketFate.LOST) if not packet.link]

    @property
    def lost_on_link(self) -> list[StreamPacket]:
        """The packets that a link with netem lost, or their answers."""
        return [packet for packet in self.packets if packet.link]

    @property
    def after_wait(self) -> "StreamCase":
        """The same stream, with only the packets sent after the step's wait that no link lost."""
        behind = [packet for packet in self.record.packets if packet.at >= self.step.settled and not packet.link]
        return replace(self, packets=tuple(behind))

    def expected_source(self, packet: StreamPacket) -> IPAddress | None:
        """The address that the backend of a packet must see; ``None`` where neither author nor plan gives one."""
        return self.sources.get(packet.backend, self.sources.get(ANY_BACKEND))

    @property
    def answered(self) -> list[StreamPacket]:
        return self.of_fate(StreamPacketFate.ANSWERED)

    def of_fate(self, fate: StreamPacketFate) -> list[StreamPacket]:
        """The packets with that fate."""
        return [packet for packet in self.packets if packet.fate is fate]

    def sent(self, packet: StreamPacket) -> str:
        """When a packet was sent, as a participle clause."""
        return f"sent {when(packet.at, self.step.changed)}"

    def position(self, key: str) -> Position:
        """Where the author wrote that expectation."""
        return self.expect.positions.get(key.rpartition(".")[2], self.expect.position)


def when(at: int, changed: int, what: str = "the change was made") -> str:
    """A time by its distance from another, in milliseconds."""
    return f"{abs(at - changed) / MILLISECOND:.1f} ms {'before' if at < changed else 'after'} {what}"


def may_be_late(packet: StreamPacket) -> bool:
    """Whether an answer may still come: only a sentinel packet, or a link that lost it, proves that none will."""
    return packet.fate is StreamPacketFate.LOST and not packet.error and not packet.link


def answer_words(packet: StreamPacket) -> str:
    """What came back for a packet, as a clause."""
    match packet.fate:
        case StreamPacketFate.ANSWERED:
            return f"{packet.backend} answered"
        case StreamPacketFate.REJECTED:
            return f"an ICMP error answered ({packet.error})"
        case _:
            return "no answer came" + (f" ({packet.error})" if packet.error else "")


class StepCase(Struct, frozen=True, dict=True):
    """One step and its evidence. It is the subject of findings about no stream: connection tracking and metrics.

    Attributes:
        step: with what the author expects.
        number: of the step, from 1.
        streams: the resolved probes of the scenario's streams.
        sources: the addresses that backends must see, by stream and by backend.
        nodes: of the lab.
        addresses: of every node, pod and host.
        evidence: of the step.
    """

    step: Step
    number: int
    streams: tuple[ResolvedProbe, ...]
    sources: Mapping[str, Mapping[str, IPAddress]]
    nodes: tuple[str, ...]
    addresses: Mapping[str, tuple[IPAddress, ...]]
    evidence: StepEvidence

    @property
    def expect(self) -> StepExpect:
        """What the author expects of the step."""
        return self.step.expect

    @cached_property
    def expected_streams(self) -> Mapping[str, StreamCase]:
        """The streams of which the step expects something, by name.

        Raises:
            InternalError: one has no record.
        """
        return {name: self._stream(name) for name in self.expect.streams}

    def _stream(self, name: str) -> StreamCase:
        expect = self.expect.streams[name]
        record = next((each for each in self.evidence.streams if each.stream == name), None)
        resolved = next((each for each in self.streams if each.name == name), None)
        if record is None or resolved is None:
            raise InternalError(f"{expect.position}: nothing was recorded of stream {name!r}; please report this")
        return StreamCase(expect, record, self.evidence, self.sources.get(name, {}), resolved, record.packets)

    @cached_property
    def tables(self) -> ConntrackTables:
        """The connection tracking at the end of the step."""
        return ConntrackTables(self.evidence.entries, self.nodes, self.addresses)

    @property
    def size(self) -> tuple[int, str]:
        """No finding about the end of a step is about single packets."""
        return 0, "packet"

    @property
    def doubts(self) -> tuple[str, ...]:
        """Each expectation has its own reasons to doubt the evidence."""
        return ()

    def position(self, key: str) -> Position:
        """Where the author wrote that expectation."""
        return self.expect.positions.get(key, self.expect.position)
