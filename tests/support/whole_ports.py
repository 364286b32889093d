"""The service ports of a whole cluster at once; tracking change by change must give the same."""

from proxylab.addresses import Family
from proxylab.engines.embedded.ports import ClusterView, ServicePortInfo, in_order, ports_of, slices_by_service


def service_ports(cluster: ClusterView, family: Family, node_name: str) -> tuple[ServicePortInfo, ...]:
    """The service ports that a proxy of that family on that node serves, in the order of their Services' keys."""
    slices = slices_by_service(cluster.slices, family)
    return tuple(
        info
        for service in in_order(cluster.services)
        for info in ports_of(service, family, slices.get((service.namespace, service.name), ()), node_name)
    )
