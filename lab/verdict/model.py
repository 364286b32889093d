"""What a judgement is made of.

Owns: ``Verdict`` for one expectation, ``ProbeVerdict`` for a probe, ``ScenarioResult`` for a scenario on an engine.
Must not: judge (``judge`` does), or know how a result is shown (``report`` does).
"""

from dataclasses import dataclass
from enum import StrEnum

from lab.errors import ExitCode, InternalError
from lab.ip import IPAddress
from lab.plan.errand import Errand
from lab.plan.model import Plan
from lab.scenario.model import Expect, Position, Probe
from lab.verdict.evidence import Evidence

__all__ = [
    "UNRESOLVED",
    "Fault",
    "Judgement",
    "ProbeVerdict",
    "ScenarioResult",
    "Skip",
    "Verdict",
    "expectations",
    "worst",
]


class Judgement(StrEnum):
    """What the evidence says of an expectation. ``inconclusive`` is what lacks a witness, and it is not green."""

    PASS = "pass"  # noqa: S105 (no password)
    FAIL = "fail"
    INCONCLUSIVE = "inconclusive"
    SKIP = "skip"


UNRESOLVED = frozenset({Judgement.FAIL, Judgement.INCONCLUSIVE})
"""What needs somebody's eyes."""

_WORST_FIRST = (Judgement.FAIL, Judgement.INCONCLUSIVE, Judgement.SKIP, Judgement.PASS)


def worst(judgements: frozenset[Judgement]) -> Judgement:
    """The judgement that stands for all: fail, then inconclusive, then skip, then pass. Of none: inconclusive."""
    return next((each for each in _WORST_FIRST if each in judgements), Judgement.INCONCLUSIVE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The judgement of one expectation.

    Attributes:
        expectation: the YAML key below ``expect``; ``reply`` also where the author did not write it.
        judgement: what the evidence says.
        expected: in a few words.
        observed: in a few words.
        reasons: why it is not a pass, most important first; whole clauses without a full stop.
        witnesses: what proves it, a line each.
        position: where the author wrote the expectation.
        example: the first flow that shows what ``reasons`` say.
    """

    expectation: str
    judgement: Judgement
    expected: str
    observed: str
    reasons: tuple[str, ...] = ()
    witnesses: tuple[str, ...] = ()
    position: Position
    example: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeVerdict:
    """All verdicts of one probe, with what they rest on, so that they can be explained and judged again.

    Attributes:
        probe: with what the author expects.
        errand: the probe, resolved.
        verdicts: one for each expectation.
        evidence: what they rest on.
        source: the address that ``expect.source`` comes to; ``None`` without that expectation.
        traced: what was seen of one more packet, which was sent afterwards and followed through the rules; no verdict
            rests on it, only the explanation of one. ``None`` where nobody asked for it, or the machine cannot.
        plan: how the lab was laid out, for the explanation.
        options: what the run was told besides file and probe, as its command line spells it.
        again: the command that runs it again, where it stands in no scenario file.
        bundle: the directory in which the evidence is kept; empty if it is not.

    Raises:
        InternalError: if an expectation of the probe has no verdict. What nobody looked at must never look green.
    """

    probe: Probe
    errand: Errand
    verdicts: tuple[Verdict, ...]
    evidence: Evidence
    source: IPAddress | None = None
    traced: Evidence | None = None
    plan: Plan | None = None
    options: tuple[str, ...] = ()
    again: str = ""
    bundle: str = ""

    def __post_init__(self) -> None:
        judged = {verdict.expectation for verdict in self.verdicts}
        untouched = [key for key in expectations(self.probe.expect) if key not in judged]
        if untouched:
            raise InternalError(
                f"{self.probe.position}: probe {self.probe.name!r}: nobody judged {', '.join(untouched)}; "
                f"please report this"
            )

    @property
    def overall(self) -> Judgement:
        """The worst of its verdicts."""
        return worst(frozenset(verdict.judgement for verdict in self.verdicts))


@dataclass(frozen=True, slots=True)
class Skip:
    """Why a scenario did not run: what the machine lacks, and the cure."""

    missing: str
    cure: str


@dataclass(frozen=True, slots=True)
class Fault:
    """What kept a scenario from being judged: the message of a ``LabError`` and its exit code."""

    exit_code: ExitCode
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioResult:
    """One scenario on one engine. With ``skipped`` or ``fault``, ``probes`` holds what was judged before, if anything.

    Attributes:
        file: as the user named it.
        name: the scenario's ``metadata.name``.
        engine: as ``--engine`` spells it.
        probes: in the order of the file.
        seconds: the whole scenario, from the first namespace to the last.
        skipped: what the machine lacks for it.
        fault: the error that ended it.
        case: the id of its case, where it has a matrix.
        tags: the scenario's.
        description: the scenario's.
    """

    file: str
    name: str
    engine: str
    probes: tuple[ProbeVerdict, ...] = ()
    seconds: float = 0.0
    skipped: Skip | None = None
    fault: Fault | None = None
    case: str = ""
    tags: tuple[str, ...] = ()
    description: str = ""

    @property
    def overall(self) -> Judgement | None:
        """The worst of its probes; a fault is a fail; ``None`` where nothing was selected."""
        if self.fault is not None:
            return Judgement.FAIL
        judgements = {probe.overall for probe in self.probes}
        if self.skipped is not None:
            judgements.add(Judgement.SKIP)
        return worst(frozenset(judgements)) if judgements else None


def expectations(expect: Expect) -> tuple[str, ...]:
    """The YAML keys of what the author expects, ``outcome`` first. With ``http`` an outcome need not be said."""
    optional = ("backends", "source", "spread", "at", "reply", "http", "conntrack")
    said = () if expect.http is not None and "outcome" not in expect.positions else ("outcome",)
    return (*said, *(key for key in optional if getattr(expect, key) is not None))
