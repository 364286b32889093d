"""The data of judgements: ``Verdict`` for an expectation, ``ProbeVerdict`` for a probe, ``ScenarioResult``."""

from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from proxylab.addresses import IPAddress
from proxylab.binary_identity import BinaryIdentity
from proxylab.encoding import Record
from proxylab.errors import ExitCode, InternalError
from proxylab.evidence.evidence import Evidence
from proxylab.evidence.stream_records import StepEvidence
from proxylab.plan.dialled_service import DialledService
from proxylab.plan.model import Plan
from proxylab.plan.resolved import ResolvedProbe
from proxylab.scenario.expect import Expect
from proxylab.scenario.keys import declared_keys
from proxylab.scenario.probes import Probe
from proxylab.scenario.steps import Step, StepExpect, StreamExpect
from proxylab.scenario.words import HOST, Position
from proxylab.verdict.case import Case
from proxylab.verdict.rule_coverage import RuleCoverage
from proxylab.verdict.step_case import StepCase


class Judgement(StrEnum):
    """The judgement of an expectation. ``inconclusive`` lacks a witness, and it is not green."""

    PASS = "pass"  # noqa: S105 (no password)
    FAIL = "fail"
    INCONCLUSIVE = "inconclusive"
    SKIP = "skip"


UNRESOLVED = frozenset({Judgement.FAIL, Judgement.INCONCLUSIVE})
"""The judgements that a person must look at."""

_WORST_FIRST = (Judgement.FAIL, Judgement.INCONCLUSIVE, Judgement.SKIP, Judgement.PASS)


def worst(judgements: frozenset[Judgement]) -> Judgement:
    """The judgement that stands for all: fail, then inconclusive, then skip, then pass. Of none: inconclusive."""
    return next((each for each in _WORST_FIRST if each in judgements), Judgement.INCONCLUSIVE)


class Verdict(Record, frozen=True, kw_only=True):
    """The judgement of one expectation.

    Attributes:
        expectation: the YAML key below ``expect``; also ``reply`` without that key, and ``endpoint``, which is no key.
        judgement: what the evidence says.
        expected: in a few words.
        observed: in a few words.
        reasons: why it is not a pass, most important first; whole clauses without a full stop.
        witnesses: the proofs, a line each.
        position: where the author wrote the expectation.
        example: the first flow that shows what ``reasons`` say.
        follows: the oracle's rows from which the expectation follows, where its author leaves it to the promises.
    """

    expectation: str
    judgement: Judgement
    expected: str
    observed: str
    reasons: tuple[str, ...] = ()
    witnesses: tuple[str, ...] = ()
    position: Position
    example: int | None = None
    follows: tuple[str, ...] = ()


class _Judged(Struct, frozen=True, kw_only=True):
    """The common part of verdicts on a probe and on a step.

    Attributes:
        verdicts: one for each expectation.
        plan: of the lab, for the explanation.
        options: of the run besides file and probe, as on its command line.
        bundle: the directory with the evidence; empty without one.
        rerun_command: the command that runs it again, where no scenario file holds it.
    """

    verdicts: tuple[Verdict, ...]
    plan: Plan | None = None
    options: tuple[str, ...] = ()
    bundle: str = ""
    rerun_command: str = ""

    @property
    def overall(self) -> Judgement:
        """The worst of its verdicts."""
        return worst(frozenset(verdict.judgement for verdict in self.verdicts))

    @property
    def deciding(self) -> tuple[Verdict, ...]:
        """The verdicts that decide: the worst."""
        return tuple(verdict for verdict in self.verdicts if verdict.judgement is self.overall)

    def _hold(self, keys: tuple[str, ...], what: str) -> None:
        """Raises InternalError if an expectation has no verdict: it must never look green."""
        judged = {verdict.expectation for verdict in self.verdicts}
        untouched = [key for key in keys if key not in judged]
        if untouched:
            raise InternalError(f"{what}: the judge gave no verdict on {', '.join(untouched)}; please report this")


class ProbeVerdict(_Judged, frozen=True, kw_only=True):
    """All verdicts of one probe, with the evidence to explain them and to judge them again.

    Attributes:
        case: the probe and its evidence, with the facts that the verdicts rest on.
        traced: the evidence of one more packet, which the lab sent afterwards and traced through the rules. Only the
            explanation rests on it. ``None`` without a trace.
        service: what the API server says of the dialled Service, for the explanation; ``None`` where nothing is wrong.

    Raises:
        InternalError: if an expectation of the probe has no verdict.
    """

    case: Case
    traced: Evidence | None = None
    service: DialledService | None = None

    @property
    def probe(self) -> Probe:
        """With what the author expects."""
        return self.case.probe

    @property
    def written(self) -> Probe:
        """What the author wrote, with its name and position."""
        return self.case.probe

    @property
    def seconds(self) -> float:
        return self.case.evidence.seconds

    @property
    def resolved(self) -> ResolvedProbe:
        return self.case.resolved

    @property
    def evidence(self) -> Evidence:
        return self.case.evidence

    @property
    def source(self) -> IPAddress | None:
        """The one address that ``expect.source`` stands for; ``None`` where it is the sender's or differs."""
        return self.case.source

    def without_packets(self) -> "ProbeVerdict":
        """The same verdicts without what the lab saw and counted: a run of thousands of probes cannot hold it all."""
        evidence = Evidence(sent=self.evidence.sent, seconds=self.evidence.seconds)
        return replace(self, case=replace(self.case, evidence=evidence))

    def __post_init__(self) -> None:
        self._hold(expectations(self.probe.expect), f"{self.probe.position}: probe {self.probe.name!r}")


