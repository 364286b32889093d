"""Checks between Services, and the look-up of Services, their ports and their ready pods."""

from collections.abc import Mapping

from msgspec import Struct

from proxylab.addresses import IPAddress, Protocol, Transport
from proxylab.cluster.objects import Service, ServicePort
from proxylab.scenario.manifests import DEFAULT_NAMESPACE, Manifests, ServiceId
from proxylab.scenario.model import PodGroup
from proxylab.scenario.parts import Parts
from proxylab.scenario.problems import Problems

__all__ = ["PortChoice", "check_services", "choose_port", "ready_pods", "service_id", "single_pods", "transport_of"]

_FREE = "choose another, or remove it"


def check_services(manifests: Manifests, problems: Problems) -> None:
    """Note addresses and node ports that two Services have."""
    addresses: dict[IPAddress, ServiceId] = {}
    node_ports: dict[int, ServiceId] = {}
    for service_id_, service in manifests.services.items():
        if service is None:
            continue
        spec = manifests.locations[service_id_]["spec"]
        listed_ips = spec["clusterIPs"].exists
        for index, address in enumerate(service.cluster_ips):
            owner = addresses.setdefault(address, service_id_)
            if owner != service_id_:
                spot = (spec["clusterIPs"][index] if listed_ips else spec["clusterIP"]).spot
                problems.add(spot, f"{address} is already allocated to Service {'/'.join(owner)}", allowed=_FREE)
        asked = [(spec["ports"][index]["nodePort"], port.node_port) for index, port in enumerate(service.ports)]
        for location, number in [*asked, (spec["healthCheckNodePort"], service.health_check_node_port)]:
            owner = node_ports.setdefault(number, service_id_) if number else service_id_
            if owner != service_id_:
                problems.add(
                    location.spot, f"{number} is already allocated to Service {'/'.join(owner)}", allowed=_FREE
                )


def service_id(written: str, namespace: str | None) -> ServiceId:
    """The Service that ``to.service`` and ``to.namespace`` name."""
    before, slash, name = written.partition("/")
    return (before, name) if slash else (namespace or DEFAULT_NAMESPACE, written)


def single_pods(parts: Parts) -> dict[str, PodGroup]:
    """The entry of every single pod, by the pod's name."""
    return {each: pod for pod in parts.pods.values() if pod is not None for each in pod.pod_names}


def ready_pods(service: Service, pods: Mapping[str, PodGroup]) -> int:
    """How many of the pods are ready endpoints of the Service."""
    if not service.selector:
        return 0
    wanted = service.selector.items()
    return sum(
        pod.present
        and pod.namespace == service.namespace
        and wanted <= pod.labels.items()
        and ((pod.ready and not pod.terminating) or service.publish_not_ready_addresses)
        for pod in pods.values()
    )


def transport_of(sent: Transport | None) -> Protocol | None:
    """The port protocol of ``send.protocol``, if it has one."""
    return None if sent is None else sent.served


class PortChoice(Struct, frozen=True):
    """The ports of a Service that match a probe; a correct probe matches one.

    ``called`` match the name or number, ``fitting`` the protocol too.
    """

    called: tuple[ServicePort, ...]
    fitting: tuple[ServicePort, ...]


def choose_port(service: Service, written: str | int | None, protocol: Protocol | None) -> PortChoice:
    """The ports that ``to.port`` and ``send.protocol`` leave to choose from."""
    called = tuple(port for port in service.ports if written is None or written in (port.name or None, port.port))
    return PortChoice(called, tuple(port for port in called if protocol in (None, port.protocol)))
