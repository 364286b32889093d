"""Objects of the cluster as documents of the Kubernetes API, and documents as objects: one encoder and one reader.

``TABLES`` has a table for each kind: the path of each field in a document, and the form of its value where that is
not the field's own. Encoder and reader follow it both. msgspec does the rest by the type of the field, so a document
gives addresses and enums, or a ``MisfitError``. A further field is a line in its record, and a row in its table unless
it stands in ``spec`` under its own name.

Keys have the names of the API reference (https://kubernetes.io/docs/reference/kubernetes-api/). A document may lack a
key whose field has a default, and may have keys that no table has.
"""

import uuid
from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from functools import cache
from ipaddress import ip_address, ip_network
from typing import Any, Final, TypeVar

from msgspec import Struct, ValidationError, convert
from msgspec.structs import fields, replace

from proxylab.addresses import IPNetwork, without_leading_zeros
from proxylab.cluster.objects import (
    SERVICE_NAME_LABEL,
    ClusterEvent,
    Endpoints,
    EndpointSlice,
    KubeObject,
    Namespace,
    Node,
    ObjectKey,
    Pod,
    Service,
    ServiceCIDR,
    ServiceType,
    Taint,
    Unstructured,
)
from proxylab.encoding import MisfitError

Document = dict[str, Any]
ObjectT = TypeVar("ObjectT", Service, EndpointSlice, Endpoints, Node, Pod, Namespace, ServiceCIDR, ClusterEvent)

SIDECAR: Final = "Always"
"""The restartPolicy of an init container that goes on beside the pod's other containers (KEP-753)."""
NAMESPACE_NAME_LABEL: Final = "kubernetes.io/metadata.name"

_GRACE_SECONDS: Final = 30
_IDENTITIES: Final = uuid.UUID("8f2c1d3a-52a4-4d0b-9e38-6f0d9b3f6f10")
"""The UUID namespace of uids: an object of the same key has the same uid in every run."""


def running_containers(spec: object) -> Iterator[Document]:
    """The containers of a pod that run beside each other, its sidecars and its own, of a specification as written."""
    parts: Mapping[str, Any] = spec if isinstance(spec, Mapping) else {}
    for key in ("initContainers", "containers"):
        written = parts.get(key)
        for each in written if isinstance(written, list | tuple) else ():
            if isinstance(each, dict) and (key == "containers" or each.get("restartPolicy") == SIDECAR):
                yield each


class Form(Struct, frozen=True):
    """How the API writes a value where it does so in another way than the field.

    Attributes:
        write: what stands at the path, by the value and the whole object. A mapping joins what is there already.
        read: the value of the field as msgspec converts it, by what stands at the path; ``None`` means the default.
    """

    write: Callable[[Any, Any], Any]
    read: Callable[[Any], Any]


def _as_it_is(value: Any, whole: Any) -> Any:
    match value:
        case bool() | int():
            return value
        case StrEnum():
            return str(value)
        case str():
            return value
        case tuple():
            return [_as_it_is(each, whole) for each in value]
        case Mapping():
            return dict(value)
        case _:  # an address or a network, perhaps one that an old API server stored in another form
            text = str(value)
            return whole.stored.get(text, text) if isinstance(whole, Service | EndpointSlice) else text


AS_IT_IS: Final = Form(_as_it_is, lambda value: value)


class FieldPath(Struct, frozen=True):
    """Where a document has the value of a field.

    Attributes:
        path: the keys on the way, from the outermost, joined by dots.
        form: how the value is written there.
        is_written: whether the encoder writes it, by the record that has the field and the value.
    """

    path: str
    form: Form = AS_IT_IS
    is_written: Callable[[Any, Any], bool] = lambda _record, value: bool(value)


Fields = Mapping[str, FieldPath]
"""The paths of a record's fields, by the names of the fields, in the order of the document."""


class KindTable(Struct, frozen=True):
    """A kind of objects.

    Attributes:
        api_version: the version that serves it, with its group.
        fields: all fields of its record but those of ``metadata``.
        frame: what each document of the kind has.
    """

    api_version: str
    fields: Fields
    frame: Callable[[], Document] = dict


def _always(_record: object, _value: object) -> bool:
    return True


def _inside(service: Service, _value: object) -> bool:
    return service.type is not ServiceType.EXTERNAL_NAME


