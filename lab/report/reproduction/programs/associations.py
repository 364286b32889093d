"""Answer for SCTP where a pod's kernel cannot: INIT ACK where somebody listens, ABORT where nobody does.

Owns: the two packets and their checksum (RFC 9260).
Must not: need anything but python3 and its standard library, or touch sockets.
"""

import functools
import struct

INIT, INIT_ACK, ABORT = 1, 2, 6
OWN_TAG = 0x70726F78


def answer(data, listening):
    """The frame that answers an INIT in a frame, from whoever it was for; None for any other frame."""
    version = data[14] >> 4
    at = 14 + (40 if version == 6 else (data[14] & 15) * 4)
    source, destination, _, _, kind = struct.unpack("!HHIIB", data[at : at + 13])
    if kind != INIT:
        return None
    (tag,) = struct.unpack("!I", data[at + 16 : at + 20])
    own = struct.pack("!IIHHI", OWN_TAG, 106496, 10, 10, OWN_TAG) + struct.pack("!HH8s", 7, 12, b"proxylab")
    chunk, body = (INIT_ACK, own) if destination in listening else (ABORT, b"")
    packet = bytearray(struct.pack("!HHII", destination, source, tag, 0))
    packet += struct.pack("!BBH", chunk, 0, 4 + len(body)) + body
    struct.pack_into("<I", packet, 8, crc32c(packet))
    macs = data[6:12] + data[:6]
    if version == 6:
        return (
            macs
            + b"\x86\xdd"
            + struct.pack("!IHBB", 6 << 28, len(packet), 132, 64)
            + data[38:54]
            + data[22:38]
            + packet
        )
    header = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(packet), 0, 0x4000, 64, 132, 0) + data[30:34] + data[26:30]
    checksum = 0xFFFF - (sum(struct.unpack("!10H", header)) % 0xFFFF or 0xFFFF)
    return macs + b"\x08\x00" + header[:10] + struct.pack("!H", checksum) + header[12:] + packet


def crc32c(data):
    """Castagnoli's CRC, which SCTP writes with its lowest byte first."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ remainders()[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


@functools.lru_cache(None)
def remainders():
    """The remainder of each byte."""
    rows = []
    for byte in range(256):
        rest = byte
        for _ in range(8):
            rest = rest >> 1 ^ (0x82F63B78 if rest & 1 else 0)
        rows.append(rest)
    return rows
