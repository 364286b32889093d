"""Makes the steps of a scenario in a lab.

Engines that a step ends are down before anything changes, so they see nothing of the step; those that it starts begin
with the cluster as the step leaves it.

A deleted pod keeps its namespace on the network, where taps still see what comes to it; but nothing leaves the
namespace any more, as from a machine that is gone. Its program lives until the step's wait is over, like a program with
time to terminate: once proxies know of the deletion, no packet should go to it any more. Then it closes its
connections, and its namespace is blackholed. A shared namespace is blackholed when all its pods are gone. A pod in its
node's namespace disappears only from the API, since its node lives on.

When a step ends, the lab reads what engines export at /metrics, the embedded ones and the real kube-proxy alike, so
that the page shows the sync of the step's change: a node's engine reflects a change once its sync is over, or once its
next sync has begun (``wait_synced``), and both set these metrics in a sync.
"""

import time
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from msgspec.structs import replace

from proxylab.addresses import Family, IPAddress
from proxylab.cluster.configuration import SocketAddress
from proxylab.cluster.objects import KubeObject, Node, Pod
from proxylab.cluster.store import Event, EventType, Store
from proxylab.control.announcements import Announcements
from proxylab.control.apiserver import ApiServer
from proxylab.control.balancers import BalancerRoutes
from proxylab.control.http_client import fetch
from proxylab.engines.fleet import Fleet
from proxylab.engines.rule_loads import NodeLoads
from proxylab.errors import EngineError, InternalError
from proxylab.evidence.evidence import TableEntry
from proxylab.evidence.stream_records import Exported, Sample, StepEvidence
from proxylab.kernel.netlink.build import Wiring
from proxylab.kernel.netlink.links import cut, mend
from proxylab.kernel.netlink.netem import Counters, NetemLinks
from proxylab.kernel.netlink.renumber import renumber
from proxylab.kernel.netlink.requests import blackhole, end_blackhole
from proxylab.kernel.sandbox.netns import NetNs
from proxylab.kernel.sandbox.sysctl import write_sysctls
from proxylab.plan.device_names import ROUTER
from proxylab.plan.impairments import LinkDirection
from proxylab.plan.lookup import own_addresses_of
from proxylab.plan.model import Plan, Role, Sysctl
from proxylab.plan.outages import Links
from proxylab.plan.renumbering import moves_of, renumbered
from proxylab.plan.resolved import ResolvedProbe, Sentinel
from proxylab.protocol.messages import Advance, PodStage
from proxylab.scenario.change import ApiFault, ApiServerChange, LoadFault, NodeChange
from proxylab.server.conditions import StepConditions
from proxylab.server.pod_rules import PodRules
from proxylab.timing import Deadline, pass_by
from proxylab.traffic.runner import Runner

_ASK_SECONDS: Final = 5.0
_KUBECTL_SECONDS: Final = 60.0
_NONE: Final[Mapping[str, Sequence[str]]] = MappingProxyType({})

Write = Callable[[Sequence[KubeObject], Sequence[KubeObject]], Awaitable[None]]
"""Makes the first objects so and deletes the others, in the API that people see."""

Kubectl = Callable[[Sequence[str], float], Awaitable[None]]
"""Runs kubectl, and returns when the controllers have nothing left to do.

Each of the two may take that many seconds. Raises ``ProgramError``.
"""


