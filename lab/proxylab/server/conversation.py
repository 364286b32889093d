"""What a lab process and its clients say to each other, one request after the other.

Owns: ``converse``, with one client until it goes, and ``accept_clients``, who come by the door of a lab that stays.
Must not: know what a request does.

Requests of several clients take turns, which the desk sees to; feeds run beside all else. Only the first client takes
what it has begun along when it goes, and its lab, unless it has told the lab to stay. A visitor that goes in the midst
of an answer breaks nothing: what was begun is brought to its end, and nobody hears of it.
"""

import asyncio
import os
import socket
import struct
import traceback
from collections.abc import AsyncGenerator, Coroutine, Sequence
from contextlib import aclosing, suppress
from typing import Any, Final, Protocol, get_args

from proxylab.errors import InternalError
from proxylab.protocol.channel import AsyncChannel, ChannelClosedError
from proxylab.protocol.faults import fault_of
from proxylab.protocol.messages import Failed
from proxylab.protocol.standing_labs import AnyRequest, AnyResponse, Feed, Signal

__all__ = ["RequestHandler", "accept_clients", "converse", "first_of"]

_CREDENTIALS: Final = struct.Struct("=iII")  # struct ucred: pid, uid, gid (unix(7))
_FEEDS: Final = get_args(Feed)
_MOST_VISITORS: Final = 32


class RequestHandler(Protocol):
    """Who answers."""

    async def answer(self, request: AnyRequest) -> AnyResponse:
        """The answer to a request that is no feed."""

    def feed(
        self, request: Feed, descriptors: Sequence[int], signals: "asyncio.Queue[Signal]"
    ) -> AsyncGenerator[AnyResponse, None]:
        """The answers to a feed."""


async def converse(channel: AsyncChannel, handler: RequestHandler) -> None:
    """Answer one request after the other; end, in the midst of an answer too, when the client has gone."""
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
            # What is cancelled in the midst of an answer still puts things in order. An error in that takes the place
            # of the cancellation, which does not come a second time. A task's count of cancellations does not show it
            # either: until Python 3.13 a TaskGroup that fails leaves one behind.
            while not over.is_set():
                request, descriptors = await requests.get()
                if not isinstance(request, _FEEDS):
                    await channel.send(await handler.answer(request), AnyResponse)
                    continue
                while not signals.empty():
                    signals.get_nowait()  # meant for the feed before this one
                async with aclosing(handler.feed(request, descriptors, signals)) as answers:
                    async for each in answers:
                        await channel.send(each, AnyResponse)

    await first_of(listen(), answer())


async def accept_clients(control_socket: socket.socket, handler: RequestHandler) -> None:
    """Converse with everybody who comes by the door and has a right to; until cancelled. The door listens.

    Only who has the lab's own user id has that right: in the lab's user namespace everybody else is somebody unknown.
    """
    room = asyncio.Semaphore(_MOST_VISITORS)
    loop = asyncio.get_running_loop()
    careful = _Careful(handler)
    control_socket.setblocking(False)
    async with asyncio.TaskGroup() as visitors:
        while True:
            await room.acquire()
            connection, _ = await loop.sock_accept(control_socket)
            if _user_of(connection) != os.getuid():
                connection.close()
                room.release()
                continue
            attach_to = visitors.create_task(_receive(connection, careful))
            attach_to.add_done_callback(lambda _: room.release())


async def _receive(connection: socket.socket, handler: RequestHandler) -> None:
    channel = AsyncChannel(connection)
    try:
        await converse(channel, handler)
    finally:
        channel.close()


def _user_of(connection: socket.socket) -> int:
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(raw)[1])


class _Careful:
    """A desk for visitors: it finishes what it has begun, and no mistake of ours at one visitor ends the lab."""

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
        except Exception as error:  # whatever it is, it is ours
            return _told(error)

    async def feed(
        self, request: Feed, descriptors: Sequence[int], signals: "asyncio.Queue[Signal]"
    ) -> AsyncGenerator[AnyResponse, None]:
        try:
            async with aclosing(self._handler.feed(request, descriptors, signals)) as answers:
                async for each in answers:
                    yield each
        except Exception as error:
            yield _told(error)


def _told(error: Exception) -> Failed:
    return Failed(fault_of(InternalError("".join(traceback.format_exception(error)))))


async def first_of(*ways: Coroutine[Any, Any, object]) -> None:
    """Return when the first of these coroutines does, with its error if it has one; cancel the others."""
    tasks = [asyncio.create_task(way) for way in ways]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)  # what they hold is theirs to give back
    for task in done:
        task.result()
