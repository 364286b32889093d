"""The pods that controllers and people add to a lab that stands: their networks and their servers.

A pod answers as those of a scenario do: by its own name, on the ports of its containers and on the numeric target ports
of the Services that select it, those that come later, too. What its image would do is no part of a lab.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final

from proxylab.addresses import Family, IPAddress, IPNetwork, Protocol
from proxylab.cluster.documents import Document, running_containers
from proxylab.cluster.objects import Service
from proxylab.cluster.store import Event, Store
from proxylab.control.kubernetes.kubelet import CannotRunError
from proxylab.errors import LabError
from proxylab.kernel.netlink.added_pod import build_pod, remove_pod
from proxylab.kernel.netlink.build import Wiring
from proxylab.kernel.netlink.connections import end_connections
from proxylab.kernel.sandbox.netns import NetNs
from proxylab.plan.added_pod import AddedPod, Additions, addresses_of
from proxylab.plan.model import Listener
from proxylab.traffic.responder import PortsTakenError
from proxylab.traffic.runner import Runner


class AddedPods:
    """Runs pods in a lab of that wiring, where ``runner`` sends the traffic.

    ``networks`` are the pod networks of each node, and ``make_netns`` makes a network namespace.
    """

    def __init__(
        self,
        wiring: Wiring,
        families: Sequence[Family],
        networks: Mapping[str, Sequence[IPNetwork]],
        store: Store,
        make_netns: Callable[[str], NetNs],
        runner: Runner,
    ) -> None:
        self._make_netns = make_netns
        self._wiring = wiring
        self._store = store
        self._runner = runner
        self._additions = Additions(wiring.plan, families, networks)
        self._running: dict[AddedPodRuns, Document] = {}
        self._serving: set[asyncio.Task[None]] = set()
        store.subscribe(self._serve_new_ports)

    async def run(self, document: Document) -> "AddedPodRuns":
        """Make the pod of a document, which is bound to a node. Raises ``CannotRunError``."""
        metadata, spec = document["metadata"], document["spec"]
        node, name = spec["nodeName"], metadata["name"]
        if spec.get("hostNetwork"):
            raise CannotRunError("a lab adds no pods on the host network; write them into its scenario")
        if not self._additions.can_add_to(node):
            raise CannotRunError("a lab adds pods in podNetwork ptp only")
        ports = set(self._ports(document))
        try:
            planned = self._additions.add(metadata["namespace"], name, node, sorted(ports))
        except ValueError as error:
            raise CannotRunError(str(error)) from error
        try:
            netns = build_pod(planned, self._wiring, self._make_netns)
            try:
                await self._runner.add_pod(planned, netns)
            except BaseException:
                remove_pod(planned, self._wiring)
                netns.close()
                raise
        except (LabError, OSError, PortsTakenError) as error:
            self._additions.give_back(planned)
            raise CannotRunError(str(error)) from error
        running = AddedPodRuns(planned, netns, self)
        running.ports.update(ports)
        self._running[running] = document
        return running

    async def end(self, running: "AddedPodRuns") -> None:
        """Stop a pod's servers, and take its network away."""
        del self._running[running]
        await self._runner.remove_pod(running.planned.pod.name)
        end_connections(running.netns)
        remove_pod(running.planned, self._wiring)
        running.netns.close()
        self._additions.give_back(running.planned)

    def _serve_new_ports(self, event: Event) -> None:
        """Let pods listen on the target ports of a Service that has come after them."""
        if not isinstance(event.object, Service):
            return
        for running, document in self._running.items():
            if further := sorted(set(self._ports(document)) - running.ports):
                running.ports.update(further)
                serving = asyncio.ensure_future(self._serve(running, further))
                self._serving.add(serving)
                serving.add_done_callback(self._serving.discard)

    async def _serve(self, running: "AddedPodRuns", ports: Sequence[tuple[Protocol, int]]) -> None:
        name = running.planned.pod.name
        with suppress(PortsTakenError, LabError):  # a command in the pod listens there
            await self._runner.serve(running.planned, [Listener(name, *each) for each in ports])

    def _ports(self, document: Document) -> Iterator[tuple[Protocol, int]]:
        labels = (document["metadata"].get("labels") or {}).items()
        for container in running_containers(document["spec"]):
            for port in container.get("ports", ()):
                yield Protocol(port.get("protocol", "TCP")), port["containerPort"]
        namespace = document["metadata"]["namespace"]
        for service in (each for each in self._store.list(Service) if each.selector and each.namespace == namespace):
            if service.selector.items() <= labels:
                yield from (
                    (each.protocol, port) for each in service.ports if isinstance(port := each.target_port, int)
                )


class AddedPodRuns:
    """A pod that runs, until ``end``. ``ports`` are those on which it listens."""

    def __init__(self, planned: AddedPod, netns: NetNs, pods: AddedPods) -> None:
        self.planned: Final = planned
        self.netns: Final = netns
        self.ports: Final[set[tuple[Protocol, int]]] = set()
        self._pods = pods

    @property
    def addresses(self) -> tuple[IPAddress, ...]:
        """Its addresses, the primary one first."""
        return addresses_of(self.planned)

    async def end(self) -> None:
        """Stop its servers, and take its network away."""
        await self._pods.end(self)
