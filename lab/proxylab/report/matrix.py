"""The end of a large run's report: a table of scenarios and engines, and the slowest scenarios."""

from collections.abc import Callable, Sequence
from typing import Final

from proxylab.text import WIDTH, wrapped
from proxylab.verdict.model import Judgement, ScenarioResult, worst

__all__ = ["Painter", "result_table", "slowest"]

Painter = Callable[[str, Judgement], str]
"""Colours a word by its judgement. It gets aligned text, and may add characters without width."""

_GAP: Final = "  "
_ABSENT: Final = "-"
_NOTHING: Final = "nothing"
_MOST_SLOWEST: Final = 10


def result_table(
    results: Sequence[ScenarioResult], paint: Painter = lambda word, _: word, width: int = WIDTH
) -> list[str]:
    """A row for each scenario, and a column for each engine on each kernel; nothing if there is only one.

    The cases of a matrix share a row, which shows the worst of them. Names are never truncated, so that users can copy
    them. If a row is too wide, the scenario's name has a line of its own above it.
    """
    engines = list(dict.fromkeys(result.engine_on_kernel for result in results))
    if len(engines) < 2:
        return []
    files = list(dict.fromkeys(result.file for result in results))
    widths = [*map(len, engines[:-1]), 0]  # the last column needs no padding
    head = _GAP.join(engines)
    rows = [
        _GAP.join(_cell(file, engine, results, paint, room) for engine, room in zip(engines, widths, strict=True))
        for file in files
    ]
    names = ["scenario", *files]
    longest = max(map(len, names))
    named = zip(names, (head, *rows), strict=True)
    if longest + len(_GAP + head) <= width:
        return [f"{name:<{longest}}{_GAP}{row}" for name, row in named]
    return [line for name, row in named for line in (name, f"{_GAP * 2}{row}")]


def _cell(file: str, engine: str, results: Sequence[ScenarioResult], paint: Painter, width: int) -> str:
    found = [result.overall for result in results if (result.file, result.engine_on_kernel) == (file, engine)]
    judged = frozenset(filter(None, found))
    if not judged:
        return (_NOTHING if found else _ABSENT).ljust(width)
    return paint(worst(judged).ljust(width), worst(judged))


def slowest(results: Sequence[ScenarioResult], width: int = WIDTH) -> list[str]:
    """The ten slowest scenarios, if there are more than ten; the time to build a lab counts."""
    if len(results) <= _MOST_SLOWEST:
        return []
    longest = sorted(results, key=lambda result: -result.seconds)[:_MOST_SLOWEST]
    lines = [
        line
        for result in longest
        for line in wrapped(
            f"{result.file} [{result.engine_on_kernel}]{result.case and f' {result.case}'}",
            f"  {result.seconds:6.2f} s  ",
            width=width,
        )
    ]
    return [f"slowest {_MOST_SLOWEST} of {len(results)}:", *lines]
