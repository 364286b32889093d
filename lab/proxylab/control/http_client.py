"""An HTTP client inside a lab, which gets one document; and whether a port takes connections."""

import asyncio
import errno
import socket
import ssl
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeVar

import h11
from h11 import RemoteProtocolError
from msgspec import Struct

from proxylab.addresses import IPAddress
from proxylab.kernel.sandbox.netns import NetNs, inside
from proxylab.timing import Deadline

Done = TypeVar("Done")

_CHUNK: Final = 65536
_MOST_BYTES: Final = 16 << 20
_RESET_ON_CLOSE: Final = struct.pack("@ii", 1, 0)  # struct linger: no TIME_WAIT holds the caller's port (socket(7))


class HttpAnswer(Struct, frozen=True):
    """An answer: its status, its headers by their names in lower case, and its body."""

    status: int
    headers: Mapping[str, str]
    body: bytes


async def fetch(
    netns: NetNs,
    address: IPAddress,
    port: int,
    path: str,
    deadline: Deadline,
) -> tuple[int, bytes]:
    """GET one document from inside ``netns``; returns its status and its body.

    Raises:
        OSError: the connection fails, or the peer does not speak HTTP (EPROTO).
        TimeoutError: the response was not complete by the deadline.
    """
    answer = await request(netns, address, port, path, deadline)
    return answer.status, answer.body


async def request(
    netns: NetNs,
    address: IPAddress,
    port: int,
    path: str,
    deadline: Deadline,
    source: tuple[IPAddress, int] | None = None,
    *,
    host: str = "",
    request_id: str = "",
    tls: ssl.SSLContext | None = None,
) -> HttpAnswer:
    """GET one document as ``fetch`` does, for a ``host`` other than the address, and over TLS if there is a context.

    The request's first header is ``X-Request-Id``, if one is given.

    Raises:
        OSError: as ``fetch``; or ``ssl.SSLError``, such as for a certificate that is not for the host.
        TimeoutError: the response was not complete by the deadline.
    """
    with _socket(netns, address) as asking:
        if source is not None:
            asking.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
            # A connection of an earlier probe from that port may be in TIME_WAIT (see proxylab.traffic.connect).
            asking.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            asking.bind((str(source[0]), source[1]))
        async with asyncio.timeout(deadline.remaining):
            await asyncio.get_running_loop().sock_connect(asking, (str(address), port))
            way = _Plain(asking) if tls is None else _TlsConnection(_Plain(asking), tls, host)
            try:
                own = host or (str(address) if address.version == 4 else f"[{address}]")
                headers = [("X-Request-Id", request_id)] if request_id else []
                return await _converse(way, path, [*headers, ("Host", own)])
            except RemoteProtocolError as error:
                raise OSError(errno.EPROTO, f"{address} port {port} does not speak HTTP: {error}") from error


async def takes_connections(netns: NetNs, address: IPAddress, port: int) -> bool:
    """Whether a program in ``netns`` listens there; the connection that shows it is reset at once."""
    with _socket(netns, address) as asking:
        asking.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        try:
            await asyncio.get_running_loop().sock_connect(asking, (str(address), port))
        except OSError:
            return False
    return True


def _socket(netns: NetNs, address: IPAddress) -> socket.socket:
    """A socket of TCP in ``netns``, of the address' family."""
    with inside(netns):
        family = socket.AF_INET if address.version == 4 else socket.AF_INET6
        made = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # else a request by TLS waits after the handshake
    return made


class _Plain:
    """A connection without TLS."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._loop = asyncio.get_running_loop()

    async def send(self, data: bytes) -> None:
        await self._loop.sock_sendall(self._sock, data)

    async def receive(self) -> bytes:
        return await self._loop.sock_recv(self._sock, _CHUNK)


class _TlsConnection:
    """A connection with TLS on top."""

    def __init__(self, below: _Plain, context: ssl.SSLContext, host: str) -> None:
        self._below = below
        self._came, self._goes = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._came, self._goes, server_hostname=host)

    async def send(self, data: bytes) -> None:
        await self._until_done(lambda: self._tls.write(data))

    async def receive(self) -> bytes:
        try:
            return await self._until_done(lambda: self._tls.read(_CHUNK))
        except ssl.SSLZeroReturnError:
            return b""

    async def _until_done(self, action: Callable[[], Done]) -> Done:
        while True:
            try:
                done = action()
            except ssl.SSLWantReadError:
                await self._flush()
                if data := await self._below.receive():
                    self._came.write(data)
                else:
                    self._came.write_eof()
                continue
            await self._flush()
            return done

    async def _flush(self) -> None:
        if data := self._goes.read():
            await self._below.send(data)


async def _converse(way: _Plain | _TlsConnection, path: str, headers: Sequence[tuple[str, str]]) -> HttpAnswer:
    connection = h11.Connection(h11.CLIENT)
    asked = h11.Request(method="GET", target=path, headers=[*headers, ("Connection", "close")])
    await way.send((connection.send(asked) or b"") + (connection.send(h11.EndOfMessage()) or b""))
    host, status, answered, body = headers[-1][1], 0, dict[str, str](), bytearray()
    while True:
        match connection.next_event():
            case h11.Response(status_code=status, headers=found):
                answered = {name.decode(): value.decode(errors="replace") for name, value in found}
            case h11.Data(data=data):
                body += data
                if len(body) > _MOST_BYTES:
                    raise OSError(errno.EMSGSIZE, f"{host}{path} answers with more than {_MOST_BYTES} bytes")
            case h11.EndOfMessage():
                return HttpAnswer(status, answered, bytes(body))
            case h11.ConnectionClosed():
                raise OSError(errno.EPROTO, f"{host} closed the connection before it had answered")
            case _:
                connection.receive_data(await way.receive())
