"""The time to live of packets, which IPv6 calls their hop limit, and the packet that comes where another was expected.

Each machine that routes a packet takes one from its time to live (RFC 1812, section 5.3.1; RFC 8200, section 3), and
nothing else on the way of a packet to a Service changes it. A bridge takes none, nor does a stack that gives a packet
to a program of its own or gets it from one. Mode ipvs takes one of what a program of the node sends, too: it passes
packets on by itself (``decrement_ttl`` in net/netfilter/ipvs/ip_vs_xmit.c). A program between two legs sends packets
of its own, each with a new time to live.

Each device of a node has a tap, so the sightings before and after a node show what the node took. Between two machines
stands a link, or with hosts the lab's router, which has no taps: it takes at most one.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import zip_longest
from typing import Final, NamedTuple

from msgspec import Struct

from proxylab.evidence.evidence import Direction, Evidence, Observation, Packet
from proxylab.evidence.ipvs import VIRTUAL_SERVERS
from proxylab.plan.device_names import OVERLAY
from proxylab.plan.resolved import STACK, ResolvedProbe
from proxylab.scenario.network import UPLINK
from proxylab.verdict.flows import Flow, Stop

_ROUTED: Final = frozenset({UPLINK, OVERLAY})
"""Devices of a node that are no ports of its bridge."""

_WORDS: Final = {4: "time to live", 6: "hop limit"}


def ttl_word(version: int) -> str:
    """What a version of IP calls the time to live."""
    return _WORDS[version]


class _Decrease(NamedTuple):
    """Two sightings in order, and how much the first must exceed the second: at least and at most."""

    before: Observation
    after: Observation
    least: int
    most: int

    @property
    def is_right(self) -> bool:
        """Whether it does. A sighting without a known time to live contradicts nothing."""
        known = self.before.ttl and self.after.ttl
        return not known or self.least <= self.before.ttl - self.after.ttl <= self.most

    @property
    def is_inside(self) -> bool:
        """Whether both are of one node, pod or host."""
        return self.before.netns_name == self.after.netns_name


class HopLimits(Struct, frozen=True):
    """Compares the times to live of a probe's packets, hop by hop."""

    resolved: ResolvedProbe
    evidence: Evidence

    def clauses(self, flows: Iterable[Flow], packet: Packet) -> Mapping[int, str]:
        """Where the requests or replies of flows lost more or less than one at a router, by flow number.

        Thousands of flows go few ways, so each way is followed once.
        """
        found, known = dict[int, str](), dict[tuple[object, ...], str]()
        for flow in flows:
            ends = (flow.departures, flow.arrivals) if packet is Packet.REQUEST else (flow.answers, flow.replies)
            if not all(ends):
                continue
            key = tuple(
                (seen.netns_name, seen.device, seen.direction, seen.ttl)
                for seen in (*ends[0], *flow.passages, *flow.relays, *ends[1])
                if seen.packet is packet
            )
            if key not in known:
                known[key] = self._clause(flow, packet)
            if known[key]:
                found[flow.number] = known[key]
        return found

    def changed_on(self, flow: Flow, packet: Packet) -> str:
        """The node, pod or host that took more or less than a router does; empty where none did."""
        wrong = self._wrong(flow, packet)
        return wrong.after.netns_name if wrong is not None and wrong.is_inside else ""

    def expected(self, flow: Flow, packet: Packet) -> int | None:
        """The time to live with which a packet should come to the end of its way; ``None`` where that is unknown.

        A router without taps counts where the packet shows that one took its share. A program between two legs begins
        anew.
        """
        expected, leg = 0, None
        for before, after, least, most in self._taken(flow, packet):
            if not (before.ttl and after.ttl):
                return None
            begun = expected if before.leg is leg else before.ttl
            expected, leg = begun - min(max(before.ttl - after.ttl, least), most), before.leg
        return expected or None

    def _clause(self, flow: Flow, packet: Packet) -> str:
        wrong = self._wrong(flow, packet)
        if wrong is None:
            return ""
        before, after = wrong.before, wrong.after
        word = ttl_word(after.source.version)
        expected = before.ttl - wrong.most
        if wrong.is_inside:
            return f"{after.netns_name} passed the {packet} on with a {word} of {after.ttl}, not of {expected}"
        at = f"{after.netns_name}/{after.device}"
        return f"the {packet} came to {at} with a {word} of {after.ttl}, and had left with {before.ttl}"

    def _wrong(self, flow: Flow, packet: Packet) -> _Decrease | None:
        return next((taken for taken in self._taken(flow, packet) if not taken.is_right), None)

    def _taken(self, flow: Flow, packet: Packet) -> Iterator[_Decrease]:
        """What each stop of the way took, and what was taken between them; nothing where the taps missed a hop."""
        way = flow.way if packet is Packet.REQUEST else flow.way_back
        came: Observation | None = None
        for stop, following in zip_longest(way, way[1:]):
            came = came or stop.seen[0]
            if following is not None and _goes_on_inside(stop, following):
                continue  # taps saw a copy elsewhere in between: both are one stop
            went = _went(stop, following)
            if came is not went:
                yield _Decrease(came, went, *self._in_stop(stop, came, went))
            if following is not None and not following.relayed:
                inside = STACK in (went.device, following.seen[0].device)
                yield _Decrease(went, following.seen[0], 0, 0 if inside else 1)
            came = None

    def _in_stop(self, stop: Stop, came: Observation, went: Observation) -> tuple[int, int]:
        if came.direction is Direction.IN and went.direction is Direction.OUT:
            may_be_bridged = self.resolved.bridged and not {came.device, went.device} & _ROUTED
            return 0 if may_be_bridged else 1, 1
        sent_here = came.device == STACK and came.direction is Direction.OUT
        by_ipvs = any(each.node == stop.netns_name and each.table == VIRTUAL_SERVERS for each in self.evidence.counts)
        return 0, int(sent_here and by_ipvs)


def _goes_on_inside(stop: Stop, following: Stop) -> bool:
    first = following.seen[0]
    leaves = first.direction is Direction.OUT and first.device != STACK
    return leaves and first.netns_name == stop.netns_name and not following.relayed


def _went(stop: Stop, following: Stop | None) -> Observation:
    """The last sighting of a stop that leads on: one that sends copies has several."""
    if following is None:
        return stop.seen[-1]
    first = following.seen[0]
    on = [seen for seen in stop.seen if seen.direction is Direction.OUT and _same_ends(seen, first)]
    return (on or stop.seen)[-1]


def _same_ends(one: Observation, other: Observation) -> bool:
    return (one.source, one.source_port, one.destination, one.destination_port) == (
        other.source,
        other.source_port,
        other.destination,
        other.destination_port,
    )
