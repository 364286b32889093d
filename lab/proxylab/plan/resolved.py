"""Errands: probes with every name resolved to a place and an address.

Owns: the frozen ``ResolvedProbe``, which is all that ``traffic`` needs to know to send a probe.
Must not: hold expectations (``verdict`` judges, ``traffic`` must not know what is hoped for).
"""

from collections.abc import Mapping
from dataclasses import field
from typing import Final

from proxylab.addresses import Family, IPAddress, IPNetwork, Transport
from proxylab.frozen import dataclass
from proxylab.scenario.model import Manner

__all__ = [
    "STACK",
    "Destination",
    "PolicyRoute",
    "Query",
    "Question",
    "Receiver",
    "ResolvedProbe",
    "Sender",
    "Sentinel",
]

STACK: Final = "stack"
"""Stands for a device where packets are those of a namespace's own programs, above all of its rules."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sender:
    """Where packets start: a namespace, its device, and the next hop's MAC for crafted frames.

    What a node sends starts in its own stack (``STACK``), and has no MAC before the node's rules have seen it. A host
    with ``others`` sends from all of its addresses in turn, each flow from one.
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
    frame_mac: str = ""

    @property
    def addresses(self) -> tuple[IPAddress, ...]:
        """All addresses that it sends from, in turn."""
        return (self.address, *self.others)

    def of(self, flow: int) -> IPAddress:
        """The address that a flow leaves from."""
        return self.addresses[flow % (len(self.others) + 1)] if self.others else self.address

    @property
    def framed_to(self) -> str:
        """Whose MAC the frames of flows bear: whoever the author chose, or the next hop. Fences go to the next hop."""
        return self.frame_mac or self.next_hop_mac


@dataclass(frozen=True, slots=True, kw_only=True)
class Receiver:
    """A pod where packets may arrive, a program of a node, or a host that is dialled or that slices name.

    Every pod of the lab is one: a packet at the wrong pod must be seen too. What is in a node's namespace shares its
    address, and is known by its ``ports``; elsewhere there are none, and any port is the receiver's.
    """

    name: str
    namespace: str
    device: str
    address: IPAddress
    ports: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """An address and a port at which a flow may arrive."""

    address: IPAddress
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Sentinel:
    """An address past all Services whose answer proves that what was sent before has arrived or is gone."""

    name: str
    address: IPAddress


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyRoute:
    """The route that the router must have for this probe: ``destination`` by way of ``via`` (a node's address).

    It stands in a table of its own (``DETOUR_TABLE``), before those that the plan or a balancer has made.
    """

    namespace: str
    destination: IPNetwork
    device: str
    via: IPAddress


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is asked before a name is dialled.

    Attributes:
        names: absolute, in the order in which a resolver tries them.
        families: of the addresses asked for; the first is dialled where there are both.
        resolvers: the addresses of the Service that the sender's resolver asks, in its order.
        servers: who answers for it, past that Service.
        service: the Service whose name it is, as ``NAMESPACE/NAME``.
        port: what is dialled at the address in the answer: the number that the Service declares.
        protocol: likewise.
        due: the addresses that the name must give; none where that is not known before.
        headless: whether the name must give pods, and which is known by ``pods``.
        pods: the addresses of pods and hosts by their names.
        wanted: the one address of the answer that is to be dialled; ``None`` for the first.
        own: the sender's addresses: what a pod says to itself crosses no device, so another's are preferred.
    """

    names: tuple[str, ...]
    families: tuple[Family, ...]
    resolvers: tuple[IPAddress, ...]
    servers: tuple[Sentinel, ...]
    service: str
    port: int
    protocol: Transport
    due: tuple[IPAddress, ...] = ()
    headless: bool = False
    pods: Mapping[str, tuple[IPAddress, ...]] = field(default_factory=dict)
    wanted: IPAddress | None = None
    own: tuple[IPAddress, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """One question to one name server.

    Attributes:
        name: absolute, without the dot at the end.
        kind: of the records asked for, such as ``AAAA``.
        server: the address asked; port 53.
        source: the address and port to ask from; the kernel chooses what is not said.
        port: likewise.
        by_tcp: ask by TCP at once.
        size: the octets of an answer by UDP that the client takes, as it says by EDNS (RFC 6891); 0 for a client
            without EDNS, which takes 512, and is not told who answers.
    """

    name: str
    kind: str
    server: IPAddress
    source: IPAddress | None = None
    port: int | None = None
    by_tcp: bool = False
    size: int = 1232


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedProbe:
    """One probe or stream, ready to be sent. ``number`` counts the probes, or streams, of the scenario from 0.

    An echo request has ``port`` 0, and so has whoever answers it among the ``receivers`` (see ``Observation``). With a
    ``question``, what is dialled follows from its answer; until that is there, the errand is to the name server.

    ``every`` is the time between two packets of a stream in milliseconds, 0 for a probe.
    The stacks of ``nodes`` are asked what they counted, and those of ``watched``: pods or hosts where it may end.
    ``endpoints`` are where its flows may arrive: those of the ``service_port`` that is dialled, which is spelled as
    kube-proxy does; or what is dialled itself, where that is no Service's. There are none where no port is known.
    With ``http`` the flows ask for something by HTTP. With ``tables`` all entries of connection tracking are kept when
    it is over; ``addresses`` then says whose is which, by the names of the scenario.
    """

    number: int
    name: str
    sender: Sender
    destination: IPAddress
    port: int
    protocol: Transport
    manner: Manner
    flows: int
    payload: int
    receivers: tuple[Receiver, ...]
    sentinels: tuple[Sentinel, ...]
    nodes: tuple[str, ...]
    watched: tuple[str, ...] = ()
    policy_route: PolicyRoute | None = None
    every: int = 0
    http: bool = False
    tables: bool = False
    addresses: Mapping[str, tuple[IPAddress, ...]] = field(default_factory=dict)
    question: Question | None = None
    service_port: str = ""
    endpoints: tuple[Destination, ...] = ()

    @property
    def protocol_number(self) -> int:
        """What stands in the IP header."""
        return self.protocol.number(self.destination.version)
