"""Runs scenarios with mutants, until a probe or step of one notices each (``proxylab mutate``).

A case first runs without a mutation: only where everything passes can it notice one. Then each mutant runs in the case
that is most likely to notice it, and in others that have such rules or objects, until a verdict is red. An engine loads
mutated rules itself, so that they stay through all steps. Mutants of objects are in what the lab shows to its proxies;
every engine has them, the real ones too.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from time import monotonic

from msgspec import Struct
from msgspec.structs import replace

from proxylab.client.open_lab import OpenLab
from proxylab.client.rendered_rules import rendered_rules
from proxylab.client.session import Session
from proxylab.cluster.configuration import ProxyConfiguration
from proxylab.cluster.objects import KubeObject, Node
from proxylab.engines.embedded.mutation import MutantLines, Mutation
from proxylab.engines.engine_names import mode_of
from proxylab.engines.modes import MODES
from proxylab.errors import CapabilityError, EngineError, InternalError, LabError, ProgramError, ScenarioError
from proxylab.features.mutate.equivalents import proof_of_mutation
from proxylab.features.mutate.mutants import Baseline, Mutant, Noticed
from proxylab.mutate.objects import ObjectMutation, images, mutated_configuration, mutations_of
from proxylab.plan.assembly import assemble
from proxylab.scenario.model import Scenario
from proxylab.scenario.steps import Step
from proxylab.verdict.model import Judgement, ProbeVerdict, StepVerdict


class MutableCase(Struct, frozen=True):
    """A case, and what of it can have a mutant, at its beginning or after a step.

    Attributes:
        rules: the classes of rules that the engine renders in it, each with a rule as an example.
        objects: the mutations of its objects and its configuration, each with an object as an example.
    """

    case: Scenario
    rules: Mapping[str, str]
    objects: Mapping[ObjectMutation, str]
    baseline: Baseline | None = None

    def has(self, mutation: Mutation | ObjectMutation) -> bool:
        """Whether the mutation changes something in it."""
        return mutation.rule in self.rules if isinstance(mutation, Mutation) else mutation in self.objects


def ruled(case: Scenario, engine: str) -> MutableCase:
    """A case with its classes of rules. Raises ``ScenarioError`` if it cannot be laid out."""
    lines, found = _lines(engine), dict[str, str]()
    assembly = assemble(case)
    for cluster in assembly.timeline:
        for each in rendered_rules(case, assembly.plan, cluster.objects, engine):
            _add_examples(found, zip(lines.classes(each.text), each.text.split("\n"), strict=True), lines)
    return MutableCase(case, found, {})


def with_objects(case: Scenario) -> MutableCase:
    """A case with the mutations of its objects. Raises ``ScenarioError`` if it cannot be laid out."""
    timeline = [cluster.objects for cluster in assemble(case).timeline]
    return MutableCase(case, {}, mutations_of(timeline, case.proxy or ProxyConfiguration()))


def _add_examples(found: dict[str, str], rules: Iterable[tuple[str, str]], lines: MutantLines) -> None:
    """Of each class keep the line with the most mutants: a choice among one endpoint has fewer than one among two."""
    for rule, line in rules:
        if rule and (rule not in found or len(lines.mutants(rule, line)) > len(lines.mutants(rule, found[rule]))):
            found[rule] = line


def mutants_of(cases: Iterable[MutableCase], engine: str) -> Iterator[Mutant]:
    """All mutants of all rules in the cases, in the order of the rules. Those with a proof are equivalent."""
    lines = _lines(engine)
    rules = dict[str, str]()
    for each in cases:
        _add_examples(rules, each.rules.items(), lines)
    for rule, line in sorted(rules.items()):
        for change in lines.mutants(rule, line):
            proof = MODES[mode_of(engine)].proof_of(rule, change)
            suggestion = lines.suggestion(rule, change)
            yield Mutant(
                engine=engine, rule_class=rule, mutation=change, rule=line, suggestion=suggestion, equivalent=proof
            )


def object_mutants_of(cases: Iterable[MutableCase], engine: str) -> Iterator[Mutant]:
    """All mutants of all objects in the cases, by field. Those with a proof are equivalent."""
    found: dict[ObjectMutation, str] = {}
    for each in cases:
        found = {**each.objects, **found}
    for mutation, example in sorted(found.items(), key=lambda item: item[0].key):
        yield Mutant(
            engine=engine,
            rule_class=mutation.where,
            mutation=mutation.change,
            rule=example,
            of_objects=True,
            suggestion=f"a probe or step that fails where proxies are shown {mutation.key}",
            equivalent=proof_of_mutation(mutation, mode_of(engine)),
        )


def _lines(engine: str) -> MutantLines:
    return MODES[mode_of(engine)].mutants


class MutantRuns:
    """Runs cases and mutants in one session, and remembers which files notice mutants of which class.

    ``known`` are mutants that earlier calls have settled.
    """

    def __init__(self, session: Session, engine: str, known: Iterable[Mutant] = ()) -> None:
        self._session = session
        self._lines = _lines(engine)
        self._noticers = defaultdict[str, Counter[str]](Counter)
        for each in known:
            if each.noticed is not None:
                self._noticers[each.rule_class][each.noticed.file] += 1
        self._shown: dict[tuple[str, str], bool] = {}

    def baseline(self, case: Scenario, at: Callable[[str], None]) -> Baseline:
        """Run a case without a mutation."""
        at(f"{case.file}: without a mutation")
        began, met = monotonic(), dict[str, None]()
        found = partial(Baseline, file=case.file, case=case.case.id)
        try:
            if not self._shows_anything(case):
                return found()
            with closing(self._session.open(case)) as lab:
                for verdict in _verdicts(lab):
                    if verdict.overall not in (Judgement.PASS, Judgement.SKIP):
                        return found(trouble=f"{verdict.written.name}: {verdict.overall}")
                    if isinstance(verdict, ProbeVerdict):
                        counts = verdict.evidence.counts
                        met |= dict.fromkeys(self._lines.met(each.table, each.chain, each.text) for each in counts)
        except (CapabilityError, EngineError, ProgramError) as error:
            return found(trouble=str(error).partition("\n")[0])
        return found(seconds=monotonic() - began, met=tuple(filter(None, met)))

    def settled(self, mutant: Mutant, cases: Sequence[MutableCase], at: Callable[[str], None]) -> Mutant:
        """The mutant with what noticed it.

        A verdict that fails notices it. An inconclusive one is no proof, and counts only if no other case fails.
        """
        mutation: Mutation | ObjectMutation = Mutation(mutant.rule_class, mutant.mutation)
        if mutant.of_objects:
            mutation = ObjectMutation(mutant.rule_class, mutant.mutation)
        unsure = None
        likely = self._most_likely_first(mutation, mutant.rule_class, cases)
        for case in (
            likely if isinstance(mutation, Mutation) else _with_other_rules_first(mutation, likely, mutant.engine)
        ):
            at(f"{mutant.rule_class}: {mutant.mutation}: {case.case.file}")
            try:
                noticed = self._noticed(case.case, mutation)
            except CapabilityError:
                continue
            except _RefusedError as error:
                return replace(mutant, equivalent=f"no kernel loads it: {error}")
            if noticed is not None and noticed.judgement != Judgement.INCONCLUSIVE:
                self._noticers[mutant.rule_class][case.case.file] += 1
                return replace(mutant, noticed=noticed)
            unsure = unsure or noticed
        return replace(mutant, noticed=unsure)

    def _most_likely_first(
        self, mutation: Mutation | ObjectMutation, of_class: str, cases: Sequence[MutableCase]
    ) -> list[MutableCase]:
        """The cases that have the mutation: those whose packets meet its rules come first, then the quick ones."""

        def key(each: MutableCase) -> tuple[object, ...]:
            baseline = each.baseline or Baseline(file="", case="")
            meets = any(of_class.startswith(beginning) for beginning in baseline.met)
            return not meets, -self._noticers[of_class][each.case.file], baseline.seconds

        having = (each for each in cases if each.has(mutation) and self._shows_anything(each.case))
        return sorted(having, key=key)

    def _shows_anything(self, case: Scenario) -> bool:
        """Whether the engine's mode shows a probe or step of the case: no other can notice a mutant."""
        name = case.file, case.case.id
        if name not in self._shown:
            self._shown[name] = any(self._session.unshown(case, each) is None for each in case.judged)
        return self._shown[name]

    def _noticed(self, case: Scenario, mutation: Mutation | ObjectMutation) -> Noticed | None:
        """The first verdict that fails, or else the first that is inconclusive."""
        unsure, item = None, "the build of the lab"
        try:
            lab = self._open(case, mutation)
        except (EngineError, ScenarioError):  # the latter where a proxy takes the port of another program
            return Noticed(case.file, item, "error")
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

    def _open(self, case: Scenario, mutation: Mutation | ObjectMutation) -> OpenLab:
        """A lab with the mutation. Raises ``_RefusedError`` where the kernel does not load its rules."""
        if isinstance(mutation, ObjectMutation):
            return self._session.open(case, shown=mutation)
        try:
            return self._session.open(case, mutation=mutation)
        except EngineError as error:
            raise _RefusedError(f"{error.what}: {error.log}") from error


