"""Makes the engine of a node from its name.

Owns ``make_engine``. It starts nothing, and does not choose the engine.
"""

from collections.abc import Mapping
from functools import partial
from typing import Final

from msgspec.structs import replace

from proxylab.addresses import Family, Protocol
from proxylab.control.http_server import NodeServers
from proxylab.engines.context import Cluster, NodeContext
from proxylab.engines.embedded.gates import allows_external_ips, refuse_mode, refuse_settings
from proxylab.engines.embedded.ipvs.tables import DUMMY
from proxylab.engines.embedded.node_work import EngineNode, NodeWork, proxy_sysctls
from proxylab.engines.embedded.sync import EmbeddedEngine
from proxylab.engines.embedded.udp import UdpReconciler
from proxylab.engines.engine_names import read_engine
from proxylab.engines.kubeproxy.make import ENDS_WITH_NODE, HEALTHZ_OF_NODES, make_kube_proxy
from proxylab.engines.modes import MODES
from proxylab.engines.node_mode import node_mode, removed_at_start
from proxylab.engines.protocol import Engine, EngineChoice
from proxylab.errors import InternalError
from proxylab.kernel.netfilter.nfacct import read_counters
from proxylab.kernel.netlink.addresses_answer import read_addresses
from proxylab.kernel.netlink.conntrack import Conntrack
from proxylab.kernel.sandbox.netns import NetNs
from proxylab.kernel.sandbox.sysctl import write_sysctls
from proxylab.plan.model import Sysctl

_LEAVES_UDP: Final = ((1, 32), (1, 37))
"""From the first version to the one before the second, kube-proxy forgets too few UDP flows (kubernetes#139629)."""

_NODE_SECONDS: Final = 30.0
"""How long kube-proxy waits for its Node and goes on without one (NewNodeManager in pkg/proxy/node.go)."""

_HEALTH_CHECKS_BY_FAMILY: Final = (1, 36)
"""The version since which health-check node ports listen in their own family alone (kubernetes#137370)."""


def make_engine(choice: EngineChoice, node: str, context: NodeContext, cluster: Cluster) -> Engine:
    """Make the chosen engine for the node of that name; it is not started.

    Raises:
        InternalError: there is no engine of that name. Callers check a user's name by ``engine_names.read_engine``.
    """
    try:
        name = read_engine(choice.name)
    except ValueError as error:
        raise InternalError(str(error)) from error
    make = make_kube_proxy if name.is_upstream else _make_embedded
    return make(choice, node, context, cluster)


def _make_embedded(choice: EngineChoice, node: str, context: NodeContext, cluster: Cluster) -> Engine:
    mode_name = read_engine(choice.name).mode
    mode, on_node = MODES[mode_name], node_mode(mode_name, context)
    on_node.require()
    refuse_settings(choice.name, choice.configuration)
    refuse_mode(node, mode_name, choice.configuration)
    configuration, families, netns = choice.configuration, choice.families, context.netns
    settings = mode.at_version(mode.settings(configuration, choice.cluster_cidrs), choice.version)
    first, fixed = _LEAVES_UDP
    settings = replace(
        settings,
        forget_stale_udp="1.36" if first <= choice.version < fixed else settings.forget_stale_udp,
        health_checks_collide=choice.version < _HEALTH_CHECKS_BY_FAMILY,
        healthz_of_node=choice.version >= HEALTHZ_OF_NODES,
    )
    flows = _Flows(netns)

    def write(sysctls: Mapping[str, str]) -> None:
        write_sysctls(netns, [Sysctl(name, value) for name, value in sysctls.items()])

    async def close() -> None:
        flows.close()
        await on_node.close()

    work = NodeWork(
        EngineNode(
            flows=flows,
            servers=NodeServers(netns),
            write_sysctls=write,
            close=close,
            counted_packets=partial(read_counters, netns, mode.packet_counters),
        ),
        settings,
        sysctls=proxy_sysctls(settings, configuration.conntrack, families),
        healthz=configuration.healthz,
        metrics=configuration.metrics,
    )
    restricted = mode.by_interfaces or settings.node_port_primary or settings.node_port_addresses
    proxiers = on_node.proxiers(families, settings, configuration, choice.version)
    return EmbeddedEngine(
        node,
        cluster.store,
        mode_name,
        proxiers,
        others=removed_at_start(mode_name, context),
        interface_addresses=lambda: read_addresses(netns, but=DUMMY) if restricted else (),
        node_address=settings.node_address,
        periods=mode.periods(configuration),
        surroundings=work,
        processes=on_node.processes,
        allows_external_ips=allows_external_ips(configuration),
        ends_with_node=choice.version >= ENDS_WITH_NODE,
        node_seconds=_NODE_SECONDS,
    )


class _Flows:
    """``FlowTable`` by the connection tracking of ``kernel``."""

    def __init__(self, netns: NetNs) -> None:
        self._conntrack = Conntrack(netns)

    def forget_udp(self, family: Family, is_stale: UdpReconciler) -> int:
        entries = self._conntrack.entries(family, Protocol.UDP.number)
        return self._conntrack.delete([entry for entry in entries if is_stale(entry)])

    def close(self) -> None:
        self._conntrack.close()
