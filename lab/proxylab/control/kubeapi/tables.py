"""Tables of objects, as kube-apiserver makes them for ``kubectl get``: meta.k8s.io/v1 Table.

The columns are those that Kubernetes 1.37 has answered with. Their cells are read from an object's document, but for
the numbers of a workload's pods: nothing in a lab writes these into its status.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from msgspec import Struct

from proxylab.cluster.documents import Document
from proxylab.cluster.objects import KubeObject, Pod, Unstructured
from proxylab.cluster.workloads import pods_of

_NONE: Final = "<none>"
_CREATED: Final = "Created At"
_UNKNOWN: Final = "<unknown>"
_MOST_ENDPOINTS: Final = 3
_MOST_INGRESS: Final = 16
"""The longest text of ingress addresses in a table (loadBalancerStatusStringer in pkg/printers/internalversion)."""

_INCLUDES: Final = re.compile(r"(?:^|&)includeObject=(None|Metadata|Object)(?:&|$)")
_ROLE: Final = "node-role.kubernetes.io/"


class TableOptions(Struct, frozen=True):
    """How a client wants a table. ``includes`` is what each row has besides its cells: None, Metadata or Object."""

    includes: str = "Metadata"

    @classmethod
    def read(cls, accept: str, query: str) -> "TableOptions | None":
        """From the header Accept and the parameter ``includeObject``; ``None`` for a client that wants no table."""
        wanted = {part.strip() for part in accept.partition(",")[0].split(";")}
        if not {"as=Table", "v=v1", "g=meta.k8s.io"} <= wanted:
            return None
        given = _INCLUDES.search(query)
        return cls(given[1] if given else "Metadata")


class _Row(Struct, frozen=True):
    """An object, with what its cells are read from."""

    thing: KubeObject
    document: Document
    pods: Sequence[Pod]
    now: datetime

    @property
    def spec(self) -> Mapping[str, Any]:
        return self.document.get("spec") or {}

    @property
    def status(self) -> Mapping[str, Any]:
        return self.document.get("status") or {}

    @property
    def age(self) -> str:
        return self.since(self.document["metadata"]["creationTimestamp"])

    @property
    def own(self) -> Sequence[Pod]:
        """The pods of a workload."""
        return pods_of(self.thing, self.pods) if isinstance(self.thing, Unstructured) else ()

    @property
    def containers(self) -> Sequence[Mapping[str, Any]]:
        template = self.spec.get("template") or {}
        containers: Sequence[Mapping[str, Any]] = (template.get("spec") or {}).get("containers") or ()
        return containers

    def since(self, text: str) -> str:
        if not text:
            return _UNKNOWN
        return age_of(int((self.now - datetime.fromisoformat(text)).total_seconds()))

    def ready(self) -> int:
        return sum(each.ready for each in self.own)

    def wanted(self) -> int:
        return int(self.spec.get("replicas", 1))


def age_of(seconds: int) -> str:
    """A time that has passed, as kubectl writes it (HumanDuration in apimachinery's pkg/util/duration).

    Example:
        >>> [age_of(seconds) for seconds in (7, 119, 125, 3600, 15_000, 200_000)]
        ['7s', '119s', '2m5s', '60m', '4h10m', '2d7h']
    """
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    if seconds < 120:
        return f"{max(0, seconds)}s"
    if minutes < 180:
        return _two(minutes, "m", seconds % 60 if minutes < 10 else 0, "s")
    if hours < 48:
        return _two(hours, "h", minutes % 60 if hours < 8 else 0, "m")
    return _two(days, "d", hours % 24 if days < 8 else 0, "h")


def _two(large: int, word: str, small: int, small_word: str) -> str:
    return f"{large}{word}" + (f"{small}{small_word}" if small else "")


def _pairs(labels: Mapping[str, str] | None) -> str:
    return ",".join(f"{key}={value}" for key, value in sorted((labels or {}).items())) or _NONE


def _selector(row: _Row) -> str:
    return _pairs((row.spec.get("selector") or {}).get("matchLabels"))


def _some(found: Sequence[str], none: str = _NONE) -> str:
    more = f" + {len(found) - _MOST_ENDPOINTS} more..." if len(found) > _MOST_ENDPOINTS else ""
    return (",".join(found[:_MOST_ENDPOINTS]) + more) or none


def _outside(row: _Row) -> str:
    """A Service's addresses outside the cluster (getServiceExternalIP)."""
    kind, external = row.spec.get("type", "ClusterIP"), list(row.spec.get("externalIPs") or ())
    if kind == "ExternalName":
        return str(row.spec.get("externalName", _NONE))
    if kind != "LoadBalancer":
        return ",".join(external) or _NONE
    ingress = (row.status.get("loadBalancer") or {}).get("ingress") or ()
    given = ",".join(sorted({each.get("ip") or each.get("hostname", "") for each in ingress}))
    shown = given if len(given) <= _MOST_INGRESS else f"{given[: _MOST_INGRESS - 3]}..."
    return ",".join([*([shown] if shown else []), *external]) or "<pending>"


def _ports(row: _Row) -> str:
    written = (
        f"{':'.join(str(each[key]) for key in ('port', 'nodePort') if each.get(key))}/{each.get('protocol', 'TCP')}"
        for each in row.spec.get("ports") or ()
    )
    return ",".join(written) or _NONE


def _cluster_ip(row: _Row) -> str:
    return str(row.spec.get("clusterIP") or _NONE)


def _of_containers(key: str) -> Callable[[_Row], str]:
    return lambda row: ",".join(str(each.get(key, "")) for each in row.containers)


def _pod_ready(row: _Row) -> str:
    count = len(row.spec.get("containers") or ())
    ready = isinstance(row.thing, Pod) and (row.thing.serving if row.thing.terminating else row.thing.ready)
    return f"{count if ready else 0}/{count}"


def _pod_status(row: _Row) -> str:
    return "Terminating" if "deletionTimestamp" in row.document["metadata"] else str(row.status.get("phase", _UNKNOWN))


def _node_status(row: _Row) -> str:
    holds = any(each["type"] == "Ready" and each["status"] == "True" for each in row.status.get("conditions") or ())
    taints = {each["key"] for each in row.spec.get("taints") or ()}
    is_closed = row.spec.get("unschedulable") or "node.kubernetes.io/unschedulable" in taints
    return f"{'Ready' if holds else 'NotReady'}{',SchedulingDisabled' if is_closed else ''}"


def _roles(row: _Row) -> str:
    labels = row.document["metadata"].get("labels") or {}
    return ",".join(sorted(each.removeprefix(_ROLE) for each in labels if each.startswith(_ROLE))) or _NONE


def _node_info(key: str) -> Callable[[_Row], str]:
    return lambda row: str((row.status.get("nodeInfo") or {}).get(key) or _UNKNOWN)


def _address(kind: str) -> Callable[[_Row], str]:
    def found(row: _Row) -> str:
        addresses = (each["address"] for each in row.status.get("addresses") or () if each["type"] == kind)
        return str(next(addresses, _NONE))

    return found


def _endpoints(row: _Row) -> str:
    return _some(
        [
            f"{address['ip']}:{port['port']}" if port else address["ip"]
            for subset in row.document.get("subsets") or ()
            for port in subset.get("ports") or [None]
            for address in subset.get("addresses") or ()
        ]
    )


def _slice_ports(row: _Row) -> str:
    return _some([str(each.get("port", "*")) for each in row.document.get("ports") or ()], "<unset>")


def _slice_endpoints(row: _Row) -> str:
    return _some([each["addresses"][0] for each in row.document.get("endpoints") or ()], "<unset>")


def _object_of_event(row: _Row) -> str:
    about = row.document.get("regarding") or row.document.get("involvedObject") or {}
    return f"{about.get('kind', '').lower()}/{about.get('name', '')}"


def _seen(row: _Row) -> str:
    series = row.document.get("series") or {}
    return row.since(series.get("lastObservedTime") or row.document.get("eventTime") or "")


def _source(row: _Row) -> str:
    known = (row.document.get(f"reporting{each}") for each in ("Controller", "Component", "Instance"))
    return ", ".join(filter(None, known))


def _hosts(row: _Row) -> str:
    found = [each["host"] for each in row.spec.get("rules") or () if each.get("host")]
    return _some(found, "*")


def _ingress_ports(row: _Row) -> str:
    return "80, 443" if row.spec.get("tls") else "80"


def _data(row: _Row) -> int:
    return len(row.document.get("data") or {}) + len(row.document.get("binaryData") or {})


Cell = Callable[[_Row], object]
"""A cell. The head of its column ends in * where a wide table alone has it, and in # where it is a number."""

_NAME: Final[tuple[str, Cell]] = ("Name", lambda row: row.document["metadata"]["name"])
_AGE: Final[tuple[str, Cell]] = ("Age", lambda row: row.age)
_OF_TEMPLATE: Final[tuple[tuple[str, Cell], ...]] = (
    ("Containers*", _of_containers("name")),
    ("Images*", _of_containers("image")),
)
_EVENT: Final[tuple[tuple[str, Cell], ...]] = (
    ("Last Seen", _seen),
    ("Type", lambda row: row.document.get("type", "")),
    ("Reason", lambda row: row.document.get("reason", "")),
    ("Object", _object_of_event),
    ("Subobject*", lambda _: ""),
    ("Source*", _source),
    ("Message", lambda row: row.document.get("note") or row.document.get("message", "")),
    ("First Seen*", lambda row: row.since(row.document.get("eventTime") or "")),
    ("Count*", lambda row: (row.document.get("series") or {}).get("count", 1)),
    ("Name*", _NAME[1]),
)
_COLUMNS: Final[Mapping[str, Sequence[tuple[str, Cell]]]] = {
    "Service": (
        _NAME,
        ("Type", lambda row: row.spec.get("type", "ClusterIP")),
        ("Cluster-IP", _cluster_ip),
        ("External-IP", _outside),
        ("Port(s)", _ports),
        _AGE,
        ("Selector*", lambda row: _pairs(row.spec.get("selector"))),
    ),
    "Pod": (
        _NAME,
        ("Ready", _pod_ready),
        ("Status", _pod_status),
        ("Restarts", lambda _: "0"),
        _AGE,
        ("IP*", lambda row: row.status.get("podIP") or _NONE),
        ("Node*", lambda row: row.spec.get("nodeName") or _NONE),
        ("Nominated Node*", lambda _: _NONE),
        ("Readiness Gates*", lambda _: _NONE),
    ),
    "Node": (
        _NAME,
        ("Status", _node_status),
        ("Roles", _roles),
        _AGE,
        ("Version", _node_info("kubeletVersion")),
        ("Internal-IP*", _address("InternalIP")),
        ("External-IP*", _address("ExternalIP")),
        ("OS-Image*", _node_info("osImage")),
        ("Kernel-Version*", _node_info("kernelVersion")),
        ("Container-Runtime*", _node_info("containerRuntimeVersion")),
    ),
    "Namespace": (_NAME, ("Status", lambda row: row.status.get("phase", _UNKNOWN)), _AGE),
    "Endpoints": (_NAME, ("Endpoints", _endpoints), _AGE),
    "EndpointSlice": (
        _NAME,
        ("AddressType", lambda row: row.document["addressType"]),
        ("Ports", _slice_ports),
        ("Endpoints", _slice_endpoints),
        _AGE,
    ),
    "Event": _EVENT,
    "Deployment": (
        _NAME,
        ("Ready", lambda row: f"{row.ready()}/{row.wanted()}"),
        ("Up-to-date", lambda row: len(row.own)),
        ("Available", _Row.ready),
        _AGE,
        *_OF_TEMPLATE,
        ("Selector*", _selector),
    ),
    "ReplicaSet": (
        _NAME,
        ("Desired#", _Row.wanted),
        ("Current#", lambda row: len(row.own)),
        ("Ready#", _Row.ready),
        _AGE,
        *_OF_TEMPLATE,
        ("Selector*", _selector),
    ),
    "StatefulSet": (_NAME, ("Ready", lambda row: f"{row.ready()}/{row.wanted()}"), _AGE, *_OF_TEMPLATE),
    "DaemonSet": (
        _NAME,
        ("Desired#", lambda row: len(row.own)),
        ("Current#", lambda row: len(row.own)),
        ("Ready#", _Row.ready),
        ("Up-to-date#", lambda row: len(row.own)),
        ("Available#", _Row.ready),
        ("Node Selector", lambda row: _pairs(((row.spec.get("template") or {}).get("spec") or {}).get("nodeSelector"))),
        _AGE,
        *_OF_TEMPLATE,
        ("Selector*", _selector),
    ),
    "ConfigMap": (_NAME, ("Data", _data), _AGE),
    "Secret": (_NAME, ("Type", lambda row: row.document.get("type", "Opaque")), ("Data", _data), _AGE),
    "ServiceAccount": (_NAME, _AGE),
    "Ingress": (
        _NAME,
        ("Class", lambda row: row.spec.get("ingressClassName") or _NONE),
        ("Hosts", _hosts),
        ("Address", lambda _: ""),
        ("Ports", _ingress_ports),
        _AGE,
    ),
    "IngressClass": (
        _NAME,
        ("Controller", lambda row: row.spec.get("controller", "")),
        ("Parameters", lambda _: _NONE),
        _AGE,
    ),
    "NetworkPolicy": (
        _NAME,
        ("Pod-Selector", lambda row: _pairs((row.spec.get("podSelector") or {}).get("matchLabels"))),
        _AGE,
    ),
    "ServiceCIDR": (_NAME, ("CIDRs", lambda row: ",".join(row.spec.get("cidrs") or ())), _AGE),
}  # fmt: skip
_OTHER: Final = (_NAME, (_CREATED, lambda row: row.document["metadata"]["creationTimestamp"]))


def table_of(
    kind: str,
    rows: Iterable[tuple[KubeObject, Document]],
    pods: Sequence[Pod],
    now: datetime,
    options: TableOptions,
    metadata: Mapping[str, Any],
) -> Document:
    """The table of objects of one kind, with their documents. ``pods`` are all of the cluster."""
    columns = _COLUMNS.get(kind, _OTHER)
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": metadata,
        "columnDefinitions": [
            {
                "name": head.rstrip("*#"),
                "type": "date" if head == _CREATED else "integer" if head.endswith("#") else "string",
                "format": "name" if head.rstrip("*") == "Name" else "",
                "description": "",
                "priority": int(head.endswith("*")),
            }
            for head, _ in columns
        ],
        "rows": [
            {
                "cells": [cell(_Row(thing, document, pods, now)) for _, cell in columns],
                **_object(document, options.includes),
            }
            for thing, document in rows
        ],
    }


def _object(document: Document, includes: str) -> Document:
    match includes:
        case "Object":
            return {"object": document}
        case "None":
            return {}
    head = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1"}
    return {"object": {**head, "metadata": document["metadata"]}}
