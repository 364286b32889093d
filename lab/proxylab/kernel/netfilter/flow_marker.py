"""Marks new flows to one address, or to the node itself, for nf_tables' trace.

The chains of ``FlowMarker`` have priority -190: after connection tracking (-200), and before every table that
translates or filters. They mark only a packet that conntrack has not seen before, since rules decide about that one
(``ct state new``). ``kernel.netfilter.nft_trace`` reads the trace.
"""

from typing import Final

from proxylab.addresses import Family, IPAddress
from proxylab.kernel.netfilter.nft_expressions import (
    MATCH_NEW_FLOW,
    MATCH_OWN_ADDRESS,
    NETWORK_HEADER,
    TRACE,
    TRANSPORT_HEADER,
    match_bytes,
    match_family,
    match_protocol,
)
from proxylab.kernel.netfilter.nft_tables import OUTPUT, PREROUTING, ChainHook, OwnTable
from proxylab.kernel.sandbox.netns import NetNs

_TABLE: Final = "proxylab-meter"
_PRIORITY: Final = -190
_CHAINS: Final = {"PREROUTING": ChainHook(PREROUTING, _PRIORITY), "OUTPUT": ChainHook(OUTPUT, _PRIORITY)}

# Offsets in headers, in bytes.
_DESTINATION_PORT: Final = 2
_DESTINATION: Final = {Family.IPV4: 16, Family.IPV6: 24}


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
        probed = (*match_family(self._family), *match_protocol(protocol))
        dialled = match_bytes(NETWORK_HEADER, _DESTINATION[self._family], destination.packed)
        if not port:
            self._table.append([(*probed, *dialled, *MATCH_NEW_FLOW, *TRACE)])
            return
        at_port = match_bytes(TRANSPORT_HEADER, _DESTINATION_PORT, port.to_bytes(2, "big"))
        self._table.append(
            [
                (*probed, *dialled, *at_port, *MATCH_NEW_FLOW, *TRACE),
                (*probed, *MATCH_OWN_ADDRESS, *MATCH_NEW_FLOW, *TRACE),
            ]
        )

    def clear(self) -> None:
        """Stop marking."""
        self._table.clear()

    def close(self) -> None:
        """Close the socket, which removes the table."""
        self._table.close()
