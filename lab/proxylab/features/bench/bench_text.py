"""A benchmark in words: as tables for a terminal or in Markdown, as JSON, and what has changed since another one."""

import json
import math
from collections.abc import Iterator, Sequence
from typing import Final

from proxylab.encoding import encode
from proxylab.evidence.words import amount
from proxylab.features.bench.comparison import SIGNIFICANCE, BenchComparison, ComparedFigure
from proxylab.features.bench.figures import BenchReport, Figure, shown
from proxylab.text import table, wrapped

_MOST_CHANGES: Final = 40
NOTHING_CHANGED: Final = "nothing has changed by more than noise"


def headline(report: BenchReport) -> str:
    """What was measured, in one sentence."""
    engines = amount(len(report.engines), "engine")
    return (
        f"{engines}, {amount(report.endpoints, 'endpoint')} a Service: medians of {amount(report.rounds, 'round')} "
        f"with {amount(report.changes, 'change')} each"
    )


def machine_words(report: BenchReport) -> str:
    """Where and when it was measured."""
    ran = f"proxylab {report.proxylab}, {report.begun}"
    if (machine := report.machine) is None:
        return ran
    processors = f"{amount(machine.processors, 'processor')} ({machine.processor})"
    return f"Linux {machine.release}, {processors}, {machine.iptables}; {ran}"


def figure_rows(report: BenchReport, figure: Figure) -> list[list[str]]:
    """The head and the rows of a figure's table: each engine's median at each number of Services, and its growth."""
    first, *others = report.services
    rows = [["engine", amount(first, "Service"), *(f"{each:,}" for each in others), "grows as"]]
    for engine in report.engines:
        sizes = [engine.at(each) for each in report.services]
        if any(size is not None and figure in size.values for size in sizes):
            medians = [shown(size.median(figure) if size else None, figure.facts.unit) for size in sizes]
            rows.append([engine.name, *medians, str(engine.growth(figure) or "-")])
    return rows


def failures(report: BenchReport) -> Iterator[str]:
    """What was not measured, and why."""
    for engine in report.engines:
        for size in engine.sizes:
            if size.failure:
                yield f"{engine.name} at {amount(size.services, 'Service')}: {size.failure}"


def to_lines(report: BenchReport, width: int) -> Iterator[str]:
    """The headline, and a table for each figure."""
    yield from wrapped(headline(report), rest="  ", width=width)
    yield from wrapped(machine_words(report), rest="  ", width=width)
    for figure in report.figures:
        rows = figure_rows(report, figure)
        yield ""
        yield figure.facts.title
        yield from table(rows, right=frozenset(range(1, len(rows[0]) - 1)), width=width)
    for number, line in enumerate(failures(report)):
        yield from ("", "not measured:") if not number else ()
        yield from wrapped(line, "  ", "    ", width)


def to_markdown(report: BenchReport) -> str:
    """The same in Markdown, as GitHub reads it, with what each figure means."""
    parts = [f"{headline(report)}.", f"{machine_words(report)}.", f"```console\n$ {report.command}\n```"]
    for figure in report.figures:
        head, *rows = figure_rows(report, figure)
        parts += [f"## {figure.facts.title.capitalize()}", figure.facts.meaning, "\n".join(_markdown(head, rows))]
    parts += [f"Not measured: {line}" for line in failures(report)]
    return "\n\n".join(parts)


def _markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    yield _row(head)
    yield _row(["---", *("---:" for _ in head[1:-1]), "---"])
    yield from map(_row, rows)


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(each.replace('|', '&#124;') for each in cells)} |"


def to_json(report: BenchReport) -> str:
    """The whole report, as ``read_report`` reads it."""
    return json.dumps(json.loads(encode(report)), indent=2)


def comparison_lines(found: BenchComparison, width: int) -> Iterator[str]:
    """What has changed, and what could not be compared."""
    changed = found.changed
    compared = amount(len(found.figures), "figure")
    told = f"{len(changed):,} changed by more than noise" if changed else NOTHING_CHANGED
    test = f"Welch's test of logarithms, Holm's correction, below {SIGNIFICANCE:.0%} for the whole run"
    yield from wrapped(f"compared with the stored run: {compared}: {told} ({test})", rest="  ", width=width)
    for word in ("worse", "better"):
        rows = [row for row in map(comparison_row, changed[:_MOST_CHANGES]) if row[0] == word]
        if rows:
            yield f"{word}:"
            shown_rows = [each[1:-1] for each in (COMPARISON_HEAD, *rows)]
            yield from table(shown_rows, right=frozenset((1, 3, 4, 5)), width=width)
    if len(changed) > _MOST_CHANGES:
        yield f"and {len(changed) - _MOST_CHANGES:,} more"
    for note in found.notes:
        yield from wrapped(note, "  ", "    ", width)


COMPARISON_HEAD: Final = ("", "engine", "Services", "figure", "before", "now", "times", "chance")


def comparison_row(each: ComparedFigure) -> list[str]:
    """A figure that has changed: both medians, their ratio, and how likely chance alone makes that."""
    facts = each.figure.facts
    return [
        "worse" if each.is_worse else "better",
        each.engine,
        f"{each.services:,}",
        facts.title,
        shown(each.before, facts.unit),
        shown(each.after, facts.unit),
        f"{each.ratio:.2f}" if each.ratio < math.inf else "-",
        f"{each.chance:.1g}",
    ]
