"""Kubernetes manifests become the objects of the cluster.

Owns: which kinds of object a scenario file may hold, lists of them, and the API server's defaults.
Must not: allocate (``lab.cluster.allocate`` does), or weigh fields against each other (``lab.scenario.validity`` does).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from ipaddress import ip_address

from lab.cluster.objects import (
    LoadBalancerIngress,
    Service,
    ServicePort,
    ServiceType,
    TrafficPolicy,
)
from lab.ip import IPNetwork, Protocol
from lab.scenario.document import Place
from lab.scenario.problems import Problems, describe, shown
from lab.scenario.schema.base import ignored_keys
from lab.scenario.schema.service import (
    FamilyPolicy,
    IngressShape,
    ServicePortShape,
    ServiceShape,
    ServiceSpecShape,
    SessionAffinity,
)
from lab.scenario.validation import validated
from lab.scenario.validity import check_service

__all__ = ["Manifests", "ServiceId", "read_manifests"]

ServiceId = tuple[str, str]
"""Namespace and name."""

DEFAULT_NAMESPACE = "default"
DEFAULT_AFFINITY_TIMEOUT = 10800
"""``sessionAffinityConfig.clientIP.timeoutSeconds`` of core/v1, in seconds: three hours."""

_KINDS = {"Service": "v1", "List": "v1"}
_LATER = {
    "EndpointSlice": "discovery.k8s.io/v1",
    "Endpoints": "v1",
    "Pod": "v1",
    "Node": "v1",
    "Ingress": "networking.k8s.io/v1",
    "ServiceCIDR": "networking.k8s.io/v1",
}


@dataclass(frozen=True, slots=True)
class Manifests:
    """What the manifests of a file hold.

    Attributes:
        services: every Service that is named, ``None`` where it is not well-formed.
        places: where each of them stands.
        complete: whether every document could be told to be a Service or not.
        ignored: the paths that are there and have no effect, without indexes.
    """

    services: Mapping[ServiceId, Service | None]
    places: Mapping[ServiceId, Place]
    complete: bool
    ignored: frozenset[str]


def read_manifests(documents: Iterable[Place], service_cidr: IPNetwork | None, problems: Problems) -> Manifests:
    """Read every manifest of a file.

    Args:
        documents: the documents that are no Scenario.
        service_cidr: where cluster IPs must come from; ``None`` where it is not known.
        problems: takes what is wrong.
    """
    reader = _Reader(service_cidr, problems)
    for document in documents:
        reader.read(document)
    return Manifests(reader.services, reader.places, reader.complete, frozenset(reader.ignored))


class _Reader:
    """Reads document after document; its attributes are those of ``Manifests``."""

    def __init__(self, service_cidr: IPNetwork | None, problems: Problems) -> None:
        self._service_cidr = service_cidr
        self._problems = problems
        self.services: dict[ServiceId, Service | None] = {}
        self.places: dict[ServiceId, Place] = {}
        self.complete = True
        self.ignored: set[str] = set()

    def read(self, place: Place) -> None:
        """Read the object at ``place``: a Service, or a List of Services."""
        kind = _kind(place, self._problems)
        if kind == "Service":
            self._read_service(place)
            return
        items = place["items"].value
        if kind != "List":
            self.complete = False
        elif not isinstance(items, list):
            self._problems.add(place["items"].spot, f"must be a list, is {describe(items)}")
            self.complete = False
        else:
            for index in range(len(items)):
                self._read_item(place["items"][index])

    def _read_item(self, place: Place) -> None:
        if _kind(place, self._problems, inside="List") == "Service":
            self._read_service(place)
        else:
            self.complete = False

    def _read_service(self, place: Place) -> None:
        problems = self._problems
        shape = validated(ServiceShape, place, problems)
        service_id = _service_id(place)
        if service_id is None:
            self.complete = False
            return
        if first := self.places.get(service_id):
            what = f"Service {'/'.join(service_id)} stands twice"
            line = first["metadata"]["name"].key.position.line
            problems.add(place["metadata"]["name"].spot, f"{what}; the first is in line {line}")
            return
        self.places[service_id] = place
        self.services[service_id] = None
        if shape is not None:
            before = len(problems)
            check_service(shape, place, self._service_cidr, problems)
            if len(problems) == before:
                self.services[service_id] = _service(shape)
            self.ignored.update(ignored_keys(shape))


def _kind(place: Place, problems: Problems, inside: str = "") -> str | None:
    """The kind of the object at ``place`` if it can be read, else ``None`` with a problem noted."""
    value = place.value
    if not isinstance(value, dict):
        problems.add(place.spot, f"must be a Kubernetes object, is {describe(value)}")
        return None
    kind, version = value.get("kind"), value.get("apiVersion")
    if not isinstance(kind, str) or not isinstance(version, str):
        absent = "kind" if not isinstance(kind, str) else "apiVersion"
        problems.add(place[absent].spot, "is missing or no text", allowed="every object has an apiVersion and a kind")
        return None
    spot = place["kind"].spot
    allowed = "allowed: Service" if inside else "allowed: Scenario, Service, List, KubeProxyConfiguration"
    if kind in _LATER:
        problems.add(spot, f"not yet: this version cannot use objects of kind {kind}", allowed=allowed)
    elif kind == inside:
        problems.add(spot, f"a {kind} stands inside a {kind}", allowed=allowed)
    elif kind not in _KINDS:
        known = ["Scenario", "KubeProxyConfiguration", *_KINDS, *_LATER]
        problems.add(spot, f"the kind {shown(kind)} is unknown", allowed=allowed, word=kind, known=known)
    elif version != _KINDS[kind]:
        problems.add(place["apiVersion"].spot, f"{shown(version)} has no {kind}", allowed=f"allowed: {_KINDS[kind]}")
    else:
        return kind
    return None


def _service_id(place: Place) -> ServiceId | None:
    """The namespace and name of a Service, be the rest of it well-formed or not."""
    name = place["metadata"]["name"].value
    namespace = place["metadata"]["namespace"].value or DEFAULT_NAMESPACE
    return (namespace, name) if isinstance(name, str) and isinstance(namespace, str) else None


def _service(shape: ServiceShape) -> Service:
    metadata, spec = shape.metadata, shape.spec or ServiceSpecShape()
    balancer = shape.status.load_balancer if shape.status else None
    addresses = spec.cluster_ips or [spec.cluster_ip or ""]
    return Service(
        namespace=metadata.namespace or DEFAULT_NAMESPACE,
        name=metadata.name,
        labels=metadata.labels or {},
        annotations=metadata.annotations or {},
        type=spec.type or ServiceType.CLUSTER_IP,
        selector=spec.selector or {},
        ports=tuple(map(_port, spec.ports or [])),
        headless="None" in addresses,
        cluster_ips=tuple(ip_address(address) for address in addresses if address not in ("", "None")),
        ip_families=tuple(spec.ip_families or []),
        ip_family_policy=(spec.ip_family_policy or FamilyPolicy.SINGLE).value,
        external_ips=tuple(spec.external_ips or []),
        load_balancer_ingress=tuple(map(_ingress, (balancer.ingress if balancer else None) or [])),
        source_ranges=tuple(spec.load_balancer_source_ranges or []),
        internal_traffic_policy=spec.internal_traffic_policy or TrafficPolicy.CLUSTER,
        external_traffic_policy=spec.external_traffic_policy or TrafficPolicy.CLUSTER,
        health_check_node_port=spec.health_check_node_port or 0,
        affinity_timeout=_affinity_timeout(spec),
        publish_not_ready_addresses=spec.publish_not_ready_addresses or False,
        traffic_distribution=spec.traffic_distribution.value if spec.traffic_distribution else "",
        allocate_node_ports=spec.allocate_load_balancer_node_ports is not False,
        external_name=spec.external_name or "",
    )


def _port(shape: ServicePortShape) -> ServicePort:
    return ServicePort(
        name=shape.name or "",
        protocol=shape.protocol or Protocol.TCP,
        port=shape.port,
        target_port=shape.target_port or shape.port,
        node_port=shape.node_port or 0,
    )


def _ingress(shape: IngressShape) -> LoadBalancerIngress:
    return LoadBalancerIngress(
        ip=shape.ip, hostname=shape.hostname or "", ip_mode=shape.ip_mode.value if shape.ip_mode else "VIP"
    )


def _affinity_timeout(spec: ServiceSpecShape) -> int | None:
    if spec.session_affinity is not SessionAffinity.CLIENT_IP:
        return None
    config = spec.session_affinity_config
    timeout = config.client_ip.timeout_seconds if config and config.client_ip else None
    return DEFAULT_AFFINITY_TIMEOUT if timeout is None else timeout
