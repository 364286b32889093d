"""The proxy process of mode userspace, over sockets of the loopback device: it copies, balances, and closes."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from proxylab.engines.embedded.userspace.program import serve

IDLE = 0.2
HERE = "127.0.0.1"

Order = Callable[..., Awaitable[dict[str, Any]]]


@asynccontextmanager
async def process() -> AsyncIterator[Order]:
    """A proxy process in this event loop; yields what gives it an order to serve endpoints as ``web``."""
    ours, theirs = socket.socketpair()
    for end in (ours, theirs):
        end.setblocking(False)
    running = asyncio.create_task(serve(theirs, HERE, IDLE))
    reader, writer = await asyncio.open_connection(sock=ours)

    async def order(*endpoints: tuple[str, int], **changes: Any) -> dict[str, Any]:
        wanted = {"protocol": "TCP", "endpoints": endpoints, "affinity": None, "node_port": 0, **changes}
        close = changes.pop("close", [])
        serving = {} if close else {"web": wanted}
        writer.write(json.dumps({"number": 1, "serve": serving, "close": close}).encode() + b"\n")
        answer: dict[str, Any] = json.loads(await reader.readline())
        return answer

    try:
        async with asyncio.timeout(20):
            yield order
    finally:
        writer.close()
        await running


@asynccontextmanager
async def backend(name: str, *, after_eof: bool = False) -> AsyncIterator[tuple[str, int]]:
    """A server that answers a line, or everything until the end, with its name and what it got."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        got = await reader.read() if after_eof else await reader.readline()
        writer.write(name.encode() + b":" + got)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, HERE, 0)
    try:
        yield server.sockets[0].getsockname()
    finally:
        server.close()


def unused() -> tuple[str, int]:
    """An endpoint that refuses: nothing listens there."""
    with socket.create_server((HERE, 0)) as closed:
        address: tuple[str, int] = closed.getsockname()
    return address


async def ask(port: int, request: bytes = b"hello\n", *, eof: bool = False) -> bytes:
    reader, writer = await asyncio.open_connection(HERE, port)
    writer.write(request)
    if eof:
        writer.write_eof()
    try:
        return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.close()


def test_connections_alternate_strictly() -> None:
    async def story() -> None:
        async with process() as order, backend("a") as a, backend("b") as b:
            port = (await order(a, b))["ports"]["web"]
            heard = [await ask(port) for _ in range(6)]
            assert sorted(heard[:2]) == [b"a:hello\n", b"b:hello\n"]
            assert heard == heard[:2] * 3

    asyncio.run(story())


def test_each_direction_ends_by_itself() -> None:
    async def story() -> None:
        async with process() as order, backend("a", after_eof=True) as a:
            port = (await order(a))["ports"]["web"]
            assert await ask(port, b"one\ntwo\n", eof=True) == b"a:one\ntwo\n"

    asyncio.run(story())


def test_sixty_thousand_bytes_come_whole_in_both_directions() -> None:
    async def story() -> None:
        async with process() as order, backend("a", after_eof=True) as a:
            port = (await order(a))["ports"]["web"]
            request = bytes(range(250)) * 240
            assert await ask(port, request, eof=True) == b"a:" + request

    asyncio.run(story())


def test_a_refused_connection_goes_to_another_endpoint() -> None:
    async def story() -> None:
        async with process() as order, backend("a") as a:
            port = (await order(unused(), a))["ports"]["web"]
            assert [await ask(port) for _ in range(4)] == [b"a:hello\n"] * 4

    asyncio.run(story())


@pytest.mark.parametrize("endpoints", [0, 2])
def test_a_connection_that_no_endpoint_takes_is_accepted_and_closed(endpoints: int) -> None:
    async def story() -> None:
        async with process() as order:
            port = (await order(*(unused() for _ in range(endpoints))))["ports"]["web"]
            assert await ask(port) == b""

    asyncio.run(story())


def test_a_port_that_is_closed_takes_no_connection() -> None:
    async def story() -> None:
        async with process() as order, backend("a") as a:
            port = (await order(a))["ports"]["web"]
            assert (await order(close=["web"]))["ports"] == {}
            with pytest.raises(ConnectionRefusedError):
                await ask(port)

    asyncio.run(story())