class StepVerdict(_Judged, frozen=True, kw_only=True):
    """All verdicts on one step's own expectations: of streams, and of connection tracking.

    Attributes:
        case: the step and its evidence.

    Raises:
        InternalError: if an expectation of the step has no verdict.
    """

    case: StepCase

    @property
    def step(self) -> Step:
        """With what the author expects."""
        return self.case.step

    @property
    def written(self) -> Step:
        """What the author wrote, with its name and position."""
        return self.case.step

    @property
    def number(self) -> int:
        """The number of the step, from 1."""
        return self.case.number

    @property
    def seconds(self) -> float:
        return (self.case.evidence.ended - self.case.evidence.began) / 1e9

    @property
    def evidence(self) -> StepEvidence:
        return self.case.evidence

    @property
    def overall(self) -> Judgement:
        """The worst of its verdicts. What the mode lacks decides only where it lacks everything."""
        judged = frozenset(verdict.judgement for verdict in self.verdicts)
        return worst(judged - {Judgement.SKIP} or judged)

    def __post_init__(self) -> None:
        self._hold(step_expectations(self.step.expect), f"{self.step.position}: step {self.step.name!r}")


class Skip(Struct, frozen=True):
    """Why a scenario did not run: what the machine lacks, and what to do about it."""

    missing: str
    cure: str


class Fault(Struct, frozen=True):
    """The error that kept a scenario from being judged: the message of a ``LabError`` and its exit code."""

    exit_code: ExitCode
    message: str


class KnownFailure(Struct, frozen=True):
    """An engine failure that ``spec.except`` foresees: the reason, the engine's own line, and where it is foreseen."""

    because: str
    said: str
    position: Position

    def __str__(self) -> str:
        return f"the engine fails as {self.position} foresees: {self.because}; it logged {self.said!r}"


def on_kernel(engine: str, kernel: str) -> str:
    """The engine's name; with the kernel's, if it is not the machine's."""
    return engine if kernel == HOST else f"{engine} on {kernel}"


class ScenarioResult(Struct, frozen=True, kw_only=True):
    """One scenario on one engine. With ``skipped`` or ``fault``, ``probes`` holds the earlier ones.

    Attributes:
        file: as the user named it.
        name: the scenario's ``metadata.name``.
        engine: as ``--engine`` spells it.
        kernel: as ``--kernel`` spells it.
        release: of that kernel, as uname prints it; empty if no lab was built.
        binary: that ran as the proxy; ``None`` for an embedded engine.
        probes: in the order of the file.
        steps: those with expectations of their own, in the same order.
        seconds: the whole scenario, from the first namespace to the last.
        skipped: what the machine lacks for it.
        fault: the error that ended it.
        foreseen: the engine failure that the scenario foresees; a pass.
        case: the id of its case, where it has a matrix.
        tags: the scenario's.
        description: the scenario's.
        rules: which of the proxies' rules its probes met; ``None`` where the run does not ask.
    """

    file: str
    name: str
    engine: str
    kernel: str = HOST
    release: str = ""
    binary: BinaryIdentity | None = None
    probes: tuple[ProbeVerdict, ...] = ()
    steps: tuple[StepVerdict, ...] = ()
    seconds: float = 0.0
    skipped: Skip | None = None
    fault: Fault | None = None
    foreseen: KnownFailure | None = None
    case: str = ""
    tags: tuple[str, ...] = ()
    description: str = ""
    rules: RuleCoverage | None = None

    @property
    def engine_on_kernel(self) -> str:
        """The engine, and the kernel if it is not the machine's: ``embedded/iptables on uml``."""
        return on_kernel(self.engine, self.kernel)

    @property
    def judged(self) -> tuple[ProbeVerdict | StepVerdict, ...]:
        """Its probes, then its steps."""
        return (*self.probes, *self.steps)

    @property
    def overall(self) -> Judgement | None:
        """The worst of its probes and steps; a fault is a fail; ``None`` where nothing was selected."""
        if self.fault is not None:
            return Judgement.FAIL
        judgements = {each.overall for each in self.judged}
        if self.skipped is not None:
            judgements.add(Judgement.SKIP)
        if self.foreseen is not None:
            judgements.add(Judgement.PASS)
        return worst(frozenset(judgements)) if judgements else None


def expectations(expect: Expect) -> tuple[str, ...]:
    """The YAML keys of what is expected, ``outcome`` first. ``http`` and ``error`` need none, ``proves`` no verdict.

    ``also`` has one where the promises leave open what must happen.
    """
    is_whole = expect.http is not None or expect.error is not None or bool(expect.undecided)
    needs_none = is_whole and "outcome" not in expect.positions
    without = {"outcome", "proves"} if expect.undecided else {"outcome", "proves", "also"}
    return (*(() if needs_none else ("outcome",)), *(key for key in _keys(expect) if key not in without))


def step_expectations(expect: StepExpect) -> tuple[str, ...]:
    """The expectations of a step: ``STREAM.KEY`` for each key of each stream, ``conntrack``, and ``metrics``."""
    of_streams = (f"{name}.{key}" for name, each in expect.streams.items() for key in _keys(each))
    whole = (("conntrack", expect.conntrack), ("metrics", expect.metrics))
    return (*of_streams, *(key for key, expected in whole if expected))


def _keys(expect: Expect | StreamExpect) -> list[str]:
    """The keys that the author filled in."""
    return [key.alias for key in declared_keys(type(expect)) if getattr(expect, key.name) is not None]
