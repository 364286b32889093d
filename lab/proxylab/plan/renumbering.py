"""Nodes that get other addresses in a step: what becomes of the plan then.

The machine has the new address in place of its own one of that family, on the same device and in the same network.
Others route or tunnel to the node's pods by it, load balancers send to it, and pods on the node's network have it.
Addresses that the author adds to a node stay, and so does what the lab has recorded under the former ones.
"""

from collections.abc import Collection, Iterable, Mapping

from msgspec.structs import replace

from proxylab.addresses import Family, IPAddress
from proxylab.plan.model import Address, Plan, PlannedNamespace, Route

Moves = Mapping[IPAddress, IPAddress]
"""The new address for each one that a node has no more."""


def moves_of(own: Iterable[IPAddress], wanted: Collection[IPAddress]) -> Moves:
    """What a node's own addresses become when it gets ``wanted``, each in place of the first one of its family."""
    first: dict[Family, IPAddress] = {}
    for each in own:
        first.setdefault(Family.of(each), each)
    return {first[Family.of(new)]: new for new in wanted if first.get(Family.of(new), new) != new}


def moved(addresses: Iterable[IPAddress], moves: Moves) -> tuple[IPAddress, ...]:
    """The addresses after the moves."""
    return tuple(moves.get(each, each) for each in addresses)


def renumbered(plan: Plan, moves: Moves) -> Plan:
    """The plan after the moves, all made at once."""
    if not moves:
        return plan
    return replace(
        plan,
        namespaces=tuple(_namespace(each, moves) for each in plan.namespaces),
        pods=tuple(replace(each, addresses=moved(each.addresses, moves)) for each in plan.pods),
        balancers=tuple(
            replace(each, nodes={name: moved(own, moves) for name, own in each.nodes.items()})
            for each in plan.balancers
        ),
    )


def _namespace(namespace: PlannedNamespace, moves: Moves) -> PlannedNamespace:
    return replace(
        namespace,
        addresses=tuple(_address(each, moves) for each in namespace.addresses),
        routes=tuple(_route(each, moves) for each in namespace.routes),
        vxlans=tuple(replace(each, local=moves.get(each.local, each.local)) for each in namespace.vxlans),
        forwarding=tuple(replace(each, remote=moves.get(each.remote, each.remote)) for each in namespace.forwarding),
    )


def _address(address: Address, moves: Moves) -> Address:
    new = moves.get(address.interface.ip)
    if new is None:
        return address
    return replace(address, interface=type(address.interface)((new, address.interface.network.prefixlen)))


def _route(route: Route, moves: Moves) -> Route:
    return replace(
        route,
        via=route.via and moves.get(route.via, route.via),
        source=route.source and moves.get(route.source, route.source),
        hops=tuple(replace(each, via=moves.get(each.via, each.via)) for each in route.hops),
    )
