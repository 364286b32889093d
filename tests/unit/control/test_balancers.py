"""Health checks keep still while a probe is under way: a node's stack counts their packets like the probe's."""

import asyncio
from typing import Any

from proxylab.cluster.store import Store
from proxylab.control.balancers import BalancerRoutes
from proxylab.kernel.sandbox.netns import NetNs


class Routes:
    """Takes routes, and keeps count."""

    def __init__(self) -> None:
        self.rounds = 0

    def send(self, _messages: object) -> None:
        self.rounds += 1


def test_a_round_waits_for_packet_lock() -> None:
    async def scenario() -> list[int]:
        packet_lock, routes = asyncio.Lock(), Routes()
        anything: Any = routes
        checks = BalancerRoutes(NetNs("router", -1), anything, {}, (), (), Store(), packet_lock)
        seen = []
        async with packet_lock:  # as a run of a probe holds it
            settling = asyncio.create_task(checks.settle())
            for _ in range(10):
                await asyncio.sleep(0)
            seen.append(routes.rounds)
        await settling
        return [*seen, routes.rounds]

    assert asyncio.run(scenario()) == [0, 1]
