"""Mistakes in the engine's own code: each turns a unit test red, or changes nothing and says why.

``tests/kernel/test_recorded_mutants.py`` does the same for rules and objects, with scenarios.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from mutated_code import LAB, Mutant, survives

UNIT = Path(__file__).parents[1]
WRITTEN = yaml.safe_load(Path(__file__).with_name("code_mutants.yaml").read_text(encoding="utf-8"))


def mutants() -> Iterator[Any]:
    for module, rows in WRITTEN.items():
        tests = tuple(str(UNIT / each) for each in rows["tests"])
        for number, row in enumerate(rows["mutants"], 1):
            mutant = Mutant(module, row["old"], row["new"])
            yield pytest.param(mutant, tests, "equivalent" in row, id=f"{module.replace('/', '.')}-{number}")


@pytest.mark.parametrize("module", WRITTEN)
def test_what_a_mistake_replaces_stands_in_the_code_once(module: str) -> None:
    text = (LAB / module).read_text(encoding="utf-8")
    assert [row["old"] for row in WRITTEN[module]["mutants"] if text.count(row["old"]) != 1] == []


@pytest.mark.thorough
@pytest.mark.parametrize(("mutant", "tests", "equivalent"), list(mutants()))
def test_a_mistake_in_the_code_is_noticed(
    mutant: Mutant, tests: tuple[str, ...], equivalent: bool, tmp_path: Path
) -> None:
    assert survives(mutant, tests, tmp_path) is equivalent
