"""What was seen while a probe ran: pure data, complete enough to be judged anywhere.

Owns: the frozen records that ``traffic`` fills in and ``verdict`` reads.
Must not: judge. A record says what was seen, never whether that is right.

Times are nanoseconds of CLOCK_REALTIME as the kernel stamps frames (SO_TIMESTAMPNS, socket(7)).
"""

from ipaddress import ip_address

from proxylab.addresses import IPAddress, Transport
from proxylab.evidence.observation import Direction, Observation, Packet
from proxylab.evidence.passages import PassageBook, Passages
from proxylab.frozen import dataclass

__all__ = [
    "Capture",
    "ConnectReport",
    "Direction",
    "DropReason",
    "Evidence",
    "ForeignRule",
    "HttpReport",
    "KernelCount",
    "Lookup",
    "NamedRecord",
    "Observation",
    "Packet",
    "Passages",
    "RuleCount",
    "SeenFrame",
    "SentinelReport",
    "TableEntry",
    "TapLoss",
    "TraceStep",
    "TrackedFlow",
]


@dataclass(frozen=True, slots=True)
class SeenFrame:
    """The bytes of one observation, as hexadecimal digits, for those who want to look for themselves.

    ``length`` is that of the frame on the wire, where only its beginning was kept; 0 where all of it was.
    """

    flow: int
    netns_name: str
    device: str
    direction: Direction
    packet: Packet
    at: int
    data: str
    length: int = 0


@dataclass(frozen=True, slots=True)
class Capture:
    """The frames of one run, of every flow and at every tap, in the order in which they were read.

    ``left_out`` counts those that were one too many to be kept: the last ones.
    """

    frames: tuple[SeenFrame, ...] = ()
    left_out: int = 0


@dataclass(frozen=True, slots=True)
class ConnectReport:
    """What the kernel's sockets said of one ``connect`` flow.

    ``error`` is an errno name such as ``ECONNREFUSED``, empty when the flow was answered, ``timeout`` when nothing
    came. ``backend`` and ``peer_*`` are what the responder said of itself and of the peer it saw.
    """

    flow: int
    local: IPAddress
    local_port: int
    error: str = ""
    backend: str = ""
    peer: IPAddress | None = None
    peer_port: int = 0


@dataclass(frozen=True, slots=True)
class HttpReport:
    """What one flow was answered by HTTP. ``error`` is an errno's name or ``timeout``; then the status is 0."""

    flow: int
    status: int
    local_endpoints: int | None = None
    error: str = ""


@dataclass(frozen=True, slots=True)
class RuleCount:
    """How many packets one rule counted during the probe. ``text`` is the rule as iptables-save or nft prints it.

    Where the kernel told of each packet what the rule did with it, ``target`` is that, in iptables' word (``DROP``,
    ``REJECT``, ``DNAT``, ``MASQUERADE``): then the packets are of the probe, and ``destination`` is where a translation
    sent them. Else ``target`` is empty, and the rule's text must say all of it.
    """

    node: str
    table: str
    chain: str
    text: str
    packets: int
    target: str = ""
    destination: IPAddress | None = None
    destination_port: int = 0


@dataclass(frozen=True, slots=True)
class ForeignRule:
    """One rule of a node that belongs neither to its engine nor to the lab, or the policy of such a chain.

    ``table`` is as its tool names it: ``inet guard`` for nft, ``raw`` for legacy iptables. ``hook`` and ``priority``
    are those of a base chain; of any other they are empty and 0. ``packets`` is how far its counter moved during the
    probe; ``None`` for a rule without a counter. A table that could not be listed is one rule without chain and text.
    """

    node: str
    table: str
    chain: str
    hook: str
    priority: int
    text: str
    packets: int | None


@dataclass(frozen=True, slots=True)
class KernelCount:
    """How far one counter of a network stack moved before any fence was sent, by nstat's name for it.

    ``node`` is the node, or the namespace of the pod or host that was watched.
    """

    node: str
    counter: str
    packets: int


@dataclass(frozen=True, slots=True)
class SentinelReport:
    """Whether a fence was answered, and if so when."""

    name: str
    answered: bool
    at: int = 0


@dataclass(frozen=True, slots=True)
class TapLoss:
    """Frames that a tap could not keep (PACKET_STATISTICS, packet(7))."""

    netns_name: str
    device: str
    frames: int


@dataclass(frozen=True, slots=True)
class TrackedFlow:
    """What a node's connection tracking held of a flow when the run was over: who answers it there, and to whom.

    Without translation ``reply_source`` is what was dialled, and ``reply_destination`` the sender.
    """

    flow: int
    node: str
    reply_source: IPAddress
    reply_source_port: int
    reply_destination: IPAddress
    reply_destination_port: int


