"""Follows one packet of a run through the rules of every node.

It recognises the packet and its answers in the kernel's trace events, turns the events into steps, and collects what
the kernel dropped meanwhile. What a rule means is not its concern.

Rules rewrite addresses, so a packet is recognised by its identity: a SYN by its sequence number, an answer by the
number it acknowledges, a datagram by the end of its token, an ICMP error by what it quotes of these.
"""

import errno
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from typing import Final

from msgspec.structs import replace

from proxylab.addresses import Transport
from proxylab.errors import CapabilityError
from proxylab.evidence.evidence import DropReason, Leg, Packet, RuleCount, TraceStep
from proxylab.evidence.ipvs import VIRTUAL_SERVERS
from proxylab.kernel.capture.drop_reasons import Drop, DropReasons
from proxylab.kernel.netfilter.packet_tracer import ENTRY, Bytes, PacketMatch, TraceEvent, Tracer
from proxylab.kernel.sandbox.netns import NetNs
from proxylab.plan.model import Plan
from proxylab.plan.resolved import ResolvedProbe
from proxylab.scenario.words import Manner
from proxylab.traffic.dissect import ICMP, ICMPV6, SCTP, TCP, UDP, Chunk, Datagram, TcpFlag, dissect
from proxylab.traffic.identity import TOKEN_BYTES, Identity, TokenKind

RuleTexts = Mapping[tuple[str, str], Sequence[str]]
"""The rules of a node by table and chain, in order, as iptables-save prints them."""

_TOKEN_AT: Final = 8  # behind the header of UDP, or of ICMP
_VERIFICATION_TAG: Final = 4
_INITIATE_TAG: Final = 16
_CHUNKS: Final = {Chunk.INIT: Packet.REQUEST, Chunk.INIT_ACK: Packet.REPLY, Chunk.ABORT: Packet.RESET}
_ICMP_HEADER: Final = 8
_IP_HEADER: Final = {4: 20, 6: 40}
_ICMP: Final = {4: ICMP, 6: ICMPV6}
_ECHOES: Final = {
    (8, 0): Packet.REQUEST,
    (0, 0): Packet.REPLY,
    (128, 0): Packet.REQUEST,
    (129, 0): Packet.REPLY,
}
_PORT_UNREACHABLE: Final = ((3, 3), (1, 4))
_SOURCE, _TARGET, _FLAGS = 0, 2, 13  # of a TCP header
_OPENS: Final = bytes([TcpFlag.SYN])
_ANSWERS: Final = bytes([TcpFlag.SYN | TcpFlag.ACK])
_REFUSES: Final = bytes([TcpFlag.RST | TcpFlag.ACK])
_TOKEN_END: Final = 16  # run and flow: unique in the lab, and as much as one register holds
_VERSIONS: Final = {0x0800: 4, 0x86DD: 6}  # by EtherType
_LOOPBACK: Final = {1: "lo"}  # the first device of every namespace (net/core/dev.c, dev_new_index)
_NO_LINK_HEADER: Final = {4: bytes(12) + b"\x08\x00", 6: bytes(12) + b"\x86\xdd"}


