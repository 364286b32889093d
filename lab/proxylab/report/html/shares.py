"""How flows were shared out, as bars beside the shares that were due.

Owns: the table of backends with its bars.
Must not: judge a spread; the verdict has.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from proxylab.evidence.words import amount
from proxylab.report.html.markup import Markup, tag
from proxylab.scenario.model import Shares, Spread
from proxylab.statistics import SIGNIFICANCE, spread_p_value
from proxylab.verdict.arrivals import due_shares, hits
from proxylab.verdict.case import Case

__all__ = ["shares"]

_MOST: Final = 40
"""How many backends are shown: those that are furthest from their due."""

_ROOM: Final = 1.1
"""The width of the longest bar is this part of the whole, the wrong way round: something is left to the right of it."""


def shares(case: Case) -> Markup | None:
    """A bar for each backend; ``None`` for a single flow, which is no share of anything."""
    found = hits(case)
    total = found.total()
    if len(case.flows) == 1 or not total:
        return None
    due = _due(case)
    names = list(dict.fromkeys([*due, *sorted(found, key=_by_number)]))
    if len(names) == 1 and case.probe.expect.spread is None:
        return None
    shown = sorted(names, key=lambda name: -abs(found[name] / total - due.get(name, 0.0)))[:_MOST]
    whole = _ROOM * max(*(found[name] / total for name in names), *due.values(), 0.0)
    rows = [
        _row(name, found[name], found[name] / total, due.get(name, 0.0) if due else None, whole)
        for name in names
        if name in shown
    ]
    head = tag(
        "tr",
        tag("th", "backend", scope="col"),
        tag("th", "flows", scope="col", class_="number"),
        tag("th", "share", scope="col", class_="number"),
        tag("th", "due", scope="col", class_="number") if due else None,
        tag("td"),
    )
    return tag(
        "figure",
        tag("figcaption", "How flows were shared out", tag("small", _chance(case, due, list(found), total))),
        tag("table", tag("thead", head), tag("tbody", rows), class_="shares"),
        tag("p", f"and {amount(len(names) - _MOST, 'backend')} closer to their due") if len(names) > _MOST else None,
        class_="spread",
    )


def _by_number(name: str) -> tuple[str, int, str]:
    """``echo-2`` comes before ``echo-10``."""
    stem, _, number = name.rpartition("-")
    return (stem, int(number), "") if number.isdecimal() else (name, 0, "")


def _due(case: Case) -> Mapping[str, float]:
    """The shares that somebody asked for; none where any share would do."""
    spread = case.probe.expect.spread
    return due_shares(case) if isinstance(spread, Shares) or spread is Spread.EVEN else {}


def _chance(case: Case, due: Mapping[str, float], hit: Sequence[str], total: int) -> str:
    """How likely these counts are by chance alone, as the judge reckons it."""
    found = hits(case)
    if len(due) < 2 or any(name not in due for name in hit):
        return ""
    chance = spread_p_value([found[name] for name in due], tuple(due.values()))
    return f"{total:,} flows; by chance alone with p = {chance:.2g}, and below {SIGNIFICANCE:.0e} it fails"


def _row(name: str, flows: int, share: float, due: float | None, whole: float) -> Markup:
    return tag(
        "tr",
        tag("th", name, scope="row"),
        tag("td", f"{flows:,}", class_="number"),
        tag("td", f"{share:.1%}", class_="number"),
        tag("td", f"{due:.1%}", class_="number") if due is not None else None,
        tag("td", _bar(share / whole, due / whole if due is not None else None), class_="bar"),
    )


def _bar(got: float, due: float | None) -> Markup:
    """Widths are attributes of SVG: the page's policy allows no style in an element."""
    at = f"{due:.2%}" if due is not None else ""
    return tag(
        "svg",
        tag("rect", width=f"{got:.2%}", height="100%", class_="got"),
        tag("line", x1=at, x2=at, y1="0", y2="100%", class_="due") if due is not None else None,
        aria_hidden="true",
    )
