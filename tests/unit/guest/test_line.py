"""Streams over one line arrive whole, in order, and do not delay each other."""

import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxylab.guest.line import FrameKind, Line
from proxylab.timing import Deadline

PATIENCE = 20.0
MEBIBYTE = 1 << 20


class Relays:
    """The relays at both ends of a line, and the sockets of those who speak over it."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self.servers: list[socket.socket] = []
        self.ends = self._pair()
        self.outside = Line(self.ends[0].fileno())
        self.inside = Line(self.ends[1].fileno(), self._connect)

    def _pair(self) -> tuple[socket.socket, socket.socket]:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        for each in (ours, theirs):
            self._stack.callback(each.close)
        return ours, theirs

    def _connect(self) -> socket.socket:
        ours, theirs = self._pair()
        self.servers.append(ours)
        return theirs

    def open(self, count: int) -> tuple[list[socket.socket], list[socket.socket]]:
        """So many streams: their ends outside and inside."""
        clients = []
        for _ in range(count):
            ours, theirs = self._pair()
            self.outside.open(theirs)
            clients.append(ours)
        self.turn(lambda: len(self.servers) == count)
        return clients, self.servers

    def turn(self, until: Callable[[], bool]) -> None:
        deadline = Deadline.after(PATIENCE)
        while not until():
            assert not deadline.passed
            for line in (self.outside, self.inside):
                with suppress(TimeoutError):
                    line.hear(Deadline.after(0.0005))


@contextmanager
def relays() -> Iterator[Relays]:
    with ExitStack() as stack:
        yield Relays(stack)


def fill(end: socket.socket, data: bytearray) -> None:
    with suppress(BlockingIOError):
        del data[: end.send(data)]


def drain(end: socket.socket, data: bytearray) -> bool:
    """Read what there is; returns whether the stream has ended."""
    try:
        piece = end.recv(MEBIBYTE)
    except BlockingIOError:
        return False
    data += piece
    return not piece


def exchange(running: Relays, ends: tuple[socket.socket, socket.socket], sent: tuple[bytes, bytes]) -> None:
    """Send both ways at once, and see both arrive."""
    waiting = [bytearray(data) for data in sent]
    seen = [bytearray(), bytearray()]

    def passed() -> bool:
        for number in (0, 1):
            fill(ends[number], waiting[number])
            drain(ends[1 - number], seen[number])
        return all(got == data for got, data in zip(seen, sent, strict=True))

    running.turn(passed)


@settings(max_examples=20, deadline=None)
@given(st.lists(st.tuples(st.binary(max_size=20_000), st.binary(max_size=20_000)), min_size=1, max_size=4))
def test_what_goes_in_comes_out_on_the_same_stream(exchanges: list[tuple[bytes, bytes]]) -> None:
    with relays() as running:
        clients, servers = running.open(len(exchanges))
        for client, server, sent in zip(clients, servers, exchanges, strict=True):
            exchange(running, (client, server), sent)


@pytest.mark.parametrize("closing", [0, 1], ids=["outside", "inside"])
def test_an_end_that_closes_closes_the_other_after_all_that_was_sent(closing: int) -> None:
    with relays() as running:
        ends = [each[0] for each in running.open(1)]
        ends[closing].send(b"x" * 50_000)
        ends[closing].close()
        seen = bytearray()
        running.turn(lambda: drain(ends[1 - closing], seen))
        assert len(seen) == 50_000


def test_a_reader_that_rests_stops_its_sender_and_nothing_else() -> None:
    with relays() as running:
        (resting, busy), (unread, read) = running.open(2)
        sent, seen, wanted = bytearray(), bytearray(), bytearray(b"y" * MEBIBYTE)

        def passed() -> bool:
            with suppress(BlockingIOError):
                sent.extend(b"x" * resting.send(b"x" * 65536))
            fill(busy, wanted)
            drain(read, seen)
            return len(seen) == MEBIBYTE

        running.turn(passed)
        assert len(sent) < 2 * MEBIBYTE, "a window, and what two sockets take"
        late = bytearray()
        running.turn(lambda: drain(unread, late) or late == sent)


def test_a_guest_that_does_not_read_gets_less_than_its_terminal_holds() -> None:
    with relays() as running:
        running.outside.say(FrameKind.START, content=b"x" * 100_000)
        with suppress(TimeoutError):
            running.outside.hear(Deadline.after(0.05))
        assert len(running.ends[1].recv(MEBIBYTE)) == 3072
