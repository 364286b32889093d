"""A lab that stands: on a wire, with its engines running.

Owns: the order store, engines, synced, responders; and the way back.
Must not: judge, speak to the client, know more than one lab, or make the wire that it stands on (``lab.wire`` does).
"""

import asyncio
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Final, Self

from lab.advance import Course
from lab.awaited import Awaited
from lab.cluster.objects import (
    ClusterEvent,
    EndpointSlice,
    KubeObject,
    Namespace,
    Node,
    Pod,
    Service,
    ServiceCIDR,
)
from lab.cluster.store import Store
from lab.control.apiserver import API_PORT, ApiServer
from lab.control.balancers import HealthChecks
from lab.engines.barrier import NAMESPACE, Barrier, is_barrier, without_barrier
from lab.engines.catalogue import make_engine
from lab.engines.fleet import Fleet
from lab.engines.ground import Cluster, Place
from lab.engines.names import NFT_TABLE, mode_of
from lab.engines.protocol import Engine
from lab.errors import InternalError
from lab.ip import Family
from lab.kernel.detours import Detours
from lab.kernel.launcher import Completed, Launcher
from lab.kernel.netns import NetNs
from lab.kernel.nft import NftTool
from lab.kernel.nft_counters import NftTableReader
from lab.kernel.realise import Wiring
from lab.kernel.reset import NotAsNewError, end_connections
from lab.kernel.rules import IptablesTool, IptablesVariant
from lab.kernel.running import Attached
from lab.kernel.sysctl import read_sysctl
from lab.kernel.xtables import TableReader
from lab.messages import Advance, Build, NodeRecord, Recalled, Stage
from lab.plan.dialogue import Dialogue
from lab.plan.errand import Errand, Query
from lab.plan.model import Plan, Role, Sysctl
from lab.plan.names import ROUTER
from lab.timing import Deadline, together
from lab.traffic.meters import Meter, TableMeter
from lab.traffic.nftmeter import TraceMeter
from lab.traffic.responder import Names
from lab.traffic.runner import Runner
from lab.verdict.evidence import Evidence, Lookup
from lab.verdict.segments import Spoken
from lab.visits import Attach
from lab.wire import Wire

__all__ = ["Lab"]

_SYNC_SECONDS: Final = 60.0
_KINDS: Final[tuple[type[KubeObject], ...]] = (Namespace, Node, Pod, Service, EndpointSlice, ServiceCIDR, ClusterEvent)


