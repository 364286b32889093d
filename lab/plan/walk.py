"""Where a packet goes next, by the plan alone.

Owns: route and neighbour look-up as the kernel does them on a planned namespace, and the way from hop to hop.
Must not: know rules: what an engine translates on the way, no plan can tell.
"""

from dataclasses import dataclass

from lab.ip import IPAddress
from lab.plan.model import LinkEnd, Namespace, Plan, Route

__all__ = ["Hop", "UnreachableError", "next_hop", "route_to", "way"]


class UnreachableError(LookupError):
    """No route, or nobody behind it: the message says where the way ends."""


@dataclass(frozen=True, slots=True)
class Hop:
    """One step of a packet: the device it leaves by and the device it arrives at."""

    out: LinkEnd
    into: LinkEnd


def route_to(namespace: Namespace, destination: IPAddress) -> Route:
    """The route that the kernel takes: the longest prefix that holds the destination.

    The kernel's own routes for the networks of its addresses count as well (fib_add_ifaddr, net/ipv4/fib_frontend.c).

    Raises:
        UnreachableError: there is none.
    """
    connected = [Route(address.interface.network, address.device) for address in namespace.addresses]
    fitting = [route for route in (*namespace.routes, *connected) if destination in route.destination]
    if not fitting:
        raise UnreachableError(f"{namespace.name} has no route to {destination}")
    return max(fitting, key=lambda route: route.destination.prefixlen)


def next_hop(plan: Plan, place: str, destination: IPAddress) -> Hop:
    """The step that a packet for ``destination`` takes from the namespace ``place``.

    Raises:
        UnreachableError: no route, or nobody on the segment has the address of the next hop.
    """
    route = route_to(plan.namespace(place), destination)
    out = plan.end(place, route.device)
    wanted = route.via or destination
    for end in _on_segment(plan, out):
        if any(
            address.device == end.device and address.interface.ip == wanted
            for address in plan.namespace(end.namespace).addresses
        ):
            return Hop(out, end)
    raise UnreachableError(f"nobody has {wanted} on the segment of {place}/{out.device}")


def way(plan: Plan, place: str, destination: IPAddress) -> tuple[Hop, ...]:
    """Every hop from ``place`` to the namespace that has ``destination``.

    Raises:
        UnreachableError: the way ends before, or goes in a circle.
    """
    hops: list[Hop] = []
    while not any(address.interface.ip == destination for address in plan.namespace(place).addresses):
        hop = next_hop(plan, place, destination)
        if hop in hops:
            raise UnreachableError(f"the way to {destination} comes back to {place}")
        hops.append(hop)
        place = hop.into.namespace
    return tuple(hops)


def _on_segment(plan: Plan, end: LinkEnd) -> tuple[LinkEnd, ...]:
    """The devices that a frame from ``end`` can reach: its peer, or all devices on the peer's bridge."""
    peer = plan.peer(end.namespace, end.device)
    if peer.master is None:
        return (peer,)
    return tuple(
        second if first.namespace == peer.namespace else first
        for first, second in (link.ends for link in plan.links)
        for port in (first, second)
        if (port.namespace, port.master) == (peer.namespace, peer.master) and end not in (first, second)
    )
