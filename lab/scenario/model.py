"""What a scenario says, after every mistake has been ruled out.

Owns: the frozen objects that ``scenario.load`` returns and every other room reads.
Must not: know YAML, pydantic, addresses that the author did not write, or anything of the kernel.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from lab.cluster.configuration import ProxyConfiguration
from lab.cluster.objects import PodPort, Service
from lab.ip import Family, IPAddress, IPNetwork, Protocol

__all__ = [
    "AddressTarget",
    "Expect",
    "Front",
    "Host",
    "HostTarget",
    "Manner",
    "Network",
    "Node",
    "NodeDevice",
    "Outcome",
    "PodGroup",
    "PodTarget",
    "Position",
    "Preserved",
    "Probe",
    "Scenario",
    "Send",
    "ServiceTarget",
    "Source",
    "SourceExpectation",
    "Spread",
    "Target",
]


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
class Network:
    """The wire and its address plan."""

    families: tuple[Family, ...] = (Family.IPV4,)
    pod_network: str = "ptp"
    inter_node: str = "host-gw"
    pod_cidrs: tuple[IPNetwork, ...]
    service_cidrs: tuple[IPNetwork, ...]
    node_cidrs: tuple[IPNetwork, ...]
    outside_cidrs: tuple[IPNetwork, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One node of the scenario. ``sysctls`` override the lab's own, by dotted name."""

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    sysctls: Mapping[str, str] = field(default_factory=dict)
    position: Position


@dataclass(frozen=True, slots=True, kw_only=True)
class PodGroup:
    """One entry of ``spec.pods``. ``replicas`` is ``None`` for a single pod that bears the entry's own name."""

    name: str
    replicas: int | None = None
    nodes: tuple[str, ...]
    labels: Mapping[str, str] = field(default_factory=dict)
    ports: tuple[PodPort, ...] = ()
    ready: bool = True
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
    """An outside host: a machine that is no node, behind the router."""

    name: str
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
