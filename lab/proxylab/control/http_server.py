"""HTTP/1.1 servers on sockets inside the namespaces of a lab.

No client can disturb another one or the server: requests are bounded in size, and the server aborts a client that is
silent or does not read for too long. It takes the next piece of a stream only when the kernel has taken the last one,
so a client that does not read costs the memory of one piece.
"""

import asyncio
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from errno import EAFNOSUPPORT
from functools import partial
from http import HTTPStatus
from typing import Final, Protocol

import h11
from msgspec import Struct, field

from proxylab.accepting import accepted
from proxylab.addresses import Family, IPAddress
from proxylab.kernel.sandbox.netns import NetNs, inside
from proxylab.timing import pass_by

_PATIENCE: Final = 10.0
"""Seconds in which a client must send its next request."""

_STALLED: Final = 30.0
"""Seconds in which a client must make room for the next piece."""

_BODY_LIMIT: Final = 1 << 20
_BACKLOG: Final = 128


class ReceivedRequest(Struct, frozen=True):
    """A request. Names of headers are in lower case."""

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    body: bytes


class HttpResponse(Struct, frozen=True):
    """A complete response."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


class ChunkedResponse(Protocol):
    """A chunked response, in pieces."""

    content_type: str

    def begin(self, more: Callable[[], None]) -> None:
        """The response begins: from now on ``more`` sends all pieces that there are."""

    def take(self) -> bytes | None:
        """The next piece; empty where there is none yet, ``None`` at the end."""

    def end(self) -> None:
        """The response is over, or its client has gone."""


Handler = Callable[[ReceivedRequest], HttpResponse | ChunkedResponse]

SocketAddress = tuple[IPAddress, int]

PathHandler = Callable[[str], HttpResponse]
"""From the path of a request, without its query, to the answer."""


def listen_inside(netns: NetNs, address: IPAddress, port: int) -> socket.socket:
    """A listening TCP socket. Raises ``OSError`` when the port is taken or the address is not the node's."""
    six = Family.of(address) is Family.IPV6
    with inside(netns):
        opened = socket.socket(socket.AF_INET6 if six else socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # also of the connections that it accepts
        if six:
            opened.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        opened.setblocking(False)
        opened.bind((str(address), port))
        opened.listen(_BACKLOG)
    except BaseException:
        opened.close()
        raise
    return opened


class HttpServer:
    """Serves one listening socket until it is closed.

    It accepts connections itself. asyncio's server forgets a connection that it has accepted and not yet handed over
    when it closes: the connection stays open, and holds its namespace.
    """

    def __init__(
        self,
        listening: socket.socket,
        handler: Handler,
        answers: asyncio.Event | None = None,
        delay: Callable[[], float] = lambda: 0.0,
    ) -> None:
        """Begin to serve ``listening``, which does not block; ``close`` closes it.

        While ``answers`` is not set, new connections stay open and get no answer. ``delay`` says how many seconds an
        answer waits at the time.
        """
        self._listening = listening
        self._handler = handler
        self._answers = answers
        self._delay = delay
        self._conversations: dict[asyncio.Task[None], socket.socket] = {}
        self._accepting = asyncio.create_task(self._accept())

    async def close(self) -> None:
        """Stop listening, and abort open connections, even if the caller is cancelled meanwhile.

        When the proxies of two nodes fail, the first failure cancels the other one as it closes its servers.
        """
        self._accepting.cancel()
        try:
            await asyncio.gather(self._accepting, return_exceptions=True)
        finally:
            # The accepting task has ended: a cancelled gather waits for its tasks, too.
            self._listening.close()
            under_way = tuple(self._conversations)
            for task in under_way:
                task.cancel()
            await asyncio.gather(*under_way, return_exceptions=True)

    async def _accept(self) -> None:
        while True:
            connection = await accepted(self._listening)
            task = asyncio.create_task(self._serve(connection))
            self._conversations[task] = connection
            task.add_done_callback(self._release)

    async def _serve(self, connection: socket.socket) -> None:
        if self._answers is not None:
            await self._answers.wait()
        reader, writer = await asyncio.open_connection(sock=connection)
        try:
            with suppress(ConnectionError, TimeoutError, h11.RemoteProtocolError):
                await _Conversation(reader, writer, self._handler, self._delay).run()
                writer.close()
                await asyncio.wait_for(writer.wait_closed(), _STALLED)
        finally:
            # Closing waits until the client has read everything, which it may never do.
            writer.transport.abort()

    def _release(self, task: asyncio.Task[None]) -> None:
        """Close the connection of a conversation that is over, or that was cancelled before its first step."""
        self._conversations.pop(task).close()


class NodeServers:
    """Servers on sockets of one node's namespace."""

    def __init__(self, netns: NetNs) -> None:
        self._netns = netns
        self._servers: dict[SocketAddress, HttpServer] = {}
        self._wanted: Mapping[SocketAddress, PathHandler] = {}
        self._answers = asyncio.Event()
        self._answers.set()

    async def serve(self, wanted: Mapping[SocketAddress, PathHandler]) -> tuple[str, ...]:
        """Listen at these addresses and no others. An open socket stays open and gets its new handler.

        Returns:
            A line for each address that fails, which the next call tries again; none for a family that the kernel
            lacks.
        """
        self._wanted = dict(wanted)
        for address in [address for address in self._servers if address not in wanted]:
            await self._servers.pop(address).close()
        failed = []
        for address in wanted:
            if address in self._servers:
                continue
            try:
                listening = listen_inside(self._netns, *address)
            except OSError as error:
                if error.errno == EAFNOSUPPORT:  # a kernel without IPv6 has no clients for the address either
                    continue
                failed.append(f"cannot listen on {address[0]} port {address[1]}: {error.strerror}")
            else:
                self._servers[address] = HttpServer(listening, partial(self._answer, address), self._answers)
        return tuple(failed)

    def hold(self, *, answers: bool) -> None:
        """Keep the answers back from now on, or give them again, as of a program that SIGSTOP has stopped."""
        (self._answers.clear if answers else self._answers.set)()

    def _answer(self, address: SocketAddress, request: ReceivedRequest) -> HttpResponse:
        """Call the current handler: a port may pass from one Service to another. 503 without a handler."""
        handler = self._wanted.get(address)
        return HttpResponse(503) if handler is None else handler(request.path)

    async def close(self) -> None:
        """Close all sockets."""
        await self.serve({})


class _Conversation:
    """One connection: one request after the other."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        handler: Handler,
        delay: Callable[[], float],
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._handler = handler
        self._delay = delay
        self._connection = h11.Connection(h11.SERVER)
        self._head_only = False
        writer.transport.set_write_buffer_limits(0)  # ``drain`` waits until the kernel has taken everything

    async def run(self) -> None:
        """Answer until the client or the protocol ends it."""
        while True:
            async with asyncio.timeout(_PATIENCE):
                request = await self._request()
            if request is None:
                return
            if seconds := self._delay():
                await pass_by(seconds)
            match self._handler(request):
                case HttpResponse() as answer:
                    await self._send_whole(answer)
                case stream:
                    await self._send_stream(stream)
            if self._connection.our_state is not h11.DONE or self._connection.their_state is not h11.DONE:
                return
            self._connection.start_next_cycle()

    async def _request(self) -> ReceivedRequest | None:
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
                        await self._send_whole(HttpResponse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE))
                        return None
                case h11.EndOfMessage() if head is not None:
                    return _read(head, bytes(body))
                case h11.ConnectionClosed() | h11.PAUSED:
                    return None
                case _:
                    self._connection.receive_data(await self._reader.read(65536))

    async def _send_whole(self, answer: HttpResponse) -> None:
        headers = [*answer.headers.items(), ("Content-Length", str(len(answer.body)))]
        body = () if self._head_only else (h11.Data(data=answer.body),)
        await self._send(h11.Response(status_code=answer.status, headers=headers), *body, h11.EndOfMessage())

    async def _send_stream(self, stream: ChunkedResponse) -> None:
        headers = [("Content-Type", stream.content_type), ("Transfer-Encoding", "chunked")]
        await self._send(h11.Response(status_code=HTTPStatus.OK, headers=headers))
        if not self._head_only:
            await self._send_pieces(stream)
        await self._send(h11.EndOfMessage())

    async def _send_pieces(self, stream: ChunkedResponse) -> None:
        """Send pieces until the stream ends. Raises ``ConnectionAbortedError`` when the client closes its side."""
        is_over, wake = False, asyncio.Event()

        def more() -> None:
            """Send the pieces that there are, for as long as the kernel takes them at once."""
            nonlocal is_over
            while not is_over and not self._writer.transport.get_write_buffer_size():
                piece = stream.take()
                if piece is None:
                    is_over = True
                elif piece:
                    self._write(h11.Data(data=piece))
                else:
                    return
            wake.set()

        # A client that sends during a stream breaks the protocol.
        gone = asyncio.create_task(self._reader.read(1))
        gone.add_done_callback(lambda _: wake.set())
        stream.begin(more)
        try:
            while not is_over:
                more()
                await wake.wait()
                wake.clear()
                if gone.done():
                    raise ConnectionAbortedError
                await self._send()
        finally:
            stream.end()
            gone.cancel()
            await asyncio.gather(gone, return_exceptions=True)

    async def _send(self, *events: h11.Event) -> None:
        """Send, and wait until the kernel has taken everything. Raises ``TimeoutError`` for a client too slow."""
        self._write(*events)
        async with asyncio.timeout(_STALLED):
            await self._writer.drain()

    def _write(self, *events: h11.Event) -> None:
        self._writer.write(b"".join(self._connection.send(event) or b"" for event in events))


def _read(head: "h11.Request", body: bytes) -> ReceivedRequest:
    path, _, query = head.target.decode("ascii", errors="replace").partition("?")
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in head.headers}
    return ReceivedRequest(head.method.decode("ascii"), path, query, headers, body)
