"""AcceptedSockets to a listening socket, each served by a task of its own.

asyncio's server forgets a connection that it has accepted and not yet handed over when it closes: the connection stays
open, and holds its namespace.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import Final

from proxylab.accepting import accepted

_MOST: Final = 256
"""A further one waits in the socket's queue."""


class AcceptedSockets:
    """Accepts the connections of ``listening``, and closes each once ``serve`` has ended, and all at the end."""

    def __init__(self, listening: socket.socket, serve: Callable[[socket.socket], Awaitable[None]]) -> None:
        listening.setblocking(False)
        self._listening = listening
        self._serve = serve
        self._room = asyncio.Semaphore(_MOST)
        self._served: dict[asyncio.Future[None], socket.socket] = {}
        self._accepting = asyncio.create_task(self._accept())

    @property
    def port(self) -> int:
        """The port of the listening socket."""
        _, port = self._listening.getsockname()[:2]
        return int(port)

    async def close(self) -> None:
        """Stop listening, and end all connections."""
        tasks = (self._accepting, *self._served)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._listening.close()

    async def _accept(self) -> None:
        while True:
            await self._room.acquire()
            connection = await accepted(self._listening)
            task = asyncio.ensure_future(self._serve(connection))
            self._served[task] = connection
            task.add_done_callback(self._ended)

    def _ended(self, task: "asyncio.Future[None]") -> None:
        self._served.pop(task).close()
        self._room.release()