@dataclass(frozen=True, slots=True)
class TableEntry:
    """One entry of a node's connection tracking, whosever it is: who dialled what, who answers, and whom."""

    node: str
    protocol: Transport
    source: IPAddress
    source_port: int
    destination: IPAddress
    destination_port: int
    reply_source: IPAddress
    reply_source_port: int
    reply_destination: IPAddress
    reply_destination_port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceStep:
    """One rule, return or policy that a traced packet met in a node, and the packet as it came there.

    ``kind`` is the kernel's word: ``rule``, ``return`` or ``policy``; or ``entry`` for the packet as it came, before
    any rule but the lab's own. ``text`` is the rule as the tool that wrote it prints it; empty for what is no rule, and
    for a return at the end of a chain. ``verdict`` is nf_tables' own, such as ``drop`` or ``jump KUBE-SERVICES``;
    legacy iptables tells none. A device is empty where there is none. ``at`` is 0 where the
    kernel does not tell the time; steps stand in the order in which they were taken.
    """

    netns_name: str
    table: str
    chain: str
    kind: str
    text: str
    packet: Packet
    source: IPAddress
    source_port: int
    destination: IPAddress
    destination_port: int
    mark: int = 0
    in_device: str = ""
    out_device: str = ""
    at: int = 0
    verdict: str = ""


@dataclass(frozen=True, slots=True)
class DropReason:
    """A packet that the kernel dropped while a traced packet was sent, by the kernel's own word for why.

    It does not say which packet that was: only of which IP version, and when.
    """

    version: int
    reason: str
    at: int


@dataclass(frozen=True, slots=True)
class NamedRecord:
    """One record of an answer: ``value`` as zone files spell it (RFC 1035, section 5.1), names without the last dot."""

    name: str
    kind: str
    value: str
    ttl: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Lookup:
    """One question about a name, and what became of it.

    Attributes:
        name: absolute, without the dot at the end.
        kind: of the records asked for, such as ``AAAA``.
        server: the address that was asked.
        error: why there is no answer: ``timeout``, the name of an errno, or ``malformed``; empty where there is one.
        code: of the answer, such as ``NXDOMAIN``.
        answers: the records of the answer's first section.
        authority: those of the second; with no answers, the SOA that says how long to believe it.
        additional: those of the third.
        truncated: whether the answer by UDP did not fit, so that it was asked again by TCP.
        by_tcp: whether the answer came by TCP.
        served_by: the pod that answered, by its own word (NSID, RFC 5001).
    """

    name: str
    kind: str
    server: IPAddress
    error: str = ""
    code: str = ""
    answers: tuple[NamedRecord, ...] = ()
    authority: tuple[NamedRecord, ...] = ()
    additional: tuple[NamedRecord, ...] = ()
    truncated: bool = False
    by_tcp: bool = False
    served_by: str = ""

    @property
    def addresses(self) -> tuple[IPAddress, ...]:
        """The addresses in the answer, whatever names lead to them."""
        return tuple(ip_address(each.value) for each in self.answers if each.kind in ("A", "AAAA"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """All that was seen of one probe. ``sent`` counts flows whose first packet left; ``refused_sends`` the others.

    ``observations`` are told one by one. Where there are many flows, what devices of nodes saw of them is packed, in
    ``passages``; ``of_flow`` has both.
    ``foreign`` are the rules of nodes that belong to no engine and no meter counts, where there are any.
    ``counted`` are the nodes whose rule counters were read; a rule of theirs that is not in ``counts`` counted nothing.
    ``unpinned`` is why the run could not be kept on one CPU; empty when it was. ``tracked`` is what all nodes'
    connection tracking held of its flows, ``entries`` all that it held at all; ``None`` where that was not read.
    ``http`` is what the flows that asked by HTTP were answered. ``kernel`` is what stacks counted until ``held_at``,
    where some flow was missing; 0 where none was. ``lookups`` are the questions about the name that was dialled, in the
    order of their asking. ``steps`` are those of a traced packet: the way there through every node, then the way back;
    ``drops`` what the kernel dropped meanwhile, where it tells.
    """

    sent: int
    observations: tuple[Observation, ...] = ()
    passages: tuple[Passages, ...] = ()
    connects: tuple[ConnectReport, ...] = ()
    counts: tuple[RuleCount, ...] = ()
    counted: tuple[str, ...] = ()
    foreign: tuple[ForeignRule, ...] = ()
    sentinels: tuple[SentinelReport, ...] = ()
    unpinned: str = ""
    losses: tuple[TapLoss, ...] = ()
    refused_sends: tuple[str, ...] = ()
    tracked: tuple[TrackedFlow, ...] | None = None
    entries: tuple[TableEntry, ...] | None = None
    http: tuple[HttpReport, ...] = ()
    kernel: tuple[KernelCount, ...] = ()
    held_at: int = 0
    lookups: tuple[Lookup, ...] = ()
    steps: tuple[TraceStep, ...] = ()
    drops: tuple[DropReason, ...] = ()
    unfinished: str = ""
    seconds: float = 0.0

    def of_flow(self, number: int) -> tuple[Observation, ...]:
        """Everything that was seen of one flow, at the sender, in and out of every node, at the pod, and back.

        In the order of time. To look at many flows, make one ``PassageBook``: it unpacks once.
        """
        told = (each for each in self.observations if each.flow == number)
        return tuple(sorted((*told, *PassageBook(self.passages).of(number)), key=lambda seen: seen.at))
