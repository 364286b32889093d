"""Frozen Kubernetes objects, with the fields that a Service proxy reads under Kubernetes' own names in snake case.

Every field holds the value after defaulting. A value that the API server has not allocated yet is ``None`` (an address)
or ``0`` (a port).
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final, NamedTuple

from msgspec import field

from proxylab.addresses import Family, IPAddress, IPNetwork, Protocol
from proxylab.encoding import Record, TaggedRecord

PortKey = tuple[Protocol, int]

SERVICE_NAME_LABEL = "kubernetes.io/service-name"
SERVICE_PROXY_NAME_LABEL = "service.kubernetes.io/service-proxy-name"
HEADLESS_LABEL = "service.kubernetes.io/headless"
ZONE_LABEL = "topology.kubernetes.io/zone"
HOSTNAME_LABEL = "kubernetes.io/hostname"
EXCLUDED_LABEL = "node.kubernetes.io/exclude-from-external-load-balancers"
"""Of a node that load balancers leave out."""
_FALSE: Final = ("false", "False", "FALSE", "f", "F", "0")
"""The texts that Go reads as false (strconv.ParseBool)."""
_OF_KUBELET = {"kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}
TO_BE_DELETED = "ToBeDeletedByClusterAutoscaler"
"""The taint of a node that the cluster autoscaler is about to remove."""


def is_excluded(labels: Mapping[str, str]) -> bool:
    """Whether load balancers leave out a node with these labels; not where the label says false (since 1.34)."""
    return EXCLUDED_LABEL in labels and labels[EXCLUDED_LABEL] not in _FALSE


class ObjectKey(NamedTuple):
    """An object's identity in the store. Cluster-scoped objects have an empty namespace."""

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


class ServicePort(Record, frozen=True, kw_only=True):
    """One port of a Service. ``name`` is empty if the manifest gives none."""

    name: str = ""
    protocol: Protocol = Protocol.TCP
    port: int
    target_port: int | str
    node_port: int = 0


class LoadBalancerIngress(Record, frozen=True, kw_only=True):
    """One entry of ``status.loadBalancer.ingress``. A hostname-only entry has no ``ip``.

    ``behind`` are the balancer's addresses to which DNS resolves its hostname; no API shows them.
    """

    ip: IPAddress | None = None
    hostname: str = ""
    ip_mode: str = "VIP"
    behind: tuple[IPAddress, ...] = ()

    @property
    def addresses(self) -> tuple[IPAddress, ...]:
        """The addresses at which the balancer receives packets."""
        return self.behind if self.ip is None else (self.ip,)

    @property
    def is_claimed(self) -> bool:
        """Whether nodes translate packets to its addresses by themselves (KEP-1860)."""
        return self.ip is not None and self.ip_mode == "VIP"


class Service(TaggedRecord, frozen=True, kw_only=True):
    """A v1 Service.

    ``cluster_ips`` is empty until allocated; ``headless`` means ``clusterIP: None``. ``source_ranges`` are
    ``loadBalancerSourceRanges``. ``affinity_timeout`` is in seconds, ``None`` for ``sessionAffinity: None``.
    ``allocate_node_ports`` is ``allocateLoadBalancerNodePorts``: without it a LoadBalancer Service gets only the node
    ports that it requests. ``stored`` has the text of each address that an old API server stored in another form, by
    its usual text.
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
    stored: Mapping[str, str] = field(default_factory=dict)

    @property
    def key(self) -> ObjectKey:
        """The object's identity in the store."""
        return ObjectKey("Service", self.namespace, self.name)

    @property
    def externally_accessible(self) -> bool:
        """Whether ``externalTrafficPolicy`` has a frontend to apply to."""
        return self.type in (ServiceType.LOAD_BALANCER, ServiceType.NODE_PORT) or bool(self.external_ips)


class EndpointPort(Record, frozen=True, kw_only=True):
    """One port of an EndpointSlice."""

    name: str = ""
    protocol: Protocol = Protocol.TCP
    port: int


class Endpoint(Record, frozen=True, kw_only=True):
    """One endpoint of a slice. An empty ``node_name`` means local to no node. ``target`` names its pod."""

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


class EndpointSlice(TaggedRecord, frozen=True, kw_only=True):
    """A discovery.k8s.io/v1 EndpointSlice. ``service`` is its ``kubernetes.io/service-name`` label.

    ``labels`` need not have that one; ``service`` is empty for a slice of no Service. ``stored`` is as for a Service.
    """

    namespace: str = "default"
    name: str
    service: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    address_type: Family
    ports: tuple[EndpointPort, ...] = ()
    endpoints: tuple[Endpoint, ...] = ()
    stored: Mapping[str, str] = field(default_factory=dict)

    @property
    def key(self) -> ObjectKey:
        """The object's identity in the store."""
        return ObjectKey("EndpointSlice", self.namespace, self.name)


