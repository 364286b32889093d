"""The kinds that the API serves: group, names and selectable fields of each, and the documents of discovery."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import groupby
from typing import Any, Final

from msgspec import Struct, field

from proxylab.cluster.documents import Document, uid_of
from proxylab.cluster.kinds import KEPT_KINDS, SHORT_NAMES, group_of
from proxylab.cluster.objects import (
    ClusterEvent,
    Endpoints,
    EndpointSlice,
    KubeObject,
    Namespace,
    Node,
    Pod,
    Service,
    ServiceCIDR,
    Unstructured,
)

_Field = Callable[[Any], str]


class Resource(Struct, frozen=True):
    """One kind of the API.

    Attributes:
        cls: the typed objects of the store.
        group_version: ``v1`` for the core group, else ``GROUP/VERSION``.
        plural: its name in paths.
        short: kubectl's short names.
        fields: the fields of selectors besides ``metadata.name`` and ``metadata.namespace``.
        accepts: whether clients may create and change objects.
        named: the kind of unstructured objects.
        written: makes its document of that of the version in which the lab keeps it.
    """

    cls: type[KubeObject]
    group_version: str
    plural: str
    short: tuple[str, ...] = ()
    namespaced: bool = True
    fields: Mapping[str, _Field] = field(default_factory=dict)
    accepts: bool = False
    named: str = ""
    written: Callable[[Document], Document] | None = None

    @property
    def kind(self) -> str:
        """The ``kind`` of documents."""
        return self.named or ("Event" if self.cls is ClusterEvent else self.cls.__name__)

    @property
    def group(self) -> str:
        """The group without its version; empty for the core group."""
        return group_of(self.group_version)

    @property
    def key_kind(self) -> str:
        """The kind in the keys of its objects."""
        return f"{self.kind}.{self.group}" if self.named and self.group else self.kind

    @property
    def field_names(self) -> frozenset[str]:
        """The fields that a selector may name."""
        own = {"metadata.name", "metadata.namespace"} if self.namespaced else {"metadata.name"}
        return frozenset(own | set(self.fields))

    def fields_of(self, thing: KubeObject, names: frozenset[str]) -> dict[str, str]:
        """The values of some of its fields."""
        known = {"metadata.name": thing.name, "metadata.namespace": thing.key.namespace}
        return {name: known[name] if name in known else self.fields[name](thing) for name in names}


def _cluster_ip(service: Service) -> str:
    return "None" if service.headless else next(map(str, service.cluster_ips), "")


def _core_event(document: Document) -> Document:
    """An Event of events.k8s.io/v1 as v1 has it."""
    series, time = document.get("series") or {}, document.get("eventTime")
    controller, instance = document["reportingController"], document["reportingInstance"]
    return {
        "kind": "Event",
        "apiVersion": "v1",
        "metadata": document["metadata"],
        "involvedObject": document["regarding"],
        "message": document["note"],
        **{key: document[key] for key in ("reason", "type", "action", "eventTime")},
        "reportingComponent": controller,
        "reportingInstance": instance,
        "source": {"component": controller, "host": instance},
        "count": series.get("count", 1),
        "firstTimestamp": time,
        "lastTimestamp": series.get("lastObservedTime") or time,
    }


_OF_CORE_EVENTS: Final[Mapping[str, _Field]] = {
    "reason": lambda event: event.reason,
    "type": lambda event: event.type,
    "involvedObject.kind": lambda event: event.regarding.kind,
    "involvedObject.namespace": lambda event: event.regarding.namespace,
    "involvedObject.name": lambda event: event.regarding.name,
    "involvedObject.uid": lambda event: uid_of(event.regarding),
    "source": lambda event: event.reporter,
}

_OF_ALL: Final = (
    *("Pod", "ReplicationController", "Service", "DaemonSet", "Deployment", "ReplicaSet", "StatefulSet"),
    *("HorizontalPodAutoscaler", "CronJob", "Job"),
)
"""The kinds that kubectl lists as ``all``."""

RESOURCES: Final = (
    Resource(
        Service,
        "v1",
        "services",
        ("svc",),
        fields={"spec.clusterIP": _cluster_ip, "spec.type": lambda service: str(service.type)},
    ),
    Resource(Node, "v1", "nodes", ("no",), namespaced=False, fields={"spec.unschedulable": lambda _: "false"}),
    Resource(
        Pod,
        "v1",
        "pods",
        ("po",),
        fields={
            "spec.nodeName": lambda pod: pod.node_name,
            "spec.hostNetwork": lambda pod: str(pod.host_network).lower(),
            "status.phase": lambda _: "Running",
            "status.podIP": lambda pod: next(map(str, pod.addresses), ""),
        },
    ),
    Resource(Namespace, "v1", "namespaces", ("ns",), namespaced=False, fields={"status.phase": lambda _: "Active"}),
    Resource(EndpointSlice, "discovery.k8s.io/v1", "endpointslices"),
    Resource(Endpoints, "v1", "endpoints", ("ep",)),
    Resource(ServiceCIDR, "networking.k8s.io/v1", "servicecidrs", namespaced=False),
    Resource(
        ClusterEvent,
        "events.k8s.io/v1",
        "events",
        ("ev",),
        fields={
            "reason": lambda event: event.reason,
            "type": lambda event: event.type,
            "regarding.kind": lambda event: event.regarding.kind,
            "regarding.namespace": lambda event: event.regarding.namespace,
            "regarding.name": lambda event: event.regarding.name,
            "reportingController": lambda event: event.reporter,
        },
        accepts=True,
    ),
    # kubectl lists these by default; the others are what proxies write.
    Resource(ClusterEvent, "v1", "events", ("ev",), fields=_OF_CORE_EVENTS, written=_core_event),
    *(
        Resource(Unstructured, each.group_version, each.plural, SHORT_NAMES[kind], each.namespaced, named=kind)
        for kind, each in KEPT_KINDS.items()
    ),
)


def resources_of(things: Iterable[Unstructured]) -> Iterator[Resource]:
    """The kinds of these objects that are not among ``RESOURCES``: custom ones."""
    known = {(each.group_version, each.plural) for each in RESOURCES}
    for each in things:
        if (each.api_version, each.plural) not in known:
            known.add((each.api_version, each.plural))
            yield Resource(Unstructured, each.api_version, each.plural, (), bool(each.namespace), named=each.kind)


def discovery(path: str, version: str, resources: Iterable[Resource]) -> dict[str, Any] | None:
    """A document of discovery, which kubectl reads first; ``None`` for any other path.

    ``version`` is the Kubernetes version that the API is of, such as ``v1.34.2``.
    """
    resources = tuple(resources)
    if path == "/version":
        major, minor = version.removeprefix("v").split(".")[:2]
        return {"major": major, "minor": minor, "gitVersion": version, "platform": "linux"}
    if path == "/api":
        return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}
    if path == "/apis":
        versions = sorted({resource.group_version for resource in resources if resource.group})
        groups = [_group(name, [*found]) for name, found in groupby(versions, group_of)]
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}
    version_of = path.removeprefix("/api/") if path.startswith("/api/") else path.removeprefix("/apis/")
    found = [resource for resource in resources if resource.group_version == version_of]
    if not found or path != ("/apis/" if found[0].group else "/api/") + version_of:
        return None
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": version_of,
        "resources": [_described(resource) for resource in sorted(found, key=lambda each: each.plural)],
    }


def _group(name: str, group_versions: list[str]) -> dict[str, Any]:
    served = [{"groupVersion": each, "version": each.rpartition("/")[2]} for each in group_versions]
    return {"name": name, "versions": served, "preferredVersion": served[0]}


def _described(resource: Resource) -> dict[str, Any]:
    verbs = ["get", "list", "watch", *(("create", "patch") if resource.accepts else ())]
    return {
        "name": resource.plural,
        "singularName": resource.kind.lower(),
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "shortNames": list(resource.short),
        "categories": ["all"] if resource.kind in _OF_ALL else [],
        "verbs": verbs,
    }
