"""Keeps the Services, EndpointSlices, Pods, Nodes, Namespaces and Ingresses of the lab's store equal to the real API's.

The proxies, CoreDNS and nginx of the lab follow the store. What people write by kubectl comes here by watches, as a
proxy of a real cluster gets it.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple, Protocol

from proxylab.addresses import Family
from proxylab.cluster.documents import Document, object_of
from proxylab.cluster.kinds import plural_of
from proxylab.cluster.objects import (
    EndpointSlice,
    KubeObject,
    Namespace,
    Node,
    ObjectKey,
    Pod,
    Service,
    Unstructured,
)
from proxylab.cluster.store import Store
from proxylab.control.kubernetes.api_client import ApiClient
from proxylab.control.kubernetes.documents import PODS, SERVICES, SLICES, kept_of, node_of, pod_of, slice_of
from proxylab.control.kubernetes.following import Following
from proxylab.errors import ProgramError
from proxylab.timing import Deadline, DeadlineExceededError, together, wait_until

_NODES: Final = "/api/v1/nodes"
_NAMESPACES: Final = "/api/v1/namespaces"

Reader = Callable[[Document], KubeObject | None]
_CONTROLLER_SECONDS: Final = 30.0


class SlicesOfFamily(NamedTuple):
    """The slices of one Service in one family."""

    namespace: str
    service: str
    family: Family


class Proxies(Protocol):
    """The proxies of the nodes: that of a node runs as long as the API has it.

    kube-proxy ends by itself when its Node is deleted (1.37, OnNodeDelete in pkg/proxy/node.go), and waits for it.
    """

    async def start(self, node: str, /) -> None:
        """Start that of a node that has joined, if it does not run."""

    async def stop(self, node: str, /) -> None:
        """Stop that of a node that leaves, if it runs. Its rules stay."""


class Mirror:
    """Mirrors one API into one store, except the objects that ``is_own`` names: the lab's.

    ``machines`` are all nodes that have a namespace here, as they first are, and ``proxies`` run on them.

    The slices that the lab has worked out for a Service with a selector stay until the controllers have made theirs of
    the same family, so that the Service serves all the time. The controllers make those of each family by themselves.
    """

    def __init__(
        self,
        api: ApiClient,
        store: Store,
        is_own: Callable[[KubeObject], bool],
        machines: Mapping[str, Node],
        proxies: Proxies,
    ) -> None:
        self._api = api
        self._store = store
        self._is_own = is_own
        self._nodes = machines
        self._proxies = proxies
        selecting = {(each.namespace, each.name) for each in store.list(Service) if each.selector}
        self._worked_out: defaultdict[SlicesOfFamily, list[ObjectKey]] = defaultdict(list)
        for each in store.list(EndpointSlice):
            if (each.namespace, each.service) in selecting and not is_own(each):
                self._worked_out[_slices_with(each)].append(each.key)

        def follow(path: str, kind: str, read: Reader, of: type[KubeObject] = Unstructured) -> Following:
            return Following(api, path, partial(self._take_all, of, kind, read), partial(self._take, kind, read))

        def keep(kind: str, group: str, version: str) -> Following:
            path, read = f"/apis/{group}/{version}/{plural_of(kind)}", partial(kept_of, f"{group}/{version}", kind)
            return follow(path, f"{kind}.{group}", read)

        self._following = [
            follow(_NAMESPACES, "Namespace", partial(object_of, Namespace), Namespace),
            follow(_NODES, "Node", self._node, Node),
            follow(PODS, "Pod", pod_of, Pod),
            follow(SERVICES, "Service", partial(object_of, Service), Service),
            follow(SLICES, "EndpointSlice", slice_of, EndpointSlice),
            keep("IngressClass", "networking.k8s.io", "v1"),
            keep("Ingress", "networking.k8s.io", "v1"),
        ]

    async def start(self) -> None:
        """Take up all objects that there are, and go on with their changes until ``stop``.

        Raises:
            OSError: the API server does not answer.
        """
        await together(each.start() for each in self._following)

    async def settle(self) -> None:
        """Return when no slice that the lab has worked out is left. Raises ``ProgramError``."""
        try:
            deadline = Deadline.after(_CONTROLLER_SECONDS)
            await wait_until(lambda: not self._worked_out, deadline, "the controllers to make EndpointSlices")
        except DeadlineExceededError:
            left = "; ".join(f"{each.namespace}/{each.service} in {each.family}" for each in self._worked_out)
            raise ProgramError("the control plane", f"has made no EndpointSlices of these Services: {left}") from None

    async def stop(self) -> None:
        """End all watches."""
        for each in self._following:
            await each.stop()

    def raise_if_ended(self) -> None:
        """Raise ``ProgramError`` if the store no longer follows the API."""
        for each in self._following:
            each.raise_if_ended()

    async def _take_all(self, of: type[KubeObject], kind: str, read: Reader, documents: Sequence[Document]) -> None:
        """Make the store equal to the collection of that kind."""
        found = [thing for each in documents if (thing := read(each)) is not None]
        kept = {each.key for each in found} | {key for keys in self._worked_out.values() for key in keys}
        for each in self._store.list(of):
            if each.key.kind == kind and each.key not in kept and not self._is_own(each):
                if isinstance(each, Node):
                    await self._proxies.stop(each.name)
                self._store.delete(each.key)
        await self._apply(found)

    async def _take(self, kind: str, read: Reader, change: str, document: Document) -> None:
        metadata = document["metadata"]
        thing = None if change == "DELETED" else read(document)
        if thing is None:  # gone, or no longer what the lab keeps, such as a pod that has ended
            await self._delete(ObjectKey(kind, metadata.get("namespace", ""), metadata["name"]))
        else:
            await self._apply([thing])

    async def _apply(self, things: Iterable[KubeObject]) -> None:
        for thing in things:
            if self._is_own(thing):
                continue
            joins = isinstance(thing, Node) and self._store.get(thing.key) is None
            self._store.apply(thing)
            if joins:
                await self._proxies.start(thing.key.name)
            if isinstance(thing, EndpointSlice):
                for key in self._worked_out.pop(_slices_with(thing), ()):
                    if key != thing.key:
                        self._store.delete(key)

    async def _delete(self, gone: ObjectKey) -> None:
        known = self._store.get(gone)
        if known is not None and not self._is_own(known):
            if isinstance(known, Node):
                await self._proxies.stop(known.name)
            self._store.delete(gone)
        if isinstance(known, Service):
            for family in Family:
                for key in self._worked_out.pop(SlicesOfFamily(gone.namespace, gone.name, family), ()):
                    self._store.delete(key)

    def _node(self, document: Document) -> Node | None:
        """A node of the lab; ``None`` for one that has no namespace here."""
        known = self._nodes.get(document["metadata"]["name"])
        return None if known is None else node_of(document, known)


def _slices_with(one: EndpointSlice) -> SlicesOfFamily:
    return SlicesOfFamily(one.namespace, one.service, one.address_type)
