"""The distribution of flows over backends, as bars beside the expected shares."""

from collections.abc import Mapping, Sequence
from typing import Final

from proxylab.evidence.words import amount
from proxylab.report.html.markup import Markup, tag
from proxylab.report.view import ProbeView
from proxylab.scenario.expect import Shares
from proxylab.scenario.words import Spread
from proxylab.statistics import SIGNIFICANCE, spread_p_value
from proxylab.verdict.case import Case

_MOST_BACKENDS: Final = 40
"""The number of backends shown: those furthest from their expected share."""

_SCALE: Final = 1.1
"""The full width divided by the longest bar's: some room stays to the right of that bar."""


def shares(view: ProbeView) -> Markup | None:
    """A bar for each backend; ``None`` for a single flow."""
    case = view.verdict.case
    found = case.arrivals_by_pod
    total = found.total()
    if len(case.flows) == 1 or not total:
        return None
    expected = _expected(case)
    names = list(dict.fromkeys([*expected, *sorted(found, key=_by_number)]))
    if len(names) == 1 and case.probe.expect.spread is None:
        return None
    shown = sorted(names, key=lambda name: -abs(found[name] / total - expected.get(name, 0.0)))[:_MOST_BACKENDS]
    whole = _SCALE * max(*(found[name] / total for name in names), *expected.values(), 0.0)
    rows = [
        _row(name, found[name], found[name] / total, expected.get(name, 0.0) if expected else None, whole)
        for name in names
        if name in shown
    ]
    head = tag(
        "tr",
        tag("th", "backend", scope="col"),
        tag("th", "flows", scope="col", class_="number"),
        tag("th", "share", scope="col", class_="number"),
        tag("th", "expected", scope="col", class_="number") if expected else None,
        tag("td"),
    )
    return tag(
        "figure",
        tag("figcaption", "Flows per backend", tag("small", _chance(case, expected, list(found), total))),
        tag("table", tag("thead", head), tag("tbody", rows), class_="shares"),
        tag("p", f"and {amount(len(names) - _MOST_BACKENDS, 'backend')} closer to their expected share")
        if len(names) > _MOST_BACKENDS
        else None,
        class_="spread",
    )


def _by_number(name: str) -> tuple[str, int, str]:
    """``echo-2`` comes before ``echo-10``."""
    stem, _, number = name.rpartition("-")
    return (stem, int(number), "") if number.isdecimal() else (name, 0, "")


def _expected(case: Case) -> Mapping[str, float]:
    """The expected shares; empty if the probe expects none."""
    spread = case.probe.expect.spread
    return case.expected_shares if isinstance(spread, Shares) or spread is Spread.EVEN else {}


def _chance(case: Case, expected: Mapping[str, float], hit: Sequence[str], total: int) -> str:
    """The probability of these counts by chance alone, as the judge computes it."""
    found = case.arrivals_by_pod
    if len(expected) < 2 or any(name not in expected for name in hit):
        return ""
    chance = spread_p_value([found[name] for name in expected], tuple(expected.values()))
    return f"{total:,} flows; p = {chance:.2g} by chance alone; a probe fails below {SIGNIFICANCE:.0e}"


def _row(name: str, flows: int, share: float, expected: float | None, whole: float) -> Markup:
    return tag(
        "tr",
        tag("th", name, scope="row"),
        tag("td", f"{flows:,}", class_="number"),
        tag("td", f"{share:.1%}", class_="number"),
        tag("td", f"{expected:.1%}", class_="number") if expected is not None else None,
        tag("td", _bar(share / whole, expected / whole if expected is not None else None), class_="bar"),
    )


def _bar(got: float, expected: float | None) -> Markup:
    """A bar in SVG, whose widths are attributes: the page's policy allows no inline styles."""
    at = f"{expected:.2%}" if expected is not None else ""
    return tag(
        "svg",
        tag("rect", width=f"{got:.2%}", height="100%", class_="got"),
        tag("line", x1=at, x2=at, y1="0", y2="100%", class_="due") if expected is not None else None,
        aria_hidden="true",
    )
