"""``EndOfStep``: what a step leaves behind, as its expectations see it that are about no stream."""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from proxylab.addresses import IPAddress
from proxylab.evidence.stream_records import StepEvidence
from proxylab.scenario.steps import Step
from proxylab.scenario.words import Position
from proxylab.verdict.conntrack_tables import Tables


class EndOfStep(Struct, frozen=True):
    """Connection tracking and metrics at the end of a step: the subject of findings.

    Attributes:
        step: with what the author expects.
        evidence: of the step.
        tables: the connection tracking then.
        counted: the number of things that findings are about, and the word for one.
        doubts: reasons to doubt the evidence.
    """

    step: Step
    evidence: StepEvidence
    tables: Tables
    counted: tuple[int, str] = (0, "packet")
    doubts: tuple[str, ...] = ()

    def position(self, key: str) -> Position:
        """Where the author wrote that expectation."""
        return self.step.expect.positions.get(key, self.step.expect.position)


def end_of_step(
    step: Step, evidence: StepEvidence, nodes: Sequence[str], addresses: Mapping[str, tuple[IPAddress, ...]]
) -> EndOfStep:
    """The end of a step; see ``StepVerdict`` for the arguments."""
    return EndOfStep(step, evidence, Tables(evidence.entries, tuple(nodes), addresses))
