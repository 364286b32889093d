"""Which probes show what Kubernetes promises, as text and JSON: the table of ``proxylab semantics``.

A probe shows a promise if its own expectation names it (``expect.proves``) and if a mutant of the promise turned it
red: a defect in the engine or in the configuration with which an expectation failed that the promise is about. A
record in the catalogue, ``mutations.json``, says which mutant turned which probes red. The tests that run the mutants
write it and compare it with what they see.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final

from msgspec import Struct, field
from msgspec.structs import asdict

from proxylab.cluster.configuration import Mode
from proxylab.encoding import decode
from proxylab.evidence.words import amount
from proxylab.scenario.cases import cases
from proxylab.scenario.model import Scenario
from proxylab.scenario.promises import Promise, promises
from proxylab.scenario.versions import Version
from proxylab.text import wrapped


class RecordedMutant(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A defect, and what turned red with it: by file of the catalogue and item, the expectations that failed.

    An item is a probe or a step by its name without the case of the matrix; a step's probe has the step's name before
    its own, as in a report.

    Attributes:
        rule_class: of a mutant that ``proxylab mutate`` makes its class of rules, or its field, as ``-o json`` prints
            it; empty for any other defect.
        mutation: the change to it, or the defect in words.
        objects: whether it is a mutant of objects.
        engine: as ``--engine`` spells it.
        setting: the text of a scenario that another one replaced, in place of a defect of the engine: an engine that
            ignores the setting behaves so.
    """

    rule_class: str = field(default="", name="class")
    mutation: str
    objects: bool = False
    engine: str
    setting: str = ""
    red: Mapping[str, Mapping[str, tuple[str, ...]]]

    @property
    def name(self) -> str:
        """The mutant in one line."""
        return f"{self.rule_class}: {self.mutation}" if self.rule_class else self.mutation

    @property
    def mode(self) -> str:
        """The mode of the proxy that had the defect."""
        return self.engine.rpartition("/")[2]

    def is_of(self, promise: Promise) -> bool:
        """Whether it may break a promise: another value of a setting breaks only what is promised of that setting."""
        words = (promise.field.rpartition(".")[2], promise.value)
        of_setting = any(word and word.lower() in self.setting.lower() for word in words)
        return promise.mode in ("", self.mode) and (of_setting or not self.setting)


class Showing(Struct, frozen=True):
    """A probe or step whose own expectation names a promise, and the mutants of the promise that turned it red."""

    file: str
    item: str
    modes: frozenset[str]
    mutants: tuple[RecordedMutant, ...]


class Coverage(StrEnum):
    """Whether a promise has a probe, and whether a mutant turned that red."""

    PROVEN = "proven"
    NAMED = "named"
    NONE = "none"


_WORDS: Final = {Coverage.PROVEN: "proven", Coverage.NAMED: "named, not proven", Coverage.NONE: "without a probe"}


class Row(Struct, frozen=True):
    """A promise, and the probes that name it."""

    promise: Promise
    showings: tuple[Showing, ...]

    @property
    def coverage(self) -> Coverage:
        """One proven probe is enough."""
        if any(each.mutants for each in self.showings):
            return Coverage.PROVEN
        return Coverage.NAMED if self.showings else Coverage.NONE


def read_mutants(record: bytes) -> tuple[RecordedMutant, ...]:
    """The mutants of a record. Raises ``MisfitError`` if it is of another version of proxylab."""
    return decode(record, tuple[RecordedMutant, ...])


def semantics(
    scenarios: Mapping[str, Scenario], mutants: Sequence[RecordedMutant], version: Version | None = None
) -> tuple[Row, ...]:
    """A row for each promise.

    Args:
        scenarios: as written, by their names in the catalogue.
        mutants: the record.
        version: of the proxy, which decides which exceptions hold.
    """
    named: dict[str, dict[tuple[str, str], set[str]]] = {}
    for file, scenario in scenarios.items():
        for mode in Mode:
            for item, proves in _naming(scenario, mode, version):
                for each in proves:
                    named.setdefault(each, {}).setdefault((file, item), set()).add(mode)
    return tuple(
        Row(
            promise,
            tuple(
                Showing(file, item, frozenset(modes), tuple(_turning_red(promise, file, item, modes, mutants)))
                for (file, item), modes in named.get(promise.id, {}).items()
                if promise.mode in ("", *modes)
            ),
        )
        for promise in promises().values()
    )


def _naming(scenario: Scenario, mode: Mode, version: Version | None) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The items whose expectation in some case of this mode names promises."""
    for case in cases(scenario, mode, version):
        for each in case.judged:
            if each.expect.proves:
                yield each.name.partition("[")[0], each.expect.proves


def _turning_red(
    promise: Promise, file: str, item: str, modes: Iterable[str], mutants: Iterable[RecordedMutant]
) -> Iterator[RecordedMutant]:
    """The mutants with which an expectation failed that the promise is about."""
    for each in mutants:
        failed = {one.rpartition(".")[2] for one in each.red.get(file, {}).get(item, ())}
        if each.mode in modes and each.is_of(promise) and failed & promise.result.shown_by:
            yield each


def counts(rows: Iterable[Row]) -> Counter[Coverage]:
    """The number of rows by their coverage."""
    return Counter(row.coverage for row in rows)


def to_json(rows: Sequence[Row]) -> str:
    """A document of kind ``Semantics``."""
    found = counts(rows)
    document = {
        "apiVersion": "proxylab/v1",
        "kind": "Semantics",
        "counts": {str(each): found[each] for each in Coverage},
        "promises": [_row_document(row) for row in rows],
    }
    return json.dumps(document, indent=2)


def _row_document(row: Row) -> dict[str, Any]:
    probes = [
        {
            "file": each.file,
            "item": each.item,
            "modes": sorted(each.modes),
            "mutants": [{"mutation": one.name, "engine": one.engine} for one in each.mutants],
        }
        for each in row.showings
    ]
    return {**asdict(row.promise), "coverage": str(row.coverage), "probes": probes}


def to_lines(rows: Sequence[Row], width: int) -> list[str]:
    """Each row with its source and its probes; the rows that no probe shows once more at the end, and the counts."""
    lines = [line for row in rows for line in _row_lines(row, width)]
    for coverage in (Coverage.NAMED, Coverage.NONE):
        lacking = [row.promise.id for row in rows if row.coverage is coverage]
        if lacking:
            lines += [
                f"{_WORDS[coverage]}:",
                *(line for each in lacking for line in wrapped(each, "  ", width=width)),
                "",
            ]
    found = counts(rows)
    return [
        *lines,
        f"{amount(len(rows), 'promise')}: " + ", ".join(f"{found[each]} {_WORDS[each]}" for each in Coverage),
    ]


def _row_lines(row: Row, width: int) -> Iterator[str]:
    yield from wrapped(f"{row.promise.id}  ({_WORDS[row.coverage]})", "", "    ", width)
    yield from wrapped(row.promise.text, "  ", width=width)
    yield f"  {row.promise.source}"
    for each in row.showings:
        yield from wrapped(f"{each.file}: {each.item}", "  - ", width=width)
        if each.mutants:
            engines = dict.fromkeys(f"{one.name} ({one.engine})" for one in each.mutants)
            yield from wrapped(f"red for: {'; '.join(engines)}", "    ", width=width)
    yield ""
