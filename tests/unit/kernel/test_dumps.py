"""A dump is complete, or it is an error."""

import errno
import socket
import struct
from collections.abc import Iterator

import pytest

from proxylab.kernel.netlink.dumps import Dump

OBJECT, ERROR, DONE = 16, 2, 3
REQUEST, INTERRUPTED = 0x1, 0x10


@pytest.fixture
def ends() -> Iterator[tuple[Dump, socket.socket]]:
    """A dump, and the kernel's end of its socket."""
    ours, kernel = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.settimeout(1)
    with ours, kernel:
        yield Dump(ours), kernel


def message(kind: int, body: bytes, flags: int = 0) -> bytes:
    return struct.pack("=IHHII", 16 + len(body), kind, flags, 1, 0) + body


def end(code: int = 0, kind: int = DONE) -> bytes:
    return message(kind, struct.pack("=i", -code))


def test_every_part_counts(ends: tuple[Dump, socket.socket]) -> None:
    dump, kernel = ends
    kernel.send(message(OBJECT, b"one.") + message(OBJECT, b"two."))
    kernel.send(message(OBJECT, b"last") + end())
    assert dump.all(1, b"") == [b"one.", b"two.", b"last"]


def test_what_changed_meanwhile_is_asked_for_again(ends: tuple[Dump, socket.socket]) -> None:
    dump, kernel = ends
    kernel.send(message(OBJECT, b"half", INTERRUPTED) + end())
    kernel.send(message(OBJECT, b"all.") + end())
    assert dump.all(1, b"") == [b"all."]


def test_what_changes_all_the_time_is_not_taken_for_whole(ends: tuple[Dump, socket.socket]) -> None:
    dump, kernel = ends
    for _ in range(20):
        kernel.send(message(OBJECT, b"half", INTERRUPTED) + end())
    with pytest.raises(OSError, match="changed during every round") as caught:
        dump.all(1, b"")
    assert caught.value.errno == errno.EINTR


@pytest.mark.parametrize("kind", [DONE, ERROR])
def test_a_dump_that_fails_on_the_way_is_an_error(ends: tuple[Dump, socket.socket], kind: int) -> None:
    dump, kernel = ends
    kernel.send(message(OBJECT, b"half"))
    kernel.send(end(errno.ENOMEM, kind))
    with pytest.raises(OSError, match="memory") as caught:
        dump.all(1, b"")
    assert caught.value.errno == errno.ENOMEM


def test_one_object_is_asked_for_without_a_dump(ends: tuple[Dump, socket.socket]) -> None:
    dump, kernel = ends
    kernel.send(message(OBJECT, b"that"))
    assert dump.one(1, b"what") == b"that"
    assert kernel.recv(99) == message(1, b"what", REQUEST)


def test_what_is_refused_is_an_error(ends: tuple[Dump, socket.socket]) -> None:
    dump, kernel = ends
    kernel.send(end(errno.EPERM, ERROR))
    with pytest.raises(PermissionError):
        dump.one(1, b"")
