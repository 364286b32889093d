"""A probe that names a promise of Kubernetes turns red where the promise is broken, as ``proxylab semantics`` says."""

from collections.abc import Iterator

import pytest
from broken_modes import BROKEN_MODES
from broken_promises import BROKEN_PROMISES, BrokenPromise
from mutant_record import compare, failures, recorded
from mutated_labs import MutatedLabs
from mutation import Mutation
from narrow_defects import NARROW_DEFECTS
from sandboxed import ROOT
from second_defects import SECOND_DEFECTS

EVERY = (*BROKEN_PROMISES, *BROKEN_MODES, *NARROW_DEFECTS, *SECOND_DEFECTS)
ROWS = [pytest.param(row, file, id=f"{row.name}: {file}") for row in EVERY for file in row.files]


@pytest.fixture(scope="module")
def labs_of(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, MutatedLabs]]:
    """Labs by their engine, which must be tested one after another."""
    engines = {row.engine for row in EVERY}
    made = {engine: MutatedLabs(tmp_path_factory.mktemp("mutated"), engine) for engine in engines}
    yield made
    for labs in made.values():
        labs.close()


@pytest.mark.thorough  # that each scenario can fail, test_breakages shows
@pytest.mark.parametrize(("row", "file"), ROWS)
def test_a_probe_turns_red_where_its_promise_is_broken(
    row: BrokenPromise, file: str, labs_of: dict[str, MutatedLabs]
) -> None:
    path = ROOT / "scenarios" / f"{file}.lab.yaml"
    mutation = Mutation(row.module, row.attribute, row.becomes)
    failed = failures([each for _, judged in labs_of[row.engine].run([path], mutation) for each in judged])
    assert failed
    compare(row.name, row.engine, {file: failed})


def test_the_record_has_every_broken_promise() -> None:
    written = {(each.mutation, each.engine): {*each.red} for each in recorded()}
    due = {(row.name, row.engine): {*row.files} for row in EVERY}
    assert {key: written.get(key) for key in due} == due
