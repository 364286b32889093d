"""What a probe's target names, looked up: the Service, its frontend, an address or a port of it, a port of a pod.

Each look-up raises ``RefusedError`` with the key at fault. ``check`` notes it at the line of that key (``flows``), for
the objects of the file. ``plan.resolve`` looks up the same in a cluster with everything allocated, where commands may
have changed the objects since, and tells it with the probe's place.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Final, TypeVar

from proxylab.addresses import Family, IPAddress, Protocol, Transport
from proxylab.cluster.allocate import needs_health_check
from proxylab.cluster.objects import Service, ServicePort, ServiceType
from proxylab.scenario.document import listed, shown
from proxylab.scenario.keys import RefusedError, refused
from proxylab.scenario.pods import ListeningPort
from proxylab.scenario.probes import PodTarget, ServiceTarget
from proxylab.scenario.words import Frontend

Found = TypeVar("Found")
Port = TypeVar("Port", ServicePort, ListeningPort)

_OTHERS: Final = (Frontend.HEALTH_CHECK_NODE_PORT, Frontend.DNS_NAME, Frontend.INGRESS)
FRONTENDS_OF_PORTS: Final = tuple(each for each in Frontend if each not in _OTHERS)
"""Where proxies serve a Service's ports; the lab knows each address before it sends."""

_EXPOSED: Final = (ServiceType.NODE_PORT, ServiceType.LOAD_BALANCER)


def unknown_name(name: str, kind: str, known: Collection[str], key: str = "") -> RefusedError:
    """The error of a name that no node, pod or host of that kind has."""
    what = f"{shown(name)} is not the name of {kind}"
    return refused(what, key=key, allowed=f"allowed: {listed(known)}", word=name, known=known)


def find_service(services: Mapping[tuple[str, str], Found], target: ServiceTarget) -> Found:
    """What a mapping by namespace and name has of the Service. Raises ``RefusedError``."""
    if target.id in services:
        return services[target.id]
    known = [own if namespace == target.namespace else f"{namespace}/{own}" for namespace, own in services]
    what, allowed = f"there is no Service {target.namespace}/{target.service}", f"declared: {listed(known)}"
    raise refused(what, key="to.service", allowed=allowed, word=target.service, known=known)


def require_frontend(service: Service, via: Frontend, *, balanced: bool) -> None:
    """Refuse a frontend that the Service does not have; ``balanced`` says whether load balancers give it addresses.

    Raises:
        RefusedError: with the reason.
    """
    reason = _why_no_frontend(service, via, balanced=balanced)
    if reason:
        what = f"Service {service.namespace}/{service.name} {reason}"
        raise refused(what, key="to.via", allowed="dial a frontend that it has, or add this one")


def _why_no_frontend(service: Service, via: Frontend, *, balanced: bool) -> str:
    if service.type is ServiceType.EXTERNAL_NAME and via is not Frontend.DNS_NAME:
        return f"is an ExternalName: it has no {via}"
    match via:
        case Frontend.CLUSTER_IP if service.headless:
            return "is headless: it has no clusterIP"
        case Frontend.NODE_PORT if service.type not in _EXPOSED:
            return f"is of type {service.type}: it has no nodePort"
        case Frontend.EXTERNAL_IP if not service.external_ips:
            return "has no externalIPs"
        case Frontend.LOAD_BALANCER_IP if service.type is not ServiceType.LOAD_BALANCER:
            return f"is of type {service.type}: it has no load balancer"
        case Frontend.LOAD_BALANCER_IP if not (balanced or frontend_addresses(service, via)):
            return "has no address in status.loadBalancer, and the scenario has no loadBalancers to give it one"
        case Frontend.HEALTH_CHECK_NODE_PORT if not needs_health_check(service):
            return "has no health-check node port: only a LoadBalancer with externalTrafficPolicy Local has one"
    return ""


def frontend_addresses(service: Service, via: Frontend) -> tuple[IPAddress, ...]:
    """The addresses of a frontend; none where it has no address of its own, or none yet."""
    return addresses_by_frontend(service).get(via, ())


