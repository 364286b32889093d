"""Which scenario noticed which mutant of a rule or of an object: the records, their JSON document and their text.

``proxylab mutate`` runs the mutants (``proxylab.features.mutate.runs``), and keeps these records in its state file.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Final

from proxylab.encoding import Record, TaggedRecord
from proxylab.evidence.words import amount
from proxylab.text import WIDTH, wrapped


class Baseline(TaggedRecord, frozen=True, kw_only=True):
    """One case of a scenario without a mutation.

    Attributes:
        file: of the scenario, as the user named it.
        trouble: what did not pass, or what the machine lacks; empty if all passed.
        seconds: how long it took.
        met: the beginnings of the classes of rules that its packets met.
    """

    file: str
    case: str
    trouble: str = ""
    seconds: float = 0.0
    met: tuple[str, ...] = ()


class Noticed(Record, frozen=True):
    """The probe or step that did not pass with a mutant.

    ``judgement`` is ``fail``, ``inconclusive``, or ``error`` where a step could not be made.
    """

    file: str
    item: str
    judgement: str


class Mutant(TaggedRecord, frozen=True, kw_only=True):
    """One change to all rules of a class, or to a field of all objects that the proxies are shown.

    Attributes:
        engine: as ``--engine`` spells it.
        rule_class: the rule without names, addresses and numbers; of objects the field.
        rule: an example of the class, as the engine loads it; of objects the name of one.
        of_objects: whether it is one of objects.
        noticed: ``None`` if nothing did.
        equivalent: why no packet can tell the mutant from the rule or object; empty without a proof.
    """

    engine: str
    rule_class: str
    mutation: str
    rule: str
    of_objects: bool = False
    suggestion: str = ""
    noticed: Noticed | None = None
    equivalent: str = ""

    @property
    def survives(self) -> bool:
        """Whether it should have been noticed, and was not."""
        return self.noticed is None and not self.equivalent


def mutants_to_json(mutants: Iterable[Mutant]) -> str:
    """The document of ``proxylab mutate -o json``: a list of objects."""
    return json.dumps([_document(each) for each in mutants], indent=2, ensure_ascii=False)


def _document(mutant: Mutant) -> Mapping[str, Any]:
    noticed = mutant.noticed
    return {
        "engine": mutant.engine,
        "class": mutant.rule_class,
        "mutation": mutant.mutation,
        "rule": mutant.rule,
        "noticed": noticed and {"file": noticed.file, "item": noticed.item, "judgement": noticed.judgement},
        "equivalent": mutant.equivalent or None,
        "suggestion": mutant.suggestion if mutant.survives else None,
    }


_INDENT: Final = "  "
_REST: Final = 2 * _INDENT


def mutant_lines(mutants: Sequence[Mutant], scenarios: int, width: int = WIDTH) -> Iterator[str]:
    """The report: each class with its mutants, then those that nothing noticed, and the totals."""
    for rule_class, of_class in groupby(mutants, lambda each: each.rule_class):
        yield from wrapped(rule_class, rest=_REST, width=width)
        for each in of_class:
            yield from wrapped(_fate(each), f"{_INDENT}{each.mutation}: ", _REST, width=width)
    survivors = [each for each in mutants if each.survives]
    for each in survivors:
        yield ""
        yield from wrapped(f"nothing noticed: {each.mutation}", width=width)
        words = ("field", "object") if each.of_objects else ("class", "rule")
        for name, text in zip((*words, "missing"), (each.rule_class, each.rule, each.suggestion), strict=True):
            yield from wrapped(text, f"{_INDENT}{name:<8}", width=width)
    equivalent = sum(bool(each.equivalent) for each in mutants)
    noticed = sum(each.noticed is not None for each in mutants)
    number = len({each.rule_class for each in mutants})
    classes = f"{number} class{'es' * (number != 1)} of rules"
    if any(each.of_objects for each in mutants):
        classes = amount(number, "field")
    yield ""
    yield (
        f"{amount(len(mutants), 'mutant')} of {classes}, on "
        f"{amount(scenarios, 'scenario')}: {noticed} noticed, {equivalent} equivalent, {len(survivors)} not noticed"
    )


def _fate(mutant: Mutant) -> str:
    if mutant.noticed is not None:
        how = "" if mutant.noticed.judgement == "fail" else f" ({mutant.noticed.judgement})"
        return f"noticed by {mutant.noticed.file}: {mutant.noticed.item}{how}"
    return f"equivalent: {mutant.equivalent}" if mutant.equivalent else "nothing noticed it"
