"""The evidence of one probe as files: enough to read what happened, and to judge it again anywhere.

Owns: which files a bundle has, and ``Recorded``, the one that is judged again.
Must not: write or read files (the caller does), or judge.

A bundle is a directory::

    case.json          the probe, the errand, what was seen, and the verdicts of the run: see ``Recorded``
    explanation.txt    the verdict in words
    repro.sh           the probe without proxylab: network, rules and one packet (``reproduction``), with its rules in
                       repro.rules/NODE where they are long; or repro.txt, which says why there is no such script
    trace.txt          the way of one more packet, rule by rule, if one was traced
    conntrack.txt      what every node's connection tracking held of the flows
    capture.pcapng     the frames of all flows at every tap, each with its flow as comment
    rules/NODE.txt     the rules of each node, with counters, as they stood after the probe
    logs/NODE.txt      what the engine said on each node
    versions.txt       of everything that took part, and the seed
    plan.json          namespaces, links, addresses, routes and sysctls of the lab
    scenario.lab.yaml  the scenario as it was
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields
from typing import Final

from proxylab.addresses import IPAddress
from proxylab.codec import CodecError, dumps, loads
from proxylab.errors import ScenarioError
from proxylab.evidence.evidence import Capture, Direction, Evidence, Observation, Packet, TableEntry, TrackedFlow
from proxylab.frozen import dataclass
from proxylab.plan.model import Plan
from proxylab.plan.reach import Absences
from proxylab.plan.resolved import ResolvedProbe
from proxylab.report.pcapng import pcapng
from proxylab.report.reproduction import PRESENT, reproduction
from proxylab.scenario.model import Probe
from proxylab.verdict.explain import explain
from proxylab.verdict.journey import journey
from proxylab.verdict.model import ProbeVerdict, Verdict
from proxylab.verdict.tables import entry_words

__all__ = [
    "CASE",
    "PLAN",
    "Circumstances",
    "NodeState",
    "Recorded",
    "bundle",
    "files_of_nodes",
    "read_case",
    "read_plan",
    "text_file",
]

CASE: Final = "case.json"
PLAN: Final = "plan.json"
_FORMAT: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Circumstances:
    """Under what a run took place: versions, engine, and the seed of source ports and payloads."""

    proxylab: str
    python: str
    kernel: str
    machine: str
    engine: str
    iptables: str
    seed: int = 0


@dataclass(frozen=True, slots=True)
class NodeState:
    """A node after the probe: its rules as their tool saves them, with counters, and the engine's log."""

    rules: str
    log: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """A probe as it was sent, judged and recorded: ``ProbeVerdict`` without the plan, which has a file of its own."""

    format: int = _FORMAT
    circumstances: Circumstances
    probe: Probe
    resolved: ResolvedProbe
    source: IPAddress | None
    evidence: Evidence
    traced: Evidence | None
    verdicts: tuple[Verdict, ...]
    options: tuple[str, ...] = ()


def bundle(
    verdict: ProbeVerdict,
    *,
    circumstances: Circumstances,
    plan: Plan,
    capture: Capture,
    nodes: Mapping[str, NodeState],
    scenario: bytes,
    absences: Absences = PRESENT,
) -> dict[str, bytes]:
    """The files of a bundle by their path in it. Those that begin with ``#!`` are programs.

    ``absences`` are what steps had taken out of the lab.
    """
    recorded = Recorded(
        circumstances=circumstances,
        probe=verdict.probe,
        resolved=verdict.resolved,
        source=verdict.source,
        evidence=verdict.evidence,
        traced=verdict.traced,
        verdicts=verdict.verdicts,
        options=verdict.options,
    )
    rules = {node: state.rules for node, state in nodes.items()}
    files = {
        CASE: dumps(recorded, Recorded),
        "explanation.txt": text_file(explain(verdict)),
        "conntrack.txt": text_file(_conntrack(verdict)),
        "versions.txt": text_file(_versions(circumstances, capture)),
        "capture.pcapng": pcapng(capture.frames),
        PLAN: dumps(plan, Plan),
        "scenario.lab.yaml": scenario,
        **files_of_nodes(nodes),
        **reproduction(
            verdict,
            plan,
            rules,
            engine=circumstances.engine,
            tool=variant_of(circumstances.iptables),
            absences=absences,
        ),
    }
    if verdict.traced is not None:
        files["trace.txt"] = text_file(journey(verdict.resolved, verdict.traced))
    return files


