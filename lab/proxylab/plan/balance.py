"""The policy of load balancers: the nodes that get the flows of a balanced address.

A load balancer is part of the router, as with BGP (MetalLB, Calico, kube-router). No machine holds the addresses of its
pool; the router spreads their flows over the nodes by a hash of addresses and ports (``fib_multipath_hash_policy``). It
checks health-check node ports, which only Services with ``externalTrafficPolicy: Local`` have (KEP-2819); all other
addresses of the pool go to all of its nodes. If every node of an address fails, the router withdraws the route and
answers with an ICMP error. A node that its label excludes from load balancers gets none of both kinds of addresses.
``control.balancers`` does the checks, follows the labels, and writes the routes.

The pool of a balancer that dials node ports is unreachable, since its rules come before routing (``plan.dialling``).

A pool that a node announces in the nodes' own segment (MetalLB's layer-2 mode, kube-vip) has no route: the segment's
machines resolve its addresses, and ``control.announcements`` answers for the node.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from ipaddress import ip_network

from msgspec import Struct

from proxylab.addresses import IPAddress, IPNetwork
from proxylab.cluster.objects import Node, Service, ServiceType, is_excluded
from proxylab.plan.model import Balancer, NextHop, Route


class Followed(Struct, frozen=True, kw_only=True):
    """A balanced address that follows its nodes' health. The balancer checks each of ``nodes`` on ``port``.

    It ``has_route`` to the healthy nodes, unless the balancer dials their node ports.
    """

    address: IPAddress
    port: int
    nodes: Mapping[str, IPAddress]
    device: str
    has_route: bool = True


def shared_route(destination: IPNetwork, device: str, ways: Sequence[IPAddress]) -> Route:
    """The route to a network that spreads its flows over ``ways``; unreachable if there are none."""
    if not ways:
        return Route(destination, device, unreachable=True)
    if len(ways) == 1:
        return Route(destination, device, via=ways[0])
    return Route(destination, device, hops=tuple(NextHop(device, via) for via in ways))


def left_out(balancers: Iterable[Balancer], nodes: Iterable[Node]) -> frozenset[str]:
    """The nodes to which no balancer sends: a label excludes them, or the API does not know them (any more)."""
    known = {each.name for each in nodes if not is_excluded(each.labels)}
    return frozenset(name for balancer in balancers for name in balancer.nodes if name not in known)


def pool_routes(balancers: Iterable[Balancer], excluded: Collection[str]) -> tuple[Route, ...]:
    """The routes of the balancers' pools while these nodes are excluded; a pool that a node announces has none."""
    return tuple(
        shared_route(
            network,
            balancer.device,
            [
                own
                for name, addresses in balancer.nodes.items()
                for own in addresses
                if own.version == network.version and name not in excluded and not balancer.dials_node_ports
            ],
        )
        for balancer in balancers
        for network in balancer.pool
        if not balancer.announced_by
    )


def follow(
    balancers: Iterable[Balancer], services: Iterable[Service], excluded: Collection[str]
) -> tuple[Followed, ...]:
    """The addresses of ``services`` with a route that depends on health checks, which ``excluded`` nodes do not get."""
    checked = [balancer for balancer in balancers if balancer.health_checked]
    return tuple(
        Followed(
            address=address,
            port=service.health_check_node_port,
            nodes={
                name: own
                for name, addresses in balancer.nodes.items()
                for own in addresses
                if own.version == address.version and name not in excluded
            },
            device=balancer.device,
            has_route=not balancer.dials_node_ports,
        )
        for service in services
        for address in _checked_addresses(service)
        for balancer in checked
        if any(address in network for network in balancer.pool)
    )


def followed_route(followed: Followed, healthy: Collection[str]) -> Route:
    """The route of an address while these nodes are healthy."""
    ways = [address for name, address in followed.nodes.items() if name in healthy]
    return shared_route(ip_network(followed.address), followed.device, ways)


def _checked_addresses(service: Service) -> Iterator[IPAddress]:
    if service.type is ServiceType.LOAD_BALANCER and service.health_check_node_port:
        yield from (address for entry in service.load_balancer_ingress for address in entry.addresses)
