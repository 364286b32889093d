"""A small HTTP/1.1 server on listening sockets.

Owns ``HttpServer``, which calls a handler for the answer to each request: a body, or a stream of pieces. h11 parses
HTTP, and ``control.listen`` opens sockets.

No client can disturb another one or the server: requests are bounded in size, and the server leaves a client that is
silent or does not read for too long. It takes the next piece of a stream only when the kernel has taken the last one.
"""

import asyncio
import socket
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing, suppress
from http import HTTPStatus
from typing import Final

import h11
from h11 import RemoteProtocolError
from msgspec import Struct, field

__all__ = ["Answer", "Handler", "HttpRequest", "HttpServer", "Stream"]

_PATIENCE: Final = 10.0
"""Seconds in which a client must send its next request."""

_STALLED: Final = 30.0
"""Seconds in which a client must make room for the next piece."""

_BODY_LIMIT: Final = 1 << 20


class HttpRequest(Struct, frozen=True):
    """A request. Names of headers are in lower case."""

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    body: bytes


class Answer(Struct, frozen=True):
    """A complete response."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


class Stream(Struct, frozen=True):
    """A chunked response. The server closes the generator when the client goes."""

    status: int
    pieces: AsyncGenerator[bytes, None]
    headers: Mapping[str, str] = field(default_factory=dict)


Handler = Callable[[HttpRequest], Answer | Stream]


class HttpServer:
    """Serves one listening socket until it is closed."""

    def __init__(self, server: asyncio.Server, conversations: set[asyncio.Task[None]]) -> None:
        self._server = server
        self._conversations = conversations

    @classmethod
    async def on(cls, listening: socket.socket, handler: Handler) -> "HttpServer":
        """Begin to serve ``listening``; ``close`` closes it."""
        conversations: set[asyncio.Task[None]] = set()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                with suppress(ConnectionError, TimeoutError, RemoteProtocolError):
                    await _Conversation(reader, writer, handler).run()
                    writer.close()
                    await asyncio.wait_for(writer.wait_closed(), _STALLED)
            finally:
                # Closing waits until the client has read everything, which it may never do.
                writer.transport.abort()

        def begin(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.create_task(serve(reader, writer))
            conversations.add(task)
            task.add_done_callback(conversations.discard)

        return cls(await asyncio.start_server(begin, sock=listening), conversations)

    async def close(self) -> None:
        """Stop listening, and abort open connections."""
        self._server.close()
        under_way = tuple(self._conversations)
        for task in under_way:
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)


class _Conversation:
    """One connection: one request after the other."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, handler: Handler) -> None:
        self._reader = reader
        self._writer = writer
        self._handler = handler
        self._connection = h11.Connection(h11.SERVER)
        self._head_only = False

    async def run(self) -> None:
        """Answer until the client or the protocol ends it."""
        while True:
            async with asyncio.timeout(_PATIENCE):
                request = await self._request()
            if request is None:
                return
            match self._handler(request):
                case Answer() as answer:
                    await self._send_whole(answer)
                case Stream() as stream:
                    await self._send_stream(stream)
            if self._connection.our_state is not h11.DONE or self._connection.their_state is not h11.DONE:
                return
            self._connection.start_next_cycle()

    async def _request(self) -> HttpRequest | None:
        """The next complete request; ``None`` when the client has gone."""
        head: h11.Request | None = None
        body = bytearray()
        while True:
            event = self._connection.next_event()
            match event:
                case h11.Request():
                    head, self._head_only = event, event.method == b"HEAD"
                case h11.Data():
                    body += event.data
                    if len(body) > _BODY_LIMIT:
                        await self._send_whole(Answer(HTTPStatus.REQUEST_ENTITY_TOO_LARGE))
                        return None
                case h11.EndOfMessage() if head is not None:
                    return _read(head, bytes(body))
                case h11.ConnectionClosed() | h11.PAUSED:
                    return None
                case _:
                    self._connection.receive_data(await self._reader.read(65536))

    async def _send_whole(self, answer: Answer) -> None:
        headers = [*answer.headers.items(), ("Content-Length", str(len(answer.body)))]
        events: list[h11.Event] = [h11.Response(status_code=answer.status, headers=headers)]
        if not self._head_only:
            events.append(h11.Data(data=answer.body))
        await self._write(b"".join(self._connection.send(event) or b"" for event in (*events, h11.EndOfMessage())))

    async def _send_stream(self, stream: Stream) -> None:
        """Send all pieces, or stop when the client closes its side."""
        async with aclosing(stream.pieces) as pieces:
            headers = [*stream.headers.items(), ("Transfer-Encoding", "chunked")]
            await self._write(self._connection.send(h11.Response(status_code=stream.status, headers=headers)) or b"")
            gone = asyncio.create_task(self._reader.read(1))
            try:
                while not self._head_only:
                    piece = asyncio.create_task(anext(pieces, None))
                    try:
                        await asyncio.wait({gone, piece}, return_when=asyncio.FIRST_COMPLETED)
                    finally:
                        if not piece.done():
                            piece.cancel()
                            await asyncio.gather(piece, return_exceptions=True)
                    if piece.cancelled() or gone.done():  # a client that sends during a stream breaks the protocol
                        raise ConnectionAbortedError
                    data = piece.result()
                    if data is None:
                        break
                    await self._write(self._connection.send(h11.Data(data=data)) or b"")
            finally:
                gone.cancel()
                await asyncio.gather(gone, return_exceptions=True)
        await self._write(self._connection.send(h11.EndOfMessage()) or b"")

    async def _write(self, data: bytes) -> None:
        self._writer.write(data)
        async with asyncio.timeout(_STALLED):
            await self._writer.drain()


def _read(head: "h11.Request", body: bytes) -> HttpRequest:
    path, _, query = head.target.decode("ascii", errors="replace").partition("?")
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in head.headers}
    return HttpRequest(head.method.decode("ascii"), path, query, headers, body)
