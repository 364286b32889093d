"""Look up what a probe names: machines and their addresses, ports, frontends, and the receivers of frames.

A probe ``via: ingress`` dials a frontend of the controller's Service.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeVar

from msgspec.structs import replace

from proxylab.addresses import Family, IPAddress, Protocol, Transport
from proxylab.cluster.objects import Service, ServicePort, ServiceType
from proxylab.plan.forwarding import on_segment
from proxylab.plan.model import Plan, PlannedNamespace, PodPlacement, Role
from proxylab.plan.resolved import HttpRequest
from proxylab.scenario.network import UPLINK
from proxylab.scenario.pods import ListeningPort, PodGroup
from proxylab.scenario.probes import Probe, ServiceTarget, Stream
from proxylab.scenario.words import Frontend, Program

Sent = TypeVar("Sent", bound=Probe | Stream)

_DIALLED_FRONTENDS: Final = (
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
            raise UnresolvableError(f"to.via: {via} cannot be dialled; use {', '.join(_DIALLED_FRONTENDS)}")


def service_port(service: Service, wanted: str | int | None, asked: Transport | None) -> ServicePort:
    """The Service's port by name or number, or its only one. If two differ only in protocol, ``asked`` decides."""
    fitting = [port for port in service.ports if wanted in (None, port.name or None, port.port)]
    preferred = [port for port in fitting if asked is not None and port.protocol is asked.served]
    if len(fitting) > 1 and len(preferred) == 1:
        fitting = preferred
    if len(fitting) != 1:
        known = ", ".join(f"{port.name or port.port} ({port.protocol} {port.port})" for port in service.ports) or "none"
        what = "is missing: several ports" if wanted is None else f"{wanted!r} does not name one port"
        meant = next((port for port in service.ports if port.node_port and port.node_port == wanted), None)
        more = f"; {wanted} is the node port of {meant.name or meant.port}: dial that one via nodePort" if meant else ""
        raise UnresolvableError(f"to.port: {what} of Service {service.namespace}/{service.name}; it has: {known}{more}")
    return fitting[0]


def pod_port(
    pod: str, ports: Sequence[ListeningPort], wanted: str | int | None, asked: Transport | None
) -> tuple[int, Transport]:
    """The pod's port by name or number, or its only one.

    A probe may dial a number on which the pod does not listen: a refusal is an outcome too.
    """
    fitting = [port for port in ports if wanted in (None, port.name or None, port.port)]
    fitting = [port for port in fitting if asked is None or port.protocol is asked.served]
    if isinstance(wanted, int):
        return wanted, asked or Transport(fitting[0].protocol if fitting else Protocol.TCP)
    if len(fitting) != 1:
        known = ", ".join(f"{port.name or port.port} ({port.protocol} {port.port})" for port in ports) or "none"
        what = "is missing" if wanted is None else f"{wanted!r} does not name one port"
        raise UnresolvableError(f"to.port: {what}: {pod} does not have exactly one such port; it listens on: {known}")
    return fitting[0].port, Transport(fitting[0].protocol)


Located = TypeVar("Located", bound=PlannedNamespace | PodPlacement)


def find(key: str, name: str, placements: Mapping[str, Located]) -> Located:
    """The node, pod or host of that name.

    Raises:
        UnresolvableError: there is none; the message begins with the key and lists the known names.
    """
    if name not in placements:
        raise UnresolvableError(f"{key}: there is no {name!r}; known: {', '.join(placements) or 'none'}")
    return placements[name]


def namespace_of(placement: PlannedNamespace | PodPlacement) -> str:
    """Its network namespace."""
    return placement.namespace if isinstance(placement, PodPlacement) else placement.name


def with_role(plan: Plan, role: Role) -> dict[str, PlannedNamespace]:
    """The namespaces of one role, by name."""
    return {namespace.name: namespace for namespace in plan.namespaces if namespace.role is role}


def own_address(placement: PlannedNamespace | PodPlacement, family: Family) -> IPAddress:
    """The own address of a node, pod or host in a family: for a node or host, the first one of its uplink.

    Raises:
        UnresolvableError: it has none.
    """
    fitting = [address for address in own_addresses_of(placement) if Family.of(address) is family]
    if not fitting:
        raise UnresolvableError(f"{placement.name} has no {family} address")
    return fitting[0]


def own_addresses_of(placement: PlannedNamespace | PodPlacement) -> tuple[IPAddress, ...]:
    """The own addresses of a node, pod or host: for a node or host, those of its uplink, except IPv6 link-local."""
    if isinstance(placement, PodPlacement):
        return placement.addresses
    own = (address.interface.ip for address in placement.addresses if address.device == UPLINK)
    return tuple(address for address in own if not address.is_link_local)


def frame_mac(
    plan: Plan, sender: tuple[str, str], frame_to: str, placements: Mapping[str, PlannedNamespace | PodPlacement]
) -> str:
    """The destination MAC of frames from the device of ``sender`` (namespace, device); empty without a choice.

    Raises:
        UnresolvableError: the receiver has no device on the sender's link. The message lists the machines that have.
    """
    if not frame_to or ":" in frame_to:
        return frame_to
    placement = placements.get(frame_to)
    wanted = placement.namespace if isinstance(placement, PodPlacement) else frame_to
    there = list(on_segment(plan, *sender))
    for end in there:
        if end.namespace == wanted:
            return end.mac
    known = ", ".join(dict.fromkeys(end.namespace for end in there)) or "none"
    link = f"{sender[0]}/{sender[1]}"
    raise UnresolvableError(f"send.frameTo: {frame_to} is not on the link of {link}; on the link: {known}")


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
