"""The control plane of a lab: the objects, the API server, and an engine in every node."""

import json
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack, closing
from typing import Any, Final, Self

from msgspec import Struct
from msgspec.structs import replace

from proxylab.addresses import Family, IPAddress
from proxylab.cluster.objects import Node
from proxylab.cluster.store import Store
from proxylab.control.apiserver import ApiServer
from proxylab.control.http_client import fetch
from proxylab.engines.barrier import Barrier
from proxylab.engines.catalogue import make_engine
from proxylab.engines.context import Cluster, NodeContext
from proxylab.engines.engine_names import read_engine
from proxylab.engines.fleet import Fleet
from proxylab.engines.modes import MODES
from proxylab.engines.node_mode import node_mode
from proxylab.engines.protocol import Engine, EngineChoice
from proxylab.engines.rule_loads import NodeLoads
from proxylab.errors import CapabilityError, ScenarioError
from proxylab.evidence.engine_progress import ProxyRecord
from proxylab.evidence.words import endpoint
from proxylab.kernel.netfilter.iptables_tool import IptablesTool, IptablesVariant, RestoreRefusedError
from proxylab.kernel.netfilter.nft_tool import NftRefusedError, NftTool
from proxylab.kernel.netlink.conntrack import Conntrack
from proxylab.kernel.sandbox.iptables_links import FOLDER, links_to
from proxylab.kernel.sandbox.launcher import Launcher
from proxylab.kernel.sandbox.netns import NetNs
from proxylab.mutate.objects import mutated_configuration
from proxylab.mutate.shown_store import ShownStore
from proxylab.plan.model import Leftover, Plan, PlannedNamespace, Role
from proxylab.protocol.messages import Build
from proxylab.server.network import BuiltNetwork
from proxylab.server.pod_rules import PodRules
from proxylab.timing import Deadline, together

_PROGRESS_SECONDS: Final = 3.0
"""Longer than ``minSyncPeriod``, so that a recent change can still be programmed."""
_ASK_SECONDS: Final = 2.0
_VERSION_SECONDS: Final = 10.0
_CANNOT_RUN: Final = (126, 127)
_VARIANT_WORDS: Final = {"legacy": "legacy", "nft": "nf_tables"}
"""What the variants of iptables call themselves behind their version."""


class LabControlPlane(Struct, frozen=True):
    """The control plane on one network."""

    choice: EngineChoice
    contexts: Mapping[str, NodeContext]
    store: Store
    api: ApiServer
    fleet: Fleet
    pod_rules: PodRules
    _stack: AsyncExitStack

    @classmethod
    async def begin(cls, request: Build, network: BuiltNetwork, launcher: Launcher, variant: IptablesVariant) -> Self:
        """Start an engine in every node; when this returns, all have programmed the objects.

        Raises:
            CapabilityError: the machine lacks something that the engine needs.
            EngineError: an engine did not start, or did not synchronise in time.
            ScenarioError: a leftover of a node cannot be loaded, or a program that it names cannot run there.
        """
        namespaces = network.wiring.namespaces
        nodes = [namespace.name for namespace in request.plan.namespaces if namespace.role is Role.NODE]
        contexts = {}
        for name in nodes:
            known_as = f"{network.number}/{name}"
            programs = {**request.engine.programs, **request.plan.namespace(name).programs}
            tool = IptablesTool(launcher, namespaces[name], known_as, variant)
            loads = NodeLoads(launcher, namespaces[name], known_as, links_to(variant.name, programs))
            contexts[name] = NodeContext(namespaces[name], launcher, known_as, tool, request.mutation, programs, loads)
        await together(
            _try_programs(context, request.plan.namespace(name).programs)
            for name, context in contexts.items()
            if context.programs
        )
        tools = {name: context.tool for name, context in contexts.items()}
        await _masquerade(request.plan, tools)
        pod_rules = await PodRules.begin(request, network, launcher, variant, tools)
        await together(
            _leave(namespace.name, namespace.leftovers, contexts[namespace.name])
            for namespace in request.plan.namespaces
            if namespace.leftovers
        )
        for namespace in request.plan.namespaces:
            if namespace.conntrack:
                _track(namespace, namespaces[namespace.name])
        async with AsyncExitStack() as stack:
            store = Store()
            api = ApiServer(store)
            stack.push_async_callback(api.close)
            fleet = await _run_engines(request, contexts, pod_rules, store, api, stack)
            return cls(request.engine, contexts, store, api, fleet, pod_rules, stack.pop_all())

    async def inspect(self) -> tuple[ProxyRecord, ...]:
        """Inspect the engines of all nodes at once, but not of a machine that has yet to become a node."""
        deadline, known = Deadline.after(_PROGRESS_SECONDS), {each.name for each in self.store.list(Node)}
        nodes = (node for node in self.contexts if node in known or self.fleet.runs(node))
        return await together(_record(self, node, deadline) for node in nodes)

    async def close(self) -> None:
        """Stop the engines."""
        await self._stack.aclose()


async def _try_programs(context: NodeContext, of_scenario: Mapping[str, str]) -> None:
    """Raise ``ScenarioError`` where a program that the scenario or the user names cannot run, or is another variant.

    Commands in a lab of root run as a user who may not enter the folders of root.
    """
    for name, path in context.programs.items():
        done = await context.launcher.run(
            context.netns,
            (f"{FOLDER}/{name}", "--version"),
            netns_name=context.name,
            links=context.links,
            deadline=Deadline.after(_VERSION_SECONDS),
        )
        said = (done.stdout + done.stderr).decode(errors="replace")
        key = f"spec.nodes.{context.netns.name}.programs.{name}" if name in of_scenario else f"--program {name}"
        where = f"{key}: {path}"
        if done.status in _CANNOT_RUN:
            raise ScenarioError([f"{where} cannot run in the node: {said.strip()}; every user must be able to run it"])
        own = context.tool.variant.name
        other = next((kind for kind, word in _VARIANT_WORDS.items() if f"({word})" in said), own)
        if name == "iptables" and other != own:
            raise ScenarioError([f"{where} is of the variant {other}, and the lab's is {own}; add --iptables {other}"])


