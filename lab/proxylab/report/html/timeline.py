"""A step as a timeline: a lane for each stream, a mark for each packet, and the step's own moments across all lanes."""

from collections.abc import Iterator, Mapping
from typing import Final

from proxylab.evidence.stream_records import StepEvidence, StreamPacket, StreamPacketFate, StreamRecord
from proxylab.evidence.words import amount
from proxylab.report.html.markup import Markup, tag
from proxylab.verdict.model import StepVerdict

_COLOURS: Final = 5
"""The number of backend colours in the style sheet; further backends reuse them."""

_MOST_PACKETS: Final = 1000
_WIDEST_MARK: Final = 1.6
_NARROWEST_MARK: Final = 0.15
_PART_OF_THE_GAP: Final = 0.6


def timeline(verdict: StepVerdict) -> Markup | None:
    """The timeline of a step; ``None`` if it has no streams."""
    evidence = verdict.evidence
    if not evidence.streams:
        return None
    backends = list(
        dict.fromkeys(packet.backend for each in evidence.streams for packet in each.packets if packet.backend)
    )
    kinds = {backend: f"b{number % _COLOURS}" for number, backend in enumerate(backends)}
    return tag(
        "figure",
        tag("figcaption", "Timeline of the step"),
        tag(
            "table",
            tag("tbody", [_lane(evidence, each, kinds) for each in evidence.streams], _scale(evidence)),
            class_="timeline",
        ),
        tag("ul", list(_legend(evidence, kinds)), class_="legend"),
        class_="step",
    )


def _lane(evidence: StepEvidence, record: StreamRecord, kinds: Mapping[str, str]) -> Markup:
    packets = record.packets[:_MOST_PACKETS]
    width = min(_WIDEST_MARK, max(_NARROWEST_MARK, _PART_OF_THE_GAP * 100 / max(len(packets), 1)))
    marks = [_mark(evidence, packet, width, kinds) for packet in packets]
    breaks = [_line(_at(evidence, each.at), f"break {each.kind}") for each in record.breaks]
    moments = ("changed", evidence.changed), ("settled", evidence.settled)
    steps = [_line(_at(evidence, at), f"moment {name}") for name, at in moments]
    drawing = tag("svg", steps, marks, breaks, aria_hidden="true")
    return tag("tr", tag("th", record.stream, scope="row"), tag("td", drawing, class_="lane"))


def _mark(evidence: StepEvidence, packet: StreamPacket, width: float, kinds: Mapping[str, str]) -> Markup:
    """A stream packet: a full-height mark if answered, half height if rejected, low if lost."""
    kind = kinds[packet.backend] if packet.fate is StreamPacketFate.ANSWERED else str(packet.fate)
    top, height = {
        StreamPacketFate.ANSWERED: ("10%", "80%"),
        StreamPacketFate.REJECTED: ("40%", "50%"),
        StreamPacketFate.LOST: ("70%", "20%"),
    }[packet.fate]
    left = min(max(_at(evidence, packet.at), 0.0), 100.0 - width)
    return tag("rect", x=f"{left:.2f}%", width=f"{width:.2f}%", y=top, height=height, class_=f"packet {kind}")


def _line(at: float, kind: str) -> Markup:
    where = f"{min(max(at, 0.0), 100.0):.2f}%"
    return tag("line", x1=where, x2=where, y1="0", y2="100%", class_=kind)


def _at(evidence: StepEvidence, at: int) -> float:
    """A time as a percentage of the step's duration."""
    return 100 * (at - evidence.began) / max(evidence.ended - evidence.began, 1)


def _scale(evidence: StepEvidence) -> Markup:
    """The duration of the step, below the lanes."""
    ends = tag("span", "0 ms"), tag("span", f"{(evidence.ended - evidence.began) / 1e6:,.0f} ms")
    return tag("tr", tag("td"), tag("td", tag("div", ends, class_="scale")), aria_hidden="true")


def _legend(evidence: StepEvidence, kinds: Mapping[str, str]) -> Iterator[Markup]:
    """The meaning of each kind of mark, with its count."""
    packets = [packet for record in evidence.streams for packet in record.packets]
    for backend, kind in kinds.items():
        answered = sum(packet.backend == backend for packet in packets)
        yield _key(kind, f"answered by {backend}: {answered:,}")
    for fate in (StreamPacketFate.REJECTED, StreamPacketFate.LOST):
        if found := sum(packet.fate is fate for packet in packets):
            yield _key(str(fate), f"{fate}: {found:,}")
    if breaks := sum(len(record.breaks) for record in evidence.streams):
        yield _key("break", f"{amount(breaks, 'end')} of a connection")
    yield _key("moment changed", "the step applies its change")
    yield _key("moment settled", "the step's condition holds")
    if any(len(record.packets) > _MOST_PACKETS for record in evidence.streams):
        yield tag("li", f"the timeline shows the first {_MOST_PACKETS:,} packets of each stream")


def _key(kind: str, words: str) -> Markup:
    return tag("li", tag("span", class_=f"key {kind}", aria_hidden="true"), words)
