"""Makes the kube-proxy of a node, with all by which the engine follows the process and the kernel."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from msgspec.structs import replace

from proxylab.addresses import Family
from proxylab.cluster.configuration import SocketAddress
from proxylab.cluster.objects import ZONE_LABEL, Key, Node, Service
from proxylab.cluster.store import Store
from proxylab.control.apiserver import API_ADDRESS, API_PORT
from proxylab.control.http_client import fetch
from proxylab.engines.barrier import balanced, reached
from proxylab.engines.context import Cluster, NodeContext
from proxylab.engines.engine_names import mode_of
from proxylab.engines.kubeproxy.configuration import CONFIG, command, configuration
from proxylab.engines.kubeproxy.engine import KubeProxyEngine, KubeProxyNode
from proxylab.engines.kubeproxy.metrics import SyncState, read_metrics, says_of_node
from proxylab.engines.node_mode import node_mode
from proxylab.engines.protocol import EngineChoice
from proxylab.errors import InternalError
from proxylab.kernel.sandbox.iptables_links import CHOSEN_FIRST, links_to
from proxylab.kernel.sandbox.netns import NetNs
from proxylab.kernel.sandbox.running import Running
from proxylab.scenario.model import Mode
from proxylab.timing import Deadline

__all__ = ["make_kube_proxy"]

_ASK_SECONDS: Final = 5.0


def make_kube_proxy(choice: EngineChoice, node: str, context: NodeContext, cluster: Cluster) -> KubeProxyEngine:
    """Make a kube-proxy for the node of that name; it is not started.

    Raises:
        InternalError: the choice has no binary.
    """
    upstream = choice.upstream
    if upstream is None:
        raise InternalError(f"no binary was obtained for {choice.name}")
    mode, proxy = mode_of(choice.name), choice.configuration
    on_node = node_mode(mode, context)
    config = configuration(mode, node, proxy, cluster_cidrs=choice.cluster_cidrs, feature_gates=upstream.feature_gates)
    api = f"http://{API_ADDRESS}:{API_PORT}"
    argv = command(upstream.binary, node, api, upstream.flags)

    async def state() -> SyncState | None:
        deadline = Deadline.after(_ASK_SECONDS)
        try:
            status, page = await fetch(context.netns, proxy.metrics.address, proxy.metrics.port, "/metrics", deadline)
        except (OSError, TimeoutError):
            return None
        return read_metrics(page) if status == 200 else None

    def zone() -> str | None:
        known = cluster.store.get(Key("Node", "", node))
        return known.labels.get(ZONE_LABEL, "") if isinstance(known, Node) else None

    async def prepare() -> None:
        on_node.require()
        await cluster.api.listen(context.netns)

    async def dump() -> str:
        return "".join([await on_node.dump(family) for family in choice.families])

    log, is_userspace = _BalancerLog(), mode == Mode.USERSPACE

    def caught_up(family: Family) -> int:
        rules = reached(on_node.written(family))
        return min(rules, log.number) if is_userspace else rules

    async def launch(heard: Callable[[str], None]) -> Running:
        log.number = 0  # a new process balances nothing yet

        def hear(line: str) -> None:
            log.hear(line)
            heard(line)

        return await _launch(context, argv, config, hear)

    node_of_proxy = KubeProxyNode(
        prepare=prepare,
        launch=launch,
        reached=caught_up,
        state=state,
        zone=zone,
        move=partial(_move, node, cluster.store),
        serves=lambda: any(service.health_check_node_port for service in cluster.store.list(Service)),
        agrees=partial(_agrees, node, context.netns, cluster.store, proxy.healthz),
        dump=dump,
    )
    families = choice.families[:1] if is_userspace else choice.families
    return KubeProxyEngine(node, cluster.barrier, families, node_of_proxy)


class _BalancerLog:
    """How far the balancer of mode userspace has come, by kube-proxy's log."""

    def __init__(self) -> None:
        self.number = 0

    def hear(self, line: str) -> None:
        """Take in a line of the log."""
        self.number = max(self.number, balanced(line))


async def _launch(context: NodeContext, argv: Sequence[str], config: str, heard: Callable[[str], None]) -> Running:
    return await context.launcher.start(
        context.netns,
        argv,
        netns_name=context.name,
        heard=heard,
        files={CONFIG: config},
        links=links_to(context.tool.variant.name),
        environment={"PATH": CHOSEN_FIRST},
    )


def _move(node: str, store: Store, zone: str) -> None:
    known = store.get(Key("Node", "", node))
    if isinstance(known, Node):
        labels = {key: value for key, value in known.labels.items() if key != ZONE_LABEL}
        store.apply(replace(known, labels=labels | ({ZONE_LABEL: zone} if zone else {})))


async def _agrees(node: str, netns: NetNs, store: Store, healthz: SocketAddress) -> bool:
    known = store.get(Key("Node", "", node))
    if not isinstance(known, Node):
        return True
    try:
        _, page = await fetch(netns, healthz.address, healthz.port, "/healthz", Deadline.after(_ASK_SECONDS))
    except (OSError, TimeoutError):
        return True  # /healthz does not answer, so no client can see its answer
    return says_of_node(page) in (None, not known.is_leaving)
