"""v1 Service as an author writes it or ``kubectl get -o yaml`` prints it, with the API server's defaults.

The records have every key of the API (https://kubernetes.io/docs/reference/kubernetes-api/, v1.34).
``proxylab.scenario.validity`` compares fields with each other, ``proxylab.cluster.allocate`` allocates addresses and
ports.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Final

from msgspec import field

from proxylab.addresses import Family, IPAddress, IPNetwork, Protocol, without_leading_zeros
from proxylab.cluster.documents import object_of
from proxylab.cluster.objects import Service, ServiceType, TrafficPolicy
from proxylab.scenario.keys import Between, Check, Key, Manifest, Read, written
from proxylab.scenario.syntax import PortNumber, port_name, read_address, read_network, read_port_reference

DEFAULT_NAMESPACE: Final = "default"
_BY_SERVER: Final = "Written by the server."
_BY_CONTROLLERS: Final = "Written by controllers."


class SessionAffinity(StrEnum):
    """``sessionAffinity``."""

    NONE = "None"
    CLIENT_IP = "ClientIP"


class FamilyPolicy(StrEnum):
    """``ipFamilyPolicy``."""

    SINGLE = "SingleStack"
    PREFER_DUAL = "PreferDualStack"
    REQUIRE_DUAL = "RequireDualStack"


class _Distribution(StrEnum):
    """``trafficDistribution``."""

    PREFER_CLOSE = "PreferClose"
    PREFER_SAME_ZONE = "PreferSameZone"
    PREFER_SAME_NODE = "PreferSameNode"


class _IngressMode(StrEnum):
    """``ipMode``."""

    VIP = "VIP"
    PROXY = "Proxy"


def _target_port(value: object) -> object:
    return port_name(value) if isinstance(value, str) else read_port_reference(value)


def _stored_address(value: object) -> IPAddress:
    """An address as old API servers stored it, perhaps with leading zeros."""
    return read_address(without_leading_zeros(value) if isinstance(value, str) else value)


def _cluster_ip(text: str) -> str:
    return text if text in ("", "None") else str(_stored_address(text))


def _namespace(text: str) -> str:
    return text or DEFAULT_NAMESPACE


def _source_range(value: object) -> IPNetwork:
    return read_network(without_leading_zeros(value.strip()) if isinstance(value, str) else value)


_ClusterIP = Annotated[str, Check(_cluster_ip)]
StoredAddress = Annotated[IPAddress, Read(_stored_address, str)]
_NodePort = Annotated[int, Between(0, 65535)]


class ObjectMetadata(Manifest, frozen=True, kw_only=True):
    """``metadata``, with the keys that a server adds."""

    without_effect: ClassVar[Mapping[str, str]] = {
        "generateName": "A prefix for names that the server generates.",
        "selfLink": "Written by old servers.",
        **dict.fromkeys(("uid", "resourceVersion", "generation", "creationTimestamp"), _BY_SERVER),
        "deletionGracePeriodSeconds": _BY_SERVER,
        **dict.fromkeys(("ownerReferences", "finalizers"), _BY_CONTROLLERS),
        "managedFields": _BY_SERVER,
    }

    name: Annotated[str, Key("The object's name.")]
    namespace: Annotated[str, Check(_namespace), Key("The namespace.")] = DEFAULT_NAMESPACE
    labels: Annotated[Mapping[str, str], Key("Its labels.")] = field(default_factory=dict)
    annotations: Annotated[Mapping[str, str], Key("Its annotations.")] = field(default_factory=dict)
    deletion_timestamp: Annotated[Any, Key("Written by the server: a Pod or Node that has it terminates.")] = None


class _ServicePort(Manifest, frozen=True, kw_only=True):
    """One entry of ``spec.ports``."""

    without_effect: ClassVar[Mapping[str, str]] = {"appProtocol": "The application's protocol; proxies ignore it."}

    name: Annotated[str, Key("The port's name; required if the Service has several ports.")] = ""
    protocol: Annotated[Protocol, Key("The transport protocol.")] = Protocol.TCP
    port: Annotated[PortNumber, Key("The port on the Service's addresses.")]
    target_port: Annotated[
        int | str, Read(_target_port), Key("The pods' port, by number or name; the value of port by default.")
    ] = ""
    node_port: Annotated[_NodePort, Key("The port on every node.")] = 0


class _ClientIP(Manifest, frozen=True):
    """``sessionAffinityConfig.clientIP``."""

    timeout_seconds: Annotated[int, Key("How long a client keeps its endpoint, in seconds.")] = 10800


class _AffinityConfig(Manifest, frozen=True):
    """``sessionAffinityConfig``."""

    client_ip: Annotated[_ClientIP, Key("For sessionAffinity: ClientIP.", alias="clientIP")] = _ClientIP()


class ServiceSpec(Manifest, frozen=True, kw_only=True):
    """``spec``."""

    without_effect: ClassVar[Mapping[str, str]] = {
        "loadBalancerIP": "A request to the load balancer's controller.",
        "loadBalancerClass": "The controller that provides the load balancer.",
    }

    type: Annotated[ServiceType, Key("The type of the Service.")] = ServiceType.CLUSTER_IP
    selector: Annotated[Mapping[str, str], Key("The labels of the pods behind the Service.")] = field(
        default_factory=dict
    )
    ports: Annotated[tuple[_ServicePort, ...], Key("The Service's ports.")] = ()
    cluster_ip: Annotated[_ClusterIP, Key("Its address, or None.", alias="clusterIP")] = ""
    cluster_ips: Annotated[tuple[_ClusterIP, ...], Key("Its addresses, primary first.", alias="clusterIPs")] = ()
    ip_families: Annotated[tuple[Family, ...], Key("Its IP families, primary first.")] = ()
    ip_family_policy: Annotated[FamilyPolicy | None, Key("SingleStack by default.")] = None
    external_ips: Annotated[
        tuple[StoredAddress, ...], Key("Further addresses that the network routes to the nodes.", alias="externalIPs")
    ] = ()
    external_name: Annotated[str, Key("The name for which an ExternalName Service is an alias.")] = ""
    internal_traffic_policy: Annotated[TrafficPolicy, Key("For packets from inside the cluster.")] = (
        TrafficPolicy.CLUSTER
    )
    external_traffic_policy: Annotated[TrafficPolicy | None, Key("Cluster by default.")] = None
    health_check_node_port: Annotated[
        _NodePort, Key("The port on which a load balancer checks a node for local endpoints.")
    ] = 0
    session_affinity: Annotated[SessionAffinity, Key("Whether a client keeps its endpoint.")] = SessionAffinity.NONE
    session_affinity_config: Annotated[_AffinityConfig | None, Key("For sessionAffinity: ClientIP.")] = None
    publish_not_ready_addresses: Annotated[bool, Key("Whether the Service uses pods before they are ready.")] = False
    load_balancer_source_ranges: Annotated[
        tuple[Annotated[IPNetwork, Read(_source_range, str)], ...],
        Key("The networks that may use the load balancer."),
    ] = ()
    allocate_load_balancer_node_ports: Annotated[
        bool | None, Key("Whether a LoadBalancer Service gets node ports; true by default.")
    ] = None
    traffic_distribution: Annotated[_Distribution | None, Key("Which endpoints the proxy prefers.")] = None


class _Ingress(Manifest, frozen=True, kw_only=True):
    """One entry of ``status.loadBalancer.ingress``."""

    without_effect: ClassVar[Mapping[str, str]] = {"ports": "Written by the load balancer's controller."}

    ip: Annotated[StoredAddress | None, Key("The load balancer's address.")] = None
    hostname: Annotated[
        str,
        Key(
            "The load balancer's name, where it publishes no address, as those of some clouds do. No proxy has a rule "
            "for it. The Service gets an address of a pool, to which the lab's own name server resolves the name."
        ),
    ] = ""
    ip_mode: Annotated[_IngressMode, Key("Whether the balancer keeps the destination, or is a proxy.")] = (
        _IngressMode.VIP
    )


class _LoadBalancer(Manifest, frozen=True):
    """``status.loadBalancer``."""

    ingress: Annotated[tuple[_Ingress, ...], Key("The load balancer's addresses.")] = ()


class _Status(Manifest, frozen=True):
    """``status``."""

    without_effect: ClassVar[Mapping[str, str]] = {"conditions": _BY_CONTROLLERS}

    load_balancer: Annotated[_LoadBalancer, Key("What the load balancer's controller reports.")] = _LoadBalancer()


class ServiceManifest(Manifest, frozen=True, kw_only=True):
    """A v1 Service."""

    api_version: Annotated[str, Key("v1.")]
    kind: Annotated[str, Key("Service.")]
    metadata: Annotated[ObjectMetadata, Key("Its name, namespace, labels and annotations.")]
    spec: Annotated[ServiceSpec, Key("The desired Service.")] = ServiceSpec()
    status: Annotated[_Status, Key("What controllers report.")] = _Status()


def service_of(manifest: ServiceManifest) -> Service:
    """The object of the cluster."""
    return object_of(Service, written(manifest))
