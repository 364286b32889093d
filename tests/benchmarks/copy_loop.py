"""The other ends of the benchmark of the proxy process: a plain copy loop in its place, and a server behind either.

``python copy_loop.py relay PORT`` copies each connection by two threads; ``python copy_loop.py serve`` answers every
line with itself, and counts a connection that begins with a zero byte. Both print the port on which they listen.
"""

import asyncio
import socket
import sys
import threading
from contextlib import suppress

PIECE = 1 << 16


def copy(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(PIECE):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)


def relay(port: int) -> None:
    listening = socket.create_server(("127.0.0.1", 0), backlog=4096)
    print(listening.getsockname()[1], flush=True)  # noqa: T201
    while True:
        near, _ = listening.accept()
        far = socket.create_connection(("127.0.0.1", port))
        for ends in ((near, far), (far, near)):
            threading.Thread(target=copy, args=ends, daemon=True).start()


async def serve() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            first = await reader.read(1)
            if first == b"\0":
                count = 1
                while data := await reader.read(PIECE * 4):
                    count += len(data)
                writer.write(b"%d\n" % count)
            elif first == b"!":
                while True:
                    writer.write(bytes(PIECE))
                    await writer.drain()
            else:
                while line := await reader.readline():
                    writer.write(first + line)
                    first = b""
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)  # noqa: T201
    await server.serve_forever()


if __name__ == "__main__":
    if sys.argv[1] == "relay":
        relay(int(sys.argv[2]))
    else:
        asyncio.run(serve())
