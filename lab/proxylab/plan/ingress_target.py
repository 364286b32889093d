"""Probes ``via: ingress``: the frontend of the controller's Service that they dial, and the request that they make."""

from collections.abc import Iterable
from typing import TypeVar

from msgspec.structs import replace

from proxylab.cluster.objects import Service, ServiceType
from proxylab.plan.lookup import UnresolvableError
from proxylab.plan.resolved import HttpRequest
from proxylab.scenario.pods import PodGroup
from proxylab.scenario.probes import Probe, ServiceTarget, Stream
from proxylab.scenario.words import Frontend, Program

__all__ = ["request_of", "through_ingress"]

Sent = TypeVar("Sent", bound=Probe | Stream)


def request_of(probe: Probe | Stream) -> HttpRequest | None:
    """The request of a probe via an Ingress; ``None`` for any other."""
    target = probe.target
    if not isinstance(target, ServiceTarget) or target.via is not Frontend.INGRESS:
        return None
    return HttpRequest(host=target.host, path=target.path, tls=target.tls)


def through_ingress(probe: Sent, services: Iterable[Service], groups: Iterable[PodGroup]) -> Sent:
    """A probe via an Ingress as one that dials the controller's Service; any other as it is.

    Raises:
        UnresolvableError: no Service leads to a controller, or it has no port for the request.
    """
    target = probe.target
    if not isinstance(target, ServiceTarget) or target.via is not Frontend.INGRESS:
        return probe
    controllers = [group for group in groups if group.program is Program.NGINX]
    for service in services:
        if service.selector and any(
            group.namespace == service.namespace and service.selector.items() <= group.labels.items()
            for group in controllers
        ):
            dialled = replace(
                target,
                service=service.name,
                namespace=service.namespace,
                via=_frontend(service),
                port=_port(service, tls=target.tls),
            )
            return replace(probe, target=dialled)
    raise UnresolvableError("to.via: no Service selects a pod with program: nginx, which would answer; add one")


def _frontend(service: Service) -> Frontend:
    if any(each.ip for each in service.load_balancer_ingress):
        return Frontend.LOAD_BALANCER_IP
    exposed = service.type in (ServiceType.NODE_PORT, ServiceType.LOAD_BALANCER)
    return Frontend.NODE_PORT if exposed else Frontend.CLUSTER_IP


def _port(service: Service, *, tls: bool) -> int:
    name, number = ("https", 443) if tls else ("http", 80)
    for port in service.ports:
        if port.name == name or port.port == number:
            return port.port
    raise UnresolvableError(
        f"to.tls: Service {service.namespace}/{service.name} of the controller has no port {name} ({number}); add it"
    )
