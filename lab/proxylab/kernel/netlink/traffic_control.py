"""What tc(8) and XDP have put on the devices of a namespace: filters, queues that tc made, and programs.

The queues in which netfilter holds packets for a program (NFQUEUE) are among them, under the device ``netfilter``.

The module reads which there are, and no filter's meaning: a filter of tc may drop, redirect, copy or rewrite a packet
before netfilter sees it or behind it, and so may an XDP program, before any packet socket does. What a device has by
itself, such as a veth's ``noqueue``, has the handle 0, which tc gives no queue.

Dumps are read as bytes: each probe reads them twice on each node, and pyroute2 needs milliseconds for their statistics.
"""

import errno
import os
import socket
import struct
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from msgspec import Struct

from proxylab.kernel.netfilter import attributes as nla
from proxylab.kernel.netfilter.nfnetlink import NetfilterSocket, nested
from proxylab.kernel.sandbox.netns import NetNs, inside

# include/uapi/linux/rtnetlink.h, if_link.h, pkt_sched.h, gen_stats.h
_GET_LINK: Final = 18
_GET_QUEUE: Final = 38
_GET_FILTER: Final = 46
_LINK: Final = struct.Struct("=BxHiII")  # struct ifinfomsg: its third field is the index
_TC: Final = struct.Struct("=BxxxiIII")  # struct tcmsg: family, index, handle, parent, info
_QUEUE_COUNTS: Final = struct.Struct("=III")  # struct gnet_stats_queue: packets that wait, their bytes, drops
_NAME, _MASK, _XDP, _XDP_ATTACHED = 3, 29, 43, 2
_WITHOUT_STATISTICS: Final = 1 << 3  # RTEXT_FILTER_SKIP_STATS
_KIND, _STATISTICS, _OF_QUEUE = 1, 7, 3
_WAYS: Final = {"ingress": 0xFFFFFFF2, "egress": 0xFFFFFFF3}
# net/netfilter/nfnetlink_queue.c, seq_show: each line has a queue's number, its program, and the packets that wait.
_FOR_PROGRAMS: Final = "/proc/thread-self/net/netfilter/nfnetlink_queue"
_FILE_BYTES: Final = 1 << 16
_OF_CLASSIFIERS: Final = frozenset({"clsact", "ingress"})


class Filter(Struct, frozen=True):
    """A filter of tc: its device, its way (``ingress`` or ``egress``), its preference, and its kind such as ``bpf``."""

    device: str
    way: str
    preference: int
    kind: str


class Queue(Struct, frozen=True):
    """A queue that tc made: its device, handle and kind, the packets that wait in it, and those that it dropped."""

    device: str
    handle: int
    kind: str
    waiting: int
    dropped: int


class XdpProgram(Struct, frozen=True):
    """An XDP program on a device."""

    device: str


class TrafficControl:
    """Reads the devices of one namespace."""

    def __init__(self, netns: NetNs) -> None:
        with inside(netns):
            opened = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE)
            self._for_programs = -1
            with suppress(FileNotFoundError):  # a kernel without CONFIG_NETFILTER_NETLINK_QUEUE
                self._for_programs = os.open(_FOR_PROGRAMS, os.O_RDONLY | os.O_CLOEXEC)
        self._dump = NetfilterSocket(opened)

    def read(self) -> list[Filter | Queue | XdpProgram]:
        """All of them, most often none. Raises ``OSError``."""
        found: list[Filter | Queue | XdpProgram] = []
        devices: dict[int, str] = {}
        body = _LINK.pack(0, 0, 0, 0, 0) + nla.raw(_MASK, struct.pack("=I", _WITHOUT_STATISTICS))
        for link in self._dump.all(_GET_LINK, body):
            content = nested(link, _LINK.size)
            device = devices[_LINK.unpack_from(link)[2]] = content[_NAME].rstrip(b"\0").decode(errors="replace")
            if any(nested(content.get(_XDP, b"")).get(_XDP_ATTACHED, b"")):
                found.append(XdpProgram(device))
        for queue in self._queues():
            _, index, handle, _, _ = _TC.unpack_from(queue)
            if not handle:
                continue
            content = nested(queue, _TC.size)
            kind = content[_KIND].rstrip(b"\0").decode()
            if kind in _OF_CLASSIFIERS:
                found += dict.fromkeys(self._filters(index, devices.get(index, "")))
            else:
                waiting, _, dropped = _QUEUE_COUNTS.unpack_from(nested(content[_STATISTICS])[_OF_QUEUE])
                found.append(Queue(devices.get(index, ""), handle, kind, waiting, dropped))
        return found + list(self._queues_for_programs())

    def _queues_for_programs(self) -> Iterator[Queue]:
        text = b"" if self._for_programs < 0 else os.pread(self._for_programs, _FILE_BYTES, 0)
        for line in text.splitlines():
            number, _, waiting, _, _, dropped, *_ = map(int, line.split())
            yield Queue("netfilter", number, f"NFQUEUE {number}", waiting, dropped)

    def _queues(self) -> list[bytes]:
        try:
            return self._dump.all(_GET_QUEUE, _TC.pack(0, 0, 0, 0, 0))
        except OSError as error:
            if error.errno == errno.EOPNOTSUPP:  # a kernel without CONFIG_NET_SCHED
                return []
            raise

    def _filters(self, index: int, device: str) -> Iterator[Filter]:
        for way, parent in _WAYS.items():
            for each in self._dump.all(_GET_FILTER, _TC.pack(0, index, 0, parent, 0)):
                preference = _TC.unpack_from(each)[4] >> 16
                yield Filter(device, way, preference, nested(each, _TC.size)[_KIND].rstrip(b"\0").decode())

    def close(self) -> None:
        """Close the socket and the file."""
        self._dump.close()
        if self._for_programs >= 0:
            os.close(self._for_programs)
            self._for_programs = -1
