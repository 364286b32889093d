"""Flows that a second node translated again, by the packets captured at each hop.

A Service translates a packet once: the first node makes a pod its destination, and may masquerade it in the same pass.
An endpoint that is a node port of another node is translated there once more, since its address is no pod's. No Service
asks another node to change a packet that is already addressed to a pod.

The first node's connection tracking does not know the second translation, so it contradicts the pod's tap. The packets
captured at every hop decide: only the second node can have changed a packet between coming in and leaving.
"""

from itertools import pairwise

from msgspec import Struct

from proxylab.evidence.evidence import Observation, Packet
from proxylab.evidence.words import endpoint
from proxylab.plan.resolved import STACK, ResolvedProbe
from proxylab.verdict.flows import Flow
from proxylab.verdict.stops import Stop, stops

__all__ = ["SecondNat", "Translation", "second_nat"]


class Translation(Struct, frozen=True):
    """A request as it came to a node, and as the node sent it on."""

    node: str
    came: Observation
    went: Observation

    @property
    def of_destination(self) -> bool:
        """Whether the node changed the destination."""
        came, went = self.came, self.went
        return (came.destination, came.destination_port) != (went.destination, went.destination_port)

    @property
    def of_source(self) -> bool:
        """Whether the node changed the source."""
        return (self.came.source, self.came.source_port) != (self.went.source, self.went.source_port)


class SecondNat(Struct, frozen=True):
    """The last translation that a Service asks for, and the one that no Service asks for."""

    first: Translation
    second: Translation

    def __str__(self) -> str:
        return self.clause()

    def clause(self, by_first: str = "", by_second: str = "") -> str:
        """Both as a clause; ``by_first`` and ``by_second`` name the rule behind each."""
        first, second = self.first, self.second
        other_port = not second.of_destination and second.came.source == second.went.source
        return (
            f"{first.node} translated {_ends(first.came)} to {_ends(first.went)}{by_first}, and {second.node} "
            f"translated that to {_ends(second.went, port=other_port)}{by_second}"
        )


def second_nat(flow: Flow, resolved: ResolvedProbe) -> SecondNat | None:
    """The second translation of a flow; ``None`` without one, or if the taps missed a hop."""
    changes = _changes(flow, frozenset(resolved.nodes))
    for first, second in pairwise(changes):
        if any(
            second.came.destination == each.address and (not each.ports or second.came.destination_port in each.ports)
            for each in resolved.receivers
        ):
            return SecondNat(first, second)
    return None


def _changes(flow: Flow, nodes: frozenset[str]) -> list[Translation]:
    """What each node changed between the sender and the pod, one entry for each pass through a node."""
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
            return []  # it changed between two taps
        found.append(Translation(node, stop.seen[-1], following.seen[0]))
    return _in_order_of_nodes(found)


def _way(flow: Flow) -> list[Stop]:
    """The stops of the request from the sender to its first pod or its last sighting; none if it never left."""
    way: list[Stop] = []
    for stop in stops(flow):
        if stop.packet is not Packet.REQUEST:
            continue
        if stop.seen[0] in flow.departures:
            way = []  # the sender repeated it
        elif not way:
            return []
        way.append(stop)
        if stop.seen[-1] in flow.arrivals:
            return way
    return way


def _in_order_of_nodes(changes: list[Translation]) -> list[Translation]:
    """Successive changes by one node become one: a bridge shows a packet between DNAT and masquerading."""
    merged: list[Translation] = []
    for change in changes:
        if merged and merged[-1].node == change.node:
            merged[-1] = Translation(change.node, merged[-1].came, change.went)
        else:
            merged.append(change)
    return merged


def _ends(seen: Observation, *, port: bool = False) -> str:
    """Source and destination; the source port, which differs from flow to flow, only where the node changed it."""
    source = endpoint(seen.source, seen.source_port) if port else str(seen.source)
    return f"{source} > {endpoint(seen.destination, seen.destination_port)}"
