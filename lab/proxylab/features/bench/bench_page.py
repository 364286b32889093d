"""A benchmark as one HTML file: the drawing, the tables with what each figure means, and what has changed."""

from collections.abc import Sequence

from proxylab.features.bench.bench_plot import plot
from proxylab.features.bench.bench_text import (
    COMPARISON_HEAD,
    NOTHING_CHANGED,
    comparison_row,
    failures,
    figure_rows,
    headline,
    machine_words,
)
from proxylab.features.bench.comparison import BenchComparison
from proxylab.features.bench.figures import BenchReport
from proxylab.report.html.markup import Markup, tag
from proxylab.report.html.page import document


def page(report: BenchReport, comparison: BenchComparison | None = None) -> str:
    """The text of the file."""
    return document(
        "benchmark",
        "",
        tag("header", tag("h1", "proxylab bench"), tag("p", headline(report))),
        tag(
            "main",
            tag("p", machine_words(report)),
            tag("p", tag("code", report.command)),
            _compared(comparison) if comparison is not None else None,
            tag("div", plot(report), class_="scroll"),
            [
                (
                    tag("h2", each.facts.title),
                    tag("p", each.facts.meaning),
                    tag("div", _table(figure_rows(report, each)), class_="scroll"),
                )
                for each in report.figures
            ],
            [tag("p", f"not measured: {line}") for line in failures(report)],
        ),
    )


def _compared(found: BenchComparison) -> tuple[Markup, ...]:
    changed = [comparison_row(each) for each in found.changed]
    return (
        tag("h2", "What has changed since the stored run"),
        tag("div", _table([COMPARISON_HEAD, *changed]), class_="scroll") if changed else tag("p", NOTHING_CHANGED),
        *(tag("p", note) for note in found.notes),
    )


def _table(rows: Sequence[Sequence[str]]) -> Markup:
    head, *body = rows
    return tag(
        "table",
        tag("thead", tag("tr", [tag("th", each, scope="col") for each in head])),
        tag(
            "tbody",
            [
                tag("tr", tag("th", row[0], scope="row"), [tag("td", each, class_="number") for each in row[1:]])
                for row in body
            ],
        ),
    )
