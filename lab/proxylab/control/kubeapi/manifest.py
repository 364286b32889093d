"""Turns a typed object of the cluster into the document that kubectl and client-go read, and into JSON.

Keys have the names of the API reference (https://kubernetes.io/docs/reference/kubernetes-api/); absent keys have their
defaults.
"""

import uuid
from collections import OrderedDict
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, Final

from msgspec.json import encode

from proxylab.addresses import IPAddress, IPNetwork
from proxylab.cluster.objects import (
    SERVICE_NAME_LABEL,
    SPEC_KEYS,
    ClusterEvent,
    Endpoint,
    EndpointPort,
    Endpoints,
    EndpointSlice,
    KubeObject,
    Namespace,
    Node,
    Pod,
    Service,
    ServiceCIDR,
    ServicePort,
    ServiceType,
    Taint,
    Unstructured,
)

Document = dict[str, Any]

NAMESPACE_NAME_LABEL: Final = "kubernetes.io/metadata.name"

_REMEMBERED: Final = 20_000
"""Documents and lines: enough for 5,000 Services with their slices, twice."""

_IDENTITIES: Final = uuid.UUID("8f2c1d3a-52a4-4d0b-9e38-6f0d9b3f6f10")
"""The UUID namespace of uids: an object of the same key has the same uid in every run."""


def manifest(thing: KubeObject, revision: int, since: str) -> Document:
    """The document of an object. ``since`` is its ``creationTimestamp``, in the format of RFC 3339."""
    writer = _WRITERS[type(thing)]
    document: Document = writer(thing)
    metadata: Document = {"name": thing.name}
    if thing.key.namespace:
        metadata["namespace"] = thing.key.namespace
    if labels := labels_of(thing):
        metadata["labels"] = dict(labels)
    if isinstance(thing, Service | Unstructured) and thing.annotations:
        metadata["annotations"] = dict(thing.annotations)
    metadata |= {
        "uid": str(uuid.uuid5(_IDENTITIES, str(thing.key))),
        "resourceVersion": str(revision),
        "creationTimestamp": since,
    }
    if (isinstance(thing, Pod) and thing.terminating) or (isinstance(thing, Node) and thing.deleting):
        metadata |= {"deletionTimestamp": since, "deletionGracePeriodSeconds": 30}
    return {**document, "metadata": metadata}


def labels_of(thing: KubeObject) -> Mapping[str, str]:
    """The labels of an object for documents and selectors, with those that Kubernetes sets by itself."""
    match thing:
        case EndpointSlice():
            return {**thing.labels, SERVICE_NAME_LABEL: thing.service}
        case Node():
            return thing.all_labels
        case Namespace():
            return {NAMESPACE_NAME_LABEL: thing.name, **thing.labels}
        case ServiceCIDR() | ClusterEvent() | Endpoints():
            return {}
        case _:
            return thing.labels


def _text(thing: Service | EndpointSlice, address: IPAddress | IPNetwork) -> str:
    return thing.stored.get(str(address), str(address))


def _service(service: Service) -> Document:
    spec: Document = {
        each.key: _written(service, value)
        for name, each in SPEC_KEYS.items()
        if each.is_written(service, value := getattr(service, name))
    }
    spec |= {
        "ports": [_service_port(port) for port in service.ports],
        "sessionAffinity": "None" if service.affinity_timeout is None else "ClientIP",
    }
    if service.affinity_timeout is not None:
        spec["sessionAffinityConfig"] = {"clientIP": {"timeoutSeconds": service.affinity_timeout}}
    if service.type is not ServiceType.EXTERNAL_NAME:
        addresses = ["None"] if service.headless else [_text(service, address) for address in service.cluster_ips]
        spec |= {"clusterIP": addresses[0] if addresses else "", "clusterIPs": addresses}
    ingress = [
        ({"ip": _text(service, entry.ip), "ipMode": entry.ip_mode} if entry.ip is not None else {})
        | ({"hostname": entry.hostname} if entry.hostname else {})
        for entry in service.load_balancer_ingress
    ]
    status: Document = {"loadBalancer": {"ingress": ingress} if ingress else {}}
    return {"kind": "Service", "apiVersion": "v1", "spec": spec, "status": status}


def _written(service: Service, value: Any) -> Any:
    """The value of a field as the API writes it."""
    match value:
        case tuple():
            return [_written(service, each) for each in value]
        case Mapping():
            return dict(value)
        case StrEnum():
            return str(value)
        case bool() | int() | str():
            return value
        case _:
            return _text(service, value)


def _service_port(port: ServicePort) -> Document:
    document: Document = {"port": port.port, "protocol": str(port.protocol), "targetPort": port.target_port}
    if port.name:
        document["name"] = port.name
    if port.node_port:
        document["nodePort"] = port.node_port
    return document


def _slice(endpoint_slice: EndpointSlice) -> Document:
    return {
        "kind": "EndpointSlice",
        "apiVersion": "discovery.k8s.io/v1",
        "addressType": str(endpoint_slice.address_type),
        "ports": [_endpoint_port(port) for port in endpoint_slice.ports],
        "endpoints": [_endpoint(endpoint, endpoint_slice) for endpoint in endpoint_slice.endpoints],
    }


def _endpoints(endpoints: Endpoints) -> Document:
    subsets = [
        {
            "addresses": [{"ip": str(address)} for address in addresses],
            "ports": [{"name": port.name, "protocol": str(port.protocol), "port": port.port} for port in ports],
        }
        for addresses, ports in endpoints.subsets
    ]
    return {"kind": "Endpoints", "apiVersion": "v1", "subsets": subsets}


