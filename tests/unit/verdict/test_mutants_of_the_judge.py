"""Mistakes in the judge itself, made on its syntax tree: each turns a unit test red, or is proven to change nothing.

``tests/unit/engines/test_code_mutants.py`` does the same for the engine, with mistakes that people wrote down.
"""

import ast
import json
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

WALK: Final = "tests/unit/verdict/test_walk.py"
"""It counts files of the checkout, which a copy of the package is not."""

AT_ONCE: Final = 200
"""So many tests run in one interpreter on a mistake in what a module does when it is imported."""

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


def run(file: Path, plugin: str, *more: str) -> None:
    """Run the tests of the judge with a plugin of ours, which writes beside that file."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", plugin, "-p", "no:cacheprovider", "-o", "timeout=300"]
    subprocess.run(
        [*command, "-m", "not thorough and not budget", f"--ignore={Path(__file__)}", *more, *TESTS],
        cwd=ROOT,
        env={**os.environ, plugin.upper(): str(file), "PYTHONPATH": f"{LAB.parent}:{ROOT / 'tests' / 'support'}"},
        stdout=subprocess.DEVNULL,
        timeout=3000,
        check=True,
    )


def test_a_hundred_mistakes_are_tried_and_some_in_every_module_with_code() -> None:
    found = chosen()
    assert len(found) >= 100
    assert {each.module for each in found} == {module for module, mutants in of_the_judge().items() if mutants}


def noticed_in_forks(tried: Sequence[Chosen], reached: Reached, folder: Path) -> list[bool | None]:
    """Whether a test notices each; ``None`` where it is in no function that a fork can change."""
    file = folder / "mutants.json"
    mutants = [
        {
            "module": f"proxylab.{each.module.removesuffix('.py').replace('/', '.')}",
            "function": each.mutant.name,
            "text": each.mutant.module,
            "tests": reached.by(each.module, each.mutant.lines),
        }
        for each in tried
    ]
    file.write_text(json.dumps(mutants), encoding="utf-8")
    run(file, "forked_mutants")
    found: list[bool | None] = json.loads(file.with_suffix(".noticed").read_bytes())
    return found


def noticed_in_a_copy(each: Chosen, reached: Reached, folder: Path) -> bool:
    """The same by a copy of the package and interpreters of their own."""
    tests = [test for test in reached.by(each.module, each.mutant.lines) if not test.startswith(WALK)]
    for number in range(0, len(tests), AT_ONCE):
        status, output = run_on_copy(
            {each.module: each.mutant.module}, tests[number : number + AT_ONCE], folder / f"{number}"
        )
        if (
            status == pytest.ExitCode.USAGE_ERROR
        ):  # a file does not import, or names its tests after what the judge says
            files = sorted({test.partition("::")[0] for test in tests})
            status, output = run_on_copy({each.module: each.mutant.module}, files, folder / f"{number}-by-file")
        assert status in {pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.INTERRUPTED}, output
        if status != pytest.ExitCode.OK:
            return True
    return False


@pytest.mark.thorough
@pytest.mark.timeout(6000)
def test_no_mistake_in_the_judge_goes_unnoticed(tmp_path: Path) -> None:
    run(tmp_path / "lines.json", "reached_lines", f"--basetemp={tmp_path / 'tmp'}")
    reached, tried = Reached(tmp_path / "lines.json"), chosen()
    in_forks = noticed_in_forks(tried, reached, tmp_path)
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        noticed = list(
            pool.map(
                lambda number: (
                    in_forks[number]
                    if in_forks[number] is not None
                    else noticed_in_a_copy(tried[number], reached, tmp_path / f"{number}")
                ),
                range(len(tried)),
            )
        )
    told = zip(tried, noticed, strict=True)
    assert "\n".join(str(each) for each, is_so in told if not is_so and not each.is_equivalent) == ""
    wrong = (each for each, is_so in zip(tried, noticed, strict=True) if is_so and each.is_equivalent)
    assert "\n".join(map(str, wrong)) == "", "the list calls them equivalent"


@pytest.mark.thorough
def test_a_copy_of_the_judge_without_a_mistake_passes(tmp_path: Path) -> None:
    texts = {module: ast.unparse(ast.parse((LAB / module).read_text(encoding="utf-8"))) for module in MODULES}
    status, output = run_on_copy(texts, ["-m", "not thorough and not budget", f"--ignore={WALK}", *TESTS], tmp_path)
    assert status == pytest.ExitCode.OK, output


@pytest.mark.thorough
def test_each_mistake_that_changes_nothing_is_one_of_the_judge() -> None:
    mutants = [each for of_module in of_the_judge().values() for each in of_module]
    assert [row for row in EQUIVALENT if not any(is_row_of(row, each) for each in mutants)] == []
