"""Several streams over one serial line: the two relays of a guest, inside and outside of it.

A guest has one line to the machine, and a lab process may have several clients. So a frame carries a piece of one
stream. A stream ends, in both directions, when the process behind either end closes it.

Only so many bytes of a stream are under way: the other relay acknowledges what its process has taken. So one slow
reader delays no other stream, and needs no more room than the window.

Into the guest, less than a terminal's buffer is under way at a time: once the terminal has throttled a line of a
user-mode Linux, the line receives nothing any more (line_throttle() in arch/um/drivers/line.c takes the descriptor from
the kernel's epoll set, and line_unthrottle() does not return it; seen in 6.1).
"""

import os
import select
import socket
import struct
from collections.abc import Callable
from contextlib import suppress
from enum import IntEnum
from typing import Final

from proxylab.timing import Deadline

__all__ = ["FrameKind", "Line", "LineClosedError"]

_HEAD: Final = struct.Struct("!BHI")
_PIECE: Final = 32 * 1024
_WINDOW: Final = 512 * 1024
_TERMINAL: Final = 3072
"""N_TTY_BUF_SIZE is 4096, and the terminal throttles when it has 128 left."""
_COUNT: Final = struct.Struct("!I")


class LineClosedError(ConnectionError):
    """The guest's kernel has ended."""


class FrameKind(IntEnum):
    """What a frame says. All but the first four concern one stream."""

    READY = 1
    """The guest runs, and waits for ``START``."""
    START = 2
    """What to start, as JSON."""
    OVER = 3
    """The lab process has ended, with this status."""
    READ = 4
    """So many bytes have been read from the line."""
    OPEN = 5
    DATA = 6
    TAKEN = 7
    END = 8


class _Stream:
    """One end of a stream: a socket, what waits to be written to it, and how much may be sent for it."""

    def __init__(self, end: socket.socket) -> None:
        end.setblocking(False)
        self.socket = end
        self.waiting = bytearray()
        self.room = _WINDOW
        self.ended = False
        """Whether the other relay sends no more."""


