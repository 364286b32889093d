"""HTTP requests from inside a node.

Owns: ``fetch``.
Must not: interpret what comes.
"""

import asyncio
import socket
from contextlib import closing
from typing import Final

from lab.ip import Family, IPAddress
from lab.kernel.netns import NetNs, inside
from lab.timing import Deadline

__all__ = ["fetch"]

_MOST: Final = 16 << 20


async def fetch(netns: NetNs, address: IPAddress, port: int, path: str, deadline: Deadline) -> tuple[int, bytes]:
    """GET one document; its status and its body.

    Raises:
        OSError: nobody answers there, or by other rules than those of HTTP.
        TimeoutError: the answer was not whole by the deadline.
    """
    import h11  # noqa: PLC0415 - few labs ask for anything

    six = Family.of(address) is Family.IPV6
    with inside(netns):
        opened = socket.socket(socket.AF_INET6 if six else socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    opened.setblocking(False)
    loop = asyncio.get_running_loop()
    connection = h11.Connection(h11.CLIENT)
    host = f"[{address}]:{port}" if six else f"{address}:{port}"
    head = h11.Request(method="GET", target=path, headers=[("Host", host), ("Connection", "close")])
    status, body = 0, bytearray()
    with closing(opened):
        async with asyncio.timeout(deadline.remaining):
            await loop.sock_connect(opened, (str(address), port))
            await loop.sock_sendall(
                opened, (connection.send(head) or b"") + (connection.send(h11.EndOfMessage()) or b"")
            )
            try:
                while True:
                    match connection.next_event():
                        case h11.Response(status_code=status):
                            pass
                        case h11.Data(data=data):
                            body += data
                            if len(body) > _MOST:
                                raise OSError(f"http://{host}{path} has more than {_MOST} bytes")
                        case h11.EndOfMessage() | h11.ConnectionClosed():
                            return status, bytes(body)
                        case _:
                            connection.receive_data(await loop.sock_recv(opened, 65536))
            except h11.RemoteProtocolError as error:
                raise OSError(f"http://{host}{path}: {error}") from error
