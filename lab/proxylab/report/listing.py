"""The objects of a cluster in tables, as kubectl prints them: the kinds, their names and their columns.

There is no column AGE: all objects in a lab are as old as the lab.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from proxylab.cluster.kinds import SHORT_NAMES, plural_of
from proxylab.cluster.objects import (
    EndpointSlice,
    KubeObject,
    Node,
    Pod,
    Service,
    ServicePort,
    ServiceType,
    Taint,
    Unstructured,
)
from proxylab.cluster.slices import slices_of
from proxylab.cluster.workloads import pods_of
from proxylab.evidence.words import endpoint
from proxylab.text import kubectl_table

_WORKLOADS: Final = ("Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "Job")
_OF_PODS: Final = ("name", "ready", "nodes")
_WITH_REPLICAS: Final = ("Deployment", "ReplicaSet", "StatefulSet")
_UNSCHEDULABLE: Final = "node.kubernetes.io/unschedulable"
_MOST_ENDPOINTS: Final = 3
"""The number of endpoints that kubectl lists in a table that is not wide."""

Row = tuple[str, ...]


class ListedKind(Struct, frozen=True):
    """A kind of objects, with its table.

    Attributes:
        cls: the class of its objects.
        named: the kind of unstructured objects.
        head: the heads of the columns, then those that only a wide table has.
        row: the cells of an object in the same order, given all objects of the cluster.
    """

    plural: str
    short: tuple[str, ...]
    cls: type[KubeObject]
    head: Row
    wide: Row
    row: Callable[[Any, Sequence[KubeObject], bool], Row]
    named: str = ""

    @property
    def singular(self) -> str:
        """The name of one object of the kind, as in ``service/echo``."""
        return self.plural if self.plural == "endpoints" else self.plural.removesuffix("s")


def kind_named(word: str, objects: Iterable[KubeObject] = ()) -> ListedKind | None:
    """The kind with this name, which may be singular, plural or short; one of the objects may be of any kind."""
    wanted = word.lower()
    kind = next((kind for kind in KINDS if wanted in (kind.plural, kind.singular, *kind.short)), None)
    kept = (each for each in objects if isinstance(each, Unstructured))
    names = ((each, (each.plural, each.kind.lower(), *SHORT_NAMES.get(each.kind, ()))) for each in kept)
    other = next((each for each, known in names if wanted in known), None)
    if kind is not None or other is None:
        return kind
    return ListedKind(other.plural, (), Unstructured, ("name",), ("labels",), _kept, other.kind)


def of_kind(kind: ListedKind, objects: Iterable[KubeObject], name: str | None = None) -> list[KubeObject]:
    """The objects of a kind; those of that name, which may be ``NAMESPACE/NAME``.

    Example:
        >>> of_kind(KINDS[0], [Node(name="node-a"), Node(name="node-b")], "node-b")
        [Node(name='node-b', labels={}, addresses=(), pod_cidrs=(), taints=(), deleting=False)]
    """
    found = [each for each in objects if isinstance(each, kind.cls)]
    if kind.named:
        found = [each for each in found if isinstance(each, Unstructured) and each.kind == kind.named]
    if name is None:
        return found
    namespace, _, own = name.rpartition("/")
    return [each for each in found if each.name == own and namespace in ("", each.key.namespace)]


def listing(
    kind: ListedKind,
    found: Sequence[KubeObject],
    everything: Sequence[KubeObject],
    *,
    wide: bool,
    several: bool = False,
    with_namespace: bool = False,
) -> list[str]:
    """A table of the objects, or a sentence if there are none. Among tables of ``several`` kinds names have theirs.

    Their namespaces are a column if one of them is another than ``default``, and ``with_namespace``.
    """
    if not found:
        where = "of that namespace, or with those labels" if of_kind(kind, everything) else "in this lab"
        return [f"no {kind.plural} {where}"]
    namespaces = {each.key.namespace for each in found}
    scattered = bool(namespaces - {"", "default"}) or (with_namespace and namespaces != {""})
    head = (*(("namespace",) if scattered else ()), *kind.head, *(kind.wide if wide else ()))
    rows = []
    for each in sorted(found, key=lambda thing: thing.key):
        name, *others = kind.row(each, everything, wide)
        cells = (f"{kind.singular}/{name}" if several else name, *others)
        rows.append((*((each.key.namespace,) if scattered else ()), *(cells if wide else cells[: len(kind.head)])))
    return kubectl_table(head, rows)


def _node(node: Node, _: Sequence[KubeObject], __: bool) -> Row:
    return (
        node.name,
        "Ready" + (",SchedulingDisabled" if any(Taint.of(each).key == _UNSCHEDULABLE for each in node.taints) else ""),
        ",".join(map(str, node.addresses)),
        ",".join(map(str, node.pod_cidrs)),
        _labels(node.labels),
    )


def _pod(pod: Pod, _: Sequence[KubeObject], __: bool) -> Row:
    ready = pod.serving if pod.terminating else pod.ready
    return (
        pod.name,
        f"{int(ready)}/1",
        "Terminating" if pod.terminating else "Running",
        next(map(str, pod.addresses), ""),
        pod.node_name,
        ",".join(map(str, pod.addresses)),
        ",".join(f"{port.port}/{port.protocol}" for port in pod.ports),
        _labels(pod.labels),
    )


def _service(service: Service, _: Sequence[KubeObject], __: bool) -> Row:
    inside = ["None"] if service.headless else [str(each) for each in service.cluster_ips]
    policies = f"{service.internal_traffic_policy}/{service.external_traffic_policy}"
    return (
        service.name,
        str(service.type),
        ",".join(inside),
        _outside(service),
        ",".join(map(_port, service.ports)),
        _labels(service.selector),
        policies,
        "" if service.affinity_timeout is None else f"ClientIP {service.affinity_timeout}s",
    )


def _outside(service: Service) -> str:
    if service.type is ServiceType.EXTERNAL_NAME:
        return service.external_name
    given = [str(each.ip) if each.ip is not None else each.hostname for each in service.load_balancer_ingress]
    addresses = [*given, *map(str, service.external_ips)]
    return ",".join(addresses) or ("<pending>" if service.type is ServiceType.LOAD_BALANCER else "")


def _port(port: ServicePort) -> str:
    return f"{port.port}{f':{port.node_port}' if port.node_port else ''}/{port.protocol}"


def _endpoints(service: Service, everything: Sequence[KubeObject], wide: bool) -> Row:
    """A Service's endpoints; endpoints that are not ready are in parentheses."""
    found = [
        written if each.ready else f"({written})"
        for piece in slices_of(service, everything)
        for port in piece.ports
        for each in piece.endpoints
        for written in [endpoint(each.addresses[0], port.port)]
    ]
    return (service.name, _some(found, wide))


