"""Reads the frames of thousands of flows at the devices of nodes, a batch at a time and column by column.

``PassagePacker`` keeps batches in which every frame is plain as raw memory, and packs them at the end. A batch with a
fragment, a reset or an ICMP error goes to ``match``, which reads it frame by frame.

A flow crosses eight devices of two nodes. To make an object for each sighting takes 4 microseconds. But a packet on its
way settles nothing, so its sightings can wait until the run is over. A slice with a step takes one byte of each of
thousands of frames in one go, and all checks work on such columns: a third of a microsecond for each frame.
"""

import socket
import struct
import sys
from array import array
from binascii import Error as NotHexadecimalError
from binascii import unhexlify
from collections import defaultdict
from collections.abc import Iterator, Mapping
from itertools import repeat
from typing import Final, Protocol

from proxylab.addresses import Transport
from proxylab.evidence.evidence import Direction, Packet, Passages, SeenFrame
from proxylab.evidence.passages import LEFT, OTHERHOST, REPLY, pack, planes_of
from proxylab.kernel.capture.batches import HEAD_BYTES, Slots
from proxylab.traffic.dissect import TCP, UDP, TcpFlag
from proxylab.traffic.identity import Identity, Kind

__all__ = ["MOST_UNPACKED", "PassagePacker"]

MOST_UNPACKED: Final = 16
"""Up to so many flows have an observation for each packet at every device; of more, node devices pack theirs."""

_KEPT_FRAMES: Final = 65_536  # until the next run, for bundles and captures
_BATCHES: Final = 256  # that wait at a tap to be packed: some megabytes

_ETHERNET: Final = 14
_TRANSPORT: Final = {4: _ETHERNET + 20, 6: _ETHERNET + 40}
_PLAIN: Final = {
    # EtherType; the version, without options, or without a traffic class; no fragment
    4: ((12, b"\x08"), (13, b"\x00"), (14, b"\x45"), (20, b"\x00\x40"), (21, b"\x00")),
    6: ((12, b"\x86"), (13, b"\xdd"), (14, b"\x60")),
}
"""The bytes that a plain frame may have at each offset, by the version of IP."""
_PROTOCOL: Final = {4: 23, 6: 20}
_ENDS: Final = {4: range(26, 38), 6: range(22, 58)}

_WAY: Final = bytes(
    {socket.PACKET_OUTGOING: LEFT, socket.PACKET_OTHERHOST: OTHERHOST}.get(kind, 0) for kind in range(256)
)
_TIME: Final = struct.Struct("=qq")
_NO_FLOW: Final = 0xFFFFFFFF


class _Column:
    """One byte of each of many frames, by its offset in a frame."""

    def __init__(self, memory: bytes | memoryview) -> None:
        self._memory = memory
        self.frames = len(memory) // Slots.SLOT_BYTES

    def slot(self, at: int) -> bytes:
        """The byte at that offset of each slot."""
        return bytes(self._memory[at :: Slots.SLOT_BYTES])

    def byte(self, at: int) -> bytes:
        """The byte at that offset of each frame."""
        return self.slot(Slots.HEAD_AT + at)

    def words(self, at: int, width: int) -> bytes:
        """``width`` bytes of each frame, frame by frame."""
        together = bytearray(width * self.frames)
        for number in range(width):
            together[number::width] = self.byte(at + number)
        return bytes(together)

    def numbers(self, at: int) -> "array[int]":
        """The four-byte number at that offset of each frame."""
        return _of_network(self.words(at, 4))

    def time(self) -> tuple[bytes, ...]:
        """Seconds and nanoseconds of each frame, four columns each, the column of the lowest byte first."""
        first = 0 if sys.byteorder == "little" else 7
        step = 1 if sys.byteorder == "little" else -1
        starts = (Slots.TIME_AT + first, Slots.TIME_AT + 8 + first)
        return tuple(self.slot(start + step * number) for start in starts for number in range(4))


class _Classifier(Protocol):
    """Finds the flow and the kind of each of many plain frames."""

    number: int

    def wants(self, column: _Column, transport: int) -> bool:
        """Whether none of these frames needs a closer look."""

    def classify(self, column: _Column, transport: int) -> tuple["array[int]", bytes] | None:
        """The flows of these frames, and ``REPLY`` or 0 for each; ``None`` if some frame is of another run."""


