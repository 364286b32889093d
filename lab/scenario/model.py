"""What a scenario says, after every mistake has been ruled out.

Owns: the frozen objects that ``scenario.load`` returns and every other room reads.
Must not: know YAML, pydantic, addresses that the author did not write, or anything of the kernel.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from lab.cluster.configuration import ProxyConfiguration
from lab.cluster.objects import PodPort, Service
from lab.ip import Family, IPAddress, IPInterface, IPNetwork, Protocol

__all__ = [
    "MOST_FLOWS",
    "AddressTarget",
    "Daemon",
    "Expect",
    "Front",
    "Host",
    "HostTarget",
    "Manner",
    "Network",
    "Node",
    "NodeAddress",
    "NodeDevice",
    "NodeRoute",
    "Outcome",
    "PodGroup",
    "PodTarget",
    "Position",
    "Preserved",
    "Probe",
    "RoutedAddress",
    "Scenario",
    "Segment",
    "Send",
    "ServiceTarget",
    "Source",
    "SourceExpectation",
    "Spread",
    "Target",
    "Uplink",
]

MOST_FLOWS: Final = 32_000
"""The most flows of one probe: each has a source port of its own, and the lab has to find so many that nobody uses."""


@dataclass(frozen=True, slots=True)
class Position:
    """A place in a scenario file. Line and column count from 1, as editors do."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


class Front(StrEnum):
    """``via``: the front of a Service that a probe dials."""

    CLUSTER_IP = "clusterIP"
    NODE_PORT = "nodePort"
    EXTERNAL_IP = "externalIP"
    LOAD_BALANCER_IP = "loadBalancerIP"
    HEALTH_CHECK_NODE_PORT = "healthCheckNodePort"
    DNS_NAME = "dnsName"


class Manner(StrEnum):
    """``send.as``: kernel sockets with data both ways, or single packets that scapy builds."""

    CONNECT = "connect"
    PACKET = "packet"


class Outcome(StrEnum):
    """What becomes of a flow."""

    DELIVERED = "delivered"
    REJECTED = "rejected"
    REFUSED = "refused"
    DROPPED = "dropped"
    UNTRANSLATED = "untranslated"


class Spread(StrEnum):
    """How flows are shared among the backends."""

    EVEN = "even"


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A segment beside those of the nodes and of the outside: one network for each family; the router is on it too."""

    name: str
    cidrs: tuple[IPNetwork, ...]
    position: Position


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutedAddress:
    """A load-balancer or external IP, or a network of them, that the router sends to nodes.

    Several nodes share the flows, by a hash of addresses and ports.
    """

    network: IPNetwork
    nodes: tuple[str, ...]
    position: Position


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """The wire and its address plan.

    ``pod_network`` is ``ptp``, ``ptp-unnumbered`` or ``bridge``, and ``hairpin`` says how a bridge lets a pod reach
    itself: ``hairpin-veth``, ``promiscuous-bridge`` or ``none``. ``inter_node`` is ``host-gw`` or ``vxlan``.
    """

    families: tuple[Family, ...] = (Family.IPV4,)
    pod_network: str = "ptp"
    hairpin: str = "hairpin-veth"
    inter_node: str = "host-gw"
    segments: tuple[Segment, ...] = ()
    routed: tuple[RoutedAddress, ...] = ()
    pod_cidrs: tuple[IPNetwork, ...]
    service_cidrs: tuple[IPNetwork, ...]
    node_cidrs: tuple[IPNetwork, ...]
    outside_cidrs: tuple[IPNetwork, ...]


@dataclass(frozen=True, slots=True)
class NodeAddress:
    """A further address of a node, on its uplink ``eth0``, on another uplink of it, or on ``lo``."""

    device: str
    interface: IPInterface


@dataclass(frozen=True, slots=True)
class Uplink:
    """A further device of a node, such as ``eth1``, on one of the segments; the lab chooses its addresses there."""

    device: str
    segment: str


@dataclass(frozen=True, slots=True)
class NodeRoute:
    """A further route of a node. ``source`` makes it a policy route: it holds for what comes from that network."""

    destination: IPNetwork
    device: str
    via: IPAddress | None = None
    source: IPNetwork | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Daemon:
    """A program that listens on a node itself, on all its addresses unless one is given."""

    name: str
    port: int
    protocol: Protocol = Protocol.TCP
    address: IPAddress | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One node of the scenario. ``sysctls`` override the lab's own, by dotted name."""

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    sysctls: Mapping[str, str] = field(default_factory=dict)
    addresses: tuple[NodeAddress, ...] = ()
    uplinks: tuple[Uplink, ...] = ()
    routes: tuple[NodeRoute, ...] = ()
    daemons: tuple[Daemon, ...] = ()
    position: Position


