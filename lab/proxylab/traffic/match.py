"""Matches frames at taps to the flows of a run.

``Matcher`` decides what a packet is to its flow, and keeps what the taps have seen of each flow. It touches no sockets,
judges nothing, and ignores a frame that belongs to no flow of the run.

How a frame finds its flow:

* UDP by the token in its payload, which also marks it as a request or a reply.
* TCP by the initial sequence number: a SYN bears it, a SYN/ACK and the reset of a closed port acknowledge it plus one.
  The lab chooses the number of a crafted SYN. The number of a kernel socket is learned where the SYN leaves the sender,
  because only there the source port is still the socket's own.
* SCTP by the initiate tag: an INIT bears it, and INIT ACK and ABORT have it in their header.
* An ICMP echo request by the token in its payload, and the reply, which bears the same token, by its type.
* An ICMP error by the request that it quotes.

Where proxies end connections, ``legs`` finds the flow of the second one.

Two packets that the sender's own stack adds to crafted flows are ignored, because they say nothing of the proxy: its
reset of a SYN/ACK that it did not ask for (that reset carries no acknowledgement; RFC 9293, section 3.5.2), and its
port unreachable about a reply (that error quotes a reply, not a request).
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct

from proxylab.addresses import IPAddress, Transport
from proxylab.evidence.evidence import Altered, Direction, Leg, Observation, Packet, SeenFrame
from proxylab.kernel.capture.batches import Frame
from proxylab.traffic.alterations import Alterations
from proxylab.traffic.dissect import (
    ICMP,
    ICMPV6,
    SCTP,
    TCP,
    UDP,
    Chunk,
    Datagram,
    PacketMarks,
    TcpFlag,
    dissect,
    marks_of,
)
from proxylab.traffic.fragments import Reassembly
from proxylab.traffic.identity import Identity, TokenKind
from proxylab.traffic.legs import Legs, TapPoint, opening

_SYN_ACK = TcpFlag.SYN | TcpFlag.ACK
_RST_ACK = TcpFlag.RST | TcpFlag.ACK
_DECISIVE = TcpFlag.SYN | TcpFlag.RST | TcpFlag.ACK

# Module-level names for enum members: Python looks up an attribute of an enum's class each time, and this is a hot
# path.
_PROBE, _SENTINEL = TokenKind.PROBE, TokenKind.SENTINEL
_REQUEST, _REPLY, _RESET = Packet.REQUEST, Packet.REPLY, Packet.RESET
_IN, _OUT = Direction.IN, Direction.OUT
_OWN = Leg.OWN
_OF_A_FLOW = frozenset({_REQUEST, _REPLY, _RESET})

# Frames are kept until the next run, for bundles and captures; 10,000 flows through one node have 80,000.
_KEPT_FRAMES = 131_072

# Of ICMP (RFC 792) and of ICMPv6 (RFC 4443), by their protocol numbers.
_ECHO_REPLY = {ICMP: 0, ICMPV6: 129}
_ECHO_REQUEST = {ICMP: 8, ICMPV6: 128}
_PORT_UNREACHABLE = {ICMP: (3, 3), ICMPV6: (1, 4)}
# Destination unreachable, time exceeded, parameter problem: the packet is gone. A redirect (5), or that the packet is
# too big (2), is only advice.
_FINAL_ICMP = {ICMP: frozenset({3, 11, 12}), ICMPV6: frozenset({1, 3, 4})}


class SentinelSighting(Struct, frozen=True):
    """A sentinel packet that came in somewhere: its echo request, or the reply to it."""

    number: int
    reply: bool
    netns_name: str
    destination: IPAddress
    at: int


class _PacketOfFlow(NamedTuple):
    """A packet of a flow, in the order of the fields of an observation."""

    flow: int
    packet: Packet
    source: IPAddress
    source_port: int
    destination: IPAddress
    destination_port: int


class _Sighting(NamedTuple):
    """A packet that a tap saw, with its frame, its leg, and its type and code if it is an ICMP error."""

    tap: TapPoint
    frame: Frame
    packet: _PacketOfFlow
    icmp: tuple[int, int] | None
    leg: Leg
    marks: PacketMarks


class Matcher:
    """Gathers the observations of one run."""

    def __init__(
        self,
        identity: Identity,
        protocol: Transport,
        sockets: Mapping[int, int] | None = None,
        ports: Sequence[int] | None = None,
        tail: bytes | None = None,
    ) -> None:
        """A matcher for the flows of ``identity``.

        Args:
            identity: of the run.
            protocol: of its flows.
            sockets: for TCP by kernel sockets, the flow of each local port; ``None`` for crafted flows.
            ports: the sender's port of each flow, where proxies end connections; ``None`` elsewhere.
            tail: what follows the token of a request; ``None`` if nothing is to be compared with it.
        """
        self.sentinels: list[SentinelSighting] = []
        self._identity = identity
        self._protocol = protocol
        self._sockets = sockets
        self._legs = None if ports is None else Legs(identity, ports)
        self._alterations = None if tail is None else Alterations(tail)
        self._sightings: list[_Sighting] = []
        self._fragments = Reassembly()
        self._learned: dict[int, int] = {}
        self._arrived: set[int] = set()
        self._replied: set[int] = set()
        self._turned_away: set[int] = set()

    @property
    def seen(self) -> int:
        """The number of observations so far."""
        return len(self._sightings)

    @property
    def requests_sent(self) -> int:
        """How many requests left the sender, by its tap. Computed only where flows are missing."""
        return sum(
            each.packet.packet is _REQUEST and each.tap.is_sender and each.frame.outgoing and each.leg is _OWN
            for each in self._sightings
        )

    @property
    def altered(self) -> tuple[Altered, ...]:
        """The packets that came otherwise than they were sent."""
        return () if self._alterations is None else self._alterations.found

    @property
    def observations(self) -> tuple[Observation, ...]:
        """All observations by time. They are built from columns, in a third of the time."""
        if not self._sightings:
            return ()
        times = [each.frame.at_ns for each in self._sightings]
        in_order = map(self._sightings.__getitem__, sorted(range(len(times)), key=times.__getitem__))
        taps, frames, found, icmp, legs, marks = zip(*in_order, strict=True)
        flows, packets, *ends = zip(*found, strict=True)
        netns_names, devices, *_ = zip(*taps, strict=True)
        _, outgoing, at, otherhost = zip(*frames, strict=True)
        ttls, dscps = zip(*marks, strict=True)
        directions = [_OUT if out else _IN for out in outgoing]
        protocols = [self._protocol] * len(found)
        columns = (
            flows,
            netns_names,
            devices,
            directions,
            packets,
            protocols,
            *ends,
            at,
            icmp,
            otherhost,
            legs,
            ttls,
            dscps,
        )
        return tuple(map(Observation, *columns))

    @property
    def unsettled(self) -> int:
        """The number of flows without arrival and reply, and without a reset or a final ICMP error at the sender."""
        return self._identity.flows - len((self._arrived & self._replied) | self._turned_away)

    @property
    def frames(self) -> tuple[SeenFrame, ...]:
        """The kept frames, converted on demand: few callers need them."""
        return tuple(
            SeenFrame(
                each.packet.flow,
                each.tap.netns_name,
                each.tap.device,
                _OUT if each.frame.outgoing else _IN,
                each.packet.packet,
                each.frame.at_ns,
                each.frame.data.hex(),
            )
            for each in self._sightings[:_KEPT_FRAMES]
        )

    @property
    def left_out(self) -> int:
        """The number of frames beyond the limit."""
        return max(0, len(self._sightings) - _KEPT_FRAMES)

    def take(self, vantage: TapPoint, frames: Iterable[Frame]) -> None:
        """Take in what one tap saw. The sender's tap comes first: sequence numbers are learned there."""
        sightings = self._sightings
        before = len(sightings)
        for frame in frames:
            self._look(vantage, frame)
        for number in range(max(before, _KEPT_FRAMES), len(sightings)):
            sighting = sightings[number]
            sightings[number] = sighting._replace(frame=sighting.frame._replace(data=b""))

    def _look(self, vantage: TapPoint, frame: Frame) -> None:
        datagram = dissect(frame.data)
        if datagram is None:
            whole = self._fragments.take(vantage.netns_name, vantage.device, frame)
            datagram = None if whole is None else dissect(whole)
            if datagram is None:
                return
        protocol = datagram.protocol
        if protocol == UDP:
            found = self._udp(datagram)
        elif protocol == TCP:
            found = self._tcp(vantage, frame.outgoing, datagram)
        elif protocol == SCTP:
            found = self._sctp(vantage, frame.outgoing, datagram)
        else:
            found = self._icmp(vantage, frame, datagram)
        if self._legs is not None:
            self._note_on_leg(self._legs, vantage, frame, datagram, found)
        elif found is not None:
            self._note(vantage, frame, datagram, found)

    def _note_on_leg(
        self, legs: Legs, vantage: TapPoint, frame: Frame, datagram: Datagram, found: tuple[int, Packet] | None
    ) -> None:
        """Note a packet of either leg, or let it wait until its flow is known."""
        if found is not None:
            flow, packet = found
            is_late = packet is _RESET and flow in self._replied
            leg = legs.of_datagram(*found, datagram) if self._protocol is Transport.UDP else _OWN
            self._note(vantage, frame, datagram, (flow, Packet.CLOSE) if is_late else found, leg)
        elif datagram.protocol != TCP or self._protocol is not Transport.TCP:
            return
        elif datagram.payload:
            for each in legs.learn(datagram, self._learned):
                self._note_onward(legs, each.tap, each.frame, each.datagram)
        elif vantage.is_sender and not frame.outgoing and (ended := legs.ended(datagram)) is not None:
            self._note(vantage, frame, datagram, (ended, Packet.CLOSE))
        elif not self._note_onward(legs, vantage, frame, datagram):
            legs.wait(vantage, frame, datagram)

    def _note_onward(self, legs: Legs, vantage: TapPoint, frame: Frame, datagram: Datagram) -> bool:
        """Note a packet of a second leg. False where its flow is unknown, or where it opens and refuses nothing."""
        flow, packet = legs.onward(datagram), opening(datagram)
        if flow is None or packet is None:
            return False
        self._note(vantage, frame, datagram, (flow, packet), Leg.ONWARD)
        return True

    def tries(self, endpoints: Collection[IPAddress]) -> int:
        """How many packets the taps have seen of connections to ``endpoints`` that carried no request."""
        return 0 if self._legs is None else sum(1 for _ in self._legs.tried(endpoints))

    def note_tries(self, endpoints: Collection[IPAddress]) -> None:
        """Note the packets of these connections. Only in a run of one flow is their flow certain."""
        if self._legs is not None and self._identity.flows == 1:
            for each in self._legs.tried(endpoints):
                self._note(each.tap, each.frame, each.datagram, (0, each.packet), Leg.TRIED)

    def _note(
        self, vantage: TapPoint, frame: Frame, datagram: Datagram, found: tuple[int, Packet], leg: Leg = _OWN
    ) -> None:
        flow, packet = found
        protocol = datagram.protocol
        _, source, destination, source_port, destination_port, *_ = datagram
        there = _PacketOfFlow(flow, packet, source, source_port, destination, destination_port)
        icmp = None if packet in _OF_A_FLOW else datagram.icmp
        marks = marks_of(frame.data)
        self._sightings.append(_Sighting(vantage, frame, there, icmp, leg, marks))
        if self._alterations is not None:
            self._alterations.look(
                vantage, frame.outgoing, frame.data, datagram, flow, packet, marks, by_program=leg is not _OWN
            )
        if frame.outgoing or frame.otherhost or vantage.transit:
            return
        # A node that sends may also get the answer of a second leg, which its program has yet to pass on.
        if leg is not _OWN and packet is not _REQUEST:
            return
        self._settle(vantage, flow, packet)
        final = datagram.icmp is not None and datagram.icmp[0] in _FINAL_ICMP[protocol]
        if final and vantage.is_sender:
            self._turned_away.add(flow)

    def _udp(self, datagram: Datagram) -> tuple[int, Packet] | None:
        if self._protocol is not Transport.UDP:
            return None
        token = self._identity.read(datagram.payload)
        if token is None or token[0] is _SENTINEL:
            return None
        return token[1], _REQUEST if token[0] is _PROBE else _REPLY

    def _tcp(self, vantage: TapPoint, outgoing: bool, datagram: Datagram) -> tuple[int, Packet] | None:
        if self._protocol is not Transport.TCP or datagram.flags is None:
            return None
        decisive = datagram.flags & _DECISIVE
        if decisive == TcpFlag.SYN:
            if self._sockets is not None and vantage.is_sender and outgoing:
                self._learn(datagram)
            return self._with(self._flow(datagram.sequence), _REQUEST)
        acknowledged = (datagram.acknowledged - 1) & 0xFFFFFFFF
        if decisive == _SYN_ACK:
            return self._with(self._flow(acknowledged), _REPLY)
        # A reset counts where the sender receives it, where a listener's stack sends it, and on the way between them.
        if decisive == _RST_ACK and (vantage.transit or vantage.is_sender is not outgoing):
            return self._with(self._flow(acknowledged), _RESET)
        return None

    def _sctp(self, vantage: TapPoint, outgoing: bool, datagram: Datagram) -> tuple[int, Packet] | None:
        if self._protocol is not Transport.SCTP:
            return None
        if datagram.flags == Chunk.INIT:
            if self._sockets is not None and vantage.is_sender and outgoing:
                self._learn(datagram)
            return self._with(self._flow(datagram.sequence), _REQUEST)
        if datagram.flags == Chunk.INIT_ACK:
            return self._with(self._flow(datagram.acknowledged), _REPLY)
        # An ABORT of the sender's own stack says nothing of the proxy, as with TCP's reset.
        if datagram.flags == Chunk.ABORT and (vantage.transit or vantage.is_sender is not outgoing):
            return self._with(self._flow(datagram.acknowledged), _RESET)
        return None

    def _icmp(self, vantage: TapPoint, frame: Frame, datagram: Datagram) -> tuple[int, Packet] | None:
        if datagram.icmp is None:
            return None
        if datagram.icmp[0] in (_ECHO_REQUEST[datagram.protocol], _ECHO_REPLY[datagram.protocol]):
            return self._echo(vantage, frame, datagram, datagram.icmp[0])
        quoted = datagram.quoted
        if quoted is None:
            return None
        unreachable = datagram.icmp == _PORT_UNREACHABLE[datagram.protocol]
        kind = Packet.PORT_UNREACHABLE if unreachable else Packet.OTHER_ICMP
        if _bears_token(quoted, self._protocol):
            token = self._identity.read(quoted.payload)
            return (token[1], kind) if token is not None and token[0] is _PROBE else None
        # A TCP quote without flags ends after eight bytes; then only the sequence number is known.
        if quoted.protocol == TCP and self._protocol is Transport.TCP and _is_syn(quoted):
            return self._with(self._flow(quoted.sequence), kind)
        if quoted.protocol == SCTP and self._protocol is Transport.SCTP and quoted.flags == Chunk.INIT:
            return self._with(self._flow(quoted.sequence), kind)
        return None

    def _echo(self, vantage: TapPoint, frame: Frame, datagram: Datagram, kind: int) -> tuple[int, Packet] | None:
        """Note a sentinel packet, or return a probe's flow."""
        token = self._identity.read(datagram.payload)
        if token is None:
            return None
        reply = kind == _ECHO_REPLY[datagram.protocol]
        if token[0] is _SENTINEL:
            if not (vantage.transit or frame.outgoing):
                self.sentinels.append(
                    SentinelSighting(token[1], reply, vantage.netns_name, datagram.destination, frame.at_ns)
                )
            return None
        if self._protocol is not Transport.ICMP:
            return None
        return token[1], _REPLY if reply else _REQUEST

    def _learn(self, syn: Datagram) -> None:
        """Tie a kernel-chosen sequence number to its flow.

        The kernel may choose one number twice in a long run. The later flow then owns it, which is right, since frames
        are taken in while the flows they belong to are under way.
        """
        flow = (self._sockets or {}).get(syn.source_port)
        if flow is not None:
            self._learned[syn.sequence] = flow

    def _flow(self, sequence: int) -> int | None:
        if self._sockets is None:
            return self._identity.flow_of_sequence(sequence)
        return self._learned.get(sequence)

    @staticmethod
    def _with(flow: int | None, packet: Packet) -> tuple[int, Packet] | None:
        return None if flow is None else (flow, packet)

    def _settle(self, vantage: TapPoint, flow: int, packet: Packet) -> None:
        """Note which question about its flow an incoming packet answers."""
        if packet is _REQUEST:
            self._arrived.add(flow)
        elif not vantage.is_sender:
            return
        elif packet is _REPLY:
            self._replied.add(flow)
        elif packet is _RESET:
            self._turned_away.add(flow)


def _bears_token(quoted: Datagram, protocol: Transport) -> bool:
    """Whether a quoted packet is a request of a protocol that has its identity in the payload."""
    if protocol is Transport.UDP:
        return quoted.protocol == UDP
    return protocol is Transport.ICMP and quoted.icmp is not None and quoted.icmp[0] == _ECHO_REQUEST[quoted.protocol]


def _is_syn(quoted: Datagram) -> bool:
    return quoted.flags is None or quoted.flags & _DECISIVE == TcpFlag.SYN
