"""The frozen records that ``traffic`` fills in and ``verdict`` reads: pure data, complete enough to judge anywhere.

A record holds what the lab observed, never whether that is right. Times are nanoseconds of CLOCK_REALTIME as
the kernel stamps frames (SO_TIMESTAMPNS, socket(7)).
"""

from collections.abc import Mapping
from enum import IntEnum, StrEnum

from msgspec import field

from proxylab.addresses import IPAddress, Transport
from proxylab.encoding import Record
from proxylab.evidence.lookups import Lookup


class Packet(StrEnum):
    """The kind of a packet in its flow."""

    REQUEST = "request"
    REPLY = "reply"
    RESET = "reset"
    PORT_UNREACHABLE = "port-unreachable"
    OTHER_ICMP = "other-icmp"
    CLOSE = "close"
    """The end of an accepted connection, by FIN or RST. Recorded at the sender, where proxies end connections."""


class Direction(StrEnum):
    """Which way a packet crosses the device it was seen on, as the namespace of that device sees it."""

    IN = "in"
    OUT = "out"


class Leg(IntEnum):
    """The part of a flow that a packet belongs to: a program divides it that ends a connection and opens another."""

    OWN = 0
    """From the sender to the program, or to the pod where no program ends the flow."""
    ONWARD = 1
    """From the program to the endpoint, with the flow's request."""
    TRIED = 2
    """From the program to an endpoint that did not get the request."""


class Observation(Record, frozen=True, array_like=True, gc=False):
    """One packet of one flow at one tap.

    For ICMP errors ``source``/``destination`` are those of the error itself, ports are 0, and ``icmp`` is
    ``(type, code)``; the packet that the error quotes identifies the flow. ``netns_name`` names the node, pod or host.
    For an echo request and its reply the requester's port is the identifier, as in connection tracking, and the other
    port is 0. ``otherhost`` marks a frame for another device's MAC (PACKET_OTHERHOST, packet(7)), which a bridge floods
    while it does not know the MAC: the stack behind this device drops it. ``ttl`` is the time to live of IPv4 or the
    hop limit of IPv6, and ``dscp`` the mark for queues; a ``ttl`` of 0 means that neither is known.
    """

    flow: int
    netns_name: str
    device: str
    direction: Direction
    packet: Packet
    protocol: Transport
    source: IPAddress
    source_port: int
    destination: IPAddress
    destination_port: int
    at: int
    icmp: tuple[int, int] | None = None
    otherhost: bool = False
    leg: Leg = Leg.OWN
    ttl: int = 0
    dscp: int = 0


class Part(StrEnum):
    """The part of a packet that came otherwise than it was sent."""

    DATA = "data"
    CHECKSUM = "IP checksum"
    DSCP = "DSCP"
    QUOTE = "quoted packet"
    """Of an ICMP error: the packet that it is about, as the sender gets it back."""


class Altered(Record, frozen=True):
    """A packet of a flow that came otherwise than it was sent: the first such sighting.

    A socket at ``netns_name`` saw it where ``device`` is empty. Of a quoted packet, ``sent`` and ``seen`` are its ends,
    of DSCP the two numbers, and of data, where it is known, the offset of the first other byte and what stands there.
    """

    flow: int
    packet: Packet
    netns_name: str
    device: str
    part: Part
    sent: str = ""
    seen: str = ""


class SeenFrame(Record, frozen=True, array_like=True, gc=False):
    """The bytes of one observation, as hexadecimal digits."""

    flow: int
    netns_name: str
    device: str
    direction: Direction
    packet: Packet
    at: int
    data: str


class Capture(Record, frozen=True):
    """The frames of one run in the order of reading. ``left_out`` counts the last ones, which exceeded the limit."""

    frames: tuple[SeenFrame, ...] = ()
    left_out: int = 0


class ConnectReport(Record, frozen=True, array_like=True, gc=False):
    """What the kernel's sockets reported of one ``connect`` flow.

    ``error`` is an errno name such as ``ECONNREFUSED``, ``timeout`` when no answer came, empty when one came.
    ``backend`` and ``peer_*`` are the responder's own name and the peer that it saw. ``unended`` is why an answered TCP
    connection did not end with a FIN from both sides: ``timeout``, or an errno's name; empty if it did.
    """

    flow: int
    local: IPAddress
    local_port: int
    error: str = ""
    backend: str = ""
    peer: IPAddress | None = None
    peer_port: int = 0
    unended: str = ""


