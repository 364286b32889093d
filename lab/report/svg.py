"""The wire of a lab as a picture that needs no program but a browser.

Owns: where each box and line of the picture is.
Must not: decide what is shown (``drawing`` does).

From top to bottom: outside hosts, their segment, the router, the other segments, nodes and hosts that stand on them,
and under each node its pods, three in a row.
"""

from collections.abc import Sequence
from html import escape
from typing import Final

from lab.plan.model import Plan, Role
from lab.plan.names import OUTSIDE
from lab.report.drawing import Thing, segments, things

__all__ = ["svg"]

_WIDTH: Final = 168
_HEIGHT: Final = 46
_SIDE: Final = 24
_STEP: Final = _WIDTH + _SIDE
_DOWN: Final = 34
_BUS: Final = 16
_IN_A_ROW: Final = 3
_FILLS: Final = {Role.HOST: "#fde8d7", Role.ROUTER: "#e6e6e6", Role.NODE: "#d7e6fd", Role.POD: "#dcf3dc"}
_STYLE: Final = (
    "text{font:13px sans-serif;text-anchor:middle}.about{font-size:11px;fill:#444}"
    ".name{text-anchor:start;font-size:11px}rect{stroke:#666}.wire{stroke:#888}.segment{stroke:#333;stroke-width:3}"
)


def svg(plan: Plan) -> str:
    """The picture, as one SVG element."""
    found = things(plan)
    outside = [each for each in found if each.role is Role.HOST and each.on == OUTSIDE]
    inside = [each for each in found if each.role is Role.NODE or (each.role is Role.HOST and each.on != OUTSIDE)]
    pods = {node.name: [each for each in found if each.role is Role.POD and each.on == node.name] for node in inside}
    spans = [max(1, min(_IN_A_ROW, len(pods[each.name]))) for each in inside]
    picture = _Picture(_SIDE + _STEP * max(sum(spans), len(outside), 1))
    for number, host in enumerate(outside):
        picture.box(host, _SIDE + number * _STEP)
    if outside:
        picture.down(_HEIGHT + _DOWN)
        picture.bus(OUTSIDE)
        for number, _ in enumerate(outside):
            picture.rise(_SIDE + number * _STEP + _WIDTH // 2, OUTSIDE, picture.y - _DOWN)
        picture.down(_DOWN)
    for router in (each for each in found if each.role is Role.ROUTER):
        left = (picture.width - _WIDTH) // 2
        picture.box(router, left)
        if outside:
            picture.rise(left + _WIDTH // 2, OUTSIDE, picture.y)
        bottom = picture.y + _HEIGHT
        picture.down(_HEIGHT + _DOWN)
        for number, segment in enumerate(each for each in segments(found) if each != OUTSIDE):
            picture.bus(segment)
            picture.rise(left + _WIDTH // 2 + 8 * number, segment, bottom)
            picture.down(_BUS)
    picture.down(_DOWN - _BUS)
    _draw_inside(picture, inside, spans, pods)
    return picture.text()


def _draw_inside(
    picture: "_Picture", inside: Sequence[Thing], spans: Sequence[int], pods: dict[str, list[Thing]]
) -> None:
    """Nodes and hosts on their segments, and the pods below."""
    left, top = _SIDE, picture.y
    for thing, span in zip(inside, spans, strict=True):
        middle = left + (span * _STEP - _SIDE) // 2
        picture.y = top
        picture.box(thing, middle - _WIDTH // 2)
        for number, segment in enumerate(thing.on.split()):
            picture.rise(middle + 8 * number, segment, top)
        picture.down(_HEIGHT + _DOWN)
        for number, pod in enumerate(pods[thing.name]):
            x = left + number % span * _STEP
            if number < span:
                picture.line(middle, top + _HEIGHT, x + _WIDTH // 2, picture.y)
            elif number % span == 0:
                picture.down(_HEIGHT + 8)
            picture.box(pod, x)
        left += span * _STEP


class _Picture:
    """The shapes so far; ``y`` is where the next box stands, ``lowest`` where the lowest one ends."""

    def __init__(self, width: int) -> None:
        self.width = width
        self.y = _SIDE
        self.lowest = _SIDE
        self._buses: dict[str, int] = {}
        self._lines: list[str] = []
        self._boxes: list[str] = []

    def down(self, by: int) -> None:
        self.y += by

    def line(self, x1: int, y1: int, x2: int, y2: int, kind: str = "wire") -> None:
        self._lines.append(f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" class="{kind}"/>')

    def bus(self, segment: str) -> None:
        """A segment, from side to side."""
        self._buses[segment] = self.y
        self.line(_SIDE // 2, self.y, self.width - _SIDE // 2, self.y, "segment")
        self._boxes.append(f'<text x="{_SIDE // 2}" y="{self.y - 4}" class="name">segment {escape(segment)}</text>')
        self.lowest = max(self.lowest, self.y)

    def rise(self, x: int, segment: str, y: int) -> None:
        """A wire between a box and a segment that was drawn."""
        if segment in self._buses:
            self.line(x, self._buses[segment], x, y)

    def box(self, thing: Thing, left: int) -> None:
        middle = left + _WIDTH // 2
        self._boxes.append(
            f'<rect x="{left}" y="{self.y}" width="{_WIDTH}" height="{_HEIGHT}" rx="5" fill="{_FILLS[thing.role]}"/>'
        )
        for text, kind, down, size in ((thing.title, "", 19, 7.2), (thing.about, "about", 36, 6.2)):
            squeezed = (
                f' textLength="{_WIDTH - 8}" lengthAdjust="spacingAndGlyphs"' if len(text) * size > _WIDTH else ""
            )
            self._boxes.append(f'<text x="{middle}" y="{self.y + down}" class="{kind}"{squeezed}>{escape(text)}</text>')
        self.lowest = max(self.lowest, self.y + _HEIGHT)

    def text(self) -> str:
        size = f'width="{self.width}" height="{self.lowest + _SIDE}"'
        head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} viewBox="0 0 {self.width} {self.lowest + _SIDE}">'
        ground = f'<style>{_STYLE}</style>\n<rect {size} fill="white" style="stroke:none"/>'
        return "\n".join([head, ground, *self._lines, *self._boxes, "</svg>"])
