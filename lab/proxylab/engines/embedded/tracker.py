"""Change tracking: the service ports of a cluster, rebuilt only where their objects changed.

Owns ``PortTracker``, with its memory of one family's service ports. It follows no events: it compares the frozen
objects with those of the last sync, so a lost event loses no change, and an unchanged object costs one comparison of
identities.
"""

from collections.abc import Sequence

from proxylab.addresses import Family
from proxylab.cluster.objects import EndpointSlice, Service
from proxylab.engines.embedded.ports import ClusterView, ServicePortInfo, in_order, ports_of, slices_by_service

Seen = tuple[Service, Sequence[EndpointSlice]]


class PortTracker:
    """The service ports of one family, as the proxy on one node sees them."""

    def __init__(self, family: Family, node_name: str) -> None:
        self._family = family
        self._node_name = node_name
        self._tracked: dict[tuple[str, str], tuple[Seen, tuple[ServicePortInfo, ...]]] = {}

    def update(self, cluster: ClusterView) -> tuple[ServicePortInfo, ...]:
        """The service ports in the order of their Services' keys. An unchanged one is the same object as before."""
        slices = slices_by_service(cluster.slices, self._family)
        now: dict[tuple[str, str], tuple[Seen, tuple[ServicePortInfo, ...]]] = {}
        for service in in_order(cluster.services):
            key = (service.namespace, service.name)
            seen = (service, slices.get(key, ()))
            before = self._tracked.get(key)
            if before is None or before[0] != seen:
                before = seen, tuple(ports_of(service, self._family, seen[1], self._node_name))
            now[key] = before
        self._tracked = now
        return tuple([port for _, ports in now.values() for port in ports])
