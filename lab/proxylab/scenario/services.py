"""Build the cluster's object from a well-formed Service, with the API server's defaults.

``proxylab.scenario.validity`` compares fields, ``proxylab.cluster.allocate`` allocates addresses and ports.
"""

from ipaddress import ip_address

from proxylab.addresses import Protocol
from proxylab.cluster.objects import LoadBalancerIngress, Service, ServicePort, ServiceType, TrafficPolicy
from proxylab.scenario.schema.service import (
    FamilyPolicy,
    IngressShape,
    ServicePortShape,
    ServiceShape,
    ServiceSpecShape,
    SessionAffinity,
)

__all__ = ["DEFAULT_NAMESPACE", "service_of"]

DEFAULT_NAMESPACE = "default"
DEFAULT_AFFINITY_TIMEOUT = 10800
"""``sessionAffinityConfig.clientIP.timeoutSeconds`` of core/v1, in seconds: three hours."""


def service_of(shape: ServiceShape) -> Service:
    """The Service with the API server's defaults."""
    metadata, spec = shape.metadata, shape.spec or ServiceSpecShape()
    balancer = shape.status.load_balancer if shape.status else None
    addresses = spec.cluster_ips or [spec.cluster_ip or ""]
    return Service(
        namespace=metadata.namespace or DEFAULT_NAMESPACE,
        name=metadata.name,
        labels=metadata.labels or {},
        annotations=metadata.annotations or {},
        type=spec.type or ServiceType.CLUSTER_IP,
        selector=spec.selector or {},
        ports=tuple(map(_port, spec.ports or [])),
        headless="None" in addresses,
        cluster_ips=tuple(ip_address(address) for address in addresses if address not in ("", "None")),
        ip_families=tuple(spec.ip_families or []),
        ip_family_policy=(spec.ip_family_policy or FamilyPolicy.SINGLE).value,
        external_ips=tuple(spec.external_ips or []),
        load_balancer_ingress=tuple(map(_ingress, (balancer.ingress if balancer else None) or [])),
        source_ranges=tuple(spec.load_balancer_source_ranges or []),
        internal_traffic_policy=spec.internal_traffic_policy or TrafficPolicy.CLUSTER,
        external_traffic_policy=spec.external_traffic_policy or TrafficPolicy.CLUSTER,
        health_check_node_port=spec.health_check_node_port or 0,
        affinity_timeout=_affinity_timeout(spec),
        publish_not_ready_addresses=spec.publish_not_ready_addresses or False,
        traffic_distribution=spec.traffic_distribution.value if spec.traffic_distribution else "",
        allocate_node_ports=spec.allocate_load_balancer_node_ports is not False,
        external_name=spec.external_name or "",
    )


def _port(shape: ServicePortShape) -> ServicePort:
    return ServicePort(
        name=shape.name or "",
        protocol=shape.protocol or Protocol.TCP,
        port=shape.port,
        target_port=shape.target_port or shape.port,
        node_port=shape.node_port or 0,
    )


def _ingress(shape: IngressShape) -> LoadBalancerIngress:
    return LoadBalancerIngress(
        ip=shape.ip, hostname=shape.hostname or "", ip_mode=shape.ip_mode.value if shape.ip_mode else "VIP"
    )


def _affinity_timeout(spec: ServiceSpecShape) -> int | None:
    if spec.session_affinity is not SessionAffinity.CLIENT_IP:
        return None
    config = spec.session_affinity_config
    timeout = config.client_ip.timeout_seconds if config and config.client_ip else None
    return DEFAULT_AFFINITY_TIMEOUT if timeout is None else timeout
