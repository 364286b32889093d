"""v1 Service as an author writes it or ``kubectl get -o yaml`` prints it.

The shapes have every key of the API (https://kubernetes.io/docs/reference/kubernetes-api/, v1.34).
``proxylab.scenario.manifests`` fills in defaults, ``proxylab.scenario.validity`` compares fields with each other.
"""

from enum import StrEnum
from ipaddress import ip_network
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field

from proxylab.addresses import Family, IPAddress, IPNetwork, Protocol, without_leading_zeros
from proxylab.cluster.objects import ServiceType, TrafficPolicy
from proxylab.scenario.keys import Between, refused
from proxylab.scenario.problems import describe, shown
from proxylab.scenario.schema.base import Ignored, ManifestShape, word_of
from proxylab.scenario.syntax import PortNumber, is_port_name, read_address, read_port_reference

__all__ = [
    "FamilyPolicy",
    "IngressShape",
    "MetadataShape",
    "ServicePortShape",
    "ServiceShape",
    "ServiceSpecShape",
    "SessionAffinity",
]


class SessionAffinity(StrEnum):
    """``sessionAffinity``."""

    NONE = "None"
    CLIENT_IP = "ClientIP"


class FamilyPolicy(StrEnum):
    """``ipFamilyPolicy``."""

    SINGLE = "SingleStack"
    PREFER_DUAL = "PreferDualStack"
    REQUIRE_DUAL = "RequireDualStack"


class Distribution(StrEnum):
    """``trafficDistribution``."""

    PREFER_CLOSE = "PreferClose"
    PREFER_SAME_ZONE = "PreferSameZone"
    PREFER_SAME_NODE = "PreferSameNode"


class IngressMode(StrEnum):
    """``ipMode``."""

    VIP = "VIP"
    PROXY = "Proxy"


def _target_port(value: object) -> object:
    if isinstance(value, str) and not is_port_name(value):
        raise refused(
            f"{shown(value)} is not a port's name",
            allowed="allowed: 15 lower-case letters, digits and '-' at most, with a letter among them (RFC 6335)",
        )
    return None if value is None else read_port_reference(value)


def _source_range(value: object) -> object:
    if not isinstance(value, str):
        raise refused(f"must be a network such as 10.0.0.0/16, is {describe(value)}")
    try:
        # Proxies accept spaces around it, host bits and leading zeros, and so did old API servers.
        return ip_network(without_leading_zeros(value.strip()), strict=False)
    except ValueError:
        raise refused(f"{shown(value)} is not a network", allowed="write it as 10.0.0.0/16") from None


def _cluster_ip(text: str) -> str:
    return text if text in ("", "None") else str(_address(text))


def _address(value: object) -> IPAddress:
    return read_address(without_leading_zeros(value) if isinstance(value, str) else value)


AnyAddress = Annotated[IPAddress, BeforeValidator(_address)]
ClusterIP = Annotated[str, AfterValidator(_cluster_ip)]


class MetadataShape(ManifestShape):
    """``metadata``, with the keys that a server adds."""

    name: str = Field(description="The Service's name.")
    namespace: str | None = Field(default=None, description="The namespace; `default` by default.")
    labels: dict[str, str] | None = Field(default=None, description="Its labels.")
    annotations: dict[str, str] | None = Field(default=None, description="Its annotations.")
    generate_name: Ignored = Field(default=None, description="A prefix for names that the server generates.")
    self_link: Ignored = Field(default=None, description="Written by old servers.")
    uid: Ignored = Field(default=None, description="Written by the server.")
    resource_version: Ignored = Field(default=None, description="Written by the server.")
    generation: Ignored = Field(default=None, description="Written by the server.")
    creation_timestamp: Ignored = Field(default=None, description="Written by the server.")
    deletion_timestamp: Ignored = Field(default=None, description="Written by the server.")
    deletion_grace_period_seconds: Ignored = Field(default=None, description="Written by the server.")
    owner_references: Ignored = Field(default=None, description="Written by controllers.")
    finalizers: Ignored = Field(default=None, description="Written by controllers.")
    managed_fields: Ignored = Field(default=None, description="Written by the server.")


class ServicePortShape(ManifestShape):
    """One entry of ``spec.ports``."""

    name: str | None = Field(default=None, description="The port's name; required if the Service has several ports.")
    protocol: Annotated[Protocol, BeforeValidator(word_of(Protocol))] | None = Field(
        default=None, description="TCP by default."
    )
    port: PortNumber = Field(description="The port on the Service's addresses.")
    target_port: Annotated[int | str, BeforeValidator(_target_port)] | None = Field(
        default=None, description="The pods' port, by number or name; the value of port by default."
    )
    node_port: Annotated[int, Between(0, 65535)] | None = Field(default=None, description="The port on every node.")
    app_protocol: Ignored = Field(default=None, description="The application's protocol; Service proxies ignore it.")


