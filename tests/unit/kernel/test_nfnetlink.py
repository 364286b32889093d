"""Netlink to netfilter: a dump is complete, or it is an error; padding, truncated messages, impossible lengths."""

import errno
import socket
import struct
from collections.abc import Iterator

import pytest

from proxylab.kernel.netfilter.nfnetlink import NetfilterSocket, attributes, messages, nested

OBJECT, ERROR, DONE = 16, 2, 3
REQUEST, INTERRUPTED = 0x1, 0x10


@pytest.fixture
def ends() -> Iterator[tuple[NetfilterSocket, socket.socket]]:
    """A dump, and the kernel's end of its socket."""
    ours, kernel = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.settimeout(1)
    with ours, kernel:
        yield NetfilterSocket(ours), kernel


def message(kind: int, body: bytes, flags: int = 0) -> bytes:
    return struct.pack("=IHHII", 16 + len(body), kind, flags, 1, 0) + body


def end(code: int = 0, kind: int = DONE) -> bytes:
    return message(kind, struct.pack("=i", -code))


def test_a_dump_returns_the_objects_of_all_its_messages(ends: tuple[NetfilterSocket, socket.socket]) -> None:
    dump, kernel = ends
    kernel.send(message(OBJECT, b"one.") + message(OBJECT, b"two."))
    kernel.send(message(OBJECT, b"last") + end())
    assert dump.all(1, b"") == [b"one.", b"two.", b"last"]


def test_an_interrupted_dump_is_requested_again(ends: tuple[NetfilterSocket, socket.socket]) -> None:
    dump, kernel = ends
    kernel.send(message(OBJECT, b"half", INTERRUPTED) + end())
    kernel.send(message(OBJECT, b"all.") + end())
    assert dump.all(1, b"") == [b"all."]


def test_a_dump_interrupted_in_every_round_is_an_error(ends: tuple[NetfilterSocket, socket.socket]) -> None:
    dump, kernel = ends
    for _ in range(20):
        kernel.send(message(OBJECT, b"half", INTERRUPTED) + end())
    with pytest.raises(OSError, match="changed during every round") as caught:
        dump.all(1, b"")
    assert caught.value.errno == errno.EINTR


@pytest.mark.parametrize("kind", [DONE, ERROR])
def test_a_dump_that_fails_midway_is_an_error(ends: tuple[NetfilterSocket, socket.socket], kind: int) -> None:
    dump, kernel = ends
    kernel.send(message(OBJECT, b"half"))
    kernel.send(end(errno.ENOMEM, kind))
    with pytest.raises(OSError, match="memory") as caught:
        dump.all(1, b"")
    assert caught.value.errno == errno.ENOMEM


def test_one_object_needs_no_dump(ends: tuple[NetfilterSocket, socket.socket]) -> None:
    dump, kernel = ends
    kernel.send(message(OBJECT, b"that"))
    assert dump.one(1, b"what") == b"that"
    assert kernel.recv(99) == message(1, b"what", REQUEST)


def test_a_refused_request_raises_its_errno(ends: tuple[NetfilterSocket, socket.socket]) -> None:
    dump, kernel = ends
    kernel.send(end(errno.EPERM, ERROR))
    with pytest.raises(PermissionError):
        dump.one(1, b"")


def test_padding_separates_messages() -> None:
    first = struct.pack("=IHHII", 19, 2, 0x100, 7, 0) + b"abc" + b"\0"
    second = struct.pack("=IHHII", 16, 3, 0, 8, 0)
    assert list(messages(first + second)) == [(2, 0x100, b"abc"), (3, 0, b"")]


def test_a_length_below_the_header_is_an_error_and_no_endless_loop() -> None:
    with pytest.raises(OSError, match="shorter than its header"):
        list(messages(struct.pack("=IHHII", 0, 2, 0, 1, 0)))


def test_attributes_lose_their_flags_and_their_padding() -> None:
    data = b"skip" + struct.pack("=HH", 5, 0x8001) + b"x\0\0\0" + struct.pack("=HH", 8, 0x4002) + b"wxyz"
    assert list(attributes(data, 4)) == [(1, b"x"), (2, b"wxyz")]
    assert nested(data, 4) == {1: b"x", 2: b"wxyz"}


def test_parsing_stops_at_an_impossible_attribute() -> None:
    assert list(attributes(struct.pack("=HH", 4, 9) + struct.pack("=HH", 0, 1) + b"\xff" * 8)) == [(9, b"")]