def _outside(service: Service, _value: object) -> bool:
    return service.externally_accessible


def _records(record: Fields, *, needs: str = "") -> Form:
    """A list of records with these fields. The reader leaves out those that lack what they need."""
    return Form(
        lambda values, whole: [_written(record, each, whole, {}) for each in values],
        lambda items: [_values(record, each) for each in items if not needs or each.get(needs)],
    )


def _mappings(key: str, **others: str) -> Form:
    """A list of values, each in a mapping of its own under ``key``; the mapping has others keys, too."""
    return Form(
        lambda values, whole: [{**others, key: _as_it_is(each, whole)} for each in values],
        lambda items: [each[key] for each in items if others.items() <= each.items()],
    )


_CLUSTER_IPS: Final = Form(
    lambda ips, service: {
        "clusterIP": _as_it_is(ips[0], service) if ips else "",
        "clusterIPs": _as_it_is(ips, service),
    },
    lambda spec: [each for each in spec.get("clusterIPs") or [spec.get("clusterIP")] if each not in (None, "", "None")],
)
_HEADLESS: Final = Form(
    lambda _headless, _service: {"clusterIP": "None", "clusterIPs": ["None"]},
    lambda spec: "None" in (spec.get("clusterIPs") or [spec.get("clusterIP")]),
)
_DEFAULT_TIMEOUT: Final = 10800


def _read_affinity(spec: Mapping[str, Any]) -> int | None:
    if spec.get("sessionAffinity") != "ClientIP":
        return None
    client_ip = (spec.get("sessionAffinityConfig") or {}).get("clientIP") or {}
    timeout: int = client_ip.get("timeoutSeconds", _DEFAULT_TIMEOUT)
    return timeout


_AFFINITY: Final = Form(
    lambda seconds, _service: (
        {"sessionAffinity": "None"}
        if seconds is None
        else {"sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": seconds}}}
    ),
    _read_affinity,
)

_SERVICE_PORT: Final = {
    "port": FieldPath("port", is_written=_always),
    "protocol": FieldPath("protocol", is_written=_always),
    "target_port": FieldPath("targetPort", is_written=_always),
    "name": FieldPath("name"),
    "node_port": FieldPath("nodePort"),
}
_SERVICE_PORTS: Final = Form(
    _records(_SERVICE_PORT).write,
    # The API server writes targetPort; an author may leave it out, or write "" as old clients did.
    lambda items: [
        {**port, "target_port": port.get("target_port") or port.get("port")}
        for port in _records(_SERVICE_PORT).read(items)
    ],
)
_INGRESS: Final = {
    "ip": FieldPath("ip"),
    "ip_mode": FieldPath("ipMode", is_written=lambda entry, _mode: entry.ip is not None),
    "hostname": FieldPath("hostname"),
}
_SERVICE: Final = {
    "type": FieldPath("spec.type", is_written=_always),
    "selector": FieldPath("spec.selector", is_written=_always),
    "publish_not_ready_addresses": FieldPath("spec.publishNotReadyAddresses", is_written=_always),
    "external_name": FieldPath(
        "spec.externalName", is_written=lambda service, _name: service.type is ServiceType.EXTERNAL_NAME
    ),
    "ip_families": FieldPath("spec.ipFamilies", is_written=_inside),
    "ip_family_policy": FieldPath("spec.ipFamilyPolicy", is_written=_inside),
    "internal_traffic_policy": FieldPath("spec.internalTrafficPolicy", is_written=_inside),
    "external_traffic_policy": FieldPath("spec.externalTrafficPolicy", is_written=_outside),
    "allocate_node_ports": FieldPath(
        "spec.allocateLoadBalancerNodePorts",
        is_written=lambda service, _allocate: service.type is ServiceType.LOAD_BALANCER,
    ),
    "external_ips": FieldPath("spec.externalIPs"),
    "source_ranges": FieldPath("spec.loadBalancerSourceRanges"),
    "health_check_node_port": FieldPath("spec.healthCheckNodePort"),
    "traffic_distribution": FieldPath("spec.trafficDistribution"),
    "ports": FieldPath("spec.ports", _SERVICE_PORTS, _always),
    "affinity_timeout": FieldPath("spec", _AFFINITY, _always),
    "headless": FieldPath(
        "spec", _HEADLESS, lambda service, headless: headless and service.type is not ServiceType.EXTERNAL_NAME
    ),
    "cluster_ips": FieldPath(
        "spec",
        _CLUSTER_IPS,
        lambda service, _ips: not service.headless and service.type is not ServiceType.EXTERNAL_NAME,
    ),
    "load_balancer_ingress": FieldPath("status.loadBalancer.ingress", _records(_INGRESS)),
}

