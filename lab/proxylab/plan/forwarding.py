"""The path of a packet by the plan alone: route and neighbour look-ups as the kernel does them, hop by hop.

The module knows no rules, so it does not see what an engine translates on the path.
"""

from collections.abc import Iterator

from msgspec import Struct

from proxylab.addresses import IPAddress
from proxylab.plan.model import MAIN_TABLE, Bridge, LinkEnd, Plan, PlannedNamespace, Route, Vxlan
from proxylab.scenario.network import UPLINK


class UnreachableError(LookupError):
    """No route, or no next hop: the message says where the path ends."""


class Hop(Struct, frozen=True):
    """One step of a packet: the device that it leaves through and the device where it arrives."""

    out: LinkEnd
    into: LinkEnd


def route_to(namespace: PlannedNamespace, destination: IPAddress) -> Route:
    """The route that the kernel takes: the longest prefix of the main table that holds the destination.

    The kernel's own routes for the networks of its addresses count as well. In IPv4 each prefers that address as source
    (fib_add_ifaddr, net/ipv4/fib_frontend.c). Raises ``UnreachableError``.
    """
    connected = [
        Route(own.network, each.device, source=own.ip if own.version == 4 else None)
        for each in namespace.addresses
        for own in (each.interface,)
    ]
    fitting = [
        route
        for route in (*namespace.routes, *connected)
        if destination in route.destination and route.table == MAIN_TABLE
    ]
    if not fitting:
        raise UnreachableError(f"{namespace.name} has no route to {destination}")
    return max(fitting, key=lambda route: route.destination.prefixlen)


def next_hop(plan: Plan, placement: str, destination: IPAddress) -> Hop:
    """The next step of a packet for ``destination`` from the namespace ``placement``.

    For a multipath route, the first next hop stands for all (see ``next_hops``).

    Raises:
        UnreachableError: no route, or no device on the segment has the address of the next hop.
    """
    return next(next_hops(plan, placement, destination))


def next_hops(plan: Plan, placement: str, destination: IPAddress) -> Iterator[Hop]:
    """The next steps that a packet for ``destination`` may take: one, or several of a multipath route.

    Raises:
        UnreachableError: no route, no device on the segment has the address of a next hop, or the address is its own.
    """
    namespace = plan.namespace(placement)
    if namespace.has(destination):
        raise UnreachableError(f"{destination} is {placement}'s own address, and a packet to it crosses no device")
    route = route_to(namespace, destination)
    for wanted in [each.via for each in route.hops] or [route.via or destination]:
        yield Hop(_device(plan, placement, route.device), _holder(plan, placement, route.device, wanted))


def _holder(plan: Plan, placement: str, device: str, wanted: IPAddress) -> LinkEnd:
    """The device on the segment that answers for an address."""
    announcer = plan.announcer(wanted)
    for end in on_segment(plan, placement, device):
        if (
            end.proxy_arp
            or (end.namespace, end.device) == (announcer, UPLINK)
            or any(
                address.device == end.device and address.interface.ip == wanted
                for address in plan.namespace(end.namespace).addresses
            )
        ):
            return end
    raise UnreachableError(f"no device on the segment of {placement}/{device} has {wanted}")


def path(plan: Plan, placement: str, destination: IPAddress) -> tuple[Hop, ...]:
    """Every hop from ``placement`` to the namespace that has ``destination``. Raises ``UnreachableError``."""
    hops: list[Hop] = []
    while not plan.namespace(placement).has(destination):
        hop = next_hop(plan, placement, destination)
        if hop in hops:
            raise UnreachableError(f"the path to {destination} comes back to {placement}")
        hops.append(hop)
        placement = hop.into.namespace
    return tuple(hops)


def _device(plan: Plan, placement: str, device: str) -> LinkEnd:
    """A device of a namespace; a bridge or VXLAN device as if it were the end of a link."""
    tops = _tops(plan.namespace(placement))
    if device in tops:
        return LinkEnd(placement, device, tops[device].index, tops[device].mac)
    return plan.end(placement, device)


def _tops(namespace: PlannedNamespace) -> dict[str, Bridge | Vxlan]:
    tops: list[Bridge | Vxlan] = [*namespace.bridges, *namespace.vxlans]
    return {top.device: top for top in tops}


def on_segment(plan: Plan, placement: str, device: str) -> Iterator[LinkEnd]:
    """The devices that a frame from this one can reach: its peer, ports of its bridge or its peer's, tunnel ends.

    They do not include devices of the namespace itself.
    """
    namespace = plan.namespace(placement)
    if any(vxlan.device == device for vxlan in namespace.vxlans):
        remotes = {entry.remote for entry in namespace.forwarding if entry.device == device}
        for other in plan.namespaces:
            yield from (_device(plan, other.name, vxlan.device) for vxlan in other.vxlans if vxlan.local in remotes)
        return
    if any(bridge.device == device for bridge in namespace.bridges):
        yield from _behind_ports(plan, placement, device)
        return
    peer = plan.peer(placement, device)
    if peer.master is None:
        yield peer
        return
    yield from (end for end in _behind_ports(plan, peer.namespace, peer.master) if end.namespace != placement)
    yield _device(plan, peer.namespace, peer.master)


def _behind_ports(plan: Plan, placement: str, bridge: str) -> Iterator[LinkEnd]:
    """The far end of each port of a bridge."""
    for link in plan.links:
        for port, far in (link.ends, link.ends[::-1]):
            if (port.namespace, port.master) == (placement, bridge):
                yield far
