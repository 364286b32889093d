"""A client of the API server inside a lab: requests with JSON, and watches, over TLS with the lab's own token."""

import asyncio
import json
import socket
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import Any, Final

import h11

from proxylab.control.kubernetes.settings import API_PORT
from proxylab.kernel.sandbox.netns import NetNs, inside

Document = dict[str, Any]

_HOST: Final = "127.0.0.1"
_CHUNK: Final = 65536
_REQUEST_SECONDS: Final = 20.0
_MOST_BYTES: Final = 64 << 20


class ApiRefusedError(Exception):
    """The API server refused a request: a status of 400 or more, with its message."""

    def __init__(self, what: str, status: int, message: str) -> None:
        super().__init__(f"{what}: {status} {message}")
        self.status = status
        self.message = message


class ApiClient:
    """Dials the API server in ``netns``; ``authority`` is the certificate, in PEM, of who has signed the server's."""

    def __init__(self, netns: NetNs, authority: str, token: str) -> None:
        self._netns = netns
        self._context = ssl.create_default_context(cadata=authority)
        self._token = token

    async def dial(self) -> socket.socket:
        """A TCP connection to the API server. Raises ``OSError``."""
        with inside(self._netns):
            dialling = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
        try:
            # Else a request waits 40 ms for the acknowledgement of what ended TLS's handshake.
            dialling.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await asyncio.get_running_loop().sock_connect(dialling, (_HOST, API_PORT))
        except BaseException:
            dialling.close()
            raise
        return dialling

    async def request(
        self, method: str, path: str, body: Document | None = None, kind: str = "application/json"
    ) -> Document:
        """The answer's document.

        Raises:
            ApiRefusedError: the server refuses it.
            OSError: it does not answer.
        """
        async with asyncio.timeout(_REQUEST_SECONDS), self._conversation() as conversation:
            status = await conversation.ask(method, path, body, kind)
            content = bytearray()
            async with aclosing(conversation.content()) as pieces:
                async for piece in pieces:
                    content += piece
                    if len(content) > _MOST_BYTES:
                        raise OSError(f"{method} {path} is answered with more than {_MOST_BYTES} bytes")
        try:
            document: Document = json.loads(content or b"{}")
        except ValueError:  # a path of no group that it has is answered in plain text
            document = {"message": content.decode(errors="replace").strip()}
        if status >= 400:
            raise ApiRefusedError(f"{method} {path}", status, document.get("message", ""))
        return document

    async def watch(self, path: str, version: str) -> AsyncIterator[Document]:
        """The events of a collection since that version, until the server ends the watch.

        Raises:
            ApiRefusedError: the server no longer has that version.
            OSError: it does not answer.
        """
        async with self._conversation() as conversation:
            query = f"{path}?watch=1&allowWatchBookmarks=true&resourceVersion={version}"
            status = await conversation.ask("GET", query, None, "")
            waiting = b""
            async with aclosing(conversation.content()) as pieces:
                async for piece in pieces:
                    *lines, waiting = (waiting + piece).split(b"\n")
                    for event in map(json.loads, filter(None, lines)):
                        if status >= 400 or event["type"] == "ERROR":
                            raise ApiRefusedError(f"watch {path}", event["object"].get("code", status), str(event))
                        yield event

    @asynccontextmanager
    async def _conversation(self) -> AsyncIterator["_ApiConversation"]:
        dialled = await self.dial()
        try:
            reader, writer = await asyncio.open_connection(sock=dialled, ssl=self._context, server_hostname=_HOST)
        except BaseException:
            dialled.close()
            raise
        try:
            yield _ApiConversation(reader, writer, self._token)
        finally:
            writer.transport.abort()  # without the end of TLS, for which the server would be waited for


class _ApiConversation:
    """One request on one connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, token: str) -> None:
        self._reader = reader
        self._writer = writer
        self._connection = h11.Connection(h11.CLIENT)
        self._headers: Mapping[str, str] = {
            "Host": _HOST,
            "Authorization": f"Bearer {token}",
            "Accept": "application/json",
            "Connection": "close",
        }

    async def ask(self, method: str, path: str, body: Document | None, kind: str) -> int:
        """Send the request; returns the status of the answer."""
        data = b"" if body is None else json.dumps(body).encode()
        headers = {**self._headers, "Content-Length": str(len(data))}
        if body is not None:
            headers["Content-Type"] = kind
        asked = h11.Request(method=method, target=path, headers=[*headers.items()])
        events = (asked, h11.Data(data=data), h11.EndOfMessage())
        self._writer.write(b"".join(self._connection.send(each) or b"" for each in events))
        await self._writer.drain()
        while True:
            event = await self._next()
            if isinstance(event, h11.Response):
                return event.status_code

    async def content(self) -> AsyncGenerator[bytes, None]:
        """The body, piece by piece."""
        while True:
            match await self._next():
                case h11.Data(data=data):
                    yield bytes(data)
                case h11.EndOfMessage():
                    return

    async def _next(self) -> h11.Event:
        while True:
            event = self._connection.next_event()
            if event is h11.NEED_DATA:
                self._connection.receive_data(await self._reader.read(_CHUNK))
                continue
            if isinstance(event, (h11.ConnectionClosed, type)):
                raise ConnectionResetError("the API server closed the connection before it had answered")
            return event
