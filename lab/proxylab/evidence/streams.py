"""What was seen of streams in one step: pure data, complete enough to be judged anywhere.

Owns: the frozen records that ``traffic.streams`` fills in and ``verdict.steps`` reads.
Must not: judge.

A pulse is one packet of a stream: a datagram, or a line on a connection. Times are nanoseconds of CLOCK_REALTIME.
"""

from enum import StrEnum

from proxylab.addresses import IPAddress
from proxylab.evidence.evidence import TableEntry, TrackedFlow
from proxylab.frozen import dataclass

__all__ = ["Break", "BreakKind", "StepEvidence", "StreamPacket", "StreamPacketFate", "StreamRecord"]


class StreamPacketFate(StrEnum):
    """What became of a pulse by the end of its step."""

    ANSWERED = "answered"
    REJECTED = "rejected"
    LOST = "lost"


class BreakKind(StrEnum):
    """How a connection ended: by an RST, or in good order by the other side."""

    RESET = "reset"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class StreamPacket:
    """One packet of a stream, and what became of it.

    Attributes:
        number: counts the pulses of the stream from 0, over all steps.
        at: when it was sent.
        fate: by the end of the step.
        delay: until the answer, in nanoseconds; 0 without one.
        backend: who answered; empty without an answer.
        peer: whom the backend saw.
        peer_port: likewise.
        error: the errno's name, where a socket named one: of an ICMP error, a reset, or a send that was refused.
    """

    number: int
    at: int
    fate: StreamPacketFate
    delay: int = 0
    backend: str = ""
    peer: IPAddress | None = None
    peer_port: int = 0
    error: str = ""


@dataclass(frozen=True, slots=True)
class Break:
    """The end of a connection, as its sender saw it."""

    at: int
    kind: BreakKind


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamRecord:
    """One stream in one step.

    Attributes:
        stream: its name.
        port: its source port; of the latest connection, where each had its own.
        packets: those that were sent in the step, in order.
        breaks: the ends of its connections, in order. A further RST of a connection that had ended is one more.
        late: pulses that were lost to an earlier step, and answered in this one.
        tracked: what the nodes' connection tracking held of it when the step ended.
        silent: the fences that did not come back, by the names of their places; sent only where a pulse was missing.
    """

    stream: str
    port: int
    packets: tuple[StreamPacket, ...] = ()
    breaks: tuple[Break, ...] = ()
    late: tuple[StreamPacket, ...] = ()
    tracked: tuple[TrackedFlow, ...] = ()
    silent: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StepEvidence:
    """All that was seen of one step.

    Attributes:
        began: when it began, with a pulse of every stream.
        changed: when its change was made.
        settled: when what it waits for was there, and pods that it deletes had fallen silent.
        ended: when the last pulse of every stream was settled.
        streams: in the order of the scenario.
        entries: what the nodes' connection tracking held at the end; ``None`` where it was not read.
    """

    began: int
    changed: int
    settled: int
    ended: int
    streams: tuple[StreamRecord, ...] = ()
    entries: tuple[TableEntry, ...] | None = None
