"""The frozen records of streams in one step, which ``traffic.streams`` fills in and ``verdict`` reads.

A stream packet is a datagram, or a line on a connection. Times are nanoseconds of CLOCK_REALTIME.
"""

from collections.abc import Mapping
from enum import StrEnum

from proxylab.addresses import IPAddress
from proxylab.encoding import Record
from proxylab.evidence.evidence import ForeignRule, LinkCount, Packet, RuleCount, TableEntry, TrackedFlow


class StreamPacketFate(StrEnum):
    """What became of a stream packet by the end of its step."""

    ANSWERED = "answered"
    REJECTED = "rejected"
    LOST = "lost"


class BreakKind(StrEnum):
    """How a connection ended: by an RST, or by the other side's FIN."""

    RESET = "reset"
    CLOSED = "closed"


class StreamPacket(Record, frozen=True, array_like=True, gc=False):
    """One packet of a stream, and what became of it.

    Attributes:
        number: counts the packets of the stream from 0, over all steps.
        at: when it was sent.
        fate: by the end of the step.
        delay: until the answer, in nanoseconds; 0 without one.
        backend: the pod that answered; empty without an answer.
        peer: the source address that the backend saw.
        peer_port: the source port that the backend saw.
        error: the errno's name of an ICMP error, a reset, or a refused send; empty without one.
        link: the link with netem that lost the packet or its answer; empty if none did.
        own: the address at which the backend got it; ``None`` without an answer.
        own_port: the port of that.
        altered: ``request`` or ``reply``, whichever came otherwise than it was sent; empty if neither did.
        port: the source port from which it left; 0 without an answer.
    """

    number: int
    at: int
    fate: StreamPacketFate
    delay: int = 0
    backend: str = ""
    peer: IPAddress | None = None
    peer_port: int = 0
    error: str = ""
    link: str = ""
    own: IPAddress | None = None
    own_port: int = 0
    altered: str = ""
    port: int = 0


class StreamCopy(Record, frozen=True):
    """A packet of a stream, or its answer, that came in more often than it was sent.

    Attributes:
        number: of the packet; ``None`` for the packet that begins a connection.
        packet: request or reply.
        sent: how often it was sent.
        came: where it came in, each time.
    """

    number: int | None
    packet: Packet
    sent: int
    came: tuple[str, ...]


class Break(Record, frozen=True):
    """The end of a connection, as its sender saw it."""

    at: int
    kind: BreakKind


class StreamRecord(Record, frozen=True, kw_only=True):
    """One stream in one step.

    Attributes:
        stream: its name.
        port: its source port; with several connections, the latest one's.
        packets: those sent in the step, in order.
        breaks: the ends of its connections, in order. A further RST of an ended connection counts again.
        late: packets that an earlier step lost, with an answer in this one.
        tracked: its conntrack entries on the nodes when the step ended.
        silent: the nodes, pods and hosts whose sentinel packets did not come back; sent only after a missing packet.
        by_connection: whether a kernel sends again what was lost (TCP, SCTP).
        undrained: after a missing packet, the nodes on whose proxies' own processes it may still wait.
        copies: packets that came in more often than they were sent.
    """

    stream: str
    port: int
    packets: tuple[StreamPacket, ...] = ()
    breaks: tuple[Break, ...] = ()
    late: tuple[StreamPacket, ...] = ()
    tracked: tuple[TrackedFlow, ...] = ()
    silent: tuple[str, ...] = ()
    by_connection: bool = False
    undrained: tuple[str, ...] = ()
    copies: tuple[StreamCopy, ...] = ()


class Sample(Record, frozen=True):
    """One sample of a metric."""

    name: str
    labels: Mapping[str, str]
    value: float


class Exported(Record, frozen=True):
    """What the engine of a node exported at /metrics: all names, and the samples of those that the author asks for.

    ``problem`` is why it did not answer; empty if it did.
    """

    node: str
    names: tuple[str, ...] = ()
    samples: tuple[Sample, ...] = ()
    problem: str = ""


class StepEvidence(Record, frozen=True, kw_only=True):
    """The record of one step.

    Attributes:
        began: when it began, with a packet of every stream.
        changed: when the lab made its change.
        settled: when its wait ended, and the pods that it deletes were silent.
        ended: when the last packet of every stream was settled.
        streams: in the order of the scenario.
        entries: all conntrack entries of the nodes at the end; ``None`` where the lab did not read them. It reads them
            where a node changed a stream's port alone.
        links: what the links with netem dropped, until the last packet was settled.
        exported: the metrics of the engines of nodes of which the author expects some, at the end.
        traced: how many flows the lab has sent by itself until then, to trace a probe; metrics count them, too.
        foreign: the nodes' rules that belong neither to an engine nor to the lab, and have no counter or have counted
            in this step or an earlier one.
        counts: what the rules of the engines' own tables have counted, where others have rules there, too: in table nat
            until then, and in this step in the others.
    """

    began: int
    changed: int
    settled: int
    ended: int
    streams: tuple[StreamRecord, ...] = ()
    entries: tuple[TableEntry, ...] | None = None
    exported: tuple[Exported, ...] = ()
    traced: int = 0
    links: tuple[LinkCount, ...] = ()
    foreign: tuple[ForeignRule, ...] = ()
    counts: tuple[RuleCount, ...] = ()