def _endpoint_port(port: EndpointPort) -> Document:
    # The name is written even where it is empty: the endpoint slice controller does, and a proxy matches it.
    return {"name": port.name, "protocol": str(port.protocol), "port": port.port}


def _endpoint(endpoint: Endpoint, endpoint_slice: EndpointSlice) -> Document:
    document: Document = {
        "addresses": [_text(endpoint_slice, address) for address in endpoint.addresses],
        "conditions": {"ready": endpoint.ready, "serving": endpoint.serving, "terminating": endpoint.terminating},
    }
    given = {"nodeName": endpoint.node_name, "zone": endpoint.zone, "hostname": endpoint.hostname}
    document |= {key: value for key, value in given.items() if value}
    hints = {
        "forZones": [{"name": zone} for zone in endpoint.for_zones],
        "forNodes": [{"name": node} for node in endpoint.for_nodes],
    }
    if any(hints.values()):
        document["hints"] = {key: value for key, value in hints.items() if value}
    if endpoint.target:
        document["targetRef"] = {"kind": "Pod", "namespace": endpoint_slice.namespace, "name": endpoint.target}
    return document


def _node(node: Node) -> Document:
    addresses = [{"type": "InternalIP", "address": str(address)} for address in node.addresses]
    spec: Document = {}
    if node.pod_cidrs:
        spec = {"podCIDR": str(node.pod_cidrs[0]), "podCIDRs": [str(network) for network in node.pod_cidrs]}
    if node.taints:
        spec["taints"] = [
            {key: value for key, value in Taint.of(taint)._asdict().items() if value} for taint in node.taints
        ]
    return {
        "kind": "Node",
        "apiVersion": "v1",
        "spec": spec,
        "status": {
            "addresses": [*addresses, {"type": "Hostname", "address": node.name}],
            "conditions": [_condition("Ready", holds=True)],
        },
    }


def _pod(pod: Pod) -> Document:
    ports = [
        {"containerPort": port.port, "protocol": str(port.protocol), **({"name": port.name} if port.name else {})}
        for port in pod.ports
    ]
    ready = pod.serving if pod.terminating else pod.ready
    addresses = [str(address) for address in pod.addresses]
    return {
        "kind": "Pod",
        "apiVersion": "v1",
        "spec": {
            "nodeName": pod.node_name,
            "hostNetwork": pod.host_network,
            "containers": [{"name": pod.name, "ports": ports}],
        },
        "status": {
            "phase": "Running",
            "podIP": addresses[0] if addresses else "",
            "podIPs": [{"ip": address} for address in addresses],
            "conditions": [_condition("Ready", holds=ready)],
        },
    }


def _namespace(_namespace: Namespace) -> Document:
    return {"kind": "Namespace", "apiVersion": "v1", "spec": {}, "status": {"phase": "Active"}}


def _service_cidr(service_cidr: ServiceCIDR) -> Document:
    return {
        "kind": "ServiceCIDR",
        "apiVersion": "networking.k8s.io/v1",
        "spec": {"cidrs": [str(network) for network in service_cidr.cidrs]},
    }


def _event(event: ClusterEvent) -> Document:
    regarding = event.regarding
    document: Document = {
        "kind": "Event",
        "apiVersion": "events.k8s.io/v1",
        "regarding": {
            "kind": regarding.kind,
            "name": regarding.name,
            **({"namespace": regarding.namespace} if regarding.namespace else {}),
        },
        "reason": event.reason,
        "note": event.note,
        "type": event.type,
        "action": event.action,
        "reportingController": event.reporter,
        "reportingInstance": event.reporting_instance,
        "eventTime": event.time or None,
    }
    if event.count > 1:
        document["series"] = {"count": event.count, "lastObservedTime": event.time or None}
    return document


def _unstructured(thing: Unstructured) -> Document:
    return dict(thing.content)


def _condition(name: str, *, holds: bool) -> Document:
    return {"type": name, "status": "True" if holds else "False"}


_WRITERS: Final[Mapping[type[KubeObject], Callable[[Any], Document]]] = {
    ClusterEvent: _event,
    Endpoints: _endpoints,
    EndpointSlice: _slice,
    Namespace: _namespace,
    Node: _node,
    Pod: _pod,
    Service: _service,
    ServiceCIDR: _service_cidr,
    Unstructured: _unstructured,
}


class Encoder:
    """Encodes objects, and remembers what it has made.

    Args:
        since: the creation time of all objects, in the format of RFC 3339.
    """

    def __init__(self, since: str) -> None:
        self._since = since
        self._made: OrderedDict[tuple[object, ...], bytes] = OrderedDict()

    def document(self, thing: KubeObject, revision: int) -> bytes:
        """The document of an object whose last change, which may be its deletion, was at ``revision``."""
        return encode(manifest(thing, revision, self._since))

    def known(self, thing: KubeObject, revision: int) -> bytes:
        """The same for an object of the store, made once."""
        return self.once((thing.key, revision), lambda: self.document(thing, revision))

    def once(self, key: tuple[object, ...], make: Callable[[], bytes]) -> bytes:
        """What ``make`` returns, which it does once for each key."""
        made = self._made.get(key)
        if made is None:
            made = self._made[key] = make()
            if len(self._made) > _REMEMBERED:
                self._made.popitem(last=False)
        return made
