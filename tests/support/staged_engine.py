"""One engine in a network namespace of its own, with a cluster that the test makes."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from rule_cases import HERE, Addresses

from lab.cluster.objects import Node
from lab.cluster.store import Store
from lab.control.apiserver import ApiServer
from lab.engines.barrier import Barrier
from lab.engines.catalogue import make_engine
from lab.engines.ground import Cluster, Place
from lab.engines.protocol import Engine, EngineChoice, Upstream
from lab.ip import Family
from lab.kernel.launcher import Launcher
from lab.kernel.netns import make_netns
from lab.kernel.rules import IptablesTool, choose_iptables
from lab.timing import Deadline

__all__ = ["Stage", "staged"]

A = Addresses(Family.IPV4)


@dataclass
class Stage:
    store: Store
    engine: Engine
    launcher: Launcher
    place: Place

    async def synced(self) -> str:
        await self.engine.wait_synced(self.store.revision, Deadline.after(30))
        return await self.engine.dump()


@asynccontextmanager
async def staged(launcher: Launcher, engine: str, *flags: str, store: Store | None = None) -> AsyncIterator[Stage]:
    """An engine in a namespace of its own, with nothing in it but a loopback device."""
    name = engine.replace("/", "-").replace("@", "-")
    netns = make_netns(HERE)
    await launcher.run(netns, ["ip", "link", "set", "lo", "up"], place=name, deadline=Deadline.after(10))
    place = Place(netns, launcher, name, IptablesTool(launcher, netns, name, await choose_iptables(launcher)))
    store = Store() if store is None else store
    store.apply(Node(name=HERE, addresses=(A.of("node", 1),)))
    cluster = Cluster(store, ApiServer(store), Barrier(store, (Family.IPV4, Family.IPV6)))
    upstream = Upstream(os.environ["TEST_KUBE_PROXY"], "", flags)
    choice = EngineChoice(engine, families=(Family.IPV4, Family.IPV6), upstream=upstream)
    made = make_engine(choice, HERE, place, cluster)
    try:
        await made.start()
        yield Stage(store, made, launcher, place)
    finally:
        await made.stop()
        await cluster.api.close()
        launcher.forget([name])
        netns.close()
