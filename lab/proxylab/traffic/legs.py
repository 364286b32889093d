"""The second leg of a flow: the connection that a program opens after it has ended the sender's.

``Legs`` recognises it by what it carries. The program chooses its own port and sequence number, so a SYN of the second
leg names no flow. But the first segment with data has the sequence number after its SYN's, and begins with the request
of the flow. So the SYN and its answer wait here until a tap has seen that segment. NAT leaves both numbers alone.

Datagrams bear the flow's token on both legs. There the sender's port tells them apart: the lab's ports are none that a
kernel would choose for a program (``ports``), and no rule of such a proxy changes the source of the first leg.
"""

from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from proxylab.addresses import IPAddress
from proxylab.evidence.evidence import Leg, Packet
from proxylab.kernel.capture.batches import Frame
from proxylab.plan.resolved import STACK
from proxylab.traffic.dissect import Datagram, TcpFlag
from proxylab.traffic.identity import Identity

_OPENING = {
    TcpFlag.SYN: Packet.REQUEST,
    TcpFlag.SYN | TcpFlag.ACK: Packet.REPLY,
    TcpFlag.RST | TcpFlag.ACK: Packet.RESET,
}
_ENDING = TcpFlag.FIN | TcpFlag.RST
_DECISIVE = TcpFlag.SYN | TcpFlag.RST | TcpFlag.ACK


class TapPoint(NamedTuple):
    """The namespace and device of a tap, as observations name them, and whether the probe is sent from there.

    ``transit`` marks a device of a node, or of a pod that passes packets on: a packet seen there is on its way, and
    settles nothing.
    """

    netns_name: str
    device: str
    is_sender: bool = False
    transit: bool = False


class Waiting(NamedTuple):
    """A packet of a connection that no flow is known to own yet, and its tap."""

    tap: TapPoint
    frame: Frame
    datagram: Datagram
    packet: Packet


class Legs:
    """The legs of a run's flows.

    Args:
        identity: of the run.
        ports: the sender's port of each flow.
    """

    def __init__(self, identity: Identity, ports: Sequence[int]) -> None:
        self._identity = identity
        self._ports = ports
        self._flows = {port: flow for flow, port in enumerate(ports)}
        self._onward: dict[int, int] = {}
        self._waiting: dict[int, list[Waiting]] = {}

    def of_datagram(self, flow: int, packet: Packet, datagram: Datagram) -> Leg:
        """The leg of a datagram, or of an ICMP error about one."""
        if datagram.quoted is not None:
            senders = datagram.quoted.source_port
        else:
            senders = datagram.destination_port if packet is Packet.REPLY else datagram.source_port
        return Leg.OWN if senders == self._ports[flow] else Leg.ONWARD

    def ended(self, datagram: Datagram) -> int | None:
        """The flow whose connection a segment to the sender ends; ``None`` if it ends none."""
        return self._flows.get(datagram.destination_port) if (datagram.flags or 0) & _ENDING else None

    def learn(self, datagram: Datagram, own: Collection[int]) -> Iterator[Waiting]:
        """Learn from a segment with data which connection carries the request of a flow.

        ``own`` are the initial sequence numbers of first legs. Yields the packets of that connection that have waited
        for this.
        """
        flow = self._identity.flow_of_request(datagram.payload)
        first = (datagram.sequence - 1) & 0xFFFFFFFF
        if flow is not None and first not in own and first not in self._onward:
            self._onward[first] = flow
            yield from self._waiting.pop(first, ())

    def onward(self, datagram: Datagram) -> int | None:
        """The flow whose second leg a SYN, its answer or its reset belongs to; ``None`` while that is unknown."""
        return self._onward.get(_first(datagram))

    def wait(self, tap: TapPoint, frame: Frame, datagram: Datagram) -> None:
        """Keep a packet that opens or refuses a connection until its flow is known."""
        packet = opening(datagram)
        if packet is not None:
            self._waiting.setdefault(_first(datagram), []).append(Waiting(tap, frame, datagram, packet))

    def tried(self, endpoints: Collection[IPAddress]) -> Iterator[Waiting]:
        """The packets of connections from a node's own programs to ``endpoints`` that carried no request."""
        for packets in self._waiting.values():
            opened = (each for each in packets if each.tap.device == STACK and each.frame.outgoing)
            if any(each.packet is Packet.REQUEST and each.datagram.destination in endpoints for each in opened):
                yield from packets


def opening(datagram: Datagram) -> Packet | None:
    """The part of a SYN, its answer or its refusal in a flow; ``None`` for other segments."""
    return _OPENING.get((datagram.flags or 0) & _DECISIVE)


def _first(datagram: Datagram) -> int:
    """The initial sequence number of the side that opened the connection, by a SYN or an answer to it."""
    flags = (datagram.flags or 0) & _DECISIVE
    return datagram.sequence if flags == TcpFlag.SYN else (datagram.acknowledged - 1) & 0xFFFFFFFF
