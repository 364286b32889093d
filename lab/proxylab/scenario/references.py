"""``Subject``: the probe under check with what it refers to; checks between Services, and the look-up of pods."""

from collections.abc import Mapping

from msgspec import Struct

from proxylab.addresses import IPAddress, Transport
from proxylab.cluster.objects import Service
from proxylab.scenario.document import Location
from proxylab.scenario.inventory import Inventory
from proxylab.scenario.manifests import DEFAULT_NAMESPACE, Manifests, ServiceId
from proxylab.scenario.model import Frontend, PodGroup, ServiceTarget
from proxylab.scenario.parts import Parts, ProbeParts
from proxylab.scenario.problems import Problems

__all__ = ["Subject", "check_services", "ready_pods", "service_id", "single_pods"]

_FREE = "choose another, or remove it"


class Subject(Struct, frozen=True):
    """One probe, and its scenario at the moment when the lab sends the probe.

    ``pods`` are the single pods by name; ``None`` if a mistake in the file hides them.
    """

    probe: ProbeParts
    location: Location
    parts: Parts
    inventory: Inventory
    manifests: Manifests
    pods: Mapping[str, PodGroup] | None
    problems: Problems

    @property
    def echo(self) -> bool:
        """Whether the probe sends echo requests."""
        return self.probe.send is not None and self.probe.send.protocol is Transport.ICMP

    @property
    def service(self) -> Service | None:
        """The Service that the probe dials; ``None`` if it dials none, or if a mistake hides the Service."""
        target = self.probe.target
        return self.manifests.services.get(target.id) if isinstance(target, ServiceTarget) else None

    @property
    def names_pods(self) -> bool:
        """Whether the probe dials the name of a headless Service, which resolves to the pods' own addresses."""
        target, service = self.probe.target, self.service
        by_name = isinstance(target, ServiceTarget) and target.via is Frontend.DNS_NAME
        return by_name and service is not None and service.headless


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
    """The Service of that name, or of ``namespace/name``."""
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
