"""The local ends of streams: sockets of messages, which may bring descriptors, and the descriptors that were brought.

A message to a lab process may bring the standard streams of a command. Descriptors cannot cross to another kernel. So
the relay outside keeps them and carries their bytes, and the relay inside gives the lab process substitutes: a socket
for each, or a pseudo-terminal for all of them.
"""

import fcntl
import os
import pty
import select
import socket
import struct
import termios
import tty
from contextlib import suppress
from typing import Final, Protocol

from proxylab.encoding import MisfitError, decode

PIECE: Final = 32 * 1024
_MOST_DESCRIPTORS: Final = 8
_LENGTH: Final = 4
"""The bytes before a message that say how long it is (``protocol.channel``)."""
_WINDOW_SIZE: Final = "HHHH"

Brought = tuple[int, bytes]
"""A stream that a message brings: its number, and the window size of a terminal, or nothing."""


class StreamEnd(Protocol):
    """The local end of a stream. ``read`` and ``write`` raise ``BlockingIOError``, or ``OSError`` when it is over."""

    reads: bool
    carries_messages: bool

    def fileno(self) -> int:
        """The descriptor to poll."""

    def read(self, size: int) -> tuple[bytes, list[int]]:
        """What can be read, and the descriptors that came with it."""

    def write(self, data: bytes, descriptors: list[int]) -> int:
        """Write, passing the descriptors on; returns how many bytes were written."""

    def new_size(self) -> bytes:
        """The window size of a brought terminal, if it has changed since the last call; nothing otherwise."""

    def resize(self, window_size: bytes) -> None:
        """Give the terminal that stands for a brought one this size."""

    def close(self) -> None:
        """Close it."""


class SocketEnd:
    """A Unix socket that carries messages."""

    reads: bool = True
    carries_messages: bool = True

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self._socket = connection

    def fileno(self) -> int:
        """See ``StreamEnd``."""
        return self._socket.fileno()

    def read(self, size: int) -> tuple[bytes, list[int]]:
        """See ``StreamEnd``."""
        data, descriptors, _, _ = socket.recv_fds(self._socket, size, _MOST_DESCRIPTORS)
        return data, descriptors

    def write(self, data: bytes, descriptors: list[int]) -> int:
        """See ``StreamEnd``."""
        if not descriptors:
            return self._socket.send(data)
        written = socket.send_fds(self._socket, [data], descriptors)
        while descriptors:
            os.close(descriptors.pop())
        return written

    def new_size(self) -> bytes:
        """See ``StreamEnd``."""
        return b""

    def resize(self, window_size: bytes) -> None:
        """See ``StreamEnd``."""

    def close(self) -> None:
        self._socket.close()


class DescriptorEnd:
    """A brought descriptor, or the near end of its substitute.

    Outside, it shares its flags with the user's own descriptor, so it stays as it is, blocking or not: the relay polls
    first, and writes no more than a pipe takes at once when it is ready (PIPE_BUF, pipe(7)).
    """

    carries_messages: bool = False

    def __init__(self, number: int, *, reads: bool = True, window_size: bytes = b"") -> None:
        self._number = number
        self._window_size = window_size
        self.reads = reads

    def fileno(self) -> int:
        """See ``StreamEnd``."""
        return self._number

    def read(self, size: int) -> tuple[bytes, list[int]]:
        """See ``StreamEnd``."""
        return os.read(self._number, size), []

    def write(self, data: bytes, descriptors: list[int]) -> int:
        """See ``StreamEnd``."""
        return os.write(self._number, data[: select.PIPE_BUF])

    def new_size(self) -> bytes:
        """See ``StreamEnd``."""
        known, self._window_size = self._window_size, self._window_size and _size_of(self._number)
        return self._window_size if self._window_size != known else b""

    def resize(self, window_size: bytes) -> None:
        """See ``StreamEnd``."""
        fcntl.ioctl(self._number, termios.TIOCSWINSZ, window_size)

    def close(self) -> None:
        """See ``StreamEnd``."""
        os.close(self._number)


def brings_terminal(message: bytes, descriptors: list[int]) -> bytes:
    """The window size of the terminal that came with a request for one; nothing otherwise.

    The terminal becomes raw: that in the guest edits lines and echoes.
    """
    if not os.isatty(descriptors[0]):
        return b""
    from proxylab.protocol.standing_labs import AnyRequest, Attach  # noqa: PLC0415 - heavy, and few requests need it

    with suppress(MisfitError):
        request = decode(message[_LENGTH:], AnyRequest)
        if isinstance(request, Attach) and request.terminal:
            tty.setraw(descriptors[0])
            return _size_of(descriptors[0])
    return b""


def _size_of(terminal: int) -> bytes:
    return fcntl.ioctl(terminal, termios.TIOCGWINSZ, bytes(struct.calcsize(_WINDOW_SIZE)))


def substitutes(window_size: bytes) -> tuple[DescriptorEnd, list[int]]:
    """The near end of a new stream in the guest, and the descriptors that stand for what was brought outside."""
    if window_size:
        near, far = pty.openpty()
        fcntl.ioctl(far, termios.TIOCSWINSZ, window_size)
        return DescriptorEnd(near), [far, os.dup(far), os.dup(far)]
    near_socket, far_socket = socket.socketpair()
    return DescriptorEnd(near_socket.detach()), [far_socket.detach()]
