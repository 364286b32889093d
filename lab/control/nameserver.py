"""The cluster's DNS server, on sockets that are handed in.

Owns: ``Nameserver``: datagrams and streams, each bounded, so that no client keeps another from its answer.
Must not: know DNS (``control.dns`` does), or open sockets (``control.listen`` does).
"""

import asyncio
import socket
import struct
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final, cast

__all__ = ["Aside", "Nameserver"]

Respond = Callable[[bytes, bool], bytes | None]
"""From a message, and whether it came by UDP, to what is said; ``None`` for silence."""


@dataclass(frozen=True, slots=True)
class Aside:
    """What else is answered on the same ports: datagrams and lines that begin with ``prefix``.

    No message can be taken for one: a stream's begins with its length, and of that length no question is.
    ``respond`` is given what was said, and the address and port of who said it.
    """

    prefix: bytes
    respond: Callable[[bytes, str, int], bytes | None]


_PATIENCE: Final = 10.0
"""Seconds within which a client must have sent its next question by TCP (RFC 7766, section 6.2.3)."""
_MOST_STREAMS: Final = 256
_LONGEST_LINE: Final = 128 * 1024
_LENGTH: Final = struct.Struct("!H")


class Nameserver:
    """Serves its sockets until it is closed."""

    def __init__(self, respond: Respond, aside: Aside | None = None) -> None:
        self._respond = respond
        self._aside = aside
        self._datagrams: list[_Datagrams] = []
        self._servers: list[asyncio.Server] = []
        self._conversations: set[asyncio.Task[None]] = set()

    @classmethod
    async def on(
        cls,
        datagrams: Sequence[socket.socket],
        streams: Sequence[socket.socket],
        respond: Respond,
        aside: Aside | None = None,
    ) -> "Nameserver":
        """Begin to serve the sockets, bound and listening, all of which the server closes in the end."""
        server = cls(respond, aside)
        loop = asyncio.get_running_loop()
        for each in datagrams:
            _, protocol = await loop.create_datagram_endpoint(partial(_Datagrams, respond, aside), sock=each)
            server._datagrams.append(protocol)
        for each in streams:
            server._servers.append(await asyncio.start_server(server._begin, sock=each, limit=_LONGEST_LINE))
        return server

    async def close(self) -> None:
        """Listen no longer, and break conversations under way off."""
        for server in self._servers:
            server.close()
        for each in self._datagrams:
            await each.close()
        under_way = tuple(self._conversations)
        for task in under_way:
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)

    def _begin(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._conversations) >= _MOST_STREAMS:
            writer.close()
            return
        task = asyncio.create_task(self._serve(reader, writer))
        self._conversations.add(task)
        task.add_done_callback(self._conversations.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            try:
                await self._converse(reader, writer)
            finally:
                writer.close()
                await writer.wait_closed()

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            async with asyncio.timeout(_PATIENCE):
                head = await reader.readexactly(_LENGTH.size)
                if self._aside is not None and self._aside.prefix.startswith(head):
                    await _answer_line(self._aside, head, reader, writer)
                    return
                (length,) = _LENGTH.unpack(head)
                said = self._respond(await reader.readexactly(length), False)
                if said is None:
                    return
                writer.write(_LENGTH.pack(len(said)) + said)
                await writer.drain()


async def _answer_line(aside: Aside, head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    line = head + await reader.readuntil(b"\n")
    address, port, *_ = writer.get_extra_info("peername")
    writer.write(aside.respond(line, address, port) or b"")
    await writer.drain()


class _Datagrams(asyncio.DatagramProtocol):
    """One question, one answer."""

    def __init__(self, respond: Respond, aside: Aside | None) -> None:
        self._respond = respond
        self._aside = aside
        self._transport: asyncio.DatagramTransport | None = None
        self._closed = asyncio.get_running_loop().create_future()

    async def close(self) -> None:
        """Close the socket; asyncio does so a turn of the loop later than it is told to."""
        if self._transport is not None:
            self._transport.close()
            await self._closed

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.DatagramTransport", transport)  # which asyncio's own is not by its class

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._closed.done():
            self._closed.set_result(None)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        if self._aside is not None and data.startswith(self._aside.prefix):
            said = self._aside.respond(data, addr[0], addr[1])
        else:
            said = self._respond(data, True)
        if said is not None and self._transport is not None:
            self._transport.sendto(said, addr)