@dataclass(frozen=True, slots=True, kw_only=True)
class PodGroup:
    """One entry of ``spec.pods``. ``replicas`` is ``None`` for a single pod that bears the entry's own name.

    With ``host_network`` the pods live in their nodes' namespaces; with ``shared_netns`` all pods of the entry on one
    node live in one namespace, each with an address of its own.
    """

    name: str
    replicas: int | None = None
    nodes: tuple[str, ...]
    labels: Mapping[str, str] = field(default_factory=dict)
    ports: tuple[PodPort, ...] = ()
    ready: bool = True
    host_network: bool = False
    shared_netns: bool = False
    position: Position

    @property
    def pod_names(self) -> tuple[str, ...]:
        """The pods it stands for: ``echo``, or ``echo-1`` to ``echo-N`` where replicas are given."""
        if self.replicas is None:
            return (self.name,)
        return tuple(f"{self.name}-{number}" for number in range(1, self.replicas + 1))

    def node_of(self, ordinal: int) -> str:
        """The node of the pod with that ordinal (from 0): the nodes listed, in turn."""
        return self.nodes[ordinal % len(self.nodes)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """An outside host: a machine that is no node, behind the router, or on the nodes' segment or another one.

    ``addresses`` is how many it has in each family.
    """

    name: str
    segment: str = "outside"
    addresses: int = 1
    position: Position


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """``from``: who sends. Address and port are ``None`` where the kernel (or the lab) chooses them."""

    name: str
    address: IPAddress | None = None
    port: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceTarget:
    """A front of a Service.

    ``port`` is a service port's name or number, ``None`` where the Service has one port only. ``node`` is the node
    whose port is dialled, or, for another front dialled from outside, the node that the router hands the packet to.
    """

    service: str
    namespace: str = "default"
    port: str | int | None = None
    via: Front
    node: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PodTarget:
    """A pod's own address, past all Services. ``port`` is ``None`` where the pod has one port only."""

    pod: str
    port: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HostTarget:
    """An outside host's own address."""

    host: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AddressTarget:
    """Any address."""

    address: IPAddress
    port: int


Target = ServiceTarget | PodTarget | HostTarget | AddressTarget


@dataclass(frozen=True, slots=True, kw_only=True)
class Send:
    """What is sent: ``flows`` flows, each with a 5-tuple of its own; ``payload`` in bytes beyond the identity.

    ``protocol`` is ``None`` where the target decides it (a service port's own protocol).
    """

    protocol: Protocol | None = None
    manner: Manner = Manner.CONNECT
    flows: int = 1
    payload: int = 0


@dataclass(frozen=True, slots=True)
class Preserved:
    """``source: preserved``: the backend sees the sender's own address."""


@dataclass(frozen=True, slots=True)
class NodeDevice:
    """``source: {node, device}``: the backend sees the node's address on that device (uplink, pods, overlay)."""

    node: str
    device: str


SourceExpectation = Preserved | NodeDevice | IPAddress


@dataclass(frozen=True, slots=True, kw_only=True)
class Expect:
    """What must hold. ``positions`` gives the place of each key that the author wrote, by its YAML name."""

    outcome: Outcome
    backends: tuple[str, ...] | None = None
    source: SourceExpectation | None = None
    spread: Spread | None = None
    at: str | None = None
    position: Position
    positions: Mapping[str, Position] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """One intent: from whom, to what, how many flows, and what must become of them."""

    name: str
    source: Source
    target: Target
    send: Send
    expect: Expect
    position: Position


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One ``*.lab.yaml`` file. Services stand as written: what the API server would allocate is still missing.

    ``proxy`` is ``None`` where the file configures none.
    """

    file: str
    name: str
    description: str = ""
    links: tuple[str, ...] = ()
    network: Network
    nodes: tuple[Node, ...]
    pods: tuple[PodGroup, ...]
    hosts: tuple[Host, ...]
    services: tuple[Service, ...]
    probes: tuple[Probe, ...]
    notes: tuple[str, ...] = ()
    proxy: ProxyConfiguration | None = None
