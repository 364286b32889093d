"""Read EndpointSlices, Endpoints, Pods and Nodes as objects of the cluster and the scenario.

The module owns the API server's defaults and checks for them, and mirrors Endpoints into EndpointSlices.
"""

from collections.abc import Iterable, Iterator, Sequence
from ipaddress import ip_address

from proxylab.addresses import Family, IPAddress, Protocol
from proxylab.cluster.objects import SERVICE_NAME_LABEL, Endpoint, EndpointPort, EndpointSlice
from proxylab.scenario.document import Location
from proxylab.scenario.model import ListeningPort, Node, PodGroup
from proxylab.scenario.problems import Problems, shown
from proxylab.scenario.schema.workload import (
    AddressType,
    EndpointPortShape,
    EndpointShape,
    EndpointSliceShape,
    EndpointsShape,
    NodeObjectShape,
    PodObjectShape,
    PodStatusShape,
)
from proxylab.scenario.syntax import is_address, label_key_fault, label_value_fault

__all__ = ["check_labels", "check_slice", "mirrored_slices", "node_of_object", "pod_of_object", "slice_of"]

_DEFAULT_NAMESPACE = "default"
_MOST_ENDPOINTS = 1000
_MOST_PORTS = 100


def check_slice(shape: EndpointSliceShape, location: Location, problems: Problems) -> None:
    """Note everything that the API server refuses (``ValidateEndpointSlice`` in pkg/apis/discovery/validation)."""
    endpoints, ports = shape.endpoints or [], shape.ports or []
    if len(endpoints) > _MOST_ENDPOINTS:
        what = f"{len(endpoints)} endpoints are too many for a slice"
        problems.add(location["endpoints"].key, what, allowed=f"allowed: {_MOST_ENDPOINTS}")
    if len(ports) > _MOST_PORTS:
        problems.add(location["ports"].key, f"{len(ports)} ports are too many", allowed=f"allowed: {_MOST_PORTS}")
    for index, endpoint in enumerate(endpoints):
        for number, address in enumerate(endpoint.addresses):
            _check_address(shape.address_type, address, location["endpoints"][index]["addresses"][number], problems)
    names: set[str] = set()
    for index, port in enumerate(ports):
        if (port.name or "") in names:
            what = f"{shown(port.name or '')} appears twice"
            problems.add(location["ports"][index].spot, what, allowed="the names of ports are unique")
        names.add(port.name or "")


def _check_address(kind: AddressType, text: str, location: Location, problems: Problems) -> None:
    if kind is AddressType.FQDN:
        return
    if not is_address(text) or Family.of(ip_address(text)) != kind.value:
        problems.add(
            location.spot, f"{shown(text)} is not an {kind} address", allowed="write one, or another addressType"
        )
        return
    address = ip_address(text)
    if address.is_loopback or address.is_link_local or address.is_unspecified or address.is_multicast:
        problems.add(
            location.spot,
            f"{address} may not be an endpoint: it is valid on one machine or segment only",
            allowed="choose another",
        )


def slice_of(shape: EndpointSliceShape) -> EndpointSlice | None:
    """The slice with the API server's defaults; ``None`` for host names, which no proxy uses."""
    if shape.address_type is AddressType.FQDN:
        return None
    labels = shape.metadata.labels or {}
    return EndpointSlice(
        namespace=shape.metadata.namespace or _DEFAULT_NAMESPACE,
        name=shape.metadata.name,
        service=labels.get(SERVICE_NAME_LABEL, ""),
        labels=labels,
        address_type=Family(shape.address_type.value),
        ports=_ports(shape.ports or []),
        endpoints=tuple(map(_endpoint, shape.endpoints or [])),
    )


def _ports(shapes: Iterable[EndpointPortShape]) -> tuple[EndpointPort, ...]:
    """The ports with a number: a port without one means every port, which no proxy can program."""
    return tuple(
        EndpointPort(name=shape.name or "", protocol=shape.protocol or Protocol.TCP, port=shape.port)
        for shape in shapes
        if shape.port is not None
    )


