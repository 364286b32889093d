"""The evidence of one probe as files, enough to see what happened and to judge the probe again on any machine.

This module decides which files a bundle has; its caller writes and reads them. ``Recorded`` is the part that
``proxylab judge`` reads.

A bundle is a directory::

    case.json          the probe, the resolved probe, the evidence, and the verdicts of the run: see ``Recorded``
    explanation.txt    the verdict in words
    repro.sh           the probe without proxylab: network, rules and one packet (``reproduction``), with its rules in
                       repro.rules/NODE if they are long; or repro.txt, which says why there is no such script
    trace.txt          the path of one more packet, rule by rule, if one was traced
    conntrack.txt      the connection tracking entries of the flows on every node
    capture.pcapng     the frames of all flows at every tap, each with its flow as comment
    rules/NODE.txt     the rules of each node after the probe, with counters
    logs/NODE.txt      the log of each node's engine
    versions.txt       the versions of all programs, and the seed
    plan.json          namespaces, links, addresses, routes and sysctls of the lab
    scenario.lab.yaml  the scenario file
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, TypeVar

from msgspec import Struct
from msgspec.structs import asdict

from proxylab.addresses import IPAddress
from proxylab.binary_identity import BinaryIdentity
from proxylab.encoding import MisfitError, Record, decode, encode
from proxylab.errors import ScenarioError
from proxylab.evidence.evidence import Capture, Direction, Evidence, Observation, Packet, TableEntry, TrackedFlow
from proxylab.evidence.words import listed
from proxylab.plan.dialled_service import DialledService
from proxylab.plan.model import Plan
from proxylab.plan.outages import Absences
from proxylab.plan.resolved import ResolvedProbe
from proxylab.report.failure_text import explain
from proxylab.report.foreign_documents import decode_printable
from proxylab.report.older_bundles import OF_PROBES, Document, Upgrades
from proxylab.report.pcapng import pcapng
from proxylab.report.reproduction import PRESENT, reproduction
from proxylab.report.trace_text import journey
from proxylab.scenario.probes import Probe
from proxylab.scenario.words import HOST
from proxylab.verdict.conntrack_tables import entry_words
from proxylab.verdict.counted_rules import as_recorded
from proxylab.verdict.model import ProbeVerdict, StepVerdict, Verdict

CASE: Final = "case.json"
PLAN: Final = "plan.json"
FORMAT: Final = 7
"""Of ``case.json``. It rises where a field goes or gets another name; ``older_bundles`` reads the one before."""

RecordedT = TypeVar("RecordedT", bound=Record)


class Circumstances(Record, frozen=True, kw_only=True):
    """The conditions of a run: versions, engine, and the seed for source ports and payloads.

    ``kernel`` is the release of the lab's kernel, and ``chosen_kernel`` what ``--kernel`` says. ``binary`` ran as the
    proxy; it is ``None`` for an embedded engine.
    """

    proxylab: str
    python: str
    kernel: str
    chosen_kernel: str = HOST
    machine: str
    engine: str
    iptables: str
    seed: int = 0
    binary: BinaryIdentity | None = None

    @property
    def lines(self) -> Iterator[str]:
        """A line for each of them."""
        values = {**asdict(self), "binary": self.binary or f"none, {self.engine} is a part of proxylab"}
        yield from (f"{name}: {value}" for name, value in values.items())
        if self.binary is not None:
            yield f"binary's commit: {self.binary.commit or 'unknown'}"
            yield f"binary's SHA-256: {self.binary.digest}"


class NodeState(Struct, frozen=True):
    """A node after the probe: its rules with counters, as iptables-save or nft prints them, and the engine's log."""

    rules: str
    log: tuple[str, ...] = ()


class Recorded(Record, frozen=True, kw_only=True):
    """A recorded probe: ``ProbeVerdict`` without the plan, which has a file of its own."""

    format: int
    circumstances: Circumstances
    probe: Probe
    resolved: ResolvedProbe
    source: IPAddress | None
    evidence: Evidence
    traced: Evidence | None
    verdicts: tuple[Verdict, ...]
    options: tuple[str, ...] = ()
    service: DialledService | None = None


class _Writer(Struct, frozen=True):
    proxylab: str = ""