_ENDPOINT_PORT: Final = {
    # The name is written even where it is empty: the endpoint slice controller does, and a proxy matches it.
    "name": FieldPath("name", is_written=_always),
    "protocol": FieldPath("protocol", is_written=_always),
    "port": FieldPath("port", is_written=_always),
}


def _read_serving(conditions: Mapping[str, Any]) -> Any:
    """Whether an endpoint serves: an absent condition is unknown, and consumers take ``ready`` for it then."""
    given = conditions.get("serving")
    return conditions.get("ready") if given is None else given


_ENDPOINT: Final = {
    "addresses": FieldPath("addresses", is_written=_always),
    "ready": FieldPath("conditions.ready", is_written=_always),
    "serving": FieldPath(
        "conditions", Form(lambda serving, _slice: {"serving": serving}, _read_serving), is_written=_always
    ),
    "terminating": FieldPath("conditions.terminating", is_written=_always),
    "node_name": FieldPath("nodeName"),
    "zone": FieldPath("zone"),
    "hostname": FieldPath("hostname"),
    "for_zones": FieldPath("hints.forZones", _mappings("name")),
    "for_nodes": FieldPath("hints.forNodes", _mappings("name")),
    "target": FieldPath(
        "targetRef",
        Form(
            lambda pod, of: {"kind": "Pod", "namespace": of.namespace, "name": pod},
            lambda target: target.get("name") if target.get("kind") == "Pod" else None,
        ),
    ),
}
_SLICE: Final = {
    "service": FieldPath(
        "metadata.labels",
        Form(lambda _service, _slice: {}, lambda labels: labels.get(SERVICE_NAME_LABEL)),
        is_written=lambda _slice, _service: False,  # ``labels_of`` has the label
    ),
    "address_type": FieldPath("addressType", is_written=_always),
    # A port without a number means every port, which no proxy can program.
    "ports": FieldPath("ports", _records(_ENDPOINT_PORT, needs="port"), _always),
    "endpoints": FieldPath("endpoints", _records(_ENDPOINT), _always),
}

_SUBSETS: Final = Form(
    lambda subsets, whole: [
        {"addresses": _mappings("ip").write(ips, whole), "ports": _records(_ENDPOINT_PORT).write(ports, whole)}
        for ips, ports in subsets
    ],
    lambda items: [
        (
            _mappings("ip").read(each.get("addresses") or ()),
            _records(_ENDPOINT_PORT, needs="port").read(each.get("ports") or ()),
        )
        for each in items
    ],
)

_DELETED: Final = Form(lambda _deleted, _whole: {}, lambda _time: True)
"""Whether an object has a ``deletionTimestamp``; the encoder writes the time."""

_INTERNAL_IPS: Final = _mappings("address", type="InternalIP")
_NODE: Final = {
    "pod_cidrs": FieldPath(
        "spec",
        Form(
            lambda networks, node: {
                "podCIDR": _as_it_is(networks[0], node),
                "podCIDRs": _as_it_is(networks, node),
            },
            lambda spec: spec.get("podCIDRs") or ([spec["podCIDR"]] if spec.get("podCIDR") else []),
        ),
    ),
    "taints": FieldPath(
        "spec.taints",
        Form(
            lambda taints, _node: [
                {key: text for key, text in Taint.of(each)._asdict().items() if text} for each in taints
            ],
            lambda items: [str(Taint(each["key"], each.get("value", ""), each["effect"])) for each in items],
        ),
    ),
    "addresses": FieldPath(
        "status.addresses",
        Form(
            lambda ips, node: [
                *_INTERNAL_IPS.write(ips, node),
                {"type": "Hostname", "address": node.name},
            ],
            _INTERNAL_IPS.read,
        ),
        _always,
    ),
    "deleting": FieldPath("metadata.deletionTimestamp", _DELETED, lambda _node, _deleting: False),
}


