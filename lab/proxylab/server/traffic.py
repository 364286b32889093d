"""Sets up the traffic of a lab: its runner, its name service, and a meter for the rules of each node."""

import asyncio
from contextlib import AsyncExitStack, ExitStack

from proxylab.addresses import Family, Protocol
from proxylab.cluster.configuration import TERMINATING_MODES
from proxylab.cluster.objects import Service
from proxylab.cluster.store import Store
from proxylab.control.apiserver import API_PORT
from proxylab.engines.barrier import NAMESPACE
from proxylab.engines.context import NodeContext
from proxylab.engines.fleet import Fleet
from proxylab.engines.modes import MODES
from proxylab.engines.node_mode import NodeMode, node_mode
from proxylab.errors import ScenarioError
from proxylab.evidence.evidence import RuleCount
from proxylab.kernel.netfilter.foreign_tables import TableNames
from proxylab.kernel.netfilter.meters import Meter
from proxylab.kernel.netfilter.nft_tool import NftTool
from proxylab.kernel.netlink.traffic_control import TrafficControl
from proxylab.plan.model import Listener, Plan
from proxylab.plan.resolved import ResolvedProbe
from proxylab.protocol.messages import Build
from proxylab.server.control_plane import LabControlPlane
from proxylab.server.network import BuiltNetwork
from proxylab.traffic.foreign import ForeignRules
from proxylab.traffic.programs import Programs
from proxylab.traffic.responder import Names, Note, PortsTakenError, Responders
from proxylab.traffic.runner import Runner


def open_runner(
    request: Build,
    network: BuiltNetwork,
    control_plane: LabControlPlane,
    packet_lock: asyncio.Lock,
    stack: AsyncExitStack,
    trusted: str = "",
    note: Note | None = None,
) -> Runner:
    """Open the lab's runner, with a meter for the rules of each node and family.

    TLS accepts ``trusted``, and ``note`` is told of each request that a pod answers.
    """
    namespaces = network.wiring.namespaces
    try:
        responders = Responders(namespaces, request.plan, _names(request.plan, control_plane.store), note)
    except PortsTakenError as error:
        raise ScenarioError([_taken(request, context, listener) for context, listener in error.taken]) from error
    stack.callback(responders.close)
    responders.attach(asyncio.get_running_loop())
    modes = {name: _NodeModes(name, context, control_plane.fleet) for name, context in control_plane.contexts.items()}
    meters = {
        (name, family): _Meter(each, family) for name, each in modes.items() for family in request.engine.families
    }
    with ExitStack() as untaken:
        foreign: dict[str, ForeignRules] = {}
        for name, context in control_plane.contexts.items():
            foreign[name] = _foreign(modes[name], context)
            untaken.callback(foreign[name].close)
        runner = Runner(
            namespaces,
            request.plan,
            network.watch,
            responders,
            meters,
            request.seed,
            served=_served(request),
            links=network.links,
            packet_lock=packet_lock,
            foreign=foreign,
            programs=_programs(control_plane.fleet, serving_loopback=request.engine.configuration.node_port_localhost),
            trusted=trusted,
        )
        untaken.pop_all()  # they are the runner's to close
    stack.callback(runner.close)
    return runner


def _programs(fleet: Fleet, *, serving_loopback: bool) -> Programs:
    def terminating() -> tuple[str, ...]:
        return tuple(node for node in fleet.engines if fleet.mode(node) in TERMINATING_MODES)

    def at_loopback() -> tuple[str, ...]:
        """Since 1.37 kube-proxy may serve node ports at loopback addresses by a process."""
        serving = (node for node in fleet.engines if MODES[fleet.mode(node)].kube_proxy.serves_loopback)
        return tuple(serving) if serving_loopback else ()

    return Programs(terminating, fleet.drain, at_loopback)


def _names(plan: Plan, store: Store) -> Names | None:
    """The function that answers for the plan's name servers. Most labs have none, and do not load the DNS library."""
    if not any(listener.serves_names for namespace in plan.namespaces for listener in namespace.listeners):
        return None
    from proxylab.control.dns_server import NameService  # noqa: PLC0415 - 60 ms of dnspython, for labs with names

    return NameService(store, hidden=NAMESPACE).respond


def _served(request: Build) -> dict[int, str]:
    """The TCP ports on which proxies listen in their nodes, each with its purpose."""
    proxy, engine = request.engine.configuration, request.engine.name
    checks = {
        each.health_check_node_port: f"{engine} serves the healthCheckNodePort of Service {each.namespace}/{each.name}"
        for each in request.objects
        if isinstance(each, Service) and each.health_check_node_port
    }
    return {
        API_PORT: f"the lab's API server serves {engine}",
        proxy.metrics.port: f"{engine} serves its metrics (metricsBindAddress)",
        proxy.healthz.port: f"{engine} serves its health (healthzBindAddress)",
        **checks,
    }


def _taken(request: Build, context: str, listener: Listener) -> str:
    """The problem with a port on which something else in the lab listens."""
    port = f"{listener.protocol} {listener.port}"
    others = (
        f"{each.name} listens"
        for each in request.plan.namespace(context).listeners
        if each.name != listener.name and (each.protocol, each.port) == (listener.protocol, listener.port)
    )
    engine = _served(request).get(listener.port) if listener.protocol is Protocol.TCP else None
    owner = engine or next(others, f"{request.engine.name} listens")
    return f"{listener.position}: {listener.name}: {owner} on {port} of {context}; give {listener.name} another port"


class _NodeModes:
    """The mode in which the engine of a node runs, as steps change it."""

    def __init__(self, node: str, context: NodeContext, fleet: Fleet) -> None:
        self._node, self._context, self._fleet = node, context, fleet
        self._modes: dict[str, NodeMode] = {}

    @property
    def now(self) -> NodeMode:
        """The present mode."""
        mode = self._fleet.mode(self._node)
        if mode not in self._modes:
            self._modes[mode] = node_mode(mode, self._context)
        return self._modes[mode]


class _Meter:
    """The meter of one family in a node, in whatever mode its engine runs; no probe runs while that changes."""

    def __init__(self, modes: _NodeModes, family: Family) -> None:
        self._modes, self._family = modes, family
        self._meters: dict[int, tuple[NodeMode, Meter]] = {}

    @property
    def max_frames_in_flight(self) -> int | None:
        return self._now.max_frames_in_flight

    @property
    def is_complete(self) -> bool:
        return self._now.is_complete

    async def begin(self, resolved: ResolvedProbe) -> None:
        await self._now.begin(resolved)

    async def end(self) -> tuple[RuleCount, ...]:
        return await self._now.end()

    def rules_by_chain(self) -> dict[tuple[str, str], list[str]]:
        return self._now.rules_by_chain()

    def close(self) -> None:
        for _, meter in self._meters.values():
            meter.close()

    @property
    def _now(self) -> Meter:
        mode = self._modes.now
        if id(mode) not in self._meters:
            self._meters[id(mode)] = mode, mode.meter(self._family)
        return self._meters[id(mode)][1]


def _foreign(modes: _NodeModes, context: NodeContext) -> ForeignRules:
    """The rules of a node without those that its meters count."""
    return ForeignRules(
        context.netns.name,
        TableNames(context.netns),
        NftTool(context.launcher, context.netns, context.name).list_all,
        context.tool.save_legacy,
        TrafficControl(context.netns),
        lambda: modes.now.counted,
        context.tool.save_all,
    )
