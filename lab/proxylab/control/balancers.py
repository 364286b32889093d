"""Load balancers that follow the labels and the health of their nodes.

Owns ``BalancerRoutes``: the routes of pools, which leave out nodes that a label excludes or that the API does not know;
the loop that checks every node's health-check node port from the router; and the routes of the addresses that depend on
the answers. ``plan.balance`` derives the routes.

A round checks all nodes at once and then replaces the routes that changed. Rounds run immediately when a Service or a
Node changes, and on ``settle``; where a balancer checks health also periodically, since a node's answer changes without
an event. One answer decides, where balancers in production want several: no check in a lab fails by chance, and a lab
saves the time.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from http import HTTPStatus
from typing import Final

from proxylab.addresses import IPAddress, IPNetwork
from proxylab.cluster.objects import Node, Service
from proxylab.cluster.store import Event, Store
from proxylab.control.http_client import fetch
from proxylab.kernel.netlink.requests import delete_route, replace_route
from proxylab.kernel.netlink.socket import Netlink
from proxylab.kernel.sandbox.netns import NetNs
from proxylab.plan.balance import Followed, follow, followed_route, left_out, pool_routes
from proxylab.plan.dialling import DialledPort, dialled_ports
from proxylab.plan.model import Balancer, Route
from proxylab.timing import Deadline, together

_PERIOD: Final = 0.5
"""Seconds from the end of one round to the next."""
_PATIENCE: Final = 4.0
"""Seconds within which a healthy node answers: a round takes no longer. In a busy guest a proxy may need some."""

_Question = tuple[IPAddress, int]

Dial = Callable[[tuple[DialledPort, ...]], Awaitable[None]]
"""Makes the router dial these node ports, and no others."""


class BalancerRoutes:
    """The balancers of one lab. ``start`` sets the routes before it returns; the loop updates them until ``close``.

    Args:
        router: the namespace that sends the checks and routes the addresses.
        routes: a route socket in it.
        indexes: of its devices.
        planned: the routes that the router has from the plan.
        packet_lock: a lock that a round of checks and a run of a probe both take, because the counters of a node's
            stack do not distinguish their packets.
        dial: writes what balancers dial that dial node ports.
    """

    def __init__(
        self,
        router: NetNs,
        routes: Netlink,
        indexes: Mapping[str, int],
        balancers: tuple[Balancer, ...],
        planned: Iterable[Route],
        store: Store,
        packet_lock: asyncio.Lock | None = None,
        dial: Dial | None = None,
    ) -> None:
        self._router = router
        self._routes = routes
        self._indexes = indexes
        self._store = store
        self._standing: dict[IPNetwork, Route] = {}
        self.take_up(balancers, planned)
        self._dial = dial
        self._dialled: tuple[DialledPort, ...] = ()
        self._changed = asyncio.Event()
        self._round = packet_lock or asyncio.Lock()
        self._loop: asyncio.Task[None] | None = None
        self._unsubscribe = store.subscribe(self._note)

    def take_up(self, balancers: tuple[Balancer, ...], planned: Iterable[Route]) -> None:
        """Follow nodes at the addresses that these have; the router has the routes of the plan to all pools then."""
        pools = {network for balancer in balancers for network in balancer.pool}
        self._balancers = balancers
        self._planned = {each.destination: each for each in planned if each.destination in pools}
        self._standing = {network: route for network, route in self._standing.items() if network not in self._planned}

    @property
    def standing(self) -> tuple[Route, ...]:
        """The current routes, which add to those of the plan or replace them."""
        return tuple(self._standing.values())

    def chosen(self, balancer: Balancer) -> tuple[frozenset[str], ...]:
        """The nodes to which a balancer sends now: for each of its health-checked addresses, or else for its pools."""
        balancer = next(each for each in self._balancers if each.name == balancer.name)
        if balancer.dials_node_ports:
            return tuple(frozenset(each.nodes) for each in self._dialled if each.balancer == balancer.name)
        names = {address: name for name, addresses in balancer.nodes.items() for address in addresses}
        pools = [self._standing.get(each, self._planned[each]) for each in balancer.pool]
        checked = [
            route
            for network, route in self._standing.items()
            if network not in balancer.pool and any(network.network_address in each for each in balancer.pool)
        ]
        hops = [(route.via, *(hop.via for hop in route.hops)) for route in checked or pools]
        return tuple(frozenset(names[via] for via in each if via is not None) for each in hops)

    async def start(self) -> None:
        """Set the routes, and begin to follow."""
        await self.settle()
        self._loop = asyncio.create_task(self._follow())

    async def settle(self) -> None:
        """Check every node now; when this returns, the routes follow the labels and the answers."""
        async with self._round:
            self._changed.clear()
            excluded = left_out(self._balancers, self._store.list(Node))
            services = self._store.list(Service)
            followed = follow(self._balancers, services, excluded)
            answers = await self._answers(followed)
            healthy = {
                each.address: [name for name, own in each.nodes.items() if answers[own, each.port]] for each in followed
            }
            checked = (followed_route(each, healthy[each.address]) for each in followed if each.has_route)
            self._write((*pool_routes(self._balancers, excluded), *checked))
            if self._dial is not None:
                dialled = dialled_ports(
                    self._balancers, services, excluded, lambda address, node: node in healthy.get(address, (node,))
                )
                await self._dial(dialled)
                self._dialled = dialled

    async def close(self) -> None:
        """Stop following, and restore the routes of the plan."""
        self._unsubscribe()
        if self._loop is not None:
            self._loop.cancel()
            await asyncio.wait([self._loop])
            if not self._loop.cancelled():
                self._loop.result()  # the loop ends by itself only when the kernel refuses a route
        self._write(())

    def _note(self, event: Event) -> None:
        if isinstance(event.object, Service | Node):
            self._changed.set()

    async def _follow(self) -> None:
        period = _PERIOD if any(each.health_checked for each in self._balancers) else None
        while True:
            try:
                async with asyncio.timeout(period):
                    await self._changed.wait()
            except TimeoutError:
                pass
            await self.settle()

    async def _answers(self, followed: tuple[Followed, ...]) -> Mapping[_Question, bool]:
        """Which nodes answer 200; each address and port is checked once, however many routes depend on it."""
        questions = tuple({(address, each.port): None for each in followed for address in each.nodes.values()})
        answers = await together(self._is_healthy(address, port) for address, port in questions)
        return dict(zip(questions, answers, strict=True))

    async def _is_healthy(self, address: IPAddress, port: int) -> bool:
        try:
            status, _ = await fetch(self._router, address, port, "/", Deadline.after(_PATIENCE))
        except OSError:  # a TimeoutError is one
            return False
        return status == HTTPStatus.OK

    def _write(self, routes: Iterable[Route]) -> None:
        """Make the kernel's routes these ones, and those of the plan to other networks."""
        wanted = {each.destination: each for each in routes if each != self._planned.get(each.destination)}
        gone = [route for network, route in self._standing.items() if network not in wanted]
        moved = [route for network, route in wanted.items() if self._standing.get(network) != route]
        moved += [self._planned[each.destination] for each in gone if each.destination in self._planned]
        deleted = [each for each in gone if each.destination not in self._planned]
        replaced = (replace_route(each, *(self._indexes[device] for device in each.devices)) for each in moved)
        self._routes.send([*map(delete_route, deleted), *replaced])
        self._standing = wanted