def _ready(holds: bool, _whole: object) -> list[Document]:
    return [{"type": "Ready", "status": "True" if holds else "False"}]


def _is_ready(conditions: list[Mapping[str, Any]]) -> bool | None:
    """The condition Ready; ``None`` if it is absent."""
    return next((each["status"] == "True" for each in conditions if each["type"] == "Ready"), None)


_POD_PORT: Final = {
    "port": FieldPath("containerPort", is_written=_always),
    "protocol": FieldPath("protocol", is_written=_always),
    "name": FieldPath("name"),
    "host_port": FieldPath("hostPort"),
    "host_ip": FieldPath("hostIP", Form(_as_it_is, lambda text: text or None)),
}
_POD: Final = {
    "node_name": FieldPath("spec.nodeName", is_written=_always),
    "host_network": FieldPath("spec.hostNetwork", is_written=_always),
    "ports": FieldPath(
        "spec.containers",
        Form(
            lambda ports, pod: [{"name": pod.name, "ports": _records(_POD_PORT).write(ports, pod)}],
            lambda items: [port for each in items for port in _records(_POD_PORT).read(each.get("ports") or ())],
        ),
        _always,
    ),
    "addresses": FieldPath(
        "status",
        Form(
            lambda ips, pod: {
                "podIP": str(ips[0]) if ips else "",
                "podIPs": _mappings("ip").write(ips, pod),
            },
            lambda status: (
                _mappings("ip").read(status.get("podIPs") or ()) or ([status["podIP"]] if status.get("podIP") else [])
            ),
        ),
        _always,
    ),
    # One condition has both: a pod that terminates is never a ready endpoint, and serves while its containers do.
    "ready": FieldPath("status.conditions", Form(_ready, _is_ready), lambda pod, _ready: not pod.terminating),
    "serving": FieldPath("status.conditions", Form(_ready, _is_ready), lambda pod, _serving: pod.terminating),
    "terminating": FieldPath("metadata.deletionTimestamp", _DELETED, lambda _pod, _terminating: False),
}

_EVENT: Final = {
    "regarding": FieldPath(
        "regarding",
        Form(
            lambda key, _event: {
                "kind": key.kind,
                "name": key.name,
                **({"namespace": key.namespace} if key.namespace else {}),
            },
            lambda thing: [thing.get("kind", ""), thing.get("namespace", ""), thing.get("name", "")],
        ),
        _always,
    ),
    "reason": FieldPath("reason", is_written=_always),
    "note": FieldPath("note", is_written=_always),
    "type": FieldPath("type", is_written=_always),
    "action": FieldPath("action", is_written=_always),
    "reporter": FieldPath("reportingController", is_written=_always),
    "reporting_instance": FieldPath("reportingInstance", is_written=_always),
    "time": FieldPath("eventTime", Form(lambda time, _event: time or None, lambda time: time), _always),
    "count": FieldPath(
        "series",
        Form(
            lambda count, event: {"count": count, "lastObservedTime": event.time or None},
            lambda series: series.get("count"),
        ),
        lambda _event, count: count > 1,
    ),
}

_OF_METADATA: Final = frozenset(("namespace", "name", "labels", "annotations", "stored"))


def camel_case(name: str) -> str:
    """The key of a field: its name in camel case."""
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))


def table_of(record: type, api_version: str, rows: Fields, frame: Callable[[], Document] = dict) -> KindTable:
    """The table of a kind. A field without a row stands in ``spec``, under its own name, where it has a value."""
    names = [each.name for each in fields(record) if each.name not in _OF_METADATA and each.name not in rows]
    return KindTable(api_version, {**rows, **{name: FieldPath(f"spec.{camel_case(name)}") for name in names}}, frame)


