"""Change tracking: the service ports of a cluster, rebuilt only where their objects changed.

Owns ``PortTracker``, with its memory of one family's service ports and the list of objects left out. It follows no
events: it compares the frozen objects with those of the last sync, so a lost event loses no change, and an unchanged
object costs one comparison of identities.
"""

from collections.abc import Sequence

from proxylab.addresses import Family
from proxylab.cluster.objects import EndpointSlice, Service
from proxylab.engines.embedded.ports import ClusterView, ServicePortInfo, in_order, ports_of, slices_by_service
from proxylab.engines.embedded.soundness import fault_of_service, fault_of_slice

__all__ = ["PortTracker"]

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
        if fault := fault_of_service(service):
            return seen, (), (f"{service.key} is left out: {fault}",)
        faults = {item.key: fault for item in slices if (fault := fault_of_slice(item))}
        sound = [item for item in slices if item.key not in faults] if faults else slices
        ports = tuple(ports_of(service, self._family, sound, self._node_name))
        return seen, ports, tuple([f"{key} is left out: {fault}" for key, fault in faults.items()])
