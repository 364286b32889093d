"""SCTP responders for a kernel without SCTP: they answer each INIT at the tap where it came in.

They keep no association: the probe's first packet is crafted, so no third packet ever comes.

A kernel without SCTP answers an SCTP packet with an ICMP error (protocol unreachable, or unknown next header). An
nftables table of the lab drops those errors in the namespaces that answer here.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from proxylab.addresses import Protocol
from proxylab.errors import CapabilityError
from proxylab.kernel.capture.batches import Frame
from proxylab.kernel.netfilter import nft_expressions as nft
from proxylab.kernel.netfilter.nft_tables import OUTPUT, ChainHook, OwnTable
from proxylab.kernel.sandbox.netns import NetNs
from proxylab.plan.model import Plan
from proxylab.traffic.chunks import abort, init_ack
from proxylab.traffic.craft import enveloped
from proxylab.traffic.dissect import SCTP, Chunk, dissect
from proxylab.traffic.watch import AnyTap

_TABLE: Final = "proxylab-sctp"
_CHAINS: Final = {"output": ChainHook(OUTPUT, 0)}
_TYPE_AT: Final = 0
_NO_SUCH_PROTOCOL: Final = {1: b"\x03\x02", 58: b"\x04\x01"}  # type and code: RFC 792; RFC 4443, section 3.4


class Associations:
    """Answers INITs in the namespaces of a plan that listen for SCTP, where their kernel cannot."""

    def __init__(self, netns_by_name: Mapping[str, NetNs], plan: Plan) -> None:
        """Drop those namespaces' ICMP errors about an unknown protocol. Raises ``CapabilityError``."""
        self._ports = {
            namespace.name: frozenset(each.port for each in namespace.listeners if each.protocol is Protocol.SCTP)
            for namespace in plan.namespaces
        }
        self._ports = {name: ports for name, ports in self._ports.items() if ports}
        self._own = {
            namespace.name: frozenset(address.interface.ip for address in namespace.addresses)
            for namespace in plan.namespaces
            if namespace.name in self._ports
        }
        self._tables: list[OwnTable] = []
        try:
            for name in self._ports:
                self._tables.append(OwnTable(netns_by_name[name], _TABLE, _CHAINS))
                self._tables[-1].append([_drop(*each) for each in _NO_SUCH_PROTOCOL.items()])
        except OSError as error:
            self.close()
            raise CapabilityError(
                f"answering for SCTP in a pod ({error})", "as root: 'modprobe nf_tables', or 'modprobe sctp'"
            ) from error

    def answer(self, tap: AnyTap, frames: Iterable[Frame]) -> int:
        """Answer every INIT that came in at one tap for an address of its namespace. Returns how many."""
        ports = self._ports.get(tap.netns_name)
        if ports is None:
            return 0
        answered = 0
        for frame in frames:
            asked = None if frame.outgoing else dissect(frame.data)
            if asked is None or (asked.protocol, asked.flags) != (SCTP, Chunk.INIT):
                continue
            if asked.destination in self._own[tap.netns_name]:
                answer = init_ack if asked.destination_port in ports else abort
                packet = answer(asked.destination_port, asked.source_port, asked.sequence)
                macs = (frame.data[:6], frame.data[6:12])
                tap.send(enveloped(macs, (asked.destination, asked.source), SCTP, packet))
                answered += 1
        return answered

    def close(self) -> None:
        """Remove the tables, so that the kernels send their ICMP errors again."""
        for table in self._tables:
            table.close()
        self._tables.clear()


def _drop(protocol: int, kind: bytes) -> list[bytes]:
    """A rule that drops ICMP of one type and code."""
    return [*nft.match_protocol(protocol), *nft.match_bytes(nft.TRANSPORT_HEADER, _TYPE_AT, kind), nft.DROP]