@dataclass(frozen=True, slots=True)
class Lab:
    """Everything of one lab that the lab process holds. ``stages`` says how long each part of the build took."""

    number: int
    wire: Wire
    store: Store
    fleet: Fleet
    course: Course
    runner: Runner
    stages: tuple[Stage, ...]
    variant: IptablesVariant
    _launcher: Launcher
    _detours: Detours
    _health_checks: HealthChecks | None
    _stack: AsyncExitStack

    @classmethod
    async def build(
        cls, number: int, request: Build, launcher: Launcher, variant: IptablesVariant, wire: Wire, laid: Stage
    ) -> Self:
        """Start an engine in every node of the wire, and wait until all have programmed the objects.

        Args:
            number: how many labs there have been, with this one.
            request: what the client asked for.
            launcher: starts commands.
            variant: of iptables.
            wire: new, or as new, for the plan of the request.
            laid: how long the wire took.

        Raises:
            CapabilityError: the machine lacks something that the engine needs.
            EngineError: an engine did not start, or did not synchronise in time.
        """
        stages = [_Mark("start", time.monotonic())]
        wiring = wire.wiring
        detours = Detours(wiring)
        async with AsyncExitStack() as stack:
            stack.callback(detours.take, None)
            store = Store()
            tools = _tools(wire, launcher, variant)
            await _masquerade(request.plan, tools)
            places = {
                name: Place(wiring.namespaces[name], launcher, f"{wire.number}/{name}", tool)
                for name, tool in tools.items()
            }
            fleet = await _run_engines(request, places, store, stack)
            stillness = asyncio.Lock()
            health_checks = await _follow_health(wiring, store, stillness, stack)
            stages.append(_Mark("synchronise", time.monotonic()))

            runner = await _open_runner(request, wire, places, store, stillness, stack)
            stages.append(_Mark("open responders", time.monotonic()))
            return cls(
                number,
                wire,
                store,
                fleet,
                _course(request, wiring, store, fleet, runner, health_checks),
                runner,
                (laid, *_durations(stages)),
                variant,
                launcher,
                detours,
                health_checks,
                stack.pop_all(),
            )

    async def advance(self, request: Advance) -> None:
        """Make one step of the scenario, after which no other lab can have the wire.

        Raises:
            EngineError: an engine did not start, or what the step waits for did not come.
            CapabilityError: the machine lacks something that the change needs.
        """
        self.wire.spent = f"step {request.step!r} changed it"
        await self.course.advance(request)
        self.runner.go_on()

    async def send(self, errand: Errand, *, trace: bool = False) -> Evidence:
        """Run one errand, by the route that it asks for; with ``trace``, follow its packet through the rules.

        Raises:
            CapabilityError: the kernel cannot trace packets in a network namespace.
        """
        await self.course.rest()
        self._detours.take(errand.detour)
        if self._health_checks is not None:
            await self._health_checks.settle()  # what is probed is what follows from the rules, not how fast it follows
        return await self.runner.run(errand, trace=trace)

    async def ask(self, place: str, query: Query, deadline: Deadline) -> Lookup:
        """Ask about a name from inside a node or pod, and wait for the answer until the deadline."""
        from lab.control.resolver import ask  # noqa: PLC0415 - DNS messages, for those who have names

        return await ask(self.netns(place), query, deadline)

    async def converse(self, dialogue: Dialogue) -> Spoken:
        """Hold a dialogue by crafted segments, by the route that its client's errand asks for.

        Raises:
            CapabilityError: the kernel cannot be kept out of it.
        """
        await self.course.rest()
        self._detours.take(dialogue.there.detour)
        if self._health_checks is not None:
            await self._health_checks.settle()
        return await self.runner.converse(dialogue)

    async def dump(self, node: str) -> str:
        """The rules of one node as the kernel holds them."""
        return without_barrier(await self._engine(node).dump())

    def _engine(self, node: str) -> Engine:
        if node not in self.fleet.engines:
            raise InternalError(f"no node {node!r} in this lab; there are {', '.join(self.fleet.engines)}")
        return self.fleet.engines[node]

    async def recall(self) -> Recalled:
        """What is left of the last errand: its frames, and every node as it stands now."""
        engines = self.fleet.engines
        rules = await together(self.dump(node) for node in engines)
        nodes = zip(engines.items(), rules, strict=True)
        records = (NodeRecord(name, text, engine.logs(), tuple(self._sysctls(name))) for (name, engine), text in nodes)
        balanced = () if self._health_checks is None else self._health_checks.standing
        return Recalled(self.runner.capture(), tuple(records), balanced)

    def _sysctls(self, node: str) -> Iterator[Sysctl]:
        """What the plan says of a node, with the values that the kernel has now."""
        for planned in self.wire.wiring.plan.namespace(node).sysctls:
            value = read_sysctl(self.wire.wiring.namespaces[node], planned.name)
            if value is not None:
                yield replace(planned, value=value)

    async def execute(self, place: str, argv: tuple[str, ...], deadline: Deadline) -> Completed:
        """Run a command in a node, pod or host. Raises ``TimeoutError`` when it has not ended by the deadline."""
        netns = self.netns(place)
        self.wire.spent = f"somebody ran {argv[0]} in {place}"
        return await self._launcher.run(netns, argv, place=f"{self.wire.number}/{netns.name}", deadline=deadline)

    async def attach(self, request: Attach, standard: Sequence[int]) -> Attached:
        """Start a command in a node, pod or host on a client's own standard streams."""
        netns = self.netns(request.place)
        self.wire.spent = f"somebody ran {request.argv[0]} in {request.place}"
        return await self._launcher.start_attached(
            netns,
            request.argv,
            place=f"{self.wire.number}/{netns.name}",
            standard=standard,
            terminal=request.terminal,
            directory=request.directory,
            environment=request.environment,
        )

    def netns(self, place: str) -> NetNs:
        """The namespace of a node, pod or host; a pod's may be its node's, or one that it shares."""
        homes = {pod.name: pod.namespace for pod in self.wire.wiring.plan.pods}
        found = self.wire.wiring.namespaces.get(homes.get(place, place))
        if found is None:
            raise InternalError(f"no {place!r} in this lab; there are {', '.join(self.wire.wiring.namespaces)}")
        return found

    def log(self, node: str) -> tuple[str, ...]:
        """What the engine of a node has said, as far as it is kept."""
        return self._engine(node).logs()

    def objects(self) -> tuple[KubeObject, ...]:
        """All that the API server shows, by kind, namespace and name."""
        return tuple(thing for kind in _KINDS for thing in self.store.list(kind) if not is_barrier(thing))

    async def retire(self) -> None:
        """Stop the engines and the responders. The wire stays, as the lab has left it.

        But for connections: whoever has closed one waits for the other side, which a step may have silenced, and holds
        its namespace meanwhile.
        """
        await self._stack.aclose()
        if self.wire.spent:
            for netns in self.wire.wiring.namespaces.values():
                with suppress(NotAsNewError):
                    end_connections(netns)


def _course(
    request: Build, wiring: Wiring, store: Store, fleet: Fleet, runner: Runner, health_checks: HealthChecks | None
) -> Course:
    families = request.engine.families
    return Course(store, fleet, wiring, families, runner, Awaited(fleet, wiring.plan, families, runner, health_checks))


