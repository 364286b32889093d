"""What a node's rules do to one packet, as the kernel tells it while it happens.

Owns: the table that marks packets to be traced, and the reading of what the rules of legacy iptables then log.
Must not: touch the rules under test, or know what a rule says.

A packet is marked by ``meta nftrace set 1`` in an nf_tables table of our own, at priority -350, before every table of
iptables (raw is at -300). The mark is a bit of the packet (``skb->nf_trace``) that x_tables honours as well: each rule
that matches, each return and each policy is logged as ``TRACE: table:chain:kind:number`` with the packet as it is at
that moment (``trace_packet`` in net/ipv4/netfilter/ip_tables.c). The default logger stays silent outside the machine's
own namespace (net.netfilter.nf_log_all_netns), so the log is bound to NFNETLINK_LOG, group 0, which is per namespace.
A packet that leaves over a veth loses the mark (``skb_scrub_packet``); the next node marks it anew.

The table belongs to its socket (NFT_TABLE_F_OWNER) and goes with it.
"""

import os
import socket
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from lab.errors import CapabilityError
from lab.kernel import attributes as nla
from lab.kernel.framing import HEADER, messages, nested
from lab.kernel.netns import NetNs, inside

__all__ = ["Bytes", "Match", "TraceEvent", "Tracer"]

_TRANSPORT_HEADER: Final = 2  # NFT_PAYLOAD_TRANSPORT_HEADER
_PREROUTING, _OUTPUT = 0, 3
_PRIORITY: Final = -350
_TABLE: Final = "proxylab-trace"
_CHAINS: Final = {"prerouting": _PREROUTING, "output": _OUTPUT}

# include/uapi/linux/netlink.h, netfilter/nfnetlink.h, netfilter/nf_tables.h, netfilter/nfnetlink_log.h
_NLM_F_REQUEST: Final = 0x1
_NLM_F_ACK: Final = 0x4
_NLM_F_CREATE: Final = 0x400
_NLM_F_APPEND: Final = 0x800
_NLMSG_ERROR: Final = 2
_NETLINK_NETFILTER: Final = 12
_NFPROTO_INET: Final = 1
_BATCH_BEGIN: Final = 0x10
_BATCH_END: Final = 0x11
_SUBSYS_ULOG: Final = 4 << 8
_SUBSYS_NFTABLES: Final = 10 << 8
_NEWTABLE: Final = _SUBSYS_NFTABLES | 0
_NEWCHAIN: Final = _SUBSYS_NFTABLES | 3
_NEWRULE: Final = _SUBSYS_NFTABLES | 6
_DELRULE: Final = _SUBSYS_NFTABLES | 8
_TABLE_F_OWNER: Final = 0x2
_REGISTER_1: Final = 1
_META_NFTRACE: Final = 12
_META_L4PROTO: Final = 16
_LOG_PACKET: Final = _SUBSYS_ULOG | 0
_LOG_CONFIG: Final = _SUBSYS_ULOG | 1
_CMD_BIND: Final = 1
_CMD_PF_BIND: Final = 3
_COPY_PACKET: Final = 2
_COPY_BYTES: Final = 0xFFFF

