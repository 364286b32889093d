"""Engines in namespaces of their own, with only a loopback device; to be run in a sandbox."""

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from kube_proxies import identity
from msgspec.structs import replace
from rule_cases import HERE, Addresses

from proxylab.addresses import Family
from proxylab.cluster.objects import ClusterEvent, KubeObject, Namespace, Node, ObjectKey, ServiceCIDR
from proxylab.cluster.store import Store
from proxylab.control.apiserver import ApiServer
from proxylab.engines.barrier import Barrier, is_barrier
from proxylab.engines.catalogue import make_engine
from proxylab.engines.context import Cluster, NodeContext
from proxylab.engines.kubeproxy.engine import KubeProxyEngine
from proxylab.engines.protocol import Engine, EngineChoice, Upstream
from proxylab.kernel.netfilter.iptables_tool import IptablesTool, choose_iptables
from proxylab.kernel.sandbox.launcher import Launcher
from proxylab.kernel.sandbox.netns import make_netns
from proxylab.timing import Deadline

__all__ = ["Stage", "staged"]

BOTH = (Family.IPV4, Family.IPV6)


@dataclass
class Stage:
    """An engine in a node, and the cluster that it programs."""

    store: Store
    engine: Engine
    launcher: Launcher
    context: NodeContext
    cluster: Cluster
    choice: EngineChoice
    node: str

    async def give_way(self, engine: str) -> None:
        """Stop the engine, and start another one on the node as the first has left it."""
        await self.engine.stop()
        self.choice = replace(self.choice, name=engine)
        self.engine = make_engine(self.choice, self.node, self.context, self.cluster)
        await self.engine.start()

    async def synced(self) -> str:
        """The rules, once they are those of the cluster as it stands."""
        await self.engine.wait_synced(self.store.revision, Deadline.after(30))
        return await self.engine.dump()

    async def written(self) -> str:
        """The same, whether or not kube-proxy has ended the sync that wrote them, which only another sync shows."""
        if not isinstance(self.engine, KubeProxyEngine):
            return await self.synced()
        barrier = self.cluster.barrier
        await self.engine._wait_for(barrier.number_for(self.store.revision), Deadline.after(30))
        return await self.engine.dump()

    def hold(self, *objects: KubeObject) -> None:
        """Let the cluster be these objects, and the Nodes and ServiceCIDRs that it had."""
        for kind in KubeObject.__args__:  # type: ignore[attr-defined]  # a union has its members
            if kind not in (Node, ClusterEvent, Namespace, ServiceCIDR):
                for thing in self.store.list(kind):
                    if not is_barrier(thing):
                        self.store.delete(thing.key)
        for thing in objects:
            self.store.apply(thing)


@asynccontextmanager
async def staged(
    launcher: Launcher,
    engine: str,
    *flags: str,
    node: str = HERE,
    store: Store | None = None,
    gates: Mapping[str, bool] | None = None,
    **choice: Any,
) -> AsyncIterator[Stage]:
    """An engine that has been started. A kube-proxy is the file that TEST_KUBE_PROXY names."""
    netns = make_netns(node)
    name = f"{node}-{engine}-{netns.fd}".replace("/", "-").replace("@", "-")  # of each its own /run
    await launcher.run(netns, ["ip", "link", "set", "lo", "up"], netns_name=name, deadline=Deadline.after(10))
    tool = IptablesTool(launcher, netns, name, await choose_iptables(launcher))
    context = NodeContext(netns, launcher, name, tool)
    store = Store() if store is None else store
    if store.get(ObjectKey("Node", "", node)) is None:
        store.apply(Node(name=node, addresses=(Addresses(Family.IPV4).of("node", 1),)))
    cluster = Cluster(store, ApiServer(store), Barrier(store, BOTH))
    upstream = Upstream(os.environ["TEST_KUBE_PROXY"], identity(""), flags, gates or {})
    chosen = EngineChoice(engine, families=BOTH, upstream=upstream, **choice)
    stage = Stage(store, make_engine(chosen, node, context, cluster), launcher, context, cluster, chosen, node)
    try:
        await stage.engine.start()
        yield stage
    finally:
        await stage.engine.stop()
        await cluster.api.close()
        launcher.forget([name])
        netns.close()
