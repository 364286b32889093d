"""Why the kernel drops a packet, by the tracepoint skb:kfree_skb (include/trace/events/skb.h).

The kernel gives a reason since Linux 5.17 (enum skb_drop_reason, include/net/dropreason-core.h). Each release adds
reasons and renumbers them, so the module reads names and numbers from the running kernel's own list. The record does
not identify the packet.

A perf event of a tracepoint that belongs to one thread records what happens while that thread is current: in its system
calls, and in softirqs that run on top of it. So it records the packets that the thread sends over veth, which are
received before send(2) returns. It records nothing of other processes. It takes CAP_PERFMON over the machine
(perf_event_open(2)), which root in a user namespace lacks.

A tracepoint's number and the layout of its records stand in tracefs. The module reads them from a mount of its own that
is attached nowhere. So it does not depend on the machine's mount of tracefs, changes nothing there, and no other
process sees its mount.

While an event exists, the kernel has the tracepoint switched on in its code. Switching on takes milliseconds, and
switching off a grace period (perf_trace_event_unreg). So the first use opens the event, and a thread of its own closes
it. To start and stop recording takes microseconds.
"""

import fcntl
import mmap
import os
import re
import struct
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from threading import Thread
from typing import Final, NamedTuple, Self

from proxylab.errors import CapabilityError
from proxylab.kernel.netlink.links_carry import kernel_release
from proxylab.kernel.sandbox.linux import mount_detached, open_own_perf_event

# struct perf_event_attr (include/uapi/linux/perf_event.h), with its length since Linux 4.8. The clock stands at its
# end; the blank fields are unused.
_ATTRIBUTES: Final = struct.Struct("=IIQQQQQ44xi16x")
_PERF_TYPE_TRACEPOINT: Final = 2
_SAMPLE_PERIOD: Final = 1
_PERF_SAMPLE_TIME: Final = 1 << 2
_PERF_SAMPLE_RAW: Final = 1 << 10
_DISABLED: Final = 1 << 0
_USE_CLOCK: Final = 1 << 25
_IOC_ENABLE: Final = 0x2400
_IOC_DISABLE: Final = 0x2401

_RING_PAGES: Final = 16
_POSITIONS: Final = struct.Struct("=QQQQ")  # struct perf_event_mmap_page: data_head, data_tail, data_offset, data_size
_POSITIONS_AT: Final = 1024
_TAIL: Final = struct.Struct("=Q")
_TAIL_AT: Final = _POSITIONS_AT + 8

_HEADER: Final = struct.Struct("=IHH")  # struct perf_event_header: type, misc, size
_SAMPLE: Final = struct.Struct("=QI")  # the time, and the length of the record
_RECORD_SAMPLE: Final = 9

_FORMAT_BYTES: Final = 1 << 16
_SINCE: Final = (5, 17)
_FIELD: Final = re.compile(r"\tfield:[^;]*?(\w+);\toffset:(\d+);\tsize:(\d+);")
_REASON: Final = re.compile(r'\{ (\d+), "(\w+)" \}')
_NUMBERS: Final = {2: "=H", 4: "=I"}
_PREFIX: Final = "SKB_DROP_REASON_"
_NONE_GIVEN: Final = "NOT_SPECIFIED"
_FIELDS: Final = ("protocol", "reason")


class DropRecord(NamedTuple):
    """A record in the layout of the tracepoint's format, and its CLOCK_REALTIME in nanoseconds."""

    at_ns: int
    data: bytes


class _Tracepoint:
    """A tracepoint that records between ``listen`` and ``heard``. Only the thread that made it uses it."""

    def __init__(self, group: str, name: str) -> None:
        """Open the event.

        Raises:
            OSError: EPERM for any user but the machine's root; ENODEV without tracefs, ENOENT without the tracepoint.
        """
        tracefs = mount_detached("tracefs")
        try:
            number = int(_read(tracefs, f"events/{group}/{name}/id"))
            self.format = _read(tracefs, f"events/{group}/{name}/format")
        finally:
            os.close(tracefs)
        with ExitStack() as opened:
            self._event = open_own_perf_event(_attributes(number))
            opened.callback(os.close, self._event)
            self._ring = mmap.mmap(self._event, mmap.PAGESIZE * (1 + _RING_PAGES))
            opened.pop_all()

    def start(self) -> None:
        """Start recording, and discard earlier records."""
        self._take()
        fcntl.ioctl(self._event, _IOC_ENABLE, 0)

    def stop(self) -> list[DropRecord]:
        """Stop recording, and return the records; a full ring keeps the first ones."""
        fcntl.ioctl(self._event, _IOC_DISABLE, 0)
        offset = _realtime_minus_monotonic()
        return [DropRecord(at + offset, data) for at, data in records(self._take())]

    def close(self) -> None:
        """Close the event in a thread, since the kernel takes time to release it."""
        Thread(target=_close, args=(self._ring, self._event), name="closing a tracepoint").start()

    def _take(self) -> bytes:
        """The records in the ring. The kernel writes them only on top of this thread, so not now."""
        head, tail, start, size = _POSITIONS.unpack_from(self._ring, _POSITIONS_AT)
        whole = self._ring[start : start + size]
        begin, end = tail % size, head % size
        unread = whole[begin:end] if begin <= end and head - tail < size else whole[begin:] + whole[:end]
        _TAIL.pack_into(self._ring, _TAIL_AT, head)
        return unread


