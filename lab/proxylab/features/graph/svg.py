"""A lab's network as an SVG drawing. ``drawing`` decides what it shows; this module places boxes and lines.

From top to bottom: outside hosts, their segment, the router with its load balancers, the other segments and the
tunnels, the nodes and hosts on them, and under each node its pods, three in a row.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from html import escape
from typing import Final

from proxylab.features.graph.drawing import Group, Thing, balancer_groups, box_of, path_lines, segments, things, tunnels
from proxylab.features.graph.paths import Path
from proxylab.plan.model import Plan, Role
from proxylab.scenario.network import OUTSIDE

_WIDTH: Final = 168
_HEIGHT: Final = 46
_SIDE: Final = 24
_STEP: Final = _WIDTH + _SIDE
_DOWN: Final = 34
_BUS: Final = 16
_IN_A_ROW: Final = 3
_FILLS: Final = {Role.HOST: "#fde8d7", Role.ROUTER: "#e6e6e6", Role.NODE: "#d7e6fd", Role.POD: "#dcf3dc"}
_BALANCER_FILL: Final = "#fdf5c9"
_STYLE: Final = (
    "text{font:13px sans-serif;text-anchor:middle}.about{font-size:11px;fill:#444}"
    ".name{text-anchor:start;font-size:11px}rect{stroke:#666}.link{stroke:#888}.segment{stroke:#333;stroke-width:3}"
    ".tunnel{stroke:#333;stroke-width:3;stroke-dasharray:9 5}.balanced{stroke:#a80;stroke-dasharray:4 4}"
)
_PATH_STYLE: Final = (
    ".leg{stroke-width:3}.leg.there{stroke:#8250df}.leg.back{stroke:#0f6b6b;stroke-dasharray:6 4}"
    "circle.there{fill:#8250df}circle.back{fill:#0f6b6b}.number{fill:white;font-size:11px;font-weight:bold}"
    ".legend{text-anchor:start;font:12px monospace}"
)
_MARKERS: Final = tuple(
    f'<marker id="{kind}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="4" markerHeight="4" orient="auto">'
    f'<path d="M0 0 8 4 0 8z" fill="{colour}"/></marker>'
    for kind, colour in (("there", "#8250df"), ("back", "#0f6b6b"))
)
_ASIDE: Final = (0, 30, -30, 60, -60)
"""The offsets, from the middle of their boxes, of several arrows between the same two boxes."""

_LINE: Final = 17
_LETTER: Final = 7.3


def svg(plan: Plan, path: Path | None = None) -> str:
    """The drawing as one SVG element. A path is drawn on top, and its legs are listed below."""
    found = things(plan)
    outside = [each for each in found if each.role is Role.HOST and each.on == OUTSIDE]
    inside = [each for each in found if each.role is Role.NODE or (each.role is Role.HOST and each.on != OUTSIDE)]
    pods = {node.name: [each for each in found if each.role is Role.POD and each.on == node.name] for node in inside}
    spans = [max(1, min(_IN_A_ROW, len(pods[each.name]))) for each in inside]
    balancers = balancer_groups(plan)
    picture = _Picture(_SIDE + _STEP * max(sum(spans), len(outside), 1 + len(balancers)))
    if outside:
        _draw_outside(picture, outside)
    left = (picture.width + _SIDE - _STEP * (1 + len(balancers))) // 2
    bottom = picture.y + _HEIGHT
    ways: list[tuple[str, int]] = []
    for router in (each for each in found if each.role is Role.ROUTER):
        picture.thing(router, left)
        if outside:
            picture.rise(left + _WIDTH // 2, OUTSIDE, picture.y)
        ways += _draw_balancers(picture, balancers, left)
        picture.down(_HEIGHT + _DOWN)
        for number, segment in enumerate(each for each in segments(found) if each != OUTSIDE):
            picture.bus(segment)
            picture.rise(left + _WIDTH // 2 + 8 * number, segment, bottom)
            picture.down(_BUS)
    for tunnel in tunnels(plan):
        picture.bus(tunnel.title, f"{tunnel.title} ({tunnel.about})", "tunnel")
        picture.down(_BUS)
    picture.down(_DOWN - _BUS)
    top = picture.y
    middles = _draw_inside(picture, inside, spans, pods)
    for node, x in ways:
        picture.line(x, bottom, middles[node], top, "balanced")
    for number, tunnel in enumerate(tunnels(plan), 1):
        for node in tunnel.nodes:
            picture.rise(middles[node] - 8 * number, tunnel.title, top)
    if path is not None:
        _draw_path(picture, plan, path)
    return picture.text()


def _draw_path(picture: "_Picture", plan: Plan, path: Path) -> None:
    """Draw the legs on top, and list them below. A leg within one box is only listed."""
    for number, leg in enumerate(path.all_legs, 1):
        origin, target = box_of(plan, leg.origin), box_of(plan, leg.target)
        if origin != target:
            picture.leg(number, origin, target, "there" if leg.is_request else "back")
    picture.legend(path_lines(path))


def _draw_outside(picture: "_Picture", hosts: Sequence[Thing]) -> None:
    """Draw the hosts behind the router, and their segment."""
    for number, host in enumerate(hosts):
        picture.thing(host, _SIDE + number * _STEP)
    picture.down(_HEIGHT + _DOWN)
    picture.bus(OUTSIDE)
    for number, _ in enumerate(hosts):
        picture.rise(_SIDE + number * _STEP + _WIDTH // 2, OUTSIDE, picture.y - _DOWN)
    picture.down(_DOWN)


def _draw_balancers(picture: "_Picture", balancers: Sequence[Group], left: int) -> list[tuple[str, int]]:
    """Draw the load balancers beside the router at ``left``; return each target node, and the x of its line."""
    ways: list[tuple[str, int]] = []
    for balancer in balancers:
        middle = picture.y + _HEIGHT // 2
        picture.line(left + _WIDTH, middle, left + _STEP, middle)
        left += _STEP
        picture.box(balancer.title, balancer.about, _BALANCER_FILL, left)
        ways += [(node, left + _WIDTH // 2) for node in balancer.nodes]
    return ways


def _draw_inside(
    picture: "_Picture", inside: Sequence[Thing], spans: Sequence[int], pods: dict[str, list[Thing]]
) -> dict[str, int]:
    """Draw nodes and hosts on their segments, and their pods below; return the middle of each."""
    left, top = _SIDE, picture.y
    middles: dict[str, int] = {}
    for thing, span in zip(inside, spans, strict=True):
        middle = middles[thing.name] = left + (span * _STEP - _SIDE) // 2
        picture.y = top
        picture.thing(thing, middle - _WIDTH // 2)
        for number, segment in enumerate(thing.on.split()):
            picture.rise(middle + 8 * number, segment, top)
        picture.down(_HEIGHT + _DOWN)
        for number, pod in enumerate(pods[thing.name]):
            x = left + number % span * _STEP
            if number < span:
                picture.line(middle, top + _HEIGHT, x + _WIDTH // 2, picture.y)
            elif number % span == 0:
                picture.down(_HEIGHT + 8)
            picture.thing(pod, x)
        left += span * _STEP
    return middles


class _Picture:
    """The shapes so far; ``y`` is the top of the next box, ``lowest`` the bottom of the lowest one."""

    def __init__(self, width: int) -> None:
        self.width = width
        self.y = _SIDE
        self.lowest = _SIDE
        self._buses: dict[str, int] = {}
        self._lines: list[str] = []
        self._boxes: list[str] = []
        self._over: list[str] = []
        self._middles: dict[str, tuple[int, int]] = {}
        self._beside: Counter[frozenset[str]] = Counter()

    def down(self, by: int) -> None:
        self.y += by

    def line(self, x1: int, y1: int, x2: int, y2: int, kind: str = "link") -> None:
        self._lines.append(f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" class="{kind}"/>')

    def bus(self, name: str, label: str = "", kind: str = "segment") -> None:
        """A segment or tunnel, drawn across the whole width."""
        self._buses[name] = self.y
        self.line(_SIDE // 2, self.y, self.width - _SIDE // 2, self.y, kind)
        text = escape(label or f"segment {name}")
        self._boxes.append(f'<text x="{_SIDE // 2}" y="{self.y - 4}" class="name">{text}</text>')
        self.lowest = max(self.lowest, self.y)

    def rise(self, x: int, segment: str, y: int) -> None:
        """A line between a box and a segment above it."""
        if segment in self._buses:
            self.line(x, self._buses[segment], x, y)

    def leg(self, number: int, origin: str, target: str, kind: str) -> None:
        """An arrow from edge to edge of two boxes, beside other arrows between the same boxes."""
        (x1, y1), (x2, y2) = self._middles[origin], self._middles[target]
        pair = frozenset((origin, target))
        aside = _ASIDE[self._beside[pair] % len(_ASIDE)]
        self._beside[pair] += 1
        if abs(y2 - y1) > _HEIGHT:
            edge = _HEIGHT // 2 if y2 > y1 else -_HEIGHT // 2
            x1, y1, x2, y2 = x1 + aside, y1 + edge, x2 + aside, y2 - edge
        else:
            edge = _WIDTH // 2 if x2 > x1 else -_WIDTH // 2
            x1, y1, x2, y2 = x1 + edge, y1 + aside // 2, x2 - edge, y2 + aside // 2
        x, y = (x1 + x2) // 2, (y1 + y2) // 2
        self._over += [
            f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" class="leg {kind}" marker-end="url(#{kind})"/>',
            f'<circle cx="{x}" cy="{y}" r="9" class="{kind}"/>',
            f'<text x="{x}" y="{y + 4}" class="number">{number}</text>',
        ]

    def legend(self, lines: Iterable[str]) -> None:
        """Lines of text below the picture."""
        y = self.lowest + _SIDE
        for line in lines:
            y += _LINE
            text = escape(line).replace(" ", "&#160;")
            self._over.append(f'<text x="{_SIDE // 2}" y="{y}" class="legend">{text}</text>')
            self.width = max(self.width, int(_SIDE + len(line) * _LETTER))
        self.lowest = y

    def thing(self, thing: Thing, left: int) -> None:
        self._middles[thing.name] = (left + _WIDTH // 2, self.y + _HEIGHT // 2)
        self.box(thing.title, thing.about, _FILLS[thing.role], left)

    def box(self, title: str, about: str, fill: str, left: int) -> None:
        middle = left + _WIDTH // 2
        self._boxes.append(f'<rect x="{left}" y="{self.y}" width="{_WIDTH}" height="{_HEIGHT}" rx="5" fill="{fill}"/>')
        for text, kind, down, size in ((title, "", 19, 7.2), (about, "about", 36, 6.2)):
            squeezed = (
                f' textLength="{_WIDTH - 8}" lengthAdjust="spacingAndGlyphs"' if len(text) * size > _WIDTH else ""
            )
            self._boxes.append(f'<text x="{middle}" y="{self.y + down}" class="{kind}"{squeezed}>{escape(text)}</text>')
        self.lowest = max(self.lowest, self.y + _HEIGHT)

    def text(self) -> str:
        size = f'width="{self.width}" height="{self.lowest + _SIDE}"'
        head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} viewBox="0 0 {self.width} {self.lowest + _SIDE}">'
        style = _STYLE + _PATH_STYLE if self._over else _STYLE
        ground = f'<style>{style}</style>\n<rect {size} fill="white" style="stroke:none"/>'
        over = [*_MARKERS, *self._over] if self._over else []
        return "\n".join([head, ground, *self._lines, *self._boxes, *over, "</svg>"])