def files_of_nodes(nodes: Mapping[str, NodeState]) -> dict[str, bytes]:
    """What every bundle has of each node: its rules, and what its engine said."""
    return {
        **{f"rules/{node}.txt": state.rules.encode() for node, state in nodes.items()},
        **{f"logs/{node}.txt": text_file(state.log) for node, state in nodes.items()},
    }


def variant_of(version: str) -> str:
    """``legacy`` or ``nft``, as iptables names itself behind its version (``iptables v1.8.9 (legacy)``)."""
    return "nft" if "nf_tables" in version or "(nft)" in version else "legacy"


def _conntrack(verdict: ProbeVerdict) -> Iterator[str]:
    """A line for each entry: the flow as it was sent, and who answers it there, to whom."""
    resolved, tracked = verdict.resolved, verdict.evidence.tracked
    if tracked is None:
        yield "connection tracking was not read"
        return
    ports = {seen.flow: seen.source_port for seen in verdict.evidence.observations if _departs(seen, resolved)}
    for entry in tracked:
        words = entry_words(_entry(resolved, ports.get(entry.flow, 0), entry))
        yield f"{entry.node}: flow {entry.flow}: {words}"
    if not tracked:
        yield "no node's connection tracking had an entry for any flow"


def _entry(resolved: ResolvedProbe, port: int, tracked: TrackedFlow) -> TableEntry:
    """What a node remembers of a flow, as an entry of its table."""
    dialled = (resolved.sender.of(tracked.flow), port, resolved.destination, resolved.port)
    answers = (tracked.reply_source, tracked.reply_source_port, tracked.reply_destination)
    return TableEntry(tracked.node, resolved.protocol, *dialled, *answers, tracked.reply_destination_port)


def _departs(seen: Observation, resolved: ResolvedProbe) -> bool:
    return seen.netns_name == resolved.sender.name and seen.direction is Direction.OUT and seen.packet is Packet.REQUEST


def _versions(circumstances: Circumstances, capture: Capture) -> Iterator[str]:
    yield from (f"{each.name}: {getattr(circumstances, each.name)}" for each in fields(circumstances))
    yield f"frames: {len(capture.frames):,} in capture.pcapng, {capture.left_out:,} left out"


def read_case(file: str, data: bytes) -> Recorded:
    """The case of a bundle.

    Raises:
        ScenarioError: the file is no case, or one of another version of proxylab.
    """
    try:
        recorded = loads(data, Recorded)
    except CodecError as error:
        raise ScenarioError(
            [f"{file}: not a recorded case, or one of another version of proxylab, which then can judge it: {error}"]
        ) from None
    if recorded.format != _FORMAT:
        raise ScenarioError(
            [f"{file}: format {recorded.format} is not {_FORMAT}, which this version reads; use the one that wrote it"]
        )
    return recorded


def read_plan(file: str, data: bytes) -> Plan:
    """The plan of a bundle.

    Raises:
        ScenarioError: the file is no plan, or one of another version of proxylab.
    """
    try:
        return loads(data, Plan)
    except CodecError as error:
        raise ScenarioError(
            [f"{file}: not a plan, or one of another version of proxylab, which then can judge it: {error}"]
        ) from None


def text_file(lines: Iterable[str]) -> bytes:
    """A file of these lines."""
    return "".join(f"{line}\n" for line in lines).encode()