def addresses_by_frontend(service: Service, *, claimed: bool = False) -> dict[Frontend, tuple[IPAddress, ...]]:
    """The addresses that are the Service's own. A new frontend with addresses is a row here.

    ``claimed`` leaves out those that no proxy claims: a load balancer in mode Proxy (KEP-1860) rewrites the
    destination, so that its packets arrive at node ports. One with a hostname shows no address to claim.
    """
    ingress = (each for each in service.load_balancer_ingress if each.is_claimed or not claimed)
    return {
        Frontend.CLUSTER_IP: service.cluster_ips,
        Frontend.EXTERNAL_IP: service.external_ips,
        Frontend.LOAD_BALANCER_IP: tuple(dict.fromkeys(address for each in ingress for address in each.addresses)),
    }


def require_address(service: Service, target: ServiceTarget, addresses: Sequence[IPAddress]) -> None:
    """Refuse the address that a target names where the frontend does not have it. Raises ``RefusedError``."""
    if target.address is not None and target.address not in addresses:
        what = f"Service {service.name} has no {target.via} {target.address}"
        raise refused(what, key="to.address", allowed=f"allowed: {listed(map(str, addresses))}")


def service_port(service: Service, wanted: str | int | None, asked: Transport | None) -> ServicePort:
    """The Service's port by name or number, or its only one. If two differ only in protocol, ``asked`` decides.

    Raises:
        RefusedError: there is none, or there are several.
    """
    return _port(f"Service {service.name}", service.ports, wanted, asked)


def pod_port(
    pod: str, ports: Sequence[ListeningPort], wanted: str | int | None, asked: Transport | None
) -> tuple[int, Transport]:
    """The pod's port by name or number, or its only one. Raises ``RefusedError``.

    A probe may dial a number on which the pod does not listen: a refusal is an outcome too.
    """
    if isinstance(wanted, int) and not any(wanted == port.port and _speaks(port, asked) for port in ports):
        return wanted, asked or Transport(Protocol.TCP)
    port = _port(pod, ports, wanted, asked)
    return port.port, asked or Transport(port.protocol)


def host_port(pod: str, ports: Sequence[ListeningPort], target: PodTarget, asked: Transport | None) -> ListeningPort:
    """The pod's port with a host port, by the name or number of either, or the only one. Raises ``RefusedError``."""
    wanted = target.port
    led = [port for port in ports if port.host_port is not None and wanted in (None, port.name or None, port.port)]
    led = led or [port for port in ports if port.host_port is not None and wanted == port.host_port]
    if not led:
        which = "no port" if wanted is None else f"no port {shown(wanted)}"
        what = f"{which} of {pod} has a hostPort"
        raise refused(what, key="to.via", allowed="give a port of it a hostPort")
    port = _port(pod, led, None, asked)
    if port.host_ip is not None and target.family not in (None, Family.of(port.host_ip)):
        what = f"the hostIP {port.host_ip} of {pod} is {Family.of(port.host_ip)}"
        raise refused(what, key="to.family", allowed="dial its family, or leave hostIP out")
    return port


def _speaks(port: ServicePort | ListeningPort, asked: Transport | None) -> bool:
    return asked is None or port.protocol is asked.served


def _port(owner: str, ports: Sequence[Port], wanted: str | int | None, asked: Transport | None) -> Port:
    called = [port for port in ports if wanted in (None, port.name or None, port.port)]
    fitting = [port for port in called if _speaks(port, asked)]
    allowed = f"declared: {listed(f'{port.name or port.port} ({port.port}/{port.protocol})' for port in ports)}"
    if wanted is None and len(called) != 1 and len(fitting) != 1:
        raise refused(f"is missing: {owner} does not have exactly one port", key="to.port", allowed=allowed)
    if not called:
        meant = next((port for port in ports if isinstance(port, ServicePort) and port.node_port == wanted), None)
        if meant is not None:
            allowed = f"it is the node port of {meant.name or meant.port}: dial that one via nodePort"
        names = [port.name for port in ports if port.name]
        what = f"{owner} has no port {shown(wanted)}"
        raise refused(what, key="to.port", allowed=allowed, word=str(wanted), known=names)
    if not fitting:
        protocols = " and ".join(port.protocol for port in called)
        what = f"{owner} has that port over {protocols}, not {asked and asked.served}"
        raise refused(what, key="send.protocol", allowed=f"send over {protocols}")
    if len(fitting) > 1:
        what = f"{owner} has port {wanted} over several protocols"
        raise refused(what, key="to.port", allowed="use the port's name, or set send.protocol")
    return fitting[0]
