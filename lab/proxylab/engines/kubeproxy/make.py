"""Makes the kube-proxy of a node, with all by which the engine follows the process and the kernel."""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from proxylab.addresses import Family
from proxylab.cluster.configuration import SocketAddress
from proxylab.cluster.objects import ZONE_LABEL, Node, ObjectKey, Service, ServiceCIDR
from proxylab.cluster.store import Store
from proxylab.control.apiserver import API_ADDRESS, API_PORT
from proxylab.control.http_client import fetch
from proxylab.engines.barrier import highest_number_in
from proxylab.engines.context import Cluster, NodeContext
from proxylab.engines.embedded.iptables.legacy import MARK_DROP, kubelet_rules
from proxylab.engines.engine_names import mode_of
from proxylab.engines.kubeproxy.configuration import CONFIG, command, configuration
from proxylab.engines.kubeproxy.engine import KubeProxyEngine, KubeProxyNode
from proxylab.engines.kubeproxy.log import BalancerLog, ProgressLog, SyncLog
from proxylab.engines.kubeproxy.metrics import SyncState, read_metrics, says_of_node
from proxylab.engines.modes import MODES
from proxylab.engines.node_mode import NodeMode, node_mode
from proxylab.engines.protocol import EngineChoice
from proxylab.engines.proxy_mode import CommentedRule
from proxylab.errors import InternalError
from proxylab.kernel.modules import is_built_in
from proxylab.kernel.netfilter.iptables_tool import IptablesTool
from proxylab.kernel.netfilter.rule_dumps import nft_rules
from proxylab.kernel.sandbox.iptables_links import CHOSEN_FIRST
from proxylab.kernel.sandbox.netns import NetNs
from proxylab.kernel.sandbox.running import Running
from proxylab.timing import Deadline

_ASK_SECONDS: Final = 5.0
_NO_MODPROBE: Final = {f"{CHOSEN_FIRST.partition(':')[0]}/modprobe": "/bin/true"}
"""Where IPVS is built in. A guest's kernel has no list of such modules, so modprobe(8) fails. Then kube-proxy in mode
nftables takes the kernel for one without IPVS, and leaves behind what mode ipvs has left (pkg/proxy/ipvs/cleanup.go).
"""

_WITH_MODULES: Final = (
    *("unshare", "--mount", "sh", "-ec"),
    """
    mkdir -p /run/proc
    mount --rbind /proc /run/proc
    mount -t tmpfs tmpfs /proc
    : >/proc/modules
    for each in /run/proc/[!0-9]*; do ln -s "$each" /proc; done
    exec "$@"
    """,
    "kube-proxy",
)
"""Starts a command with an empty /proc/modules. A kernel that loads no modules has no such file, and then kube-proxy
takes it for one without IPVS. The modules in the list that it makes are those for which modprobe(8) succeeds.
"""

_OWN_DROPS: Final = (1, 25)
"""The first version whose rules drop by themselves, without the kubelet's chains (KEP-3178)."""


HEALTHZ_OF_NODES: Final = (1, 30)
"""The version since which healthz answers for the node, too (KEP-3836). 1.28 and 1.29 do with ``_HEALTHZ_GATE``."""

ENDS_WITH_NODE: Final = (1, 37)
"""The version since which kube-proxy ends when its Node goes or gets other addresses (kubernetes#138183)."""

_HEALTHZ_GATE: Final = "KubeProxyDrainingTerminatingNodes"

_SERVICE_CIDRS: Final = (1, 33)
"""The version since which kube-proxy watches ServiceCIDRs without ``_SERVICE_CIDR_GATE`` (KEP-1880)."""

_SERVICE_CIDR_GATE: Final = "MultiCIDRServiceAllocator"


