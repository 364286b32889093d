"""``StepCase``: one step before its judge: its streams, and the connection tracking at its end."""

from collections.abc import Mapping
from functools import cached_property

from msgspec import Struct

from proxylab.addresses import IPAddress
from proxylab.errors import InternalError
from proxylab.evidence.stream_records import StepEvidence
from proxylab.plan.resolved import ResolvedProbe
from proxylab.scenario.steps import Step, StepExpect
from proxylab.scenario.words import Position
from proxylab.verdict.conntrack_tables import ConntrackTables
from proxylab.verdict.stream import StreamCase


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
