"""Which endpoints a flow to a Service's port may reach at one moment, under whatever policy, from whatever node.

A proxy leads to ready endpoints, and where it finds none to those that terminate and still serve (KEP-1669). Policy
Local and a flow to the node itself look at one node, all others at the whole cluster; so an endpoint that terminates is
a last resort, too, where no endpoint of its own node is ready. Hints and policies only narrow this down: what is not in
it is wrong from everywhere.

The port belongs to the endpoint: each pod gives a named target port its own number, and an author's slices may hold
any. A slice's port belongs to the Service's port of the same name and protocol, and proxies use an endpoint's first
address alone. A name gives all addresses of the ready endpoints, and none of others.
"""

from collections.abc import Iterable, Iterator

from msgspec import Struct

from proxylab.addresses import IPAddress
from proxylab.cluster.objects import HEADLESS_LABEL, Endpoint, EndpointSlice, Service, ServicePort, TrafficPolicy


class PortOfEndpoint(Struct, frozen=True):
    """An address and port of an endpoint, and whether a flow may reach it."""

    address: IPAddress
    port: int
    is_reachable: bool


def of_service(service: Service, slices: Iterable[EndpointSlice]) -> tuple[EndpointSlice, ...]:
    """The slices that name the Service."""
    return tuple(each for each in slices if (each.namespace, each.service) == (service.namespace, service.name))


def endpoints_of_port(
    service: Service, port: ServicePort, slices: Iterable[EndpointSlice]
) -> tuple[PortOfEndpoint, ...]:
    """Every endpoint of a Service's port in ``slices``, each address and port once."""
    found = tuple(_with_numbers(port, of_service(service, slices)))
    local = TrafficPolicy.LOCAL in (service.internal_traffic_policy, service.external_traffic_policy)
    served = {_scope(endpoint, local) for endpoint, _ in found if endpoint.ready}
    reachable: dict[tuple[IPAddress, int], bool] = {}
    for endpoint, number in found:
        is_last_resort = endpoint.serving and endpoint.terminating and _scope(endpoint, local) not in served
        end = endpoint.addresses[0], number
        reachable[end] = reachable.get(end, False) or endpoint.ready or is_last_resort
    return tuple(PortOfEndpoint(*end, is_reachable) for end, is_reachable in reachable.items())


def named_addresses(service: Service, slices: Iterable[EndpointSlice]) -> tuple[IPAddress, ...]:
    """The addresses that the name of a headless Service gives."""
    ready = (each for own in of_service(service, slices) for each in own.endpoints if each.ready)
    return tuple(dict.fromkeys(address for each in ready for address in each.addresses))


def _scope(endpoint: Endpoint, local: bool) -> tuple[int, str]:
    """Within what a ready endpoint keeps those that terminate from new flows: its family, and under Local its node."""
    return endpoint.addresses[0].version, endpoint.node_name if local else ""


def _with_numbers(port: ServicePort, slices: Iterable[EndpointSlice]) -> Iterator[tuple[Endpoint, int]]:
    """The endpoints of slices that proxies read, with their port's number; they skip those of a headless Service."""
    for each in slices:
        for own in each.ports if HEADLESS_LABEL not in each.labels else ():
            if own.name == port.name and own.protocol is port.protocol and own.port:
                yield from ((endpoint, own.port) for endpoint in each.endpoints)
