"""Captured frames of all hops as one pcapng file (draft-ietf-opsawg-pcapng), each frame with its flow as comment.

A tap is an interface of the capture, named ``NAMESPACE/DEVICE``: Wireshark's column "Interface name" shows the hop.

scapy's writer would round the times to microseconds and put an interface without a name first.
"""

import struct
from collections.abc import Iterable
from typing import Final

from proxylab.evidence.evidence import Direction, SeenFrame

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
    """The capture file, with the frames in order of time."""
    ordered = sorted(frames, key=lambda frame: frame.at)
    taps = {tap: number for number, tap in enumerate(dict.fromkeys((each.netns_name, each.device) for each in ordered))}
    blocks = [beginning(taps)]
    for frame in ordered:
        comment = f"{frame.packet} of flow {frame.flow}, {frame.direction} at {frame.netns_name}"
        number = taps[frame.netns_name, frame.device]
        blocks.append(packet(bytes.fromhex(frame.data), frame.at, frame.direction, tap=number, comment=comment))
    return b"".join(blocks)


def beginning(taps: Iterable[tuple[str, str]]) -> bytes:
    """The section header of a capture file, and an interface for each tap, given by namespace and device."""
    blocks = [_block(_SECTION, struct.pack("<IHHq", _BYTE_ORDER, 1, 0, -1))]
    for netns_name, device in taps:
        options = _option(_IF_NAME, f"{netns_name}/{device}".encode()) + _option(_IF_TSRESOL, _NANOSECONDS)
        blocks.append(_block(_INTERFACE, struct.pack("<HHI", _ETHERNET, 0, 0) + options + _option(_OPTION_END, b"")))
    return b"".join(blocks)


def packet(data: bytes, at: int, direction: Direction, *, tap: int = 0, comment: str = "") -> bytes:
    """One frame of a capture file.

    ``at`` is in nanoseconds since the epoch, and ``tap`` the number of the interface in the file.
    """
    options = _option(_OPTION_COMMENT, comment.encode()) if comment else b""
    options += _option(_EPB_FLAGS, struct.pack("<I", _FLAG[direction])) + _option(_OPTION_END, b"")
    head = struct.pack("<IIIII", tap, at >> 32, at & 0xFFFFFFFF, len(data), len(data))
    return _block(_PACKET, head + data + bytes(-len(data) & 3) + options)


def _block(kind: int, body: bytes) -> bytes:
    length = struct.pack("<I", len(body) + 12)
    return struct.pack("<I", kind) + length + body + length


def _option(code: int, value: bytes) -> bytes:
    return struct.pack("<HH", code, len(value)) + value + bytes(-len(value) & 3)
