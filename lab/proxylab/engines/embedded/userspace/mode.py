"""Mode userspace, with all in which it differs from the other modes."""

from collections.abc import Mapping
from typing import Final

from proxylab.cluster.configuration import Mode, go_duration
from proxylab.engines.embedded.iptables import texts as iptables
from proxylab.engines.embedded.iptables.mutants import MUTANT_LINES, loaded_rules
from proxylab.engines.embedded.mutation import Equivalent
from proxylab.engines.embedded.settings import Periods
from proxylab.engines.embedded.userspace import texts
from proxylab.engines.embedded.userspace.lacks import LACKS
from proxylab.engines.kubeproxy.log import BalancerLog
from proxylab.engines.proxy_mode import WITHOUT_INVALID_RULE, KubeProxyTraits, ProxyMode

_READY: Final = "its process gets the ready endpoints, wherever they are, whatever else is said of them"
_NO_DETECTOR: Final = "it has no rule by which local traffic is told from other traffic"
_NO_POLICY: Final = "it goes to endpoints on all nodes: the mode has no traffic policy Local"
_NO_TYPE: Final = "it reads the node ports and addresses of a Service, and of its type only whether it is ExternalName"
_NO_NODES: Final = (
    "its proxier follows no Nodes (NoopNodeHandler in pkg/proxy/userspace/proxier.go) and takes the address of the "
    "default route for the node's own; healthz asks for the Node since 1.30, and the mode ended with 1.25. Its start "
    "asks for the pod networks of the Node, of which the mode makes no rule"
)
_ONE_FAMILY: Final = (
    "it serves clusterIP alone, the first of a Service's addresses, where that is of the cluster's first family "
    "(mergeService in pkg/proxy/userspace/proxier.go); probes of other Services and addresses are skipped"
)
_CLUSTER_IPS: Final = "Service.clusterIPs"

_UNREAD: Final[Mapping[str, str]] = {
    **WITHOUT_INVALID_RULE,
    "Node": _NO_NODES,
    **{
        f"EndpointSlice.endpoints.{each}": _READY
        for each in ("serving", "terminating", "nodeName", "forZones", "forNodes")
    },
    **{f"KubeProxyConfiguration.{each}": _NO_DETECTOR for each in ("detectLocalMode", "clusterCIDRs")},
    **{f"KubeProxyConfiguration.{each}": _NO_DETECTOR for each in ("bridgeInterface", "interfaceNamePrefix")},
    "Service.externalTrafficPolicy": _NO_POLICY,
    "Service.internalTrafficPolicy": _NO_POLICY,
    "Service.healthCheckNodePort": "the mode serves none",
    "Service.sourceRanges": "the mode has no rule for them",
    "Service.loadBalancerIngress.ipMode": "kube-proxy knows it since 1.29, and the mode ended with 1.25",
}

_ALIKE: Final[Mapping[str, str]] = {
    **{f"Service.type: as {each}": _NO_TYPE for each in ("ClusterIP", "NodePort")},
    **dict.fromkeys(
        (
            f"{_CLUSTER_IPS}: without the last",
            f"{_CLUSTER_IPS}[last]: one more",
            "Service.affinityTimeout of the second family: left out",
            "Service.affinityTimeout of the second family: ten times as long",
        ),
        _ONE_FAMILY,
    ),
}

_EQUIVALENTS: Final = (
    Equivalent(
        ("filter KUBE-NODEPORT-NON-LOCAL -p PROTOCOL --dport PORT --state NEW -j ACCEPT",),
        ("-p of TCP and UDP",),
        "the port is the one of the proxy's process, which the kernel chooses, so that no sender can dial its number",
    ),
    Equivalent(
        ("filter KUBE-NODEPORT-NON-LOCAL -p PROTOCOL --dport PORT --state NEW -j ACCEPT",),
        ("without --state",),
        "the rule accepts packets of open connections besides, and each firewall under which a NodePort works does so",
    ),
)
"""Mutants of its rules that no packet of any scenario can tell from the rule, each with its proof."""

MODE: Final = ProxyMode(
    word=Mode.USERSPACE,
    package=__package__,
    about={
        "embedded/userspace": "Runs a process in each node that ends connections, as kube-proxy did before 1.26.",
        "kube-proxy/userspace": "Upstream's binary in mode userspace, which 1.26 removed.",
    },
    settings=texts.settings,
    periods=lambda proxy: Periods(least=proxy.min_sync_period, sync=proxy.sync_period),
    assume=texts.assume,
    load=texts.load,
    read=texts.read,
    differences=texts.differences,
    by_family=iptables.by_family,
    holds=texts.holds,
    without=iptables.without,
    loaded=loaded_rules,
    mutants=MUTANT_LINES,
    equivalents=_EQUIVALENTS,
    alike=_ALIKE,
    unread=_UNREAD,
    ordered=frozenset((_CLUSTER_IPS,)),
    failures="iptables_restore_failures",
    reads=frozenset(("sync_period", "udp_idle_timeout")),
    keys=lambda proxy: {"udpIdleTimeout": go_duration(proxy.udp_idle_timeout)},
    lacks=LACKS,
    # It ended with 1.25, before there was a mode nftables, whose rules would translate first.
    removes=(Mode.NFTABLES, Mode.IPTABLES),
    kube_proxy=KubeProxyTraits(
        # It raises its limit of open files, and goes on without in a user namespace only under this gate.
        feature_gates={"KubeletInUserNamespace": True},
        log=BalancerLog,
        one_family=True,
        one_by_one=True,
        follows_zones=False,
        watches_endpoints=True,
    ),
)
