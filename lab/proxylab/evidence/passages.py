"""What devices of nodes saw of thousands of flows, packed column by column, and told flow by flow when it is asked for.

Owns: ``Passages`` and its layout, and ``PassageBook``, which turns it back into observations.
Must not: read frames (``traffic`` does), or judge.

A flow crosses eight devices of two nodes. An object for each sighting would cost more than all else about it, and a
judge looks at few of them: at those that did not go as they should. So sightings lie beside each other as they were
read, and become observations when somebody asks for their flow. Nothing is left out.

A row has, byte by byte: the flow (4); what it is (bit 0: a reply; bit 1: it left the node; bit 2: it came in under a
MAC that is not the device's); seconds and nanoseconds (4 each); source, destination and the port of either, as on the
wire. The others begin with their lowest byte. Each byte of all rows is a *plane*; the planes are one behind the other,
deflated, and text by base64. Most planes hold one value.
"""

import struct
import sys
import zlib
from array import array
from base64 import b64decode, b64encode
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from proxylab.addresses import Transport, unpacked
from proxylab.evidence.observation import Direction, Observation, Packet

__all__ = ["LEFT", "OTHERHOST", "REPLY", "PassageBook", "Passages", "pack", "planes_of", "sightings"]

REPLY: Final = 1
LEFT: Final = 2
OTHERHOST: Final = 4

_FASTEST: Final = 1  # of zlib's levels; what counts most is that planes of one value vanish
_ADDRESS_BYTES: Final = {4: 4, 6: 16}
_HEAD: Final = struct.Struct("<4xBII")
_ROW_BYTES: Final = _HEAD.size  # before addresses and ports


@dataclass(frozen=True, slots=True)
class Passages:
    """Requests and replies that one device of a node saw, of any flows. ``columns`` is as the module says."""

    netns_name: str
    device: str
    protocol: Transport
    version: int
    frames: int
    columns: str


def pack(netns_name: str, device: str, protocol: Transport, version: int, planes: Sequence[bytes]) -> Passages:
    """Passages of planes as the module says, all as long as each other."""
    text = b64encode(zlib.compress(b"".join(planes), _FASTEST)).decode("ascii")
    return Passages(netns_name, device, protocol, version, len(planes[0]), text)


def planes_of(numbers: "array[int]") -> tuple[bytes, ...]:
    """The four planes of numbers of type ``I``."""
    data = numbers.tobytes()
    planes = tuple(data[at::4] for at in range(4))
    return planes if sys.byteorder == "little" else planes[::-1]


def sightings(passages: Passages) -> tuple["array[int]", bytes]:
    """The flow of each row, and what it is: the first two columns, without an object for any row."""
    data, frames = zlib.decompress(b64decode(passages.columns)), passages.frames
    numbers = bytearray(4 * frames)
    for plane in range(4):
        at = plane if sys.byteorder == "little" else 3 - plane
        numbers[at::4] = data[plane * frames : (plane + 1) * frames]
    return array("I", bytes(numbers)), data[4 * frames : 5 * frames]


class PassageBook:
    """Passages by flow. They are unpacked when the first flow is asked for."""

    __slots__ = ("_by_flow", "_passages", "_unpacked")

    def __init__(self, passages: Iterable[Passages]) -> None:
        self._passages = tuple(passages)
        self._unpacked: list[_Columns] = []
        self._by_flow: dict[int, list[tuple[int, int]]] | None = None

    def of(self, number: int) -> tuple[Observation, ...]:
        """What nodes saw of a flow, tap by tap, each in the order of time."""
        if self._by_flow is None:
            self._by_flow = self._opened()
        rows = self._by_flow.get(number, ())
        return tuple(self._unpacked[which].observation(number, row) for which, row in rows)

    def _opened(self) -> dict[int, list[tuple[int, int]]]:
        found: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
        for which, passages in enumerate(self._passages):
            columns = _Columns(passages)
            self._unpacked.append(columns)
            for row, number in enumerate(columns.flows):
                found[number].append((which, row))
        return found


class _Columns:
    """What one tap saw, row by row."""

    def __init__(self, passages: Passages) -> None:
        frames, wide = passages.frames, _ADDRESS_BYTES[passages.version]
        data = zlib.decompress(b64decode(passages.columns))
        row = _ROW_BYTES + 2 * wide + 4
        if len(data) != frames * row:
            raise ValueError(f"{len(data)} bytes for {frames} frames of IPv{passages.version}, which have {row} each")
        rows = bytearray(len(data))
        for number in range(row):
            rows[number::row] = data[number * frames : (number + 1) * frames]
        self._passages = passages
        self._rows = bytes(rows)
        self._row = row
        self._wide = wide
        self.flows = [number for (number,) in struct.iter_unpack(f"<I{row - 4}x", rows)]

    def observation(self, number: int, row: int) -> Observation:
        """The frame of that row, which is of that flow."""
        passages, wide, start = self._passages, self._wide, row * self._row
        kind, seconds, nanoseconds = _HEAD.unpack_from(self._rows, start)
        ends = self._rows[start + _ROW_BYTES : start + self._row]
        return Observation(
            flow=number,
            netns_name=passages.netns_name,
            device=passages.device,
            direction=Direction.OUT if kind & LEFT else Direction.IN,
            packet=Packet.REPLY if kind & REPLY else Packet.REQUEST,
            protocol=passages.protocol,
            source=unpacked(ends[:wide]),
            source_port=int.from_bytes(ends[-4:-2]),
            destination=unpacked(ends[wide : 2 * wide]),
            destination_port=int.from_bytes(ends[-2:]),
            at=seconds * 1_000_000_000 + nanoseconds,
            otherhost=bool(kind & OTHERHOST),
        )
