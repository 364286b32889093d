"""Mistakes in the judge itself, made on its syntax tree: each turns a unit test red, or is proven to change nothing.

``tests/unit/engines/test_code_mutants.py`` does the same for the engine, with mistakes that people wrote down.
"""

import ast
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

import pytest
import yaml
from mutated_code import LAB, run_on_copy
from reached_lines import Reached
from syntax_mutants import SyntaxMutant, syntax_mutants

ROOT: Final = Path(__file__).parents[3]
MODULES: Final = [
    str(each.relative_to(LAB))
    for each in (*sorted(LAB.glob("verdict/**/*.py")), LAB / "traffic/match.py", *sorted(LAB.glob("evidence/*.py")))
]
TESTS: Final = [
    "tests/golden/test_report_texts.py",
    "tests/unit/features/diagnose",
    "tests/unit/engines/test_ipvs.py",
    "tests/unit/engines/test_ipvs_dumps.py",
    "tests/unit/report",
    "tests/unit/traffic",
    "tests/unit/verdict",
]
SHARE: Final = 0.0225
SHARE_OF_CAUSES: Final = 0.002
"""Of all mistakes that the judge may have, this share is tried, and one at least of each module. The causes behind
``why:`` decide no verdict."""

FEW: Final = 40
"""So many tests that reach a mistake, and as many of the others, run before all of them: they notice most mistakes."""

EQUIVALENT: Final[Sequence[Mapping[str, str]]] = yaml.safe_load(
    Path(__file__).with_name("equivalent_mutants.yaml").read_text(encoding="utf-8")
)
"""Mistakes proven to change nothing. ``within``, a part of the function around it, tells equal ones apart."""


class Chosen(NamedTuple):
    """A mistake and its module."""

    module: str
    mutant: SyntaxMutant

    @property
    def is_equivalent(self) -> bool:
        return any(is_row_of(row, self.mutant) for row in EQUIVALENT)

    def __str__(self) -> str:
        return f"{self.module}:{self.mutant.lines[0]}: {self.mutant.was}\n  becomes {self.mutant.becomes}"


def is_row_of(row: Mapping[str, str], mutant: SyntaxMutant) -> bool:
    return row["was"] == mutant.was and row["becomes"] == mutant.becomes and row.get("within", "") in mutant.function


@cache
def of_the_judge() -> Mapping[str, list[SyntaxMutant]]:
    return {module: list(syntax_mutants((LAB / module).read_text(encoding="utf-8"))) for module in MODULES}


def chosen() -> list[Chosen]:
    """By what the mistakes are, not by their place: so a change elsewhere in the judge leaves the choice as it is."""
    found: list[Chosen] = []
    for module, mutants in of_the_judge().items():
        share = SHARE_OF_CAUSES if "causes" in module else SHARE
        few = [each for each in mutants if each.rank < share]
        few = few or sorted(mutants, key=lambda each: each.rank)[:1]
        found += [Chosen(module, each) for each in few]
    return found


@pytest.fixture(scope="module")
def reached(tmp_path_factory: pytest.TempPathFactory) -> Reached:
    file = tmp_path_factory.mktemp("reached") / "lines.json"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "reached_lines", "-p", "no:cacheprovider"]
    not_thorough = ["-m", "not thorough and not budget"]
    subprocess.run(
        [*command, *not_thorough, f"--basetemp={file.parent / 'tmp'}", *TESTS],
        cwd=ROOT,
        env={**os.environ, "REACHED_LINES": str(file), "PYTHONPATH": str(ROOT / "tests" / "support")},
        stdout=subprocess.DEVNULL,
        timeout=900,
        check=True,
    )
    return Reached(file)


def test_a_hundred_mistakes_are_tried_and_some_in_every_module_with_code() -> None:
    found = chosen()
    assert len(found) >= 100
    assert {each.module for each in found} == {module for module, mutants in of_the_judge().items() if mutants}


def passes(each: Chosen, tests: Sequence[str], folder: Path) -> bool:
    """Whether all of these tests pass on a judge with the mistake."""
    texts = {each.module: each.mutant.module}
    status, output = run_on_copy(texts, tests, folder) if tests else (pytest.ExitCode.OK, "")
    if status == pytest.ExitCode.USAGE_ERROR:  # a file does not import, or names its tests after what the judge says
        files = sorted({test.partition("::")[0] for test in tests})
        status, output = run_on_copy(texts, files, folder / "by-file")
    assert status in {pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.INTERRUPTED}, output
    return status == pytest.ExitCode.OK


@pytest.mark.thorough
@pytest.mark.timeout(3600)
def test_no_mistake_in_the_judge_goes_unnoticed(reached: Reached, tmp_path: Path) -> None:
    def goes_unnoticed(number: int, each: Chosen) -> bool:
        tests = reached.by(each.module, each.mutant.lines)
        few = [*tests[:FEW], *tests[FEW :: max(1, len(tests) // FEW)]]
        parts = (few, tests) if len(few) < len(tests) else (tests,)
        return all(passes(each, part, tmp_path / f"{number}-{len(part)}") for part in parts)

    tried = chosen()
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        unnoticed = [
            each for each, is_so in zip(tried, pool.map(goes_unnoticed, range(len(tried)), tried), strict=True) if is_so
        ]
    assert "\n".join(str(each) for each in unnoticed if not each.is_equivalent) == ""
    noticed = [each for each in tried if each not in unnoticed]
    assert "\n".join(str(each) for each in noticed if each.is_equivalent) == "", "the list calls them equivalent"


@pytest.mark.thorough
def test_a_copy_of_the_judge_without_a_mistake_passes(tmp_path: Path) -> None:
    texts = {module: ast.unparse(ast.parse((LAB / module).read_text(encoding="utf-8"))) for module in MODULES}
    status, output = run_on_copy(texts, ["-m", "not thorough and not budget", *TESTS], tmp_path)
    assert status == pytest.ExitCode.OK, output


@pytest.mark.thorough
def test_each_mistake_that_changes_nothing_is_one_of_the_judge() -> None:
    mutants = [each for of_module in of_the_judge().values() for each in of_module]
    assert [row for row in EQUIVALENT if not any(is_row_of(row, each) for each in mutants)] == []
