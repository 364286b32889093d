"""``keep_allocated``: the allocated fields that a Service keeps through an update."""

from msgspec.structs import replace

from proxylab.addresses import Family
from proxylab.cluster.allocate import NODE_PORT_TYPES, needs_health_check
from proxylab.cluster.objects import Service, ServicePort, ServiceType

__all__ = ["keep_allocated"]


def keep_allocated(service: Service, before: Service) -> Service:
    """The updated Service with the allocated fields that it keeps (``patchAllocatedValues`` in the API server).

    A Service keeps its cluster IPs and its node ports while its type has them, each node port with the port of the same
    name, and its health-check node port while it needs one (pkg/registry/core/service/storage/alloc.go). The ingress of
    a load balancer is status: an update of the spec does not change it while the type stays the same.

    Args:
        service: the update as the author wrote it, without allocated fields.
        before: the stored object, with everything allocated.
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
    """The ports, each with the former node port of its name, unless another port has that number already."""
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
