"""Which port a probe means that does not say it by number and protocol.

Owns: the look-up of a service port, and of a pod's own.
Must not: know addresses.
"""

from collections.abc import Sequence

from lab.cluster.objects import Service, ServicePort
from lab.ip import Protocol
from lab.plan.model import Listener

__all__ = ["UnresolvableError", "listening", "service_port"]


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


def listening(
    pod: str, listeners: Sequence[Listener], wanted: int | None, asked: Protocol | None
) -> tuple[int, Protocol]:
    """The pod's port. One that it does not listen on may be dialled: to be refused is an outcome too."""
    own = dict.fromkeys((listener.protocol, listener.port) for listener in listeners if listener.name == pod)
    fitting = [
        (protocol, port)
        for protocol, port in own
        if wanted in (None, port) and asked in (None, protocol)
    ]  # fmt: skip
    if wanted is not None:
        return wanted, asked or (fitting[0][0] if fitting else Protocol.TCP)
    if len(fitting) != 1:
        known = ", ".join(f"{protocol} {port}" for protocol, port in own) or "none"
        raise UnresolvableError(f"to.port: say which port of {pod}; it listens on: {known}")
    return fitting[0][1], fitting[0][0]