class Endpoints(TaggedRecord, frozen=True, kw_only=True):
    """A v1 Endpoints: the ready endpoints of a Service in one family, which kube-proxy watched before EndpointSlices.

    ``subsets`` are addresses, each with the ports of all of them.
    """

    namespace: str = "default"
    name: str
    subsets: tuple[tuple[tuple[IPAddress, ...], tuple[EndpointPort, ...]], ...] = ()

    @property
    def key(self) -> ObjectKey:
        """The object's identity in the store."""
        return ObjectKey("Endpoints", self.namespace, self.name)


class Taint(NamedTuple):
    """A taint of a node."""

    key: str
    value: str
    effect: str

    @classmethod
    def of(cls, text: str) -> "Taint":
        """The taint that kubectl writes ``KEY=VALUE:EFFECT``; the default is no value, and the effect NoSchedule."""
        key_and_value, _, effect = text.partition(":")
        key, _, value = key_and_value.partition("=")
        return cls(key, value, effect or "NoSchedule")

    def __str__(self) -> str:
        return f"{self.key}{f'={self.value}' if self.value else ''}:{self.effect}"


class Node(TaggedRecord, frozen=True, kw_only=True):
    """A v1 Node: labels, its InternalIP addresses (primary first) and its pod networks.

    ``taints`` are as ``Taint.of`` reads them; ``deleting`` means that it has a ``deletionTimestamp``.
    """

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    addresses: tuple[IPAddress, ...] = ()
    pod_cidrs: tuple[IPNetwork, ...] = ()
    taints: tuple[str, ...] = ()
    deleting: bool = False

    @property
    def key(self) -> ObjectKey:
        """The object's identity in the store."""
        return ObjectKey("Node", "", self.name)

    @property
    def is_leaving(self) -> bool:
        """Whether the node is about to go and should get no new connections (KEP-3836)."""
        return self.deleting or any(Taint.of(each).key == TO_BE_DELETED for each in self.taints)

    @property
    def all_labels(self) -> Mapping[str, str]:
        """Its labels, with those that the kubelet sets."""
        return {HOSTNAME_LABEL: self.name, **_OF_KUBELET, **self.labels}


class PodPort(Record, frozen=True, kw_only=True):
    """A port on which a container of the pod listens.

    With a ``host_port`` the pod is to be reached at that port of its node, too: at ``host_ip``, or at every address.
    """

    name: str = ""
    protocol: Protocol = Protocol.TCP
    port: int
    host_port: int = 0
    host_ip: IPAddress | None = None


class Pod(TaggedRecord, frozen=True, kw_only=True):
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
    def key(self) -> ObjectKey:
        """The object's identity in the store."""
        return ObjectKey("Pod", self.namespace, self.name)


class Namespace(TaggedRecord, frozen=True, kw_only=True):
    """A v1 Namespace."""

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def key(self) -> ObjectKey:
        """The object's identity in the store."""
        return ObjectKey("Namespace", "", self.name)


class ServiceCIDR(TaggedRecord, frozen=True, kw_only=True):
    """A networking.k8s.io/v1 ServiceCIDR: the networks of cluster IPs (KEP-1880)."""

    name: str = "kubernetes"
    cidrs: tuple[IPNetwork, ...]

    @property
    def key(self) -> ObjectKey:
        """The object's identity in the store."""
        return ObjectKey("ServiceCIDR", "", self.name)


class ClusterEvent(TaggedRecord, frozen=True, kw_only=True):
    """An events.k8s.io/v1 Event: a message from a component of the cluster about an object.

    ``regarding`` is that object. ``count`` is how often the component sent the message (``series.count``).
    """

    namespace: str = "default"
    name: str
    regarding: ObjectKey
    reason: str
    note: str = ""
    type: str = "Normal"
    action: str = ""
    reporter: str = ""
    reporting_instance: str = ""
    time: str = ""
    count: int = 1

    @property
    def key(self) -> ObjectKey:
        """The object's identity in the store."""
        return ObjectKey("Event", self.namespace, self.name)


class Unstructured(TaggedRecord, frozen=True, kw_only=True):
    """An object of a kind that has no type here, as client-go calls it.

    ``plural`` is the name of its kind in paths. ``content`` is the document without ``metadata``.
    """

    api_version: str
    kind: str
    plural: str
    namespace: str = ""
    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    content: Mapping[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> ObjectKey:
        """The object's identity in the store; its kind is as kubectl writes it, such as ``Deployment.apps``."""
        group = self.api_version.rpartition("/")[0]
        return ObjectKey(f"{self.kind}.{group}" if group else self.kind, self.namespace, self.name)


KubeObject = Service | EndpointSlice | Endpoints | Node | Pod | Namespace | ServiceCIDR | ClusterEvent | Unstructured
