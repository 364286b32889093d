"""``spec.network`` and ``netem``: their keys, and the words for how nodes and pods are connected.

``netem`` is what the kernel's netem does to the packets of a link: a key of nodes, uplinks, pods and hosts, and of
steps. ``proxylab.scenario.networks`` compares networks with each other.
"""

import re
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Annotated, Final, TypeVar

from msgspec import field

from proxylab.addresses import Family, IPAddress, IPNetwork
from proxylab.cluster.allocate import NODE_PORTS, PortRange
from proxylab.scenario import syntax
from proxylab.scenario.document import describe, listed, shown
from proxylab.scenario.keys import NOT_EMPTY, OWN_NAME, Between, Check, Declared, Key, Read, WrittenAs, refused
from proxylab.scenario.syntax import Duration, Name, Sysctls, distinct, listed_if_single
from proxylab.scenario.words import Position

_PERCENT: Final = re.compile(r"([0-9]{1,3}(?:\.[0-9]{1,4})?)%")
NODES: Final = "nodes"
"""The segment of the nodes: the bridge in the fabric, and the router's device on it."""
OUTSIDE: Final = "outside"
"""The segment of the outside hosts: the bridge in the fabric, and the router's device on it."""
UPLINK: Final = "eth0"
"""The one device of a pod or host, and a node's device on its segment."""

_LAST_PORT: Final = 65535


def _percent(value: object) -> float:
    found = _PERCENT.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        raise refused(f"must be a share such as 10%, is {describe(value)}", allowed="a number with a percent sign")
    if not 0 < float(found[1]) <= 100:
        raise refused(f"{shown(value)} is out of range", allowed="allowed: more than 0%, 100% at most")
    return float(found[1])


_Percent = Annotated[float, Read(_percent, str)]


class Netem(Declared, frozen=True, kw_only=True):
    """What a link does to packets by the kernel's netem (tc-netem(8)), in each direction on its own.

    It works on frames on their way between the two ends, so taps at the ends see each frame that enters the link and
    each that leaves it. The judge attributes what disappears there to the link, and not to the proxy.
    """

    loss: Annotated[_Percent, Key("The share of packets that the link loses, by chance.", ["10%"])] = 0.0
    delay: Annotated[Duration, Key("How long each packet takes.", ["20ms"])] = 0
    jitter: Annotated[
        Duration,
        Key("By how much the delay of a packet may differ, either way. Packets overtake each other then.", ["5ms"]),
    ] = 0
    reorder: Annotated[
        _Percent, Key("The share of packets that pass without the delay, and so overtake others.", ["25%"])
    ] = 0.0
    duplicate: Annotated[_Percent, Key("The share of packets that come out twice.", ["1%"])] = 0.0

    def __str__(self) -> str:
        return ", ".join(self._words())

    def _words(self) -> Iterator[str]:
        yield from (f"{key} {value:g}%" for key, value in (("loss", self.loss),) if value)
        if self.delay:
            yield f"delay {self.delay} ms" + (f" ± {self.jitter} ms" if self.jitter else "")
        yield from (
            f"{key} {value:g}%" for key, value in (("reorder", self.reorder), ("duplicate", self.duplicate)) if value
        )

    @property
    def longest(self) -> float:
        """The longest that a packet takes, in seconds."""
        return (self.delay + self.jitter) / 1000


def _possible(netem: Netem) -> Netem:
    if netem == Netem():
        raise refused("does nothing", allowed="give a loss, a delay or a share of duplicates")
    if netem.jitter > netem.delay:
        raise refused(f"jitter {netem.jitter} ms is longer than the delay", allowed="give a longer delay")
    if netem.reorder and not netem.delay:
        raise refused("reorder needs a delay, without which no packet is late", allowed="give a delay")
    return netem


AnyNetem = Annotated[Netem, Check(_possible)]


class PodNetwork(StrEnum):
    """How a node connects its pods."""

    PTP = "ptp"
    PTP_UNNUMBERED = "ptp-unnumbered"
    BRIDGE = "bridge"


class InterNode(StrEnum):
    """How pod traffic crosses from node to node."""

    HOST_GW = "host-gw"
    VXLAN = "vxlan"


class Hairpin(StrEnum):
    """How a bridge lets a pod reach itself."""

    HAIRPIN_VETH = "hairpin-veth"
    PROMISCUOUS_BRIDGE = "promiscuous-bridge"
    NONE = "none"


_AnyOf = TypeVar("_AnyOf", IPAddress, IPNetwork)


def _one_of_each_family(given: list[_AnyOf]) -> list[_AnyOf]:
    families = [Family.of(each) for each in given]
    for family in Family:
        if families.count(family) > 1:
            several = listed(str(each) for each in given if Family.of(each) is family)
            raise refused(f"{several} are all {family}", allowed="allowed: one of each family")
    return given


def families_given(families: list[Family]) -> list[Family]:
    """The families, if there are any."""
    if not families:
        raise refused("must not be empty", allowed=f"allowed: {listed(Family)}")
    return families


Families = Annotated[tuple[Family, ...], Check(families_given), Check(distinct)]
_Networks = Annotated[
    tuple[syntax.Network, ...], NOT_EMPTY, Check(_one_of_each_family), Read(listed_if_single, str | list[str])
]
_Addresses = Annotated[
    tuple[syntax.Address, ...], NOT_EMPTY, Check(_one_of_each_family), Read(listed_if_single, str | list[str])
]


def _node_ports(text: object) -> object:
    first, _, last = text.partition("-") if isinstance(text, str) else ("", "", "")
    if not (first.isdecimal() and last.isdecimal() and 1 <= int(first) <= int(last) <= _LAST_PORT):
        raise refused(f"{shown(text)} is not a range of ports", allowed="write it as 30000-32767; allowed: 1-65535")
    return text


