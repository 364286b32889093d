"""The table of ``proxylab semantics`` as one HTML file, in the style of a run's page."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final

from proxylab.features.semantics.promise_coverage import Coverage, Row, Showing, counts
from proxylab.report.html.markup import Markup, joined, tag
from proxylab.report.html.page import document
from proxylab.verdict.model import Judgement

_LOOK: Final = {
    Coverage.PROVEN: (Judgement.PASS, "proven"),
    Coverage.NAMED: (Judgement.INCONCLUSIVE, "named, not proven"),
    Coverage.NONE: (Judgement.FAIL, "without a probe"),
}
"""A coverage has the colour and the sign of a judgement."""

_TITLE: Final = "What Kubernetes promises for Services"


def semantics_page(rows: Sequence[Row]) -> str:
    """The file's text: a table for each field, after the counts."""
    found = counts(rows)
    said = [
        tag("li", tag("b", f"{found[each]:,}"), f" {word}", class_=f"count {look}")
        for each, (look, word) in _LOOK.items()
        if found[each]
    ]
    return document(
        _TITLE,
        "",
        tag("header", tag("h1", _TITLE), tag("ul", said, class_="counts", aria_label="Promises")),
        tag("main", list(_fields(rows))),
    )


def _fields(rows: Sequence[Row]) -> Iterator[Markup]:
    head = tag("tr", [tag("th", word, scope="col") for word in ("promise", "what it says", "coverage", "probes")])
    for field, group in groupby(rows, key=lambda row: row.promise.field):
        table = tag("table", tag("thead", head), tag("tbody", [_row(row) for row in group]))
        yield tag("section", tag("h2", field), tag("div", table, class_="scroll"), class_="scenario")


def _row(row: Row) -> Markup:
    look, word = _LOOK[row.coverage]
    promise = row.promise
    return tag(
        "tr",
        tag("th", tag("code", promise.id), scope="row"),
        tag("td", promise.text, " ", tag("a", "source", href=promise.source)),
        tag("td", tag("span", word, class_=f"judgement {look}")),
        tag("td", tag("ul", [tag("li", _showing(each)) for each in row.showings])),
        id=promise.id,
    )


def _showing(showing: Showing) -> Markup:
    mutants = dict.fromkeys(f"{each.name} ({each.engine})" for each in showing.mutants)
    red = tag("small", f" red for: {'; '.join(mutants)}") if mutants else None
    return joined(tag("small", f"{showing.file} "), showing.item, red)
