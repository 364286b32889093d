"""Deadlines and waiting: the lab waits for conditions with a deadline, and never sleeps for a fixed time.

The exceptions are ``pass_by``, for scenarios that are about a time, and sockets without room for a connection
(``accepting``), which no event tells of room.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final, TypeVar

from msgspec import Struct

Result = TypeVar("Result")


class DeadlineExceededError(TimeoutError):
    """A condition did not come true in time. The message names it."""


class Deadline(Struct, frozen=True):
    """A point on the monotonic clock, in seconds."""

    at: float

    @classmethod
    def after(cls, seconds: float) -> "Deadline":
        """The deadline ``seconds`` from now."""
        return cls(time.monotonic() + seconds)

    @property
    def remaining(self) -> float:
        """Seconds left, never negative."""
        return max(0.0, self.at - time.monotonic())

    @property
    def passed(self) -> bool:
        """Whether no time is left."""
        return self.remaining == 0.0


class Waits:
    """What a request and its tasks wait for at this moment, in the words of their waits."""

    def __init__(self) -> None:
        self._now: list[str] = []

    def __str__(self) -> str:
        return "; ".join(dict.fromkeys(self._now))

    def collect(self) -> None:
        """Collect the waits of the calling task, and of the tasks that it starts from now on."""
        _WAITS.set(self)

    @contextmanager
    def noted(self, why: str) -> Iterator[None]:
        """Note a wait as long as the block runs."""
        self._now.append(why)
        try:
            yield
        finally:
            self._now.remove(why)


_WAITS: Final[ContextVar[Waits | None]] = ContextVar("waits", default=None)
"""Where the waits of a task are noted: a wait lies deep below the request that it is for."""


@contextmanager
def waiting_for(why: str) -> Iterator[None]:
    """Note what the block waits for, where a request collects that."""
    waits = _WAITS.get() or Waits()
    with waits.noted(why):
        yield


async def wait_until(condition: Callable[[], bool], deadline: Deadline, why: str) -> None:
    """Give the event loop turns until ``condition`` holds.

    The pause between two looks grows from 0 to 10 ms: queued work that meets the condition shows at once, and a long
    wait does not burn a core.

    Raises:
        DeadlineExceededError: naming ``why``, when the deadline passes first.
    """

    async def look() -> bool:
        return condition()

    await wait_until_seen(look, deadline, why)


_LOOK_SECONDS: Final = 5.0


async def wait_until_seen(look: Callable[[], Awaitable[bool]], deadline: Deadline, why: str) -> None:
    """``wait_until`` for a condition that takes time to look at. Raises ``DeadlineExceededError``.

    A look that takes longer than the deadline is cancelled, such as a connection that a firewall drops: the kernel
    would try for two minutes. Each look has five seconds at least.
    """
    pause = 0.0
    with waiting_for(why):
        while True:
            try:
                async with asyncio.timeout(max(deadline.remaining, _LOOK_SECONDS)) as looking:
                    if await look():
                        return
            except TimeoutError:
                if not looking.expired():
                    raise
            if deadline.passed:
                raise DeadlineExceededError(f"gave up waiting: {why}")
            await asyncio.sleep(min(pause, deadline.remaining))
            pause = min(0.01, pause * 2 or 0.0005)


async def wait_while_fewer(count: Callable[[], int], patience: float, why: str) -> None:
    """Wait until ``count`` is zero; whenever it falls, ``patience`` starts again.

    Raises:
        DeadlineExceededError: naming ``why``, when the count has not fallen for ``patience`` seconds.
    """
    least, pause, deadline = count(), 0.0, Deadline.after(patience)
    left = least
    while left:
        if left < least:
            least, deadline = left, Deadline.after(patience)
        elif deadline.passed:
            raise DeadlineExceededError(f"gave up waiting: {why}")
        await asyncio.sleep(pause)
        pause = min(0.01, pause * 2 or 0.0005)
        left = count()


async def pass_by(seconds: float) -> None:
    """Let a time pass that is itself the subject, such as a timeout of the kernel."""
    await asyncio.sleep(seconds)


async def together(ways: Iterable[Coroutine[Any, Any, Result]]) -> tuple[Result, ...]:
    """Run coroutines side by side and return their results, in order.

    When one fails, the function cancels the others, waits for all to end, and raises the failure. ``asyncio.gather``
    would leave them running on descriptors that the caller then closes. Until Python 3.13 a TaskGroup that fails leaves
    its caller a cancellation too many, with which each later ``asyncio.timeout`` ends the caller.

    Raises:
        Exception: the first failure, as it was raised.
    """
    tasks = [asyncio.create_task(way) for way in ways]
    try:
        if tasks:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
    finally:
        failed = [task for task in tasks if task.done() and not task.cancelled() and task.exception()]
        await _end(task for task in tasks if not task.done())
    for task in failed:
        task.result()
    return tuple(task.result() for task in tasks)


async def _end(tasks: Iterable["asyncio.Task[Any]"]) -> None:
    """Cancel tasks and wait for all to end, even if the caller is cancelled meanwhile."""
    ending, cancelled = {*tasks}, None
    for task in ending:
        task.cancel()
    while ending:
        try:
            _, ending = await asyncio.wait(ending)
        except asyncio.CancelledError as error:
            ending, cancelled = {task for task in ending if not task.done()}, error
    if cancelled is not None:
        raise cancelled
