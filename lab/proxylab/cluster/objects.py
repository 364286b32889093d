"""Kubernetes objects as far as a Service proxy looks at them.

Owns: frozen Service, EndpointSlice, Node and Pod, with Kubernetes' own field names in snake case.
Must not: parse manifests (``scenario.manifests``) or decide anything (``allocate``, ``slices``, the engines).

Every field holds the value after defaulting; a value still to be allocated by the API server is ``None`` (an address)
or ``0`` (a port), exactly as it is absent from an unallocated manifest.
"""

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum
from typing import NamedTuple

from proxylab.addresses import Family, IPAddress, IPNetwork, Protocol
from proxylab.frozen import dataclass

__all__ = [
    "ClusterEvent",
    "Endpoint",
    "EndpointPort",
    "EndpointSlice",
    "Key",
    "KubeObject",
    "LoadBalancerIngress",
    "Namespace",
    "Node",
    "Pod",
    "PodPort",
    "Service",
    "ServiceCIDR",
    "ServicePort",
    "ServiceType",
    "TrafficPolicy",
]

SERVICE_NAME_LABEL = "kubernetes.io/service-name"
SERVICE_PROXY_NAME_LABEL = "service.kubernetes.io/service-proxy-name"
HEADLESS_LABEL = "service.kubernetes.io/headless"
ZONE_LABEL = "topology.kubernetes.io/zone"
TO_BE_DELETED = "ToBeDeletedByClusterAutoscaler"
"""The taint of a node that the cluster autoscaler is about to remove."""


class Key(NamedTuple):
    """Where an object stands in the store. What belongs to the whole cluster has an empty namespace."""

    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}" if self.namespace else f"{self.kind} {self.name}"


class ServiceType(StrEnum):
    """``Service.spec.type``."""

    CLUSTER_IP = "ClusterIP"
    NODE_PORT = "NodePort"
    LOAD_BALANCER = "LoadBalancer"
    EXTERNAL_NAME = "ExternalName"


class TrafficPolicy(StrEnum):
    """``internalTrafficPolicy`` and ``externalTrafficPolicy``."""

    CLUSTER = "Cluster"
    LOCAL = "Local"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServicePort:
    """One port of a Service. ``name`` is empty where the manifest gives none."""

    name: str = ""
    protocol: Protocol = Protocol.TCP
    port: int
    target_port: int | str
    node_port: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadBalancerIngress:
    """One entry of ``status.loadBalancer.ingress``. A hostname-only entry has no ``ip``."""

    ip: IPAddress | None = None
    hostname: str = ""
    ip_mode: str = "VIP"


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """A v1 Service.

    ``cluster_ips`` is empty until allocated; ``headless`` stands for ``clusterIP: None``. ``source_ranges`` are
    ``loadBalancerSourceRanges``. ``affinity_timeout`` is in seconds, ``None`` for ``sessionAffinity: None``.
    ``allocate_node_ports`` is ``allocateLoadBalancerNodePorts``: without it a LoadBalancer Service gets no node port
    that it does not ask for.
    """

    namespace: str = "default"
    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    type: ServiceType = ServiceType.CLUSTER_IP
    selector: Mapping[str, str] = field(default_factory=dict)
    ports: tuple[ServicePort, ...] = ()
    headless: bool = False
    cluster_ips: tuple[IPAddress, ...] = ()
    ip_families: tuple[Family, ...] = ()
    ip_family_policy: str = "SingleStack"
    external_ips: tuple[IPAddress, ...] = ()
    load_balancer_ingress: tuple[LoadBalancerIngress, ...] = ()
    source_ranges: tuple[IPNetwork, ...] = ()
    internal_traffic_policy: TrafficPolicy = TrafficPolicy.CLUSTER
    external_traffic_policy: TrafficPolicy = TrafficPolicy.CLUSTER
    health_check_node_port: int = 0
    affinity_timeout: int | None = None
    publish_not_ready_addresses: bool = False
    traffic_distribution: str = ""
    allocate_node_ports: bool = True
    external_name: str = ""

    @property
    def key(self) -> Key:
        """The object's place in the store."""
        return Key("Service", self.namespace, self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointPort:
    """One port of an EndpointSlice."""

    name: str = ""
    protocol: Protocol = Protocol.TCP
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """One endpoint of a slice. ``node_name`` empty means: local to no node. ``target`` names the pod behind it."""

    addresses: tuple[IPAddress, ...]
    ready: bool = True
    serving: bool = True
    terminating: bool = False
    node_name: str = ""
    zone: str = ""
    hostname: str = ""
    for_zones: tuple[str, ...] = ()
    for_nodes: tuple[str, ...] = ()
    target: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointSlice:
    """A discovery.k8s.io/v1 EndpointSlice. ``service`` is its ``kubernetes.io/service-name`` label."""

    namespace: str = "default"
    name: str
    service: str
    labels: Mapping[str, str] = field(default_factory=dict)
    address_type: Family
    ports: tuple[EndpointPort, ...] = ()
    endpoints: tuple[Endpoint, ...] = ()

    @property
    def key(self) -> Key:
        """The object's place in the store."""
        return Key("EndpointSlice", self.namespace, self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A v1 Node: labels, its InternalIP addresses (primary first) and its pod networks.

    ``taints`` are the keys of its taints; ``deleting`` says that it has a ``deletionTimestamp``.
    """

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    addresses: tuple[IPAddress, ...] = ()
    pod_cidrs: tuple[IPNetwork, ...] = ()
    taints: tuple[str, ...] = ()
    deleting: bool = False

    @property
    def key(self) -> Key:
        """The object's place in the store."""
        return Key("Node", "", self.name)

    @property
    def is_leaving(self) -> bool:
        """Whether it is about to go, so that it shall get no new connections (KEP-3836)."""
        return self.deleting or TO_BE_DELETED in self.taints


@dataclass(frozen=True, slots=True, kw_only=True)
class PodPort:
    """A port on which a container of the pod listens."""

    name: str = ""
    protocol: Protocol = Protocol.TCP
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """A v1 Pod that runs on a node and has its addresses (primary family first)."""

    namespace: str = "default"
    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    node_name: str
    addresses: tuple[IPAddress, ...]
    ports: tuple[PodPort, ...] = ()
    host_network: bool = False
    hostname: str = ""
    subdomain: str = ""
    ready: bool = True
    serving: bool = True
    terminating: bool = False

    @property
    def key(self) -> Key:
        """The object's place in the store."""
        return Key("Pod", self.namespace, self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Namespace:
    """A v1 Namespace."""

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def key(self) -> Key:
        """The object's place in the store."""
        return Key("Namespace", "", self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceCIDR:
    """A networking.k8s.io/v1 ServiceCIDR: where cluster IPs come from (KEP-1880)."""

    name: str = "kubernetes"
    cidrs: tuple[IPNetwork, ...]

    @property
    def key(self) -> Key:
        """The object's place in the store."""
        return Key("ServiceCIDR", "", self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterEvent:
    """An events.k8s.io/v1 Event: what a component of the cluster has to say about an object.

    ``regarding`` names that object by kind, namespace and name. ``count`` is how often it was said (``series.count``).
    """

    namespace: str = "default"
    name: str
    regarding: Key
    reason: str
    note: str = ""
    type: str = "Normal"
    action: str = ""
    reporter: str = ""
    reporting_instance: str = ""
    time: str = ""
    count: int = 1

    @property
    def key(self) -> Key:
        """The object's place in the store."""
        return Key("Event", self.namespace, self.name)


KubeObject = Service | EndpointSlice | Node | Pod | Namespace | ServiceCIDR | ClusterEvent