def _endpoint(shape: EndpointShape) -> Endpoint:
    conditions, hints, target = shape.conditions, shape.hints, shape.target_ref
    ready = conditions is None or conditions.ready is not False
    serving = conditions.serving if conditions else None
    return Endpoint(
        addresses=tuple(map(ip_address, shape.addresses)),
        ready=ready,
        serving=ready if serving is None else serving,
        terminating=bool(conditions and conditions.terminating),
        node_name=shape.node_name or "",
        zone=shape.zone or "",
        hostname=shape.hostname or "",
        for_zones=tuple(each.name for each in (hints.for_zones if hints else None) or []),
        for_nodes=tuple(each.name for each in (hints.for_nodes if hints else None) or []),
        target=(target.name or "") if target and target.kind == "Pod" else "",
    )


def mirrored_slices(shape: EndpointsShape) -> Iterator[EndpointSlice]:
    """The slices that the mirroring controller makes from Endpoints: one for each subset and family."""
    namespace, name = shape.metadata.namespace or _DEFAULT_NAMESPACE, shape.metadata.name
    for number, subset in enumerate(shape.subsets or []):
        entries = [(True, each) for each in subset.addresses or []]
        entries += [(False, each) for each in subset.not_ready_addresses or []]
        for family in Family:
            endpoints = tuple(
                Endpoint(
                    addresses=(each.ip,),
                    ready=ready,
                    serving=ready,
                    node_name=each.node_name or "",
                    hostname=each.hostname or "",
                    target=(each.target_ref.name or "") if each.target_ref and each.target_ref.kind == "Pod" else "",
                )
                for ready, each in entries
                if Family.of(each.ip) is family
            )
            if endpoints:
                yield EndpointSlice(
                    namespace=namespace,
                    name=f"{name}-{family.lower()}-{number}",
                    service=name,
                    labels={SERVICE_NAME_LABEL: name},
                    address_type=family,
                    ports=_ports(subset.ports or []),
                    endpoints=endpoints,
                )


def check_labels(labels: dict[str, str], location: Location, problems: Problems) -> None:
    """Note labels that the API server refuses."""
    for key, value in labels.items():
        if fault := label_key_fault(key):
            problems.add(location[key].key, f"{shown(key)}: {fault}")
        if fault := label_value_fault(value):
            problems.add(location[key].spot, f"{shown(value)}: {fault}")


def pod_of_object(shape: PodObjectShape, name: Location) -> PodGroup:
    """The entry of ``spec.pods`` that is equivalent to a Pod with its name at that place."""
    spec, status, metadata = shape.spec, shape.status, shape.metadata
    containers = (spec.containers if spec else None) or []
    conditions = {each.type: each.status for each in (status.conditions if status else None) or []}
    ports = tuple(
        ListeningPort(name=port.name or "", port=port.container_port, protocol=port.protocol or Protocol.TCP)
        for container in containers
        for port in container.ports or []
    )
    return PodGroup(
        name=metadata.name,
        nodes=(spec.node_name,) if spec and spec.node_name else (),
        namespace=metadata.namespace or _DEFAULT_NAMESPACE,
        labels=metadata.labels or {},
        ports=ports,
        ready=conditions.get("Ready", "True") == "True",
        terminating=metadata.deletion_timestamp is not None,
        host_network=bool(spec and spec.host_network),
        # Kubernetes gives an endpoint a DNS name only if the pod has both.
        hostname=(spec and spec.hostname) or "",
        subdomain=(spec and spec.hostname and spec.subdomain) or "",
        addresses=tuple(_pod_addresses(status)) if not (spec and spec.host_network) else (),
        position=name.key.position,
    )


def _pod_addresses(status: PodStatusShape | None) -> Sequence[IPAddress]:
    if status is None:
        return ()
    return [each.ip for each in status.pod_ips or []] or ([status.pod_ip] if status.pod_ip else [])


def node_of_object(shape: NodeObjectShape, name: Location) -> Node:
    """The entry of ``spec.nodes`` that is equivalent to a Node with its name at that place."""
    addresses = (shape.status.addresses if shape.status else None) or []
    return Node(
        name=shape.metadata.name,
        labels=shape.metadata.labels or {},
        taints=tuple(dict.fromkeys(each.key for each in (shape.spec.taints if shape.spec else None) or [])),
        terminating=shape.metadata.deletion_timestamp is not None,
        internal_ips=tuple(
            ip_address(each.address) for each in addresses if each.type == "InternalIP" and is_address(each.address)
        ),
        position=name.key.position,
    )
