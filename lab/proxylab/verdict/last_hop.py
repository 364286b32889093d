"""The hops of a request by the taps: the last one, and those that it passed untranslated or translated."""

from proxylab.evidence.evidence import Direction, Observation, Packet
from proxylab.plan.resolved import STACK
from proxylab.verdict.case import Case
from proxylab.verdict.flows import Flow

__all__ = ["hop", "is_at", "last_seen", "left_as_it_was", "translated"]


def last_seen(flow: Flow) -> Observation | None:
    """The last observation of a request."""
    seen = [
        each
        for each in (*flow.departures, *flow.passages, *flow.strays, *flow.arrivals)
        if each.packet is Packet.REQUEST
    ]
    # Of observations at one time the last recorded: the sort is stable.
    return sorted(seen, key=lambda each: each.at)[-1] if seen else None


def left_as_it_was(case: Case, flow: Flow) -> Observation | None:
    """The request leaving a node's device, or coming in at a pod or host, under the address that was dialled.

    A request that leaves a node has passed that node's translation. A later node may still translate it
    (``translated``).
    """
    dialled = (case.resolved.destination, case.resolved.port)
    out = [each for each in flow.passages if each.direction is Direction.OUT and each.packet is Packet.REQUEST]
    return next((each for each in (*out, *flow.strays) if (each.destination, each.destination_port) == dialled), None)


def translated(case: Case, flow: Flow) -> Observation | None:
    """The request on its path, or where it came in, under another address than the dialled one."""
    dialled = (case.resolved.destination, case.resolved.port)
    seen = [each for each in (*flow.passages, *flow.strays) if each.packet is Packet.REQUEST]
    return next((each for each in seen if (each.destination, each.destination_port) != dialled), None)


def hop(seen: Observation) -> str:
    """A hop as ``expect.at`` writes it; the node alone for its own programs."""
    return seen.netns_name if seen.device == STACK else f"{seen.netns_name}/{seen.device}"


def is_at(seen: Observation, where: str) -> bool:
    """Whether ``expect.at`` names this hop, as NODE or as NODE/DEVICE."""
    return where in (seen.netns_name, f"{seen.netns_name}/{seen.device}")
