"""The endpoints where a flow to a Service's address and port may arrive, from EndpointSlices.

The port number may differ at each endpoint: each pod gives a named target port its own number, and the author's slices
may hold any. A slice's port belongs to the Service's port of the same name (kube-proxy's ``ServicePortName``), and
proxies use only an endpoint's first address. The proxy under test chooses among endpoints (ready, near, local).
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence

from proxylab.addresses import IPAddress, Transport
from proxylab.cluster.objects import EndpointSlice, Service, ServicePort
from proxylab.plan.lookup import service_port
from proxylab.plan.resolved import Destination
from proxylab.scenario.probes import ServiceTarget, Target
from proxylab.scenario.words import Frontend

__all__ = ["Endpoints"]


class Endpoints:
    """The endpoints of all Services of one lab at one time."""

    def __init__(
        self, services: Iterable[Service], slices: Iterable[EndpointSlice], nodes: Collection[IPAddress]
    ) -> None:
        """Endpoints of ``services``.

        Args:
            services: with everything allocated.
            slices: their slices, from the controller and from the author.
            nodes: the addresses that may serve node ports.
        """
        self._services = {(each.namespace, each.name): each for each in services}
        self._nodes = frozenset(nodes)
        self._slices: defaultdict[tuple[str, str], list[EndpointSlice]] = defaultdict(list)
        for each in slices:
            self._slices[each.namespace, each.service].append(each)

    def due(
        self, target: Target, asked: Transport | None, dialled: tuple[IPAddress, int, Transport]
    ) -> tuple[str, tuple[Destination, ...]]:
        """The dialled Service's port (empty if the target is not a Service's), and where its flows may arrive.

        Args:
            target: the probe's target.
            asked: the protocol that the probe names.
            dialled: the resolved target; an echo request has no port, so it gives no destinations.
        """
        address, number, protocol = dialled
        if protocol is Transport.ICMP:
            return "", ()
        found = self._named(target, asked) or self._at(address, number, protocol)
        if found is None:
            return "", (Destination(address=address, port=number),)
        service, port = found
        endpoints = (each for each in self._behind(service, port) if each.address.version == address.version)
        return _name(service, port), tuple(dict.fromkeys(endpoints))

    def _named(self, target: Target, asked: Transport | None) -> tuple[Service, ServicePort] | None:
        """The port of the Service that a probe names; ``None`` for a DNS name or a health-check node port."""
        if not isinstance(target, ServiceTarget) or target.via in (Frontend.DNS_NAME, Frontend.HEALTH_CHECK_NODE_PORT):
            return None
        service = self._services.get((target.namespace, target.service))
        return None if service is None else (service, service_port(service, target.port, asked))

    def _at(self, address: IPAddress, number: int, protocol: Transport) -> tuple[Service, ServicePort] | None:
        """The Service and its port that serve an address."""
        for service in self._services.values():
            for port in service.ports:
                if port.protocol is protocol.served and self._is_at(service, port, address, number):
                    return service, port
        return None

    def _behind(self, service: Service, port: ServicePort) -> Iterator[Destination]:
        for each in self._slices.get((service.namespace, service.name), ()):
            for own in each.ports:
                if own.name == port.name and own.protocol is port.protocol and own.port:
                    for endpoint in each.endpoints:
                        yield Destination(address=endpoint.addresses[0], port=own.port)

    def _is_at(self, service: Service, port: ServicePort, address: IPAddress, number: int) -> bool:
        if number == port.node_port and (address in self._nodes or address.is_loopback):
            return True
        ingress: Sequence[IPAddress | None] = [each.ip for each in service.load_balancer_ingress]
        return number == port.port and address in (*service.cluster_ips, *service.external_ips, *ingress)


def _name(service: Service, port: ServicePort) -> str:
    """A Service's port as kube-proxy spells it: ``NAMESPACE/NAME:PORT``, without the last part for a nameless port."""
    return f"{service.namespace}/{service.name}" + (f":{port.name}" if port.name else "")