def _with_other_rules_first(
    mutation: ObjectMutation, cases: Iterable[MutableCase], engine: str
) -> Iterator[MutableCase]:
    """The cases in which the mutation changes a rule, then the others: a proxy has not only rules."""
    others = []
    for each in cases:
        if _changes_rules(mutation, each.case, engine):
            yield each
        else:
            others.append(each)
    yield from others


def _changes_rules(mutation: ObjectMutation, case: Scenario, engine: str) -> bool:
    """Whether the embedded engine of the mode renders other rules, or none since it refuses the configuration.

    An event that is hidden changes some in a step.
    """
    configuration, assembly = case.proxy or ProxyConfiguration(), assemble(case)
    altered = replace(case, proxy=mutated_configuration(configuration, mutation))
    for cluster in assembly.timeline:
        true = [shown for each in cluster.objects for shown in images(each, mutation, altered=False)]
        false = [shown for each in cluster.objects for shown in images(each, mutation) if _is_there(shown, case)]
        try:
            before, after = (
                [each.text for each in rendered_rules(of, assembly.plan, objects, f"embedded/{mode_of(engine)}")]
                for of, objects in ((case, true), (altered, false))
            )
        except ScenarioError:
            return True
        if before != after:
            return True
    return mutation.is_of_events


def _is_there(thing: KubeObject, case: Scenario) -> bool:
    """Whether it is no Node with a name that no machine of the lab has."""
    return not isinstance(thing, Node) or thing.name in {node.name for node in case.nodes}


class _RefusedError(Exception):
    """The kernel refuses the mutated rules."""


def _verdicts(lab: OpenLab) -> Iterator[ProbeVerdict | StepVerdict]:
    for each in lab.scenario.judged:
        yield lab.conclude(each) if isinstance(each, Step) else lab.judged(each)
