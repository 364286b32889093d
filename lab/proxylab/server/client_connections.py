"""Answers the requests of clients, one after the other.

Requests of several clients take turns (the request handler sees to that); feeds run beside them. When the first client
hangs up, its unfinished requests are cancelled, and its lab ends unless it is detached. When any other client hangs up,
its unfinished request is still carried out, and its answer is dropped.
"""

import asyncio
import os
import socket
import traceback
from collections.abc import AsyncGenerator, Coroutine, Sequence
from contextlib import aclosing, suppress
from typing import Any, Final, Protocol, get_args

from proxylab.errors import InternalError
from proxylab.protocol.channel import AsyncChannel, ChannelClosedError, user_of
from proxylab.protocol.faults import fault_of
from proxylab.protocol.messages import Failed
from proxylab.protocol.standing_labs import AnyRequest, AnyResponse, Feed, Signal

__all__ = ["RequestHandler", "accept_clients", "first_of", "serve_client"]

_FEEDS: Final = get_args(Feed)
_MOST_CLIENTS: Final = 32


class RequestHandler(Protocol):
    """Answers requests."""

    async def answer(self, request: AnyRequest) -> AnyResponse:
        """The answer to a request that is no feed."""

    def feed(
        self, request: Feed, descriptors: Sequence[int], signals: "asyncio.Queue[Signal]"
    ) -> AsyncGenerator[AnyResponse, None]:
        """The answers to a feed."""


async def serve_client(channel: AsyncChannel, handler: RequestHandler) -> None:
    """Answer one request after the other; when the client hangs up, end at once, even during an answer."""
    requests: asyncio.Queue[tuple[AnyRequest, list[int]]] = asyncio.Queue()
    signals: asyncio.Queue[Signal] = asyncio.Queue()
    over = asyncio.Event()

    async def listen() -> None:
        try:
            with suppress(ChannelClosedError):
                while True:
                    request = await channel.receive(AnyRequest)
                    if isinstance(request, Signal):
                        await signals.put(request)
                    else:
                        await requests.put((request, channel.descriptors()))
        finally:
            over.set()

    async def answer() -> None:
        with suppress(ChannelClosedError):
            # A cancelled answer still cleans up. An error in the clean-up replaces the cancellation, which does not
            # come a second time.
            while not over.is_set():
                request, descriptors = await requests.get()
                if not isinstance(request, _FEEDS):
                    await channel.send(await handler.answer(request))
                    continue
                while not signals.empty():
                    signals.get_nowait()  # they are for the previous feed
                async with aclosing(handler.feed(request, descriptors, signals)) as answers:
                    async for each in answers:
                        await channel.send(each)

    await first_of(listen(), answer())


async def accept_clients(control_socket: socket.socket, handler: RequestHandler) -> None:
    """Serve every authorised client of the listening control socket, until cancelled.

    A client must have the lab's own user id: in the lab's user namespace every other user is unknown.
    """
    room = asyncio.Semaphore(_MOST_CLIENTS)
    loop = asyncio.get_running_loop()
    shielded = _Shielded(handler)
    control_socket.setblocking(False)
    async with asyncio.TaskGroup() as clients:
        while True:
            await room.acquire()
            connection, _ = await loop.sock_accept(control_socket)
            if user_of(connection) != os.getuid():
                connection.close()
                room.release()
                continue
            task = clients.create_task(_receive(connection, shielded))
            task.add_done_callback(lambda _: room.release())


async def _receive(connection: socket.socket, handler: RequestHandler) -> None:
    channel = AsyncChannel(connection)
    try:
        await serve_client(channel, handler)
    finally:
        channel.close()


class _Shielded:
    """Wraps the handler for other clients: it finishes every request, and no bug in one request ends the lab."""

    def __init__(self, handler: RequestHandler) -> None:
        self._handler = handler
        self._begun: set[asyncio.Task[AnyResponse]] = set()

    async def answer(self, request: AnyRequest) -> AnyResponse:
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
    ) -> AsyncGenerator[AnyResponse, None]:
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
