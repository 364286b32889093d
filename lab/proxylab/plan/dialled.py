"""Look up what a probe dials: the port of a Service or pod, and the addresses of a frontend."""

from collections.abc import Sequence
from typing import Final

from proxylab.addresses import IPAddress, Protocol, Transport
from proxylab.cluster.objects import Service, ServicePort
from proxylab.plan.model import Listener
from proxylab.scenario.model import Frontend

__all__ = ["UnresolvableError", "frontend_addresses", "listening", "service_port"]

_DIALLED_FRONTS: Final = (
    Frontend.CLUSTER_IP,
    Frontend.NODE_PORT,
    Frontend.EXTERNAL_IP,
    Frontend.LOAD_BALANCER_IP,
    Frontend.HEALTH_CHECK_NODE_PORT,
)


class UnresolvableError(LookupError):
    """A probe names something unknown. The message has the key and the known names."""


def frontend_addresses(service: Service, via: Frontend) -> tuple[IPAddress, ...]:
    """The addresses of a frontend that has its own."""
    match via:
        case Frontend.EXTERNAL_IP:
            return service.external_ips
        case Frontend.LOAD_BALANCER_IP:
            return tuple(entry.ip for entry in service.load_balancer_ingress if entry.ip is not None)
        case Frontend.CLUSTER_IP:
            return service.cluster_ips
        case _:
            raise UnresolvableError(f"to.via: {via} cannot be dialled; use {', '.join(_DIALLED_FRONTS)}")


def service_port(service: Service, wanted: str | int | None, asked: Transport | None) -> ServicePort:
    """The Service's port by name or number, or its only one. If two differ only in protocol, ``asked`` decides."""
    fitting = [port for port in service.ports if wanted is None or wanted in (port.name, port.port)]
    preferred = [port for port in fitting if asked is not None and port.protocol is asked.served]
    if len(fitting) > 1 and len(preferred) == 1:
        fitting = preferred
    if len(fitting) != 1:
        known = ", ".join(f"{port.name or port.port} ({port.protocol} {port.port})" for port in service.ports) or "none"
        what = "is missing: several ports" if wanted is None else f"{wanted!r} does not name one port"
        raise UnresolvableError(f"to.port: {what} of Service {service.namespace}/{service.name}; it has: {known}")
    return fitting[0]


def listening(
    pod: str, listeners: Sequence[Listener], wanted: int | None, asked: Transport | None
) -> tuple[int, Transport]:
    """The pod's port. A probe may dial a port without a listener: a refusal is an outcome too."""
    own = dict.fromkeys((listener.protocol, listener.port) for listener in listeners if listener.name == pod)
    fitting = [
        (protocol, port)
        for protocol, port in own
        if wanted in (None, port) and (asked is None or asked.served is protocol)
    ]  # fmt: skip
    if wanted is not None:
        return wanted, asked or Transport(fitting[0][0] if fitting else Protocol.TCP)
    if len(fitting) != 1:
        known = ", ".join(f"{protocol} {port}" for protocol, port in own) or "none"
        raise UnresolvableError(f"to.port: is missing: {pod} does not have exactly one port; it listens on: {known}")
    return fitting[0][1], Transport(fitting[0][0])
