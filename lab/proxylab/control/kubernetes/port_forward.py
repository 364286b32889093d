"""Connections to ports of a pod on the streams of ``kubectl port-forward``.

For each connection the client opens two streams with its number: one for the data, and one for an error in words.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from proxylab.control.kubernetes.spdy_streams import SpdyStream, SpdyStreams

Dial = Callable[[int], Awaitable[socket.socket]]
"""Dials a port at the pod's own loopback address. Raises ``OSError``."""

_CHUNK: Final = 1 << 15
_MOST_WAITING: Final = 64
"""Streams whose pair has not come."""


async def forward(streams: SpdyStreams, dial: Dial) -> None:
    """Serve the client's connections until it goes."""
    waiting: dict[str, dict[str, SpdyStream]] = {}
    serving: set[asyncio.Task[None]] = set()
    try:
        with suppress(ConnectionError):
            while len(waiting) < _MOST_WAITING:
                stream = await streams.opened()
                number = stream.headers.get("requestid", "")
                pair = waiting.setdefault(number, {})
                pair[stream.headers.get("streamtype", "")] = stream
                if pair.keys() >= {"data", "error"}:
                    del waiting[number]
                    task = asyncio.create_task(_connect(pair["data"], pair["error"], dial))
                    serving.add(task)
                    task.add_done_callback(serving.discard)
    finally:
        tasks = tuple(serving)
        for each in tasks:
            each.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _connect(data: SpdyStream, error: SpdyStream, dial: Dial) -> None:
    port = data.headers.get("port", "")
    with suppress(OSError):
        try:
            connection = await dial(int(port))
        except (OSError, ValueError, OverflowError) as refused:
            await error.write(f"port {port} of the pod: {refused}".encode(), end=True)
            await data.write(b"", end=True)
            return
        loop = asyncio.get_running_loop()

        async def there() -> None:
            with suppress(OSError):
                while piece := await data.read():
                    await loop.sock_sendall(connection, piece)
                connection.shutdown(socket.SHUT_WR)

        going = asyncio.create_task(there())
        try:
            while piece := await loop.sock_recv(connection, _CHUNK):
                await data.write(piece)
        finally:
            going.cancel()
            await asyncio.gather(going, return_exceptions=True)
            connection.close()
            with suppress(OSError):
                await error.write(b"", end=True)
                await data.write(b"", end=True)
