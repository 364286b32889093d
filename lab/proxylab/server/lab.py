"""A lab inside the lab process: its network, its engines and its traffic.

``BuiltLab`` starts engines and responders on a network, and stops them in reverse order. The network
(``proxylab.server.network``) and the engines with their API server (``proxylab.server.control_plane``) are modules of
their own. ``proxylab.server.main`` is where the lab process starts, and ``proxylab.client.session`` starts it.
"""

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from typing import Final, Self

from msgspec import Struct
from msgspec.structs import replace

from proxylab.cluster.objects import (
    ClusterEvent,
    EndpointSlice,
    KubeObject,
    Namespace,
    Node,
    Pod,
    Service,
    ServiceCIDR,
    Unstructured,
)
from proxylab.cluster.store import Store
from proxylab.control.announcements import Announcements
from proxylab.control.balancers import BalancerRoutes, Dial
from proxylab.control.coredns import CoreDns
from proxylab.control.ingress.controller import IngressController
from proxylab.control.node_port_dialler import NodePortDialler
from proxylab.engines.barrier import is_barrier
from proxylab.engines.modes import MODES
from proxylab.engines.protocol import Engine
from proxylab.errors import InternalError, ProgramError
from proxylab.evidence.evidence import Evidence, EvidenceTogether
from proxylab.evidence.lookups import Lookup
from proxylab.evidence.segments import DialogueRecord
from proxylab.kernel.netfilter.iptables_tool import IptablesTool, IptablesVariant
from proxylab.kernel.netlink.connections import end_connections
from proxylab.kernel.netlink.policy_routes import PolicyRoutes
from proxylab.kernel.sandbox.iptables_links import CHOSEN_FIRST, links_to
from proxylab.kernel.sandbox.launcher import Completed, Launcher
from proxylab.kernel.sandbox.netns import NetNs
from proxylab.kernel.sandbox.running import Attached
from proxylab.kernel.sandbox.sysctl import read_sysctl
from proxylab.plan.device_names import ROUTER
from proxylab.plan.dialogue import Dialogue
from proxylab.plan.model import Route, Sysctl
from proxylab.plan.resolved import Query, ResolvedProbe
from proxylab.protocol.messages import Advance, Build, BuildStage, CollectedState, NodeRecord
from proxylab.protocol.standing_labs import Attach, ObjectList
from proxylab.server.conditions import StepConditions
from proxylab.server.control_plane import LabControlPlane
from proxylab.server.kubernetes import PROGRAM, Kubernetes, start_kubernetes
from proxylab.server.network import BuiltNetwork
from proxylab.server.pod_programs import start_commands, start_coredns, start_ingress
from proxylab.server.reached_pods import RequestLogs
from proxylab.server.step import StepRunner
from proxylab.server.traffic import open_runner
from proxylab.timing import Deadline, together
from proxylab.traffic.runner import Runner

_KINDS: Final[tuple[type[KubeObject], ...]] = (
    *(Namespace, Node, Pod, Service, EndpointSlice, ServiceCIDR, ClusterEvent, Unstructured),
)


