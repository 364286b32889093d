"""One tracepoint of the kernel, heard only while this thread runs.

Owns: ``Tracepoint``: its number and format, its event, and the ring of memory in which the kernel writes what happens.
Must not: know what a tracepoint tells, or change anything in tracefs, which is the machine's.

A perf event of a tracepoint that belongs to one thread is told of what happens while that thread is current, in its
system calls and in what softirqs do on its back: so of the packets that it sends over veth, which are received before
send(2) returns. What other processes meet it never hears. It takes CAP_PERFMON over the machine (perf_event_open(2)),
which root in a user namespace has not.

A tracepoint's number and the layout of what it records stand in tracefs. That is read from a mount that is attached
nowhere; whether and where the machine has one mounted does not matter, and nobody sees ours.

While an event exists the tracepoint is switched on in the kernel's code, which takes milliseconds, and taking it back a
grace period (perf_trace_event_unreg). So it is opened when it is first needed, and closed in a thread of its own; to
listen and to stop listening are microseconds.
"""

import fcntl
import mmap
import os
import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack
from threading import Thread
from typing import Final, NamedTuple

from proxylab.kernel.sandbox.linux import mount_detached, open_own_perf_event

__all__ = ["Record", "Tracepoint", "records"]

# struct perf_event_attr (include/uapi/linux/perf_event.h), of the length that it has had since Linux 4.8.
# The clock stands at its end; what is left blank is not used.
_ATTRIBUTES: Final = struct.Struct("=IIQQQQQ44xi16x")
_PERF_TYPE_TRACEPOINT: Final = 2
_EVERY_ONE: Final = 1
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
_SAMPLE: Final = struct.Struct("=QI")  # the time, and the length of what the tracepoint recorded
_RECORD_SAMPLE: Final = 9

_FORMAT_BYTES: Final = 1 << 16


class Record(NamedTuple):
    """What a tracepoint recorded, as its format lays it out, and when: CLOCK_REALTIME in nanoseconds."""

    at_ns: int
    data: bytes


class Tracepoint:
    """A tracepoint, silent until told to ``listen``; used by the thread that made it."""

    def __init__(self, group: str, name: str) -> None:
        """Open its event.

        Raises:
            OSError: EPERM where this is not the machine's root; ENODEV without tracefs, ENOENT without the tracepoint.
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

    def listen(self) -> None:
        """Record from now on. What was recorded before is forgotten."""
        self._take()
        fcntl.ioctl(self._event, _IOC_ENABLE, 0)

    def heard(self) -> list[Record]:
        """Record no more, and return what was recorded; of more than the ring holds, the first."""
        fcntl.ioctl(self._event, _IOC_DISABLE, 0)
        since_boot = _realtime_of_boot()
        return [Record(at + since_boot, data) for at, data in records(self._take())]

    def close(self) -> None:
        """Close the event. Does not wait until the kernel has let go of it: a thread does."""
        Thread(target=_close, args=(self._ring, self._event), name="closing a tracepoint").start()

    def _take(self) -> bytes:
        """What the ring holds. The kernel writes to it on this thread's back only, so not now."""
        head, tail, start, size = _POSITIONS.unpack_from(self._ring, _POSITIONS_AT)
        whole = self._ring[start : start + size]
        begin, end = tail % size, head % size
        held = whole[begin:end] if begin <= end and head - tail < size else whole[begin:] + whole[:end]
        _TAIL.pack_into(self._ring, _TAIL_AT, head)
        return held


def records(ring: bytes) -> Iterator[tuple[int, bytes]]:
    """Of records as the kernel writes them those of tracepoints: their time (CLOCK_MONOTONIC, ns) and their data."""
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
    """Every time that the tracepoint is met, with its time. No clock that it may use is the day's."""
    kinds = _PERF_SAMPLE_TIME | _PERF_SAMPLE_RAW
    flags = _DISABLED | _USE_CLOCK
    what = (_PERF_TYPE_TRACEPOINT, _ATTRIBUTES.size, number, _EVERY_ONE, kinds, 0, flags)
    return _ATTRIBUTES.pack(*what, time.CLOCK_MONOTONIC)


def _realtime_of_boot() -> int:
    """What CLOCK_REALTIME is ahead of CLOCK_MONOTONIC, by the quickest of a few readings of both."""
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
