"""The record of which mutant turned which probes red, ``scenarios/mutations.json``: read by ``proxylab semantics``.

Each test that runs a mutant compares what it sees with the record. ``LAB_RECORD=write`` writes what it sees instead;
an entry that exists keeps only what fails again, so delete it after a change:

    LAB_RECORD=write ./dev pytest tests/kernel -n 0 -k 'mutant or turns_red'

A mutant of rules or objects has no other table than the record. To add one, write an entry with its ``class``,
``mutation`` and ``engine``, as ``proxylab mutate -o json`` prints them, with ``"objects": true`` for one of objects,
and with ``"red": {"FOLDER/SCENARIO": {}}``; then let the command above fill it in.
"""

import json
import os
from collections.abc import Iterable, Mapping, Set

from msgspec import to_builtins
from msgspec.structs import replace
from mutated_labs import Judged, name_of
from sandboxed import ROOT

from proxylab.engines.embedded.mutation import Mutation
from proxylab.features.semantics.promise_coverage import RecordedMutant, read_mutants
from proxylab.mutate.objects import ObjectMutation
from proxylab.verdict.model import Judgement

__all__ = ["RECORD", "Failed", "compare", "defect_of", "failures", "recorded"]

RECORD = ROOT / "scenarios" / "mutations.json"

Failed = Mapping[str, Mapping[str, Set[str]]]
"""By file and item without the case of the matrix: the expectations that failed in some case."""


def failures(verdicts: Iterable[Judged]) -> dict[str, set[str]]:
    """The items that do not pass, with the expectations that fail."""
    found: dict[str, set[str]] = {}
    for each in verdicts:
        if each.overall not in (Judgement.PASS, Judgement.SKIP):
            failed = {one.expectation for one in each.verdicts if one.judgement is Judgement.FAIL}
            found.setdefault(name_of(each), set()).update(failed)
    return found


def recorded() -> tuple[RecordedMutant, ...]:
    return read_mutants(RECORD.read_bytes())


def defect_of(mutant: RecordedMutant) -> Mutation | ObjectMutation:
    """What labs get for a mutant that ``proxylab mutate`` makes."""
    assert mutant.rule_class, mutant
    made = ObjectMutation if mutant.objects else Mutation
    return made(mutant.rule_class, mutant.mutation)


def compare(mutant: RecordedMutant, seen: Failed, by_chance: Set[str] = frozenset()) -> None:
    """Every expectation that the record says to fail with this mutant fails: what it says is a proof.

    Of a step with streams, only that it fails is compared: which expectation of a stream fails depends on the moment
    at which its packets meet the change.
    """
    written = {_key(each): each for each in recorded()}
    due = written[_key(mutant)].red if _key(mutant) in written else {}
    found = {
        file: {item: tuple(sorted(failed)) for item, failed in sorted(red.items()) if item not in by_chance}
        for file, red in seen.items()
    }
    if os.environ.get("LAB_RECORD") == "write":
        assert "PYTEST_XDIST_WORKER" not in os.environ, (
            f"several workers overwrite each other's {RECORD.name}; use -n 0"
        )
        certain = {file: _in_both(items, due.get(file, {})) for file, items in found.items()}
        red = {file: items for file, items in sorted({**due, **certain}.items()) if items}
        written[_key(mutant)] = replace(mutant, red=red)
        _write(written.values())
        return
    wrong = {
        f"{file}: {item}": sorted({*failed} - {*found[file].get(item, ())})
        for file in found
        for item, failed in due.get(file, {}).items()
        if item not in found[file] or not {each for each in failed if not _of_a_stream(each)} <= {*found[file][item]}
    }
    assert not wrong, f"LAB_RECORD=write makes {RECORD.name} say what this mutant turns red: {wrong}"


def _key(mutant: RecordedMutant) -> tuple[str, str, str]:
    return mutant.rule_class, mutant.mutation, mutant.engine


def _of_a_stream(expectation: str) -> bool:
    return "." in expectation  # as in "queries[ipv6].lost"


def _in_both(found: Mapping[str, tuple[str, ...]], known: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    """What failed in this run and in those before: a second run takes out what fails by chance."""
    return {item: tuple(one for one in failed if one in known.get(item, failed)) for item, failed in found.items()}


def _write(mutants: Iterable[RecordedMutant]) -> None:
    entries = [to_builtins(each) for each in sorted(mutants, key=_key) if each.red]
    RECORD.write_text(json.dumps(entries, indent=1) + "\n", encoding="utf-8")
