"""Sets up the traffic of a lab: its runner, its name service, and a meter for the rules of each node."""

import asyncio
from collections.abc import Mapping
from contextlib import AsyncExitStack
from functools import partial

from proxylab.addresses import Family, Protocol
from proxylab.cluster.objects import Service
from proxylab.cluster.store import Store
from proxylab.control.apiserver import API_PORT
from proxylab.engines.barrier import NAMESPACE
from proxylab.engines.context import NodeContext
from proxylab.engines.names import NFT_TABLE, mode_of
from proxylab.errors import ScenarioError
from proxylab.kernel.netfilter.foreign_tables import TableNames
from proxylab.kernel.netfilter.nft import NftTool
from proxylab.kernel.netfilter.nft_counters import NftTableReader
from proxylab.kernel.netfilter.xtables import TableReader
from proxylab.plan.model import Listener, Plan
from proxylab.protocol.messages import Build
from proxylab.server.network import Network
from proxylab.traffic.foreign import ForeignRules
from proxylab.traffic.meters import COUNTED_TABLES, Meter, TableMeter
from proxylab.traffic.nftmeter import TraceMeter
from proxylab.traffic.responder import Names, PortsTakenError
from proxylab.traffic.runner import Runner

__all__ = ["open_runner"]


async def open_runner(
    request: Build,
    network: Network,
    contexts: Mapping[str, NodeContext],
    store: Store,
    stillness: asyncio.Lock,
    stack: AsyncExitStack,
) -> Runner:
    """Open the lab's runner, with a meter for the rules of each node and family."""
    namespaces = network.wiring.namespaces
    meters = {
        (name, family): _meter(request.engine.name, context, family)
        for name, context in contexts.items()
        for family in request.engine.families
    }
    runner = Runner(
        namespaces,
        request.plan,
        meters,
        request.seed,
        served=_served(request),
        watch=network.watch,
        stillness=stillness,
        names=_names(request.plan, store),
        foreign={name: _foreign(request.engine.name, context) for name, context in contexts.items()},
    )
    stack.callback(runner.close)
    try:
        await runner.open()
    except PortsTakenError as error:
        raise ScenarioError([_taken(request, context, listener) for context, listener in error.taken]) from error
    return runner


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


def _foreign(engine: str, context: NodeContext) -> ForeignRules:
    """The rules of a node without those that its meters count."""
    nft = NftTool(context.launcher, context.netns, context.name)
    by_nft, legacy = mode_of(engine) == "nftables", context.tool.variant.name == "legacy"
    counted = [NFT_TABLE] if by_nft else [] if legacy else COUNTED_TABLES
    return ForeignRules(
        context.netns.name,
        TableNames(context.netns),
        nft.list_all,
        context.tool.save_legacy,
        [f"{family} {table}" for table in counted for family in ("ip", "ip6")],
        COUNTED_TABLES if legacy and not by_nft else (),
    )


def _meter(engine: str, context: NodeContext, family: Family) -> Meter:
    """The cheapest meter for this node's rules of one family."""
    if mode_of(engine) == "nftables":
        nft = NftTool(context.launcher, context.netns, context.name)
        return TraceMeter(context.netns, family, NFT_TABLE, partial(nft.list_table, family, NFT_TABLE, handles=True))
    save = partial(context.tool.save_all, family)
    reader = TableReader if context.tool.variant.name == "legacy" else NftTableReader
    return TableMeter(context.netns.name, reader(context.netns, family), save)
