"""Flows that were translated again on their way, by what was captured at each hop.

Owns: ``Retranslation``, and how it is found: the request as it came to each place and as it left it again.
Must not: judge, or take connection tracking for a witness of what a packet was.

A Service's path translates a packet once: the node that it enters makes a pod its destination, and may masquerade it on
the same visit. An endpoint that is a node port of another node is translated there once more, since its address is
no pod's. What is changed at another node although it was addressed to a pod already, no Service has asked for.

Connection tracking of the first node cannot know of the second translation, so the two contradict each other. Packets
that were captured at every hop decide: nothing but the second node can have changed what came to it in one form
and left it in another.
"""

from itertools import pairwise

from proxylab.evidence.evidence import Observation, Packet
from proxylab.evidence.words import endpoint
from proxylab.frozen import dataclass
from proxylab.plan.resolved import STACK, ResolvedProbe
from proxylab.verdict.flows import Flow
from proxylab.verdict.stops import Stop, stops

__all__ = ["Retranslation", "Translation", "retranslated"]


@dataclass(frozen=True, slots=True)
class Translation:
    """A request as it came to a node, and as the node sent it on."""

    node: str
    came: Observation
    went: Observation

    @property
    def of_destination(self) -> bool:
        """Whether another destination was put in."""
        came, went = self.came, self.went
        return (came.destination, came.destination_port) != (went.destination, went.destination_port)

    @property
    def of_source(self) -> bool:
        """Whether another source was put in."""
        return (self.came.source, self.came.source_port) != (self.went.source, self.went.source_port)


@dataclass(frozen=True, slots=True)
class Retranslation:
    """The translation that made a pod the destination, or the last before, and the one that no Service asks for."""

    first: Translation
    second: Translation

    def __str__(self) -> str:
        return self.told()

    def told(self, by_first: str = "", by_second: str = "") -> str:
        """Both as a clause; what follows "translated" and its object, such as the rule, is given for each."""
        first, second = self.first, self.second
        other_port = not second.of_destination and second.came.source == second.went.source
        return (
            f"{first.node} translated {_ends(first.came)} to {_ends(first.went)}{by_first}, and {second.node} "
            f"translated that to {_ends(second.went, port=other_port)}{by_second}"
        )


def retranslated(flow: Flow, resolved: ResolvedProbe) -> Retranslation | None:
    """The second translation of a flow; ``None`` where there was none, or not every hop was captured."""
    changes = _changes(flow, frozenset(resolved.nodes))
    for first, second in pairwise(changes):
        if any(
            second.came.destination == each.address and (not each.ports or second.came.destination_port in each.ports)
            for each in resolved.receivers
        ):
            return Retranslation(first, second)
    return None


def _changes(flow: Flow, nodes: frozenset[str]) -> list[Translation]:
    """What each node changed on the way from the sender to the pod, one entry for each visit of a node."""
    way = _way(flow)
    found: list[Translation] = []
    for at, stop in enumerate(way):
        if stop.came != stop.went:
            found.append(Translation(stop.netns_name, stop.seen[0], stop.seen[-1]))
        following = way[at + 1] if at + 1 < len(way) else None
        if following is None or following.came == stop.went:
            continue
        # Between a node's devices and its own programs stand the rules of the node.
        if following.seen[0].device == STACK and stop.netns_name in nodes:
            node = stop.netns_name
        elif stop.seen[-1].device == STACK and following.netns_name in nodes:
            node = following.netns_name
        else:
            return []  # something changed it where nothing was captured
        found.append(Translation(node, stop.seen[-1], following.seen[0]))
    return _by_visit(found)


def _way(flow: Flow) -> list[Stop]:
    """The request from the sender to its first pod, or to where it was seen last; none if it never left."""
    way: list[Stop] = []
    for stop in stops(flow):
        if stop.packet is not Packet.REQUEST:
            continue
        if stop.seen[0] in flow.departures:
            way = []  # the sender has said it again
        elif not way:
            return []
        way.append(stop)
        if stop.seen[-1] in flow.arrivals:
            return way
    return way


def _by_visit(changes: list[Translation]) -> list[Translation]:
    """Changes of one node that follow each other are one: a bridge shows a packet between its two translations."""
    merged: list[Translation] = []
    for change in changes:
        if merged and merged[-1].node == change.node:
            merged[-1] = Translation(change.node, merged[-1].came, change.went)
        else:
            merged.append(change)
    return merged


def _ends(seen: Observation, *, port: bool = False) -> str:
    """Source and destination; the source port, which differs from flow to flow, only where it is what was changed."""
    source = endpoint(seen.source, seen.source_port) if port else str(seen.source)
    return f"{source} > {endpoint(seen.destination, seen.destination_port)}"