class PassagePacker:
    """Gathers what the devices of nodes see of one run."""

    def __init__(self, identity: Identity, protocol: Transport, learned: Mapping[int, int] | None) -> None:
        """Start with the flows of ``identity``.

        Args:
            identity: of the run.
            protocol: of its flows: TCP or UDP.
            learned: for TCP by kernel sockets, the flow of each sequence number that is known so far.
        """
        self.seen = 0
        self._protocol = protocol
        self._classifier: _Classifier = (
            _Sequences(_numbered(identity) if learned is None else learned)
            if protocol is Transport.TCP
            else _Tokens(identity)
        )
        self._waiting: defaultdict[tuple[str, str, int], list[bytes]] = defaultdict(list)
        self._packed: list[Passages] = []
        self._kept: list[tuple[str, str, int, bytes]] = []

    @property
    def left_out(self) -> int:
        """How many frames were too many to keep."""
        return max(0, self.seen - _KEPT_FRAMES)

    def take(self, netns_name: str, device: str, batch: Slots) -> bool:
        """Take in a batch if every frame in it is plain. Returns whether it was."""
        column = _Column(batch.memory)
        version = 4 if column.byte(_ETHERNET)[0] >> 4 == 4 else 6
        plain = (*_PLAIN[version], (_PROTOCOL[version], bytes((self._classifier.number,))))
        if any(column.byte(at).strip(allowed) for at, allowed in plain):
            return False
        if not self._classifier.wants(column, _TRANSPORT[version]):
            return False
        memory = bytes(batch.memory)
        if self.seen < _KEPT_FRAMES:
            self._kept.append((netns_name, device, version, memory))
        self.seen += column.frames
        waiting = self._waiting[netns_name, device, version]
        waiting.append(memory)
        if len(waiting) >= _BATCHES:
            self._pack(netns_name, device, version)
        return True

    def packed(self) -> tuple[Passages, ...]:
        """The batches so far, packed tap by tap."""
        for tap in tuple(self._waiting):
            self._pack(*tap)
        return tuple(self._packed)

    def frames(self) -> Iterator[SeenFrame]:
        """The kept frames."""
        for netns_name, device, version, memory in self._kept:
            ours, flows, kinds = self._ours(memory, version)
            for number, (flow, kind) in enumerate(zip(flows, kinds, strict=True)):
                slot = ours[number * Slots.SLOT_BYTES : (number + 1) * Slots.SLOT_BYTES]
                seconds, nanoseconds = _TIME.unpack_from(slot, Slots.TIME_AT)
                head = slot[Slots.HEAD_AT :]
                length = _length(head, version)
                yield SeenFrame(
                    flow,
                    netns_name,
                    device,
                    Direction.OUT if slot[Slots.DIRECTION_AT] == socket.PACKET_OUTGOING else Direction.IN,
                    Packet.REPLY if kind & REPLY else Packet.REQUEST,
                    seconds * 1_000_000_000 + nanoseconds,
                    head[:length].hex(),
                    length if length > HEAD_BYTES else 0,
                )

    def _pack(self, netns_name: str, device: str, version: int) -> None:
        memory, flows, kinds = self._ours(b"".join(self._waiting.pop((netns_name, device, version))), version)
        if not flows:
            return
        column = _Column(memory)
        way = column.slot(Slots.DIRECTION_AT).translate(_WAY)
        both = int.from_bytes(kinds, "little") | int.from_bytes(way, "little")
        planes = (
            *planes_of(flows),
            both.to_bytes(len(kinds), "little"),
            *column.time(),
            *map(column.byte, _ENDS[version]),
        )
        self._packed.append(pack(netns_name, device, self._protocol, version, planes))

    def _ours(self, memory: bytes, version: int) -> tuple[bytes, "array[int]", bytes]:
        """The frames that belong to the run, their flows, and whether each is a reply."""
        transport = _TRANSPORT[version]
        classified = self._classifier.classify(_Column(memory), transport)
        if classified is None:
            slots = (memory[at : at + Slots.SLOT_BYTES] for at in range(0, len(memory), Slots.SLOT_BYTES))
            memory = b"".join(slot for slot in slots if self._classifier.classify(_Column(slot), transport) is not None)
            classified = self._classifier.classify(_Column(memory), transport) if memory else None
        return (memory, *classified) if classified is not None else (b"", array("I"), b"")


