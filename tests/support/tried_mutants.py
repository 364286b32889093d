"""Which mistakes in modules of the package a set of tests notices.

A fork of one process shows most of them in seconds (``forked_mutants``). A copy of the package and an interpreter of
its own (``mutated_code``) show the others: mistakes in what a module does when it is imported, and those that no fork
notices, since a fork keeps what the package has cached while pytest collected the tests.

Fast tests come first, if they are named; all of them try only what these leave.

``MUTANTS_KEPT`` names a folder that keeps which tests reach which lines, and what has been shown. A run that was ended
goes on from there as long as mistakes and tests stay the same.
"""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

import pytest
from mutated_code import LAB, run_on_copy
from reached_lines import Reached
from syntax_mutants import SyntaxMutant

__all__ = ["Mistake", "TriedTests", "is_row_of"]

_ROOT: Final = Path(__file__).parents[2]
_USUAL: Final = ("-m", "not thorough and not budget")

_AT_ONCE: Final = 200
"""So many tests run in one interpreter on a copy."""


class Mistake(NamedTuple):
    """A mistake and its module."""

    module: str
    mutant: SyntaxMutant

    def __str__(self) -> str:
        return f"{self.module}:{self.mutant.lines[0]}: {self.mutant.was}\n  becomes {self.mutant.becomes}"


def is_row_of(row: Mapping[str, str], mutant: SyntaxMutant) -> bool:
    """Whether a row of a list is about that mistake; ``within``, a part of the function around it, tells equal ones."""
    return row["was"] == mutant.was and row["becomes"] == mutant.becomes and row.get("within", "") in mutant.function


@dataclass(frozen=True)
class TriedTests:
    """Tests that are to notice mistakes.

    Attributes:
        paths: files and folders of tests, or single ones.
        first: those of them that are fast; the others try only what these leave.
        left_out: the test that tries the mistakes itself.
        of_checkout: a file of tests that a copy of the package cannot pass; empty if there is none.
    """

    paths: Sequence[str]
    left_out: Path
    first: Sequence[str] = ()
    of_checkout: str = ""

    def notice(self, tried: Sequence[Mistake], folder: Path) -> list[bool]:
        """Whether a test notices each mistake."""
        kept = Path(os.environ.get("MUTANTS_KEPT", folder))
        left = list(range(len(tried)))
        for name, paths in (("first", self.first), ("all", self.paths)):
            if paths and left:
                noticed = self._notice([tried[number] for number in left], paths, kept / name, folder / name)
                left = [number for number, is_so in zip(left, noticed, strict=True) if not is_so]
        return [number not in left for number in range(len(tried))]

    def _notice(self, tried: Sequence[Mistake], paths: Sequence[str], kept: Path, folder: Path) -> list[bool]:
        kept.mkdir(parents=True, exist_ok=True)
        lines = kept / "lines.json"
        if not lines.exists():
            modules = ",".join(sorted({each.module for each in tried}))
            self._run(paths, "reached_lines", lines, f"--basetemp={folder / 'tmp'}", reached_in=modules)
        reached = Reached(lines)
        in_forks = self._in_forks(tried, paths, reached, kept)
        if paths is not self.paths:
            return [bool(noticed) for noticed in in_forks]
        shown = kept / "mutants.copied"
        in_copies = _shown(shown)
        left = [number for number, noticed in enumerate(in_forks) if not noticed and number not in in_copies]
        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool, shown.open("a", encoding="utf-8") as out:
            found = pool.map(lambda number: self._in_a_copy(tried[number], reached, folder / f"{number}"), left)
            for number, noticed in zip(left, found, strict=True):
                in_copies[number] = noticed
                out.write(f"{json.dumps([number, noticed])}\n")
                out.flush()
        return [bool(noticed or in_copies[number]) for number, noticed in enumerate(in_forks)]

    def passes_on_copy(self, texts: Mapping[str, str], folder: Path) -> tuple[bool, str]:
        """Whether all tests pass on a copy of the package with these texts, and the end of the output."""
        ignored = [f"--ignore={each}" for each in (self.of_checkout, str(self.left_out)) if each]
        status, output = run_on_copy(texts, [*_USUAL, *ignored, *self.paths], folder)
        return status == pytest.ExitCode.OK, output

    def _run(self, paths: Sequence[str], plugin: str, file: Path, *more: str, reached_in: str = "") -> None:
        """Run tests with a plugin of ours, which writes beside that file."""
        command = [sys.executable, "-m", "pytest", "-q", "-p", plugin, "-p", "no:cacheprovider", "-o", "timeout=300"]
        subprocess.run(
            [*command, *_USUAL, f"--ignore={self.left_out}", *more, *paths],
            cwd=_ROOT,
            env={
                **os.environ,
                plugin.upper(): str(file),
                "REACHED_IN": reached_in,
                "PYTHONPATH": f"{LAB.parent}:{_ROOT / 'tests' / 'support'}",
            },
            stdout=subprocess.DEVNULL,
            timeout=3000,
            check=True,
        )

    def _in_forks(
        self, tried: Sequence[Mistake], paths: Sequence[str], reached: Reached, folder: Path
    ) -> Sequence[bool | None]:
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
        text = json.dumps(mutants)
        if not file.exists() or file.read_text(encoding="utf-8") != text:
            file.write_text(text, encoding="utf-8")
            for of_others in (".noticed", ".copied"):
                file.with_suffix(of_others).unlink(missing_ok=True)
        self._run(paths, "forked_mutants", file)
        shown = _shown(file.with_suffix(".noticed"))
        return [shown[number] for number in range(len(tried))]

    def _in_a_copy(self, each: Mistake, reached: Reached, folder: Path) -> bool:
        """The same by a copy of the package and interpreters of their own."""
        on_copy = partial(run_on_copy, {each.module: each.mutant.module})
        tests = [
            test
            for test in reached.by(each.module, each.mutant.lines)
            if not self.of_checkout or not test.startswith(self.of_checkout)
        ]
        for number in range(0, len(tests), _AT_ONCE):
            status, output = on_copy(tests[number : number + _AT_ONCE], folder / f"{number}")
            if status == pytest.ExitCode.USAGE_ERROR:
                # A file does not import, or names its tests after what the mistake changes.
                files = sorted({test.partition("::")[0] for test in tests})
                status, output = on_copy([*_USUAL, *files], folder / f"{number}-by-file")
            assert status in {pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.INTERRUPTED}, output
            if status != pytest.ExitCode.OK:
                return True
        return False


def _shown(file: Path) -> dict[int, bool | None]:
    """What has been shown of mistakes, by their number in the list."""
    return dict(json.loads(line) for line in file.read_text().splitlines()) if file.exists() else {}