async def _masquerade(plan: Plan, tools: Mapping[str, IptablesTool]) -> None:
    """Load the network's own masquerade rules, before an engine starts."""
    await together(
        tools[namespace.name].masquerade(masquerade)
        for namespace in plan.namespaces
        if namespace.name in tools
        for masquerade in namespace.masquerades
    )


async def _leave(node: str, leftovers: Sequence[Leftover], context: NodeContext) -> None:
    """Load a node's leftover rules, before its engine starts: one tool after the other, as the plan has them.

    Of two chains with one hook and one priority the kernel asks the one that was registered last first. So the order in
    which the tools load decides whose translation a flow gets.
    """
    for leftover in leftovers:
        try:
            if leftover.tool == "nft":
                await NftTool(context.launcher, context.netns, context.name).load(leftover.text)
            else:
                family = Family.IPV4 if leftover.tool == "iptables" else Family.IPV6
                await context.tool.load(family, leftover.text)
        except (NftRefusedError, RestoreRefusedError) as refused:
            where = f"spec.nodes.{node}.leftovers.{leftover.tool}"
            raise ScenarioError(
                [f"{where}: {leftover.tool} refuses it; write rules that it accepts: {refused}"]
            ) from refused


def _track(namespace: PlannedNamespace, netns: NetNs) -> None:
    """Write a node's conntrack entries from before its engine."""
    with closing(Conntrack(netns)) as conntrack:
        for connection in namespace.conntrack:
            try:
                conntrack.add(connection)
            except OSError as error:
                needed = f"writing conntrack entries of {namespace.name} ({error.strerror})"
                raise CapabilityError(
                    needed, "load the kernel modules nf_conntrack_netlink and nf_nat as root"
                ) from error


async def _run_engines(
    request: Build,
    contexts: Mapping[str, NodeContext],
    pod_rules: PodRules,
    store: Store,
    api: ApiServer,
    stack: AsyncExitStack,
) -> Fleet:
    """Put the objects into the store and start an engine in every node.

    Where the request has a mutation of what proxies are shown, they follow a store and an API server of their own.
    """
    shown = None
    if request.shown is not None:
        shown = ShownStore(store, request.shown)
        api = ApiServer(shown.store)
        stack.push_async_callback(api.close)
    followed = store if shown is None else shown.store
    name = read_engine(request.engine.name)
    mirror = name.is_upstream and MODES[name.mode].kube_proxy.watches_endpoints
    cluster = Cluster(followed, api, Barrier(followed, request.engine.families, mirror=mirror))

    def make(node: str, choice: EngineChoice) -> Engine:
        if request.shown is not None:
            choice = replace(choice, configuration=mutated_configuration(choice.configuration, request.shown))
        return make_engine(choice, node, contexts[node], cluster)

    async def flush(node: str, mode: str) -> None:
        on_node = node_mode(mode, contexts[node])
        for family in request.engine.families:
            await on_node.flush(family)
        await _masquerade(request.plan, {node: contexts[node].tool})
        await pod_rules.restore(node)

    chosen = {node: request.engines.get(node, request.engine) for node in contexts}
    seen = (lambda revision: revision) if shown is None else shown.seen

    def nodes() -> Mapping[str, Node]:
        return {each.name: each for each in followed.list(Node)}

    fleet = Fleet(chosen, make, flush, seen, request.engine.sync_seconds, nodes)
    revision = max((store.apply(thing) for thing in request.objects), default=0)
    stack.push_async_callback(fleet.stop)
    later = {each.name for each in request.to_join}
    await fleet.start(node for node in chosen if node not in later)
    await fleet.wait_synced(revision, Deadline.after(fleet.sync_seconds))
    return fleet


async def _record(control_plane: LabControlPlane, node: str, deadline: Deadline) -> ProxyRecord:
    fleet = control_plane.fleet
    healthz = fleet.chosen(node).configuration.healthz
    progress = await fleet.engines[node].progress(deadline)
    if not healthz.port:
        return ProxyRecord(node=node, engine=fleet.chosen(node).name, progress=progress)
    address = healthz.address
    if address.is_unspecified:  # every address of either family, as for kube-proxy
        address = (Family.IPV4 if Family.IPV4 in control_plane.choice.families else Family.IPV6).loopback
    status, document = await _healthz(control_plane.contexts[node].netns, address, healthz.port)
    asked = f"http://{endpoint(address, healthz.port)}/healthz"
    return ProxyRecord(
        node=node,
        engine=fleet.chosen(node).name,
        progress=progress,
        healthz=status,
        asked=asked,
        eligible=document.get("nodeEligible") is not False,
    )


async def _healthz(netns: NetNs, address: IPAddress, port: int) -> tuple[int | None, dict[str, Any]]:
    """The status, and the JSON object in the body, if it is one."""
    try:
        status, body = await fetch(netns, address, port, "/healthz", Deadline.after(_ASK_SECONDS))
    except OSError:  # a TimeoutError is one
        return None, {}
    try:
        document = json.loads(body)
    except ValueError:
        document = {}
    return status, document if isinstance(document, dict) else {}
