"""The Scenario document: its head, the network, nodes, pods and hosts.

Owns: the shapes of everything in a Scenario but probes.
Must not: compare one part with another (``lab.scenario.inventory`` does).
"""

from enum import StrEnum
from ipaddress import IPv4Network
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field

from lab.ip import Family, Protocol
from lab.scenario.problems import describe, shown
from lab.scenario.schema.base import Between, Later, ScenarioShape, refused, word_of
from lab.scenario.schema.probe import ProbeShape
from lab.scenario.schema.syntax import Labels, Name, Network4, PortName, PortNumber, Sysctls

__all__ = [
    "ApiVersion",
    "HostShape",
    "Kind",
    "MetadataShape",
    "NetworkShape",
    "NodeShape",
    "PodShape",
    "PortShape",
    "ScenarioDocument",
    "SpecShape",
]

MOST_REPLICAS = 1000


class ApiVersion(StrEnum):
    """The version of the format."""

    V1 = "proxylab/v1"


class Kind(StrEnum):
    """The kind of the document."""

    SCENARIO = "Scenario"


class PodNetwork(StrEnum):
    """How a node's pods are wired."""

    PTP = "ptp"
    PTP_UNNUMBERED = "ptp-unnumbered"
    BRIDGE = "bridge"


class InterNode(StrEnum):
    """How pod traffic crosses from node to node."""

    HOST_GW = "host-gw"
    VXLAN = "vxlan"


def _empty_for_null(value: object) -> object:
    """``node-a:`` with nothing behind it is a node without wishes."""
    return {} if value is None else value


def _port_of_number(value: object) -> object:
    if isinstance(value, int) and not isinstance(value, bool):
        return {"port": value}
    if not isinstance(value, dict):
        raise refused(f"must be a port's number or a mapping, is {describe(value)}")
    return value


def _distinct(items: list[Any]) -> list[Any]:
    for index, item in enumerate(items):
        if item in items[:index]:
            raise refused(f"{shown(item)} stands twice")
    return items


def _link(text: str) -> str:
    if not text.startswith(("https://", "http://")) or not text.isprintable():
        raise refused(f"{shown(text)} is not a link", allowed="allowed: https://… or http://…")
    return text


class MetadataShape(ScenarioShape):
    """What the scenario is called, and why it exists."""

    name: Name = Field(description="The scenario's name, as reports print it.", examples=["clusterip-from-a-pod"])
    description: str = Field(default="", description="One paragraph: what is shown here, and why it matters.")
    links: list[Annotated[str, AfterValidator(_link)]] = Field(
        default_factory=list, description="Where the behaviour is documented, or the bug was reported."
    )


class NetworkShape(ScenarioShape):
    """The wire and its address plan."""

    families: Annotated[
        list[Annotated[Family, BeforeValidator(word_of(Family, now=[Family.IPV4]))]], AfterValidator(_distinct)
    ] = Field(
        default=[Family.IPV4], min_length=1, description="The IP families of pods, Services and nodes, primary first."
    )
    pod_network: Annotated[PodNetwork, BeforeValidator(word_of(PodNetwork, now=[PodNetwork.PTP]))] = Field(
        default=PodNetwork.PTP,
        description="How a node's pods are wired: ptp is a veth pair a pod, routed, with the gateway's address on "
        "every host-side end, as kind does it.",
    )
    inter_node: Annotated[InterNode, BeforeValidator(word_of(InterNode, now=[InterNode.HOST_GW]))] = Field(
        default=InterNode.HOST_GW,
        description="How pod traffic reaches another node: host-gw is a route by way of that node's own address.",
    )
    pod_cidr: Network4 = Field(
        default=IPv4Network("10.244.0.0/16"),
        alias="podCIDR",
        description="The pods' network; each node has a part of it.",
    )
    service_cidr: Network4 = Field(
        default=IPv4Network("10.96.0.0/16"), alias="serviceCIDR", description="Where cluster IPs are taken from."
    )
    node_cidr: Network4 = Field(
        default=IPv4Network("172.18.0.0/16"), alias="nodeCIDR", description="The segment that all nodes share."
    )
    outside_cidr: Network4 = Field(
        default=IPv4Network("203.0.113.0/24"),
        alias="outsideCIDR",
        description="Where outside hosts stand, behind the router.",
    )


