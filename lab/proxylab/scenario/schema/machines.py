"""The shapes of nodes, pods, outside hosts and load balancers. ``proxylab.scenario.inventory`` looks up their names."""

from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field

from proxylab.addresses import Protocol
from proxylab.scenario.keys import Between, refused
from proxylab.scenario.problems import describe
from proxylab.scenario.schema.base import ScenarioShape, word_of
from proxylab.scenario.syntax import (
    Address,
    Destination,
    DeviceName,
    Interface,
    Labels,
    Name,
    Network,
    PortName,
    PortNumber,
    Sysctls,
    TaintKey,
    distinct,
)

__all__ = [
    "BalancerShape",
    "DaemonShape",
    "HostShape",
    "LeftoversShape",
    "NodeAddressShape",
    "NodeShape",
    "PodShape",
    "PortShape",
    "RouteShape",
    "UplinkShape",
]

MOST_REPLICAS = 1000
MOST_ADDRESSES = 1000

ProtocolWord = Annotated[Protocol, BeforeValidator(word_of(Protocol))]


def _port_of_number(value: object) -> object:
    if isinstance(value, int) and not isinstance(value, bool):
        return {"port": value}
    if not isinstance(value, dict):
        raise refused(f"must be a port's number or a mapping, is {describe(value)}")
    return value


def _address_of_text(value: object) -> object:
    return {"address": value} if isinstance(value, str) else value


class NodeAddressShape(ScenarioShape):
    """A further address of a node."""

    address: Interface = Field(
        description="The address, with a prefix length where other machines share its network.",
        examples=["192.0.2.1/24"],
    )
    device: DeviceName = Field(default="eth0", description="The device: eth0, another uplink of the node, or lo.")


class UplinkShape(ScenarioShape):
    """A further device of a node, on a segment. The lab chooses its addresses."""

    segment: Name = Field(description="The segment: nodes, or one of network.segments.", examples=["storage"])


class RouteShape(ScenarioShape):
    """A further route of a node."""

    to: Destination = Field(description="The destination: a network, or default.", examples=["198.51.100.0/24"])
    device: DeviceName = Field(description="The device that packets leave through.", examples=["eth1"])
    via: Address | None = Field(
        default=None, description="The gateway; without it the destination is on the link.", examples=["172.19.0.1"]
    )
    source: Network | None = Field(
        default=None,
        alias="from",
        description="Makes it a policy route, for packets from that network.",
        examples=["172.19.0.0/16"],
    )


class DaemonShape(ScenarioShape):
    """A program that listens on the node itself."""

    port: PortNumber = Field(description="The port it listens on.", examples=[8080])
    protocol: ProtocolWord = Field(default=Protocol.TCP, description="The transport protocol.")
    address: Address | None = Field(
        default=None, description="The address it listens on; the default is all.", examples=["127.0.0.1"]
    )


def _restorable(text: str) -> str:
    lines = text.splitlines()
    if not any(line.startswith("*") for line in lines) or "COMMIT" not in lines:
        raise refused("is not input for iptables-restore", allowed="allowed: tables as iptables-save prints them")
    return text


_Saved = Annotated[str, AfterValidator(_restorable)]


class LeftoversShape(ScenarioShape):
    """Rules that a node holds before its engine starts. The lab skips rules of a family that it does not have."""

    iptables: _Saved | None = Field(
        default=None,
        description="Input for iptables-restore, as iptables-save prints it.",
        examples=["*nat\n:KUBE-SERVICES - [0:0]\n-A PREROUTING -j KUBE-SERVICES\nCOMMIT\n"],
    )
    ip6tables: _Saved | None = Field(
        default=None,
        alias="ip6tables",
        description="Input for ip6tables-restore, as ip6tables-save prints it.",
        examples=["*nat\n:KUBE-SERVICES - [0:0]\nCOMMIT\n"],
    )
    nft: Annotated[str, Field(min_length=1)] | None = Field(
        default=None, description="Input for nft, of any family.", examples=["table ip kube-proxy {\n}\n"]
    )


class NodeShape(ScenarioShape):
    """A node: a network namespace with an engine in it."""

    labels: Labels = Field(
        default_factory=dict,
        description="Labels of the Node object, such as its zone.",
        examples=[{"topology.kubernetes.io/zone": "zone-a"}],
    )
    taints: Annotated[list[TaintKey], AfterValidator(distinct)] = Field(
        default_factory=list,
        description="Keys of the Node object's taints. A proxy reports itself unhealthy on a node that the cluster "
        "autoscaler is about to remove.",
        examples=[["ToBeDeletedByClusterAutoscaler"]],
    )
    terminating: bool = Field(
        default=False, description="Whether the Node object is being deleted. Its proxy is then unhealthy too."
    )
    sysctls: Sysctls = Field(
        default_factory=dict,
        description="Sysctls to set in the node, by dotted name, instead of the lab's own values.",
        examples=[{"net.ipv4.conf.all.route_localnet": 1}],
    )
    internal_ips: Annotated[list[Address], AfterValidator(distinct)] = Field(
        default_factory=list,
        alias="internalIPs",
        description="Fixed addresses of the node, one of each family, in nodeCIDR. By default the lab chooses them.",
        examples=[["172.18.0.77"]],
    )
    addresses: list[
        Annotated[NodeAddressShape, BeforeValidator(_address_of_text, json_schema_input_type=str | NodeAddressShape)]
    ] = Field(
        default_factory=list,
        description="Further addresses of the node: plain ones for eth0, or mappings with a device.",
        examples=[["192.0.2.1/24", {"address": "192.0.2.9", "device": "lo"}]],
    )
    uplinks: dict[DeviceName, UplinkShape] = Field(
        default_factory=dict,
        description="Further devices by name, each on a segment.",
        examples=[{"eth1": {"segment": "storage"}}],
    )
    routes: list[RouteShape] = Field(
        default_factory=list,
        description="Further routes of the node.",
        examples=[[{"to": "198.51.100.0/24", "device": "eth1", "via": "172.19.0.1"}]],
    )
    daemons: dict[Name, DaemonShape] = Field(
        default_factory=dict,
        description="Programs by name that listen on the node itself.",
        examples=[{"kubelet": {"port": 10250}}],
    )
    leftovers: LeftoversShape = Field(
        default_factory=LeftoversShape.model_construct,
        description="Rules that another proxy, or this one in another mode or version, has left in the node. The lab "
        "loads them before the engine starts.",
        examples=[{"nft": "table ip kube-proxy {\n}\n"}],
    )


