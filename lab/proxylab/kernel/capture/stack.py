"""What the programs of a namespace send and get: a tap between them and every rule of their own kernel.

Owns: ``StackTap``, which hears and speaks like the ``Tap`` of a device.
Must not: dissect packets, or decide which namespaces have one.

A packet of a node's own program has passed OUTPUT before any device sees it, and what a proxy's rules do there is just
what is to be shown. So this tap stands in nf_tables chains of its own: in OUTPUT at priority -350, before connection
tracking (-200) and every table of iptables (raw is at -300), where a packet is as its program sent it; and in INPUT at
350, behind all of them (source translation is at 100), where it is as a program will get it. Both log to NFNETLINK_LOG.
What a rule of INPUT drops is not seen, and has not been got.

It sends through raw sockets (raw(7)), whose packets pass OUTPUT as a program's do; an AF_PACKET socket sends below it.

In OUTPUT the kernel tells no time. Whatever has left since the tap was last told to ``settle`` bears the time of that.
"""

import errno
import socket
import time
from contextlib import ExitStack
from typing import Final

from proxylab.errors import CapabilityError
from proxylab.kernel.capture.batches import Frame
from proxylab.kernel.netfilter.nflog import Logged, PacketLog
from proxylab.kernel.netfilter.nftables import Hook, OwnTable, expression
from proxylab.kernel.netlink import attributes as nla
from proxylab.kernel.sandbox.netns import NetNs, inside

__all__ = ["StackTap"]

_INPUT, _OUTPUT = 1, 3
_TABLE: Final = "proxylab-stack"
_CHAINS: Final = {"output": Hook(_OUTPUT, -350), "input": Hook(_INPUT, 350)}
_LOG_GROUP: Final = 1  # group 0 is the tracer's

_ETHERNET_BYTES: Final = 14
_NO_LINK_HEADER: Final = {4: bytes(12) + b"\x08\x00", 6: bytes(12) + b"\x86\xdd"}
_DESTINATION: Final = {4: slice(16, 20), 6: slice(24, 40)}
_SOCKET_FAMILY: Final = {4: socket.AF_INET, 6: socket.AF_INET6}


class StackTap:
    """Ears and a mouth in a namespace's own stack. Non-blocking throughout."""

    def __init__(self, netns: NetNs, netns_name: str, device: str) -> None:
        """A tap that observations will name by ``netns_name`` and ``device``.

        Raises:
            CapabilityError: the kernel has no nf_tables or no NFNETLINK_LOG for this namespace.
            OSError: it gives no socket to send by. In either case nothing stays open.
        """
        self.netns_name = netns_name
        self.device = device
        self._settled_at = time.time_ns()
        self._mouths: dict[int, socket.socket] = {}
        with ExitStack() as opened:
            try:
                self._log = PacketLog(netns, _LOG_GROUP)
                opened.callback(self._log.close)
                self._table = OwnTable(netns, _TABLE, _CHAINS)
                opened.callback(self._table.close)
                self._table.append([[expression("log", nla.short(1, _LOG_GROUP))]])
            except OSError as error:
                raise CapabilityError(
                    f"seeing what the programs of a node send and get ({error})",
                    "as root: 'modprobe -a nf_tables nft_log nfnetlink_log'",
                ) from error
            opened.callback(self._close_mouths)
            self._open_mouths(netns)
            opened.pop_all()
        self.buffer_bytes = self._log.buffer_bytes

    def fileno(self) -> int:
        """The descriptor that is readable while packets wait."""
        return self._log.fileno()

    def drain(self) -> list[Frame]:
        """The packets that wait, oldest first, each behind an empty link header."""
        return [self._frame(logged) for logged in self._log.read() if logged.packet]

    def settle(self) -> None:
        """All that has left until now has been drained, at this tap and at every other."""
        self._settled_at = time.time_ns()

    def lost(self) -> int:
        """How many packets were not kept since this was last asked."""
        return self._log.lost()

    def send(self, frame: bytes) -> None:
        """Send the packet of a frame as a program would; its link header is not used.

        Raises:
            OSError: EPERM where a rule of OUTPUT drops it, ENETUNREACH without a route, EMSGSIZE above the MTU.
        """
        packet = frame[_ETHERNET_BYTES:]
        version = packet[0] >> 4
        mouth = self._mouths[version]
        mouth.sendto(packet, (socket.inet_ntop(mouth.family, packet[_DESTINATION[version]]), 0))

    def close(self) -> None:
        """Close all sockets; the chains go with theirs."""
        self._table.close()
        self._log.close()
        self._close_mouths()

    def _open_mouths(self, netns: NetNs) -> None:
        with inside(netns):
            for version, family in _SOCKET_FAMILY.items():
                try:
                    kind = socket.SOCK_RAW | socket.SOCK_NONBLOCK
                    self._mouths[version] = socket.socket(family, kind, socket.IPPROTO_RAW)
                except OSError as error:
                    if error.errno != errno.EAFNOSUPPORT:
                        raise
                    # A kernel without IPv6 has no packet of it to send either.

    def _close_mouths(self) -> None:
        for mouth in self._mouths.values():
            mouth.close()

    def _frame(self, logged: Logged) -> Frame:
        header = _NO_LINK_HEADER.get(logged.packet[0] >> 4, b"")
        return Frame(header + logged.packet, logged.hook == _OUTPUT, logged.at_ns or self._settled_at)
