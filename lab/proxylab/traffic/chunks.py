"""The first two packets of an SCTP association as bytes (RFC 9260): INIT, and INIT ACK or ABORT.

An INIT's *initiate tag* identifies the flow: NAT leaves it alone, and every packet of the answer bears it as the
verification tag in its header. The checksum (CRC32c) covers the whole packet and no pseudo-header, so each flow needs
its own.
"""

import struct
from functools import cache
from typing import Final

from proxylab.traffic.dissect import Chunk

_COMMON: Final = struct.Struct("!HHII")  # source port, destination port, verification tag, checksum
_CHUNK: Final = struct.Struct("!BBH")  # type, flags, length
_INIT: Final = struct.Struct("!IIHHI")  # initiate tag, receiver window, streams out, streams in, first TSN
_COOKIE: Final = struct.Struct("!HH8s")  # a parameter: type, length, value
_STATE_COOKIE: Final = 7
_WINDOW: Final = 106_496  # what Linux offers
_STREAMS: Final = 10
_CHECKSUM_AT: Final = 8
_OWN_TAG: Final = 0x70726F78
_POLYNOMIAL: Final = 0x82F63B78  # Castagnoli's, bits reversed


def init(source_port: int, port: int, tag: int) -> bytes:
    """The INIT of a flow whose identity is ``tag``."""
    body = _INIT.pack(tag, _WINDOW, _STREAMS, _STREAMS, tag)
    return _packet(source_port, port, 0, Chunk.INIT, body)


def init_ack(source_port: int, port: int, tag: int) -> bytes:
    """A listener's answer to the INIT that bore ``tag``."""
    body = _INIT.pack(_OWN_TAG, _WINDOW, _STREAMS, _STREAMS, _OWN_TAG)
    body += _COOKIE.pack(_STATE_COOKIE, _COOKIE.size, b"proxylab")
    return _packet(source_port, port, tag, Chunk.INIT_ACK, body)


def abort(source_port: int, port: int, tag: int) -> bytes:
    """The answer of a closed port (RFC 9260, section 8.4)."""
    return _packet(source_port, port, tag, Chunk.ABORT, b"")


def _packet(source_port: int, port: int, tag: int, kind: int, body: bytes) -> bytes:
    chunk = _CHUNK.pack(kind, 0, _CHUNK.size + len(body)) + body
    packet = bytearray(_COMMON.pack(source_port, port, tag, 0) + chunk)
    struct.pack_into("<I", packet, _CHECKSUM_AT, _crc32c(packet))
    return bytes(packet)


def _crc32c(data: bytes | bytearray) -> int:
    """Castagnoli's CRC, which the header holds with its lowest byte first (RFC 9260, appendix A)."""
    crc = 0xFFFFFFFF
    table = _remainders()
    for byte in data:
        crc = crc >> 8 ^ table[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


@cache
def _remainders() -> tuple[int, ...]:
    rows = []
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = crc >> 1 ^ (_POLYNOMIAL if crc & 1 else 0)
        rows.append(crc)
    return tuple(rows)