@dataclass(slots=True)
class StepRunner:
    """The steps of one lab, one after the other."""

    store: Store
    fleet: Fleet
    wiring: Wiring
    links: NetemLinks
    families: tuple[Family, ...]
    runner: Runner
    awaited: StepConditions
    write: Write
    kubectl: Kubectl
    pod_rules: PodRules
    announcements: Announcements
    api: ApiServer
    loads: Mapping[str, NodeLoads]
    balancer_routes: BalancerRoutes | None = None
    _blackholed: set[str] = field(default_factory=set)
    _gone: set[str] = field(default_factory=set)
    _links: Links = field(default_factory=Links)
    _underway: StepEvidence | None = None
    _is_changing: bool = False
    _dropped_before: Mapping[LinkDirection, Counters] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.store.subscribe(self._note_deletion)

    async def advance(self, request: Advance) -> None:
        """Make the change of a step, and return when its conditions hold.

        Raises:
            EngineError: an engine did not start, or a condition did not hold in time.
            CapabilityError: a sysctl cannot be written on this machine.
            ProgramError: kubectl fails, or the controllers do not come to rest after it.
        """
        if self._underway is not None:
            await self.conclude()  # packets that it has lost must not count for the next step
        began, until = time.time_ns(), request.until
        streams, self._dropped_before = self.runner.streams, self.links.read()
        await self.runner.foreign_in_steps.begin(request.streams, changing=bool(request.change.engines))
        await streams.begin(request.streams)
        await self.fleet.take_down(request.change.engines)
        if any(isinstance(thing, Node) for thing in (*request.applied, *request.deleted)):
            await self.fleet.note()
        self._alter_nodes(request.change.nodes)
        for link in request.change.links:
            (mend if link.up else cut)(self.wiring, link.netns_name, link.device)
            self.links.change(link.netns_name, link.device, link.netem)
        self._links = self._links.after(request.change.links)
        for name, moved in request.change.load_balancers.items():
            self.announcements.move(name, moved.announced_by, heard=moved.is_heard)
        fault = request.change.api_server
        await self._begin_fault(fault)
        await self._let_loads_be(request.change.nodes)
        await self._change(request)
        await self._end_fault(fault)
        if request.change.kubectl:
            there = {each.name for each in self.store.list(Pod)}
            within = _KUBECTL_SECONDS if until is None or until.within is None else until.within / 1000
            await self.kubectl(request.change.kubectl, within)
            self._gone |= there - {each.name for each in self.store.list(Pod)}
            await self.pod_rules.settle(self.store)
        changed = time.time_ns()
        streams.changed()
        await self.fleet.follow_nodes()
        await self.fleet.bring_up(request.change.engines, request.engines)
        for stage in request.stages:
            await self._make(stage)
        if until is None or not until.has_conditions:
            seconds = self.fleet.sync_seconds if until is None or until.within is None else until.within / 1000
            await self.fleet.wait_synced(self.store.revision, Deadline.after(seconds))
        else:
            await self.awaited.wait(request.step, self.store.revision, until, request.addresses)
        await self.awaited.settle()
        self._blackhole_pods(gone=True)
        streams.mark()
        self._underway = StepEvidence(began=began, changed=changed, settled=time.time_ns(), ended=0)

    async def _begin_fault(self, fault: ApiServerChange | None) -> None:
        """Let the API server be away while the step changes objects, or slow from then on."""
        if fault is not None and fault.action is ApiFault.RESTART:
            await self.api.go_down()
        if fault is not None and fault.delay is not None:
            self.api.hold_back(fault.delay / 1000)

    async def _let_loads_be(self, changes: Mapping[str, NodeChange]) -> None:
        """Let loads of rules fail, be slow or work on nodes from now on."""
        for name, change in changes.items():
            if change.rule_loads is not None:
                await self.loads[name].become(change.rule_loads)
                if change.rule_loads.action is LoadFault.WORK:
                    await self.fleet.forgive(name)

    async def _end_fault(self, fault: ApiServerChange | None) -> None:
        """Let the API server be there again, forget what it has told, or answer at once."""
        match fault and fault.action:
            case ApiFault.RESTART:
                await self.api.come_up()
            case ApiFault.FORGET:
                self.api.forget()
            case ApiFault.PROMPT:
                self.api.hold_back(0)

    async def _change(self, made: Advance | PodStage) -> None:
        """Change the objects of the API server."""
        self._gone |= {thing.name for thing in made.deleted if isinstance(thing, Pod)}
        self._gone -= {thing.name for thing in made.applied if isinstance(thing, Pod)}
        self._blackhole_pods(gone=False)
        self._is_changing = True
        try:
            await self.write(made.applied, made.deleted)
        finally:
            self._is_changing = False
        await self.pod_rules.settle(self.store)

    def _note_deletion(self, event: Event) -> None:
        """Let a pod disappear that no step has deleted: people have, and its kubelet has given it its time."""
        pod = event.object
        if event.type is not EventType.DELETED or not isinstance(pod, Pod) or self._is_changing:
            return
        own = {(each.name, *each.addresses[:1]) for each in self.wiring.plan.pods}  # those of the scenario alone
        if pod.name not in self._gone and (pod.name, *pod.addresses[:1]) in own:
            self._gone.add(pod.name)
            self._blackhole_pods(gone=True)

    async def _make(self, stage: PodStage) -> None:
        """Make one stage of a rollout, and return when the engines have followed, or pods have no more time.

        A program that is killed stops to answer before the API server knows. The time between differs from cluster to
        cluster; here it lasts until every stream has sent enough packets. Raises ``EngineError``.
        """
        if stage.delay:
            await pass_by(stage.delay / 1000)
        if stage.ended:
            self._gone.update(stage.ended)
            self._blackhole_pods(gone=True)
            self.runner.streams.mark()
            await self.runner.streams.have_enough()
        await self._change(stage)
        most = self.fleet.sync_seconds
        seconds = most if stage.grace is None else min(most, stage.grace / 1000)
        try:
            await self.fleet.wait_synced(self.store.revision, Deadline.after(seconds))
        except EngineError:
            if seconds == most:
                raise
            self._gone.update(each.name for each in stage.applied if isinstance(each, Pod) and each.terminating)
        self._blackhole_pods(gone=True)

    async def rest(self) -> None:
        """Let streams and engines rest before something that counts packets as its own, or reads counters."""
        await self.runner.streams.rest(self._sentinels)
        await self.fleet.rest()
        await self.runner.foreign_in_steps.end()

    async def conclude(self, *, tables: bool = False, metrics: Mapping[str, Sequence[str]] = _NONE) -> StepEvidence:
        """End the latest step, once its streams have sent enough after its wait, and are at rest.

        Args:
            tables: whether to read connection tracking then.
            metrics: the names of metrics to read then, by node.

        Raises:
            InternalError: no step is under way.
            CapabilityError: connection tracking cannot be read.
        """
        underway, self._underway = self._underway, None
        if underway is None:
            raise InternalError("no step is under way: Advance comes before Conclude")
        streams = self.runner.streams
        await self.runner.foreign_in_steps.begin()
        await streams.have_enough()
        await self.rest()
        ended = time.time_ns()
        links = self.links.since(self._dropped_before)
        foreign, counts = self.runner.foreign_in_steps.found()
        records = streams.take(links)
        entries = tuple(self._entries()) if tables or streams.any_port_changed(records) else None
        deadline, namespaces = Deadline.after(_ASK_SECONDS), self.wiring.namespaces
        exported = [
            await read_exported(node, namespaces[node], self.fleet.chosen(node).configuration.metrics, names, deadline)
            for node, names in metrics.items()
        ]
        return replace(
            underway,
            ended=ended,
            streams=records,
            entries=entries,
            exported=tuple(exported),
            links=links,
            traced=self.runner.traced,
            foreign=foreign,
            counts=counts,
        )

    def _entries(self) -> Iterator[TableEntry]:
        nodes = [each.name for each in self.wiring.plan.namespaces if each.role is Role.NODE]
        for family in self.families:
            yield from self.runner.conntrack.tables(nodes, family)

    def _sentinels(self, resolved: ResolvedProbe) -> Sequence[Sentinel]:
        """The sentinels of a stream that can be answered."""
        plan, sender = self.wiring.plan, resolved.sender.name
        there = (each for each in resolved.sentinels if each.name not in self._gone and _is_there(plan, each))
        return [each for each in there if not self._links.part(plan, sender, each.name)]

    def _alter_nodes(self, changes: Mapping[str, NodeChange]) -> None:
        moving: dict[IPAddress, IPAddress] = {}
        for name, change in changes.items():
            moving |= moves_of(own_addresses_of(self.wiring.plan.namespace(name)), change.internal_ips)
        if moving:
            self._move_nodes(renumbered(self.wiring.plan, moving))
        for name, change in changes.items():
            sysctls = [Sysctl(key, value) for key, value in change.sysctls.items()]
            write_sysctls(self.wiring.namespaces[name], sysctls)

    def _move_nodes(self, plan: Plan) -> None:
        """Give nodes the addresses that they have in ``plan``."""
        self.wiring = renumber(self.wiring, plan)
        self.runner.take_up_plan(plan)
        if self.balancer_routes is not None:
            balancers = tuple(each for each in plan.balancers if not each.announced_by)
            self.balancer_routes.take_up(balancers, plan.namespace(ROUTER).routes)

    def _blackhole_pods(self, *, gone: bool) -> None:
        """Blackhole the namespaces without a pod, or end that where a pod has come back."""
        by_namespace: dict[str, list[str]] = {}
        for pod in self.wiring.plan.pods:
            by_namespace.setdefault(pod.namespace, []).append(pod.name)
        for name, pods in by_namespace.items():
            if self.wiring.plan.namespace(name).role is not Role.POD:
                continue
            if gone is self._gone.issuperset(pods) and gone is not (name in self._blackholed):
                if gone:
                    self.runner.hang_up(pods)
                make_route = blackhole if gone else end_blackhole
                self.wiring.routes[name].send([make_route(family) for family in self.families])
                self._blackholed ^= {name}