class _Tokens:
    """Finds the flows of datagrams by the token at the head of their payload."""

    number = UDP

    def __init__(self, identity: Identity) -> None:
        request, reply = identity.stem(Kind.PROBE), identity.stem(Kind.REPLY)
        pairs = [*enumerate(zip(request, reply, strict=True))]
        self._same = [(at, bytes((one,))) for at, (one, other) in pairs if one == other]
        self._words = [(at, _kinds_by_letter(one, other)) for at, (one, other) in pairs if one != other]
        self._number_at = len(request)
        self._flows = identity.flows

    def wants(self, column: _Column, transport: int) -> bool:
        """Always true: a datagram without a token of the run belongs to no flow."""
        return True

    def classify(self, column: _Column, transport: int) -> tuple["array[int]", bytes] | None:
        """See ``_Classifier``."""
        token = transport + 8
        if any(column.byte(token + at).strip(byte) for at, byte in self._same):
            return None
        kinds, *further = (column.byte(token + at).translate(table) for at, table in self._words)
        if any(each != kinds for each in further) or _NEITHER in kinds:
            return None
        try:
            flows = _of_network(unhexlify(column.words(token + self._number_at, 8)))
        except NotHexadecimalError:
            return None
        return (flows, kinds) if max(flows) < self._flows else None


class _Sequences:
    """Finds the flows of segments by their sequence numbers."""

    number = TCP

    def __init__(self, flows: Mapping[int, int]) -> None:
        self._flows = flows

    def wants(self, column: _Column, transport: int) -> bool:
        """See ``_Classifier``. Resets are few, and their meaning depends on the tap."""
        return _RESET not in column.byte(transport + 13).translate(_BY_FLAGS)

    def classify(self, column: _Column, transport: int) -> tuple["array[int]", bytes] | None:
        """See ``_Classifier``."""
        kinds = column.byte(transport + 13).translate(_BY_FLAGS)
        if _NEITHER in kinds:
            return None
        sequences, acknowledged = column.numbers(transport + 4), column.numbers(transport + 8)
        numbers = [
            (answered - 1) & 0xFFFFFFFF if kind else sequence
            for sequence, answered, kind in zip(sequences, acknowledged, kinds, strict=True)
        ]
        flows = array("I", map(self._flows.get, numbers, repeat(_NO_FLOW)))
        return None if _NO_FLOW in flows else (flows, kinds)


_NEITHER: Final = 0xFF
_RESET: Final = 0xFE


def _kinds_by_letter(request: int, reply: int) -> bytes:
    """A table for ``translate``: 0 for the letter of a request, ``REPLY`` for that of a reply."""
    return bytes({request: 0, reply: REPLY}.get(byte, _NEITHER) for byte in range(256))


def _kind_by_flags(flags: int) -> int:
    decisive = flags & (TcpFlag.SYN | TcpFlag.RST | TcpFlag.ACK)
    if decisive & TcpFlag.RST:
        return _RESET
    return {TcpFlag.SYN: 0, TcpFlag.SYN | TcpFlag.ACK: REPLY}.get(decisive, _NEITHER)


_BY_FLAGS: Final = bytes(map(_kind_by_flags, range(256)))


def _numbered(identity: Identity) -> dict[int, int]:
    """The flow of each initial sequence number that the lab has chosen."""
    return {identity.sequence(flow): flow for flow in range(identity.flows)}


def _of_network(data: bytes) -> "array[int]":
    """The four-byte big-endian numbers in ``data``."""
    numbers = array("I", data)
    if sys.byteorder == "little":
        numbers.byteswap()
    return numbers


def _length(head: bytes, version: int) -> int:
    """The length of an IP packet with its Ethernet header, by the length in its IP header."""
    if version == 4:
        return _ETHERNET + int.from_bytes(head[16:18])
    return _TRANSPORT[6] + int.from_bytes(head[18:20])
