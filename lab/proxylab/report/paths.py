"""The way of a probe on the wire of a lab: as it follows from the plan, or as it was seen.

Owns: ``Path`` and its legs, for pictures of every kind, and ``seen_path``, which makes one of evidence.
Must not: draw (``drawing`` and ``svg`` do), or say how rules will be (``forecast`` asks the author).
"""

from collections.abc import Iterator
from itertools import pairwise

from proxylab.evidence.evidence import Packet
from proxylab.frozen import dataclass
from proxylab.verdict.case import Case
from proxylab.verdict.stops import Ends, Stop, stops

__all__ = ["Branch", "Leg", "Path", "seen_path"]


@dataclass(frozen=True, slots=True)
class Leg:
    """One step of a packet: the place and the device that it leaves, and those that it comes to.

    Attributes:
        origin: a namespace of the plan, or a pod.
        out: the device there.
        target: likewise.
        into: the device there.
        packet: what it is then: its source and destination, and what it is to its flow, if that is no request.
        changes: what was done to it at ``origin`` before, in clauses.
        is_request: whether it is on its way there, and not back.
    """

    origin: str
    out: str
    target: str
    into: str
    packet: str
    changes: tuple[str, ...] = ()
    is_request: bool = True


@dataclass(frozen=True, slots=True)
class Branch:
    """One of several ways on from where a path divides. ``name`` is the backend's; empty if there is only one way."""

    name: str
    legs: tuple[Leg, ...]
    ends: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Path:
    """A way with all that it may become. ``ends`` are clauses about how it ends, or about where it divides."""

    title: str
    legs: tuple[Leg, ...]
    branches: tuple[Branch, ...] = ()
    ends: tuple[str, ...] = ()

    @property
    def all_legs(self) -> tuple[Leg, ...]:
        """Those before it divides, then those of each branch."""
        return (*self.legs, *(leg for branch in self.branches for leg in branch.legs))


def seen_path(case: Case, number: int = 0) -> Path:
    """The way of one flow there and back, as the taps saw it."""
    found = stops(case.flows[number])
    legs = tuple(_legs(found))
    title = f"{case.probe.name}, as it was seen"
    if len(case.flows) > 1:
        title += f": flow {number:,} of {len(case.flows):,}"
    return Path(title, legs, ends=() if found else ("nothing was seen of it",))


def _legs(found: tuple[Stop, ...]) -> Iterator[Leg]:
    for before, stop in pairwise(found):
        if stop.follows:
            kind = "" if stop.packet is Packet.REQUEST else f"{stop.packet} "
            changes = (*_changes(before.came, before.went), *_changes(before.went, stop.came))
            packet = f"{kind}{stop.came.source} > {stop.came.destination}"
            yield Leg(before.netns_name, before.out, stop.netns_name, stop.by, packet, changes, not kind)


def _changes(old: Ends, new: Ends) -> Iterator[str]:
    if old.destination != new.destination:
        yield f"destination {old.destination} becomes {new.destination}"
    if old.source != new.source:
        yield f"source {old.source} becomes {new.source}"
