"""Frames of all hops as one capture file, each with its flow as comment.

Owns: the blocks of pcapng (draft-ietf-opsawg-pcapng): section, interfaces, packets.
Must not: look into a frame.

A tap is an interface of the capture, named ``place/device``, so that Wireshark's column "Interface name" tells the hop.
"""

import struct
from collections.abc import Iterable
from typing import Final

from lab.verdict.evidence import Direction, SeenFrame

__all__ = ["pcapng"]

_SECTION: Final = 0x0A0D0D0A
_INTERFACE: Final = 1
_PACKET: Final = 6
_BYTE_ORDER: Final = 0x1A2B3C4D
_ETHERNET: Final = 1  # LINKTYPE_ETHERNET
_OPTION_END: Final = 0
_OPTION_COMMENT: Final = 1
_IF_NAME: Final = 2
_IF_TSRESOL: Final = 9
_EPB_FLAGS: Final = 2
_NANOSECONDS: Final = b"\x09"  # 10 to the -9
_FLAG: Final = {Direction.IN: 1, Direction.OUT: 2}


def pcapng(frames: Iterable[SeenFrame]) -> bytes:
    """The capture file. Frames stand in the order of time."""
    ordered = sorted(frames, key=lambda frame: frame.at)
    taps = {tap: number for number, tap in enumerate(dict.fromkeys((each.place, each.device) for each in ordered))}
    blocks = [_block(_SECTION, struct.pack("<IHHq", _BYTE_ORDER, 1, 0, -1))]
    for place, device in taps:
        options = _option(_IF_NAME, f"{place}/{device}".encode()) + _option(_IF_TSRESOL, _NANOSECONDS)
        blocks.append(_block(_INTERFACE, struct.pack("<HHI", _ETHERNET, 0, 0) + options + _option(_OPTION_END, b"")))
    for frame in ordered:
        data = bytes.fromhex(frame.data)
        comment = f"{frame.packet} of flow {frame.flow}, {frame.direction} at {frame.place}"
        options = _option(_OPTION_COMMENT, comment.encode())
        options += _option(_EPB_FLAGS, struct.pack("<I", _FLAG[frame.direction])) + _option(_OPTION_END, b"")
        number = taps[frame.place, frame.device]
        head = struct.pack("<IIIII", number, frame.at >> 32, frame.at & 0xFFFFFFFF, len(data), len(data))
        blocks.append(_block(_PACKET, head + data + bytes(-len(data) & 3) + options))
    return b"".join(blocks)


def _block(kind: int, body: bytes) -> bytes:
    length = struct.pack("<I", len(body) + 12)
    return struct.pack("<I", kind) + length + body + length


def _option(code: int, value: bytes) -> bytes:
    return struct.pack("<HH", code, len(value)) + value + bytes(-len(value) & 3)
