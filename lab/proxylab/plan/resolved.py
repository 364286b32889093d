"""Resolved probes: every name is a network namespace and an address.

A frozen ``ResolvedProbe`` is all that ``traffic`` needs to send a probe. It holds no expectations, so that ``traffic``
cannot depend on them; ``verdict`` judges.
"""

from collections.abc import Mapping
from typing import Final

from msgspec import field

from proxylab.addresses import Family, IPAddress, IPNetwork, Transport
from proxylab.encoding import Record
from proxylab.scenario.words import Manner

STACK: Final = "stack"
"""Instead of a device: packets of a namespace's own programs, which pass its rules."""


class Sender(Record, frozen=True, kw_only=True):
    """The origin of packets: a namespace, its device, and the next hop's MAC for crafted frames.

    A node's packets start in its own stack (``STACK``), and have no MAC until they have passed the node's rules. A host
    with ``others`` sends from all of its addresses in turn, one for each flow. ``on_links`` is the source of sentinel
    packets where a node dials from ::1: no answer comes back there from a link.
    """

    name: str
    namespace: str
    device: str
    address: IPAddress
    mac: str
    next_hop_mac: str
    port: int | None = None
    mtu: int = 1500
    others: tuple[IPAddress, ...] = ()
    on_links: IPAddress | None = None
    frame_mac: str = ""

    @property
    def addresses(self) -> tuple[IPAddress, ...]:
        """All addresses that it sends from, in turn."""
        return (self.address, *self.others)

    def address_of_flow(self, flow: int) -> IPAddress:
        """The source address of a flow."""
        return self.addresses[flow % (len(self.others) + 1)] if self.others else self.address

    @property
    def destination_mac(self) -> str:
        """The destination MAC of flows: the author's choice, or the next hop. Sentinel packets go to the next hop."""
        return self.frame_mac or self.next_hop_mac


class Receiver(Record, frozen=True, kw_only=True):
    """Where packets may arrive: a pod, a program of a node, or a host that the probe dials or that slices name.

    Every pod of the lab is a receiver, so that a packet at the wrong pod shows. Programs in a node's namespace share
    its address and differ by ``ports``; other receivers have none and get packets on any port.
    """

    name: str
    namespace: str
    device: str
    address: IPAddress
    ports: tuple[int, ...] = ()


class Destination(Record, frozen=True, kw_only=True):
    """An address and a port at which a flow may arrive.

    An endpoint of a Service that no proxy may choose at the time of the probe is one that flows must not reach.
    """

    address: IPAddress
    port: int
    is_reachable: bool = True


class MasqueradedAs(Record, frozen=True, kw_only=True):
    """The source of a flow that ``node`` translates to ``backend`` and masquerades.

    It is ``None`` where the packet does not leave the node, so that nothing masquerades it.
    """

    node: str
    backend: IPAddress
    source: IPAddress | None


class Sentinel(Record, frozen=True, kw_only=True):
    """An address without a Service. Its answer proves that every packet sent earlier has arrived or is lost."""

    name: str
    address: IPAddress


class HttpRequest(Record, frozen=True, kw_only=True):
    """The HTTP request of each flow to an Ingress.

    ``endpoints`` are those to which host and path lead when the probe is sent; ``None`` if they are unknown.
    """

    host: str
    path: str
    tls: bool = False
    endpoints: tuple[Destination, ...] | None = None


class PolicyRoute(Record, frozen=True, kw_only=True):
    """The route that the router needs for this probe: ``destination`` via ``via`` (a node's address).

    It is in a table of its own (``POLICY_TABLE``), which precedes the routes of the plan and of load balancers.
    """

    namespace: str
    destination: IPNetwork
    device: str
    via: IPAddress


class Question(Record, frozen=True, kw_only=True):
    """The DNS question that precedes dialling a name.

    Attributes:
        names: absolute, in the order in which a resolver tries them.
        families: the families to ask for; the probe dials the first that has an address.
        resolvers: the addresses of kube-dns in the order of the sender's resolv.conf.
        servers: the name servers behind it, without the Service.
        answering: the names of those that may answer a query to the Service when it is sent.
        unnamed: whether one of them may answer without its name, as on an author's Corefile, or as an author's program.
        service: the Service with this name, as ``NAMESPACE/NAME``.
        expected: the addresses that the answer must hold, of a headless Service those of its ready endpoints; ``None``
            if unknown.
        headless: whether the answer must hold addresses of endpoints.
        pods: the addresses of pods and hosts by their names.
        address: the address of the answer to dial; ``None`` for the first.
        own: the sender's addresses. Packets of a pod to itself cross no device, so the probe prefers other addresses.
    """

    names: tuple[str, ...]
    families: tuple[Family, ...]
    resolvers: tuple[IPAddress, ...]
    servers: tuple[Sentinel, ...]
    service: str
    port: int
    protocol: Transport
    answering: tuple[str, ...] = ()
    unnamed: bool = False
    expected: tuple[IPAddress, ...] | None = None
    headless: bool = False
    pods: Mapping[str, tuple[IPAddress, ...]] = field(default_factory=dict)
    address: IPAddress | None = None
    own: tuple[IPAddress, ...] = ()


