"""Mistakes in the oracle itself, made on its syntax tree: each turns a test red, or is proven to change nothing.

``tests/unit/verdict/test_mutants_of_the_judge.py`` does the same for the judge.
"""

import ast
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Final

import pytest
import yaml
from mutated_code import LAB
from syntax_mutants import SyntaxMutant, syntax_mutants
from tried_mutants import Mistake, TriedTests, is_row_of

MODULES: Final = [str(each.relative_to(LAB)) for each in sorted(LAB.glob("oracle/*.py"))]
TESTS: Final = TriedTests(
    paths=["tests/unit/oracle", "tests/unit/features/expected"],
    first=[
        f"tests/unit/oracle/test_{name}.py"
        for name in (
            "conformance_list",
            "details",
            "documents",
            "families_and_addresses",
            "nodes_that_differ",
            "promised",
            "topology_cases",
            "weakest",
        )
    ],
    left_out=Path(__file__),
)
SHARE: Final = 0.12
"""Of all mistakes that the oracle may have, this share is tried, and one at least of each module."""

EQUIVALENT: Final[Sequence[Mapping[str, str]]] = yaml.safe_load(
    Path(__file__).with_name("equivalent_mutants.yaml").read_text(encoding="utf-8")
)
"""Mistakes proven to change nothing."""


def is_equivalent(mutant: SyntaxMutant) -> bool:
    return any(is_row_of(row, mutant) for row in EQUIVALENT)


@cache
def of_the_oracle() -> Mapping[str, list[SyntaxMutant]]:
    return {module: list(syntax_mutants((LAB / module).read_text(encoding="utf-8"))) for module in MODULES}


def chosen() -> list[Mistake]:
    """By what the mistakes are, not by their place: so a change elsewhere leaves the choice as it is."""
    found: list[Mistake] = []
    for module, mutants in of_the_oracle().items():
        few = [each for each in mutants if each.rank < SHARE] or sorted(mutants, key=lambda each: each.rank)[:1]
        found += [Mistake(module, each) for each in few]
    return found


def test_sixty_mistakes_are_tried_and_some_in_every_module_with_code() -> None:
    found = chosen()
    assert len(found) >= 60
    assert {each.module for each in found} == {module for module, mutants in of_the_oracle().items() if mutants}


def test_each_mistake_that_changes_nothing_is_one_of_the_oracle() -> None:
    mutants = [each for of_module in of_the_oracle().values() for each in of_module]
    assert [row for row in EQUIVALENT if not any(is_row_of(row, each) for each in mutants)] == []
    assert [row for row in EQUIVALENT if not row["proof"].endswith(".")] == []


@pytest.mark.thorough
@pytest.mark.timeout(6000)
def test_no_mistake_in_the_oracle_goes_unnoticed(tmp_path: Path) -> None:
    tried = [each for each in chosen() if not is_equivalent(each.mutant)]
    told = zip(tried, TESTS.notice(tried, tmp_path), strict=True)
    assert "\n".join(str(each) for each, is_so in told if not is_so) == ""
    wrong = (each for each, is_so in told if is_so and is_equivalent(each.mutant))
    assert "\n".join(map(str, wrong)) == "", "the list calls them equivalent"


@pytest.mark.thorough
def test_a_copy_of_the_oracle_without_a_mistake_passes(tmp_path: Path) -> None:
    texts = {module: ast.unparse(ast.parse((LAB / module).read_text(encoding="utf-8"))) for module in MODULES}
    passes, output = TESTS.passes_on_copy(texts, tmp_path)
    assert passes, output
