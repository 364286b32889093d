"""SPDY of a kubelet: its client's frames become events however they are cut, and bad ones end the connection."""

import itertools
import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxylab.control.kubernetes.spdy import (
    DICTIONARY,
    Opened,
    Received,
    SpdyConnection,
    SpdyError,
    SpdyEvent,
    WasReset,
)

ADLER: int = 0xE3C6A7C2
"""The checksum of the dictionary, which a compressed block names (RFC 1950, section 2.2)."""


class Client:
    """The other side, as Go's spdystream writes its frames."""

    def __init__(self) -> None:
        self._compress = zlib.compressobj(zdict=DICTIONARY)

    def control(self, kind: int, content: bytes, flags: int = 0, version: int = 3) -> bytes:
        return struct.pack("!HHI", 0x8000 | version, kind, flags << 24 | len(content)) + content

    def opens(self, stream: int, flags: int = 0, **headers: str) -> bytes:
        block = struct.pack("!I", len(headers))
        for text in (each for pair in headers.items() for each in pair):
            block += struct.pack("!I", len(text.encode())) + text.encode()
        packed = self._compress.compress(block) + self._compress.flush(zlib.Z_SYNC_FLUSH)
        return self.control(1, struct.pack("!IIBB", stream, 0, 0, 0) + packed, flags)


def data(stream: int, content: bytes, flags: int = 0) -> bytes:
    return struct.pack("!II", stream, flags << 24 | len(content)) + content


def events(connection: SpdyConnection, pieces: list[bytes]) -> list[SpdyEvent]:
    return [event for piece in pieces for event in connection.receive(piece)]


@given(st.lists(st.integers(0, 400), max_size=8), st.binary(max_size=200), st.text(max_size=20))
def test_frames_are_read_however_they_are_cut(cuts: list[int], content: bytes, text: str) -> None:
    client = Client()
    sent = client.opens(1, Streamtype="error") + client.opens(3, flags=1, port=text)
    sent += data(1, content) + data(1, b"", flags=1) + client.control(3, struct.pack("!II", 3, 5))
    edges = [0, *sorted(min(each, len(sent)) for each in cuts), len(sent)]
    pieces = [sent[first:last] for first, last in itertools.pairwise(edges)]
    assert events(SpdyConnection(), pieces) == [
        Opened(1, {"streamtype": "error"}, ended=False),
        Opened(3, {"port": text}, ended=True),
        Received(1, content, ended=False),
        Received(1, b"", ended=True),
        WasReset(3),
    ]


def test_pings_are_answered_and_streams_accepted_or_refused() -> None:
    connection, client = SpdyConnection(), Client()
    ping = client.control(6, struct.pack("!I", 7))
    assert events(connection, [ping, client.control(4, bytes(4)), client.control(9, bytes(8))]) == []
    assert bytes(connection.outgoing) == ping
    connection.outgoing.clear()
    connection.accept(5)
    _, kind, length = struct.unpack_from("!HHI", connection.outgoing)
    assert (kind, length) == (2, len(connection.outgoing) - 8)
    assert struct.unpack_from("!I", connection.outgoing, 8)[0] == 5
    unpack = zlib.decompressobj(zdict=DICTIONARY)
    assert unpack.decompress(bytes(connection.outgoing[12:])) == bytes(4)
    connection.outgoing.clear()
    connection.refuse(9)
    assert bytes(connection.outgoing) == client.control(3, struct.pack("!II", 9, 3))


def test_long_data_go_in_pieces_and_the_end_is_a_frame() -> None:
    connection = SpdyConnection()
    connection.send(1, b"x" * 100_000, end=True)
    found = events(SpdyConnection(), [bytes(connection.outgoing)])
    assert b"".join(each.data for each in found if isinstance(each, Received)) == b"x" * 100_000
    assert found[-1] == Received(1, b"", ended=True)
    assert len(found) == 5


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(struct.pack("!HHI", 0x8002, 1, 10) + bytes(10), id="another-version"),
        pytest.param(struct.pack("!HHI", 0, 1, 0xFFFFFF), id="a-frame-too-long"),
        pytest.param(Client().control(1, bytes(3)), id="a-stream-cut-short"),
        pytest.param(Client().control(1, bytes(10) + b"no zlib"), id="headers-that-are-none"),
        pytest.param(Client().opens(1, long="x" * 100_000), id="headers-too-long"),
    ],
)
def test_broken_frames_are_refused(sent: bytes) -> None:
    with pytest.raises(SpdyError):
        events(SpdyConnection(), [sent])


def test_the_dictionary_is_the_one_of_the_protocol() -> None:
    assert zlib.adler32(DICTIONARY) == ADLER
