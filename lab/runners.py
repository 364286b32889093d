"""The traffic of a lab that stands: who sends and answers in it, and what counts in its nodes.

Owns: ``open_runner``, with the names that a lab serves, and the cheapest meter for each engine.
Must not: send anything, or know how the engines came to run.
"""

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack
from functools import partial

from lab.cluster.objects import Service
from lab.cluster.store import Store
from lab.control.apiserver import API_PORT
from lab.engines.barrier import NAMESPACE
from lab.engines.ground import Place
from lab.engines.names import NFT_TABLE, mode_of
from lab.ip import Family
from lab.kernel.nft import NftTool
from lab.kernel.nft_counters import NftTableReader
from lab.kernel.xtables import TableReader
from lab.messages import Build
from lab.plan.model import Plan
from lab.traffic.meters import Meter, TableMeter
from lab.traffic.nftmeter import TraceMeter
from lab.traffic.responder import Names
from lab.traffic.runner import Runner
from lab.wire import Wire

__all__ = ["open_runner"]


async def open_runner(
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


def _names(plan: Plan, store: Store) -> Names | None:
    """Who answers for the name servers of the plan; most labs have none, and load nothing of DNS."""
    if not any(listener.serves_names for namespace in plan.namespaces for listener in namespace.listeners):
        return None
    from lab.control.naming import NameService  # noqa: PLC0415 - 60 ms of dnspython, for labs with names

    return NameService(store, hidden=NAMESPACE).respond


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
    save = partial(place.tool.save_all, family)
    reader = TableReader if place.tool.variant.name == "legacy" else NftTableReader
    return TableMeter(place.netns.name, reader(place.netns, family), save)
