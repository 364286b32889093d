"""A relay passes bytes on in both directions, ends when either side does, and serves more clients than fit at once."""

import asyncio
import socket
from collections.abc import Awaitable, Callable

import pytest
from local_listener import listen_here

from proxylab.control.kubernetes.relay import Relay

SECONDS = 10.0
CLIENTS = 400
"""More than a relay serves at once. A queue that is full loses a SYN, which TCP repeats after seconds."""


def listening() -> socket.socket:
    return listen_here(CLIENTS)


def port_of(server: socket.socket) -> int:
    return int(server.getsockname()[1])


async def dialled(port: int) -> socket.socket:
    made = socket.socket()
    made.setblocking(False)
    try:
        await asyncio.get_running_loop().sock_connect(made, ("127.0.0.1", port))
    except BaseException:
        made.close()
        raise
    return made


async def relayed(check: Callable[[Relay], Awaitable[None]]) -> None:
    """Run a check on a relay to a server that answers each request with its length, and then ends."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(str(len(await reader.read())).encode())
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, backlog=CLIENTS)
    relay = Relay(listening(), lambda: dialled(port_of(server.sockets[0])))
    try:
        async with asyncio.timeout(SECONDS):
            await check(relay)
    finally:
        await relay.close()
        server.close()
        await server.wait_closed()


async def ask(relay: Relay, size: int) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", relay.port)
    writer.write(bytes(size))
    writer.write_eof()
    answer = await reader.read()
    writer.close()
    return answer


def test_bytes_and_both_ends_are_passed_on() -> None:
    async def check(relay: Relay) -> None:
        assert await ask(relay, 3_000_000) == b"3000000"

    asyncio.run(relayed(check))


def test_many_clients_at_once_are_all_served() -> None:
    async def check(relay: Relay) -> None:
        answers = await asyncio.gather(*(ask(relay, number) for number in range(CLIENTS)))
        assert answers == [str(number).encode() for number in range(CLIENTS)]

    asyncio.run(relayed(check))


def test_a_server_that_is_not_there_ends_the_connection() -> None:
    async def run() -> None:
        gone = listening()
        port = port_of(gone)
        gone.close()
        relay = Relay(listening(), lambda: dialled(port))
        async with asyncio.timeout(SECONDS):
            reader, writer = await asyncio.open_connection("127.0.0.1", relay.port)
            assert await reader.read() == b""
            writer.close()
            await relay.close()

    asyncio.run(run())


def test_a_closed_relay_listens_no_longer_and_ends_its_connections() -> None:
    async def check(relay: Relay) -> None:
        port = relay.port
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        await relay.close()
        assert await reader.read() == b""
        writer.close()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", port)

    asyncio.run(relayed(check))
