"""Which port of a Service a probe means.

Owns: ``service_port``, and the error of whatever a probe names that is not there.
Must not: know addresses.
"""

from lab.cluster.objects import Service, ServicePort
from lab.ip import Protocol

__all__ = ["UnresolvableError", "service_port"]


class UnresolvableError(LookupError):
    """A probe names something that is not there: which key, and what there is."""


def service_port(service: Service, wanted: str | int | None, asked: Protocol | None) -> ServicePort:
    """The port named, numbered, or the only one. Where two differ in protocol alone, the protocol asked for decides."""
    fitting = [port for port in service.ports if wanted is None or wanted in (port.name, port.port)]
    preferred = [port for port in fitting if port.protocol is asked]
    if len(fitting) > 1 and len(preferred) == 1:
        fitting = preferred
    if len(fitting) != 1:
        known = ", ".join(f"{port.name or port.port} ({port.protocol} {port.port})" for port in service.ports) or "none"
        what = "says no single port" if wanted is None else f"{wanted!r} is no single port"
        raise UnresolvableError(f"to.port: {what} of Service {service.namespace}/{service.name}; it has: {known}")
    return fitting[0]
