"""The way of one flow as stops: a packet at one place after another, and what was done to it there.

Owns: ``Stop``, which sightings are of one stop, and from where a packet came to it.
Must not: judge, or lay anything out.
"""

from collections.abc import Iterator

from proxylab.evidence.evidence import Direction, Observation, Packet
from proxylab.evidence.words import endpoint
from proxylab.frozen import dataclass
from proxylab.plan.resolved import STACK
from proxylab.verdict.flows import Flow, hops

__all__ = ["Ends", "Stop", "stops"]


@dataclass(frozen=True, slots=True)
class Ends:
    """From where to where a packet goes, each as an address with its port."""

    source: str
    destination: str


@dataclass(frozen=True, slots=True)
class Stop:
    """One packet at one place, from its first sighting there to its last.

    Attributes:
        seen: the sightings, in the order of time.
        follows: whether the packet came there from the stop before, as far as anybody saw.
    """

    seen: tuple[Observation, ...]
    follows: bool

    @property
    def netns_name(self) -> str:
        """The node, pod or host."""
        return self.seen[0].netns_name

    @property
    def packet(self) -> Packet:
        """What it is to its flow."""
        return self.seen[0].packet

    @property
    def came(self) -> Ends:
        """The packet as it came, or was made."""
        return _ends(self.seen[0])

    @property
    def went(self) -> Ends:
        """The packet as it was seen there last."""
        return _ends(self.seen[-1])

    @property
    def left(self) -> bool:
        """Whether it was seen to leave."""
        return self.seen[-1].direction is Direction.OUT

    @property
    def by(self) -> str:
        """The device by which it came; empty for what was made there."""
        return self.seen[0].device if self.seen[0].direction is Direction.IN else ""

    @property
    def out(self) -> str:
        """The device by which it left; empty for what did not."""
        return self.seen[-1].device if self.left else ""


def stops(flow: Flow) -> tuple[Stop, ...]:
    """All that was seen of a flow, in the order of time."""
    found: list[Stop] = []
    for seen in _grouped(flow):
        follows = bool(found) and _goes_on(found[-1].seen[-1], seen[0])
        found.append(Stop(seen, follows))
    return tuple(found)


def _grouped(flow: Flow) -> Iterator[tuple[Observation, ...]]:
    """Sightings that follow each other at one place. The same tap twice is the same packet sent twice."""
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
    """Whether a packet that was seen last at one place can be the one that is seen first at another.

    Between a node and the pods that live in its namespace there is no wire: what comes in is handed up to their
    stack, and what they send goes out by the node's devices.
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
