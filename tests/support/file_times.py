"""How long the tests of each file took in a run, for ``./dev times``: effort goes where time goes.

It reads the JUnit file of a run (``--junitxml``) and prints a page. A time is that of the workers together: with four
of them, some four seconds pass in each second of the run. Files that took little stand in one row for each folder.
"""

import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from xml.etree import ElementTree as ET

__all__ = ["times_page"]

SHOWN = 8
"""A file that took fewer seconds has no row of its own."""


def times_page(document: str) -> str:
    """The page, in Markdown."""
    seconds, cases = Counter[str](), Counter[str]()
    run = ET.fromstring(document)
    for case in run.iter("testcase"):
        file = case.get("file") or case.get("classname", "").replace(".", "/")
        cases[file] += 1
        seconds[file] += float(case.get("time", 0))
    folders, of_folder = Counter[str](), Counter[str]()
    for file, took in seconds.items():
        folders[_folder(file)] += took
        of_folder[_folder(file)] += cases[file]
    alone = [file for file, took in seconds.most_common() if took >= SHOWN]
    rest, of_rest = Counter[str](), Counter[str]()
    for file in {*seconds} - {*alone}:
        rest[_folder(file)] += seconds[file]
        of_rest[_folder(file)] += cases[file]
    return "\n".join(
        [
            "# Times of tests",
            "",
            "`./dev test --junitxml=run.xml && ./dev times run.xml > tests/times.md` writes this page. A time is",
            "that of all workers together.",
            "",
            f"{sum(cases.values()):,} cases took {sum(seconds.values()):,.0f} s{_of(run)}.",
            "",
            *_table("folder", ((f"`{each}`", folders[each], of_folder[each]) for each, _ in folders.most_common())),
            "",
            *_table("file", ((f"`{each}`", seconds[each], cases[each]) for each in alone)),
            "",
            *_table("other files of", ((f"`{each}`", rest[each], of_rest[each]) for each, _ in rest.most_common())),
            "",
        ]
    )


def _of(run: ET.Element) -> str:
    """The run's beginning, and the time that passed."""
    suite = next(run.iter("testsuite"))
    began, took = suite.get("timestamp"), suite.get("time")
    return f", in a run of {float(took):,.0f} s that began at {began[:16]}" if began and took else ""


def _folder(file: str) -> str:
    """`scenarios`, or the folder below `tests`."""
    first, *others = Path(file).parts
    return f"tests/{others[0]}" if first == "tests" and len(others) > 1 else first


def _table(what: str, rows: Iterable[tuple[str, float, int]]) -> Iterable[str]:
    yield from (f"| {what} | seconds | cases |", "|---|---:|---:|")
    yield from (f"| {name} | {seconds:,.0f} | {cases:,} |" for name, seconds, cases in rows)


if __name__ == "__main__":
    sys.stdout.write(times_page(Path(sys.argv[1]).read_text(encoding="utf-8")))
