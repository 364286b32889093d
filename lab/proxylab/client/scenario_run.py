"""One scenario on one engine and kernel: its lab, its probes and steps, their evidence, and what became of them.

``proxylab run`` calls ``ScenarioRuns`` for one scenario after the other. The pytest plugin takes probe after probe
from pytest, and shares ``judged`` with it.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from functools import partial
from typing import Any, Final, Protocol, TypeVar

from msgspec import Struct

from proxylab.client.kept_labs import KeptLabs
from proxylab.client.met_rules import MetRules
from proxylab.client.open_lab import OpenLab
from proxylab.client.open_labs import open_or_foresee
from proxylab.client.session import Session
from proxylab.client.tasks import Say
from proxylab.errors import CapabilityError, LabError
from proxylab.scenario.model import Scenario
from proxylab.scenario.probes import Probe
from proxylab.scenario.steps import Step
from proxylab.timing import Deadline
from proxylab.verdict.model import (
    UNRESOLVED,
    Fault,
    KnownFailure,
    ProbeVerdict,
    ScenarioResult,
    Skip,
    StepVerdict,
    on_kernel,
)

_Verdict = TypeVar("_Verdict", bound=ProbeVerdict | StepVerdict)

MORE_TIME: Final = "more time than the run was given"
"""What a scenario lacked that would have begun after the run's deadline."""


class Bundles(Protocol):
    """Keeps the evidence of verdicts: ``client.bundles.BundleStore`` does on disk."""

    def settle(
        self,
        verdict: _Verdict,
        engine: str,
        files: Callable[[], Mapping[str, bytes]],
        warn: Callable[[str], None],
        name: str = "",
    ) -> _Verdict:
        """Keep the evidence of a verdict that did not pass. Returns the verdict, with the place of its evidence."""


class Run(Struct, frozen=True):
    """One lab to come: a scenario or a case of one, its engine and kernel, and which of its probes and steps run.

    ``source`` is the scenario's text, if its file is not on this machine.
    """

    engine: str
    kernel: str
    scenario: Scenario
    chosen: Sequence[Probe | Step] = ()
    source: str = ""

    @property
    def engine_on_kernel(self) -> str:
        """The engine, and the kernel if it is not the machine's."""
        return on_kernel(self.engine, self.kernel)


def judged(
    lab: OpenLab,
    each: Probe | Step,
    store: Bundles | None,
    warn: Say,
    *,
    name: str = "",
    trace: bool = False,
) -> ProbeVerdict | StepVerdict:
    """The verdict on a probe or step, with its evidence saved if it did not pass. Raises ``LabError``.

    Args:
        lab: of its scenario.
        each: the probe to send, or the step to make and end.
        store: where the evidence goes; ``None`` saves none.
        warn: receives the reason if the evidence cannot be saved.
        name: the run's name for the probe, where that is more than its own name.
        trace: trace one more packet of a probe that passed, too.
    """
    verdict = lab.conclude(each) if isinstance(each, Step) else lab.probe(each, trace=trace)
    if store is None:
        return verdict
    return store.settle(verdict, on_kernel(lab.engine.name, lab.engine.kernel), lambda: lab.bundle(verdict), warn, name)


