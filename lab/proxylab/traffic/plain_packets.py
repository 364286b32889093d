"""Readers for plain packets: IPv4 without options, whole, and of the run's own protocol. Nearly every frame is one.

They decide about no other frame: ``dissect`` reads fragments, IPv6 and ICMP errors field by field.

A run reads four frames of every flow. One ``unpack`` and two look-ups in dictionaries take a third of the time of a
``Datagram``, and the matcher needs no more of such a frame.
"""

import struct
from collections.abc import Callable, Mapping
from typing import Final

from proxylab.addresses import IPAddress, Transport, unpacked
from proxylab.evidence.evidence import Packet
from proxylab.traffic.dissect import TCP, UDP, TcpFlag
from proxylab.traffic.identity import Identity, Kind

__all__ = ["Fields", "Reader", "plain_reader"]

Fields = tuple[int, Packet, IPAddress, int, IPAddress, int]
"""Flow, the kind of packet, source and its port, destination and its port."""

Reader = Callable[[bytes], Fields | tuple[()] | None]
"""A frame's fields; empty if it decides nothing, ``None`` if ``dissect`` must read it."""

# The fields needed from Ethernet and IPv4: type, version and length, total length, fragment, protocol, addresses.
_HEADERS: Final = "!12xHBxHxxHxB2x4s4s"
_UDP: Final = struct.Struct(f"{_HEADERS}HHH2x40s8s")  # ports, length; a token up to its number, and the number
_TCP: Final = struct.Struct(f"{_HEADERS}HHIIBB")  # ports, sequence, acknowledged, offset, flags
_ETHERNET_BYTES: Final = 14
_TRANSPORT_AT: Final = _ETHERNET_BYTES + 20
_TCP_BYTES: Final = 20
_IPV4: Final = 0x0800
_NO_OPTIONS: Final = 0x45
_OFFSET: Final = 0x1FFF

_SYN: Final = TcpFlag.SYN
_RST: Final = TcpFlag.RST
_SYN_ACK: Final = TcpFlag.SYN | TcpFlag.ACK
_DECISIVE: Final = TcpFlag.SYN | TcpFlag.RST | TcpFlag.ACK
_REQUEST, _REPLY = Packet.REQUEST, Packet.REPLY


def plain_reader(identity: Identity, protocol: Transport, learned: Mapping[int, int] | None) -> Reader:
    """The reader of a run's plain frames.

    Args:
        identity: of the run.
        protocol: of its flows; no frame of SCTP or ICMP is plain.
        learned: for TCP by kernel sockets, the flow of each sequence number that is known so far.
    """
    match protocol:
        case Transport.UDP:
            return _Udp(identity).read
        case Transport.TCP if learned is not None:
            return _Tcp(learned, learning=True).read
        case Transport.TCP:
            return _Tcp({identity.sequence(flow): flow for flow in range(identity.flows)}, learning=False).read
        case Transport.SCTP | Transport.ICMP:
            return lambda _: None


class _Udp:
    """Reads datagrams by the token at the head of their payload."""

    def __init__(self, identity: Identity) -> None:
        self._packets = {
            identity.stem(Kind.PROBE): _REQUEST,
            identity.stem(Kind.REPLY): _REPLY,
        }
        self._flows = {b"%08x" % flow: flow for flow in range(identity.flows)}

    def read(self, frame: bytes) -> Fields | None:
        """See ``Reader``."""
        if len(frame) < _UDP.size:
            return None
        kind, head, total, fragment, protocol, source, destination, near, far, length, stem, number = _UDP.unpack_from(
            frame
        )
        packet, flow = self._packets.get(stem), self._flows.get(number)
        if packet is None or flow is None or kind != _IPV4 or head != _NO_OPTIONS or protocol != UDP:
            return None
        if fragment & _OFFSET or not _UDP.size <= _TRANSPORT_AT + length <= _ETHERNET_BYTES + total <= len(frame):
            return None
        return flow, packet, unpacked(source), near, unpacked(destination), far


class _Tcp:
    """Reads SYNs and SYN/ACKs by their sequence numbers, and ignores segments that decide nothing."""

    def __init__(self, flows: Mapping[int, int], *, learning: bool) -> None:
        """Make a reader that knows the flow of each initial sequence number.

        Args:
            flows: by sequence number; while numbers are being ``learned``, the caller may add to it.
            learning: a SYN may bring a new number, so ``dissect`` must read each SYN.
        """
        self._flows = flows
        self._learning = learning

    def read(self, frame: bytes) -> Fields | tuple[()] | None:
        """See ``Reader``."""
        if len(frame) < _TCP.size:
            return None
        kind, head, total, fragment, protocol, source, destination, near, far, sequence, acknowledged, offset, flags = (
            _TCP.unpack_from(frame)
        )
        end = _ETHERNET_BYTES + total
        if kind != _IPV4 or head != _NO_OPTIONS or protocol != TCP or fragment & _OFFSET or end > len(frame):
            return None
        if not _TCP_BYTES <= (offset >> 4) * 4 <= end - _TRANSPORT_AT:
            return None
        decisive = flags & _DECISIVE
        if decisive == _SYN_ACK:
            packet, flow = _REPLY, self._flows.get((acknowledged - 1) & 0xFFFFFFFF)
        elif decisive == _SYN and not self._learning:
            packet, flow = _REQUEST, self._flows.get(sequence)
        else:
            # The sender's stack resets each SYN/ACK that it did not ask for, and such a reset acknowledges nothing.
            return () if decisive == _RST else None
        return None if flow is None else (flow, packet, unpacked(source), near, unpacked(destination), far)
