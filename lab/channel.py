"""Typed messages over a socket, one JSON document each behind its length.

Owns: the framing, for the client's blocking side and for the lab process's event loop.
Must not: know what a message means.
"""

import asyncio
import socket
import struct
from types import TracebackType
from typing import Any, Final, Self

from lab.codec import dumps, loads
from lab.garbage import uncollected
from lab.timing import Deadline

__all__ = ["AsyncChannel", "Channel", "ChannelClosedError"]

_LENGTH: Final = struct.Struct("!I")
_LIMIT: Final = 1 << 30


class ChannelClosedError(ConnectionError):
    """The other side has gone, or is not speaking this protocol."""


def _frame(message: object, hint: Any) -> bytes:
    with uncollected():
        body = dumps(message, hint)
    return _LENGTH.pack(len(body)) + body


def _length(head: bytes) -> int:
    (length,) = _LENGTH.unpack(head)
    if length > _LIMIT:
        raise ChannelClosedError(f"a message of {length} bytes was announced; the limit is {_LIMIT}")
    return int(length)


class Channel:
    """The blocking side. ``send`` and ``receive`` are typed by the unions they are given."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the socket; the other side reads end-of-file."""
        self._socket.close()

    def send(self, message: object, hint: Any, deadline: Deadline) -> None:
        """Send one message.

        Raises:
            TimeoutError: the other side did not take all of it by the deadline; nothing sensible can follow.
            ChannelClosedError: nobody is there to read it.
        """
        self._socket.settimeout(max(deadline.remaining, 0.001))  # 0 would mean: do not block
        try:
            self._socket.sendall(_frame(message, hint))
        except TimeoutError:
            raise
        except OSError as error:
            raise ChannelClosedError(str(error)) from error

    def receive(self, hint: Any, deadline: Deadline) -> Any:
        """The next message. Raises ``TimeoutError`` at the deadline, ``ChannelClosedError`` at end-of-file."""
        return loads(self._exactly(_length(self._exactly(_LENGTH.size, deadline)), deadline), hint)

    def _exactly(self, size: int, deadline: Deadline) -> bytes:
        data = bytearray()
        while len(data) < size:
            if deadline.passed:
                raise TimeoutError
            self._socket.settimeout(deadline.remaining)
            try:
                part = self._socket.recv(min(size - len(data), 1 << 20))
            except TimeoutError:
                raise
            except OSError as error:
                raise ChannelClosedError(str(error)) from error
            if not part:
                raise ChannelClosedError("the other side closed the connection")
            data += part
        return bytes(data)


class AsyncChannel:
    """The event loop's side."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def over(cls, connection: socket.socket) -> Self:
        """Take over a connected socket."""
        return cls(*await asyncio.open_connection(sock=connection))

    async def send(self, message: object, hint: Any) -> None:
        """Send one message."""
        self._writer.write(_frame(message, hint))
        await self._writer.drain()

    async def receive(self, hint: Any) -> Any:
        """The next message. Raises ``ChannelClosedError`` at end-of-file."""
        try:
            head = await self._reader.readexactly(_LENGTH.size)
            return loads(await self._reader.readexactly(_length(head)), hint)
        except (asyncio.IncompleteReadError, OSError) as error:
            raise ChannelClosedError("the other side closed the connection") from error
