"""The HTTP server over sockets of this process."""

import asyncio
import contextlib
import os
import resource
import socket
from collections.abc import Callable, Iterator

import pytest
from local_listener import listen_here

from proxylab.control.http_server import HttpResponse, HttpServer, ReceivedRequest


def handler(request: ReceivedRequest) -> HttpResponse:
    return HttpResponse(200 if request.path == "/there" else 404, request.path.encode(), {"X-Path": request.path})


def exchanged(*pieces: bytes) -> bytes:
    """What the server sends for these pieces, until it hangs up."""

    async def scenario() -> bytes:
        listening = listen_here()
        server = HttpServer(listening, handler)
        reader, writer = await asyncio.open_connection(*listening.getsockname())
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
        writer.write_eof()
        said = await asyncio.wait_for(reader.read(), 5)
        writer.close()
        await writer.wait_closed()
        await server.close()
        return said

    return asyncio.run(scenario())


def test_one_connection_serves_many_requests() -> None:
    said = exchanged(
        b"GET /there?x=1 HTTP/1.1\r\nHost: n\r\n\r\n",
        b"GET /else",
        b"where HTTP/1.1\r\nHost: n\r\nConnection: close\r\n\r\n",
    )
    assert said.count(b"HTTP/1.1 200") == 1
    assert said.count(b"HTTP/1.1 404") == 1
    assert b"X-Path: /there\r\n" in said
    assert said.endswith(b"/elsewhere")


def test_head_has_no_body() -> None:
    said = exchanged(b"HEAD /there HTTP/1.1\r\nHost: n\r\nConnection: close\r\n\r\n")
    assert said.startswith(b"HTTP/1.1 200")
    assert said.endswith(b"\r\n\r\n")


def test_nonsense_ends_the_connection_and_nothing_else() -> None:
    assert exchanged(b"\x16\x03\x01 no HTTP\r\n\r\n") == b""


def test_a_client_that_says_nothing_does_not_keep_the_server() -> None:
    async def scenario() -> None:
        listening = listen_here()
        server = HttpServer(listening, handler)
        reader, writer = await asyncio.open_connection(*listening.getsockname())
        writer.write(b"GET /there HTTP/1.1\r\nHost: n\r\n\r\n")
        await reader.readuntil(b"/there")
        await asyncio.wait_for(server.close(), 5)
        await asyncio.wait_for(reader.read(), 5)
        writer.close()
        await writer.wait_closed()

    asyncio.run(scenario())


@pytest.mark.parametrize("turns", range(8))
def test_a_server_that_closes_leaves_no_connection_open(turns: int) -> None:
    """A connection is in the backlog, accepted, or about to be read, by how often the event loop has run."""

    async def scenario() -> bytes:
        listening = listen_here()
        server = HttpServer(listening, handler)
        with socket.create_connection(listening.getsockname()) as client:
            for _ in range(turns):
                await asyncio.sleep(0)
            await server.close()
            await asyncio.sleep(0)  # a transport closes its socket in the next turn
            client.setblocking(False)
            with contextlib.suppress(ConnectionResetError):
                return client.recv(1)
        return b""

    assert asyncio.run(scenario()) == b""


@pytest.fixture
def no_descriptor_left() -> Iterator[Callable[[], None]]:
    """What leaves this process without a descriptor; afterwards it has its own limit again."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)

    def use_up() -> None:
        lowest = os.dup(0)
        os.close(lowest)
        resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, hard))

    yield use_up
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize("watches", [0, 1])
def test_a_server_without_descriptors_accepts_again_when_it_has_some(
    watches: int, no_descriptor_left: Callable[[], None]
) -> None:
    """Connections that stay open, such as watches, do not keep it from that."""

    async def scenario() -> bytes:
        listening = listen_here()
        server = HttpServer(listening, handler)
        async with contextlib.AsyncExitStack() as stack:
            stack.push_async_callback(server.close)
            for _ in range(watches):
                stack.enter_context(socket.create_connection(listening.getsockname()))
            for _ in range(8):
                await asyncio.sleep(0)
            client = stack.enter_context(socket.socket())
            client.setblocking(False)
            limits = resource.getrlimit(resource.RLIMIT_NOFILE)
            no_descriptor_left()
            loop = asyncio.get_running_loop()
            await loop.sock_connect(client, listening.getsockname())
            for _ in range(8):
                await asyncio.sleep(0)
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
            await loop.sock_sendall(client, b"GET /there HTTP/1.1\r\nHost: n\r\n\r\n")
            return await asyncio.wait_for(loop.sock_recv(client, 12), 5)

    assert asyncio.run(scenario()) == b"HTTP/1.1 200"
