"""Typed messages over a Unix socket, one JSON document each behind its length.

Owns: the framing, for the client's blocking side and for the lab process's event loop.
Must not: know what a message means.

A message may bring descriptors along (SCM_RIGHTS, unix(7)), such as the standard streams of a command. The kernel hands
them out with the first byte that they were sent with, and no read goes beyond one message: so they are that message's.
"""

import asyncio
import os
import socket
import struct
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Final, Self

from proxylab.codec import CodecError, dumps, loads
from proxylab.timing import Deadline

__all__ = ["AsyncChannel", "Channel", "ChannelClosedError"]

_LENGTH: Final = struct.Struct("!I")
_LIMIT: Final = 1 << 30
_PART: Final = 1 << 20
_MOST_DESCRIPTORS: Final = 8


class ChannelClosedError(ConnectionError):
    """The other side has gone, or is not speaking this protocol."""


def _frame(message: object, hint: Any) -> bytes:
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

    def fileno(self) -> int:
        """The descriptor that is readable when an answer, or the beginning of one, is there."""
        return self._socket.fileno()

    def close(self) -> None:
        """Close the socket; the other side reads end-of-file."""
        self._socket.close()

    def send(self, message: object, hint: Any, deadline: Deadline, descriptors: Sequence[int] = ()) -> None:
        """Send one message, with descriptors that the other side shall have too.

        Raises:
            TimeoutError: the other side did not take all of it by the deadline; nothing sensible can follow.
            ChannelClosedError: nobody is there to read it.
        """
        self._socket.settimeout(max(deadline.remaining, 0.001))  # 0 would mean: do not block
        frame = memoryview(_frame(message, hint))
        try:
            if descriptors:
                frame = frame[socket.send_fds(self._socket, [frame], list(descriptors)) :]
            self._socket.sendall(frame)
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
                part = self._socket.recv(min(size - len(data), _PART))
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

    def __init__(self, connection: socket.socket) -> None:
        """Take over a connected socket."""
        connection.setblocking(False)
        self._socket = connection
        self._brought: list[int] = []

    def fileno(self) -> int:
        """The socket's descriptor."""
        return self._socket.fileno()

    def close(self) -> None:
        """Close the socket, and the descriptors that nobody has taken."""
        self._socket.close()
        for number in self.descriptors():
            os.close(number)

    def descriptors(self) -> list[int]:
        """Those that came with the messages received since this was last asked; the caller's from now on."""
        brought, self._brought = self._brought, []
        return brought

    async def send(self, message: object, hint: Any) -> None:
        """Send one message. Raises ``ChannelClosedError`` when nobody is there to read it."""
        try:
            await asyncio.get_running_loop().sock_sendall(self._socket, _frame(message, hint))
        except OSError as error:
            raise ChannelClosedError(str(error)) from error

    async def receive(self, hint: Any) -> Any:
        """The next message. Raises ``ChannelClosedError`` at end-of-file, and for what is no message."""
        body = await self._exactly(_length(await self._exactly(_LENGTH.size)))
        try:
            return loads(body, hint)
        except CodecError as error:
            raise ChannelClosedError(str(error)) from error

    async def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            try:
                part, brought, _, _ = socket.recv_fds(self._socket, min(size - len(data), _PART), _MOST_DESCRIPTORS)
            except BlockingIOError:
                await self._readable()
                continue
            except OSError as error:
                raise ChannelClosedError(str(error)) from error
            for number in brought:
                os.set_inheritable(number, False)  # recv_fds drops its flags argument, MSG_CMSG_CLOEXEC too
            self._brought += brought
            if not part:
                raise ChannelClosedError("the other side closed the connection")
            data += part
        return bytes(data)

    async def _readable(self) -> None:
        loop = asyncio.get_running_loop()
        there: asyncio.Future[None] = loop.create_future()
        loop.add_reader(self._socket, _resolve, there)
        try:
            await there
        finally:
            loop.remove_reader(self._socket)


def _resolve(there: "asyncio.Future[None]") -> None:
    if not there.done():
        there.set_result(None)