def test_a_node_port_is_kept_from_other_programs_and_given_up() -> None:
    async def story() -> None:
        async with process() as order, backend("a") as a:
            _, wanted = unused()
            assert (await order(a, node_port=wanted))["failed"] == {}
            with pytest.raises(OSError, match="in use"):
                socket.create_server((HERE, wanted))
            await order(a, node_port=0)
            socket.create_server((HERE, wanted)).close()
            with socket.create_server((HERE, wanted)):
                assert "in use" in (await order(a, node_port=wanted))["failed"]["web"]

    asyncio.run(story())


def test_a_reader_that_never_reads_keeps_one_buffer_and_no_other_client_waiting() -> None:
    async def story() -> None:
        flood = asyncio.Event()
        written = 0

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal written
            if await reader.readline() == b"flood\n":
                while not flood.is_set():
                    writer.write(bytes(1 << 16))
                    try:
                        async with asyncio.timeout(0.3):
                            await writer.drain()
                    except TimeoutError:
                        flood.set()
                    written += 1 << 16
                writer.transport.abort()
            else:
                writer.write(b"heard")
                writer.close()

        server = await asyncio.start_server(answer, HERE, 0)
        async with process() as order:
            port = (await order(server.sockets[0].getsockname()))["ports"]["web"]
            silent = socket.create_connection((HERE, port))
            silent.sendall(b"flood\n")
            await flood.wait()
            assert written < 64 << 20
            assert await ask(port) == b"heard"
            silent.close()
        server.close()

    asyncio.run(story())


def test_datagrams_of_a_client_go_to_one_endpoint_until_it_is_idle() -> None:
    async def story() -> None:
        loop = asyncio.get_running_loop()
        backends = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2)]
        client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        for each in (*backends, client):
            each.setblocking(False)
            each.bind((HERE, 0))
        async with process() as order:
            port = (await order(*(each.getsockname() for each in backends), protocol="UDP"))["ports"]["web"]

            async def reached() -> tuple[socket.socket, Any]:
                await loop.sock_sendto(client, b"ping", (HERE, port))
                waiting = {asyncio.create_task(loop.sock_recvfrom(each, 100)): each for each in backends}
                done, left = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                for each in left:
                    each.cancel()
                (first,) = done
                return waiting[first], first.result()[1]

            backend_of_first, far = await reached()
            assert (await reached()) == (backend_of_first, far)
            await loop.sock_sendto(backend_of_first, b"pong", far)
            assert (await loop.sock_recvfrom(client, 100)) == (b"pong", (HERE, port))
            await asyncio.sleep(2 * IDLE)
            later, other = await reached()
            assert later is not backend_of_first
            assert other != far
        for each in (*backends, client):
            each.close()

    asyncio.run(story())


def test_a_datagram_of_a_whole_frame_comes_whole_in_both_directions() -> None:
    async def story() -> None:
        loop, sent = asyncio.get_running_loop(), bytes(range(200)) * 7
        backend, client = (socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2))
        for each in (backend, client):
            each.setblocking(False)
            each.bind((HERE, 0))
        async with process() as order:
            port = (await order(backend.getsockname(), protocol="UDP"))["ports"]["web"]
            await loop.sock_sendto(client, sent, (HERE, port))
            got, far = await loop.sock_recvfrom(backend, 2000)
            assert got == sent
            await loop.sock_sendto(backend, got[::-1], far)
            assert (await loop.sock_recvfrom(client, 2000)) == (sent[::-1], (HERE, port))
        for each in (backend, client):
            each.close()

    asyncio.run(story())


def test_it_passes_every_datagram_on_before_it_answers_and_counts_what_it_discards() -> None:
    async def story() -> None:
        backend, known, late = (socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(3))
        for each in (backend, known, late):
            each.setblocking(False)
            each.bind((HERE, 0))
        async with process() as order:
            port = (await order(backend.getsockname(), protocol="UDP"))["ports"]["web"]
            for _ in range(200):
                known.sendto(b"ping", (HERE, port))
            assert (await order(backend.getsockname(), protocol="UDP"))["discarded"] == {"web": 0}
            heard = [backend.recvfrom(100) for _ in range(200)]
            for _, program in heard:
                backend.sendto(b"pong", program)
            await order(protocol="UDP")
            assert [known.recv(100) for _ in range(200)] == [b"pong"] * 200
            for _ in range(200):
                late.sendto(b"ping", (HERE, port))
            assert (await order(protocol="UDP"))["discarded"] == {"web": 200}
        for each in (backend, known, late):
            each.close()

    asyncio.run(story())
