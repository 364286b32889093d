"""The pods that controllers and people add to a lab that stands: their networks and their servers.

A pod answers as those of a scenario do: by its own name, on the ports of its containers and on the numeric target ports
of the Services that select it, those that come later, too. What its image would do is no part of a lab. One on the host
network listens in its node.
"""

import asyncio
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final

from proxylab.addresses import Family, IPAddress, Protocol
from proxylab.cluster.documents import Document, running_containers
from proxylab.cluster.objects import Node, Service
from proxylab.cluster.store import Event, EventType, Store
from proxylab.control.kubernetes.kubelet import CannotRunError
from proxylab.errors import LabError
from proxylab.kernel.netlink.added_pod import build_pod, remove_pod
from proxylab.kernel.netlink.build import Wiring
from proxylab.kernel.netlink.connections import end_connections
from proxylab.kernel.sandbox.netns import NetNs
from proxylab.plan.added_pod import Added, AddedPod, Additions, addresses_of
from proxylab.plan.model import Listener
from proxylab.traffic.responder import PortsTakenError
from proxylab.traffic.runner import Runner


class AddedPods:
    """Runs pods in a lab of that wiring, where ``runner`` sends the traffic.

    ``nodes`` are its nodes by their names, and ``make_netns`` makes a network namespace.
    """

    def __init__(
        self,
        wiring: Wiring,
        families: Sequence[Family],
        nodes: Mapping[str, Node],
        store: Store,
        make_netns: Callable[[str], NetNs],
        runner: Runner,
    ) -> None:
        self._make_netns = make_netns
        self._wiring = wiring
        self._nodes = nodes
        self._store = store
        self._runner = runner
        self._additions = Additions(wiring.plan, families, {name: each.pod_cidrs for name, each in nodes.items()})
        self._running: dict[AddedPodRuns, Document] = {}
        self._serving: set[asyncio.Task[None]] = set()
        store.subscribe(self._serve_new_ports)

    async def run(self, document: Document) -> "AddedPodRuns":
        """Make the pod of a document, which is bound to a node. Raises ``CannotRunError``."""
        ports = set(self._ports(document))
        planned = self._planned(document, ports)
        try:
            netns = await self._begin(planned)
        except PortsTakenError as error:
            self._additions.give_back(planned)
            raise CannotRunError(f"another program listens on its ports already: {error}") from error
        except (LabError, OSError) as error:
            self._additions.give_back(planned)
            raise CannotRunError(str(error)) from error
        running = AddedPodRuns(planned, netns, self)
        running.ports.update(ports)
        self._running[running] = document
        return running

    def _planned(self, document: Document, ports: Collection[tuple[Protocol, int]]) -> Added:
        metadata, spec = document["metadata"], document["spec"]
        namespace, name, node = metadata["namespace"], metadata["name"], spec["nodeName"]
        if spec.get("hostNetwork"):
            return self._additions.add_on_host(namespace, name, node, self._nodes[node].addresses, sorted(ports))
        if not self._additions.can_add_to(node):
            raise CannotRunError("a lab adds pods in podNetwork ptp only, or on the host network")
        try:
            return self._additions.add(namespace, name, node, sorted(ports))
        except ValueError as error:
            raise CannotRunError(str(error)) from error

    async def _begin(self, planned: Added) -> NetNs:
        """Make a pod's network, if it has one of its own, and its servers; returns where these listen."""
        if not isinstance(planned, AddedPod):
            netns = self._wiring.namespaces[planned.pod.name]
            await self._runner.add_pod(planned, netns)
            return netns
        netns = build_pod(planned, self._wiring, self._make_netns)
        try:
            await self._runner.add_pod(planned, netns)
        except BaseException:
            remove_pod(planned, self._wiring)
            netns.close()
            raise
        return netns

    async def end(self, running: "AddedPodRuns") -> None:
        """Stop a pod's servers, and take its own network away."""
        del self._running[running]
        planned = running.planned
        await self._runner.remove_pod(running.name)
        if isinstance(planned, AddedPod):
            end_connections(running.netns)
            remove_pod(planned, self._wiring)
            running.netns.close()
        self._additions.give_back(planned)

    def _serve_new_ports(self, event: Event) -> None:
        """Let pods listen on the target ports of a Service that has come after them."""
        if not isinstance(service := event.object, Service) or event.type is EventType.DELETED:
            return
        for running, document in self._running.items():
            if further := sorted(set(_ports_for(service, document)) - running.ports):
                running.ports.update(further)
                serving = asyncio.ensure_future(self._serve(running, further))
                self._serving.add(serving)
                serving.add_done_callback(self._serving.discard)

    async def _serve(self, running: "AddedPodRuns", ports: Sequence[tuple[Protocol, int]]) -> None:
        name = running.name
        with suppress(PortsTakenError, LabError):  # a command in the pod listens there
            await self._runner.serve(running.planned, [Listener(name, *each) for each in ports])

    def _ports(self, document: Document) -> Iterator[tuple[Protocol, int]]:
        for container in running_containers(document["spec"]):
            for port in container.get("ports", ()):
                yield Protocol(port.get("protocol", "TCP")), port["containerPort"]
        for service in self._store.list(Service):
            yield from _ports_for(service, document)


def _ports_for(service: Service, document: Document) -> Iterator[tuple[Protocol, int]]:
    """The ports at which a pod gets what a Service sends it, as far as the Service says their numbers."""
    metadata = document["metadata"]
    if not service.selector or service.namespace != metadata["namespace"]:
        return
    if service.selector.items() <= (metadata.get("labels") or {}).items():
        yield from ((each.protocol, port) for each in service.ports if isinstance(port := each.target_port, int))


class AddedPodRuns:
    """A pod that runs, until ``end``. ``ports`` are those on which it listens, in ``netns``."""

    def __init__(self, planned: Added, netns: NetNs, pods: AddedPods) -> None:
        self.planned: Final = planned
        self.netns: Final = netns
        self.ports: Final[set[tuple[Protocol, int]]] = set()
        self._pods = pods

    @property
    def addresses(self) -> tuple[IPAddress, ...]:
        """Its addresses, the primary one first."""
        return addresses_of(self.planned)

    @property
    def name(self) -> str:
        """Its name in the plan."""
        return self.planned.placement.name

    @property
    def has_own_network(self) -> bool:
        """Whether ``netns`` is its own, and not its node's."""
        return isinstance(self.planned, AddedPod)

    async def end(self) -> None:
        """Stop its servers, and take its own network away."""
        await self._pods.end(self)
