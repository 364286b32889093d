"""Writes what a scenario changes into the real API, as its author would by kubectl, and waits for the controllers.

The EndpointSlices of Services with a selector are the controllers' own. The lab derives them, too (``cluster.slices``),
and a change is over once both agree: where they never do, the error says how they differ.

A pod or node that a step lets terminate keeps a finalizer, so that its object stays until a step deletes it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from proxylab.addresses import Family
from proxylab.cluster.documents import Document, labels_of
from proxylab.cluster.objects import (
    Endpoint,
    EndpointPort,
    EndpointSlice,
    KubeObject,
    Namespace,
    Node,
    ObjectKey,
    Pod,
    Service,
    Unstructured,
)
from proxylab.cluster.slices import CONTROLLER, MANAGED_BY_LABEL, derive_slices
from proxylab.cluster.store import Store
from proxylab.control.kubernetes.api_client import ApiClient, ApiRefusedError
from proxylab.control.kubernetes.documents import (
    FINALIZER,
    LABELS_OF_CONTROLLER,
    MERGE,
    collection_of,
    created,
    node_status,
    pod_status,
    service_status,
)
from proxylab.errors import ProgramError
from proxylab.timing import Deadline, DeadlineExceededError, together, wait_until

_SETTLE_SECONDS: Final = 30.0
_OF_TOPOLOGY: Final = "topology.kubernetes.io/"
"""Labels that the API server copies from its node to a pod that is bound to it (PodTopologyLabels, since 1.35)."""

_NONE: Final[Mapping[str, Any]] = {}
_AT_ONCE: Final = 16
_ADOPTED: Final[tuple[type[KubeObject], ...]] = (Namespace, Node, Pod, Service, EndpointSlice)
"""What people see of the store, in the order in which one thing rests on another."""
_KEPT: Final = (
    *("ConfigMap", "Secret", "ServiceAccount", "IngressClass", "Ingress", "NetworkPolicy", "PodDisruptionBudget"),
    *("Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding", "PriorityClass"),
)
"""Further kinds that people see: those of which no controller makes anything, and that refuse nothing."""


class SlicesOfPorts(NamedTuple):
    """The slices of one Service in one family with the same ports."""

    namespace: str
    service: str
    family: Family
    ports: frozenset[EndpointPort]


_Slices = Mapping[SlicesOfPorts, frozenset[Endpoint]]


class ApiWriter:
    """Writes into one API, which ``store`` mirrors.

    ``is_own`` names the lab's own objects in the store; ``machines`` are all nodes that the API may ever have.
    """

    def __init__(
        self, api: ApiClient, store: Store, is_own: Callable[[KubeObject], bool], machines: Mapping[str, Node]
    ) -> None:
        self._api = api
        self._store = store
        self._is_own = is_own
        self._nodes = machines
        self.writing: Final[set[ObjectKey]] = set()
        """The Services that are being written, and have no address yet."""
        self._version = ""  # of the API server, which the lab's kubelets say they have

    async def adopt(self) -> None:
        """Create the objects of the store in an API that is new. Raises ``ProgramError`` where it refuses one.

        A scenario's Deployments and other workloads follow later (``workloads``), once their pods are known.
        """
        self._version = (await self._api.request("GET", "/version"))["gitVersion"]
        there = [each for kind in _ADOPTED for each in self._store.list(kind) if not self._is_own(each)]
        selecting = {(each.namespace, each.name) for each in there if isinstance(each, Service) and each.selector}
        nodes = {each.name for each in there if isinstance(each, Node)}
        # A pod comes before the Services that select it, and so is in their first slices.
        for kind in _ADOPTED:
            things = [each for each in there if isinstance(each, kind)]
            if kind is Pod:
                things = [each for each in things if isinstance(each, Pod) and each.node_name in nodes]
            elif kind is EndpointSlice:
                of_authors = (each for each in things if isinstance(each, EndpointSlice))
                things = [each for each in of_authors if (each.namespace, each.service) not in selecting]
            await self._all(self._create, things)
        await self._all(self._create, [each for each in self._store.list(Unstructured) if each.kind in _KEPT])

    async def write(self, applied: Sequence[KubeObject], deleted: Sequence[KubeObject]) -> None:
        """Make these objects so, delete those, and return when the store has all that follows.

        Raises:
            ProgramError: the API server refuses an object, or the controllers make other slices than the lab derives.
        """
        wanted = [each for each in applied if _is_written(each)]
        gone = [each for each in deleted if _is_written(each)]
        await self._all(self._delete, gone)
        for kind in _ADOPTED:
            await self._all(self._apply, [each for each in wanted if isinstance(each, kind)])
        await self.settle(wanted, [each.key for each in gone])

    async def settle(self, applied: Sequence[KubeObject] = (), deleted: Sequence[ObjectKey] = ()) -> None:
        """Return when the store has these objects, and the slices that follow from its Services, pods and nodes.

        Raises ``ProgramError`` where it never does.
        """
        try:
            deadline = Deadline.after(_SETTLE_SECONDS)
            await wait_until(lambda: not self._missing(applied, deleted), deadline, "the controllers to follow")
        except DeadlineExceededError:
            raise ProgramError(
                "the control plane", f"has not made what the lab expects: {self._missing(applied, deleted)}"
            ) from None

    def _missing(self, applied: Sequence[KubeObject], deleted: Sequence[ObjectKey]) -> str:
        """The first thing that the store does not have as it should; empty if it has all."""
        for thing in applied:
            found = self._store.get(thing.key)
            if found is None or not _is_alike(thing, found):
                return f"{thing.key} is {found}, not {thing}"
        for key in deleted:
            if self._store.get(key) is not None:
                return f"{key} is still there"
        services = [each for each in self._store.list(Service) if each.selector and not self._is_own(each)]
        selecting = {(each.namespace, each.name) for each in services}
        real = _by_ports(
            each for each in self._store.list(EndpointSlice) if (each.namespace, each.service) in selecting
        )
        own = _by_ports(derive_slices(services, self._store.list(Pod), self._store.list(Node)))
        for at in (*own, *real):
            if own.get(at) != real.get(at):
                namespace, name, family, _ = at
                ends = (_ends(each.get(at, frozenset())) for each in (real, own))
                return "Service {}/{} has {} endpoints {}, not {}".format(namespace, name, family, *ends)
        return ""

    async def _all(self, act: Callable[[Any], Any], things: Sequence[KubeObject]) -> None:
        for first in range(0, len(things), _AT_ONCE):
            await together(act(each) for each in things[first : first + _AT_ONCE])

    async def _create(self, thing: KubeObject) -> None:
        await self._bring(thing, None)

    async def _apply(self, thing: KubeObject) -> None:
        await self._bring(thing, await self._get(thing))

    async def _bring(self, thing: KubeObject, there: Document | None) -> None:
        """Make an object so, which is ``there`` already in another state, or not at all."""
        try:
            match thing:
                case Pod():
                    await self._apply_pod(thing, there)
                case Node():
                    await self._apply_node(thing, there)
                case Service() | EndpointSlice():
                    await self._replace(thing, there)
                case _ if there is None:
                    await self._api.request("POST", collection_of(thing), created(thing))
        except ApiRefusedError as error:
            if isinstance(thing, Namespace | Unstructured) and error.status == HTTPStatus.CONFLICT:
                return  # such as those that every cluster has, which the API server makes meanwhile
            raise ProgramError("kube-apiserver", f"refuses {thing.key}: {error.message}") from error

    async def _replace(self, thing: Service | EndpointSlice, there: Document | None) -> None:
        self.writing.add(thing.key)
        try:
            await self._replace_with_status(thing, there)
        finally:
            self.writing.discard(thing.key)

    async def _replace_with_status(self, thing: Service | EndpointSlice, there: Document | None) -> None:
        body = created(thing)
        if there is None:
            await self._api.request("POST", collection_of(thing), body)
        else:
            metadata = {**body["metadata"], "resourceVersion": there["metadata"]["resourceVersion"]}
            await self._api.request("PUT", _path(thing), {**body, "metadata": metadata})
        had = (there or {}).get("status", {}).get("loadBalancer")
        if isinstance(thing, Service) and (thing.load_balancer_ingress or had):
            await self._api.request("PATCH", f"{_path(thing)}/status", service_status(thing), MERGE)

    async def _apply_pod(self, pod: Pod, there: Document | None) -> None:
        if there is not None and "deletionTimestamp" in there["metadata"] and not pod.terminating:
            await self._delete(pod)  # one that terminates never comes back; another one of its name does
            there = None
        if there is None:
            await self._api.request("POST", collection_of(pod), created(pod))
        else:
            await self._label(pod, there)
        reported = replace(pod, ready=pod.serving if pod.terminating else pod.ready)
        status = pod_status(reported, self._nodes[pod.node_name].addresses, _now())
        await self._api.request("PATCH", f"{_path(pod)}/status", status, MERGE)
        if pod.terminating and (there is None or "deletionTimestamp" not in there["metadata"]):
            await self._let_terminate(pod)

    async def _apply_node(self, node: Node, there: Document | None) -> None:
        if there is not None and "deletionTimestamp" in there["metadata"] and not node.deleting:
            await self._delete(node)
            there = None
        if there is None:
            await self._api.request("POST", collection_of(node), created(node))
            await self._api.request("PATCH", f"{_path(node)}/status", node_status(node, self._version, _now()), MERGE)
        else:
            await self._label(node, there, spec={"taints": created(node)["spec"].get("taints")})
        if node.deleting and (there is None or "deletionTimestamp" not in there["metadata"]):
            await self._let_terminate(node)

    async def _label(self, thing: Pod | Node, there: Document, **more: Document) -> None:
        """Give an object its labels, and no others."""
        wanted, had = labels_of(thing), there["metadata"].get("labels") or {}
        gone = (key for key in had if not _is_of_server(thing, key))
        labels = {**dict.fromkeys(gone), **wanted}
        await self._api.request("PATCH", _path(thing), {"metadata": {"labels": labels}, **more}, MERGE)

    async def _let_terminate(self, thing: Pod | Node) -> None:
        await self._api.request("PATCH", _path(thing), {"metadata": {"finalizers": [FINALIZER]}}, MERGE)
        await self._api.request("DELETE", _path(thing), {"gracePeriodSeconds": 0})

    async def _delete(self, thing: KubeObject) -> None:
        try:
            if isinstance(thing, Pod | Node):
                await self._api.request("PATCH", _path(thing), {"metadata": {"finalizers": None}}, MERGE)
            await self._api.request("DELETE", _path(thing), {"gracePeriodSeconds": 0})
        except ApiRefusedError as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise ProgramError("kube-apiserver", f"does not delete {thing.key}: {error.message}") from error

    async def _get(self, thing: KubeObject) -> Document | None:
        try:
            return await self._api.request("GET", _path(thing))
        except ApiRefusedError as error:
            if error.status == HTTPStatus.NOT_FOUND:
                return None
            raise


def _is_of_server(thing: Pod | Node, label: str) -> bool:
    """Whether the API server or a controller adds that label by itself."""
    return label in LABELS_OF_CONTROLLER if isinstance(thing, Node) else label.startswith(_OF_TOPOLOGY)


def _is_written(thing: KubeObject) -> bool:
    """Whether people write such an object; the others are the controllers', or the lab's API alone serves them."""
    match thing:
        case EndpointSlice():
            return thing.labels.get(MANAGED_BY_LABEL) != CONTROLLER
        case Namespace() | Node() | Pod() | Service():
            return True
    return False


def _is_alike(wanted: KubeObject, found: KubeObject) -> bool:
    """Whether an object of the API is what was written, but for what the API server adds."""
    match wanted, found:
        case Pod(), Pod():
            readiness = (found.serving == wanted.serving) if wanted.terminating else (found.ready == wanted.ready)
            own = {key: value for key, value in found.labels.items() if not key.startswith(_OF_TOPOLOGY)}
            own |= {key: value for key, value in found.labels.items() if key in wanted.labels}
            is_same = (wanted.labels, wanted.addresses, wanted.terminating) == (own, found.addresses, found.terminating)
            return readiness and is_same
        case Node(), Node():
            is_same = (wanted.labels, wanted.deleting) == (found.labels, found.deleting)
            return is_same and {*wanted.taints} <= {*found.taints}
        case Service(), Service():
            return _bare(wanted) == _bare(found)
        case EndpointSlice(), EndpointSlice():
            return {*wanted.endpoints} == {*found.endpoints} and {*wanted.ports} == {*found.ports}
    return True


def _bare(service: Service) -> Service:
    return replace(service, labels=_NONE, annotations=_NONE, stored=_NONE)


def _by_ports(slices: Iterable[EndpointSlice]) -> _Slices:
    """The endpoints of all Services by family and ports, however the slices cut them."""
    found: dict[SlicesOfPorts, frozenset[Endpoint]] = {}
    for each in slices:
        if each.endpoints:
            key = SlicesOfPorts(each.namespace, each.service, each.address_type, frozenset(each.ports))
            found[key] = found.get(key, frozenset()) | {*each.endpoints}
    return found


def _ends(endpoints: Iterable[Endpoint]) -> str:
    def words(each: Endpoint) -> Iterator[str]:
        yield str(each.addresses[0])
        yield from (word for word in ("ready", "serving", "terminating") if getattr(each, word))
        yield from (f"{name}={value}" for name in ("zone", "node_name") if (value := getattr(each, name)))
        yield from (f"for {name}" for name in (*each.for_zones, *each.for_nodes))

    return "; ".join(sorted(" ".join(words(each)) for each in endpoints)) or "none"


def _path(thing: KubeObject) -> str:
    return f"{collection_of(thing)}/{thing.name}"


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
