"""A checked scenario: the frozen objects that ``scenario.load`` returns and every other package reads.

The module exports those of ``words``, ``intent`` and ``steps`` too. They hold what the author wrote, with defaults;
allocated addresses are in the plan.
"""

from collections.abc import Mapping

from msgspec import field

from proxylab.addresses import IPAddress, IPInterface, IPNetwork, Protocol
from proxylab.cluster.configuration import ProxyConfiguration
from proxylab.cluster.objects import EndpointSlice, PodPort, Service
from proxylab.encoding import Record
from proxylab.scenario.intent import (
    MOST_FLOWS,
    STREAM_EVERY,
    AddressTarget,
    ConntrackExpect,
    EngineFailure,
    Entries,
    Exceptional,
    Expect,
    HostTarget,
    HttpExpect,
    NodeDevice,
    PodTarget,
    Preserved,
    Probe,
    Send,
    ServiceTarget,
    Shares,
    Source,
    SourceAddress,
    SourceExpectation,
    Stream,
    Target,
)
from proxylab.scenario.network import Network, RoutedAddress, Segment
from proxylab.scenario.steps import (
    Change,
    Count,
    EngineAction,
    EngineState,
    LinkChange,
    NodeChange,
    PodChange,
    RulesState,
    ServiceChange,
    SliceChange,
    Step,
    StepException,
    StepExpect,
    StreamExpect,
    Until,
)
from proxylab.scenario.versions import VersionRange
from proxylab.scenario.words import Frontend, Manner, Mode, Outcome, Position, Reply, Spread

__all__ = [
    "MOST_FLOWS",
    "STREAM_EVERY",
    "AddressTarget",
    "Axis",
    "Case",
    "Change",
    "ConntrackExpect",
    "Count",
    "Daemon",
    "EngineAction",
    "EngineFailure",
    "EngineState",
    "Entries",
    "Exceptional",
    "Expect",
    "Frontend",
    "Host",
    "HostTarget",
    "HttpExpect",
    "LinkChange",
    "LoadBalancer",
    "Manner",
    "Mode",
    "Network",
    "Node",
    "NodeAddress",
    "NodeChange",
    "NodeDevice",
    "NodeRoute",
    "Outcome",
    "PodChange",
    "PodGroup",
    "PodTarget",
    "Position",
    "Preserved",
    "Probe",
    "Reply",
    "RoutedAddress",
    "RulesState",
    "Scenario",
    "Segment",
    "Send",
    "ServiceChange",
    "ServiceTarget",
    "Shares",
    "SliceChange",
    "Source",
    "SourceAddress",
    "SourceExpectation",
    "Spread",
    "Step",
    "StepException",
    "StepExpect",
    "Stream",
    "StreamExpect",
    "Target",
    "Until",
    "Uplink",
    "VersionRange",
]


class NodeAddress(Record, frozen=True):
    """A further address of a node, on ``eth0``, another uplink, or ``lo``."""

    device: str
    interface: IPInterface


class Uplink(Record, frozen=True):
    """A further device of a node, such as ``eth1``, on a segment. The lab chooses its addresses."""

    device: str
    segment: str


class NodeRoute(Record, frozen=True):
    """A further route of a node. ``source`` makes it a policy route, for packets from that network."""

    destination: IPNetwork
    device: str
    via: IPAddress | None = None
    source: IPNetwork | None = None


class Daemon(Record, frozen=True, kw_only=True):
    """A program that listens on a node, on all its addresses if ``address`` is ``None``."""

    name: str
    port: int
    protocol: Protocol = Protocol.TCP
    address: IPAddress | None = None


class Node(Record, frozen=True, kw_only=True):
    """One node of the scenario. ``sysctls`` override the lab's own, by dotted name.

    ``internal_ips`` are its own addresses, one of each family; if empty, the lab chooses. ``addresses`` are further
    ones. ``taints`` are the keys of the Node object's taints; ``terminating`` means that the object is being deleted.
    ``leftovers`` are rules in the node before the engine starts, by the tool that reads them: ``iptables``,
    ``ip6tables`` or ``nft``.
    """

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[str, ...] = ()
    terminating: bool = False
    sysctls: Mapping[str, str] = field(default_factory=dict)
    internal_ips: tuple[IPAddress, ...] = ()
    addresses: tuple[NodeAddress, ...] = ()
    uplinks: tuple[Uplink, ...] = ()
    routes: tuple[NodeRoute, ...] = ()
    daemons: tuple[Daemon, ...] = ()
    leftovers: Mapping[str, str] = field(default_factory=dict)
    position: Position


