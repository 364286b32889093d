"""A lab that was told to stay: for how long, and what clients must know of it.

Owns: ``Detachment``, the time that is left, and the memory that one client leaves to the next.
Must not: understand that memory.
"""

import asyncio
import time
from pathlib import Path

from proxylab.errors import InternalError
from proxylab.protocol.standing_labs import End, Ended, Greeted, Memory, Remember, Stay, Stays

__all__ = ["Detachment"]


class Detachment:
    """Whether and how long a lab stays. Nothing stays unless it is told to."""

    def __init__(self) -> None:
        self._memory: Memory | None = None
        self._ends_at: float | None = None
        self._told = asyncio.Event()
        self._ended = asyncio.Event()

    def answer(self, request: Stay | Remember | End) -> Stays | Memory | Ended:
        """Do as a client says. Raises ``InternalError`` where the lab does not stay."""
        match request:
            case Stay(memory, seconds):
                self._memory = memory
                self._ends_at = None if seconds is None else time.monotonic() + seconds
                self._told.set()
                return Stays()
            case Remember(memory):
                if memory is not None:
                    self._memory = memory
                return self._known()
            case End():
                self._known()
                self._ended.set()
                return Ended()

    def greeting(self, *, busy: bool) -> Greeted:
        """How it does."""
        memory = self._known()
        return Greeted(
            name=memory.name,
            file=str(Path(memory.directory) / memory.scenario.file),
            case=memory.scenario.case.id,
            engine=memory.engine.name,
            age=max(0.0, time.time() - memory.began),
            left=None if self._ends_at is None else max(0.0, self._ends_at - time.monotonic()),
            busy=busy,
        )

    async def over(self) -> None:
        """Return when its time is over: at once, unless it stays beyond its first client."""
        if self._ends_at is None:
            return
        loop = asyncio.get_running_loop()
        timer = loop.call_at(loop.time() + self._ends_at - time.monotonic(), self._ended.set)
        try:
            await self._ended.wait()
        finally:
            timer.cancel()

    async def told(self) -> None:
        """Return when it was told to stay."""
        await self._told.wait()

    async def told_to_end(self) -> None:
        """Return when a client has said so."""
        await self._ended.wait()

    def _known(self) -> Memory:
        if self._memory is None:
            raise InternalError("this lab does not stay: Stay comes first")
        return self._memory
