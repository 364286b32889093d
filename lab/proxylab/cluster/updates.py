"""What a Service that is updated keeps of what the API server had allocated for it.

Owns: ``keep_allocated``.
Must not: allocate (``allocate`` does), or read a patch (``scenario`` does).
"""

from dataclasses import replace

from proxylab.addresses import Family
from proxylab.cluster.allocate import NODE_PORT_TYPES, needs_health_check
from proxylab.cluster.objects import Service, ServicePort, ServiceType

__all__ = ["keep_allocated"]


def keep_allocated(service: Service, before: Service) -> Service:
    """A Service as its author changes it, with what stays allocated (``patchAllocatedValues`` in the API server).

    Cluster IPs stay while it has any, node ports while it has some, each with the port of the same name, and the
    health-check node port while it needs one (pkg/registry/core/service/storage/alloc.go). The ingress of a load
    balancer is status, which an update of the spec leaves alone as long as the type does.

    Args:
        service: as written, without what nobody wrote.
        before: as it stands, with everything allocated.
    """
    if _has_cluster_ip(service) and _has_cluster_ip(before):
        families = service.ip_families or before.ip_families
        kept = tuple(address for address in before.cluster_ips if Family.of(address) in families)
        service = replace(service, cluster_ips=service.cluster_ips or kept)
    if service.type in NODE_PORT_TYPES and before.type in NODE_PORT_TYPES:
        service = replace(service, ports=_ports(service, before))
    if needs_health_check(service) and needs_health_check(before):
        service = replace(
            service, health_check_node_port=service.health_check_node_port or before.health_check_node_port
        )
    if service.type is before.type and not service.load_balancer_ingress:
        service = replace(service, load_balancer_ingress=before.load_balancer_ingress)
    return service


def _has_cluster_ip(service: Service) -> bool:
    return service.type is not ServiceType.EXTERNAL_NAME and not service.headless


def _ports(service: Service, before: Service) -> tuple[ServicePort, ...]:
    """Its ports, each with the node port of its name, unless another port of it has that already."""
    had = {port.name: port.node_port for port in before.ports}
    used = {port.node_port for port in before.ports} & {port.node_port for port in service.ports}
    ports = []
    for port in service.ports:
        number = port.node_port
        if not number and had.get(port.name, 0) not in used:
            number = had.get(port.name, 0)
            used.add(number)
        ports.append(replace(port, node_port=number))
    return tuple(ports)
