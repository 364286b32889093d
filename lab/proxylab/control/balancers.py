"""Load balancers that follow the health of their nodes.

Owns: ``HealthChecks``: the loop that asks every node's health-check node port from the router, and the routes of the
addresses that depend on the answers.
Must not: decide what follows from an answer (``plan.balance`` does), or touch any other route.

A round asks all nodes at once and then writes the routes that are no longer right; the kernel puts each in the place of
the one before. Rounds come by themselves, since a node's answer changes without a word; at once when a Service changes;
and whenever somebody must know that the routes are up to date (``settle``). One answer decides, where balancers in
production want several: nothing here fails by chance, and a lab has no time to lose.
"""

import asyncio
from collections.abc import Mapping
from typing import Final

from proxylab.addresses import IPAddress
from proxylab.cluster.objects import Service
from proxylab.cluster.store import Event, Store
from proxylab.control.ask import ask_status
from proxylab.kernel.netlink.requests import delete_route, replace_route
from proxylab.kernel.netlink.socket import RouteSocket
from proxylab.kernel.sandbox.netns import NetNs
from proxylab.plan.balance import Followed, follow, followed_route
from proxylab.plan.model import Balancer, Route
from proxylab.timing import together

__all__ = ["HealthChecks"]

_PERIOD: Final = 0.5
"""Seconds from the end of one round to the next."""
_PATIENCE: Final = 1.0
"""Seconds within which a healthy node answers: a round takes no longer."""
_HEALTHY: Final = 200

_Question = tuple[IPAddress, int]


class HealthChecks:
    """The balancers of one lab. ``start`` makes the routes right before it returns, and keeps them so until ``close``.

    Args:
        router: the namespace that asks, and that routes the addresses.
        routes: a route socket in it.
        indexes: of its devices.
        balancers: of the plan.
        store: holds the Services.
        stillness: what a round of questions holds, as a run of a probe does. A node's stack counts both alike, and the
            one would pass for the other.
    """

    def __init__(
        self,
        router: NetNs,
        routes: RouteSocket,
        indexes: Mapping[str, int],
        balancers: tuple[Balancer, ...],
        store: Store,
        stillness: asyncio.Lock | None = None,
    ) -> None:
        self._router = router
        self._routes = routes
        self._indexes = indexes
        self._balancers = balancers
        self._store = store
        self._standing: dict[IPAddress, Route] = {}
        self._changed = asyncio.Event()
        self._round = stillness or asyncio.Lock()
        self._loop: asyncio.Task[None] | None = None
        self._unsubscribe = store.subscribe(self._note)

    @property
    def standing(self) -> tuple[Route, ...]:
        """The routes that stand now, beside those of the plan and in the place of some of them."""
        return tuple(self._standing.values())

    def chosen(self, balancer: Balancer) -> tuple[frozenset[str], ...]:
        """The nodes to which a balancer sends now, for each of its addresses that follow their health."""
        names = {address: name for name, addresses in balancer.nodes.items() for address in addresses}
        own = [route for address, route in self._standing.items() if any(address in each for each in balancer.pool)]
        hops = [(route.via, *(hop.via for hop in route.hops)) for route in own]
        return tuple(frozenset(names[via] for via in each if via is not None) for each in hops)

    async def start(self) -> None:
        """Make the routes right, and begin to follow."""
        await self.settle()
        self._loop = asyncio.create_task(self._follow())

    async def settle(self) -> None:
        """Ask every node now; when this returns, the routes say what they answered."""
        async with self._round:
            self._changed.clear()
            followed = follow(self._balancers, self._store.list(Service))
            self._write(followed, await self._answers(followed))

    async def close(self) -> None:
        """Follow no longer, and leave the routes as the plan has them."""
        self._unsubscribe()
        if self._loop is not None:
            self._loop.cancel()
            await asyncio.wait([self._loop])
            if not self._loop.cancelled():
                self._loop.result()  # it ends by itself only when the kernel has refused a route
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
        """Who says that it serves; each place is asked once, whatever number of addresses depends on it."""
        questions = tuple({(address, each.port): None for each in followed for address in each.nodes.values()})
        answers = await together(
            ask_status(self._router, address, port, seconds=_PATIENCE) for address, port in questions
        )
        return {question: status == _HEALTHY for question, status in zip(questions, answers, strict=True)}

    def _write(self, followed: tuple[Followed, ...], answers: Mapping[_Question, bool]) -> None:
        wanted = {
            each.address: followed_route(
                each, [name for name, address in each.nodes.items() if answers[address, each.port]]
            )
            for each in followed
        }
        gone = [route for address, route in self._standing.items() if address not in wanted]
        moved = [route for address, route in wanted.items() if self._standing.get(address) != route]
        self._routes.send([*map(delete_route, gone), *(replace_route(route, *self._ways(route)) for route in moved)])
        self._standing = wanted

    def _ways(self, route: Route) -> list[int]:
        return [self._indexes[device] for device in route.devices]
