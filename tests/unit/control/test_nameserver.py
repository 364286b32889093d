"""Datagrams and streams of one server, and clients who misbehave."""

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from lab.control.nameserver import Nameserver

SECONDS = 5.0


def respond(message: bytes, by_udp: bool) -> bytes | None:
    return None if message == b"silence" else message.upper() + (b" by udp" if by_udp else b" by tcp")


@asynccontextmanager
async def served() -> AsyncIterator[tuple[str, int, int]]:
    datagram = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    stream = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    for each in (datagram, stream):
        each.setblocking(False)
        each.bind(("127.0.0.1", 0))
    stream.listen()
    ports = datagram.getsockname()[1], stream.getsockname()[1]
    server = await Nameserver.on([datagram], [stream], respond)
    try:
        yield "127.0.0.1", *ports
    finally:
        await server.close()
        assert datagram.fileno() == stream.fileno() == -1


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(SECONDS):
            await test()

    asyncio.run(bounded())


async def say(writer: asyncio.StreamWriter, message: bytes) -> None:
    writer.write(struct.pack("!H", len(message)) + message)
    await writer.drain()


async def hear(reader: asyncio.StreamReader) -> bytes:
    (length,) = struct.unpack("!H", await reader.readexactly(2))
    return await reader.readexactly(length)


async def leave(writer: asyncio.StreamWriter) -> None:
    writer.close()
    await writer.wait_closed()


def test_a_datagram_is_answered_by_a_datagram() -> None:
    async def test() -> None:
        async with served() as (host, port, _):
            loop = asyncio.get_running_loop()
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
                client.setblocking(False)
                await loop.sock_connect(client, (host, port))
                await loop.sock_sendall(client, b"silence")
                await loop.sock_sendall(client, b"hello")
                assert await loop.sock_recv(client, 100) == b"HELLO by udp"

    run(test)


def test_a_stream_carries_one_question_after_the_other() -> None:
    async def test() -> None:
        async with served() as (host, _, port):
            reader, writer = await asyncio.open_connection(host, port)
            for word in (b"one", b"two"):
                await say(writer, word)
                assert await hear(reader) == word.upper() + b" by tcp"
            await say(writer, b"silence")
            assert await reader.read() == b""
            await leave(writer)

    run(test)


@pytest.mark.parametrize("sent", [b"", b"\x00", b"\x00\x10half"], ids=["nothing", "half a length", "half a message"])
def test_a_client_that_leaves_early_disturbs_nobody(sent: bytes) -> None:
    async def test() -> None:
        async with served() as (host, _, port):
            _, rude = await asyncio.open_connection(host, port)
            rude.write(sent)
            await rude.drain()
            await leave(rude)
            reader, writer = await asyncio.open_connection(host, port)
            await say(writer, b"still there")
            assert await hear(reader) == b"STILL THERE by tcp"
            await leave(writer)

    run(test)


def test_closing_breaks_conversations_off() -> None:
    async def test() -> None:
        async with served() as (host, _, port):
            reader, writer = await asyncio.open_connection(host, port)
            await say(writer, b"hello")
            await hear(reader)
        assert await reader.read() == b""
        await leave(writer)

    run(test)
