"""The weakest promise, which every flow has: the endpoints that a flow to a Service's port may reach at one moment.

It holds under whatever policy, from whatever node, in every mode and version, so it needs neither a network nor a
proxy, and the plan asks for it, too. A proxy leads to ready endpoints, and where it finds none to those that terminate
and still serve (KEP-1669). Policy Local and a flow to the node itself look at one node, all others at the whole
cluster; so an endpoint that terminates is a last resort, too, where no endpoint of its own node is ready. Hints and
policies only narrow this down (``choice``): what is not in it is wrong from everywhere.

A name gives all addresses of the ready endpoints, and none of others.
"""

from collections.abc import Iterable

from msgspec import Struct

from proxylab.addresses import Family, IPAddress
from proxylab.cluster.objects import Endpoint, EndpointSlice, Service, ServicePort, TrafficPolicy
from proxylab.oracle.choice import candidates_of, is_last_resort


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
    own = of_service(service, slices)
    found = [each for family in Family for each in candidates_of(port, family, own)]
    local = TrafficPolicy.LOCAL in (service.internal_traffic_policy, service.external_traffic_policy)
    served = {_scope(each.endpoint, local) for each in found if each.endpoint.ready}
    reachable: dict[tuple[IPAddress, int], bool] = {}
    for each in found:
        may = each.endpoint.ready or (is_last_resort(each) and _scope(each.endpoint, local) not in served)
        end = each.address, each.port
        reachable[end] = reachable.get(end, False) or may
    return tuple(PortOfEndpoint(*end, is_reachable) for end, is_reachable in reachable.items())


def named_addresses(service: Service, slices: Iterable[EndpointSlice]) -> tuple[IPAddress, ...]:
    """The addresses that the name of a headless Service gives."""
    ready = (each for own in of_service(service, slices) for each in own.endpoints if each.ready)
    return tuple(dict.fromkeys(address for each in ready for address in each.addresses))


def _scope(endpoint: Endpoint, local: bool) -> tuple[int, str]:
    """Within what a ready endpoint keeps those that terminate from new flows: its family, and under Local its node."""
    return endpoint.addresses[0].version, endpoint.node_name if local else ""