def make_kube_proxy(choice: EngineChoice, node: str, context: NodeContext, cluster: Cluster) -> KubeProxyEngine:
    """Make a kube-proxy for the node of that name; it is not started. Raises ``InternalError``."""
    upstream = choice.upstream
    if upstream is None:
        raise InternalError(f"no binary was obtained for {choice.name}")
    mode, proxy = MODES[mode_of(choice.name)], choice.configuration
    traits, on_node = mode.kube_proxy, node_mode(mode.word, context)
    config = configuration(mode, node, proxy, cluster_cidrs=choice.cluster_cidrs, feature_gates=upstream.feature_gates)
    api = f"http://{API_ADDRESS}:{API_PORT}"
    argv = command(upstream.binary, node, api, (*traits.flags, *upstream.flags))
    if choice.version < traits.modules_before and not Path("/proc/modules").exists():
        argv = (*_WITH_MODULES, *argv)

    async def prepare() -> None:
        on_node.require()
        if choice.version < _OWN_DROPS:
            await _write_kubelet_rules(context.tool, choice.families)
        await cluster.api.listen(context.netns)

    async def dump() -> str:
        return "".join([await on_node.dump(family) for family in choice.families])

    log = None if traits.log is None else traits.log()
    launch: _Launch = partial(_launch, context, argv, config)
    periods = mode.periods(proxy)
    families = choice.families[:1] if traits.one_family else choice.families
    gates = {**proxy.feature_gates, **upstream.feature_gates}
    follows_node = gates.get(_HEALTHZ_GATE, choice.version >= HEALTHZ_OF_NODES)
    reads_networks = gates.get(_SERVICE_CIDR_GATE, choice.version >= _SERVICE_CIDRS)
    rule = traits.rule_of_service_networks if reads_networks else None

    node_of_proxy = KubeProxyNode(
        prepare=prepare,
        launch=launch if log is None else partial(_read_along, launch, log),
        reached=partial(_reached, on_node, log),
        state=partial(_state, context.netns, proxy.metrics, log),
        zone=partial(_zone, node, cluster.store) if traits.follows_zones else lambda: "",
        move=partial(_move, node, cluster.store),
        serves=lambda: any(service.health_check_node_port for service in cluster.store.list(Service)),
        agrees=partial(_agrees, node, context.netns, cluster.store, proxy.healthz) if follows_node else _does_not_ask,
        dump=dump,
        one_by_one=traits.one_by_one,
        shows_ends=isinstance(log, SyncLog),
        discarded=(lambda: dict(log.discarded)) if isinstance(log, BalancerLog) else lambda: None,
        took_up=log.took_up if isinstance(log, SyncLog) else lambda _zone: True,
        knows_networks=partial(_has_rule, context.netns, families, rule, cluster.store) if rule else lambda: True,
        periods=replace(periods, full=periods.sync) if traits.always_full else periods,
        ends_with_node=choice.version >= ENDS_WITH_NODE,
    )
    return KubeProxyEngine(node, cluster.barrier, families, node_of_proxy)


_Launch = Callable[[Callable[[str], None]], Awaitable[Running]]


async def _read_along(launch: _Launch, log: ProgressLog, heard: Callable[[str], None]) -> Running:
    """Start kube-proxy, and read its log as it comes."""
    log.restart()

    def hear(line: str) -> None:
        log.hear(line)
        heard(line)

    return await launch(hear)


async def _write_kubelet_rules(tool: IptablesTool, families: Sequence[Family]) -> None:
    """Make the kubelet's chains where they are missing; the rules of an earlier proxy may stand beside them."""
    for family in families:
        if not await tool.has_chain(family, MARK_DROP.table, MARK_DROP.name):
            await tool.load(family, kubelet_rules(family))


async def _launch(context: NodeContext, argv: Sequence[str], config: str, heard: Callable[[str], None]) -> Running:
    return await context.launcher.start(
        context.netns,
        argv,
        netns_name=context.name,
        heard=heard,
        files={CONFIG: config},
        links=context.links | (_NO_MODPROBE if is_built_in("ip_vs") else {}),
        environment={"PATH": CHOSEN_FIRST},
    )


def _reached(on_node: NodeMode, log: ProgressLog | None, family: Family) -> int:
    """The barrier number that rules, log or both show; 0 where the rules are gone."""
    written = on_node.written(family)
    if isinstance(log, SyncLog):
        return log.reached(family) if any(b"KUBE-" in each for each in written) else 0
    number = highest_number_in(written)
    return number if log is None else min(number, log.reached(family))


async def _state(netns: NetNs, metrics: SocketAddress, log: ProgressLog | None) -> SyncState | None:
    try:
        status, page = await fetch(netns, metrics.address, metrics.port, "/metrics", Deadline.after(_ASK_SECONDS))
    except (OSError, TimeoutError):
        return None
    state = read_metrics(page) if status == 200 else None
    # Mode ipvs has no metric of full syncs.
    return replace(state, full={"": log.moves}) if state is not None and isinstance(log, SyncLog) else state


def _zone(node: str, store: Store) -> str | None:
    known = store.get(ObjectKey("Node", "", node))
    return known.labels.get(ZONE_LABEL, "") if isinstance(known, Node) else None


def _has_rule(netns: NetNs, families: Sequence[Family], rule: CommentedRule, store: Store) -> bool:
    """Whether the rule stands in each family that has a service network."""
    networks = {Family.of(network) for each in store.list(ServiceCIDR) for network in each.cidrs}
    return all(
        any(rule.comment.encode() in each for each in nft_rules(netns, family, rule.table, rule.chain))
        for family in networks.intersection(families)
    )


def _move(node: str, store: Store, zone: str) -> None:
    known = store.get(ObjectKey("Node", "", node))
    if isinstance(known, Node):
        labels = {key: value for key, value in known.labels.items() if key != ZONE_LABEL}
        store.apply(replace(known, labels=labels | ({ZONE_LABEL: zone} if zone else {})))


async def _does_not_ask() -> bool:
    return True


async def _agrees(node: str, netns: NetNs, store: Store, healthz: SocketAddress) -> bool:
    known = store.get(ObjectKey("Node", "", node))
    if not isinstance(known, Node):
        return True
    try:
        _, page = await fetch(netns, healthz.address, healthz.port, "/healthz", Deadline.after(_ASK_SECONDS))
    except (OSError, TimeoutError):
        return True  # /healthz does not answer, so no client can see its answer
    return says_of_node(page) in (None, not known.is_leaving)
