"""Marks new flows to one address, or to the node itself, for nf_tables' trace.

The chains of ``FlowMarker`` have priority -190: after connection tracking (-200), and before every table that
translates or filters. They mark only a packet that conntrack has not seen before, since rules decide about that one
(``ct state new``). ``kernel.netfilter.nft_trace`` reads the trace.
"""

import struct
from typing import Final

from proxylab.addresses import Family, IPAddress
from proxylab.kernel.netfilter import attributes as nla
from proxylab.kernel.netfilter.nft_tables import Hook, OwnTable, equal, expression, number
from proxylab.kernel.sandbox.netns import NetNs

__all__ = ["FlowMarker"]

_TABLE: Final = "proxylab-meter"
_PRIORITY: Final = -190
_CHAINS: Final = {"PREROUTING": Hook(0, _PRIORITY), "OUTPUT": Hook(3, _PRIORITY)}

# include/uapi/linux/netfilter/nf_tables.h and nf_conntrack_common.h
_REGISTER: Final = 1
_META_NFTRACE, _META_NFPROTO, _META_L4PROTO = 12, 15, 16
_NETWORK_HEADER, _TRANSPORT_HEADER = 1, 2
_CT_STATE: Final = 0
_STATE_NEW: Final = 8
_STATE_BYTES: Final = 4
_DESTINATION_PORT: Final = 2
_DESTINATION: Final = {Family.IPV4: 16, Family.IPV6: 24}
_FIB_ADDRESS_TYPE: Final = 3
_FIB_DESTINATION: Final = 2
_LOCAL: Final = 2  # RTN_LOCAL of include/uapi/linux/rtnetlink.h
_PROTO: Final = {Family.IPV4: 2, Family.IPV6: 10}


class FlowMarker:
    """Marks packets of one family in one namespace."""

    def __init__(self, netns: NetNs, family: Family) -> None:
        """Make the table of a family. Raises ``OSError`` where the kernel has no nf_tables for this namespace."""
        self._family = family
        self._table = OwnTable(netns, f"{_TABLE}-{family.lower()}", _CHAINS)

    def mark(self, protocol: int, destination: IPAddress, port: int) -> None:
        """Mark the first packets of flows to ``destination`` from now on, and of flows to the node itself.

        A flow to the node may be the same flow: another node may have translated it to a port of this node, which may
        translate it again. ``protocol`` is IANA's number. ``port`` is 0 for a protocol without ports; then the method
        marks no flows to the node, since sentinel packets are among them.
        """
        family = self._family
        of_protocol = (
            *equal(_meta(_META_NFPROTO), bytes([_PROTO[family]])),
            *equal(_meta(_META_L4PROTO), bytes([protocol])),
        )
        at_port = _payload(_TRANSPORT_HEADER, _DESTINATION_PORT, 2)
        dialled = (
            *equal(_payload(_NETWORK_HEADER, _DESTINATION[family], len(destination.packed)), destination.packed),
            *(equal(at_port, port.to_bytes(2, "big")) if port else ()),
        )
        own = equal(
            expression("fib", number(1, _REGISTER), number(2, _FIB_ADDRESS_TYPE), number(3, _FIB_DESTINATION)),
            struct.pack("=I", _LOCAL),
        )
        self._table.append([(*of_protocol, *which, *_MARKED) for which in ((dialled, own) if port else (dialled,))])

    def clear(self) -> None:
        """Stop marking."""
        self._table.clear()

    def close(self) -> None:
        """Close the socket, which removes the table."""
        self._table.close()


def _meta(key: int) -> bytes:
    return expression("meta", number(1, _REGISTER), number(2, key))


def _payload(header: int, offset: int, length: int) -> bytes:
    return expression("payload", number(1, _REGISTER), number(2, header), number(3, offset), number(4, length))


def _masked(bits: int) -> bytes:
    """Keep only ``bits`` of the register. Connection tracking's state is in the machine's byte order."""
    mask = nla.nested(4, nla.raw(1, struct.pack("=I", bits)))
    nothing = nla.nested(5, nla.raw(1, bytes(_STATE_BYTES)))
    return expression("bitwise", number(1, _REGISTER), number(2, _REGISTER), number(3, _STATE_BYTES), mask, nothing)


_MARKED: Final = (
    expression("ct", number(1, _REGISTER), number(2, _CT_STATE)),
    *equal(_masked(_STATE_NEW), struct.pack("=I", _STATE_NEW)),
    expression("immediate", number(1, _REGISTER), nla.nested(2, nla.raw(1, b"\1"))),
    expression("meta", number(2, _META_NFTRACE), number(3, _REGISTER)),
)
"""Trace a packet that connection tracking has not seen before."""