def records(ring: bytes) -> Iterator[tuple[int, bytes]]:
    """The tracepoint records in a ring: their time (CLOCK_MONOTONIC, ns) and their data."""
    at = 0
    while at + _HEADER.size <= len(ring):
        kind, _, size = _HEADER.unpack_from(ring, at)
        if not _HEADER.size <= size <= len(ring) - at:
            return
        if kind == _RECORD_SAMPLE:
            began, length = _SAMPLE.unpack_from(ring, at + _HEADER.size)
            data = at + _HEADER.size + _SAMPLE.size
            yield began, ring[data : data + length]
        at += size


def _attributes(number: int) -> bytes:
    """Record every hit of the tracepoint with its time. A perf event cannot use CLOCK_REALTIME here."""
    kinds = _PERF_SAMPLE_TIME | _PERF_SAMPLE_RAW
    flags = _DISABLED | _USE_CLOCK
    what = (_PERF_TYPE_TRACEPOINT, _ATTRIBUTES.size, number, _SAMPLE_PERIOD, kinds, 0, flags)
    return _ATTRIBUTES.pack(*what, time.CLOCK_MONOTONIC)


def _realtime_minus_monotonic() -> int:
    """CLOCK_REALTIME minus CLOCK_MONOTONIC, by the quickest of a few readings of both."""
    readings = []
    for _ in range(4):
        before, now, after = time.monotonic_ns(), time.time_ns(), time.monotonic_ns()
        readings.append((after - before, now - (before + after) // 2))
    return min(readings)[1]


def _read(directory: int, path: str) -> str:
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC, dir_fd=directory)
    try:
        return os.read(file, _FORMAT_BYTES).decode()
    finally:
        os.close(file)


def _close(ring: mmap.mmap, event: int) -> None:
    ring.close()
    os.close(event)


class Drop(NamedTuple):
    """One dropped packet: its protocol (an EtherType), the kernel's reason, and the time (CLOCK_REALTIME)."""

    protocol: int
    reason: str
    at_ns: int


class RecordLayout(NamedTuple):
    """Where a record has its fields, and the names of reasons by number."""

    protocol: tuple[struct.Struct, int]
    reason: tuple[struct.Struct, int]
    names: dict[int, str]

    @classmethod
    def read(cls, text: str) -> Self:
        """The layout that the kernel's ``format`` describes. Raises ``ValueError`` where it has no reasons."""
        offsets = {name: (int(offset), int(size)) for name, offset, size in _FIELD.findall(text)}
        try:
            protocol, reason = ((struct.Struct(_NUMBERS[offsets[name][1]]), offsets[name][0]) for name in _FIELDS)
        except KeyError as error:
            raise ValueError(f"skb:kfree_skb records no {error.args[0]}") from error
        names = {int(number): name.removeprefix(_PREFIX) for number, name in _REASON.findall(text)}
        return cls(protocol, reason, names)

    def drops(self, records: Iterable[DropRecord]) -> Iterator[Drop]:
        """The drops in records, without those for which the kernel gives no reason."""
        for at_ns, data in records:
            (protocol,), (number,) = (form.unpack_from(data, offset) for form, offset in (self.protocol, self.reason))
            reason = self.names.get(number, str(number))
            if reason != _NONE_GIVEN:
                yield Drop(protocol, reason, at_ns)


class DropReasons:
    """Records the packets that the kernel drops while this thread sends, between ``listen`` and ``heard``."""

    def __init__(self) -> None:
        """Read the kernel's list of reasons.

        Raises:
            CapabilityError: the kernel has no reasons, or this process may not read them.
        """
        # Older kernels have no reasons; there a second mount of tracefs could reset the options of the first.
        release = kernel_release()
        if release < _SINCE:
            raise _capability_error(f"kernel {os.uname().release}")
        try:
            self._tracepoint = _Tracepoint("skb", "kfree_skb")
        except OSError as error:
            raise _capability_error(str(error)) from error
        try:
            self._layout = RecordLayout.read(self._tracepoint.format)
        except ValueError as error:
            self._tracepoint.close()
            raise _capability_error(str(error)) from error

    @property
    def known(self) -> int:
        """How many reasons this kernel has."""
        return len(self._layout.names)

    def start(self) -> None:
        """Record every drop from now on."""
        self._tracepoint.start()

    def stop(self) -> tuple[Drop, ...]:
        """Stop recording, and return the drops."""
        return tuple(self._layout.drops(self._tracepoint.stop()))

    def close(self) -> None:
        """Close the tracepoint, without waiting for the kernel."""
        self._tracepoint.close()


def _capability_error(found: str) -> CapabilityError:
    return CapabilityError(
        f"the kernel's reasons for drops ({found})", "run as the machine's root, with kernel 5.17 or later and tracefs"
    )