class BuiltLab(Struct, frozen=True):
    """The parts of one lab. ``stages`` records how long each part of the build took."""

    network: BuiltNetwork
    control_plane: LabControlPlane
    step_runner: StepRunner
    runner: Runner
    stages: tuple[BuildStage, ...]
    _launcher: Launcher
    _variant: IptablesVariant
    _policy_routes: PolicyRoutes
    _balancer_routes: BalancerRoutes | None
    _stack: AsyncExitStack
    kubernetes: Kubernetes | None = None
    _name_servers: CoreDns | None = None
    _ingress: IngressController | None = None

    @classmethod
    async def build(
        cls, request: Build, launcher: Launcher, variant: IptablesVariant, network: BuiltNetwork, laid: BuildStage
    ) -> Self:
        """Start an engine in every node of the network, and wait until all have programmed the objects.

        ``laid`` says how long the network took.

        Raises:
            CapabilityError: the machine lacks something that the engine needs.
            EngineError: an engine did not start, or did not synchronise in time.
        """
        began, wiring = time.monotonic(), network.wiring
        async with AsyncExitStack() as stack:
            control_plane = await LabControlPlane.begin(request, network, launcher, variant)
            stack.push_async_callback(control_plane.close)
            synchronised, store = time.monotonic(), control_plane.store
            policy_routes = PolicyRoutes(wiring)
            stack.callback(policy_routes.install, None)
            packet_lock = asyncio.Lock()
            balancer_routes = await _follow_nodes(request, network, launcher, variant, store, packet_lock, stack)
            announcements = Announcements(wiring, store)
            stack.callback(announcements.close)
            announcements.start()
            logs = RequestLogs() if PROGRAM in request.programs else None

            def told(pod: str) -> Callable[[str], None]:
                return (lambda _: None) if logs is None else logs.of(pod).add

            name_servers = await start_coredns(request, network, control_plane, launcher, stack, told)
            ingress = await start_ingress(request, network, control_plane, launcher, stack, told)
            await start_commands(request, network, launcher, stack, told)
            certificate, note = ingress.certificate if ingress else "", None if logs is None else logs.note
            runner = open_runner(request, network, control_plane, packet_lock, stack, certificate, note)
            kubernetes = None
            if logs is not None:
                binary, iptables = request.programs[PROGRAM], variant.name
                kubernetes = await start_kubernetes(
                    binary,
                    network,
                    control_plane,
                    launcher,
                    iptables,
                    logs,
                    runner,
                    stack,
                    takes_over=request.takes_over,
                    to_join=request.to_join,
                )
            stages = (
                laid,
                BuildStage("synchronise", synchronised - began),
                BuildStage("open responders", time.monotonic() - synchronised),
            )
            return cls(
                network,
                control_plane,
                _step_runner(
                    request,
                    network,
                    control_plane,
                    runner,
                    balancer_routes,
                    announcements,
                    name_servers,
                    ingress,
                    kubernetes,
                ),
                runner,
                stages,
                launcher,
                variant,
                policy_routes,
                balancer_routes,
                stack.pop_all(),
                kubernetes,
                name_servers,
                ingress,
            )

    async def advance(self, request: Advance) -> None:
        """Make one step of the scenario.

        Raises:
            EngineError: an engine did not start, or what the step waits for did not come.
            CapabilityError: the machine lacks something that the change needs.
        """
        await self.step_runner.advance(request)
        self.runner.continue_flows()

    async def raise_if_ended(self) -> None:
        """Raise if a process that the lab rests on has ended, and no step ended it.

        Raises:
            EngineError: a proxy's.
            ProgramError: one of the real control plane's, CoreDNS or nginx.
        """
        await self.control_plane.fleet.raise_if_ended()
        for programs in (self.kubernetes, self._name_servers, self._ingress):
            if programs is not None:
                await programs.raise_if_ended()

    async def send(self, resolved: ResolvedProbe, *, trace: bool = False) -> Evidence:
        """Run one probe, by its policy route if it has one; with ``trace``, follow its packet through the rules.

        Raises:
            CapabilityError: the kernel cannot trace packets in a network namespace.
            EngineError: a proxy's process has ended.
            ProgramError: a process of the real control plane has.
        """
        await self.raise_if_ended()
        await self.step_runner.rest()
        self._policy_routes.install(resolved.policy_route)
        await self.control_plane.pod_rules.settle(self.control_plane.store)
        if self._balancer_routes is not None:
            await self._balancer_routes.settle()  # the probe tests the rules, not the balancers' delay
        return await self.runner.run(resolved, trace=trace)

    async def send_together(self, probes: Sequence[ResolvedProbe]) -> EvidenceTogether:
        """Run probes one after another, between two readings of the counters. Raises what ``send`` raises."""
        await self.raise_if_ended()
        await self.step_runner.rest()
        if self._balancer_routes is not None:
            await self._balancer_routes.settle()
        return await self.runner.run_together(probes, self._policy_routes.install)

    async def ask(self, netns_name: str, query: Query, deadline: Deadline) -> Lookup:
        """Look up a name from a node or pod, and wait for the answer until the deadline."""
        from proxylab.control.dns_client import ask  # noqa: PLC0415 - 60 ms of dnspython, for labs with names

        async with self.runner.packet_lock:
            return await ask(self.netns(netns_name), query, deadline)

    async def converse(self, dialogue: Dialogue) -> DialogueRecord:
        """Hold a dialogue by crafted segments, by its client's policy route if it has one.

        Raises:
            CapabilityError: the kernel cannot be kept out of it.
            EngineError: a proxy's process has ended.
            ProgramError: a process of the real control plane has.
        """
        await self.raise_if_ended()
        await self.step_runner.rest()
        self._policy_routes.install(dialogue.there.policy_route)
        await self.control_plane.pod_rules.settle(self.control_plane.store)
        if self._balancer_routes is not None:
            await self._balancer_routes.settle()
        return await self.runner.converse(dialogue)

    async def dump(self, node: str) -> str:
        """The rules of one node as the kernel has them."""
        return MODES[self.control_plane.fleet.mode(node)].without_barrier(await self._engine(node).dump())

    def _engine(self, node: str) -> Engine:
        engines = self.control_plane.fleet.engines
        if node not in engines:
            raise InternalError(f"no node {node!r} in this lab; there are {', '.join(engines)}")
        return engines[node]

    async def collect_state(self) -> CollectedState:
        """What is left of the last probe: its frames, and the current state of every node."""
        engines = self.control_plane.fleet.engines
        records = tuple(
            NodeRecord(name, text, engines[name].logs(), tuple(self._sysctls(name)))
            for name, text in (await self._rules()).items()
        )
        return CollectedState(self.runner.capture(), records, self._balanced)

    @property
    def _balanced(self) -> tuple[Route, ...]:
        """The routes that balancers have made in the router."""
        return () if self._balancer_routes is None else self._balancer_routes.standing

    async def _rules(self) -> dict[str, str]:
        """The rules of every node."""
        engines = self.control_plane.fleet.engines
        return dict(zip(engines, await together(self.dump(node) for node in engines), strict=True))

    def _sysctls(self, node: str) -> Iterator[Sysctl]:
        """A node's planned sysctls with the values that the kernel has now."""
        for planned in self.network.wiring.plan.namespace(node).sysctls:
            value = read_sysctl(self.network.wiring.namespaces[node], planned.name)
            if value is not None:
                yield replace(planned, value=value)

    async def execute(self, netns_name: str, argv: tuple[str, ...], deadline: Deadline) -> Completed:
        """Run a command in a node, pod or host. Raises ``TimeoutError`` when it has not ended by the deadline."""
        netns = self.netns(netns_name)
        return await self._launcher.run(
            netns,
            argv,
            netns_name=f"{self.network.number}/{netns.name}",
            links=self._links(netns),
            environment={"PATH": CHOSEN_FIRST},
            deadline=deadline,
        )

    async def attach(self, request: Attach, standard: Sequence[int]) -> Attached:
        """Start a command in a node, pod or host on a client's own standard streams."""
        netns = self.netns(request.netns_name)
        known_as, reaches = f"{self.network.number}/{netns.name}", dict[str, str]()
        if self.kubernetes is not None:
            reaches = await self.kubernetes.api_in_pods.environment(netns, known_as)
        return await self._launcher.start_attached(
            netns,
            request.argv,
            netns_name=known_as,
            standard=standard,
            terminal=request.terminal,
            directory=request.directory,
            links=self._links(netns),
            environment={"PATH": CHOSEN_FIRST, **request.environment, **reaches},
        )

    def _links(self, netns: NetNs) -> dict[str, str]:
        """Links to the programs of a node, or to the machine's own."""
        context = self.control_plane.contexts.get(netns.name)
        return links_to(self._variant.name) if context is None else context.links

    def netns(self, netns_name: str) -> NetNs:
        """The namespace of a node, pod or host; a pod's may be its node's, or one that it shares."""
        homes = {pod.name: pod.namespace for pod in self.network.wiring.plan.pods}
        found = self.network.wiring.namespaces.get(homes.get(netns_name, netns_name))
        if found is None and self.kubernetes is not None and (added := self.kubernetes.pods.added(netns_name)):
            return added.netns
        if found is None:
            raise InternalError(f"no {netns_name!r} in this lab; there are {', '.join(self.network.wiring.namespaces)}")
        return found

    def log(self, node: str) -> tuple[str, ...]:
        """The log of a node's engine, as far as it is kept."""
        return self._engine(node).logs()

    def objects(self) -> tuple[KubeObject, ...]:
        """All objects that the API server shows, by kind, namespace and name."""
        return tuple(thing for kind in _KINDS for thing in self.control_plane.store.list(kind) if not is_barrier(thing))

    async def listed(self) -> ObjectList:
        """The same, with their revisions; where a real API has more than the store mirrors, as that has it now.

        Raises ``ProgramError`` where that does not answer.
        """
        objects, store = self.objects(), self.control_plane.store
        if self.kubernetes is None:
            return ObjectList(objects, tuple(store.revision_of(each.key) for each in objects))
        kept = self.kubernetes.kept
        try:
            now = await kept.now()
        except OSError as error:
            raise ProgramError("the control plane", f"does not answer: {error}") from error
        mirrored = [each for each in objects if not (isinstance(each, Unstructured) and kept.has(each.kind))]
        revisions = (*(store.revision_of(each.key) for each in mirrored), *(each.revision for each in now))
        return ObjectList((*mirrored, *(each.thing for each in now)), revisions)

    async def stop(self) -> None:
        """Stop the engines and the responders, and end the connections that are left.

        A socket in the midst of closing waits for its peer, which a step may have blackholed, and keeps its namespace
        alive.
        """
        await self._stack.aclose()
        for netns in self.network.wiring.namespaces.values():
            end_connections(netns)


