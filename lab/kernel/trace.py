"""What a node's rules do to one packet, as the kernel tells it while it happens.

Owns: the table that marks packets to be traced, and the reading of what the rules of legacy iptables then log.
Must not: touch the rules under test, or know what a rule says.

A packet is marked by ``meta nftrace set 1`` in an nf_tables table of our own, at priority -350, before every table of
iptables (raw is at -300). The mark is a bit of the packet (``skb->nf_trace``) that x_tables honours as well: each rule
that matches, each return and each policy is logged as ``TRACE: table:chain:kind:number`` with the packet as it is at
that moment (``trace_packet`` in net/ipv4/netfilter/ip_tables.c). The default logger stays silent outside the machine's
own namespace (net.netfilter.nf_log_all_netns), so the log is bound to NFNETLINK_LOG, group 0, which is per namespace.
A packet that leaves over a veth loses the mark (``skb_scrub_packet``); the next node marks it anew.
"""

import errno
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from lab.errors import CapabilityError
from lab.kernel import attributes as nla
from lab.kernel.netns import NetNs
from lab.kernel.nflog import Logged, PacketLog
from lab.kernel.nftables import Hook, OwnTable, equal, expression, number

__all__ = ["Bytes", "Match", "TraceEvent", "Tracer"]

_PREROUTING, _OUTPUT = 0, 3
_PRIORITY: Final = -350
_TABLE: Final = "proxylab-trace"
_CHAINS: Final = {"prerouting": Hook(_PREROUTING, _PRIORITY), "output": Hook(_OUTPUT, _PRIORITY)}
_LOG_GROUP: Final = 0  # where x_tables logs what is traced

# include/uapi/linux/netfilter/nf_tables.h
_TRANSPORT_HEADER: Final = 2  # NFT_PAYLOAD_TRANSPORT_HEADER
_REGISTER_1: Final = 1
_META_NFTRACE: Final = 12
_META_L4PROTO: Final = 16


@dataclass(frozen=True, slots=True)
class Bytes:
    """Bytes at an offset from the start of the transport header."""

    offset: int
    value: bytes


@dataclass(frozen=True, slots=True)
class Match:
    """Packets to be traced: their protocol number (IANA), and bytes that all must be there."""

    protocol: int
    bytes: tuple[Bytes, ...]


@dataclass(frozen=True, slots=True)
class TraceEvent:
    """One line of a trace.

    ``prefix`` is the log's own, without ``TRACE:``; ``packet`` begins with the IP header. ``at_ns`` is CLOCK_REALTIME,
    0 behind the FORWARD hook, where the kernel does not tell it. Device indexes are 0 where there is none.
    """

    prefix: str
    packet: bytes
    mark: int
    in_index: int
    out_index: int
    at_ns: int


class Tracer:
    """Traces packets in one node. Silent until armed."""

    def __init__(self, netns: NetNs) -> None:
        """Make the table and bind the log.

        Raises:
            CapabilityError: the kernel has no nf_tables or no NFNETLINK_LOG for this namespace.
        """
        try:
            self._log = PacketLog(netns, _LOG_GROUP)
            try:
                self._table = OwnTable(netns, _TABLE, _CHAINS)
            except OSError:
                self._log.close()
                raise
        except OSError as error:
            raise CapabilityError(
                f"tracing of packets in a network namespace ({error})",
                "as root: 'modprobe -a nf_tables nfnetlink_log'",
            ) from error

    def arm(self, matches: Sequence[Match]) -> None:
        """Trace packets of any of ``matches`` from now on. What was logged before is forgotten."""
        self._log.read()
        self._log.lost()
        self._table.append([_rule(match) for match in matches])

    def disarm(self) -> None:
        """Trace nothing any more."""
        self._table.clear()

    def read(self) -> list[TraceEvent]:
        """What has been logged since this was last asked, in order. Never waits.

        Raises:
            OSError: ENOBUFS if the log did not fit its buffer: then the trace is not whole.
        """
        events = [_event(logged) for logged in self._log.read()]
        if self._log.lost():
            raise OSError(errno.ENOBUFS, os.strerror(errno.ENOBUFS))
        return events

    def close(self) -> None:
        """Close log and table."""
        self._table.close()
        self._log.close()


def _event(logged: Logged) -> TraceEvent:
    return TraceEvent(
        prefix=logged.prefix.removeprefix("TRACE: ").strip(),
        packet=logged.packet,
        mark=logged.mark,
        in_index=logged.in_index,
        out_index=logged.out_index,
        at_ns=logged.at_ns,
    )


def _rule(match: Match) -> list[bytes]:
    register = number(1, _REGISTER_1)
    expressions = [*equal(expression("meta", register, number(2, _META_L4PROTO)), bytes([match.protocol]))]
    for wanted in match.bytes:
        place = (number(2, _TRANSPORT_HEADER), number(3, wanted.offset), number(4, len(wanted.value)))
        expressions += equal(expression("payload", register, *place), wanted.value)
    expressions.append(expression("immediate", register, nla.nested(2, nla.raw(1, b"\1"))))
    expressions.append(expression("meta", number(2, _META_NFTRACE), number(3, _REGISTER_1)))
    return expressions
