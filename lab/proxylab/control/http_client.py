"""An HTTP client inside a lab, which gets one document; and whether a port takes connections."""

import asyncio
import errno
import socket
import struct
from typing import Final

import h11
from h11 import RemoteProtocolError

from proxylab.addresses import IPAddress
from proxylab.kernel.sandbox.netns import NetNs, inside
from proxylab.timing import Deadline

__all__ = ["fetch", "takes_connections"]

_CHUNK: Final = 65536
_MOST_BYTES: Final = 16 << 20
_RESET_ON_CLOSE: Final = struct.pack("@ii", 1, 0)  # struct linger: no TIME_WAIT holds the caller's port (socket(7))


async def fetch(
    netns: NetNs,
    address: IPAddress,
    port: int,
    path: str,
    deadline: Deadline,
    source: tuple[IPAddress, int] | None = None,
    request_id: str = "",
) -> tuple[int, bytes]:
    """GET one document from inside ``netns``, from a ``source`` if given; returns its status and its body.

    The request's first header is ``X-Request-Id``, if one is given.

    Raises:
        OSError: the connection fails, or the peer does not speak HTTP (EPROTO).
        TimeoutError: the response was not complete by the deadline.
    """
    with inside(netns):
        family = socket.AF_INET if address.version == 4 else socket.AF_INET6
        asking = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
    with asking:
        if source is not None:
            asking.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
            # A connection of an earlier probe from that port may be in TIME_WAIT (see proxylab.traffic.connect).
            asking.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            asking.bind((str(source[0]), source[1]))
        async with asyncio.timeout(deadline.remaining):
            await asyncio.get_running_loop().sock_connect(asking, (str(address), port))
            try:
                return await _converse(asking, address, path, request_id)
            except RemoteProtocolError as error:
                raise OSError(errno.EPROTO, f"{address} port {port} does not speak HTTP: {error}") from error


async def takes_connections(netns: NetNs, address: IPAddress, port: int) -> bool:
    """Whether a program in ``netns`` listens there; the connection that shows it is reset at once."""
    with inside(netns):
        family = socket.AF_INET if address.version == 4 else socket.AF_INET6
        asking = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
    with asking:
        asking.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        try:
            await asyncio.get_running_loop().sock_connect(asking, (str(address), port))
        except OSError:
            return False
    return True


async def _converse(asking: socket.socket, address: IPAddress, path: str, request_id: str) -> tuple[int, bytes]:
    loop = asyncio.get_running_loop()
    connection = h11.Connection(h11.CLIENT)
    host = str(address) if address.version == 4 else f"[{address}]"
    headers = [("X-Request-Id", request_id)] if request_id else []
    request = h11.Request(method="GET", target=path, headers=[*headers, ("Host", host), ("Connection", "close")])
    await loop.sock_sendall(asking, (connection.send(request) or b"") + (connection.send(h11.EndOfMessage()) or b""))
    status, body = 0, bytearray()
    while True:
        match connection.next_event():
            case h11.Response(status_code=status):
                pass
            case h11.Data(data=data):
                body += data
                if len(body) > _MOST_BYTES:
                    raise OSError(errno.EMSGSIZE, f"{host}{path} answers with more than {_MOST_BYTES} bytes")
            case h11.EndOfMessage():
                return status, bytes(body)
            case h11.ConnectionClosed():
                raise OSError(errno.EPROTO, f"{host} closed the connection before it had answered")
            case _:
                connection.receive_data(await loop.sock_recv(asking, _CHUNK))