def _tools(wire: Wire, launcher: Launcher, variant: IptablesVariant) -> dict[str, IptablesTool]:
    """What loads and reads the rules of each node."""
    namespaces, plan = wire.wiring.namespaces, wire.wiring.plan
    nodes = [namespace.name for namespace in plan.namespaces if namespace.role is Role.NODE]
    return {name: IptablesTool(launcher, namespaces[name], f"{wire.number}/{name}", variant) for name in nodes}


async def _open_runner(
    request: Build,
    wire: Wire,
    places: Mapping[str, Place],
    store: Store,
    stillness: asyncio.Lock,
    stack: AsyncExitStack,
) -> Runner:
    """The traffic of the lab and who answers it, with a meter for the rules of each node and family."""
    namespaces = wire.wiring.namespaces
    meters = {
        (name, family): _meter(request.engine.name, place, family)
        for name, place in places.items()
        for family in request.engine.families
    }
    runner = Runner(
        namespaces,
        request.plan,
        meters,
        request.seed,
        served=_served(request),
        watch=wire.watch,
        stillness=stillness,
        names=_names(request.plan, store),
    )
    stack.callback(runner.close)
    await runner.open()
    return runner


async def _masquerade(plan: Plan, tools: Mapping[str, IptablesTool]) -> None:
    """Load the rules that are the wire's own, before any engine looks at a node."""
    await together(
        tools[namespace.name].masquerade(masquerade)
        for namespace in plan.namespaces
        if namespace.name in tools
        for masquerade in namespace.masquerades
    )


async def _run_engines(request: Build, places: Mapping[str, Place], store: Store, stack: AsyncExitStack) -> Fleet:
    """Put the objects into the store and an engine into every node; when this returns, all have programmed them."""
    cluster = Cluster(store, ApiServer(store), Barrier(store, request.engine.families))
    stack.push_async_callback(cluster.api.close)

    def make(node: str) -> Engine:
        return make_engine(request.engine, node, places[node], cluster)

    async def flush(node: str) -> None:
        tool = places[node].tool
        for family in request.engine.families:
            if mode_of(request.engine.name) == "nftables":
                tool.drop_nft_table(family, NFT_TABLE)
            else:
                await tool.flush(family)
        await _masquerade(request.plan, {node: tool})

    fleet = Fleet(places, make, flush)
    revision = max((store.apply(thing) for thing in request.objects), default=0)
    stack.push_async_callback(fleet.stop)
    await fleet.start()
    await fleet.wait_synced(revision, Deadline.after(_SYNC_SECONDS))
    return fleet


def _names(plan: Plan, store: Store) -> Names | None:
    """Who answers for the name servers of the plan; most labs have none, and load nothing of DNS."""
    if not any(listener.serves_names for namespace in plan.namespaces for listener in namespace.listeners):
        return None
    from lab.control.naming import NameService  # noqa: PLC0415

    return NameService(store, hidden=NAMESPACE).respond


async def _follow_health(
    wiring: Wiring, store: Store, stillness: asyncio.Lock, stack: AsyncExitStack
) -> HealthChecks | None:
    """Let the plan's balancers follow the health of their nodes; ``None`` where none does."""
    balancers = wiring.plan.balancers
    if not any(balancer.health_checked for balancer in balancers):
        return None
    indexes = {each.device: wiring.plan.end(ROUTER, each.device).index for each in balancers}
    checks = HealthChecks(wiring.namespaces[ROUTER], wiring.routes[ROUTER], indexes, balancers, store, stillness)
    stack.push_async_callback(checks.close)
    await checks.start()
    return checks


def _served(request: Build) -> Iterator[int]:
    """The ports on which proxies listen in their nodes."""
    configuration = request.engine.configuration
    yield from (API_PORT, configuration.healthz.port, configuration.metrics.port)
    yield from (each.health_check_node_port for each in request.objects if isinstance(each, Service))


def _meter(engine: str, place: Place, family: Family) -> Meter:
    """The cheapest way to read what the rules of this node counted for one family."""
    if mode_of(engine) == "nftables":
        nft = NftTool(place.launcher, place.netns, place.name)
        return TraceMeter(place.netns, family, NFT_TABLE, partial(nft.list_table, family, NFT_TABLE, handles=True))
    is_legacy = place.tool.variant.name == "legacy"
    reader = TableReader(place.netns, family) if is_legacy else NftTableReader(place.netns, family)
    return TableMeter(place.netns.name, reader, partial(place.tool.save_all, family))


@dataclass(frozen=True, slots=True)
class _Mark:
    """The end of one stage on the monotonic clock."""

    name: str
    at: float


def _durations(marks: list[_Mark]) -> tuple[Stage, ...]:
    return tuple(Stage(mark.name, mark.at - before.at) for before, mark in pairwise(marks))