TABLES: Final[Mapping[type, KindTable]] = {
    Service: table_of(Service, "v1", _SERVICE, lambda: {"spec": {}, "status": {"loadBalancer": {}}}),
    EndpointSlice: table_of(EndpointSlice, "discovery.k8s.io/v1", _SLICE),
    Endpoints: table_of(Endpoints, "v1", {"subsets": FieldPath("subsets", _SUBSETS, _always)}),
    Node: table_of(
        Node, "v1", _NODE, lambda: {"spec": {}, "status": {"addresses": [], "conditions": _ready(True, None)}}
    ),
    Pod: table_of(Pod, "v1", _POD, lambda: {"spec": {}, "status": {"phase": "Running"}}),
    Namespace: table_of(Namespace, "v1", {}, lambda: {"spec": {}, "status": {"phase": "Active"}}),
    ServiceCIDR: table_of(ServiceCIDR, "networking.k8s.io/v1", {"cidrs": FieldPath("spec.cidrs", is_written=_always)}),
    ClusterEvent: table_of(ClusterEvent, "events.k8s.io/v1", _EVENT),
}
"""The kinds whose objects have a record; an ``Unstructured`` is kept as its document."""


def document_of(thing: KubeObject, revision: int, since: str) -> Document:
    """The document of an object. ``since`` is its ``creationTimestamp``, in the format of RFC 3339."""
    if isinstance(thing, Unstructured):
        document = dict(thing.content)
    else:
        table = TABLES[type(thing)]
        head = {"kind": thing.key.kind, "apiVersion": table.api_version}
        document = _written(table.fields, thing, thing, {**head, **table.frame()})
    metadata: Document = {"name": thing.name}
    if thing.key.namespace:
        metadata["namespace"] = thing.key.namespace
    if labels := labels_of(thing):
        metadata["labels"] = dict(labels)
    if isinstance(thing, Service | Unstructured) and thing.annotations:
        metadata["annotations"] = dict(thing.annotations)
    metadata |= {
        "uid": uid_of(thing.key),
        "resourceVersion": str(revision),
        "creationTimestamp": since,
    }
    if (isinstance(thing, Pod) and thing.terminating) or (isinstance(thing, Node) and thing.deleting):
        metadata |= {"deletionTimestamp": since, "deletionGracePeriodSeconds": _GRACE_SECONDS}
    return {**document, "metadata": metadata}


def uid_of(key: ObjectKey) -> str:
    """The uid of the object with that key."""
    return str(uuid.uuid5(_IDENTITIES, str(key)))


def object_of(kind: type[ObjectT], document: Mapping[str, Any]) -> ObjectT:
    """The object of a document of that kind.

    Raises:
        MisfitError: the document is none of that kind, with the place of what does not fit.
    """
    stored: dict[str, str] = {}

    def address(hint: Any, text: object) -> object:
        if not isinstance(text, str):
            return text  # has been read already, or msgspec refuses it
        usual = without_leading_zeros(text)
        made = ip_network(usual, strict=False) if hint is IPNetwork else ip_address(usual)
        if usual != text:
            stored[str(made)] = text
        return made

    try:
        metadata = document["metadata"]
        values = {key: metadata[key] for key in ("name", "namespace", "labels", "annotations") if metadata.get(key)}
        known = kind.__struct_fields__
        given = {key: value for key, value in values.items() if key in known}
        thing = convert(given | _values(TABLES[kind].fields, document), kind, dec_hook=address)
    except (ValidationError, AttributeError, KeyError, TypeError) as error:
        raise MisfitError(f"{kind.__name__}: {error}") from None
    if stored:
        thing = replace(thing, stored=stored)
    if "labels" not in known:
        return thing
    by_itself = labels_of(replace(thing, labels={}))
    own = {key: text for key, text in labels_of(thing).items() if by_itself.get(key) != text}
    return replace(thing, labels=own) if by_itself else thing


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


def _written(record_fields: Fields, record: object, whole: KubeObject, document: Document) -> Document:
    """The document with the fields of a record, which is the whole object or a part of it."""
    for name, each in record_fields.items():
        value = getattr(record, name)
        if not each.is_written(record, value):
            continue
        *outer, last = _keys(each.path)
        part = document
        for key in outer:
            part = part.setdefault(key, {})
        written = each.form.write(value, whole)
        if isinstance(written, dict) and last in part:
            part[last] |= written
        else:
            part[last] = written
    return document


def _values(record_fields: Fields, document: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a record's fields, by their names, without those that the document lacks."""
    found = {}
    for name, each in record_fields.items():
        part: Any = document
        for key in _keys(each.path):
            part = None if part is None else part.get(key)
        if part is not None and (value := each.form.read(part)) is not None:
            found[name] = value
    return found


@cache
def _keys(path: str) -> tuple[str, ...]:
    return tuple(path.split("."))