class Query(Record, frozen=True, kw_only=True):
    """One question to one name server.

    Attributes:
        name: absolute, without the dot at the end.
        kind: the type of record, such as ``AAAA``.
        source: the source address; ``None`` lets the kernel choose.
        port: the source port; ``None`` lets the kernel choose.
        by_tcp: use TCP at once.
        size: the largest UDP answer that the client accepts, in octets, by EDNS (RFC 6891); 0 for a client without
            EDNS, which accepts 512 and does not learn which server answers.
    """

    name: str
    kind: str
    server: IPAddress
    source: IPAddress | None = None
    port: int | None = None
    by_tcp: bool = False
    size: int = 1232


DEFAULT_TTL: Final = 64
"""The time to live that Linux gives packets, and its hop limit."""


class ResolvedProbe(Record, frozen=True, kw_only=True):
    """One probe or stream, ready to send. ``number`` counts the probes, or streams, of the scenario from 0.

    An echo request has ``port`` 0, and so have the ``receivers`` that answer it (see ``Observation``). With a
    ``question`` the target depends on its answer; until then the resolved probe is for the name server. ``every`` is
    the time between two packets of a stream in milliseconds, 0 for a probe.

    The lab reads the counters of ``nodes``, and of ``watched``: pods or hosts where flows may end. ``endpoints`` are
    where the flows may arrive: the endpoints of ``service_port`` (in kube-proxy's spelling), or the target itself if it
    is not a Service's, when the probe is sent; empty if no port is known. ``affinity_timeout`` is that Service's
    timeoutSeconds, ``None`` without session affinity. With ``or_dialled`` they may arrive at what was dialled, too: a
    node port at an address that need not serve any. Where the author expects a masqueraded source, ``masquerades``
    are the sources that masquerading gives, for each node that may translate a flow and each endpoint. ``leftovers``
    are the lines of the rules that the author gives nodes before their engines start. ``forwarders`` are the pods that
    pass packets on by rules of their own; ``translators`` are what changes packets besides the nodes: these, and the
    router that dials node ports for the target. With ``http`` the flows are HTTP requests: ``request`` to an Ingress,
    or else for a node's health. With ``tables`` the lab saves all connection tracking entries after the probe; it does
    so as well where a node changed a flow's port alone. Crafted packets have the time to live ``ttl`` and the mark
    ``dscp``. With ``bridged`` the pods of a node are on one bridge, which passes packets between them without routing.
    ``concurrency`` is how many connections are open at once, ``None`` for as many as the lab can. ``addresses`` maps
    the scenario's names to addresses, where an expectation names any. ``chain_hashes`` are in the names of the chains
    that a proxy may have made for Service ports until then (``cluster.chain_names``); ``None`` if they are unknown.
    """

    number: int
    name: str
    sender: Sender
    destination: IPAddress
    port: int
    protocol: Transport
    manner: Manner
    flows: int
    concurrency: int | None = None
    payload: int
    receivers: tuple[Receiver, ...]
    sentinels: tuple[Sentinel, ...]
    nodes: tuple[str, ...]
    watched: tuple[str, ...] = ()
    policy_route: PolicyRoute | None = None
    every: int = 0
    http: bool = False
    path: str = ""
    request: HttpRequest | None = None
    tables: bool = False
    addresses: Mapping[str, tuple[IPAddress, ...]] = field(default_factory=dict)
    question: Question | None = None
    service_port: str = ""
    endpoints: tuple[Destination, ...] = ()
    affinity_timeout: int | None = None
    or_dialled: bool = False
    masquerades: tuple[MasqueradedAs, ...] = ()
    leftovers: tuple[str, ...] = ()
    forwarders: tuple[str, ...] = ()
    translators: tuple[str, ...] = ()
    chain_hashes: frozenset[str] | None = None
    ttl: int = DEFAULT_TTL
    dscp: int = 0
    bridged: bool = False

    @property
    def protocol_number(self) -> int:
        """The protocol number in the IP header."""
        return self.protocol.number(self.destination.version)
