"""Makes the engine of a node from its name.

Owns ``make_engine``, with a maker for each of the ``names``. It starts nothing, and does not choose the engine.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, Literal

from msgspec.structs import replace

from proxylab.addresses import Family, Protocol
from proxylab.control.http_server import NodeServers
from proxylab.engines.context import Cluster, NodeContext
from proxylab.engines.embedded.around import Node, NodeWork, proxy_sysctls
from proxylab.engines.embedded.iptables.legacy import V1_23
from proxylab.engines.embedded.iptables.matches import INVALID_COUNTER, LOCALHOST_COUNTER
from proxylab.engines.embedded.iptables.render import CURRENT
from proxylab.engines.embedded.iptables.shape import Shape
from proxylab.engines.embedded.loader import RulesRefusedError
from proxylab.engines.embedded.pace import Periods
from proxylab.engines.embedded.settings import ProxySettings
from proxylab.engines.embedded.sync import EmbeddedEngine
from proxylab.engines.embedded.udp import UdpReconciler
from proxylab.engines.kubeproxy.make import make_kube_proxy
from proxylab.engines.names import read_engine
from proxylab.engines.protocol import Engine, EngineChoice
from proxylab.errors import InternalError
from proxylab.kernel.netfilter.nfacct import ensure_counters
from proxylab.kernel.netfilter.rules import IptablesTool, RestoreRefusedError
from proxylab.kernel.netlink.conntrack import Conntrack
from proxylab.kernel.netlink.survey import read_addresses
from proxylab.kernel.sandbox.netns import NetNs
from proxylab.kernel.sandbox.sysctl import read_sysctl, write_sysctls
from proxylab.plan.model import Sysctl

__all__ = ["make_engine"]


class _ToolLoader:
    """``RuleLoader`` by the kernel room's iptables; turns its refusals into the engine's own error."""

    def __init__(self, tool: IptablesTool) -> None:
        self._tool = tool

    async def load(self, family: Family, text: str) -> None:
        try:
            await self._tool.load(family, text)
        except RestoreRefusedError as refused:
            raise RulesRefusedError(refused.output) from refused

    async def has_chain(self, family: Family, table: str, chain: str) -> bool:
        return await self._tool.has_chain(family, table, chain)

    def drop_nft_table(self, family: Family, name: str) -> bool:
        return self._tool.drop_nft_table(family, name)

    async def save(self, family: Family) -> str:
        return await self._tool.save(family)


class _Flows:
    """``FlowTable`` by the kernel room's conntrack."""

    def __init__(self, netns: NetNs) -> None:
        self._conntrack = Conntrack(netns)

    def forget_udp(self, family: Family, is_stale: UdpReconciler) -> int:
        entries = self._conntrack.entries(family, Protocol.UDP.number)
        return self._conntrack.delete([entry for entry in entries if is_stale(entry)])

    def close(self) -> None:
        self._conntrack.close()


def _embedded_iptables(
    choice: EngineChoice,
    node: str,
    context: NodeContext,
    cluster: Cluster,
    *,
    shape: Shape = CURRENT,
    forget_stale_udp: Literal["always", "1.36"] = "always",
) -> Engine:
    configuration, families, netns = choice.configuration, choice.families, context.netns
    settings = ProxySettings.of(configuration, choice.cluster_cidrs)
    counters = ensure_counters(netns, (INVALID_COUNTER, LOCALHOST_COUNTER)) if shape is CURRENT else False
    settings = replace(settings, packet_counters=counters, forget_stale_udp=forget_stale_udp)
    if read_sysctl(netns, "net.netfilter.nf_conntrack_tcp_be_liberal") not in (None, "0"):
        settings = replace(settings, conntrack_tcp_be_liberal=True)
    flows = _Flows(netns)

    def write(sysctls: Mapping[str, str]) -> None:
        write_sysctls(netns, [Sysctl(name, value) for name, value in sysctls.items()])

    work = NodeWork(
        Node(flows=flows, servers=NodeServers(netns), write_sysctls=write, close=flows.close),
        settings,
        sysctls=proxy_sysctls(settings, configuration.conntrack, families),
        healthz=configuration.healthz,
        metrics=configuration.metrics,
    )
    return EmbeddedEngine(
        node,
        cluster.store,
        _ToolLoader(context.tool),
        settings,
        families=families,
        interface_addresses=lambda: read_addresses(netns) if settings.node_port_addresses else (),
        shape=shape,
        periods=Periods(least=configuration.min_sync_period, sync=configuration.sync_period),
        surroundings=work,
    )


_Maker = Callable[[EngineChoice, str, NodeContext, Cluster], Engine]

_MAKERS: Final[Mapping[str, _Maker]] = {
    "embedded/iptables": _embedded_iptables,
    "embedded@v1.23/iptables": partial(_embedded_iptables, shape=V1_23),
    "embedded@v1.34/iptables": partial(_embedded_iptables, forget_stale_udp="1.36"),
    "kube-proxy/iptables": make_kube_proxy,
    "kube-proxy/nftables": make_kube_proxy,
}


def make_engine(choice: EngineChoice, node: str, context: NodeContext, cluster: Cluster) -> Engine:
    """Make the chosen engine for the node of that name; it is not started.

    Raises:
        InternalError: there is no engine of that name. Callers check a user's name by ``names.read_engine``.
    """
    try:
        name = read_engine(choice.name)
    except ValueError as error:
        raise InternalError(str(error)) from error
    return _MAKERS[str(replace(name, version="")) if name.is_upstream else choice.name](choice, node, context, cluster)
