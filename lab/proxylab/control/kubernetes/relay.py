"""Passes the bytes of TCP connections on, from a listening socket of the user's machine to one inside a lab.

The lab process has no way into the machine's network but this socket, which the client has made there and handed over.
It ends with the lab process, however that ends.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from proxylab.control.kubernetes.accepted_sockets import AcceptedSockets

_CHUNK: Final = 1 << 16


class Relay:
    """Relays each connection of ``listening``, which it closes at the end, to one that ``dial`` makes."""

    def __init__(self, listening: socket.socket, dial: Callable[[], Awaitable[socket.socket]]) -> None:
        self._dial = dial
        self._accepted = AcceptedSockets(listening, self._serve)

    @property
    def port(self) -> int:
        """The port on which it listens."""
        return self._accepted.port

    async def close(self) -> None:
        """Stop listening, and end all connections."""
        await self._accepted.close()

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
