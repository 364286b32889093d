"""Mistakes in the oracle itself, made on its syntax tree: each turns a test red, or is proven to change nothing.

``tests/unit/verdict/test_mutants_of_the_judge.py`` does the same for the judge.
"""

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Final

import pytest
import yaml
from mutated_code import LAB, run_on_copy
from syntax_mutants import SyntaxMutant, syntax_mutants

MODULES: Final = [str(each.relative_to(LAB)) for each in sorted(LAB.glob("oracle/*.py"))]
CATALOGUE: Final = (
    "tests/unit/oracle/test_catalogue.py::test_the_oracle_says_what_the_catalogue_expects[iptables-(1, 37)]"
)
TESTS: Final = [
    "tests/unit/oracle/test_weakest.py",
    "tests/unit/oracle/test_promised.py",
    "tests/unit/oracle/test_topology_cases.py",
    "tests/unit/oracle/test_documents.py",
    "tests/unit/oracle/test_conformance_list.py",
    "tests/unit/oracle/test_families_and_addresses.py",
    "tests/unit/features/expected",
    "tests/unit/oracle/test_properties.py",
    "tests/unit/oracle/test_rows.py",
    CATALOGUE,
]
"""The fastest first: a run ends with the first test that is red."""

SHARE: Final = 0.12
"""Of all mistakes that the oracle may have, this share is tried."""

EQUIVALENT: Final[Sequence[Mapping[str, str]]] = yaml.safe_load(
    Path(__file__).with_name("equivalent_mutants.yaml").read_text(encoding="utf-8")
)
"""Mistakes proven to change nothing."""


def is_equivalent(mutant: SyntaxMutant) -> bool:
    return any((row["was"], row["becomes"]) == (mutant.was, mutant.becomes) for row in EQUIVALENT)


@cache
def all_mutants() -> tuple[tuple[str, SyntaxMutant], ...]:
    texts = {module: (LAB / module).read_text(encoding="utf-8") for module in MODULES}
    return tuple((module, each) for module, text in texts.items() for each in syntax_mutants(text))


def chosen() -> list[tuple[str, SyntaxMutant]]:
    """By what the mistakes are, not by their place: so a change elsewhere leaves the choice as it is."""
    return [(module, each) for module, each in all_mutants() if each.rank < SHARE]


def test_sixty_mistakes_are_tried() -> None:
    assert len(chosen()) >= 60


def test_each_mistake_that_changes_nothing_is_one_of_the_oracle() -> None:
    known = {(each.was, each.becomes) for _, each in all_mutants()}
    assert [row for row in EQUIVALENT if (row["was"], row["becomes"]) not in known] == []
    assert [row for row in EQUIVALENT if not row["proof"].endswith(".")] == []


@pytest.mark.thorough
@pytest.mark.timeout(3600)
def test_no_mistake_in_the_oracle_goes_unnoticed(tmp_path: Path) -> None:
    def goes_unnoticed(number: int, module: str, mutant: SyntaxMutant) -> bool:
        status, output = run_on_copy({module: mutant.module}, TESTS, tmp_path / str(number))
        assert status in {pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.INTERRUPTED}, output
        return status == pytest.ExitCode.OK

    tried = [(module, each) for module, each in chosen() if not is_equivalent(each)]
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        alive = list(pool.map(goes_unnoticed, range(len(tried)), *zip(*tried, strict=True)))
    unnoticed = [each for each, is_so in zip(tried, alive, strict=True) if is_so]
    assert [f"{module}:{each.lines[0]}: {each.was} becomes {each.becomes}" for module, each in unnoticed] == []
