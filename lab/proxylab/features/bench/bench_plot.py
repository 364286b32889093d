"""A benchmark as an SVG drawing: a panel for each figure, with the number of Services and the figure as logarithms.

Growth by a power is a straight line there, and its steepness is the exponent. A dot is the median of the rounds, and a
bar through it leads from the least to the greatest. The drawing stands for itself as a file, and inside of a page whose
policy allows no styles: so its colours are attributes, on a white ground.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from msgspec import Struct

from proxylab.features.bench.figures import BenchedEngine, BenchReport, Figure, Unit, shown
from proxylab.report.html.markup import Child, Markup, tag

_COLUMNS: Final = 3
_PANEL: Final = (330, 230)
_LEFT, _TOP, _RIGHT, _BOTTOM = 66, 30, 14, 30
_LINE: Final = 20
_COLOURS: Final = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#4d4d4d")
"""Okabe and Ito's, which people who see fewer colours can tell apart; without their yellow."""
_DASHES: Final = (None, "7 4", "2 3")
_FONT: Final = "sans-serif"


class _Axis(Struct, frozen=True):
    """Maps the logarithms from ``low`` to ``high`` to pixels."""

    low: float
    high: float
    begin: float
    end: float

    def at(self, value: float) -> float:
        """The pixel of a value above 0."""
        return self.begin + (math.log10(value) - self.low) / (self.high - self.low) * (self.end - self.begin)


class _Stroke(Struct, frozen=True):
    """How the line of an engine looks."""

    colour: str
    dash: str | None


def plot(report: BenchReport) -> Markup:
    """The drawing as one SVG element."""
    drawn = [each for each in report.figures if any(_points(engine, each) for engine in report.engines)]
    strokes = {
        engine.name: _Stroke(_COLOURS[number % len(_COLOURS)], _DASHES[number // len(_COLOURS) % len(_DASHES)])
        for number, engine in enumerate(report.engines)
    }
    rows = -(-len(drawn) // _COLUMNS)
    width, height = _COLUMNS * _PANEL[0], rows * _PANEL[1] + (len(strokes) + 1) * _LINE
    panels = [
        tag(
            "g",
            _panel(report, figure, strokes),
            transform=f"translate({number % _COLUMNS * _PANEL[0]} {number // _COLUMNS * _PANEL[1]})",
        )
        for number, figure in enumerate(drawn)
    ]
    return tag(
        "svg",
        tag("title", f"benchmark of {', '.join(strokes)}"),
        tag("rect", width=width, height=height, fill="white"),
        panels,
        tag("g", [*_legend(strokes)], transform=f"translate({_LEFT} {rows * _PANEL[1] + _LINE})"),
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {width} {height}",
        width=width,
        height=height,
        role="img",
        font_family=_FONT,
        font_size=12,
    )


def _points(engine: BenchedEngine, figure: Figure) -> list[tuple[int, Sequence[float]]]:
    """The values above 0 of the rounds, by number of Services."""
    found = [(size.services, [each for each in size.values.get(figure, ()) if each > 0]) for size in engine.sizes]
    return [(services, values) for services, values in found if values]


def _panel(report: BenchReport, figure: Figure, strokes: Mapping[str, _Stroke]) -> Iterator[Child]:
    points = {engine.name: _points(engine, figure) for engine in report.engines}
    values = [value for of_engine in points.values() for _, rounds in of_engine for value in rounds]
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    sizes = sorted({services for of_engine in points.values() for services, _ in of_engine})
    width, height = _PANEL
    x = _Axis(math.log10(sizes[0]) - 0.1, math.log10(sizes[-1]) + 0.1, _LEFT, width - _RIGHT)
    y = _Axis(low, max(high, low + 1), height - _BOTTOM, _TOP)
    facts = figure.facts
    yield tag("text", facts.title, x=_LEFT, y=18, font_weight="bold")
    for power in range(low, max(high, low + 1) + 1):
        at = f"{y.at(10.0**power):.1f}"
        yield tag("line", x1=_LEFT, x2=width - _RIGHT, y1=at, y2=at, stroke="#dddddd")
        label = _label(10.0**power, facts.unit)
        yield tag("text", label, x=_LEFT - 6, y=at, dy="0.35em", text_anchor="end", font_size=10, fill="#444444")
    for size in sizes:
        at = f"{x.at(size):.1f}"
        yield tag("line", x1=at, x2=at, y1=height - _BOTTOM, y2=height - _BOTTOM + 4, stroke="#444444")
        label = f"{size:,}"
        yield tag("text", label, x=at, y=height - _BOTTOM + 16, text_anchor="middle", font_size=10, fill="#444444")
    for engine in report.engines:
        yield from _line(points[engine.name], engine, figure, strokes[engine.name], x, y)


def _line(
    points: Sequence[tuple[int, Sequence[float]]],
    engine: BenchedEngine,
    figure: Figure,
    stroke: _Stroke,
    x: _Axis,
    y: _Axis,
) -> Iterator[Child]:
    """The line of an engine through its medians, each with its dot and bar."""
    ends: list[str] = []
    for services, values in points:
        size = engine.at(services)
        middle = size.median(figure) if size else None
        at = f"{x.at(services):.1f}"
        yield tag(
            "line",
            x1=at,
            x2=at,
            y1=f"{y.at(min(values)):.1f}",
            y2=f"{y.at(max(values)):.1f}",
            stroke=stroke.colour,
            stroke_width=1,
        )
        if middle:
            ends.append(f"{at},{y.at(middle):.1f}")
            named = tag("title", f"{engine.name}, {services:,} Services: {shown(middle, figure.facts.unit)}")
            yield tag("circle", named, cx=at, cy=f"{y.at(middle):.1f}", r=3, fill=stroke.colour)
    yield tag(
        "polyline",
        points=" ".join(ends),
        fill="none",
        stroke=stroke.colour,
        stroke_width=2,
        stroke_dasharray=stroke.dash,
    )


def _legend(strokes: Mapping[str, _Stroke]) -> Iterator[Markup]:
    for number, (name, stroke) in enumerate(strokes.items()):
        y = number * _LINE
        yield tag("line", x1=0, x2=40, y1=y, y2=y, stroke=stroke.colour, stroke_width=2, stroke_dasharray=stroke.dash)
        yield tag("circle", cx=20, cy=y, r=3, fill=stroke.colour)
        yield tag("text", name, x=50, y=y, dy="0.35em")


def _label(value: float, unit: Unit) -> str:
    """A power of ten without digits that say nothing."""
    if unit is Unit.BYTES:
        return shown(value, unit)
    text, _, name = shown(value, unit).partition(" ")
    number = f"{float(text.replace(',', '')):,g}"
    return f"{number} {name}".strip()
