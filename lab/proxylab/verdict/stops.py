"""The path of one flow as stops: a packet at one node, pod or host after another, and how it changed there."""

from collections.abc import Iterator

from msgspec import Struct

from proxylab.evidence.evidence import Direction, Observation, Packet
from proxylab.evidence.words import endpoint
from proxylab.plan.resolved import STACK
from proxylab.verdict.flows import Flow, hops

__all__ = ["Ends", "Stop", "stops"]


class Ends(Struct, frozen=True):
    """From where to where a packet goes, each as an address with its port."""

    source: str
    destination: str


class Stop(Struct, frozen=True):
    """One packet in one node, pod or host, from its first sighting there to its last.

    Attributes:
        seen: the sightings, in the order of time.
        follows: whether the packet may have come there from the stop before.
    """

    seen: tuple[Observation, ...]
    follows: bool

    @property
    def netns_name(self) -> str:
        """The node, pod or host."""
        return self.seen[0].netns_name

    @property
    def packet(self) -> Packet:
        """Its kind: request, reply or ICMP error."""
        return self.seen[0].packet

    @property
    def came(self) -> Ends:
        """Its addresses as it came or was generated."""
        return _ends(self.seen[0])

    @property
    def went(self) -> Ends:
        """Its addresses at its last sighting there."""
        return _ends(self.seen[-1])

    @property
    def left(self) -> bool:
        """Whether it left."""
        return self.seen[-1].direction is Direction.OUT

    @property
    def by(self) -> str:
        """The device by which it came; empty for a packet generated there."""
        return self.seen[0].device if self.seen[0].direction is Direction.IN else ""

    @property
    def out(self) -> str:
        """The device by which it left; empty if it did not."""
        return self.seen[-1].device if self.left else ""


def stops(flow: Flow) -> tuple[Stop, ...]:
    """The stops of a flow, in the order of time."""
    found: list[Stop] = []
    for seen in _grouped(flow):
        follows = bool(found) and _goes_on(found[-1].seen[-1], seen[0])
        found.append(Stop(seen, follows))
    return tuple(found)


def _grouped(flow: Flow) -> Iterator[tuple[Observation, ...]]:
    """Successive sightings in one node, pod or host. The same tap twice shows the same packet sent twice."""
    together: list[Observation] = []
    for seen in hops(flow):
        if together and (
            (seen.netns_name, seen.packet) != (together[-1].netns_name, together[-1].packet)
            or (together[-1].direction is Direction.OUT and seen.direction is Direction.IN)
            or any((each.device, each.direction) == (seen.device, seen.direction) for each in together)
        ):
            yield tuple(together)
            together = []
        together.append(seen)
    if together:
        yield tuple(together)


def _goes_on(last: Observation, first: Observation) -> bool:
    """Whether the packet last seen at one stop can be the one first seen at the next.

    No link lies between a node and the pods in its namespace: incoming packets go up to their stack, and outgoing ones
    leave by the node's devices.
    """
    if last.packet is not first.packet:
        return False
    if first.device == STACK and first.direction is Direction.IN:
        return True
    if last.device == STACK and last.direction is Direction.OUT:
        return True
    return last.direction is Direction.OUT and first.direction is Direction.IN


def _ends(seen: Observation) -> Ends:
    return Ends(endpoint(seen.source, seen.source_port), endpoint(seen.destination, seen.destination_port))
