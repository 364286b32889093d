"""Change tracking: the service ports of a cluster, rebuilt only where their objects changed.

Owns ``PortTracker``, with its memory of one family's service ports and the list of objects left out. It follows no
events: it compares the frozen objects with those of the last sync, so a lost event loses no change, and an unchanged
object costs one comparison of identities.

It leaves out Services and EndpointSlices that would spoil a rule, and with it the load of all others. An API server
refuses all of these, and this module does not repeat the rest of its validation. A store filled by hand may hold them,
as may one behind an older, laxer version of Kubernetes.
"""

import re
from collections.abc import Sequence

from proxylab.addresses import Family, Protocol
from proxylab.cluster.objects import EndpointSlice, Service
from proxylab.engines.embedded.ports import ClusterView, ServicePortInfo, in_order, ports_of, slices_by_service

__all__ = ["PortTracker"]

_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9.]*[A-Za-z0-9])?")
"""A name that cannot end a rule's comment."""

_HIGHEST_PORT = 65535

Seen = tuple[Service, Sequence[EndpointSlice]]
Tracked = tuple[Seen, tuple[ServicePortInfo, ...], tuple[str, ...]]
"""The objects, their service ports, and a line for each object left out."""


class PortTracker:
    """The service ports of one family, as the proxy on one node sees them.

    Attributes:
        left_out: a line for each object that would spoil a rule, with its name and its fault.
    """

    def __init__(self, family: Family, node_name: str) -> None:
        self._family = family
        self._node_name = node_name
        self._tracked: dict[tuple[str, str], Tracked] = {}
        self.left_out: tuple[str, ...] = ()

    def update(self, cluster: ClusterView) -> tuple[ServicePortInfo, ...]:
        """The service ports of the sound objects, in the order of their Services' keys.

        An unchanged service port is the same object as before.
        """
        slices = slices_by_service(cluster.slices, self._family)
        now: dict[tuple[str, str], Tracked] = {}
        for service in in_order(cluster.services):
            key = (service.namespace, service.name)
            seen = (service, slices.get(key, ()))
            before = self._tracked.get(key)
            now[key] = before if before is not None and before[0] == seen else self._track(seen)
        self._tracked = now
        self.left_out = tuple([line for _, _, lines in now.values() for line in lines])
        return tuple([port for _, ports, _ in now.values() for port in ports])

    def _track(self, seen: Seen) -> Tracked:
        service, slices = seen
        if fault := _fault_of_service(service):
            return seen, (), (f"{service.key} is left out: {fault}",)
        faults = {item.key: fault for item in slices if (fault := _fault_of_slice(item))}
        sound = [item for item in slices if item.key not in faults] if faults else slices
        ports = tuple(ports_of(service, self._family, sound, self._node_name))
        return seen, ports, tuple([f"{key} is left out: {fault}" for key, fault in faults.items()])


def _fault_of_service(service: Service) -> str:
    """Why no rule can be written for the Service; empty where one can."""
    for name in (service.namespace, service.name):
        if not _NAME.fullmatch(name):
            return f"the name {name!r} cannot stand in a rule"
    if service.affinity_timeout is not None and service.affinity_timeout < 1:
        return f"the session affinity timeout of {service.affinity_timeout} s is not positive"
    if not 0 <= service.health_check_node_port <= _HIGHEST_PORT:
        return f"the health-check node port {service.health_check_node_port} is out of range"
    seen: set[tuple[str, Protocol]] = set()
    for port in service.ports:
        if port.name and not _NAME.fullmatch(port.name):
            return f"the port name {port.name!r} cannot stand in a rule"
        if not 1 <= port.port <= _HIGHEST_PORT or not 0 <= port.node_port <= _HIGHEST_PORT:
            return f"port {port.port} with node port {port.node_port} is out of range"
        if (port.name, port.protocol) in seen:
            return f"two {port.protocol} ports are named {port.name!r}"
        seen.add((port.name, port.protocol))
    return ""


def _fault_of_slice(item: EndpointSlice) -> str:
    """Why no rule can be written for the slice's endpoints; empty where one can."""
    for port in item.ports:
        if not 0 <= port.port <= _HIGHEST_PORT:
            return f"port {port.port} is out of range"
    version = 4 if item.address_type is Family.IPV4 else 6
    for endpoint in item.endpoints:
        if not endpoint.addresses:
            return "an endpoint has no address"
        if endpoint.addresses[0].version != version:
            return f"the endpoint {endpoint.addresses[0]} is not of the slice's address type {item.address_type}"
    return ""
