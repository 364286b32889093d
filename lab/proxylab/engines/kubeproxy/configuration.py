"""kube-proxy's configuration file and command line.

JSON is YAML without YAML 1.1's traps: a node called ``n`` stays a text. kube-proxy logs a field that its version does
not know and otherwise ignores it (its strict decoder gives way to a lenient one), so one document serves all versions.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from proxylab.addresses import IPNetwork
from proxylab.cluster.configuration import (
    ConntrackTimeouts,
    DetectLocalMode,
    Mode,
    ProxyConfiguration,
    go_duration,
)
from proxylab.engines.modes import MODES
from proxylab.engines.proxy_mode import ProxyMode

CONFIG: Final = "/run/kube-proxy/config.json"
"""In the node's private /run, where a user in the node's shell finds it."""


def configuration(
    mode: ProxyMode,
    node: str,
    proxy: ProxyConfiguration,
    *,
    cluster_cidrs: Sequence[IPNetwork],
    feature_gates: Mapping[str, bool],
) -> str:
    """The KubeProxyConfiguration of one node.

    The pod networks serve where the scenario names none; ``feature_gates`` add to those of the scenario.
    """
    networks = cluster_cidrs if proxy.cluster_cidrs is None else proxy.cluster_cidrs
    document: dict[str, Any] = {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": mode.word,
        "hostnameOverride": node,
        # The lab's API server speaks JSON only; kube-proxy's default rate limits are for far bigger clusters.
        "clientConnection": {"contentType": "application/json", "qps": 1000, "burst": 2000},
        "detectLocalMode": str(proxy.detect_local_mode),
        "clusterCIDR": ",".join(map(str, networks)) if proxy.detect_local_mode is DetectLocalMode.CLUSTER_CIDR else "",
        "detectLocal": {
            "bridgeInterface": proxy.bridge_interface,
            "interfaceNamePrefix": proxy.interface_name_prefix,
        },
        "bindAddress": "" if proxy.bind_address is None else str(proxy.bind_address),
        "nodePortAddresses": [*proxy.node_port_words, *map(str, proxy.node_port_addresses)],
        "healthzBindAddress": str(proxy.healthz),
        "metricsBindAddress": str(proxy.metrics),
        "oomScoreAdj": 0,
        "conntrack": _conntrack(proxy.conntrack),
        **{
            key: value
            for each in MODES.values()
            if each is mode or not Mode(each.word).facts.last_minor
            for key, value in each.keys(proxy).items()
        },
        "featureGates": {**mode.kube_proxy.feature_gates, **proxy.feature_gates, **feature_gates},
    }
    return json.dumps(document, indent=2)


def command(binary: str, node: str, api: str, flags: Sequence[str]) -> tuple[str, ...]:
    """The command line; the configuration lies at ``CONFIG``.

    Besides a configuration file kube-proxy honours only a few flags: ``--v`` and others of logging.
    """
    return (binary, f"--config={CONFIG}", f"--hostname-override={node}", f"--master={api}", "--v=2", *flags)


def _conntrack(conntrack: ConntrackTimeouts) -> dict[str, Any]:
    return {
        # nf_conntrack_max is read-only in a network namespace, and kube-proxy exits where it cannot write it.
        "maxPerCore": 0,
        "min": 0,
        "tcpEstablishedTimeout": go_duration(conntrack.tcp_established),
        "tcpCloseWaitTimeout": go_duration(conntrack.tcp_close_wait),
        "udpTimeout": go_duration(conntrack.udp),
        "udpStreamTimeout": go_duration(conntrack.udp_stream),
        "tcpBeLiberal": conntrack.tcp_be_liberal,
    }