class Tracing:
    """The tracers of all nodes of a lab, and one traced packet at a time."""

    def __init__(self, netns_by_name: Mapping[str, NetNs], plan: Plan, nodes: Iterable[str]) -> None:
        """Open a tracer in each of ``nodes``.

        Raises:
            CapabilityError: the kernel cannot trace; tracers opened so far are closed again.
        """
        self._drops: tuple[Drop, ...] = ()
        self._port = 0
        self._tracers: dict[str, Tracer] = {}
        self._reasons: DropReasons | None = None
        self._devices = {
            node: _LOOPBACK
            | {end.index: end.device for link in plan.links for end in link.ends if end.namespace == node}
            for node in nodes
        }
        try:
            for node in self._devices:
                self._tracers[node] = Tracer(netns_by_name[node])
            with suppress(CapabilityError):  # rule traces work without them
                self._reasons = DropReasons()
        except BaseException:
            self.close()
            raise

    def arm(self, resolved: ResolvedProbe, identity: Identity, port: int) -> None:
        """Trace the packets of this run from now on; it has one flow.

        Where proxies end connections, ``port`` is the sender's, by which legs differ; elsewhere it is 0.
        """
        by_sockets = resolved.protocol is Transport.TCP and resolved.manner is Manner.CONNECT
        self._port = port
        matches = tuple(_matches_of_legs(resolved, port) if by_sockets else _matches(resolved, identity))
        for tracer in self._tracers.values():
            tracer.arm(matches)
        if self._reasons is not None:
            self._reasons.start()

    def finish(self, identity: Identity, texts: Mapping[str, RuleTexts]) -> tuple[TraceStep, ...]:
        """Stop tracing, and return every step of the run: requests first, then answers.

        Raises:
            CapabilityError: the kernel's log overflowed, so that steps are missing.
        """
        self._drops = () if self._reasons is None else self._reasons.stop()
        for tracer in self._tracers.values():
            tracer.disarm()
        passages: list[list[TraceStep]] = []
        for node, tracer in self._tracers.items():
            try:
                events = tracer.read()
            except OSError as error:
                if error.errno != errno.ENOBUFS:
                    raise
                raise CapabilityError(
                    f"room for the trace of this packet on {node}, which exceeds what a socket may hold here",
                    "raise net.core.rmem_max, or run as root; a packet in a routing loop is traced at every turn",
                ) from error
            steps = (self._step(node, event, identity, texts[node]) for event in events)
            passages += _passages(step for step in steps if step is not None)
        passages.sort(key=_turn)
        return tuple(chain.from_iterable(passages))

    def drops_until(self, counters_read_at: int) -> tuple[DropReason, ...]:
        """The kernel's drops in the finished run, before its first sentinel packet if it sent one.

        Empty where the kernel does not report drop reasons.
        """
        return tuple(
            DropReason(_VERSIONS[protocol], reason, at)
            for protocol, reason, at in self._drops
            if protocol in _VERSIONS and (at <= counters_read_at or not counters_read_at)
        )

    def close(self) -> None:
        """Close all tracers."""
        if self._reasons is not None:
            self._reasons.close()
        for tracer in self._tracers.values():
            tracer.close()

    def _leg(self, datagram: Datagram) -> Leg:
        seen = datagram.quoted or datagram
        own = not self._port or self._port in (seen.source_port, seen.destination_port)
        return Leg.OWN if own else Leg.ONWARD

    def _step(self, node: str, event: TraceEvent, identity: Identity, texts: RuleTexts) -> TraceStep | None:
        header = _NO_LINK_HEADER.get(event.packet[0] >> 4) if event.packet else None
        datagram = None if header is None else dissect(header + event.packet)
        packet = None if datagram is None else _packet(datagram, identity)
        if datagram is None or packet is None:
            return None
        rules = texts.get((event.table, event.chain), ())
        at = event.number - 1
        devices = self._devices[node]
        return TraceStep(
            netns_name=node,
            table=event.table,
            chain=event.chain,
            kind=event.kind,
            text=rules[at] if event.kind != "policy" and 0 <= at < len(rules) else "",
            verdict=event.verdict,
            packet=packet,
            source=datagram.source,
            source_port=datagram.source_port,
            destination=datagram.destination,
            destination_port=datagram.destination_port,
            mark=event.mark,
            in_device=devices.get(event.in_index, ""),
            out_device=devices.get(event.out_index, ""),
            at=event.at_ns,
            leg=self._leg(datagram),
        )


def with_virtual_servers(steps: Sequence[TraceStep], counts: Iterable[RuleCount]) -> tuple[TraceStep, ...]:
    """The steps, and among them those of IPVS, which the kernel does not trace: where the destination is a new one.

    A virtual server that rejects a packet is the last step of its passage.
    """
    found = list(steps)
    for count in (each for each in counts if each.table == VIRTUAL_SERVERS):
        here = [at for at, step in enumerate(found) if (step.netns_name, step.packet) == (count.node, Packet.REQUEST)]
        to = (count.destination, count.destination_port)
        behind = next((at for at in here if (found[at].destination, found[at].destination_port) == to), None)
        if here:
            at = here[-1] + 1 if behind is None else behind
            before = found[max(at - 1, here[0])]
            own = replace(before, table=count.table, chain=count.chain, kind="rule", text=count.text, verdict="")
            found.insert(at, own)
    return tuple(found)