def _step_runner(
    request: Build,
    network: BuiltNetwork,
    control_plane: LabControlPlane,
    runner: Runner,
    balancer_routes: BalancerRoutes | None,
    announcements: Announcements,
    name_servers: CoreDns | None,
    ingress: IngressController | None,
    kubernetes: Kubernetes | None,
) -> StepRunner:
    families, fleet, wiring = request.engine.families, control_plane.fleet, network.wiring
    store = control_plane.store

    async def into_store(applied: Sequence[KubeObject], deleted: Sequence[KubeObject]) -> None:
        for thing in deleted:
            store.delete(thing.key)
        for thing in applied:
            store.apply(thing)

    async def refuse(_: Sequence[str], __: float) -> None:
        raise InternalError("a step runs kubectl in a lab without a real control plane, which clients refuse")

    write, kubectl = (into_store, refuse) if kubernetes is None else (kubernetes.writer.write, kubernetes.kubectl)
    awaited = StepConditions(fleet, wiring.plan, families, runner, balancer_routes, name_servers, ingress)
    return StepRunner(
        store,
        fleet,
        wiring,
        network.links,
        families,
        runner,
        awaited,
        write,
        kubectl,
        control_plane.pod_rules,
        announcements,
        control_plane.api,
        {name: each.loads for name, each in control_plane.contexts.items() if each.loads is not None},
        balancer_routes,
    )


async def _follow_nodes(
    request: Build,
    network: BuiltNetwork,
    launcher: Launcher,
    variant: IptablesVariant,
    store: Store,
    packet_lock: asyncio.Lock,
    stack: AsyncExitStack,
) -> BalancerRoutes | None:
    """Let the router's balancers follow the labels and the health of their nodes; ``None`` where it has none."""
    wiring = network.wiring
    balancers = tuple(each for each in wiring.plan.balancers if not each.announced_by)
    if not balancers:
        return None
    indexes = {each.device: wiring.plan.end(ROUTER, each.device).index for each in balancers}
    router, planned = wiring.namespaces[ROUTER], wiring.plan.namespace(ROUTER).routes
    dial: Dial | None = None
    if any(each.dials_node_ports for each in balancers):
        tool = IptablesTool(launcher, router, f"{network.number}/{ROUTER}", variant)
        dial = NodePortDialler(tool, request.engine.families).write
    routes = BalancerRoutes(router, wiring.routes[ROUTER], indexes, balancers, planned, store, packet_lock, dial)
    stack.push_async_callback(routes.close)
    await routes.start()
    return routes