class ScenarioRuns:
    """Runs scenarios one after the other, on the sessions that ``sessions`` returns for the names of engines.

    After a probe or step that did not pass, ``hold`` lets the user look at the lab, and ``kept_labs`` keeps it. No
    scenario begins after ``until``. With ``rule_coverage``, a result says which rules its probes met. Unless
    ``keep_passed``, a result has no packets of probes that passed.
    """

    def __init__(
        self,
        sessions: Callable[[str], Session],
        *,
        trace: bool = False,
        store: Bundles | None = None,
        kept_labs: KeptLabs | None = None,
        hold: Callable[[OpenLab, ProbeVerdict | StepVerdict], None] | None = None,
        until: Deadline | None = None,
        rule_coverage: bool = False,
        keep_passed: bool = True,
    ) -> None:
        self._sessions = sessions
        self._rule_coverage = rule_coverage
        self._keep_passed = keep_passed
        self._until = until
        self._trace = trace
        self._store = store
        self._kept_labs = kept_labs
        self._hold = hold

    def result(self, run: Run, at: Say, note: Say) -> ScenarioResult:
        """Run one scenario; an error becomes a part of its result.

        Args:
            run: what to run.
            at: receives what runs now, before each probe and step.
            note: receives remarks for the user.
        """
        if self._until is not None and self._until.passed:
            return _result(run, skipped=Skip(MORE_TIME, "give it more minutes"))
        _announce(run, at, note)
        begin = time.monotonic()
        verdicts: list[ProbeVerdict | StepVerdict] = []
        ended: dict[str, Any] = {}
        rules = MetRules() if self._rule_coverage else None
        try:
            with ExitStack() as stack:
                lab: OpenLab | None = None
                for each in run.chosen:
                    at(f"{run.scenario.file} [{run.engine_on_kernel}] {each.name}")
                    session = self._sessions(run.engine)
                    ended["binary"] = session.engine.binary
                    if known := session.unshown(run.scenario, each):
                        verdicts.append(known)
                        continue
                    if lab is None or not lab.is_open:
                        build = partial(session.open, kernel=run.kernel, source=run.source)
                        opened = open_or_foresee(build, run.scenario)
                        if isinstance(opened, KnownFailure):
                            ended["foreseen"] = opened
                            break
                        lab = stack.enter_context(closing(opened))
                        ended["release"] = lab.built.kernel
                    verdicts.append(self._judged(lab, each, note))
                    if rules is not None:
                        rules.note(lab, verdicts[-1])
                    if verdicts[-1].overall in UNRESOLVED:
                        self._look(lab, verdicts[-1], note)
        except CapabilityError as error:
            ended["skipped"] = Skip(error.missing, error.cure)
        except LabError as error:
            ended["fault"] = Fault(error.exit_code, str(error))
        return _result(
            run,
            probes=tuple(self._kept(each) for each in verdicts if isinstance(each, ProbeVerdict)),
            steps=tuple(each for each in verdicts if isinstance(each, StepVerdict)),
            seconds=time.monotonic() - begin,
            rules=rules and rules.coverage(),
            **ended,
        )

    def _judged(self, lab: OpenLab, each: Probe | Step, note: Say) -> ProbeVerdict | StepVerdict:
        """The verdict; a skip for a probe that this machine cannot send, since it may send the next one. Raises."""
        try:
            return judged(lab, each, self._store, note, trace=self._trace)
        except CapabilityError as error:
            if isinstance(each, Step) or not lab.is_open or lab.made != lab.scenario.steps_before(each):
                raise
            return lab.left_out(each, f"needs {error.missing}; {error.cure}")

    def _kept(self, verdict: ProbeVerdict) -> ProbeVerdict:
        """What of a verdict the result has."""
        is_whole = self._keep_passed or verdict.overall in UNRESOLVED
        return verdict if is_whole else verdict.without_packets()

    def _look(self, lab: OpenLab, verdict: ProbeVerdict | StepVerdict, note: Say) -> None:
        """Let the user look at the lab of a probe or step that did not pass. The next probe gets a new one."""
        if self._hold is not None:
            self._hold(lab, verdict)
        if self._kept_labs is not None:
            name, probe = (
                (verdict.probe.name, verdict.probe) if isinstance(verdict, ProbeVerdict) else (verdict.step.name, None)
            )
            note("\n".join([f"{name}:", *self._kept_labs.keep(lab, probe)]))
        elif self._hold is not None:
            lab.connection.close()  # the user may have changed anything in it


def _announce(run: Run, at: Say, note: Say) -> None:
    """Print the scenario's notes, and how many of its probes run."""
    scenario = run.scenario
    at(scenario.file)
    if len(run.chosen) < len(scenario.judged):
        what = "probes and steps" if len(scenario.judged) > len(scenario.all_probes) else "probes"
        note(f"{scenario.file}: {len(run.chosen)} of {len(scenario.judged)} {what}")
    for each in scenario.notes:
        note(f"{scenario.file}: {each}")


def ended_early(run: Run, error: LabError) -> ScenarioResult:
    """The result of a scenario whose process ended before it could tell."""
    return _result(run, fault=Fault(error.exit_code, str(error)))


def _result(run: Run, **found: Any) -> ScenarioResult:
    scenario = run.scenario
    return ScenarioResult(
        file=scenario.file,
        name=scenario.name,
        engine=run.engine,
        kernel=run.kernel,
        case=scenario.case.id,
        tags=scenario.tags,
        description=scenario.description,
        **found,
    )
