"""Typed messages over a Unix socket: a JSON document each, preceded by its length.

A message may bring descriptors along (SCM_RIGHTS, unix(7)), such as the standard streams of a command. The kernel
returns them with the first byte that they were sent with, and no read goes beyond one message: so they belong to that
message.
"""

import asyncio
import os
import socket
import struct
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Final, Self

from proxylab.encoding import MisfitError, decode, encode
from proxylab.timing import Deadline

_LENGTH: Final = struct.Struct("!I")
_CREDENTIALS: Final = struct.Struct("=iII")  # struct ucred: pid, uid, gid (unix(7))
_LIMIT: Final = 1 << 30
_PART: Final = 1 << 20
_MOST_DESCRIPTORS: Final = 8


class ChannelClosedError(ConnectionError):
    """The other side has gone, or does not speak this protocol."""


def _frame(message: object) -> bytes:
    body = encode(message)
    return _LENGTH.pack(len(body)) + body


def _length(head: bytes) -> int:
    (length,) = _LENGTH.unpack(head)
    if length > _LIMIT:
        raise ChannelClosedError(f"a message of {length} bytes was announced; the limit is {_LIMIT}")
    return int(length)


class Channel:
    """The blocking side. ``receive`` is typed by the union that it is given."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def fileno(self) -> int:
        """The descriptor that is readable when an answer, or its beginning, has come."""
        return self._socket.fileno()

    def has_ended(self) -> bool:
        """Whether the other side has hung up, and nothing of it is left to be read."""
        self._socket.settimeout(0.0)
        try:
            return not self._socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        except OSError:
            return True

    def close(self) -> None:
        """Close the socket; the other side reads end-of-file."""
        self._socket.close()

    def send(self, message: object, deadline: Deadline, descriptors: Sequence[int] = ()) -> None:
        """Send one message, and descriptors that the other side gets copies of.

        Raises:
            TimeoutError: the other side did not take all of it by the deadline; the channel is unusable then.
            ChannelClosedError: the other side has gone.
        """
        self._socket.settimeout(max(deadline.remaining, 0.001))  # 0 would mean: do not block
        frame = memoryview(_frame(message))
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
        return decode(self._exactly(_length(self._exactly(_LENGTH.size, deadline)), deadline), hint)

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
        self._received: list[int] = []

    def fileno(self) -> int:
        """The socket's descriptor."""
        return self._socket.fileno()

    def close(self) -> None:
        """Close the socket, and the descriptors that ``descriptors`` has not returned."""
        self._socket.close()
        for number in self.descriptors():
            os.close(number)

    def descriptors(self) -> list[int]:
        """The descriptors that came since the last call; the caller owns them from now on."""
        received, self._received = self._received, []
        return received

    async def send(self, message: object) -> None:
        """Send one message. Raises ``ChannelClosedError`` when the other side has gone."""
        try:
            await asyncio.get_running_loop().sock_sendall(self._socket, _frame(message))
        except OSError as error:
            raise ChannelClosedError(str(error)) from error

    async def receive(self, hint: Any) -> Any:
        """The next message. Raises ``ChannelClosedError`` at end-of-file, and for bytes that are no message."""
        body = await self._exactly(_length(await self._exactly(_LENGTH.size)))
        try:
            return decode(body, hint)
        except MisfitError as error:
            raise ChannelClosedError(str(error)) from error

    async def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            try:
                part, received, _, _ = socket.recv_fds(self._socket, min(size - len(data), _PART), _MOST_DESCRIPTORS)
            except BlockingIOError:
                await self._readable()
                continue
            except OSError as error:
                raise ChannelClosedError(str(error)) from error
            for number in received:
                os.set_inheritable(number, False)  # recv_fds drops its flags argument, MSG_CMSG_CLOEXEC too
            self._received += received
            if not part:
                raise ChannelClosedError("the other side closed the connection")
            data += part
        return bytes(data)

    async def _readable(self) -> None:
        loop = asyncio.get_running_loop()
        readable: asyncio.Future[None] = loop.create_future()
        loop.add_reader(self._socket, _resolve, readable)
        try:
            await readable
        finally:
            loop.remove_reader(self._socket)


def user_of(connection: socket.socket) -> int:
    """The user id of the process at the other end of a Unix socket, as this user namespace knows it."""
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(raw)[1])


def _resolve(readable: "asyncio.Future[None]") -> None:
    if not readable.done():
        readable.set_result(None)
