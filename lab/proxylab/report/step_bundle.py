"""The evidence of one step as files: enough to read what happened, and to judge it again anywhere.

Owns: which files such a bundle has, and ``RecordedStep``, the one that is judged again.
Must not: write or read files (the caller does), or judge.

A bundle is a directory::

    step.json          the step, its streams, what was seen, and the verdicts of the run: see ``RecordedStep``
    explanation.txt    the verdict in words, with the timeline
    pulses/STREAM.txt  every pulse of a stream, and what became of it
    conntrack.txt      what every node's connection tracking held when the step ended, where it was read
    rules/NODE.txt     the rules of each node as they stood then
    logs/NODE.txt      what the engine said on each node
    versions.txt       of everything that took part, and the seed
    plan.json          namespaces, links, addresses, routes and sysctls of the lab
    repro.txt          why no script shows a step again without proxylab, and what does
    scenario.lab.yaml  the scenario as it was
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Final

from proxylab.addresses import IPAddress
from proxylab.codec import CodecError, dumps, loads
from proxylab.errors import ScenarioError
from proxylab.evidence.streams import StepEvidence
from proxylab.plan.model import Plan
from proxylab.plan.resolved import ResolvedProbe
from proxylab.report.bundle import PLAN, Circumstances, NodeState, files_of_nodes, text_file
from proxylab.report.reproduction import unreproduced
from proxylab.scenario.model import Step
from proxylab.verdict.explain import explain
from proxylab.verdict.model import StepVerdict, Verdict
from proxylab.verdict.tables import entry_words
from proxylab.verdict.timeline import chronicle

__all__ = ["STEP", "RecordedStep", "read_step", "step_bundle"]

STEP: Final = "step.json"
_FORMAT: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedStep:
    """A step as it was judged and recorded: ``StepVerdict`` without the plan, which has a file of its own."""

    format: int = _FORMAT
    circumstances: Circumstances
    step: Step
    number: int
    streams: tuple[ResolvedProbe, ...]
    sources: Mapping[str, IPAddress]
    nodes: tuple[str, ...]
    addresses: Mapping[str, tuple[IPAddress, ...]]
    evidence: StepEvidence
    verdicts: tuple[Verdict, ...]
    options: tuple[str, ...] = ()


def step_bundle(
    verdict: StepVerdict,
    *,
    circumstances: Circumstances,
    plan: Plan,
    nodes: Mapping[str, NodeState],
    scenario: bytes,
) -> dict[str, bytes]:
    """The files of a bundle by their path in it."""
    recorded = RecordedStep(
        circumstances=circumstances,
        step=verdict.step,
        number=verdict.number,
        streams=verdict.streams,
        sources=verdict.sources,
        nodes=verdict.nodes,
        addresses=verdict.addresses,
        evidence=verdict.evidence,
        verdicts=verdict.verdicts,
        options=verdict.options,
    )
    evidence = verdict.evidence
    files = {
        STEP: dumps(recorded, RecordedStep),
        "explanation.txt": text_file(explain(verdict)),
        "versions.txt": text_file(
            f"{each.name}: {getattr(circumstances, each.name)}" for each in fields(circumstances)
        ),
        PLAN: dumps(plan, Plan),
        "scenario.lab.yaml": scenario,
        **{f"pulses/{each.stream}.txt": text_file(chronicle(evidence, each)) for each in evidence.streams},
        **files_of_nodes(nodes),
        **unreproduced(verdict, "it changes the cluster while its streams run, and a script has no proxy that follows"),
    }
    if evidence.entries is not None:
        files["conntrack.txt"] = text_file(_conntrack(evidence))
    return files


def read_step(file: str, data: bytes) -> RecordedStep:
    """The step of a bundle.

    Raises:
        ScenarioError: the file is no step, or one of another version of proxylab.
    """
    try:
        recorded = loads(data, RecordedStep)
    except CodecError as error:
        raise ScenarioError(
            [f"{file}: not a recorded step, or one of another version of proxylab, which then can judge it: {error}"]
        ) from None
    if recorded.format != _FORMAT:
        raise ScenarioError(
            [f"{file}: format {recorded.format} is not {_FORMAT}, which this version reads; use the one that wrote it"]
        )
    return recorded


def _conntrack(evidence: StepEvidence) -> Iterator[str]:
    for entry in dict.fromkeys(evidence.entries or ()):
        yield f"{entry.node}: {entry_words(entry)}"