def _some(found: Sequence[str], wide: bool) -> str:
    shown = found if wide else found[:_MOST_ENDPOINTS]
    return ",".join(shown) + (f" + {len(found) - len(shown)} more..." if len(found) > len(shown) else "")


def _slice(piece: EndpointSlice, _: Sequence[KubeObject], wide: bool) -> Row:
    found = [",".join(map(str, each.addresses)) for each in piece.endpoints]
    return (
        piece.name,
        str(piece.address_type),
        ",".join(str(port.port) for port in piece.ports),
        _some(found, wide),
        piece.service,
        ",".join(each.target for each in piece.endpoints if each.target),
    )


def _workload(written: Unstructured, everything: Sequence[KubeObject], _: bool) -> Row:
    """A workload's pods: how many of them are ready, and their names."""
    pods = [each for each in pods_of(written, everything) if not each.terminating]
    spec = written.content.get("spec")
    wanted = spec.get("replicas", 1) if isinstance(spec, Mapping) and written.kind in _WITH_REPLICAS else len(pods)
    ready = sum(each.ready for each in pods)
    return (
        written.name,
        f"{ready}/{wanted}",
        ",".join(sorted({each.node_name for each in pods})),
        ",".join(each.name for each in pods),
    )


def _kept(thing: Unstructured, _: Sequence[KubeObject], __: bool) -> Row:
    return (thing.name, _labels(thing.labels))


def _labels(labels: Mapping[str, str]) -> str:
    return ",".join(f"{key}={value}" for key, value in labels.items())


KINDS: Final = (
    ListedKind("nodes", ("no",), Node, ("name", "status", "internal-ip"), ("pod-cidr", "labels"), _node),
    ListedKind("pods", ("po",), Pod, ("name", "ready", "status", "ip", "node"), ("ips", "ports", "labels"), _pod),
    ListedKind(
        "services",
        ("svc",),
        Service,
        ("name", "type", "cluster-ip", "external-ip", "port(s)"),
        ("selector", "policies", "affinity"),
        _service,
    ),
    ListedKind("endpoints", ("ep",), Service, ("name", "endpoints"), (), _endpoints),
    *(
        ListedKind(plural_of(kind), SHORT_NAMES[kind], Unstructured, _OF_PODS, ("pods",), _workload, kind)
        for kind in _WORKLOADS
    ),
    ListedKind(
        "endpointslices",
        ("eps",),
        EndpointSlice,
        ("name", "addresstype", "ports", "endpoints"),
        ("service", "pods"),
        _slice,
    ),
)
