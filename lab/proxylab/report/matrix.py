"""The end of a large run's report: a table of scenarios and engines, and the slowest scenarios."""

from collections.abc import Callable, Sequence
from typing import Final

from proxylab.report.exit_code import AnyResult
from proxylab.text import WIDTH, wrapped
from proxylab.verdict.model import Judgement, ScenarioResult, on_kernel, worst

Painter = Callable[[str, Judgement], str]
"""Colours a word by its judgement. It gets aligned text, and may add characters without width."""


_GAP: Final = "  "
_ABSENT: Final = "-"
_NOTHING: Final = "nothing"
_WIDEST: Final = len("pass")
_MOST_SLOWEST: Final = 10


def result_table(results: Sequence[AnyResult], paint: Painter = lambda word, _: word, width: int = WIDTH) -> list[str]:
    """A row for each scenario, and a column for each engine on each kernel; nothing if there is only one.

    If each of several engines ran on each of several kernels, a column for each kernel, and a row for each scenario and
    engine: it shows which of them turns the scenario red. The cases of a matrix share a row, which shows the worst of
    them. Names are never truncated, so that users can copy them. If a row is too wide, the scenario's name has a line
    of its own above it.
    """
    ran = {(result.engine, result.kernel) for result in results}
    if len(ran) < 2:
        return []
    engines, kernels = map(set, zip(*ran, strict=True))
    by_kernel = len(engines) > 1 and len(kernels) > 1 and len(ran) == len(engines) * len(kernels)
    cells: dict[str, dict[str, list[Judgement | None]]] = {}
    for result in results:
        row = f"{result.file} [{result.engine}]" if by_kernel else result.file
        column = result.kernel if by_kernel else on_kernel(result.engine, result.kernel)
        cells.setdefault(row, {}).setdefault(column, []).append(result.overall)
    columns = list(dict.fromkeys(column for row in cells.values() for column in row))
    widths = [*(max(len(column), _WIDEST) for column in columns[:-1]), 0]  # the last column needs no padding
    head = _GAP.join(column.ljust(room) for column, room in zip(columns, widths, strict=True))
    rows = [
        _GAP.join(_cell(row.get(column), paint, room) for column, room in zip(columns, widths, strict=True))
        for row in cells.values()
    ]
    names = ["scenario", *cells]
    longest = max(map(len, names))
    named = zip(names, (head, *rows), strict=True)
    if longest + len(_GAP + head) <= width:
        return [f"{name:<{longest}}{_GAP}{row}" for name, row in named]
    return [line for name, row in named for line in (name, f"{_GAP * 2}{row}")]


def _cell(found: Sequence[Judgement | None] | None, paint: Painter, width: int) -> str:
    judged = frozenset(filter(None, found or ()))
    if not judged:
        return (_ABSENT if found is None else _NOTHING).ljust(width)
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
