"""Cuts crafted packets above the MTU into fragments, and reassembles the fragments that taps see.

Only the first fragment bears an identity. The others share something with it, which is not the addresses. A tap holds a
clone of what crosses its device. Where a node fragments a packet again that it had reassembled, it writes the new
headers of later fragments over the old ones, which the clone shares (``ip_fragment``, net/ipv4/ip_output.c;
``ip6_fragment``, net/ipv6/ip6_output.c): when the tap is read, they bear addresses that they did not have when they
crossed it. IPv4 keeps the identification (RFC 791, section 3.2). IPv6 gets a new one, and there the order must do: on a
veth all fragments of a packet cross before those of the next.
"""

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from msgspec import Struct

from proxylab.kernel.capture.batches import Frame

_ETHERNET: Final = 14
_IPV4: Final = b"\x08\x00"
_IPV6: Final = b"\x86\xdd"
_IPV4_BYTES: Final = 20
_IPV6_BYTES: Final = 40
_FRAGMENT_BYTES: Final = 8
_FRAGMENT_HEADER: Final = 44
_NEXT_HEADER_AT: Final = _ETHERNET + 6
_MORE_IPV4: Final = 0x2000
_OFFSET_IPV4: Final = 0x1FFF
_WORD: Final = struct.Struct("!H")
_WORDS: Final = struct.Struct("!10H")
_MOST_PENDING: Final = 1024
_LONGEST_PACKET: Final = 65535


def cut(frame: bytes, mtu: int, identification: int) -> Iterable[bytes]:
    """The fragments of a frame with a plain IP header; the frame itself where it fits.

    Args:
        frame: Ethernet and IP.
        mtu: the most bytes that a fragment may have behind its Ethernet header.
        identification: shared by the fragments, and by no other packet under way; IPv4 uses its lower 16 bits.
    """
    if len(frame) - _ETHERNET <= mtu:
        return (frame,)
    if frame[12:_ETHERNET] == _IPV4:
        return _cut_ipv4(frame, mtu, identification & 0xFFFF)
    return _cut_ipv6(frame, mtu, identification & 0xFFFFFFFF)


