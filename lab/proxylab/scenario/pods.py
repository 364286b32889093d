"""``spec.pods``, ``spec.hosts`` and ``spec.loadBalancers``: the keys of the machines that are no nodes.

A pod stands for a group of pods, if it has replicas. ``proxylab.scenario.inventory`` checks the names.
"""

from typing import Annotated, Final, Self

from msgspec import field

from proxylab.addresses import IPAddress, Protocol
from proxylab.cluster.objects import PodPort
from proxylab.scenario.document import describe, shown
from proxylab.scenario.keys import NOT_EMPTY, OWN_NAME, Between, Check, Declared, Key, Read, refused
from proxylab.scenario.network import OUTSIDE, AnyNetem, Mtu
from proxylab.scenario.syntax import Address, Labels, Name, Network, PortName, PortNumber, Sysctls, distinct
from proxylab.scenario.words import ClientAddress, Dials, Position, Program

_MOST_REPLICAS: Final = 1000
_TLS_PORTS: Final = (443, 8443)
_MOST_ADDRESSES: Final = 1000


class ListeningPort(Declared, frozen=True, kw_only=True):
    """A port on which a pod listens."""

    name: Annotated[PortName, Key("The name that a Service's targetPort may use.", ["http"])] = ""
    port: Annotated[PortNumber, Key("The port's number.", [8080])]
    protocol: Annotated[Protocol, Key("The transport protocol.")] = Protocol.TCP
    silent: Annotated[
        bool, Key("Whether the pod takes what comes to this port of UDP and answers nothing, as a syslog server does.")
    ] = False
    host_port: Annotated[
        PortNumber | None,
        Key(
            "The port of the pod's node that leads here, too, by the rules of the network plugin (portmap of the CNI "
            "plugins). A pod on the host network has it already.",
            [80],
        ),
    ] = None
    host_ip: Annotated[
        Address | None,
        Key(
            "The address of the node at which hostPort is served. The default is every address.",
            ["172.18.0.2"],
            alias="hostIP",
        ),
    ] = None

    @property
    def has_tls(self) -> bool:
        """Whether a web server speaks TLS there."""
        return self.name == "https" or self.port in _TLS_PORTS

    @property
    def in_api(self) -> PodPort:
        """The port as the API has it."""
        return PodPort(
            name=self.name,
            protocol=self.protocol,
            port=self.port,
            host_port=self.host_port or 0,
            host_ip=self.host_ip,
        )

    @classmethod
    def of_api(cls, port: PodPort) -> Self:
        """The port that the API has."""
        return cls(
            name=port.name,
            port=port.port,
            protocol=port.protocol,
            host_port=port.host_port or None,
            host_ip=port.host_ip,
        )


def _port_of_number(value: object) -> object:
    if isinstance(value, int) and not isinstance(value, bool):
        return {"port": value}
    if not isinstance(value, dict):
        raise refused(f"must be a port's number or a mapping, is {describe(value)}")
    return value


_ANY_PORT: Final = Read(_port_of_number, int | ListeningPort)


def _service_name(text: str) -> str:
    namespace, _, name = text.rpartition("/")
    if not name or "/" in namespace:
        raise refused(f"{shown(text)} is not the name of a Service", allowed="write it as echo or prod/echo")
    return text


class PodGroup(Declared, frozen=True, kw_only=True):
    """One pod, or with replicas several pods that differ only in name and node."""

    name: Annotated[Name, OWN_NAME]
    replicas: Annotated[
        int | None,
        Between(1, _MOST_REPLICAS),
        Key("How many pods there are, called NAME-1 to NAME-N. The default is one pod, called NAME.", [3]),
    ] = None
    nodes: Annotated[
        tuple[str, ...],
        NOT_EMPTY,
        Key("The nodes the pods run on, in turn. The default is the scenario's first node.", [["node-a", "node-b"]]),
    ] = ()
    namespace: Annotated[Name, Key("The pods' namespace.", ["prod"])] = "default"
    labels: Annotated[Labels, Key("The pods' labels, for Services to select by.", [{"app": "echo"}])] = field(
        default_factory=dict
    )
    ports: Annotated[
        tuple[Annotated[ListeningPort, _ANY_PORT], ...],
        Key(
            "The ports on which the pods listen: numbers for TCP, or mappings.",
            [[8080, {"name": "dns", "port": 5353, "protocol": "UDP"}]],
        ),
    ] = ()
    ready: Annotated[bool, Key("Whether the pods' readiness probes succeed.")] = True
    serving: Annotated[
        bool | None,
        Key("Whether the pods still serve while they terminate. The default is the value of ready.", [True]),
    ] = None
    terminating: Annotated[bool, Key("Whether the pods are being deleted.")] = False
    present: Annotated[bool, Key("Whether the API knows the pods when the lab begins; a step may add them.")] = True
    host_network: Annotated[bool, Key("Whether the pods use their node's network.")] = False
    addresses: Annotated[
        tuple[Address, ...],
        Check(distinct),
        Key("Fixed addresses of a single pod, one of each family.", [["10.244.0.99"]]),
    ] = ()
    hostname: Annotated[
        Name, Key("A single pod's DNS name below its subdomain. The default is the pod's name.", ["web-0"])
    ] = ""
    subdomain: Annotated[Name, Key("The headless Service under which each pod has a DNS name of its own.", ["web"])] = (
        ""
    )
    shared_netns: Annotated[
        bool,
        Key(
            "Whether the replicas on a node share one network namespace, each with an address of its own. For hundreds "
            "of endpoints."
        ),
    ] = False
    program: Annotated[
        Program | None,
        Key(
            "The real program that answers on the pods' ports, instead of the lab's own. nginx is a controller of "
            "Ingresses and HTTPRoutes: it passes HTTP requests on to ready endpoints. A port named https, or with the "
            "number 443 or 8443, has TLS.",
            ["nginx"],
        ),
    ] = None
    sysctls: Annotated[
        Sysctls,
        Key(
            "Sysctls to set in the pods' network namespaces, by dotted name, instead of the lab's own values.",
            [{"net.ipv4.ip_unprivileged_port_start": 0}],
        ),
    ] = field(default_factory=dict)
    forwards_to: Annotated[
        str,
        Check(_service_name),
        Key(
            "The Service, as name or namespace/name, to which the pods pass on what comes to their ports, as those of "
            "K3s' ServiceLB do: to its cluster IP at the port of that number, or with externalTrafficPolicy Local to "
            "their own node at its node port. They send it on from their own address.",
            ["prod/echo"],
        ),
    ] = ""
    mtu: Annotated[
        Mtu | None,
        Key("The MTU of the link of each pod to its node, in place of that in spec.network.mtu.", [1400]),
    ] = None
    netem: Annotated[
        AnyNetem | None,
        Key("What the link of each pod to its node does to packets.", [{"loss": "10%", "delay": "20ms"}]),
    ] = None
    position: Position
    owner: str = ""
    """The workload that it belongs to, if any."""
    commands: tuple[tuple[str, ...], ...] = ()
    """What runs in the pod in place of the lab's own program."""

    @property
    def pod_names(self) -> tuple[str, ...]:
        """The names of its pods: ``echo``, or ``echo-1`` to ``echo-N`` with replicas."""
        if self.replicas is None:
            return (self.name,)
        return tuple(f"{self.name}-{number}" for number in range(1, self.replicas + 1))

    @property
    def is_serving(self) -> bool:
        """Whether its pods serve, which counts while they terminate: what ``ready`` was before, unless written."""
        return self.ready if self.serving is None else self.serving

    @property
    def forwards_to_service(self) -> tuple[str, str]:
        """The namespace and the name of the Service to which its pods pass packets on; empty ones for none."""
        namespace, _, name = self.forwards_to.rpartition("/")
        return (namespace or "default", name) if name else ("", "")

    def node_of(self, ordinal: int) -> str:
        """The node of the pod with that ordinal (from 0): the nodes listed, in turn."""
        return self.nodes[ordinal % len(self.nodes)]


