"""Read Kubernetes manifests as the objects of the cluster.

The module owns which kinds a scenario file may hold, how the lab uses each kind, what two Services cannot share, and
on which ports pods listen that declare none.
``proxylab.scenario.validity`` compares the fields of an object, ``proxylab.cluster.allocate`` allocates addresses and
ports.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from ipaddress import ip_network
from typing import Final, Generic, NamedTuple, TypeVar

from msgspec import Struct, field
from msgspec.structs import replace

from proxylab.addresses import IPAddress, without_leading_zeros
from proxylab.cluster.objects import (
    SERVICE_NAME_LABEL,
    EndpointSlice,
    Namespace,
    ObjectKey,
    PodPort,
    Service,
    Unstructured,
)
from proxylab.cluster.workloads import Workload
from proxylab.scenario.controllers import WORKLOADS, WorkloadManifest, check_workload, workload_of
from proxylab.scenario.document import Location, Path, Problems, describe, path_text, shown
from proxylab.scenario.ingresses import HttpRouteManifest, IngressManifest, check_ingress, content_of_ingress
from proxylab.scenario.keys import ignored_keys
from proxylab.scenario.kinds import AnyManifest, definition, is_hook, items_of, kind_of, old_version, unstructured
from proxylab.scenario.network import Network
from proxylab.scenario.nodes import LabNode
from proxylab.scenario.pod_keys import notes_on_pod
from proxylab.scenario.pods import PodGroup
from proxylab.scenario.reading import read
from proxylab.scenario.services import DEFAULT_NAMESPACE, ServiceManifest, service_of
from proxylab.scenario.validity import check_labels, check_service, check_slice
from proxylab.scenario.workloads import (
    EndpointSliceManifest,
    EndpointsManifest,
    NodeManifest,
    PodManifest,
    mirrored_slices,
    node_of_object,
    pod_of_object,
    slice_of,
)

Entry = TypeVar("Entry", PodGroup, LabNode)
Kept = TypeVar("Kept", PodManifest, NodeManifest)
ServiceId = tuple[str, str]
"""Namespace and name."""

_FREE: Final = "choose another, or remove it"
_TO_ADDRESSES: Final = {
    *("spec", "clusterIP", "clusterIPs", "externalIPs", "loadBalancerSourceRanges"),
    *("status", "loadBalancer", "ingress", "ip", "endpoints", "addresses"),
}
"""The keys on the way to the addresses of a Service or EndpointSlice."""


class WorkloadId(NamedTuple):
    """What identifies a workload."""

    namespace: str
    name: str
    kind: str


class ManifestObject(Struct, Generic[Entry], frozen=True):
    """A Pod or Node from a manifest; ``entry`` is its equivalent in the spec, ``None`` if it is not well-formed."""

    entry: Entry | None
    location: Location


class WorkloadObject(Struct, frozen=True):
    """A workload from a manifest, ``None`` if it is not well-formed."""

    workload: Workload | None
    location: Location


class Manifests(Struct):
    """The contents of a file's manifests.

    Attributes:
        services: every Service with a name, ``None`` if it is not well-formed.
        locations: the place of each Service.
        slices: every well-formed EndpointSlice, by namespace and name, with those mirrored from Endpoints.
        slice_spots: the place of each EndpointSlice that is not mirrored.
        sliced: the Services whose slices the author gives.
        pods: the Pods by name.
        nodes: the Nodes by name.
        workloads: every workload with a name, by namespace, name and kind.
        namespaces: the Namespaces by name.
        kept: the objects that the API serves as they are written, by their identity.
        complete: whether the kind of every document is known, so that no Service is missing here.
        ignored: the paths of keys that have no effect, without indexes.
        notes: effects that may surprise the author.
    """

    services: dict[ServiceId, Service | None] = field(default_factory=dict)
    locations: dict[ServiceId, Location] = field(default_factory=dict)
    slices: dict[ServiceId, EndpointSlice] = field(default_factory=dict)
    slice_spots: dict[ServiceId, Location] = field(default_factory=dict)
    sliced: set[ServiceId] = field(default_factory=set)
    pods: dict[str, ManifestObject[PodGroup]] = field(default_factory=dict)
    nodes: dict[str, ManifestObject[LabNode]] = field(default_factory=dict)
    workloads: dict[WorkloadId, WorkloadObject] = field(default_factory=dict)
    namespaces: dict[str, Namespace] = field(default_factory=dict)
    kept: dict[ObjectKey, Unstructured] = field(default_factory=dict)
    complete: bool = True
    ignored: set[str] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)

    def endpoints(self, service: ServiceId) -> int | None:
        """How many ready endpoints the author's slices of a Service have; ``None`` if the lab derives its slices."""
        if service not in self.sliced:
            return None
        return len(
            {
                endpoint.addresses[0]
                for each in self.slices.values()
                if (each.namespace, each.service) == service
                for endpoint in each.endpoints
                if endpoint.ready
            }
        )


