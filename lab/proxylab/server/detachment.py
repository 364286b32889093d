"""A detached lab: how much longer it lives, and the record that one client leaves to the next."""

import asyncio
import time
from pathlib import Path

from proxylab.errors import InternalError
from proxylab.protocol.standing_labs import Detach, Detached, End, Ended, Greeted, LabRecord, Remember

__all__ = ["Detachment"]


class Detachment:
    """Whether and for how long a lab is detached. A lab is attached until ``Detach`` comes."""

    def __init__(self) -> None:
        self._record: LabRecord | None = None
        self._ends_at: float | None = None
        self._opened = asyncio.Event()
        self._ended = asyncio.Event()

    def answer(self, request: Detach | Remember | End) -> Detached | LabRecord | Ended:
        """Carry out a request. Raises ``InternalError`` where the lab is not detached."""
        match request:
            case Detach(record, seconds):
                self._record = record
                self._ends_at = None if seconds is None else time.monotonic() + seconds
                self._opened.set()
                return Detached()
            case Remember(record):
                if record is not None:
                    self._record = record
                return self._known()
            case End():
                self._known()
                self._ended.set()
                return Ended()

    def greeting(self, *, busy: bool) -> Greeted:
        """The lab's state in short."""
        record = self._known()
        return Greeted(
            name=record.name,
            file=str(Path(record.directory) / record.scenario.file),
            case=record.scenario.case.id,
            engine=record.engine.name,
            age=max(0.0, time.time() - record.began),
            left=None if self._ends_at is None else max(0.0, self._ends_at - time.monotonic()),
            busy=busy,
        )

    async def wait_until_over(self) -> None:
        """Return when its time is over: at once, unless it outlives its first client."""
        if self._ends_at is None:
            return
        loop = asyncio.get_running_loop()
        timer = loop.call_at(loop.time() + self._ends_at - time.monotonic(), self._ended.set)
        try:
            await self._ended.wait()
        finally:
            timer.cancel()

    async def wait_until_detached(self) -> None:
        """Return when ``Detach`` has come."""
        await self._opened.wait()

    async def wait_until_ended(self) -> None:
        """Return when ``End`` has come."""
        await self._ended.wait()

    def _known(self) -> LabRecord:
        if self._record is None:
            raise InternalError("this lab is not detached: Detach comes first")
        return self._record
