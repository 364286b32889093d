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
from collections.abc import Callable, Mapping
from contextlib import suppress
from enum import IntEnum
from itertools import count
from typing import Final

from proxylab.guest.ends import PIECE, DescriptorEnd, SocketEnd, StreamEnd, brings_terminal, substitutes
from proxylab.timing import Deadline

CLIENT: Final = 1
"""The number of the first client's stream."""

_HEAD: Final = struct.Struct("!BII")
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
    BRING = 6
    """The next data of this stream bring another one, of this number, and with this window size of a terminal."""
    DATA = 7
    TAKEN = 8
    END = 9
    RESIZE = 10
    """The terminal of this stream has this window size from now on."""


class _LineStream:
    """One end of a stream: what waits to be written to it, and how much may be sent for it."""

    def __init__(self, end: StreamEnd) -> None:
        self.end = end
        self.waiting = bytearray()
        self.brought: list[int] = []
        """Descriptors that go with the next byte that is written."""
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
        self._streams: dict[int, _LineStream] = {}
        self._sources: dict[int, Callable[[], None]] = {}
        self._resting: dict[int, Deadline] = {}
        self._frames: list[tuple[FrameKind, bytes]] = []
        self._numbers = count(CLIENT + 1)

    def watch(self, source: socket.socket | int, readable: Callable[[], None]) -> None:
        """Call ``readable`` whenever ``source`` can be read."""
        self._sources[source if isinstance(source, int) else source.fileno()] = readable

    def rest(self, source: socket.socket, until: Deadline) -> None:
        """Do not look at this watched source until then."""
        self._resting[source.fileno()] = until

    def add(self, number: int, connection: socket.socket) -> None:
        """Carry what comes from ``connection`` as stream ``number``, and give it what the other relay sends for it."""
        self._streams[number] = _LineStream(SocketEnd(connection))

    def open(self, connection: socket.socket) -> None:
        """Outside, ``add`` under a new number, and let the relay inside connect its end."""
        number = next(self._numbers)
        self.add(number, connection)
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
        self._resting = {source: until for source, until in self._resting.items() if not until.passed}
        for source in self._sources.keys() - self._resting.keys():
            poll.register(source, select.POLLIN)
        ends: dict[int, int] = {}
        for number, stream in self._streams.items():
            # A stream without room is not read: its process waits, as it would for a full socket.
            readable = stream.end.reads and stream.room > 0 and len(self._sending) < _WINDOW
            poll.register(stream.end, (select.POLLIN if readable else 0) | (select.POLLOUT if stream.waiting else 0))
            ends[stream.end.fileno()] = number
        used: dict[int, int] = {}
        until = [*self._resting.values(), *([] if deadline is None else [deadline])]
        for descriptor, event in poll.poll(min((each.remaining * 1000 for each in until), default=None)):
            if descriptor == self._line:
                self._use_line(event)
            elif descriptor in self._sources:
                self._sources[descriptor]()
            elif descriptor in ends:
                used[ends[descriptor]] = event
        self._use_all(used)

    def _use_all(self, events: Mapping[int, int]) -> None:
        """Use the streams that are ready. A message waits for the output before it: it may say that a command ended."""
        streams = {number: self._streams[number] for number in events if number in self._streams}
        output = any(not stream.end.carries_messages for stream in streams.values())
        for number, stream in streams.items():
            if not (output and stream.end.carries_messages and not events[number] & select.POLLOUT):
                self._use(number, stream, events[number])

    def _use_line(self, event: int) -> None:
        if event & select.POLLOUT:
            self._write()
        if event & ~select.POLLOUT:
            self._read()

    @property
    def _allowed(self) -> int:
        """How many bytes may be written to the line now."""
        return PIECE if self._is_inside else _TERMINAL - self._unread

    def _write(self) -> None:
        with suppress(BlockingIOError):
            written = os.write(self._line, self._sending[: self._allowed])
            del self._sending[:written]
            self._unread += written

    def _read(self) -> None:
        try:
            piece = os.read(self._line, PIECE)
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
        if stream is not None:
            self._take_for(number, stream, kind, content)
        elif kind is FrameKind.BRING:  # the stream ended here while this frame was under way
            self.say(FrameKind.END, _COUNT.unpack_from(content)[0])

    def _take_for(self, number: int, stream: _LineStream, kind: FrameKind, content: bytes) -> None:
        match kind:
            case FrameKind.BRING:
                brought = _COUNT.unpack_from(content)[0]
                near, far = substitutes(content[_COUNT.size :])
                self._streams[brought] = _LineStream(near)
                stream.brought += far
            case FrameKind.DATA:
                stream.waiting += content  # it is written when it can be: a write to a user's descriptor may block
            case FrameKind.RESIZE:
                stream.end.resize(content)
            case FrameKind.TAKEN:
                stream.room += _COUNT.unpack(content)[0]
            case FrameKind.END:
                stream.ended = True
                if not stream.waiting:
                    self._end(number)

    def _use(self, number: int, stream: _LineStream, event: int) -> None:
        if event & select.POLLOUT:
            self._give(number, stream)
            return
        try:
            piece, descriptors = stream.end.read(min(PIECE, max(stream.room, 1))) if stream.end.reads else (b"", [])
        except BlockingIOError:
            return
        except OSError:
            piece, descriptors = b"", []
        if descriptors:
            self._bring(number, piece, descriptors)
        if stream.end.carries_messages:  # a client sends one when the size of its terminal has changed
            for each, other in self._streams.items():
                if window_size := other.end.new_size():
                    self.say(FrameKind.RESIZE, each, window_size)
        if piece:
            stream.room -= len(piece)
            self.say(FrameKind.DATA, number, piece)
        else:
            self._end(number)

    def _bring(self, number: int, message: bytes, descriptors: list[int]) -> None:
        """Let the relay inside substitute the descriptors of a message: one terminal, or each by itself."""
        window_size = brings_terminal(message, descriptors)
        for position, descriptor in enumerate(descriptors):
            if window_size and position:
                os.close(descriptor)
                continue
            brought = next(self._numbers)
            end = DescriptorEnd(descriptor, reads=position == 0, window_size=window_size)
            self._streams[brought] = _LineStream(end)
            self.say(FrameKind.BRING, number, _COUNT.pack(brought) + window_size)

    def _give(self, number: int, stream: _LineStream) -> None:
        """Write what waits for the stream's process, and acknowledge it."""
        try:
            taken = stream.end.write(bytes(stream.waiting[:PIECE]), stream.brought) if stream.waiting else 0
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
        stream.end.close()
        for descriptor in stream.brought:
            os.close(descriptor)
        if not stream.ended:
            self.say(FrameKind.END, number)