_ATTRIBUTE: Final = struct.Struct("=HH")
_TIMESTAMP: Final = struct.Struct("!QQ")
_BUFFER: Final = 1 << 20


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
        with inside(netns):
            self._control = _open()
            self._log = _open()
        self._sequence = 0
        try:
            self._begin()
        except OSError as error:
            self.close()
            raise CapabilityError(
                f"tracing of packets in a network namespace ({error})",
                "as root: 'modprobe -a nf_tables nfnetlink_log'",
            ) from error

    def arm(self, matches: Sequence[Match]) -> None:
        """Trace packets of any of ``matches`` from now on. What was logged before is forgotten."""
        self.read()
        self._transact(
            [(_NEWRULE, _NLM_F_CREATE | _NLM_F_APPEND, _rule(chain, m)) for chain in _CHAINS for m in matches]
        )

    def disarm(self) -> None:
        """Trace nothing any more."""
        deletions = [nla.text(1, _TABLE) + nla.text(2, chain) for chain in _CHAINS]
        self._transact([(_DELRULE, 0, body) for body in deletions])

    def read(self) -> list[TraceEvent]:
        """What has been logged since this was last asked, in order. Never waits.

        Raises:
            OSError: ENOBUFS if the log did not fit its buffer: then the trace is not whole.
        """
        events: list[TraceEvent] = []
        while True:
            try:
                data = self._log.recv(_BUFFER)
            except BlockingIOError:
                return events
            events += (_event(body) for kind, _, _, body in messages(data) if kind == _LOG_PACKET)

    def close(self) -> None:
        """Close both sockets; the table goes with its owner."""
        self._control.close()
        self._log.close()

    def _begin(self) -> None:
        self._log.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER)
        for family in (socket.AF_INET, socket.AF_INET6):
            self._configure(family, nla.raw(1, bytes([_CMD_PF_BIND])))
        self._configure(socket.AF_UNSPEC, nla.raw(1, bytes([_CMD_BIND])))
        self._configure(socket.AF_UNSPEC, nla.raw(2, struct.pack("!IBx", _COPY_BYTES, _COPY_PACKET)) + _number(5, 1))
        self._log.setblocking(False)
        table = nla.text(1, _TABLE)
        requests = [(_NEWTABLE, _NLM_F_CREATE, table + _number(2, _TABLE_F_OWNER))]
        for name, hook in _CHAINS.items():
            where = nla.nested(4, _number(1, hook), _number(2, _PRIORITY & 0xFFFFFFFF))
            requests.append((_NEWCHAIN, _NLM_F_CREATE, table + nla.text(3, name) + where + nla.text(7, "filter")))
        self._transact(requests)

    def _configure(self, family: int, attributes: bytes) -> None:
        """One request to the log. Its socket hears nothing else yet."""
        self._sequence += 1
        self._log.send(_message(_LOG_CONFIG, _NLM_F_ACK, self._sequence, bytes([family, 0, 0, 0]) + attributes))
        _expect(self._log, 1)

    def _transact(self, requests: Sequence[tuple[int, int, bytes]]) -> None:
        """Requests that take effect together, or not at all."""
        head = bytes([_NFPROTO_INET, 0, 0, 0])
        bodies = [(kind, flags | _NLM_F_ACK, head + body) for kind, flags, body in requests]
        subsystem = bytes([socket.AF_UNSPEC, 0, 0, _SUBSYS_NFTABLES >> 8])
        parts = []
        for kind, flags, body in ((_BATCH_BEGIN, 0, subsystem), *bodies, (_BATCH_END, 0, subsystem)):
            self._sequence += 1
            parts.append(_message(kind, flags, self._sequence, body))
        self._control.send(b"".join(parts))
        _expect(self._control, len(bodies))


def _open() -> socket.socket:
    return socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _NETLINK_NETFILTER)


def _message(kind: int, flags: int, sequence: int, body: bytes) -> bytes:
    size = HEADER.size + len(body)
    return HEADER.pack(size, kind, flags | _NLM_F_REQUEST, sequence, 0) + body + bytes(-size & 3)


def _expect(control: socket.socket, acknowledgements: int) -> None:
    """Hear that many answers. Raises ``OSError`` with the first errno that is not zero."""
    failed = 0
    while acknowledgements:
        for kind, _, _, body in messages(control.recv(_BUFFER)):
            if kind == _NLMSG_ERROR:
                acknowledgements -= 1
                failed = failed or -int(struct.unpack_from("=i", body)[0])
    if failed:
        raise OSError(failed, os.strerror(failed))


def _event(body: bytes) -> TraceEvent:
    """``struct nfgenmsg`` and attributes of NFULNL_MSG_PACKET."""
    found = nested(body, 4)
    seconds, microseconds = _TIMESTAMP.unpack(found[3]) if 3 in found else (0, 0)
    return TraceEvent(
        prefix=found.get(10, b"").rstrip(b"\0").decode(errors="replace").removeprefix("TRACE: ").strip(),
        packet=found.get(9, b""),
        mark=int.from_bytes(found.get(2, b""), "big"),
        in_index=int.from_bytes(found.get(4, b""), "big"),
        out_index=int.from_bytes(found.get(5, b""), "big"),
        at_ns=(seconds * 1_000_000 + microseconds) * 1000,
    )


def _rule(chain: str, match: Match) -> bytes:
    expressions = [
        *_equal(_expression("meta", _number(1, _REGISTER_1), _number(2, _META_L4PROTO)), bytes([match.protocol]))
    ]
    for wanted in match.bytes:
        place = (_number(2, _TRANSPORT_HEADER), _number(3, wanted.offset), _number(4, len(wanted.value)))
        expressions += _equal(_expression("payload", _number(1, _REGISTER_1), *place), wanted.value)
    expressions.append(_expression("immediate", _number(1, _REGISTER_1), nla.nested(2, nla.raw(1, b"\1"))))
    expressions.append(_expression("meta", _number(2, _META_NFTRACE), _number(3, _REGISTER_1)))
    return nla.text(1, _TABLE) + nla.text(2, chain) + nla.nested(4, *expressions)


def _equal(load: bytes, value: bytes) -> tuple[bytes, bytes]:
    """Load something into register 1, and go on only if it is ``value``."""
    return load, _expression("cmp", _number(1, _REGISTER_1), _number(2, 0), nla.nested(3, nla.raw(1, value)))


def _expression(name: str, *attributes: bytes) -> bytes:
    return nla.nested(1, nla.text(1, name), nla.nested(2, *attributes))


def _number(kind: int, value: int) -> bytes:
    """A 32-bit number in network byte order, as nf_tables has all of them."""
    return nla.raw(kind, struct.pack("!I", value))