def _range_of(text: str) -> PortRange:
    first, _, last = text.partition("-")
    return PortRange(int(first), int(last))


_NodePorts = Annotated[PortRange, WrittenAs(Annotated[str, Read(_node_ports)], _range_of)]


_LEAST_MTU: Final = 1280
"""What IPv6 needs (RFC 8200, section 5): below, the kernel takes it from the device."""
PODS: Final = "pods"
"""The links between nodes and their pods, beside the names of segments."""
Mtu = Annotated[int, Between(_LEAST_MTU, 1500)]


class Segment(Declared, frozen=True, kw_only=True):
    """A segment beside those of the nodes and of the outside hosts. The router is on it too."""

    name: Annotated[Name, OWN_NAME]
    cidrs: Annotated[_Networks, Key("Its network, or one of each family.", ["172.19.0.0/16"], alias="cidr")]
    position: Position


class RoutedAddress(Declared, frozen=True, kw_only=True):
    """Addresses that no machine holds, such as external IPs, and the nodes to which the router sends them."""

    network: Annotated[syntax.Network, Key("An address or a network.", ["198.51.100.7"])]
    nodes: Annotated[
        tuple[str, ...],
        NOT_EMPTY,
        Key("The nodes. With several, the router picks one by a hash that includes the ports.", [["node-a"]]),
    ]
    position: Position


class Network(Declared, frozen=True, kw_only=True):
    """The network and its address plan."""

    families: Annotated[
        Families, Key("The IP families of pods, Services and nodes, primary first.", [["IPv4", "IPv6"]])
    ] = (Family.IPV4,)
    pod_network: Annotated[
        PodNetwork,
        Key(
            "How a node connects its pods. ptp: a routed veth pair for each pod, with the gateway's address on every "
            "host-side end, as in kind. ptp-unnumbered: the same without these addresses, as in Calico. bridge: one "
            "bridge for each node, cni0, as in flannel."
        ),
    ] = PodNetwork.PTP
    hairpin: Annotated[
        Hairpin,
        Key(
            "How a bridge lets a pod reach itself: by the hairpin flag of its port, by a promiscuous bridge, or not at "
            "all."
        ),
    ] = Hairpin.HAIRPIN_VETH
    inter_node: Annotated[
        InterNode,
        Key("How pod traffic reaches another node: host-gw is a route via that node's address, vxlan is a tunnel."),
    ] = InterNode.HOST_GW
    outbound_masquerade: Annotated[
        bool,
        Key(
            "Whether nodes masquerade traffic that their pods send out of the pod network, as most CNI plugins do. The "
            "rules belong to the network, not to the proxy."
        ),
    ] = False
    pod_cidrs: Annotated[
        _Networks,
        Key(
            "The pods' network, or one of each family; each node has a part of it. It may be in the upper half of "
            "nodeCIDR, as in the networks of clouds.",
            ["10.244.0.0/16"],
            alias="podCIDR",
        ),
    ] = ()
    service_cidrs: Annotated[
        _Networks,
        Key("The network of the cluster IPs, or one of each family.", ["10.96.0.0/16"], alias="serviceCIDR"),
    ] = ()
    further_service_cidrs: Annotated[
        tuple[syntax.Network, ...],
        NOT_EMPTY,
        Key(
            "Networks of a second ServiceCIDR object. Services that name a cluster IP may have an address of them.",
            [["10.97.0.0/24"]],
            alias="furtherServiceCIDRs",
        ),
    ] = ()
    node_ports: Annotated[
        _NodePorts,
        Key(
            "The range from which Services get their node ports: --service-node-port-range of kube-apiserver. "
            "The default is 30000-32767.",
            ["80-8079"],
            alias="serviceNodePortRange",
        ),
    ] = NODE_PORTS
    node_cidrs: Annotated[
        _Networks,
        Key("The segment that all nodes share: a network, or one of each family.", ["172.18.0.0/16"], alias="nodeCIDR"),
    ] = ()
    outside_cidrs: Annotated[
        _Networks,
        Key(
            "The network of the outside hosts, behind the router, or one of each family.",
            ["203.0.113.0/24"],
            alias="outsideCIDR",
        ),
    ] = ()
    segments: Annotated[
        tuple[Segment, ...], Key("Further segments by name.", [{"storage": {"cidr": "172.19.0.0/16"}}])
    ] = ()
    routers: Annotated[
        Mapping[Name, _Addresses],
        Key(
            "The router's addresses by segment (nodes, outside, or one of segments), where it does not have the first "
            "address of the segment.",
            [{"nodes": "172.18.255.254"}],
        ),
    ] = field(default_factory=dict)
    router_sysctls: Annotated[
        Sysctls,
        Key(
            "Sysctls to set in the router, by dotted name, instead of the lab's own values.",
            [{"net.ipv4.fib_multipath_hash_policy": 0}],
        ),
    ] = field(default_factory=dict)
    mtu: Annotated[
        Mapping[Name, Mtu],
        Key(
            "The MTU of all links of a segment, by its name (nodes, outside, or one of segments), or of the links "
            "between nodes and their pods (pods). The default is 1500, and for pods with vxlan what the tunnel leaves.",
            [{"nodes": 1400, "pods": 1500}],
        ),
    ] = field(default_factory=dict)
    routed: Annotated[
        tuple[RoutedAddress, ...],
        Key(
            "Addresses that the router sends to nodes, such as external IPs.",
            [[{"network": "198.51.100.7", "nodes": ["node-a"]}]],
        ),
    ] = ()
