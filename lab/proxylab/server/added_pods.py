"""The pods that controllers and people add to a lab that stands: their networks and their servers.

A pod answers as those of a scenario do: by its own name, on the ports of its containers and on the numeric target ports
of the Services that select it, those that come later, too. What its image would do is no part of a lab.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final

from msgspec.structs import replace

from proxylab.addresses import Family, IPAddress, IPNetwork, Protocol
from proxylab.cluster.documents import Document
from proxylab.cluster.objects import Service
from proxylab.cluster.store import Event, Store
from proxylab.control.kubernetes.kubelet import CannotRunError
from proxylab.errors import LabError
from proxylab.kernel.netlink.added_pod import build_pod, remove_pod
from proxylab.kernel.netlink.build import Wiring
from proxylab.kernel.netlink.connections import end_connections
from proxylab.kernel.sandbox.netns import NetNs
from proxylab.plan.added_pod import AddedPod, Additions, addresses_of
from proxylab.plan.model import Listener, Plan
from proxylab.traffic.responder import Note, PortsTakenError, Responders


class AddedPods:
    """Runs pods in a lab of that wiring.

    ``networks`` are the pod networks of each node, ``make_netns`` makes a network namespace, and ``note`` is told of
    the requests to their servers.
    """

    def __init__(
        self,
        wiring: Wiring,
        families: Sequence[Family],
        networks: Mapping[str, Sequence[IPNetwork]],
        store: Store,
        make_netns: Callable[[str], NetNs],
        note: Note | None = None,
    ) -> None:
        self._make_netns = make_netns
        self._note = note
        self._wiring = wiring
        self._store = store
        self._additions = Additions(wiring.plan, families, networks)
        self._running: list[tuple[Document, AddedPodRuns]] = []
        store.subscribe(self._serve_new_ports)

    def run(self, document: Document) -> "AddedPodRuns":
        """Make the pod of a document, which is bound to a node. Raises ``CannotRunError``."""
        metadata, spec = document["metadata"], document["spec"]
        node, name = spec["nodeName"], metadata["name"]
        if spec.get("hostNetwork"):
            raise CannotRunError("a lab adds no pods on the host network; write them into its scenario")
        if not self._additions.can_add_to(node):
            raise CannotRunError("a lab adds pods in podNetwork ptp only")
        listeners = [Listener(name, protocol, port) for protocol, port in sorted(set(self._ports(document)))]
        try:
            planned = self._additions.add(name, node, listeners)
        except ValueError as error:
            raise CannotRunError(str(error)) from error
        try:
            running = AddedPodRuns(planned, self._wiring, self._additions, self._make_netns, self._note)
        except (LabError, OSError, PortsTakenError) as error:
            self._additions.give_back(planned)
            raise CannotRunError(str(error)) from error
        self._running.append((document, running))
        return running

    def _serve_new_ports(self, event: Event) -> None:
        """Let pods listen on the target ports of a Service that has come after them."""
        self._running = [each for each in self._running if not each[1].has_ended]
        if isinstance(event.object, Service):
            for document, running in self._running:
                running.listen_also(self._ports(document))

    def _ports(self, document: Document) -> Iterator[tuple[Protocol, int]]:
        labels = (document["metadata"].get("labels") or {}).items()
        for container in document["spec"]["containers"]:
            for port in container.get("ports", ()):
                yield Protocol(port.get("protocol", "TCP")), port["containerPort"]
        namespace = document["metadata"]["namespace"]
        for service in (each for each in self._store.list(Service) if each.selector and each.namespace == namespace):
            if service.selector.items() <= labels:
                yield from (
                    (each.protocol, port) for each in service.ports if isinstance(port := each.target_port, int)
                )


class AddedPodRuns:
    """A pod that runs, until ``end``."""

    def __init__(
        self,
        planned: AddedPod,
        wiring: Wiring,
        additions: Additions,
        make_netns: Callable[[str], NetNs],
        note: Note | None,
    ) -> None:
        self._planned = planned
        self._wiring = wiring
        self._additions = additions
        self._note = note
        self.netns: Final = build_pod(planned, wiring, make_netns)
        self.has_ended = False
        self._responders: list[Responders] = []
        self._listeners: list[Listener] = []
        try:
            self._listen(planned.pod.listeners)
        except BaseException:
            remove_pod(planned, wiring)
            self.netns.close()
            raise

    def listen_also(self, ports: Iterable[tuple[Protocol, int]]) -> None:
        """Listen on further ports, except those on which a command in the pod listens."""
        known = {(each.protocol, each.port) for each in self._listeners}
        name = self._planned.pod.name
        for protocol, port in sorted(set(ports) - known):
            with suppress(PortsTakenError, LabError):
                self._listen([Listener(name, protocol, port)])

    def _listen(self, listeners: Sequence[Listener]) -> None:
        part = Plan(namespaces=(replace(self._planned.pod, listeners=tuple(listeners)),), links=())
        responders = Responders({self._planned.pod.name: self.netns}, part, note=self._note)
        responders.attach(asyncio.get_running_loop())
        self._responders.append(responders)
        self._listeners += listeners

    @property
    def addresses(self) -> tuple[IPAddress, ...]:
        """Its addresses, the primary one first."""
        return addresses_of(self._planned)

    async def end(self) -> None:
        """Stop its servers, and take its network away."""
        self.has_ended = True
        for each in self._responders:
            each.close()
        end_connections(self.netns)
        remove_pod(self._planned, self._wiring)
        self.netns.close()
        self._additions.give_back(self._planned)
