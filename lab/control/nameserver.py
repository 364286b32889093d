"""The cluster's DNS server, on sockets that are handed in.

Owns: ``Nameserver``: datagrams and streams, each bounded, so that no client keeps another from its answer.
Must not: know DNS (``control.dns`` does), or open sockets (``control.listen`` does).
"""

import asyncio
import socket
import struct
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final, cast

__all__ = ["Nameserver"]

Respond = Callable[[bytes, bool], bytes | None]
"""From a message, and whether it came by UDP, to what is said; ``None`` for silence."""

_PATIENCE: Final = 10.0
"""Seconds within which a client must have sent its next question by TCP (RFC 7766, section 6.2.3)."""
_MOST_STREAMS: Final = 256
_LENGTH: Final = struct.Struct("!H")


class Nameserver:
    """Serves its sockets until it is closed."""

    def __init__(self, respond: Respond) -> None:
        self._respond = respond
        self._datagrams: list[_Datagrams] = []
        self._servers: list[asyncio.Server] = []
        self._conversations: set[asyncio.Task[None]] = set()

    @classmethod
    async def on(
        cls, datagrams: Sequence[socket.socket], streams: Sequence[socket.socket], respond: Respond
    ) -> "Nameserver":
        """Begin to serve the sockets, bound and listening, all of which the server closes in the end."""
        server = cls(respond)
        loop = asyncio.get_running_loop()
        for each in datagrams:
            _, protocol = await loop.create_datagram_endpoint(partial(_Datagrams, respond), sock=each)
            server._datagrams.append(protocol)
        for each in streams:
            server._servers.append(await asyncio.start_server(server._begin, sock=each))
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
        with suppress(ConnectionError, TimeoutError, asyncio.IncompleteReadError):
            try:
                await self._converse(reader, writer)
            finally:
                writer.close()
                await writer.wait_closed()

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            async with asyncio.timeout(_PATIENCE):
                (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
                said = self._respond(await reader.readexactly(length), False)
                if said is None:
                    return
                writer.write(_LENGTH.pack(len(said)) + said)
                await writer.drain()


class _Datagrams(asyncio.DatagramProtocol):
    """One question, one answer."""

    def __init__(self, respond: Respond) -> None:
        self._respond = respond
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
        said = self._respond(data, True)
        if said is not None and self._transport is not None:
            self._transport.sendto(said, addr)
