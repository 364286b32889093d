"""A small HTTP/1.1 server on sockets that are handed in.

Owns: ``HttpServer``, which asks a function for the answer to each request.
Must not: parse HTTP itself (h11 does), or open sockets (``control.listen`` does).

h11 is imported when the first client comes: most labs have none, and all of them pay for what is loaded at the start.
"""

import asyncio
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import h11

__all__ = ["Answer", "Handler", "HttpServer"]

_PATIENCE: Final = 10.0
"""Seconds within which a client must have sent its next request."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a client gets."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


Handler = Callable[[str], Answer]
"""From the path of a request, without its query, to the answer."""


class HttpServer:
    """Serves one listening socket until it is closed."""

    def __init__(self, server: asyncio.Server, conversations: set[asyncio.Task[None]]) -> None:
        self._server = server
        self._conversations = conversations

    @classmethod
    async def on(cls, listening: socket.socket, handler: Handler) -> "HttpServer":
        """Begin to serve ``listening``, which the server closes in the end."""
        conversations: set[asyncio.Task[None]] = set()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            from h11 import RemoteProtocolError  # noqa: PLC0415

            with suppress(ConnectionError, TimeoutError, RemoteProtocolError):
                try:
                    await _converse(reader, writer, handler)
                finally:
                    writer.close()
                    await writer.wait_closed()

        def begin(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.create_task(serve(reader, writer))
            conversations.add(task)
            task.add_done_callback(conversations.discard)

        return cls(await asyncio.start_server(begin, sock=listening), conversations)

    async def close(self) -> None:
        """Listen no longer, and break conversations under way off."""
        self._server.close()
        under_way = tuple(self._conversations)
        for task in under_way:
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)


async def _converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, handler: Handler) -> None:
    import h11  # noqa: PLC0415

    connection = h11.Connection(h11.SERVER)
    while True:
        async with asyncio.timeout(_PATIENCE):
            target = await _request(connection, reader)
        if target is None:
            return
        answer = handler(target.partition("?")[0])
        headers = [*answer.headers.items(), ("Content-Length", str(len(answer.body)))]
        for event in (
            h11.Response(status_code=answer.status, headers=headers),
            h11.Data(data=answer.body),
            h11.EndOfMessage(),
        ):
            writer.write(connection.send(event) or b"")
        await writer.drain()
        if connection.our_state is not h11.DONE or connection.their_state is not h11.DONE:
            return
        connection.start_next_cycle()


async def _request(connection: "h11.Connection", reader: asyncio.StreamReader) -> str | None:
    """The target of the next request, once all of it has come; ``None`` when the client has gone."""
    import h11  # noqa: PLC0415

    target = None
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            connection.receive_data(await reader.read(65536))
        elif isinstance(event, h11.Request):
            target = event.target.decode("ascii", errors="replace")
        elif isinstance(event, h11.EndOfMessage):
            return target
        elif isinstance(event, h11.ConnectionClosed) or event is h11.PAUSED:
            return None
