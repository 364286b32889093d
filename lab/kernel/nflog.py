"""Packets that rules log, read by netlink instead of from the machine's system log.

Owns: binding a group of NFNETLINK_LOG in one namespace, and reading its messages
(include/uapi/linux/netfilter/nfnetlink_log.h).
Must not: make a rule that logs; whoever wants packets says ``log group N`` (nft) or ``-j NFLOG --nflog-group N``.

Group 0 of the namespace is also what legacy iptables' ``TRACE`` speaks to once the log is bound for a protocol family:
the default logger stays silent outside the machine's own namespace (net.netfilter.nf_log_all_netns).
"""

import os
import socket
import struct
from dataclasses import dataclass
from typing import Final

from lab.errors import CapabilityError
from lab.kernel import attributes as nla
from lab.kernel.framing import HEADER, messages, nested
from lab.kernel.netns import NetNs, inside

__all__ = ["LoggedPacket", "PacketLog"]

_NETLINK_NETFILTER: Final = 12
_NLM_F_REQUEST: Final = 0x1
_NLM_F_ACK: Final = 0x4
_NLMSG_ERROR: Final = 2
_SUBSYS_ULOG: Final = 4 << 8
_LOG_PACKET: Final = _SUBSYS_ULOG | 0
_LOG_CONFIG: Final = _SUBSYS_ULOG | 1
_CONFIG_COMMAND, _CONFIG_MODE, _CONFIG_THRESHOLD = 1, 2, 5
_BIND: Final = 1
_PF_BIND: Final = 3
_COPY_PACKET: Final = 2
_COPY_BYTES: Final = 0xFFFF
_MARK, _TIMESTAMP, _IN_INDEX, _OUT_INDEX, _PAYLOAD, _PREFIX = 2, 3, 4, 5, 9, 10

_TIME: Final = struct.Struct("!QQ")
_BUFFER: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class LoggedPacket:
    """One packet as it was when a rule logged it.

    ``packet`` begins with the IP header. ``at_ns`` is CLOCK_REALTIME, 0 at and behind OUTPUT, where the kernel does not
    tell it. Device indexes are 0 where there is none.
    """

    prefix: str
    packet: bytes
    mark: int
    in_index: int
    out_index: int
    at_ns: int


class PacketLog:
    """One group of one namespace's packet log. A namespace has each group once."""

    def __init__(self, netns: NetNs, group: int) -> None:
        """Bind the group; nothing that was logged before is told.

        Raises:
            CapabilityError: the kernel has no NFNETLINK_LOG, or somebody else has the group (EBUSY).
        """
        with inside(netns):
            self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _NETLINK_NETFILTER)
        try:
            self._bind(group)
        except OSError as error:
            self._socket.close()
            raise CapabilityError(
                f"the log of packets in a network namespace ({error})", "as root: 'modprobe nfnetlink_log'"
            ) from error

    def read(self) -> list[LoggedPacket]:
        """What has been logged since this was last asked, in order. Never waits.

        Raises:
            OSError: ENOBUFS if it did not fit the socket's buffer: then something is missing.
        """
        found: list[LoggedPacket] = []
        while True:
            try:
                data = self._socket.recv(_BUFFER)
            except BlockingIOError:
                return found
            found += (_logged(body) for kind, _, _, body in messages(data) if kind == _LOG_PACKET)

    def close(self) -> None:
        """Close the socket, and with it the group."""
        self._socket.close()

    def _bind(self, group: int) -> None:
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER)
        for family in (socket.AF_INET, socket.AF_INET6):
            self._configure(family, 0, nla.raw(_CONFIG_COMMAND, bytes([_PF_BIND])))
        self._configure(socket.AF_UNSPEC, group, nla.raw(_CONFIG_COMMAND, bytes([_BIND])))
        # Every packet whole, and told at once rather than with others.
        whole = nla.raw(_CONFIG_MODE, struct.pack("!IBx", _COPY_BYTES, _COPY_PACKET))
        self._configure(socket.AF_UNSPEC, group, whole + nla.raw(_CONFIG_THRESHOLD, struct.pack("!I", 1)))
        self._socket.setblocking(False)

    def _configure(self, family: int, group: int, attributes: bytes) -> None:
        """One request, and its answer: the socket hears nothing else yet."""
        body = struct.pack("!BBH", family, 0, group) + attributes
        header = HEADER.pack(HEADER.size + len(body), _LOG_CONFIG, _NLM_F_REQUEST | _NLM_F_ACK, 1, 0)
        self._socket.send(header + body)
        for kind, _, _, answer in messages(self._socket.recv(_BUFFER)):
            if kind == _NLMSG_ERROR and (code := -int(struct.unpack_from("=i", answer)[0])):
                raise OSError(code, os.strerror(code))


def _logged(body: bytes) -> LoggedPacket:
    """``struct nfgenmsg`` and the attributes of NFULNL_MSG_PACKET."""
    found = nested(body, 4)
    seconds, microseconds = _TIME.unpack(found[_TIMESTAMP]) if _TIMESTAMP in found else (0, 0)
    return LoggedPacket(
        prefix=found.get(_PREFIX, b"").rstrip(b"\0").decode(errors="replace"),
        packet=found.get(_PAYLOAD, b""),
        mark=int.from_bytes(found.get(_MARK, b""), "big"),
        in_index=int.from_bytes(found.get(_IN_INDEX, b""), "big"),
        out_index=int.from_bytes(found.get(_OUT_INDEX, b""), "big"),
        at_ns=(seconds * 1_000_000 + microseconds) * 1000,
    )