def _cut_ipv4(frame: bytes, mtu: int, identification: int) -> Iterator[bytes]:
    body = frame[_ETHERNET + _IPV4_BYTES :]
    size = (mtu - _IPV4_BYTES) & ~7
    for at in range(0, len(body), size):
        piece = body[at : at + size]
        more = _MORE_IPV4 if at + size < len(body) else 0
        header = bytearray(frame[_ETHERNET : _ETHERNET + _IPV4_BYTES])
        struct.pack_into("!HHH", header, 2, _IPV4_BYTES + len(piece), identification, more | at // 8)
        header[10:12] = bytes(2)
        header[10:12] = _WORD.pack(0xFFFF - (sum(_WORDS.unpack(header)) % 0xFFFF or 0xFFFF))
        yield frame[:_ETHERNET] + header + piece


def _cut_ipv6(frame: bytes, mtu: int, identification: int) -> Iterator[bytes]:
    start = _ETHERNET + _IPV6_BYTES
    body, following = frame[start:], frame[_NEXT_HEADER_AT]
    size = (mtu - _IPV6_BYTES - _FRAGMENT_BYTES) & ~7
    for at in range(0, len(body), size):
        piece = body[at : at + size]
        header = bytearray(frame[:start])
        struct.pack_into("!HB", header, _ETHERNET + 4, _FRAGMENT_BYTES + len(piece), _FRAGMENT_HEADER)
        more = at + size < len(body)
        yield bytes(header) + struct.pack("!BxHI", following, at | more, identification) + piece


@dataclass(slots=True)
class _Pieces:
    """The fragments of one packet so far. ``whole`` is its length, known once the last fragment has come."""

    head: bytes = b""
    by_offset: dict[int, bytes] = field(default_factory=dict)
    whole: int | None = None

    def joined(self) -> bytes | None:
        """The packet's body, once all of it has come."""
        if self.whole is None or not self.head:
            return None
        body = b""
        while len(body) < self.whole:
            piece = self.by_offset.get(len(body))
            if not piece:
                return None
            body += piece
        return body


class Reassembly:
    """Reassembles the fragments at each tap. A tap has seen a packet once it has seen all of its fragments."""

    def __init__(self) -> None:
        self._pending: dict[tuple[object, ...], _Pieces] = {}

    def take(self, netns_name: str, device: str, frame: Frame) -> bytes | None:
        """The whole packet as one frame, once its last missing fragment comes; ``None`` for an unfragmented frame."""
        found = _read(frame.data)
        if found is None:
            return None
        key = (netns_name, device, frame.outgoing, found.shared)
        if key not in self._pending and len(self._pending) >= _MOST_PENDING:
            del self._pending[next(iter(self._pending))]
        if found.offset == 0 and found.head[12:_ETHERNET] == _IPV6:
            self._pending.pop(key, None)
        pieces = self._pending.setdefault(key, _Pieces())
        pieces.by_offset[found.offset] = found.piece
        if found.offset == 0:
            pieces.head = found.head
        if not found.more:
            pieces.whole = found.offset + len(found.piece)
        body = pieces.joined()
        if body is None:
            return None
        del self._pending[key]
        return None if len(body) > _LONGEST_PACKET - _IPV6_BYTES else _whole(pieces.head, body)


class _Fragment(Struct, frozen=True):
    """One fragment of a packet.

    Attributes:
        shared: what all fragments of the packet have alike, and those of no other packet under way.
        head: what stands before its bytes, as if the packet had never been cut.
        offset: of its bytes in the packet.
        more: whether others follow.
        piece: its bytes.
    """

    shared: bytes
    head: bytes
    offset: int
    more: bool
    piece: bytes


def _read(data: bytes) -> _Fragment | None:
    """The fragment in a frame; ``None`` for a whole packet."""
    kind = data[12:_ETHERNET]
    if kind == _IPV4 and len(data) >= _ETHERNET + _IPV4_BYTES and data[_ETHERNET] == 0x45:
        length, identification, bits = struct.unpack_from("!HHH", data, _ETHERNET + 2)
        if not bits & (_MORE_IPV4 | _OFFSET_IPV4) or len(data) < _ETHERNET + length:
            return None
        start = _ETHERNET + _IPV4_BYTES
        shared = data[_ETHERNET + 9 : _ETHERNET + 10] + _WORD.pack(identification)
        piece = data[start : _ETHERNET + length]
        return _Fragment(shared, data[:start], (bits & _OFFSET_IPV4) * 8, bool(bits & _MORE_IPV4), piece)
    start = _ETHERNET + _IPV6_BYTES
    if kind == _IPV6 and len(data) >= start + _FRAGMENT_BYTES and data[_NEXT_HEADER_AT] == _FRAGMENT_HEADER:
        (length,) = _WORD.unpack_from(data, _ETHERNET + 4)
        following, bits, _ = struct.unpack_from("!BxHI", data, start)
        if len(data) < start + length:
            return None
        head = data[:_NEXT_HEADER_AT] + bytes([following]) + data[_NEXT_HEADER_AT + 1 : start]
        piece = data[start + _FRAGMENT_BYTES : start + length]
        return _Fragment(bytes([following]), head, bits & ~7, bool(bits & 1), piece)
    return None


def _whole(head: bytes, body: bytes) -> bytes:
    """The packet as if it had never been cut; its IPv4 header keeps the checksum of the first fragment."""
    whole = bytearray(head + body)
    if head[12:_ETHERNET] == _IPV4:
        _WORD.pack_into(whole, _ETHERNET + 2, _IPV4_BYTES + len(body))
        _WORD.pack_into(whole, _ETHERNET + 6, 0)
    else:
        _WORD.pack_into(whole, _ETHERNET + 4, len(body))
    return bytes(whole)
