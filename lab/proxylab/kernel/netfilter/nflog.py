"""Packets that rules log (NFNETLINK_LOG, include/uapi/linux/netfilter/nfnetlink_log.h).

A log group belongs to one network namespace and to the socket that bound it. The kernel numbers the packets of a group
(NFULNL_CFG_F_SEQ), so ``PacketLog`` counts exactly the packets that did not fit into the socket's buffer.
"""

import errno
import socket
import struct
from typing import Final

from msgspec import Struct

from proxylab.kernel.netfilter import attributes as nla
from proxylab.kernel.netfilter.nfnetlink import NLM_F_ACK, expect, message, messages, nested, open_netfilter
from proxylab.kernel.netlink.buffers import raise_receive_buffer
from proxylab.kernel.sandbox.netns import NetNs, inside

_SUBSYS_ULOG: Final = 4 << 8
_LOG_PACKET: Final = _SUBSYS_ULOG | 0
_LOG_CONFIG: Final = _SUBSYS_ULOG | 1
_CONFIG_COMMAND, _CONFIG_MODE, _CONFIG_QUEUE_THRESHOLD, _CONFIG_FLAGS = 1, 2, 5, 6
_BIND, _BIND_FAMILY = 1, 3
_PACKET_HEADER, _MARK, _TIMESTAMP, _IN_INDEX, _OUT_INDEX, _PAYLOAD, _PREFIX, _SEQUENCE = 1, 2, 3, 4, 5, 9, 10, 12
_COPY_PACKET: Final = 2
_COPY_BYTES: Final = 0xFFFF
_FLAG_SEQUENCE: Final = 1
_TIME: Final = struct.Struct("!QQ")  # seconds, microseconds
_ETHERTYPE_AND_HOOK: Final = struct.Struct("!HB")  # struct nfulnl_msg_packet_hdr
_READ_BYTES: Final = 1 << 20
_SOCKET_BYTES: Final = 16 << 20  # of the socket, in bytes of truesize


class Logged(Struct, frozen=True):
    """One packet that a rule logged.

    ``packet`` begins with the IP header. ``at_ns`` is CLOCK_REALTIME, and 0 in OUTPUT and POSTROUTING, where the kernel
    gives no time. A device index is 0 where there is no device.
    """

    hook: int
    prefix: str
    packet: bytes
    mark: int
    in_index: int
    out_index: int
    at_ns: int


class PacketLog:
    """One log group of one namespace. Reads never block."""

    def __init__(self, netns: NetNs, group: int) -> None:
        """Bind the group.

        Raises:
            OSError: the kernel has no NFNETLINK_LOG for this namespace, or another socket has bound the group (EBUSY).
        """
        with inside(netns):
            self._socket = open_netfilter()
        self._group = group
        self._sequence = 0
        self._next: int | None = None
        self._lost = 0
        self._overrun = False
        try:
            self._begin()
        except OSError:
            self.close()
            raise

    def fileno(self) -> int:
        """The descriptor, readable while packets wait."""
        return self._socket.fileno()

    @property
    def buffer_bytes(self) -> int:
        """The capacity of the socket, in bytes of ``truesize``."""
        return self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)

    def read(self) -> list[Logged]:
        """The packets logged since the last call, in order."""
        found: list[Logged] = []
        while True:
            try:
                data = self._socket.recv(_READ_BYTES)
            except BlockingIOError:
                return found
            except OSError as error:
                if error.errno != errno.ENOBUFS:
                    raise
                self._overrun = True
                continue
            found += (self._logged(each.body) for each in messages(data) if each.kind == _LOG_PACKET)

    def take_lost(self) -> int:
        """How many packets were lost since the last call, by the sequence numbers read so far."""
        lost = max(self._lost, int(self._overrun))  # no later sequence number shows the loss of the last packets
        self._lost, self._overrun = 0, False
        return lost

    def forget(self) -> None:
        """Leave out all packets so far, also the lost ones that the number of a later packet would show."""
        self.read()
        self._lost, self._overrun, self._next = 0, False, None

    def close(self) -> None:
        """Close the socket, which releases the group."""
        self._socket.close()

    def _begin(self) -> None:
        raise_receive_buffer(self._socket, _SOCKET_BYTES)
        for family in (socket.AF_INET, socket.AF_INET6):
            self._configure(family, 0, nla.raw(_CONFIG_COMMAND, bytes([_BIND_FAMILY])))
        self._configure(socket.AF_UNSPEC, self._group, nla.raw(_CONFIG_COMMAND, bytes([_BIND])))
        at_once = nla.number(_CONFIG_QUEUE_THRESHOLD, 1)
        mode = nla.raw(_CONFIG_MODE, struct.pack("!IBx", _COPY_BYTES, _COPY_PACKET))
        self._configure(socket.AF_UNSPEC, self._group, mode + at_once + nla.short(_CONFIG_FLAGS, _FLAG_SEQUENCE))
        self._socket.setblocking(False)

    def _configure(self, family: int, group: int, attributes: bytes) -> None:
        """Send one request and read its acknowledgement, the only message at this time."""
        self._sequence += 1
        body = struct.pack("!BBH", family, 0, group) + attributes
        self._socket.send(message(_LOG_CONFIG, NLM_F_ACK, self._sequence, body))
        expect(self._socket, 1)

    def _logged(self, body: bytes) -> Logged:
        """``struct nfgenmsg`` and attributes of NFULNL_MSG_PACKET."""
        found = nested(body, 4)
        serial = int.from_bytes(found.get(_SEQUENCE, b""), "big")
        if self._next is not None:
            self._lost += (serial - self._next) & 0xFFFFFFFF
        self._next = (serial + 1) & 0xFFFFFFFF
        seconds, microseconds = _TIME.unpack(found[_TIMESTAMP]) if _TIMESTAMP in found else (0, 0)
        return Logged(
            hook=_ETHERTYPE_AND_HOOK.unpack_from(found[_PACKET_HEADER])[1] if _PACKET_HEADER in found else 0,
            prefix=found.get(_PREFIX, b"").rstrip(b"\0").decode(errors="replace"),
            packet=found.get(_PAYLOAD, b""),
            mark=int.from_bytes(found.get(_MARK, b""), "big"),
            in_index=int.from_bytes(found.get(_IN_INDEX, b""), "big"),
            out_index=int.from_bytes(found.get(_OUT_INDEX, b""), "big"),
            at_ns=(seconds * 1_000_000 + microseconds) * 1000,
        )
