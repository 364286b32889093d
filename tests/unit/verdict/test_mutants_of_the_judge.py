"""Mistakes in the judge itself, made on its syntax tree: each turns a unit test red, or is proven to change nothing.

``tests/unit/engines/test_code_mutants.py`` does the same for the engine, with mistakes that people wrote down.
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

MODULES: Final = [
    str(each.relative_to(LAB))
    for each in (*sorted(LAB.glob("verdict/**/*.py")), LAB / "traffic/match.py", *sorted(LAB.glob("evidence/*.py")))
]
TESTS: Final = TriedTests(
    paths=[
        "tests/golden/test_report_texts.py",
        "tests/unit/features/bench/test_figures.py",
        "tests/unit/features/diagnose",
        "tests/unit/engines/test_ipvs.py",
        "tests/unit/engines/test_ipvs_dumps.py",
        "tests/unit/report",
        "tests/unit/traffic",
        "tests/unit/verdict",
    ],
    left_out=Path(__file__),
    of_checkout="tests/unit/verdict/test_walk.py",
)
SHARE: Final = 0.0225
SHARE_OF_CAUSES: Final = 0.002
"""Of all mistakes that the judge may have, this share is tried, and one at least of each module. The causes behind
``why:`` decide no verdict."""

EQUIVALENT: Final[Sequence[Mapping[str, str]]] = yaml.safe_load(
    Path(__file__).with_name("equivalent_mutants.yaml").read_text(encoding="utf-8")
)
"""Mistakes proven to change nothing. ``within``, a part of the function around it, tells equal ones apart."""


def is_equivalent(mutant: SyntaxMutant) -> bool:
    return any(is_row_of(row, mutant) for row in EQUIVALENT)


@cache
def of_the_judge() -> Mapping[str, list[SyntaxMutant]]:
    return {module: list(syntax_mutants((LAB / module).read_text(encoding="utf-8"))) for module in MODULES}


def chosen() -> list[Mistake]:
    """By what the mistakes are, not by their place: so a change elsewhere in the judge leaves the choice as it is."""
    found: list[Mistake] = []
    for module, mutants in of_the_judge().items():
        share = SHARE_OF_CAUSES if "causes" in module else SHARE
        few = [each for each in mutants if each.rank < share]
        few = few or sorted(mutants, key=lambda each: each.rank)[:1]
        found += [Mistake(module, each) for each in few]
    return found


def test_a_hundred_mistakes_are_tried_and_some_in_every_module_with_code() -> None:
    found = chosen()
    assert len(found) >= 100
    assert {each.module for each in found} == {module for module, mutants in of_the_judge().items() if mutants}


@pytest.mark.thorough
@pytest.mark.timeout(6000)
def test_no_mistake_in_the_judge_goes_unnoticed(tmp_path: Path) -> None:
    tried = chosen()
    told = list(zip(tried, TESTS.notice(tried, tmp_path), strict=True))
    assert "\n".join(str(each) for each, is_so in told if not is_so and not is_equivalent(each.mutant)) == ""
    wrong = (each for each, is_so in told if is_so and is_equivalent(each.mutant))
    assert "\n".join(map(str, wrong)) == "", "the list calls them equivalent"


@pytest.mark.thorough
def test_a_copy_of_the_judge_without_a_mistake_passes(tmp_path: Path) -> None:
    texts = {module: ast.unparse(ast.parse((LAB / module).read_text(encoding="utf-8"))) for module in MODULES}
    passes, output = TESTS.passes_on_copy(texts, tmp_path)
    assert passes, output


@pytest.mark.thorough
def test_each_mistake_that_changes_nothing_is_one_of_the_judge() -> None:
    mutants = [each for of_module in of_the_judge().values() for each in of_module]
    assert [row for row in EQUIVALENT if not any(is_row_of(row, each) for each in mutants)] == []