class Host(Declared, frozen=True, kw_only=True):
    """An outside host: a machine that is no node of the cluster."""

    name: Annotated[Name, OWN_NAME]
    segment: Annotated[
        Name,
        Key(
            "The segment that the host is on: outside, behind the router; nodes, with the nodes; or one of "
            "network.segments."
        ),
    ] = OUTSIDE
    addresses: Annotated[
        Annotated[int, Between(1, _MOST_ADDRESSES)] | Annotated[tuple[Address, ...], NOT_EMPTY, Check(distinct)],
        Key(
            "How many addresses it has in each family, which the lab chooses; or a list of fixed ones on its segment.",
            [200, ["203.0.113.77"]],
        ),
    ] = 1
    sysctls: Annotated[
        Sysctls,
        Key(
            "Sysctls to set on the host, by dotted name, instead of the lab's own values.",
            [{"net.ipv4.tcp_syn_retries": 1}],
        ),
    ] = field(default_factory=dict)
    netem: Annotated[
        AnyNetem | None,
        Key("What the host's link to its segment does to packets.", [{"loss": "10%", "delay": "20ms"}]),
    ] = None
    position: Position

    @property
    def fixed_addresses(self) -> tuple[IPAddress, ...]:
        """The addresses that the author fixes."""
        return () if isinstance(self.addresses, int) else self.addresses

    @property
    def chosen_addresses(self) -> int:
        """How many addresses the lab chooses in each family of which none is fixed."""
        return self.addresses if isinstance(self.addresses, int) else 1


class LoadBalancer(Declared, frozen=True, kw_only=True):
    """A load balancer in front of the nodes."""

    name: Annotated[Name, OWN_NAME]
    pool: Annotated[
        tuple[Network, ...],
        NOT_EMPTY,
        Key("The networks from which Services of type LoadBalancer get their addresses.", [["192.0.2.0/28"]]),
    ]
    nodes: Annotated[
        tuple[str, ...],
        NOT_EMPTY,
        Key(
            "The nodes it sends to. The default is all nodes. A node with the label "
            "node.kubernetes.io/exclude-from-external-load-balancers gets nothing.",
            [["node-a", "node-b"]],
        ),
    ] = ()
    health_checked: Annotated[bool, Key("Whether it skips nodes that fail on their health-check node port.")] = False
    dials: Annotated[
        Dials,
        Key(
            "Where it sends packets. addresses: to a node, with the balancer's address as it is, as with BGP or direct "
            "server return. nodePorts: to the node port of the Service at a node's own address, as the balancers of "
            "most clouds do; it translates the answers back. A Service without node ports gets nothing."
        ),
    ] = Dials.ADDRESSES
    client_ip: Annotated[
        ClientAddress,
        Key(
            "Of a balancer that dials node ports, what nodes see: the client's own address, or with replaced the "
            "balancer's on the segment of the nodes.",
            alias="clientIP",
        ),
    ] = ClientAddress.PRESERVED
    announced_by: Annotated[
        str,
        Key(
            "The one node that answers ARP, or over IPv6 neighbour discovery, for the pool's addresses, as MetalLB's "
            "speaker does in layer-2 mode. The pool is then a part of nodeCIDR, and no machine has its addresses. In "
            "mode ipvs only proxies with strictARP leave the answer to that node.",
            ["node-a"],
        ),
    ] = ""
    position: Position
