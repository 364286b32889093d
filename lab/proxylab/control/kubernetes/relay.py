"""Passes the bytes of TCP connections on, from a listening socket of the user's machine to one inside a lab.

The lab process has no way into the machine's network but this socket, which the client has made there and handed over.
It ends with the lab process, however that ends.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from proxylab.timing import pass_by

_CHUNK: Final = 1 << 16
_RETRY_SECONDS: Final = 0.05
_MOST_CONNECTIONS: Final = 256
"""A further one waits in the socket's queue."""


class Relay:
    """Relays each connection of ``listening``, which it closes at the end, to one that ``dial`` makes."""

    def __init__(self, listening: socket.socket, dial: Callable[[], Awaitable[socket.socket]]) -> None:
        listening.setblocking(False)
        self._listening = listening
        self._dial = dial
        self._room = asyncio.Semaphore(_MOST_CONNECTIONS)
        self._relaying: dict[asyncio.Task[None], socket.socket] = {}
        self._accepting = asyncio.create_task(self._accept())

    @property
    def port(self) -> int:
        """The port on which it listens."""
        _, port = self._listening.getsockname()[:2]
        return int(port)

    async def close(self) -> None:
        """Stop listening, and end all connections."""
        tasks = (self._accepting, *self._relaying)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._listening.close()

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._room.acquire()
            try:
                connection, _ = await loop.sock_accept(self._listening)
            except OSError:
                # The client has gone (accept(2)), or no descriptor is left. No event shows when one is free again.
                self._room.release()
                await pass_by(_RETRY_SECONDS)
                continue
            task = asyncio.create_task(self._serve(connection))
            self._relaying[task] = connection
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._relaying.pop(task).close()
        self._room.release()

    async def _serve(self, connection: socket.socket) -> None:
        with suppress(OSError):
            inner = await self._dial()
            try:
                async with asyncio.TaskGroup() as ways:
                    ways.create_task(_copy(connection, inner))
                    ways.create_task(_copy(inner, connection))
            except* OSError:
                pass  # one side has reset the connection; closing the other tells its peer
            finally:
                inner.close()


async def _copy(source: socket.socket, target: socket.socket) -> None:
    """Copy until end-of-file, which is passed on, too."""
    loop = asyncio.get_running_loop()
    while data := await loop.sock_recv(source, _CHUNK):
        await loop.sock_sendall(target, data)
    target.shutdown(socket.SHUT_WR)
