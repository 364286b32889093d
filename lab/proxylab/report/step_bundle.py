"""The evidence of one step as files, enough to see what happened and to judge the step again on any machine.

This module decides which files a bundle has; its caller writes and reads them. ``RecordedStep`` is the part that
``proxylab judge`` reads.

A bundle is a directory::

    step.json          the step, its streams, the evidence, and the verdicts of the run: see ``RecordedStep``
    explanation.txt    the verdict in words, with the timeline
    streams/STREAM.txt  every packet of a stream, and its fate
    conntrack.txt      the connection tracking entries of every node at the end of the step, if they were read
    rules/NODE.txt     the rules of each node at the end of the step
    logs/NODE.txt      the log of each node's engine
    versions.txt       the versions of all programs, and the seed
    plan.json          namespaces, links, addresses, routes and sysctls of the lab
    repro.txt          why no script reproduces a step without proxylab, and what does
    scenario.lab.yaml  the scenario file
"""

from collections.abc import Iterator, Mapping
from typing import Final

from proxylab.addresses import IPAddress
from proxylab.encoding import Record, encode
from proxylab.evidence.stream_records import StepEvidence
from proxylab.plan.model import Plan
from proxylab.plan.resolved import ResolvedProbe
from proxylab.report.bundle import Circumstances, NodeState, read_recorded, shared_files, text_file
from proxylab.report.older_bundles import OF_STEPS
from proxylab.report.reproduction import unreproduced
from proxylab.report.step_timeline import stream_log
from proxylab.scenario.steps import Step
from proxylab.verdict.conntrack_tables import entry_words
from proxylab.verdict.counted_rules import as_recorded
from proxylab.verdict.model import StepVerdict, Verdict

STEP: Final = "step.json"
FORMAT: Final = 6


class RecordedStep(Record, frozen=True, kw_only=True):
    """A recorded step: ``StepVerdict`` without the plan, which has a file of its own."""

    format: int
    circumstances: Circumstances
    step: Step
    number: int
    streams: tuple[ResolvedProbe, ...]
    sources: Mapping[str, Mapping[str, IPAddress]]
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
    """The files of a bundle by path."""
    recorded = RecordedStep(
        format=FORMAT,
        circumstances=circumstances,
        step=verdict.step,
        number=verdict.number,
        streams=tuple(as_recorded(each, verdict.evidence) for each in verdict.case.streams),
        sources=verdict.case.sources,
        nodes=verdict.case.nodes,
        addresses=verdict.case.addresses,
        evidence=verdict.evidence,
        verdicts=verdict.verdicts,
        options=verdict.options,
    )
    evidence = verdict.evidence
    files = {
        STEP: encode(recorded),
        **shared_files(verdict, versions=circumstances.lines, plan=plan, nodes=nodes, scenario=scenario),
        **{f"streams/{each.stream}.txt": text_file(stream_log(evidence, each)) for each in evidence.streams},
        **unreproduced(verdict, "it changes the cluster while its streams run, and a script has no proxy that reacts"),
    }
    if evidence.entries is not None:
        files["conntrack.txt"] = text_file(_conntrack(evidence))
    return files


def read_step(file: str, data: bytes) -> RecordedStep:
    """The recorded step of a bundle. Raises what ``read_recorded`` raises."""
    return read_recorded(file, data, RecordedStep, FORMAT, OF_STEPS)


def _conntrack(evidence: StepEvidence) -> Iterator[str]:
    for entry in dict.fromkeys(evidence.entries or ()):
        yield f"{entry.node}: {entry_words(entry)}"
