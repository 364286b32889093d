"""Which endpoints an HTTP request through an Ingress may reach at one moment: those to which its host and path lead.

``cluster.http_routes`` reads the objects. The controller dials endpoints in the first family of its own pods.
"""

from collections.abc import Iterable, Sequence
from ipaddress import ip_address

from msgspec.structs import replace

from proxylab.cluster.http_routes import choose, routing
from proxylab.cluster.objects import EndpointSlice, Service, Unstructured
from proxylab.plan.model import PodPlacement
from proxylab.plan.resolved import Destination, HttpRequest

__all__ = ["with_endpoints"]


def with_endpoints(
    request: HttpRequest,
    controllers: Iterable[PodPlacement],
    kept: Iterable[Unstructured],
    services: Iterable[Service],
    slices: Sequence[EndpointSlice],
) -> HttpRequest:
    """The request with the endpoints that it may reach; none where no rule matches, or no endpoint is ready.

    ``kept`` are the objects that the API only serves, the oldest first, and ``controllers`` the pods with nginx.
    """
    versions = [pod.addresses[0].version for pod in controllers if pod.addresses]
    if not versions:
        return request
    servers = choose(routing(kept, services, slices, versions[:1]), request.host, request.path) or ()
    return replace(
        request, endpoints=tuple(Destination(address=ip_address(each.address), port=each.port) for each in servers)
    )
