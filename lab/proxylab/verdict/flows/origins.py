"""Who made what the sender heard: a reply, a reset or an ICMP error, by where the taps saw it first.

Every device of a node, pod and outside host has a tap. So what a tap first saw going out was made behind that device,
and what a tap first saw coming in was made by a machine without taps: a router.
"""

from msgspec import Struct

from proxylab.evidence.evidence import Direction, Observation, Packet
from proxylab.plan.resolved import STACK
from proxylab.verdict.flows.flows import Flow


class Origin(Struct, frozen=True):
    """The first sighting of an answer. ``maker`` is the namespace that made it; empty where no tap saw that."""

    seen: Observation
    maker: str


def origin(flow: Flow, packet: Packet) -> Origin | None:
    """Where an answer of that kind was seen first; ``None`` where only the sender saw it, or no tap did."""
    on_the_way = (*flow.passages, *flow.answers, *flow.answers_from_wrong_address, *flow.refusals, *flow.relays)
    seen = [each for each in on_the_way if each.packet is packet]
    first = min(seen, key=lambda each: (each.at, each.direction is Direction.IN), default=None)
    if first is None:
        return None
    made_there = first.direction is Direction.OUT or first.device == STACK
    return Origin(first, first.netns_name if made_there else "")