class PortShape(ScenarioShape):
    """A port on which a pod listens."""

    name: PortName | None = Field(
        default=None, description="The name that a Service's targetPort may use.", examples=["http"]
    )
    port: PortNumber = Field(description="The port's number.", examples=[8080])
    protocol: ProtocolWord = Field(default=Protocol.TCP, description="The transport protocol.")


class PodShape(ScenarioShape):
    """One pod, or with replicas several pods that differ only in name and node."""

    replicas: Annotated[int, Between(1, MOST_REPLICAS)] | None = Field(
        default=None,
        description="How many pods there are, called NAME-1 to NAME-N. The default is one pod, called NAME.",
        examples=[3],
    )
    nodes: list[str] | None = Field(
        default=None,
        min_length=1,
        description="The nodes the pods run on, in turn. The default is the scenario's first node.",
        examples=[["node-a", "node-b"]],
    )
    namespace: Name = Field(default="default", description="The pods' namespace.", examples=["prod"])
    labels: Labels = Field(
        default_factory=dict,
        description="The pods' labels, for Services to select by.",
        examples=[{"app": "echo"}],
    )
    ports: list[Annotated[PortShape, BeforeValidator(_port_of_number, json_schema_input_type=int | PortShape)]] = Field(
        default_factory=list,
        description="The ports on which the pods listen: numbers for TCP, or mappings.",
        examples=[[8080, {"name": "dns", "port": 5353, "protocol": "UDP"}]],
    )
    ready: bool = Field(default=True, description="Whether the pods' readiness probes succeed.")
    serving: bool | None = Field(
        default=None,
        description="Whether the pods still serve while they terminate. The default is the value of ready.",
        examples=[True],
    )
    terminating: bool = Field(default=False, description="Whether the pods are being deleted.")
    present: bool = Field(
        default=True, description="Whether the API knows the pods when the lab begins; a step may add them."
    )
    host_network: bool = Field(default=False, description="Whether the pods use their node's network.")
    addresses: Annotated[list[Address], AfterValidator(distinct)] = Field(
        default_factory=list,
        description="Fixed addresses of a single pod, one of each family.",
        examples=[["10.244.0.99"]],
    )
    hostname: Name | None = Field(
        default=None,
        description="A single pod's DNS name below its subdomain. The default is the pod's name.",
        examples=["web-0"],
    )
    subdomain: Name | None = Field(
        default=None,
        description="The headless Service under which each pod has a DNS name of its own.",
        examples=["web"],
    )
    shared_netns: bool = Field(
        default=False,
        description="Whether the replicas on a node share one network namespace, each with an address of its own. For "
        "hundreds of endpoints.",
    )
    sysctls: Sysctls = Field(
        default_factory=dict,
        description="Sysctls to set in the pods' network namespaces, by dotted name, instead of the lab's own values.",
        examples=[{"net.ipv4.ip_unprivileged_port_start": 0}],
    )


class HostShape(ScenarioShape):
    """An outside host: a machine that is no node of the cluster."""

    segment: Name = Field(
        default="outside",
        description="The segment that the host is on: outside, behind the router; nodes, with the nodes; or one of "
        "network.segments.",
    )
    addresses: Annotated[int, Between(1, MOST_ADDRESSES)] = Field(
        default=1, description="How many addresses it has in each family.", examples=[200]
    )
    sysctls: Sysctls = Field(
        default_factory=dict,
        description="Sysctls to set on the host, by dotted name, instead of the lab's own values.",
        examples=[{"net.ipv4.tcp_syn_retries": 1}],
    )


class BalancerShape(ScenarioShape):
    """A load balancer in front of the nodes."""

    pool: list[Network] = Field(
        min_length=1,
        description="The networks from which Services of type LoadBalancer get their addresses.",
        examples=[["192.0.2.0/28"]],
    )
    nodes: list[str] | None = Field(
        default=None,
        min_length=1,
        description="The nodes it sends to. The default is all nodes.",
        examples=[["node-a", "node-b"]],
    )
    health_checked: bool = Field(
        default=False, description="Whether it skips nodes that fail on their health-check node port."
    )