class HttpReport(Record, frozen=True, array_like=True, gc=False):
    """The HTTP answer to one flow.

    ``error`` is an errno's name, ``timeout``, or OpenSSL's reason; then the status is 0. Behind an Ingress, ``backend``
    is the pod that answered, and it saw a connection from ``source`` with ``forwarded_for`` in X-Forwarded-For.
    ``headers`` have lower-case names. ``body`` has the values of a JSON answer, as JSON, by names as ``service.name``.
    """

    flow: int
    status: int
    local_endpoints: int | None = None
    error: str = ""
    backend: str = ""
    source: IPAddress | None = None
    forwarded_for: str = ""
    headers: Mapping[str, str] = {}
    body: Mapping[str, str] = {}


class RuleCount(Record, frozen=True):
    """How many packets one rule counted during the probe, with its text as iptables-save or nft prints it.

    Where the kernel reported for each packet what the rule did, ``target`` is iptables' word for it (``DROP``,
    ``REJECT``, ``DNAT``, ``MASQUERADE``): then the packets are the probe's, and ``destination`` is where a translation
    sent them. Otherwise ``target`` is empty, and only the rule's text shows what it does. A rule that matches a set
    names no address; ``member`` is then the member of the set that what the probe dials, or its endpoint, is.
    """

    node: str
    table: str
    chain: str
    text: str
    packets: int
    target: str = ""
    destination: IPAddress | None = None
    destination_port: int = 0
    member: str = ""


class ForeignRule(Record, frozen=True):
    """One rule of a node that belongs neither to its engine nor to the lab, or the policy of such a chain.

    ``hook`` and ``priority`` are empty and 0 but for base chains. ``packets`` is how far its counter moved, ``None``
    without one. A table that could not be listed is a rule without chain and text. In tables ``tc`` and ``XDP``,
    ``chain`` is a device: its queue counts what it drops, and held ``waiting`` packets before the sentinels. A rule of
    the ``past`` met packets of streams in an earlier step, and none in this one.
    """

    node: str
    table: str
    chain: str
    hook: str
    priority: int
    text: str
    packets: int | None
    waiting: int = 0
    past: bool = False


class KernelCount(Record, frozen=True):
    """How far one counter of a stack, of a node or a watched pod or host, moved before the first sentinel packet."""

    node: str
    counter: str
    packets: int


class LinkCount(Record, frozen=True, kw_only=True):
    """What one direction of a link with netem dropped, by the counter of its queue.

    Attributes:
        link: the link, as ``change.links`` names it.
        outward: whether packets leave that machine; otherwise they come to it.
        netem: what the link does now, in words.
        dropped: how many packets it dropped.
        copies: whether it may have copied packets.
        behind: the devices from which packets come into this way next, as ``NAMESPACE/DEVICE``.
    """

    link: str
    outward: bool
    netem: str
    dropped: int
    copies: bool
    behind: tuple[str, ...]


class Discarded(Record, frozen=True):
    """How many datagrams a proxy's own process discarded in the run, for a service port such as ``default/dns/UDP``."""

    node: str
    service_port: str
    datagrams: int


class SentinelReport(Record, frozen=True):
    """Whether an answer to a sentinel packet came, and when."""

    name: str
    answered: bool
    at: int = 0


class TapLoss(Record, frozen=True):
    """Frames that a tap could not keep (PACKET_STATISTICS, packet(7))."""

    netns_name: str
    device: str
    frames: int


class TrackedFlow(Record, frozen=True, array_like=True, gc=False):
    """A node's conntrack entry for a flow at the end of the run: the source and destination of its replies.

    Without translation ``reply_source`` is the dialled address, and ``reply_destination`` the sender.
    """

    flow: int
    node: str
    reply_source: IPAddress
    reply_source_port: int
    reply_destination: IPAddress
    reply_destination_port: int


class EarlierConnection(Record, frozen=True, array_like=True, gc=False):
    """A client's last connection before the probe to a service port with session affinity.

    ``address`` and ``port`` are of the endpoint that the proxy chose; ``at`` is when the first packet left.
    """

    client: IPAddress
    address: IPAddress
    port: int
    at: int