def _matches(resolved: ResolvedProbe, identity: Identity) -> Iterator[PacketMatch]:
    """Match the request, its answers, and ICMP errors about it."""
    version = resolved.destination.version
    icmp, quoted = _ICMP[version], _ICMP_HEADER + _IP_HEADER[version]
    if resolved.protocol is Transport.TCP:
        sequence = identity.sequence(0)
        sent = sequence.to_bytes(4, "big")
        yield PacketMatch(TCP, (Bytes(4, sent),))
        yield PacketMatch(TCP, (Bytes(8, ((sequence + 1) & 0xFFFFFFFF).to_bytes(4, "big")),))
        yield PacketMatch(icmp, (Bytes(quoted + 4, sent),))
    elif resolved.protocol is Transport.SCTP:
        tag = identity.sequence(0).to_bytes(4, "big")
        yield PacketMatch(SCTP, (Bytes(_INITIATE_TAG, tag),))
        yield PacketMatch(SCTP, (Bytes(_VERIFICATION_TAG, tag),))
        yield PacketMatch(icmp, (Bytes(quoted + _INITIATE_TAG, tag),))
    else:
        end = identity.token(TokenKind.PROBE, 0)[-_TOKEN_END:]
        at = _TOKEN_AT + TOKEN_BYTES - _TOKEN_END
        yield PacketMatch(resolved.protocol_number, (Bytes(at, end),))
        yield PacketMatch(icmp, (Bytes(quoted + at, end),))


def _matches_of_legs(resolved: ResolvedProbe, port: int) -> Iterator[PacketMatch]:
    """Match what opens, answers or refuses a connection from that port, and a program's ones to the endpoints.

    Only the sender's port names the first leg, and only the endpoints' ports the second: kernels choose the rest. A lab
    has no other traffic on them while a probe runs.
    """
    ports = {end.port for end in resolved.endpoints} - {resolved.port}
    for number, (there, back) in {port: (_SOURCE, _TARGET), **dict.fromkeys(ports, (_TARGET, _SOURCE))}.items():
        yield PacketMatch(TCP, (Bytes(there, number.to_bytes(2, "big")), Bytes(_FLAGS, _OPENS)))
        for flags in (_ANSWERS, _REFUSES):
            yield PacketMatch(TCP, (Bytes(back, number.to_bytes(2, "big")), Bytes(_FLAGS, flags)))
    version = resolved.destination.version
    yield PacketMatch(_ICMP[version], (Bytes(_ICMP_HEADER + _IP_HEADER[version] + _SOURCE, port.to_bytes(2, "big")),))


def _turn(passage: Sequence[TraceStep]) -> tuple[int, ...]:
    """The place of a passage on the way there and back: the first leg comes first there, and last on the way back."""
    first = passage[0]
    back = first.packet is not Packet.REQUEST
    return back, -first.leg if back else int(first.leg), first.at


def _packet(datagram: Datagram, identity: Identity) -> Packet | None:
    """What a traced packet is to the run's flow; ``None`` for a packet of another flow."""
    if datagram.icmp in _ECHOES:
        token = identity.read(datagram.payload)
        return None if token is None or token[0] is TokenKind.SENTINEL else _ECHOES[datagram.icmp]
    if datagram.icmp is not None:
        return Packet.PORT_UNREACHABLE if datagram.icmp in _PORT_UNREACHABLE else Packet.OTHER_ICMP
    if datagram.protocol == UDP:
        token = identity.read(datagram.payload)
        if token is None or token[0] is TokenKind.SENTINEL:
            return None
        return Packet.REQUEST if token[0] is TokenKind.PROBE else Packet.REPLY
    if datagram.protocol == SCTP:
        return _CHUNKS.get(datagram.flags or 0)
    flags = datagram.flags or 0
    if flags & TcpFlag.RST:
        return Packet.RESET
    return Packet.REPLY if flags & TcpFlag.ACK else Packet.REQUEST


def _passages(steps: Iterable[TraceStep]) -> Iterator[list[TraceStep]]:
    """The steps of one node, divided where a packet enters it."""
    passage: list[TraceStep] = []
    for step in steps:
        if step.kind == ENTRY and passage:
            yield passage
            passage = []
        passage.append(step)
    if passage:
        yield passage
