"""Runs scenarios on mutated rules, until a probe or step of one notices each mutant (``proxylab mutate``).

A case first runs without a mutation: only where everything passes can it notice one. Then each mutant runs in the case
that is most likely to notice it, and in others that have rules of its class, until a verdict is red. The engine loads
the mutated rules itself, so that they stay through all steps.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from time import monotonic

from msgspec import Struct
from msgspec.structs import replace

from proxylab.client.open_lab import OpenLab
from proxylab.client.rendered_rules import rendered_rules
from proxylab.client.session import Session
from proxylab.engines.embedded.equivalents import proof_of
from proxylab.engines.embedded.mutation import MutantLines, Mutation
from proxylab.engines.engine_names import mode_of
from proxylab.engines.modes import MODES
from proxylab.errors import CapabilityError, EngineError, InternalError, LabError, ProgramError
from proxylab.plan.assembly import assemble
from proxylab.report.mutants import Baseline, Mutant, Noticed
from proxylab.scenario.model import Scenario
from proxylab.scenario.steps import Step
from proxylab.verdict.model import Judgement, ProbeVerdict, StepVerdict

__all__ = ["MutantRuns", "RuledCase", "mutants_of", "ruled"]


class RuledCase(Struct, frozen=True):
    """A case, and the classes of rules that the engine renders in it, at its beginning or after a step.

    Each class has a rule as an example.
    """

    case: Scenario
    rules: Mapping[str, str]
    baseline: Baseline | None = None


def ruled(case: Scenario, engine: str) -> RuledCase:
    """A case with its classes. Raises ``ScenarioError`` if it cannot be laid out."""
    lines, found = _lines(engine), dict[str, str]()
    assembly = assemble(case)
    for cluster in assembly.timeline:
        for each in rendered_rules(case, assembly.plan, cluster.objects, engine):
            _add_examples(found, zip(lines.classes(each.text), each.text.split("\n"), strict=True), lines)
    return RuledCase(case, found)


def _add_examples(found: dict[str, str], rules: Iterable[tuple[str, str]], lines: MutantLines) -> None:
    """Of each class keep the line with the most mutants: a choice among one endpoint has fewer than one among two."""
    for rule, line in rules:
        if rule and (rule not in found or len(lines.mutants(rule, line)) > len(lines.mutants(rule, found[rule]))):
            found[rule] = line


def mutants_of(cases: Iterable[RuledCase], engine: str) -> Iterator[Mutant]:
    """All mutants of all rules in the cases, in the order of the rules. Those with a proof are equivalent."""
    lines = _lines(engine)
    rules = dict[str, str]()
    for each in cases:
        _add_examples(rules, each.rules.items(), lines)
    for rule, line in sorted(rules.items()):
        for change in lines.mutants(rule, line):
            proof = proof_of(mode_of(engine), rule, change)
            suggestion = lines.suggestion(rule, change)
            yield Mutant(
                engine=engine, rule_class=rule, mutation=change, rule=line, suggestion=suggestion, equivalent=proof
            )


def _lines(engine: str) -> MutantLines:
    return MODES[mode_of(engine)].mutants


class MutantRuns:
    """Runs cases and mutants in one session, and remembers which cases notice mutants of which class."""

    def __init__(self, session: Session, engine: str) -> None:
        self._session = session
        self._lines = _lines(engine)
        self._noticers = Counter[tuple[str, str, str]]()

    def baseline(self, case: Scenario, at: Callable[[str], None]) -> Baseline:
        """Run a case without a mutation."""
        at(f"{case.file}: without a mutation")
        began, met = monotonic(), dict[str, None]()
        found = partial(Baseline, file=case.file, case=case.case.id)
        try:
            with closing(self._session.open(case)) as lab:
                for verdict in _verdicts(lab):
                    if verdict.overall not in (Judgement.PASS, Judgement.SKIP):
                        return found(trouble=f"{_item(verdict)}: {verdict.overall}")
                    if isinstance(verdict, ProbeVerdict):
                        counts = verdict.evidence.counts
                        met |= dict.fromkeys(self._lines.met(each.table, each.chain, each.text) for each in counts)
        except (CapabilityError, EngineError, ProgramError) as error:
            return found(trouble=str(error).partition("\n")[0])
        return found(seconds=monotonic() - began, met=tuple(filter(None, met)))

    def settled(self, mutant: Mutant, cases: Sequence[RuledCase], at: Callable[[str], None]) -> Mutant:
        """The mutant with what noticed it.

        A verdict that fails notices it. An inconclusive one is no proof, and counts only if no other case fails.
        """
        mutation, unsure = Mutation(mutant.rule_class, mutant.mutation), None
        for case in self._most_likely_first(mutation, cases):
            at(f"{mutant.rule_class}: {mutant.mutation}: {case.case.file}")
            try:
                noticed = self._noticed(case.case, mutation)
            except CapabilityError:
                continue
            except _RefusedError as error:
                return replace(mutant, equivalent=f"no kernel loads it: {error}")
            if noticed is not None and noticed.judgement != Judgement.INCONCLUSIVE:
                self._noticers[mutation.rule, case.case.file, case.case.case.id] += 1
                return replace(mutant, noticed=noticed)
            unsure = unsure or noticed
        return replace(mutant, noticed=unsure)

    def _most_likely_first(self, mutation: Mutation, cases: Sequence[RuledCase]) -> list[RuledCase]:
        """The cases with rules of the class: those whose packets meet them come first, then the quick ones."""

        def key(each: RuledCase) -> tuple[object, ...]:
            baseline = each.baseline or Baseline(file="", case="")
            meets = any(mutation.rule.startswith(beginning) for beginning in baseline.met)
            noticed = self._noticers[mutation.rule, each.case.file, each.case.case.id]
            return not meets, -noticed, baseline.seconds

        return sorted((each for each in cases if mutation.rule in each.rules), key=key)

    def _noticed(self, case: Scenario, mutation: Mutation) -> Noticed | None:
        """The first verdict that fails, or else the first that is inconclusive."""
        unsure, item = None, "the build of the lab"
        try:
            lab = self._session.open(case, mutation=mutation)
        except EngineError as error:
            raise _RefusedError(f"{error.what}: {error.log}") from error
        with closing(lab):
            try:
                for each in case.judged:
                    item = each.name
                    verdict = lab.conclude(each) if isinstance(each, Step) else lab.judged(each)
                    if verdict.overall is Judgement.FAIL:
                        return Noticed(case.file, item, Judgement.FAIL)
                    if verdict.overall is Judgement.INCONCLUSIVE:
                        unsure = unsure or Noticed(case.file, item, Judgement.INCONCLUSIVE)
            except (EngineError, ProgramError):  # what a step waits for did not come
                return Noticed(case.file, item, "error")
            except InternalError:  # says nothing of the mutant
                raise
            except LabError:
                return unsure
        return unsure


class _RefusedError(Exception):
    """The kernel refuses the mutated rules."""


def _verdicts(lab: OpenLab) -> Iterator[ProbeVerdict | StepVerdict]:
    for each in lab.scenario.judged:
        yield lab.conclude(each) if isinstance(each, Step) else lab.judged(each)


def _item(verdict: ProbeVerdict | StepVerdict) -> str:
    return verdict.step.name if isinstance(verdict, StepVerdict) else verdict.probe.name
