"""Load balancers that follow the health of their nodes.

Owns ``HealthChecks``: the loop that checks every node's health-check node port from the router, and the routes of the
addresses that depend on the answers. ``plan.balance`` derives the routes.

A round checks all nodes at once and then replaces the routes that changed. Rounds run periodically, since a node's
answer changes without an event; immediately when a Service changes; and on ``settle``. One answer decides, where
balancers in production want several: no check in a lab fails by chance, and a lab saves the time.
"""

import asyncio
from collections.abc import Mapping
from http import HTTPStatus
from typing import Final

from proxylab.addresses import IPAddress
from proxylab.cluster.objects import Service
from proxylab.cluster.store import Event, Store
from proxylab.control.http_client import fetch
from proxylab.kernel.netlink.requests import delete_route, replace_route
from proxylab.kernel.netlink.socket import Netlink
from proxylab.kernel.sandbox.netns import NetNs
from proxylab.plan.balance import Followed, follow, followed_route
from proxylab.plan.model import Balancer, Route
from proxylab.timing import Deadline, together

_PERIOD: Final = 0.5
"""Seconds from the end of one round to the next."""
_PATIENCE: Final = 4.0
"""Seconds within which a healthy node answers: a round takes no longer. In a busy guest a proxy may need some."""

_Question = tuple[IPAddress, int]


class HealthChecks:
    """The balancers of one lab. ``start`` sets the routes before it returns; the loop updates them until ``close``.

    Args:
        router: the namespace that sends the checks and routes the addresses.
        routes: a route socket in it.
        indexes: of its devices.
        packet_lock: a lock that a round of checks and a run of a probe both take, because the counters of a node's
            stack do not distinguish their packets.
    """

    def __init__(
        self,
        router: NetNs,
        routes: Netlink,
        indexes: Mapping[str, int],
        balancers: tuple[Balancer, ...],
        store: Store,
        packet_lock: asyncio.Lock | None = None,
    ) -> None:
        self._router = router
        self._routes = routes
        self._indexes = indexes
        self._balancers = balancers
        self._store = store
        self._standing: dict[IPAddress, Route] = {}
        self._changed = asyncio.Event()
        self._round = packet_lock or asyncio.Lock()
        self._loop: asyncio.Task[None] | None = None
        self._unsubscribe = store.subscribe(self._note)

    @property
    def standing(self) -> tuple[Route, ...]:
        """The current routes, which add to those of the plan or replace them."""
        return tuple(self._standing.values())

    def chosen(self, balancer: Balancer) -> tuple[frozenset[str], ...]:
        """The nodes to which a balancer sends now, for each of its health-checked addresses."""
        names = {address: name for name, addresses in balancer.nodes.items() for address in addresses}
        own = [route for address, route in self._standing.items() if any(address in each for each in balancer.pool)]
        hops = [(route.via, *(hop.via for hop in route.hops)) for route in own]
        return tuple(frozenset(names[via] for via in each if via is not None) for each in hops)

    async def start(self) -> None:
        """Set the routes, and begin to follow."""
        await self.settle()
        self._loop = asyncio.create_task(self._follow())

    async def settle(self) -> None:
        """Check every node now; when this returns, the routes follow the answers."""
        async with self._round:
            self._changed.clear()
            followed = follow(self._balancers, self._store.list(Service))
            self._write(followed, await self._answers(followed))

    async def close(self) -> None:
        """Stop following, and restore the routes of the plan."""
        self._unsubscribe()
        if self._loop is not None:
            self._loop.cancel()
            await asyncio.wait([self._loop])
            if not self._loop.cancelled():
                self._loop.result()  # the loop ends by itself only when the kernel refuses a route
        self._write((), {})

    def _note(self, event: Event) -> None:
        if isinstance(event.object, Service):
            self._changed.set()

    async def _follow(self) -> None:
        while True:
            try:
                async with asyncio.timeout(_PERIOD):
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

    def _write(self, followed: tuple[Followed, ...], answers: Mapping[_Question, bool]) -> None:
        wanted = {
            each.address: followed_route(
                each, [name for name, address in each.nodes.items() if answers[address, each.port]]
            )
            for each in followed
        }
        gone = [route for address, route in self._standing.items() if address not in wanted]
        moved = [route for address, route in wanted.items() if self._standing.get(address) != route]
        replaced = (replace_route(route, *(self._indexes[device] for device in route.devices)) for route in moved)
        self._routes.send([*map(delete_route, gone), *replaced])
        self._standing = wanted
