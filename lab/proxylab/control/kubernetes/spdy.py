"""SPDY/3.1 on the server's side: bytes to events, and answers to bytes.

The API server speaks it to a kubelet once an HTTP request for exec or port-forward has been upgraded. Its streams are
as in HTTP/2, the successor; the frames are those of
https://www.chromium.org/spdy/spdy-protocol/spdy-protocol-draft3-1/. Go's client knows no windows, so neither does this
side. Nothing here touches a socket.
"""

import struct
import zlib
from collections.abc import Iterator, Mapping
from enum import IntEnum
from typing import Final

from msgspec import Struct

UPGRADE: Final = "SPDY/3.1"
"""The word of the ``Upgrade`` header."""

_VERSION: Final = 3
_CONTROL: Final = 0x8000
_FIN: Final = 0x01
_HEAD: Final = struct.Struct("!HHI")
"""Of a control frame: version, kind, flags and length. In one of data the first four bytes number the stream."""

_MOST_LENGTH: Final = 1 << 20
_MOST_HEADERS: Final = 1 << 16
_PIECE: Final = 1 << 15
_STREAM_BITS: Final = 0x7FFFFFFF
_REFUSED: Final = 3
"""The status REFUSED_STREAM."""

# Section 2.6.10.1: the words that compression knows beforehand, each with its length, and then a text.
_WORDS: Final = (
    "options|head|post|put|delete|trace|accept|accept-charset|accept-encoding|accept-language|"
    "accept-ranges|age|allow|authorization|cache-control|connection|content-base|content-encoding|"
    "content-language|content-length|content-location|content-md5|content-range|content-type|date|etag|"
    "expect|expires|from|host|if-match|if-modified-since|if-none-match|if-range|if-unmodified-since|"
    "last-modified|location|max-forwards|pragma|proxy-authenticate|proxy-authorization|range|referer|"
    "retry-after|server|te|trailer|transfer-encoding|upgrade|user-agent|vary|via|warning|"
    "www-authenticate|method|get|status|200 OK|version|HTTP/1.1|url|public|set-cookie|keep-alive|origin"
)
_TEXT: Final = (
    "100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505203 "
    "Non-Authoritative Information204 No Content301 Moved Permanently400 Bad Request401 Unauthorized403 "
    "Forbidden404 Not Found500 Internal Server Error501 Not Implemented503 Service UnavailableJan Feb "
    "Mar Apr May Jun Jul Aug Sept Oct Nov Dec 00:00:00 Mon, Tue, Wed, Thu, Fri, Sat, Sun, GMTchunked,"
    "text/html,image/png,image/jpg,image/gif,application/xml,application/xhtml+xml,text/plain,"
    "text/javascript,publicprivatemax-age=gzip,deflate,sdchcharset=utf-8charset=iso-8859-1,utf-,*,enq=0."
)
_COUNTED: Final = (struct.pack("!I", len(each)) + each.encode() for each in _WORDS.split("|"))
DICTIONARY: Final = b"".join((*_COUNTED, _TEXT.encode()))


class _ControlFrame(IntEnum):
    SYN_STREAM = 1
    SYN_REPLY = 2
    RST_STREAM = 3
    PING = 6
    GOAWAY = 7


class SpdyError(Exception):
    """The peer has broken the protocol; the connection is of no more use."""


class Opened(Struct, frozen=True):
    """The peer has opened a stream. Names of headers are in lower case."""

    stream: int
    headers: Mapping[str, str]
    ended: bool


class Received(Struct, frozen=True):
    """Data have come on a stream; with ``ended`` they are the last."""

    stream: int
    data: bytes
    ended: bool


class WasReset(Struct, frozen=True):
    """The peer wants nothing more of a stream."""

    stream: int


SpdyEvent = Opened | Received | WasReset


class SpdyConnection:
    """The state of one connection. ``outgoing`` has what is to be sent to the peer; the caller empties it."""

    def __init__(self) -> None:
        self.outgoing = bytearray()
        self._incoming = bytearray()
        self._decompress = zlib.decompressobj(zdict=DICTIONARY)
        self._compress = zlib.compressobj(zdict=DICTIONARY)

    def receive(self, data: bytes) -> Iterator[SpdyEvent]:
        """The events that these bytes complete. Raises ``SpdyError``."""
        self._incoming += data
        while len(self._incoming) >= _HEAD.size:
            first, second, last = _HEAD.unpack_from(self._incoming)
            flags, length = last >> 24, last & 0xFFFFFF
            if length > _MOST_LENGTH:
                raise SpdyError(f"a frame of {length} bytes; at most {_MOST_LENGTH} are taken")
            if len(self._incoming) < _HEAD.size + length:
                return
            content = bytes(self._incoming[_HEAD.size : _HEAD.size + length])
            del self._incoming[: _HEAD.size + length]
            if not first & _CONTROL:
                yield Received(first << 16 | second, content, bool(flags & _FIN))
            elif (event := self._controlled(first & ~_CONTROL, second, flags, content)) is not None:
                yield event

    def accept(self, stream: int) -> None:
        """Answer a stream that the peer has opened, so that both sides may send on it."""
        packed = self._compress.compress(struct.pack("!I", 0)) + self._compress.flush(zlib.Z_SYNC_FLUSH)
        self._send(_ControlFrame.SYN_REPLY, struct.pack("!I", stream) + packed)

    def refuse(self, stream: int) -> None:
        """Answer a stream that this side does not take."""
        self._send(_ControlFrame.RST_STREAM, struct.pack("!II", stream, _REFUSED))

    def send(self, stream: int, data: bytes, *, end: bool = False) -> None:
        """Send data on a stream; with ``end`` they are the last."""
        for first in range(0, len(data), _PIECE):
            piece = data[first : first + _PIECE]
            self.outgoing += struct.pack("!II", stream, len(piece)) + piece
        if end:
            self.outgoing += struct.pack("!II", stream, _FIN << 24)

    def _send(self, kind: _ControlFrame, content: bytes) -> None:
        self.outgoing += _HEAD.pack(_CONTROL | _VERSION, kind, len(content)) + content

    def _controlled(self, version: int, kind: int, flags: int, content: bytes) -> SpdyEvent | None:
        if version != _VERSION:
            raise SpdyError(f"a frame of version {version}, not {_VERSION}")
        try:
            match kind:
                case _ControlFrame.SYN_STREAM:
                    stream, _, _ = struct.unpack_from("!IIH", content)
                    return Opened(stream & _STREAM_BITS, self._headers(content[10:]), bool(flags & _FIN))
                case _ControlFrame.RST_STREAM:
                    return WasReset(struct.unpack_from("!I", content)[0] & _STREAM_BITS)
                case _ControlFrame.PING:
                    self._send(_ControlFrame.PING, content)
        except (struct.error, zlib.error, UnicodeDecodeError) as error:
            raise SpdyError(f"a frame of kind {kind}: {error}") from error
        return None  # settings, the end of the connection, windows: nothing follows from them here

    def _headers(self, packed: bytes) -> Mapping[str, str]:
        block = self._decompress.decompress(packed, _MOST_HEADERS)
        if self._decompress.unconsumed_tail:
            raise SpdyError(f"headers of more than {_MOST_HEADERS} bytes")
        texts, at = [], 4
        (count,) = struct.unpack_from("!I", block)
        for _ in range(2 * min(count, _MOST_HEADERS)):
            (length,) = struct.unpack_from("!I", block, at)
            texts.append(block[at + 4 : at + 4 + length].decode())
            at += 4 + length
        return {name.lower(): value for name, value in zip(texts[::2], texts[1::2], strict=True)}
