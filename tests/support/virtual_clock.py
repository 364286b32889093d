"""A clock for sync loops that advances only when a test advances it."""

import asyncio


class VirtualClock:
    def __init__(self) -> None:
        self._now = 1000.0
        self._moved = asyncio.Event()
        self.waits = 0

    def now(self) -> float:
        return self._now

    async def wait(self, event: asyncio.Event, until: float) -> None:
        self.waits += 1
        while not event.is_set() and self._now < until:
            moved, signalled = (asyncio.ensure_future(each.wait()) for each in (self._moved, event))
            await asyncio.wait((moved, signalled), return_when=asyncio.FIRST_COMPLETED)
            moved.cancel()
            signalled.cancel()

    async def advance(self, seconds: float) -> None:
        """Move on, and let everything that became due happen."""
        self._now += seconds
        self._moved.set()
        await asyncio.sleep(0)
        self._moved.clear()
        await self.settle()

    async def settle(self) -> None:
        """Give the loop turns until nothing of this is under way any more."""
        for _ in range(50):
            await asyncio.sleep(0)