class NodeShape(ScenarioShape):
    """A node: a network namespace with an engine in it."""

    labels: Labels = Field(default_factory=dict, description="Labels of the Node object, such as its zone.")
    sysctls: Sysctls = Field(
        default_factory=dict, description="Sysctls to set in the node, by dotted name, instead of the lab's own values."
    )
    addresses: Later = Field(default=None, description="Further addresses of the node.")
    uplinks: Later = Field(default=None, description="Further devices towards the segment.")
    routes: Later = Field(default=None, description="Further routes of the node.")
    daemons: Later = Field(default=None, description="Programs that listen on the node itself.")


class PortShape(ScenarioShape):
    """A port on which a pod listens."""

    name: PortName | None = Field(default=None, description="The name by which a Service's targetPort may call it.")
    port: PortNumber = Field(description="The port's number.")
    protocol: Annotated[Protocol, BeforeValidator(word_of(Protocol, now=[Protocol.TCP, Protocol.UDP]))] = Field(
        default=Protocol.TCP, description="The transport protocol."
    )


class PodShape(ScenarioShape):
    """One pod, or with replicas several that differ only in name and node."""

    replicas: Annotated[int, Between(1, MOST_REPLICAS)] | None = Field(
        default=None,
        description="How many pods there are; they are called NAME-1 to NAME-N. Without it, one pod called NAME.",
    )
    nodes: list[str] | None = Field(
        default=None,
        min_length=1,
        description="The nodes the pods run on, in turn. Without it, the scenario's first node.",
    )
    labels: Labels = Field(default_factory=dict, description="The pods' labels, for Services to select by.")
    ports: list[Annotated[PortShape, BeforeValidator(_port_of_number, json_schema_input_type=int | PortShape)]] = Field(
        default_factory=list, description="Where the pods listen: numbers for TCP, or mappings."
    )
    ready: bool = Field(default=True, description="Whether the pods' readiness probes succeed.")
    serving: Later = Field(default=None, description="Whether the pods still serve while they terminate.")
    terminating: Later = Field(default=None, description="Whether the pods are being deleted.")
    host_network: Later = Field(default=None, description="Whether the pods use their node's network.")
    addresses: Later = Field(default=None, description="Fixed addresses of the pods.")
    shared_netns: Later = Field(default=None, description="Whether all replicas share one namespace.")


class HostShape(ScenarioShape):
    """An outside host: a machine that is no node of the cluster, behind the router."""

    segment: Later = Field(
        default=None, description="Where the host stands: behind the router or on the nodes' segment."
    )
    addresses: Later = Field(default=None, description="The host's addresses.")


class SpecShape(ScenarioShape):
    """The cluster, and what is sent through it."""

    network: NetworkShape = Field(default_factory=NetworkShape, description="The wire and its address plan.")
    nodes: dict[Name, Annotated[NodeShape, BeforeValidator(_empty_for_null)]] = Field(
        min_length=1, description="The nodes by name; the order is the order of their addresses."
    )
    pods: dict[Name, Annotated[PodShape, BeforeValidator(_empty_for_null)]] = Field(
        default_factory=dict, description="The pods by name."
    )
    hosts: dict[Name, Annotated[HostShape, BeforeValidator(_empty_for_null)]] = Field(
        default_factory=dict, description="The outside hosts by name."
    )
    probes: list[ProbeShape] = Field(default_factory=list, description="What is sent, and what must become of it.")
    manifests: Later = Field(default=None, description="Files with further Kubernetes manifests.")
    load_balancers: Later = Field(
        default=None, description="Balancers in front of the nodes, with their pools of addresses."
    )
    matrix: Later = Field(default=None, description="Axes; the scenario runs once for every combination.")
    streams: Later = Field(default=None, description="Flows that live through all steps.")
    steps: Later = Field(default=None, description="Changes of the cluster, one after another.")


class ScenarioDocument(ScenarioShape):
    """A scenario: a cluster, probes, expectations. Kubernetes manifests stand beside it in the same file."""

    api_version: Annotated[ApiVersion, BeforeValidator(word_of(ApiVersion))] = Field(
        description="The version of the format."
    )
    kind: Annotated[Kind, BeforeValidator(word_of(Kind))] = Field(description="The kind of document.")
    metadata: MetadataShape = Field(description="What the scenario is called, and why it exists.")
    spec: SpecShape = Field(description="The cluster, and what is sent through it.")
