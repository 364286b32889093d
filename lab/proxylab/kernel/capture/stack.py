"""Captures what the programs of a namespace send and receive, before and after all rules of their own kernel.

A packet of a node's own program passes OUTPUT before any device sees it, and the lab must show what a proxy's rules do
there. So ``StackTap`` has nf_tables chains of its own. In OUTPUT it stands at priority -350, before connection tracking
(-200) and every table of iptables (raw is at -300), where a packet is as its program sent it. In INPUT it stands at
350, after all of them (source translation is at 100), where a packet is as a program will receive it. Both log to
NFNETLINK_LOG. The tap does not see a packet that a rule of INPUT drops, and no program receives it. Nor does it see in
OUTPUT what IPVS passes on: no program has sent that.

The tap sends through raw sockets (raw(7)), whose packets pass OUTPUT as a program's do. An AF_PACKET socket sends
below OUTPUT.

In OUTPUT the kernel gives no time. A packet there bears the time of the latest ``settle``.
"""

import errno
import socket
import time
from contextlib import ExitStack
from typing import Final

from proxylab.errors import CapabilityError
from proxylab.kernel.capture.batches import Frame
from proxylab.kernel.netfilter.nflog import Logged, PacketLog
from proxylab.kernel.netfilter.nft_expressions import MATCH_SENT_HERE, log
from proxylab.kernel.netfilter.nft_tables import INPUT, OUTPUT, ChainHook, OwnTable
from proxylab.kernel.sandbox.netns import NetNs, inside

_TABLE: Final = "proxylab-stack"
_CHAINS: Final = {"output": ChainHook(OUTPUT, -350), "input": ChainHook(INPUT, 350)}
_LOG_GROUP: Final = 1  # group 0 is the tracer's

_ETHERNET_BYTES: Final = 14
_NO_LINK_HEADER: Final = {4: bytes(12) + b"\x08\x00", 6: bytes(12) + b"\x86\xdd"}
_DESTINATION: Final = {4: slice(16, 20), 6: slice(24, 40)}
_SOCKET_FAMILY: Final = {4: socket.AF_INET, 6: socket.AF_INET6}


class StackTap:
    """A tap on a namespace's own stack, with the interface of ``Tap``. Never blocks."""

    def __init__(self, netns: NetNs, netns_name: str, device: str) -> None:
        """Open the tap. Observations name it by ``netns_name`` and ``device``.

        Raises:
            CapabilityError: the kernel has no nf_tables or no NFNETLINK_LOG for this namespace.
            OSError: the kernel opens no raw socket. In either case nothing stays open.
        """
        self.netns_name = netns_name
        self.device = device
        self._settled_at = time.time_ns()
        self._senders: dict[int, socket.socket] = {}
        with ExitStack() as opened:
            try:
                self._log = PacketLog(netns, _LOG_GROUP)
                opened.callback(self._log.close)
                self._table = OwnTable(netns, _TABLE, _CHAINS)
                opened.callback(self._table.close)
                self._table.append([[*MATCH_SENT_HERE, log(_LOG_GROUP)]], "output")
                self._table.append([[log(_LOG_GROUP)]], "input")
            except OSError as error:
                raise CapabilityError(
                    f"capturing what the programs of a node send and receive ({error})",
                    "as root: 'modprobe -a nf_tables nft_log nfnetlink_log'",
                ) from error
            opened.callback(self._close_senders)
            self._open_senders(netns)
            opened.pop_all()
        self.buffer_bytes = self._log.buffer_bytes

    def fileno(self) -> int:
        """The descriptor, readable while packets wait."""
        return self._log.fileno()

    def drain(self) -> list[Frame]:
        """The waiting packets, oldest first, each after an empty link header."""
        return [self._frame(logged) for logged in self._log.read() if logged.packet]

    def settle(self) -> None:
        """Note the time: the caller has drained this tap and all others."""
        self._settled_at = time.time_ns()

    def take_lost(self) -> int:
        """How many packets were lost since the last call."""
        return self._log.take_lost()

    def forget(self) -> None:
        """Leave out all packets so far, and count no loss of them later."""
        self._log.forget()

    def send(self, frame: bytes) -> None:
        """Send the packet of a frame as a program would, without its link header.

        Raises:
            OSError: EPERM where a rule of OUTPUT drops it, ENETUNREACH without a route, EMSGSIZE above the MTU.
        """
        packet = frame[_ETHERNET_BYTES:]
        version = packet[0] >> 4
        sender = self._senders[version]
        sender.sendto(packet, (socket.inet_ntop(sender.family, packet[_DESTINATION[version]]), 0))

    def close(self) -> None:
        """Close all sockets, which removes the chains."""
        self._table.close()
        self._log.close()
        self._close_senders()

    def _open_senders(self, netns: NetNs) -> None:
        with inside(netns):
            for version, family in _SOCKET_FAMILY.items():
                try:
                    kind = socket.SOCK_RAW | socket.SOCK_NONBLOCK
                    self._senders[version] = socket.socket(family, kind, socket.IPPROTO_RAW)
                except OSError as error:
                    if error.errno != errno.EAFNOSUPPORT:
                        raise
                    # A kernel without IPv6 sends no IPv6 packets.

    def _close_senders(self) -> None:
        for sender in self._senders.values():
            sender.close()

    def _frame(self, logged: Logged) -> Frame:
        header = _NO_LINK_HEADER.get(logged.packet[0] >> 4, b"")
        return Frame(header + logged.packet, logged.hook == OUTPUT, logged.at_ns or self._settled_at)
