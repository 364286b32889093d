"""Answers the requests of clients, one after the other.

Requests of several clients take turns (the request handler sees to that); feeds run beside them. A client that has
asked nothing yet takes no other client's place, and a slow one keeps no other client waiting. When the first client
hangs up, its unfinished requests are cancelled, and its lab ends unless it is detached. When any other client hangs up,
its unfinished request is still carried out, and its answer is dropped.
"""

import asyncio
import os
import socket
import traceback
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from typing import Any, Final, Protocol, get_args

from proxylab.accepting import accepted
from proxylab.errors import InternalError, LabFullError
from proxylab.protocol.channel import AsyncChannel, ChannelClosedError, user_of
from proxylab.protocol.faults import fault_of
from proxylab.protocol.messages import AnyResponse, Failed, StillWaiting
from proxylab.protocol.standing_labs import AnyRequest, End, Feed, FeedAnswer, Signal
from proxylab.timing import Waits

_FEEDS: Final = get_args(Feed)
_MOST_CLIENTS: Final = 64
"""That have asked something: each may hold four descriptors of the lab process."""

_MOST_SILENT: Final = 64
"""That have asked nothing; a further one takes the place of the one that has been silent longest."""

_PATIENCE_SECONDS: Final = 2.0
"""A request that takes longer says so often what it waits for."""

_MOST_QUEUED: Final = 16
"""Requests of one client that does not wait for answers."""


class RequestHandler(Protocol):
    """Answers requests."""

    async def answer(self, request: AnyRequest) -> AnyResponse:
        """The answer to a request that is no feed."""

    def feed(
        self, request: Feed, descriptors: Sequence[int], signals: "asyncio.Queue[Signal]"
    ) -> AsyncGenerator[FeedAnswer, None]:
        """The answers to a feed."""


async def serve_client(channel: AsyncChannel, handler: RequestHandler) -> None:
    """Answer one request after the other; when the client hangs up, end at once, even during an answer."""
    requests: asyncio.Queue[tuple[AnyRequest, list[int]]] = asyncio.Queue(_MOST_QUEUED)
    signals: asyncio.Queue[Signal] = asyncio.Queue()

    async def listen() -> None:
        with suppress(ChannelClosedError):
            while True:
                request = await channel.receive(AnyRequest)
                if isinstance(request, Signal):
                    await signals.put(request)
                else:
                    await requests.put((request, channel.descriptors()))

    async def answer() -> None:
        task = asyncio.current_task()
        with suppress(ChannelClosedError):
            # A cancelled answer still cleans up. An error in the clean-up replaces the cancellation, which does not
            # come a second time; the task still counts it.
            while task is not None and not task.cancelling():
                request, descriptors = await requests.get()
                if not isinstance(request, _FEEDS):
                    async with _reporting_waits(channel):
                        answered = await handler.answer(request)
                    await channel.send(answered)
                    continue
                while not signals.empty():
                    signals.get_nowait()  # they are for the previous feed
                async with aclosing(handler.feed(request, descriptors, signals)) as answers:
                    async for each in answers:
                        await channel.send(each)

    await first_of(listen(), answer())


@asynccontextmanager
async def _reporting_waits(channel: AsyncChannel) -> AsyncIterator[None]:
    """Tell the client what the request of the block waits for, if it takes long."""
    waits, over = Waits(), asyncio.Event()

    async def tell() -> None:
        with suppress(ChannelClosedError):  # then the answer finds the channel closed, too
            while not over.is_set():
                with suppress(TimeoutError):
                    async with asyncio.timeout(_PATIENCE_SECONDS):
                        await over.wait()
                if not over.is_set() and (why := str(waits)):
                    await channel.send(StillWaiting(why))

    reporting = asyncio.create_task(tell())
    waits.collect()
    try:
        yield
    except BaseException:
        reporting.cancel()
        raise
    over.set()
    await reporting  # a message that is half sent is finished before the answer


async def accept_clients(control_socket: socket.socket, handler: RequestHandler) -> None:
    """Serve every authorised client of the listening control socket, until cancelled.

    A client must have the lab's own user id: in the lab's user namespace every other user is unknown.
    """
    clients = _Clients()
    control_socket.setblocking(False)
    async with asyncio.TaskGroup() as tasks:
        while True:
            connection = await accepted(control_socket, clients.end_longest_silent)
            if user_of(connection) != os.getuid():
                connection.close()
                continue
            if len(clients.silent) >= _MOST_SILENT:
                clients.end_longest_silent()
            client = _LaterClient(handler, clients)
            clients.silent[client] = connection
            tasks.create_task(_receive(connection, client))


async def _receive(connection: socket.socket, client: "_LaterClient") -> None:
    channel = AsyncChannel(connection)
    try:
        await serve_client(channel, client)
    finally:
        client.leave()
        channel.close()


class _Clients:
    """The clients of a control socket: those that have asked something, and the others, the longest silent first."""

    def __init__(self) -> None:
        self.asked: set[_LaterClient] = set()
        self.silent: dict[_LaterClient, socket.socket] = {}

    def end_longest_silent(self) -> bool:
        """Hang up on the client that has asked nothing for the longest time; whether there was one."""
        if not self.silent:
            return False
        self.silent.pop(next(iter(self.silent))).shutdown(socket.SHUT_RDWR)  # its task reads end-of-file, and closes it
        return True


class _LaterClient:
    """Wraps the handler for a client of the control socket.

    It finishes every request, and no bug in one request ends the lab. The first request takes a place, or is refused.
    """

    def __init__(self, handler: RequestHandler, clients: _Clients) -> None:
        self._handler = handler
        self._clients = clients
        self._begun: set[asyncio.Task[AnyResponse]] = set()

    def leave(self) -> None:
        """Free the client's place."""
        self._clients.asked.discard(self)
        self._clients.silent.pop(self, None)

    def _refusal(self, request: AnyRequest) -> Failed | None:
        """``None`` if the client has a place. ``End`` needs none: a lab can always be ended."""
        if self in self._clients.asked or isinstance(request, End):
            return None
        if len(self._clients.asked) >= _MOST_CLIENTS:
            return Failed(fault_of(LabFullError(len(self._clients.asked))))
        self._clients.silent.pop(self, None)
        self._clients.asked.add(self)
        return None

    async def answer(self, request: AnyRequest) -> AnyResponse:
        if (refusal := self._refusal(request)) is not None:
            return refusal
        begun = asyncio.create_task(self._answered(request))
        self._begun.add(begun)
        begun.add_done_callback(self._begun.discard)
        return await asyncio.shield(begun)

    async def _answered(self, request: AnyRequest) -> AnyResponse:
        try:
            return await self._handler.answer(request)
        except Exception as error:  # any other exception is a bug of the lab
            return _failed(error)

    async def feed(
        self, request: Feed, descriptors: Sequence[int], signals: "asyncio.Queue[Signal]"
    ) -> AsyncGenerator[FeedAnswer, None]:
        if (refusal := self._refusal(request)) is not None:
            yield refusal
            return
        try:
            async with aclosing(self._handler.feed(request, descriptors, signals)) as answers:
                async for each in answers:
                    yield each
        except Exception as error:
            yield _failed(error)


def _failed(error: Exception) -> Failed:
    return Failed(fault_of(InternalError("".join(traceback.format_exception(error)))))


async def first_of(*ways: Coroutine[Any, Any, object]) -> None:
    """Return when the first of these coroutines does, with its error if it has one; cancel the others."""
    tasks = [asyncio.create_task(way) for way in ways]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)  # each releases its own resources
    for task in done:
        task.result()
