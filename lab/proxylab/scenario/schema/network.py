"""The shapes of ``spec.network``, and the words for how nodes and pods are connected.

``proxylab.scenario.inventory`` compares networks with each other.
"""

from enum import StrEnum
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field

from proxylab.addresses import Family, IPNetwork
from proxylab.scenario.problems import listed
from proxylab.scenario.schema.base import ScenarioShape, refused, word_of
from proxylab.scenario.schema.syntax import Name, Network, Sysctls, distinct, listed_if_single

__all__ = [
    "Families",
    "FamilyWord",
    "Hairpin",
    "HairpinWord",
    "InterNode",
    "InterNodeWord",
    "NetworkShape",
    "PodNetwork",
    "PodNetworkWord",
    "RoutedShape",
    "SegmentShape",
]


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


def _one_of_each_family(networks: list[IPNetwork]) -> list[IPNetwork]:
    families = [Family.of(network) for network in networks]
    for family in Family:
        if families.count(family) > 1:
            several = listed(str(network) for network in networks if Family.of(network) is family)
            raise refused(f"{several} are all {family}", allowed="allowed: one network of each family")
    return networks


def _families(families: list[Family]) -> list[Family]:
    if not families:
        raise refused("must not be empty", allowed=f"allowed: {listed(Family)}")
    return families


FamilyWord = Annotated[Family, BeforeValidator(word_of(Family))]
Families = Annotated[list[FamilyWord], AfterValidator(_families), AfterValidator(distinct)]
PodNetworkWord = Annotated[PodNetwork, BeforeValidator(word_of(PodNetwork))]
InterNodeWord = Annotated[InterNode, BeforeValidator(word_of(InterNode))]
HairpinWord = Annotated[Hairpin, BeforeValidator(word_of(Hairpin))]
Networks = Annotated[
    list[Network],
    Field(min_length=1),
    AfterValidator(_one_of_each_family),
    BeforeValidator(listed_if_single, json_schema_input_type=str | list[str]),
]


class SegmentShape(ScenarioShape):
    """A segment beside those of the nodes and of the outside hosts. The router is on it too."""

    cidr: Networks = Field(alias="cidr", description="Its network, or one of each family.", examples=["172.19.0.0/16"])


class RoutedShape(ScenarioShape):
    """Addresses that no machine holds, such as external IPs, and the nodes to which the router sends them."""

    network: Network = Field(description="An address or a network.", examples=["198.51.100.7"])
    nodes: list[str] = Field(
        min_length=1,
        description="The nodes. With several, the router picks one by a hash that includes the ports.",
        examples=[["node-a"]],
    )


class NetworkShape(ScenarioShape):
    """The network and its address plan."""

    families: Families = Field(
        default=[Family.IPV4],
        description="The IP families of pods, Services and nodes, primary first.",
        examples=[["IPv4", "IPv6"]],
    )
    pod_network: PodNetworkWord = Field(
        default=PodNetwork.PTP,
        description="How a node connects its pods. ptp: a routed veth pair for each pod, with the gateway's address on "
        "every host-side end, as in kind. ptp-unnumbered: the same without these addresses, as in Calico. bridge: one "
        "bridge for each node, cni0, as in flannel.",
    )
    hairpin: HairpinWord = Field(
        default=Hairpin.HAIRPIN_VETH,
        description="How a bridge lets a pod reach itself: by the hairpin flag of its port, by a promiscuous bridge, "
        "or not at all.",
    )
    inter_node: InterNodeWord = Field(
        default=InterNode.HOST_GW,
        description="How pod traffic reaches another node: host-gw is a route via that node's address, vxlan is a "
        "tunnel.",
    )
    outbound_masquerade: bool = Field(
        default=False,
        description="Whether nodes masquerade traffic that their pods send out of the pod network, as most CNI plugins "
        "do. The rules belong to the network, not to the proxy.",
    )
    pod_cidr: Networks | None = Field(
        default=None,
        alias="podCIDR",
        description="The pods' network, or one of each family; each node has a part of it. It may be in the upper half "
        "of nodeCIDR, as in the networks of clouds.",
        examples=["10.244.0.0/16"],
    )
    service_cidr: Networks | None = Field(
        default=None,
        alias="serviceCIDR",
        description="The network of the cluster IPs, or one of each family.",
        examples=["10.96.0.0/16"],
    )
    node_cidr: Networks | None = Field(
        default=None,
        alias="nodeCIDR",
        description="The segment that all nodes share: a network, or one of each family.",
        examples=["172.18.0.0/16"],
    )
    outside_cidr: Networks | None = Field(
        default=None,
        alias="outsideCIDR",
        description="The network of the outside hosts, behind the router, or one of each family.",
        examples=["203.0.113.0/24"],
    )
    segments: dict[Name, SegmentShape] = Field(
        default_factory=dict,
        description="Further segments by name.",
        examples=[{"storage": {"cidr": "172.19.0.0/16"}}],
    )
    router_sysctls: Sysctls = Field(
        default_factory=dict,
        description="Sysctls to set in the router, by dotted name, instead of the lab's own values.",
        examples=[{"net.ipv4.fib_multipath_hash_policy": 0}],
    )
    routed: list[RoutedShape] = Field(
        default_factory=list,
        description="Addresses that the router sends to nodes, such as external IPs.",
        examples=[[{"network": "198.51.100.7", "nodes": ["node-a"]}]],
    )