class _Head(Struct, frozen=True):
    """What every format has. Those before 4 (steps: 3) leave the number out."""

    format: int | None = None
    circumstances: _Writer = _Writer()


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
    """The files of a bundle by path. Files that begin with ``#!`` are programs.

    ``absences`` lists the links and pods that earlier steps removed.
    """
    recorded = Recorded(
        format=FORMAT,
        circumstances=circumstances,
        probe=verdict.probe,
        resolved=as_recorded(verdict.resolved, (verdict.evidence, verdict.traced)),
        source=verdict.source,
        evidence=verdict.evidence,
        traced=verdict.traced,
        verdicts=verdict.verdicts,
        options=verdict.options,
        service=verdict.service,
    )
    rules = {node: state.rules for node, state in nodes.items()}
    frames = f"frames: {len(capture.frames):,} in capture.pcapng, {capture.left_out:,} left out"
    files = {
        CASE: encode(recorded),
        **shared_files(verdict, versions=[*circumstances.lines, frames], plan=plan, nodes=nodes, scenario=scenario),
        "conntrack.txt": text_file(_conntrack(verdict)),
        "capture.pcapng": pcapng(capture.frames),
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


def shared_files(
    verdict: ProbeVerdict | StepVerdict,
    *,
    versions: Iterable[str],
    plan: Plan,
    nodes: Mapping[str, NodeState],
    scenario: bytes,
) -> dict[str, bytes]:
    """The files that the bundles of probes and of steps have alike."""
    return {
        "explanation.txt": text_file(explain(verdict)),
        "versions.txt": text_file(versions),
        PLAN: encode(plan),
        "scenario.lab.yaml": scenario,
        **{f"rules/{node}.txt": state.rules.encode() for node, state in nodes.items()},
        **{f"logs/{node}.txt": text_file(state.log) for node, state in nodes.items()},
    }


def variant_of(version: str) -> str:
    """``legacy`` or ``nft``, as iptables prints it after its version (``iptables v1.8.9 (legacy)``)."""
    return "nft" if "nf_tables" in version or "(nft)" in version else "legacy"


def _conntrack(verdict: ProbeVerdict) -> Iterator[str]:
    """A line for each entry: the original direction of the flow, and the reply direction."""
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
    """The conntrack entry of a flow on a node."""
    dialled = (resolved.sender.address_of_flow(tracked.flow), port, resolved.destination, resolved.port)
    answers = (tracked.reply_source, tracked.reply_source_port, tracked.reply_destination)
    return TableEntry(tracked.node, resolved.protocol, *dialled, *answers, tracked.reply_destination_port)


def _departs(seen: Observation, resolved: ResolvedProbe) -> bool:
    return seen.netns_name == resolved.sender.name and seen.direction is Direction.OUT and seen.packet is Packet.REQUEST


def read_case(file: str, data: bytes) -> Recorded:
    """The recorded probe of a bundle. Raises what ``read_recorded`` raises."""
    return read_recorded(file, data, Recorded, FORMAT, OF_PROBES)


def read_recorded(file: str, data: bytes, hint: type[RecordedT], current: int, upgrades: Upgrades) -> RecordedT:
    """A recorded probe or step of the current format, or of one from which upgrades lead to it.

    Raises:
        ScenarioError: the file is none, or has another format.
    """
    try:
        head = decode(data, _Head)
        if head.format == current:
            return decode_printable(data, hint)
        if head.format is not None and head.format in upgrades:
            document = decode(data, Document)
            for number in range(head.format, current):
                upgrades[number](document)
            return decode_printable(encode({**document, "format": current}), hint)
    except MisfitError as error:
        raise ScenarioError([f"{file}: not a recorded case or step: {error}"]) from None
    found = "not a recorded case or step with a format" if head.format is None else f"has format {head.format}"
    readable = listed([str(number) for number in (*upgrades, current)])
    writer = head.circumstances.proxylab
    cure = f"proxylab {writer}, which wrote it" if writer else "the version that wrote it"
    raise ScenarioError([f"{file}: {found}, this version reads {readable}; judge it with {cure}"])


def read_plan(file: str, data: bytes) -> Plan:
    """The plan of a bundle. Raises ``ScenarioError``."""
    try:
        return decode_printable(data, Plan)
    except MisfitError as error:
        raise ScenarioError(
            [f"{file}: not a plan, or written by another version of proxylab; judge it with that: {error}"]
        ) from None


def text_file(lines: Iterable[str]) -> bytes:
    """A file of these lines."""
    return "".join(f"{line}\n" for line in lines).encode()