class TableEntry(Record, frozen=True, array_like=True, gc=False):
    """Any entry of a node's connection tracking: both ends of the original packets and of the replies."""

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


class TraceStep(Record, frozen=True, kw_only=True):
    """One rule, return or policy that a traced packet met in a node, and the packet before it.

    ``kind`` is the kernel's word: ``rule``, ``return`` or ``policy``; or ``entry`` for the packet before any rule but
    the lab's own. ``text`` is the rule as the tool that wrote it prints it; empty without a rule, and for a return at
    the end of a chain. ``verdict`` is nf_tables' own, such as ``drop`` or ``jump KUBE-SERVICES``; legacy iptables
    reports none. ``at`` is 0 where the kernel gives no time; the steps are in order.
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
    leg: Leg = Leg.OWN


class DropReason(Record, frozen=True):
    """A drop that the kernel reported during a trace, with the kernel's own word for the reason.

    The kernel does not report which packet it dropped, only its IP version and the time.
    """

    version: int
    reason: str
    at: int


class Evidence(Record, frozen=True, kw_only=True):
    """The record of one probe. ``sent`` counts the flows that left; ``refused_sends`` holds the errors of others.

    ``foreign`` holds the rules of nodes that belong to no engine and no meter counts. ``metered_nodes`` names the nodes
    whose rule counters the lab read; a rule of theirs that is not in ``counts`` counted nothing. ``unpinned`` is why
    the run could not stay on one CPU; empty when it did. ``tracked`` holds the conntrack entries of the probe's flows
    on all nodes, ``entries`` all entries, or those that hold the tuples of flows whose port a node changed; ``None``
    where the lab did not read them. ``known`` are those that flows from the author's port had before. ``earlier`` are
    the clients' last connections to the same frontend, or else to another one of the service port; none without
    session affinity. ``http`` holds the HTTP answers, and ``behind`` the packets of connections that an Ingress
    controller opened. Where a flow was missing, ``kernel`` holds the stack counters
    until ``counters_read_at``, which is 0 otherwise; by ``foreign_read_at`` the lab had read the counters of
    ``foreign``. ``lookups`` are the queries for the dialled name, in order. ``steps`` are those of a traced packet:
    there through every node, then back; ``drops`` are the kernel's reported drops meanwhile. ``links`` are the links
    with netem, there and back. ``altered`` are packets that came otherwise than they were sent. ``terminating`` names
    the nodes whose proxies end connections themselves, ``undrained`` those of them whose processes may still have held
    a packet at the end, and ``discarded`` what the others discarded.
    """

    sent: int
    observations: tuple[Observation, ...] = ()
    behind: tuple[Observation, ...] = ()
    connects: tuple[ConnectReport, ...] = ()
    counts: tuple[RuleCount, ...] = ()
    metered_nodes: tuple[str, ...] = field(default=(), name="counted")
    foreign: tuple[ForeignRule, ...] = ()
    sentinels: tuple[SentinelReport, ...] = ()
    unpinned: str = ""
    losses: tuple[TapLoss, ...] = ()
    refused_sends: tuple[str, ...] = ()
    tracked: tuple[TrackedFlow, ...] | None = None
    entries: tuple[TableEntry, ...] | None = None
    known: tuple[TrackedFlow, ...] = ()
    earlier: tuple[EarlierConnection, ...] = ()
    terminating: tuple[str, ...] = ()
    undrained: tuple[str, ...] = ()
    discarded: tuple[Discarded, ...] = ()
    http: tuple[HttpReport, ...] = ()
    kernel: tuple[KernelCount, ...] = ()
    links: tuple[LinkCount, ...] = ()
    altered: tuple[Altered, ...] = ()
    counters_read_at: int = 0
    foreign_read_at: int = 0
    lookups: tuple[Lookup, ...] = ()
    steps: tuple[TraceStep, ...] = ()
    drops: tuple[DropReason, ...] = ()
    unfinished: str = ""
    seconds: float = 0.0


class EvidenceTogether(Record, frozen=True, kw_only=True):
    """The record of probes that the lab sent one after another, between two readings of the rule counters.

    Attributes:
        each: the evidence of every probe, in their order, without ``counts``.
        counts: what rules counted for all of them.
    """

    each: tuple[Evidence, ...] = ()
    counts: tuple[RuleCount, ...] = ()
