"""Where a packet was seen on its way: the last hop of what went no further, and the hops it passed as it was sent.

Owns: the clauses that devices of nodes are witnesses for.
Must not: judge.
"""

from proxylab.evidence.evidence import Direction, Observation, Packet
from proxylab.plan.resolved import STACK
from proxylab.verdict.case import Case
from proxylab.verdict.flows import Flow

__all__ = ["hop", "is_at", "last_seen", "left_as_it_was", "translated"]


def last_seen(flow: Flow) -> Observation | None:
    """The last that was seen of a request."""
    seen = [
        each
        for each in (*flow.departures, *flow.passages, *flow.strays, *flow.arrivals)
        if each.packet is Packet.REQUEST
    ]
    # Of those at one time the later in the record: sorting keeps their order.
    return sorted(seen, key=lambda each: each.at)[-1] if seen else None


def left_as_it_was(case: Case, flow: Flow) -> Observation | None:
    """The request leaving a node's device, or coming in at a pod or host, under the address that was dialled.

    What comes into a node is not yet translated, if it ever is; what leaves it again is as this node leaves it. A later
    one may still translate it (``translated``).
    """
    dialled = (case.resolved.destination, case.resolved.port)
    out = [each for each in flow.passages if each.direction is Direction.OUT and each.packet is Packet.REQUEST]
    return next((each for each in (*out, *flow.strays) if (each.destination, each.destination_port) == dialled), None)


def translated(case: Case, flow: Flow) -> Observation | None:
    """The request on its way, or come in somewhere, under another address than the one that was dialled."""
    dialled = (case.resolved.destination, case.resolved.port)
    seen = [each for each in (*flow.passages, *flow.strays) if each.packet is Packet.REQUEST]
    return next((each for each in seen if (each.destination, each.destination_port) != dialled), None)


def hop(seen: Observation) -> str:
    """A hop as ``expect.at`` writes it; of a node's own programs, the node."""
    return seen.netns_name if seen.device == STACK else f"{seen.netns_name}/{seen.device}"


def is_at(seen: Observation, where: str) -> bool:
    """Whether a hop is the place that ``expect.at`` names, as NODE or as NODE/DEVICE."""
    return where in (seen.netns_name, f"{seen.netns_name}/{seen.device}")