def _is_there(plan: Plan, sentinel: Sentinel) -> bool:
    """Whether a machine has the address of a sentinel, which its node may have had when the stream began."""
    return any(each.has(sentinel.address) for each in plan.namespaces)


async def read_exported(
    node: str, netns: NetNs, server: SocketAddress, names: Collection[str], deadline: Deadline
) -> Exported:
    """Ask the engine of ``node`` for its page of metrics; a problem in the record says why there is none."""
    try:
        status, page = await fetch(netns, server.address, server.port, "/metrics", deadline)
    except (OSError, TimeoutError) as error:
        return Exported(node, problem=str(error) or type(error).__name__)
    if status != 200:
        return Exported(node, problem=f"it answered with status {status}")
    return parse_exported(node, page.decode(errors="replace"), names)


def parse_exported(node: str, page: str, names: Collection[str]) -> Exported:
    """All names on a page in Prometheus' text format, and the samples of those in ``names``."""
    from prometheus_client.parser import text_string_to_metric_families  # noqa: PLC0415 - 40 ms, and seldom needed

    try:
        samples = [sample for family in text_string_to_metric_families(page) for sample in family.samples]
    except ValueError as error:
        return Exported(node, problem=f"its answer is not in Prometheus' text format: {error}")
    return Exported(
        node,
        tuple(dict.fromkeys(each.name for each in samples)),
        tuple(Sample(each.name, each.labels, each.value) for each in samples if each.name in names),
    )
