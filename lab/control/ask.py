"""A question by HTTP to somebody inside a lab.

Owns: ``ask_status``, a client that wants to know no more than the status.
Must not: know what the answer means.
"""

import asyncio
import socket

from lab.ip import IPAddress
from lab.kernel.netns import NetNs, inside

__all__ = ["ask_status"]

_CHUNK = 4096


async def ask_status(netns: NetNs, address: IPAddress, port: int, path: str = "/", *, seconds: float) -> int | None:
    """The status of what ``address`` answers to GET ``path`` from inside ``netns``.

    Returns:
        ``None`` where nobody answers HTTP within ``seconds``.
    """
    from h11 import RemoteProtocolError  # noqa: PLC0415 - most labs ask nobody

    with inside(netns):
        family = socket.AF_INET if address.version == 4 else socket.AF_INET6
        asking = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
    with asking:
        try:
            async with asyncio.timeout(seconds):
                await asyncio.get_running_loop().sock_connect(asking, (str(address), port))
                return await _converse(asking, address, path)
        except (OSError, RemoteProtocolError):  # a TimeoutError is an OSError
            return None


async def _converse(asking: socket.socket, address: IPAddress, path: str) -> int | None:
    import h11  # noqa: PLC0415

    loop = asyncio.get_running_loop()
    connection = h11.Connection(h11.CLIENT)
    host = str(address) if address.version == 4 else f"[{address}]"
    request = h11.Request(method="GET", target=path, headers=[("Host", host), ("Connection", "close")])
    await loop.sock_sendall(asking, (connection.send(request) or b"") + (connection.send(h11.EndOfMessage()) or b""))
    while True:
        event = connection.next_event()
        if isinstance(event, h11.Response):
            return event.status_code
        if event is h11.NEED_DATA:
            connection.receive_data(await loop.sock_recv(asking, _CHUNK))
        elif isinstance(event, h11.ConnectionClosed):
            return None