class Line:
    """One end of the line, and of all its streams."""

    def __init__(self, descriptor: int, connect: Callable[[], socket.socket] | None = None) -> None:
        """Take over the descriptor of the line: a socket outside, a terminal in raw mode inside.

        Args:
            descriptor: of the line.
            connect: inside, it makes the local end of a stream that the relay outside opens.
        """
        os.set_blocking(descriptor, False)
        self._is_inside = connect is not None
        self._unread = 0
        self._connect = connect
        self._line = descriptor
        self._received = bytearray()
        self._sending = bytearray()
        self._streams: dict[int, _Stream] = {}
        self._sources: dict[int, Callable[[], None]] = {}
        self._frames: list[tuple[FrameKind, bytes]] = []

    def watch(self, source: socket.socket | int, readable: Callable[[], None]) -> None:
        """Call ``readable`` whenever ``source`` can be read."""
        self._sources[source if isinstance(source, int) else source.fileno()] = readable

    def add(self, number: int, end: socket.socket) -> None:
        """Carry what comes from ``end`` as stream ``number``, and give it what the other relay sends for it."""
        self._streams[number] = _Stream(end)

    def open(self, number: int, end: socket.socket) -> None:
        """``add``, and let the other relay open its end."""
        self.add(number, end)
        self.say(FrameKind.OPEN, number)

    def say(self, kind: FrameKind, number: int = 0, content: bytes = b"") -> None:
        """Send a frame when the line has room."""
        self._sending += _HEAD.pack(kind, number, len(content)) + content

    def hear(self, deadline: Deadline | None = None) -> tuple[FrameKind, bytes]:
        """Relay until a frame comes that is for the caller, and return it: ``READY``, ``START`` or ``OVER``.

        Raises:
            LineClosedError: the other end of the line is gone.
            TimeoutError: the deadline has passed.
        """
        while not self._frames:
            if deadline is not None and deadline.passed:
                raise TimeoutError
            self._turn(deadline)
        return self._frames.pop(0)

    def flush(self) -> None:
        """Wait until the other end has read all that was said."""
        while self._sending:
            select.select([], [self._line], [])
            self._write()

    def _turn(self, deadline: Deadline | None) -> None:
        """Wait until something can be read or written, and do that."""
        poll = select.poll()
        poll.register(self._line, select.POLLIN | (select.POLLOUT if self._sending and self._allowed else 0))
        for source in self._sources:
            poll.register(source, select.POLLIN)
        ends: dict[int, tuple[int, _Stream]] = {}
        for number, stream in self._streams.items():
            # A stream without room is not read: its process waits, as it would for a full socket.
            readable = select.POLLIN if stream.room > 0 and len(self._sending) < _WINDOW else 0
            poll.register(stream.socket, readable | (select.POLLOUT if stream.waiting else 0))
            ends[stream.socket.fileno()] = (number, stream)
        events = poll.poll(None if deadline is None else deadline.remaining * 1000)
        for descriptor, event in events:
            if descriptor == self._line:
                self._use_line(event)
            elif descriptor in self._sources:
                self._sources[descriptor]()
            elif descriptor in ends:
                self._use(*ends[descriptor], event)

    def _use_line(self, event: int) -> None:
        if event & select.POLLOUT:
            self._write()
        if event & ~select.POLLOUT:
            self._read()

    @property
    def _allowed(self) -> int:
        """How many bytes may be written to the line now."""
        return _PIECE if self._is_inside else _TERMINAL - self._unread

    def _write(self) -> None:
        with suppress(BlockingIOError):
            written = os.write(self._line, self._sending[: self._allowed])
            del self._sending[:written]
            self._unread += written

    def _read(self) -> None:
        try:
            piece = os.read(self._line, _PIECE)
        except BlockingIOError:
            return
        except OSError as error:  # EIO: the terminal was hung up
            raise LineClosedError(str(error)) from error
        if not piece:
            raise LineClosedError("end of file")
        if self._is_inside:
            self.say(FrameKind.READ, content=_COUNT.pack(len(piece)))
        self._received += piece
        while len(self._received) >= _HEAD.size:
            kind, number, length = _HEAD.unpack_from(self._received)
            if len(self._received) < _HEAD.size + length:
                return
            content = bytes(self._received[_HEAD.size : _HEAD.size + length])
            del self._received[: _HEAD.size + length]
            self._take(FrameKind(kind), number, content)

    def _take(self, kind: FrameKind, number: int, content: bytes) -> None:
        if kind is FrameKind.READ:
            self._unread -= _COUNT.unpack(content)[0]
            return
        if kind <= FrameKind.OVER:
            self._frames.append((kind, content))
            return
        if kind is FrameKind.OPEN and self._connect is not None:
            self.add(number, self._connect())
            return
        stream = self._streams.get(number)
        if stream is None:
            return  # it ended here while this frame was under way
        match kind:
            case FrameKind.DATA:
                stream.waiting += content
                self._give(number, stream)
            case FrameKind.TAKEN:
                stream.room += _COUNT.unpack(content)[0]
            case FrameKind.END:
                stream.ended = True
                self._give(number, stream)

    def _use(self, number: int, stream: _Stream, event: int) -> None:
        if event & select.POLLOUT:
            self._give(number, stream)
        elif event:
            try:
                piece = stream.socket.recv(min(_PIECE, max(stream.room, 1)))
            except BlockingIOError:
                return
            except OSError:
                piece = b""
            if piece:
                stream.room -= len(piece)
                self.say(FrameKind.DATA, number, piece)
            else:
                self._end(number)

    def _give(self, number: int, stream: _Stream) -> None:
        """Write what waits for the stream's process, and acknowledge it."""
        try:
            taken = stream.socket.send(stream.waiting) if stream.waiting else 0
        except BlockingIOError:
            return
        except OSError:
            self._end(number)
            return
        del stream.waiting[:taken]
        if taken:
            self.say(FrameKind.TAKEN, number, _COUNT.pack(taken))
        if stream.ended and not stream.waiting:
            self._end(number)

    def _end(self, number: int) -> None:
        stream = self._streams.pop(number)
        stream.socket.close()
        if not stream.ended:
            self.say(FrameKind.END, number)
