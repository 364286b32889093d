"""Look up the machines that a probe names, their addresses, and the receivers of frames.

``scenario.targets`` looks up Services, frontends and ports. A probe ``via: ingress`` dials a frontend of the
controller's Service.
"""

from collections.abc import Iterable, Mapping
from typing import Final, TypeVar

from msgspec.structs import replace

from proxylab.addresses import Family, IPAddress
from proxylab.cluster.objects import Service, ServiceType
from proxylab.plan.forwarding import UnreachableError, on_segment
from proxylab.plan.model import Plan, PlannedNamespace, PodPlacement, Role
from proxylab.plan.resolved import HttpRequest
from proxylab.scenario.keys import refused
from proxylab.scenario.network import UPLINK
from proxylab.scenario.pods import PodGroup
from proxylab.scenario.probes import Probe, ServiceTarget, Stream
from proxylab.scenario.targets import unknown_name
from proxylab.scenario.words import Frontend, Program

Sent = TypeVar("Sent", bound=Probe | Stream)

_NAMED_BY: Final = {"from": "a sender", "to.pod": "a pod", "to.host": "an outside host", "to.node": "a node"}

Located = TypeVar("Located", bound=PlannedNamespace | PodPlacement)


def find(key: str, name: str, placements: Mapping[str, Located]) -> Located:
    """The node, pod or host of that name, which the author gives by that key. Raises ``RefusedError``."""
    if name not in placements:
        raise unknown_name(name, _NAMED_BY[key], placements, key)
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
        UnreachableError: it has none.
    """
    fitting = [address for address in own_addresses_of(placement) if Family.of(address) is family]
    if not fitting:
        raise UnreachableError(f"{placement.name} has no {family} address")
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
        RefusedError: the receiver has no device on the sender's link. The message lists the machines that have.
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
    raise refused(f"{frame_to} is not on the link of {link}", key="send.frameTo", allowed=f"on the link: {known}")


def request_of(probe: Probe | Stream) -> HttpRequest | None:
    """The request of a probe via an Ingress; ``None`` for any other."""
    target = probe.target
    if not isinstance(target, ServiceTarget) or target.via is not Frontend.INGRESS:
        return None
    return HttpRequest(host=target.host, path=target.path, tls=target.tls)


def through_ingress(probe: Sent, services: Iterable[Service], groups: Iterable[PodGroup]) -> Sent:
    """A probe via an Ingress as one that dials the controller's Service; any other as it is.

    Raises:
        RefusedError: no Service leads to a controller, or it has no port for the request.
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
    raise refused("no Service selects a pod with program: nginx, which would answer", key="to.via", allowed="add one")


def _frontend(service: Service) -> Frontend:
    if any(each.addresses for each in service.load_balancer_ingress):
        return Frontend.LOAD_BALANCER_IP
    exposed = service.type in (ServiceType.NODE_PORT, ServiceType.LOAD_BALANCER)
    return Frontend.NODE_PORT if exposed else Frontend.CLUSTER_IP


def _port(service: Service, *, tls: bool) -> int:
    name, number = ("https", 443) if tls else ("http", 80)
    for port in service.ports:
        if port.name == name or port.port == number:
            return port.port
    what = f"Service {service.namespace}/{service.name} of the controller has no port {name} ({number})"
    raise refused(what, key="to.tls", allowed="add it")