class PodGroup(Record, frozen=True, kw_only=True):
    """One entry of ``spec.pods``. ``replicas`` is ``None`` for a single pod with the entry's own name.

    With ``host_network`` the pods live in their nodes' network namespaces. With ``shared_netns`` all pods of the entry
    on one node live in one network namespace, each with an address of its own. ``addresses`` are a single pod's fixed
    addresses; if empty, the lab chooses. ``subdomain`` is the headless Service under which each pod has a DNS name: its
    own name, or ``hostname`` for a single pod. ``serving`` counts while a pod is ``terminating``: it is what ``ready``
    was before. Pods that are not ``present`` are on the network, but the API does not know them until a step adds them.
    """

    name: str
    namespace: str = "default"
    replicas: int | None = None
    nodes: tuple[str, ...]
    labels: Mapping[str, str] = field(default_factory=dict)
    ports: tuple[PodPort, ...] = ()
    ready: bool = True
    serving: bool = True
    terminating: bool = False
    present: bool = True
    host_network: bool = False
    shared_netns: bool = False
    sysctls: Mapping[str, str] = field(default_factory=dict)
    hostname: str = ""
    subdomain: str = ""
    addresses: tuple[IPAddress, ...] = ()
    position: Position

    @property
    def pod_names(self) -> tuple[str, ...]:
        """The names of its pods: ``echo``, or ``echo-1`` to ``echo-N`` with replicas."""
        if self.replicas is None:
            return (self.name,)
        return tuple(f"{self.name}-{number}" for number in range(1, self.replicas + 1))

    def node_of(self, ordinal: int) -> str:
        """The node of the pod with that ordinal (from 0): the nodes listed, in turn."""
        return self.nodes[ordinal % len(self.nodes)]


class Host(Record, frozen=True, kw_only=True):
    """An outside host: a machine that is not a node, behind the router, on the nodes' segment or on another one.

    ``addresses`` is how many it has in each family.
    """

    name: str
    segment: str = "outside"
    addresses: int = 1
    sysctls: Mapping[str, str] = field(default_factory=dict)
    position: Position


class LoadBalancer(Record, frozen=True, kw_only=True):
    """A load balancer in front of the nodes. It gives Services of type LoadBalancer addresses from its pool.

    With ``health_checked`` it queries every node's health-check node port and skips nodes that fail.
    """

    name: str
    pool: tuple[IPNetwork, ...]
    nodes: tuple[str, ...]
    health_checked: bool = False
    position: Position


class Case(Record, frozen=True, kw_only=True):
    """One combination of the axes of a matrix.

    ``id`` is empty if the scenario has no matrix. ``axes`` holds the values by axis, in the form that reports print:
    ``{"families": "IPv4+IPv6", "net.ipv4.ip_forward": "1"}``. The axis ``family`` makes no cases of its own: ``ids``
    are the endings of the probes' names, one for each family that they dial.
    """

    id: str = ""
    axes: Mapping[str, str] = field(default_factory=dict)
    ids: tuple[str, ...] = ()

    def words(self, name: str) -> str:
        """The name of a probe or step as the author wrote it, without the case's ending."""
        endings = (f"[{each}]" for each in (*self.ids, self.id) if each)
        return name.removesuffix(next(filter(name.endswith, endings), ""))


class Axis(Record, frozen=True, kw_only=True):
    """One axis of a matrix, with its values in the form that reports print (see ``Case``)."""

    name: str
    values: tuple[str, ...]


class Scenario(Record, frozen=True, kw_only=True):
    """One ``*.lab.yaml`` file. Services are as written, without the addresses and ports that the API server allocates.

    ``slices`` are the author's EndpointSlices; they replace the derived slices of their Services. A scenario with a
    ``matrix`` stands for all its cases; ``cases`` expands it into one scenario for each, with its ``case``.
    ``service_positions`` are the places of ``services``, in the same order. ``proxy`` is ``None`` if the file holds no
    configuration. With ``dns`` the lab has a name server even if no probe dials a name. ``failures`` name engines that
    cannot program the scenario; in an expanded case, the one that holds there, if any.
    """

    file: str
    name: str
    description: str = ""
    links: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    network: Network
    nodes: tuple[Node, ...]
    pods: tuple[PodGroup, ...]
    hosts: tuple[Host, ...]
    services: tuple[Service, ...]
    service_positions: tuple[Position, ...] = ()
    probes: tuple[Probe, ...]
    notes: tuple[str, ...] = ()
    slices: tuple[EndpointSlice, ...] = ()
    load_balancers: tuple[LoadBalancer, ...] = ()
    streams: tuple[Stream, ...] = ()
    steps: tuple[Step, ...] = ()
    failures: tuple[EngineFailure, ...] = ()
    dns: bool = False
    matrix: tuple[Axis, ...] = ()
    case: Case = field(default_factory=Case)
    proxy: ProxyConfiguration | None = None

    @property
    def all_probes(self) -> tuple[Probe, ...]:
        """Its own probes and those of its steps, in the order in which the lab sends them."""
        return (*self.probes, *(probe for step in self.steps for probe in step.probes))

    @property
    def judged(self) -> tuple[Probe | Step, ...]:
        """Everything that gets a verdict, in order: the probes; then for each step its probes and its expectations."""
        steps = ((*step.probes, *((step,) if step.expect.says_anything else ())) for step in self.steps)
        return (*self.probes, *(each for step in steps for each in step))

    @property
    def has_names(self) -> bool:
        """Whether the lab has a name server: the author sets ``dns``, or a probe or stream dials a name."""
        dialled: list[Target] = [each.target for each in self.all_probes]
        dialled += [each.target for each in self.streams]
        return self.dns or any(isinstance(each, ServiceTarget) and each.via is Frontend.DNS_NAME for each in dialled)

    def steps_before(self, judged: Probe | Step) -> int:
        """How many steps the lab has made when it sends that probe, or judges that step."""
        if isinstance(judged, Step):
            return self.steps.index(judged) + 1
        return next((number for number, step in enumerate(self.steps, 1) if judged in step.probes), 0)
