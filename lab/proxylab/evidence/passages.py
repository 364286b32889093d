"""Sightings of thousands of flows at devices of nodes, packed column by column (``Passages``).

A flow crosses eight devices of two nodes. An object for each sighting would cost more than the rest of the flow, and
the judge looks only at the few flows that went wrong. So ``Passages`` keeps all sightings packed, and ``PassageBook``
makes the observations of a flow on demand.

A row has, byte by byte: the flow (4); its kind (bit 0: a reply; bit 1: it left the node; bit 2: it came in under a MAC
that is not the device's); seconds and nanoseconds (4 each); source, destination and both ports in network byte order.
The other fields are little-endian. Each byte of all rows is a *plane*; the planes follow each other, deflated and in
base64. Most planes hold one value.
"""

import struct
import sys
import zlib
from array import array
from base64 import b64decode, b64encode
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

from proxylab.addresses import Transport, unpacked
from proxylab.encoding import Record
from proxylab.evidence.observation import Direction, Observation, Packet

__all__ = ["LEFT", "OTHERHOST", "REPLY", "PassageBook", "Passages", "pack", "planes_of", "sightings"]

REPLY: Final = 1
LEFT: Final = 2
OTHERHOST: Final = 4

_FASTEST: Final = 1  # of zlib's levels; planes of one value vanish at any level
_ADDRESS_BYTES: Final = {4: 4, 6: 16}
_HEAD: Final = struct.Struct("<4xBII")
_ROW_BYTES: Final = _HEAD.size  # before addresses and ports


class Passages(Record, frozen=True):
    """Requests and replies of any flows at one device of a node. The module describes ``columns``."""

    netns_name: str
    device: str
    protocol: Transport
    version: int
    frames: int
    columns: str


def pack(netns_name: str, device: str, protocol: Transport, version: int, planes: Sequence[bytes]) -> Passages:
    """Passages of planes of equal length, as the module describes them."""
    text = b64encode(zlib.compress(b"".join(planes), _FASTEST)).decode("ascii")
    return Passages(netns_name, device, protocol, version, len(planes[0]), text)


def planes_of(numbers: "array[int]") -> tuple[bytes, ...]:
    """The four planes of numbers of type ``I``."""
    data = numbers.tobytes()
    planes = tuple(data[at::4] for at in range(4))
    return planes if sys.byteorder == "little" else planes[::-1]


def sightings(passages: Passages) -> tuple["array[int]", bytes]:
    """The flow and the kind of each row: the first two columns, without an object for any row."""
    data, frames = zlib.decompress(b64decode(passages.columns)), passages.frames
    numbers = bytearray(4 * frames)
    for plane in range(4):
        at = plane if sys.byteorder == "little" else 3 - plane
        numbers[at::4] = data[plane * frames : (plane + 1) * frames]
    return array("I", bytes(numbers)), data[4 * frames : 5 * frames]


class PassageBook:
    """Passages by flow. The first call of ``of`` unpacks them."""

    __slots__ = ("_by_flow", "_passages", "_unpacked")

    def __init__(self, passages: Iterable[Passages]) -> None:
        self._passages = tuple(passages)
        self._unpacked: list[_Columns] = []
        self._by_flow: dict[int, list[tuple[int, int]]] | None = None

    def of(self, number: int) -> tuple[Observation, ...]:
        """The observations of a flow at nodes, tap by tap, each in the order of time."""
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
    """The sightings of one tap, row by row."""

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
        """The observation of that row, which belongs to flow ``number``."""
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