class ClientIPShape(ManifestShape):
    """``sessionAffinityConfig.clientIP``."""

    timeout_seconds: int | None = Field(
        default=None, description="How long a client keeps its endpoint; 10800 by default."
    )


class AffinityConfigShape(ManifestShape):
    """``sessionAffinityConfig``."""

    client_ip: ClientIPShape | None = Field(
        default=None, alias="clientIP", description="For sessionAffinity: ClientIP."
    )


class ServiceSpecShape(ManifestShape):
    """``spec``."""

    type: Annotated[ServiceType, BeforeValidator(word_of(ServiceType))] | None = Field(
        default=None, description="ClusterIP by default."
    )
    selector: dict[str, str] | None = Field(default=None, description="The labels of the pods behind the Service.")
    ports: list[ServicePortShape] | None = Field(default=None, description="The Service's ports.")
    cluster_ip: ClusterIP | None = Field(default=None, alias="clusterIP", description="Its address, or None.")
    cluster_ips: list[ClusterIP] | None = Field(
        default=None, alias="clusterIPs", description="Its addresses, primary first."
    )
    ip_families: list[Annotated[Family, BeforeValidator(word_of(Family))]] | None = Field(
        default=None, description="Its IP families, primary first."
    )
    ip_family_policy: Annotated[FamilyPolicy, BeforeValidator(word_of(FamilyPolicy))] | None = Field(
        default=None, description="SingleStack by default."
    )
    external_ips: list[AnyAddress] | None = Field(
        default=None, alias="externalIPs", description="Further addresses that the network routes to the nodes."
    )
    external_name: str | None = Field(
        default=None, description="The name for which an ExternalName Service is an alias."
    )
    internal_traffic_policy: Annotated[TrafficPolicy, BeforeValidator(word_of(TrafficPolicy))] | None = Field(
        default=None, description="Cluster by default."
    )
    external_traffic_policy: Annotated[TrafficPolicy, BeforeValidator(word_of(TrafficPolicy))] | None = Field(
        default=None, description="Cluster by default."
    )
    health_check_node_port: Annotated[int, Between(0, 65535)] | None = Field(
        default=None, description="The port on which a load balancer checks a node for local endpoints."
    )
    session_affinity: Annotated[SessionAffinity, BeforeValidator(word_of(SessionAffinity))] | None = Field(
        default=None, description="None by default."
    )
    session_affinity_config: AffinityConfigShape | None = Field(
        default=None, description="For sessionAffinity: ClientIP."
    )
    publish_not_ready_addresses: bool | None = Field(
        default=None, description="Whether the Service uses pods before they are ready."
    )
    load_balancer_source_ranges: list[Annotated[IPNetwork, BeforeValidator(_source_range)]] | None = Field(
        default=None, description="The networks that may use the load balancer."
    )
    allocate_load_balancer_node_ports: bool | None = Field(
        default=None, description="Whether a LoadBalancer Service gets node ports; true by default."
    )
    traffic_distribution: Annotated[Distribution, BeforeValidator(word_of(Distribution))] | None = Field(
        default=None, description="Which endpoints the proxy prefers."
    )
    load_balancer_ip: Ignored = Field(
        default=None, alias="loadBalancerIP", description="A request to the load balancer's controller."
    )
    load_balancer_class: Ignored = Field(default=None, description="The controller that provides the load balancer.")


class IngressShape(ManifestShape):
    """One entry of ``status.loadBalancer.ingress``."""

    ip: AnyAddress | None = Field(default=None, description="The load balancer's address.")
    hostname: str | None = Field(default=None, description="The load balancer's name, if it has no address.")
    ip_mode: Annotated[IngressMode, BeforeValidator(word_of(IngressMode))] | None = Field(
        default=None, description="VIP by default."
    )
    ports: Ignored = Field(default=None, description="Written by the load balancer's controller.")


class LoadBalancerShape(ManifestShape):
    """``status.loadBalancer``."""

    ingress: list[IngressShape] | None = Field(default=None, description="The load balancer's addresses.")


class StatusShape(ManifestShape):
    """``status``."""

    load_balancer: LoadBalancerShape | None = Field(
        default=None, description="What the load balancer's controller reports."
    )
    conditions: Ignored = Field(default=None, description="Written by controllers.")


class ServiceShape(ManifestShape):
    """A v1 Service."""

    api_version: str = Field(description="v1.")
    kind: str = Field(description="Service.")
    metadata: MetadataShape = Field(description="Its name, namespace, labels and annotations.")
    spec: ServiceSpecShape | None = Field(default=None, description="The desired Service.")
    status: StatusShape | None = Field(default=None, description="What controllers report.")
