"""kube-proxy on a node's own kernel.

Owns: ``make_kube_proxy``: by what the kernel is read, in each mode and for each variant of iptables.
Must not: wait for anything.
"""

import re
from collections.abc import Callable
from functools import partial
from typing import Final

from lab.control.apiserver import API_ADDRESS, API_PORT
from lab.control.ask import fetch
from lab.engines.barrier import BARRIER
from lab.engines.ground import Cluster, Place
from lab.engines.kubeproxy.configuration import configuration, script
from lab.engines.kubeproxy.engine import KubeProxyEngine, Station
from lab.engines.kubeproxy.metrics import SyncState, read_metrics
from lab.engines.names import NFT_TABLE, mode_of
from lab.engines.protocol import EngineChoice
from lab.errors import InternalError
from lab.ip import Family
from lab.kernel.nft import NftTool
from lab.kernel.programmed import iptables_nft_holds, nft_table_holds, xtables_hold
from lab.kernel.running import Running
from lab.kernel.xtables import TableReader
from lab.timing import Deadline

__all__ = ["make_kube_proxy"]

_METRICS_SECONDS: Final = 5.0


def make_kube_proxy(choice: EngineChoice, node: str, place: Place, cluster: Cluster) -> KubeProxyEngine:
    """A kube-proxy for the node of that name, not yet started.

    Raises:
        InternalError: nobody has said which binary it is.
    """
    upstream = choice.upstream
    if upstream is None:
        raise InternalError(f"no binary was obtained for {choice.name}")
    mode, proxy = mode_of(choice.name), choice.configuration
    told = configuration(mode, node, proxy, cluster_cidrs=choice.cluster_cidrs, feature_gates=upstream.feature_gates)
    api = f"http://{API_ADDRESS}:{API_PORT}"
    argv = script(upstream.binary, node, api, place.tool.variant.name, upstream.flags)

    async def launch(heard: Callable[[str], None]) -> Running:
        return await place.launcher.start(place.netns, argv, place=place.name, heard=heard, stdin=told)

    async def state() -> SyncState | None:
        deadline = Deadline.after(_METRICS_SECONDS)
        try:
            status, page = await fetch(place.netns, proxy.metrics.address, proxy.metrics.port, "/metrics", deadline)
        except (OSError, TimeoutError):
            return None
        return read_metrics(page) if status == 200 else None

    async def prepare() -> None:
        if mode == "nftables":
            await NftTool(place.launcher, place.netns, place.name).version()
        await cluster.api.listen(place.netns)

    holds, dump = (_holds_nftables, _dump_nftables) if mode == "nftables" else (_holds_iptables, _dump_iptables)
    station = Station(
        prepare=prepare,
        launch=launch,
        holds=holds(place),
        state=state,
        dump=partial(dump, place, choice.families),
    )
    return KubeProxyEngine(node, cluster.barrier, choice.families, station)


def _holds_iptables(place: Place) -> Callable[[Family, str], bool]:
    # Of the tables that kube-proxy writes nat is the last, so what is there is everywhere.
    table = "nat"
    if place.tool.variant.name == "legacy":

        def xtables(family: Family, name: str) -> bool:
            reader = TableReader(place.netns, family)
            try:
                return xtables_hold(reader, table, f"{BARRIER}:{name}")
            finally:
                reader.close()

        return xtables
    return lambda family, name: iptables_nft_holds(place.netns, family, table, f"{BARRIER}:{name}")


def _holds_nftables(place: Place) -> Callable[[Family, str], bool]:
    def holds(family: Family, name: str) -> bool:
        # A Service without endpoints has no chain of its own, in any version.
        chain = re.compile(rf"service-[A-Z2-7]+-{BARRIER}/tcp/{name}\0".encode())
        return nft_table_holds(place.netns, family, NFT_TABLE, chain)

    return holds


async def _dump_iptables(place: Place, families: tuple[Family, ...]) -> str:
    return "".join([await place.tool.save(family) for family in families])


async def _dump_nftables(place: Place, families: tuple[Family, ...]) -> str:
    tool = NftTool(place.launcher, place.netns, place.name)
    return "".join([await tool.list_table(family, NFT_TABLE) for family in families])