def read_manifests(documents: Iterable[Location], network: Network | None, problems: Problems) -> Manifests:
    """Read every manifest of a file.

    The documents are of other kinds than Scenario; ``network`` is ``None`` if it is unknown.
    """
    reader = _ManifestReader(network, problems)
    for document in documents:
        reader.read(document)
    reader.mirror()
    reader.keep()
    return reader.found


def with_leading_zeros(location: Location) -> Iterator[Location]:
    """The places of addresses with leading zeros in a Service or EndpointSlice, as old API servers stored them."""
    for path in _paths_to_zeros(location.value):
        yield Location(location.document, (*location.path, *path))


def _paths_to_zeros(value: object, path: Path = ()) -> Iterator[Path]:
    if isinstance(value, dict):
        for key in value:
            if key in _TO_ADDRESSES:
                yield from _paths_to_zeros(value[key], (*path, key))
    elif isinstance(value, list):
        for index, each in enumerate(value):
            yield from _paths_to_zeros(each, (*path, index))
    elif isinstance(value, str) and without_leading_zeros(value) != value:
        yield path


class _ManifestReader:
    """Reads document after document."""

    def __init__(self, network: Network | None, problems: Problems) -> None:
        self._network = network
        self._problems = problems
        self._seen: dict[ObjectKey, Location] = {}
        self._mirrored: list[EndpointsManifest] = []
        self._kept: list[Location] = []
        self.found = Manifests()

    def read(self, location: Location) -> None:
        """Read the object at ``location``, or the objects of a List."""
        kind = kind_of(location, self._problems)
        if kind != "List":
            self._read_object(kind, location)
            return
        items = location["items"].value
        if not isinstance(items, list):
            self._problems.add(location["items"].spot, f"must be a list, is {describe(items)}")
            self.found.complete = False
            return
        for item in items_of(location):
            self._read_object(kind_of(item, self._problems, inside="List"), item)

    def _read_object(self, kind: str | None, location: Location) -> None:
        readers: Mapping[str, Callable[[Location], None]] = {
            "Service": self._read_service,
            "EndpointSlice": self._read_slice,
            "Endpoints": self._read_endpoints,
            "Namespace": self._read_namespace,
            "Pod": partial(self._keep, PodManifest, pod_of_object, self.found.pods),
            "Node": partial(self._keep, NodeManifest, node_of_object, self.found.nodes),
        }
        name = shown(location["metadata"]["name"].value)
        if kind is None:
            self.found.complete = False
        elif is_hook(location):
            self.found.notes.append(f"no effect: {kind} {name} is a hook, which a cluster has only while helm runs it")
        elif kind in readers:
            readers[kind](location)
        elif kind == "ServiceCIDR":
            self.found.notes.append(f"no effect on proxying: {kind} {name}")
        elif kind in WORKLOADS:
            self._read_workload(kind, location)
        else:
            self._kept.append(location)
        if kind is not None and (note := old_version(kind, location)):
            self.found.notes.append(note)

    def _first(self, kind: str, location: Location) -> tuple[str, str] | None:
        """Namespace and name of an object, unless it has none or appears twice."""
        name = location["metadata"]["name"].value
        namespace = location["metadata"]["namespace"].value or DEFAULT_NAMESPACE
        if not isinstance(name, str) or not isinstance(namespace, str):
            self.found.complete = False
            return None
        first = self._seen.setdefault(ObjectKey(kind, namespace, name), location)
        if first is not location:
            spot = location["metadata"]["name"].spot
            line = first["metadata"]["name"].key.position.line
            what = f"{kind} {namespace}/{name} appears twice, first in line {line}"
            self._problems.add(spot, what, allowed="remove one of the two")
            return None
        return namespace, name

    def _read_service(self, location: Location) -> None:
        problems, found = self._problems, self.found
        manifest = read(ServiceManifest, location, problems)
        service_id = self._first("Service", location)
        if service_id is None:
            return
        found.locations[service_id] = location
        found.services[service_id] = None
        if manifest is not None:
            before = len(problems)
            check_service(manifest, location, self._network, problems)
            if len(problems) == before:
                found.services[service_id] = replace(service_of(manifest), stored=self._stored("Service", location))
            found.ignored.update(ignored_keys(manifest, location.value))
            if manifest.metadata.name[:1].isdigit():
                found.notes.append(f"Service {'/'.join(service_id)}: Kubernetes allows a digit first since 1.36")

    def _read_slice(self, location: Location) -> None:
        manifest = read(EndpointSliceManifest, location, self._problems)
        name = self._first("EndpointSlice", location)
        service = location["metadata"]["labels"][SERVICE_NAME_LABEL].value
        if name is not None and isinstance(service, str):
            self.found.sliced.add((name[0], service))
        if manifest is None or name is None:
            return
        if not service:
            self.found.notes.append(f"no effect: EndpointSlice {'/'.join(name)} has no label {SERVICE_NAME_LABEL}")
        before = len(self._problems)
        check_labels(manifest.metadata.labels, location["metadata"]["labels"], self._problems)
        check_slice(manifest, location, self._problems)
        self.found.ignored.update(ignored_keys(manifest, location.value))
        if len(self._problems) > before:
            return
        made = slice_of(manifest)
        if made is None:
            self.found.notes.append(f"no effect: EndpointSlice {'/'.join(name)} holds host names, not addresses")
        elif service:
            self.found.slices[name] = replace(made, stored=self._stored("EndpointSlice", location))
            self.found.slice_spots[name] = location

    def _stored(self, kind: str, location: Location) -> dict[str, str]:
        """The addresses with leading zeros in an object, as stored, by their usual text."""
        stored: dict[str, str] = {}
        for each in with_leading_zeros(location):
            usual = without_leading_zeros(str(each.value)).strip()
            stored[str(ip_network(usual, strict=False)) if "/" in usual else usual] = str(each.value)
            where = f"{kind} {location['metadata']['name'].value}: {path_text(each.path)}"
            note = f"{where}: proxies take {each.value} for {usual}; today's API server refuses leading zeros"
            self.found.notes.append(note)
        return stored

    def _read_workload(self, kind: str, location: Location) -> None:
        manifest = read(WorkloadManifest, location, self._problems)
        name = self._first(kind, location)
        if name is None:
            return
        workload = None
        if manifest is not None:
            check_workload(manifest, location, self._problems)
            workload = workload_of(manifest, location)
            self._kept.append(location)
            template = location["spec"]["template"]["spec"].value
            self.found.notes.extend(dict.fromkeys(notes_on_pod(f"{kind} {'/'.join(name)}", template)))
        self.found.workloads[WorkloadId(*name, kind)] = WorkloadObject(workload, location)

    def _read_namespace(self, location: Location) -> None:
        manifest = read(AnyManifest, location, self._problems)
        if self._first("Namespace", location) is not None and manifest is not None:
            metadata = manifest.metadata
            self.found.namespaces[metadata.name] = Namespace(name=metadata.name, labels=metadata.labels)

    def _read_endpoints(self, location: Location) -> None:
        manifest = read(EndpointsManifest, location, self._problems)
        if self._first("Endpoints", location) is not None and manifest is not None:
            self._mirrored.append(manifest)

    def mirror(self) -> None:
        """Mirror Endpoints into slices, as the control plane does where a Service has no selector."""
        for manifest in self._mirrored:
            key = (manifest.metadata.namespace, manifest.metadata.name)
            service = self.found.services.get(key)
            if service is None or service.selector:
                reason = "there is no Service of that name" if service is None else "its Service has a selector"
                self.found.notes.append(f"no effect: Endpoints {'/'.join(key)}: {reason}")
                continue
            self.found.notes.append(
                f"the lab mirrors Endpoints {'/'.join(key)} into EndpointSlices, which proxies read"
            )
            self.found.sliced.add(key)
            self.found.slices.update({(each.namespace, each.name): each for each in mirrored_slices(manifest)})

    def keep(self) -> None:
        """Keep the objects without an effect, once all definitions of custom kinds are read."""
        definitions = {found.kind: found for each in self._kept if (found := definition(each)) is not None}
        for location in self._kept:
            content = self._content(location)
            made = None if content is None else unstructured(location, definitions, self._problems)
            if made is not None and self._first(made.key.kind, location) is not None:
                self.found.kept[made.key] = replace(made, content={**made.content, **(content or {})})

    def _content(self, location: Location) -> Mapping[str, object] | None:
        """What the lab puts into the document of an Ingress or HTTPRoute; ``None`` after noting a mistake."""
        problems, before = self._problems, len(self._problems)
        if location["kind"].value == "Ingress":
            ingress = read(IngressManifest, location, problems)
            if ingress is not None:
                self.found.ignored.update(ignored_keys(ingress, location.value))
                check_ingress(ingress, location, problems)
            return None if ingress is None or len(problems) > before else content_of_ingress(ingress)
        if location["kind"].value == "HTTPRoute":
            route = read(HttpRouteManifest, location, problems)
            if route is not None:
                self.found.ignored.update(ignored_keys(route, location.value))
            return None if route is None else {}
        return {}

    def _keep(
        self,
        wanted: type[Kept],
        make: Callable[[Kept, Location], Entry],
        found: dict[str, ManifestObject[Entry]],
        location: Location,
    ) -> None:
        """Keep a Pod or Node as the entry of the spec that is equivalent."""
        kind, named = str(location["kind"].value), location["metadata"]["name"]
        manifest = read(wanted, location, self._problems)
        name = self._first(kind, location)
        if name is None:
            return
        if name[1] in found:
            what = f"another {kind} is called {name[1]}, in another namespace"
            self._problems.add(named.spot, what, allowed="nodes, pods and hosts share one name space")
            return
        found[name[1]] = ManifestObject(None if manifest is None else make(manifest, named), location)
        if manifest is not None:
            check_labels(manifest.metadata.labels, location["metadata"]["labels"], self._problems)
        if kind == "Pod":
            self.found.notes.extend(dict.fromkeys(notes_on_pod(f"Pod {'/'.join(name)}", location["spec"].value)))


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


def implied_ports(manifests: Manifests, namespace: str, labels: Mapping[str, str]) -> Mapping[PodPort, str]:
    """The target ports of the Services that select pods with these labels, each with the Service that sends there.

    Kubernetes does not need ``containerPort``, and neither does a lab: it is information only, unless a Service names
    the port. So pods without any listen on the numeric ``targetPort`` of each Service that selects them.
    """
    found: dict[PodPort, str] = {}
    for (own, name), service in manifests.services.items():
        if service is None or own != namespace or not service.selector:
            continue
        if service.selector.items() <= labels.items():
            for port in (each for each in service.ports if isinstance(each.target_port, int)):
                found.setdefault(PodPort(name="", protocol=port.protocol, port=int(port.target_port)), name)
    return found


def note_on_implied_ports(owner: str, ports: Mapping[PodPort, str]) -> str:
    """What the author may not expect: ``Deployment default/web declares no port: …``."""
    listed = ", ".join(f"{port.protocol} port {port.port} (Service {name})" for port, name in ports.items())
    return f"{owner} declares no port: in the lab it listens where Services send to, {listed}"
