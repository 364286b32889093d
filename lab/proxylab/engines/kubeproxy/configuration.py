"""What kube-proxy is told at its start.

Owns: ``configuration``, its KubeProxyConfiguration as JSON, ``command``, its command line, and ``tools``, the iptables
that it runs.
Must not: start it.

JSON is YAML, and has none of YAML 1.1's traps: a node called ``n`` stays a text. A field that a version does not know
is logged by it and otherwise ignored (its strict decoder gives way to a lenient one), so one document serves all.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from proxylab.addresses import IPNetwork
from proxylab.cluster.configuration import ConntrackTimeouts, DetectLocalMode, NftablesConfiguration, ProxyConfiguration

__all__ = ["CONFIG", "command", "configuration"]

CONFIG: Final = "/run/kube-proxy/config.json"
"""In the place's private /run, where whoever looks around in the node finds it."""


def configuration(
    mode: str,
    node: str,
    proxy: ProxyConfiguration,
    *,
    cluster_cidrs: Sequence[IPNetwork],
    feature_gates: Mapping[str, bool],
) -> str:
    """The KubeProxyConfiguration of one node.

    Args:
        mode: ``iptables`` or ``nftables``.
        node: its name, as its Node object has it.
        proxy: what the scenario says.
        cluster_cidrs: the lab's pod networks, where the scenario says nothing of them.
        feature_gates: those that are to be switched besides those of the scenario.
    """
    networks = cluster_cidrs if proxy.cluster_cidrs is None else proxy.cluster_cidrs
    document: dict[str, Any] = {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": mode,
        "hostnameOverride": node,
        # The lab's API server speaks JSON only; the limits are for a cluster of more than a lab's few nodes.
        "clientConnection": {"contentType": "application/json", "qps": 1000, "burst": 2000},
        "detectLocalMode": str(proxy.detect_local_mode),
        "clusterCIDR": ",".join(map(str, networks)) if proxy.detect_local_mode is DetectLocalMode.CLUSTER_CIDR else "",
        "detectLocal": {
            "bridgeInterface": proxy.bridge_interface,
            "interfaceNamePrefix": proxy.interface_name_prefix,
        },
        "nodePortAddresses": ["primary"] if proxy.node_port_primary else list(map(str, proxy.node_port_addresses)),
        "healthzBindAddress": str(proxy.healthz),
        "metricsBindAddress": str(proxy.metrics),
        "oomScoreAdj": 0,
        "conntrack": _conntrack(proxy.conntrack),
        "iptables": {**_of_mode(proxy), "localhostNodePorts": proxy.localhost_node_ports},
        "nftables": _of_mode(proxy.nftables),
        "featureGates": {**proxy.feature_gates, **feature_gates},
    }
    return json.dumps(document, indent=2)


def command(binary: str, node: str, api: str, flags: Sequence[str]) -> tuple[str, ...]:
    """The command line, for a node where the configuration lies at ``CONFIG``.

    Args:
        binary: its path.
        node: the node's name.
        api: the URL of the API server.
        flags: further ones, which kube-proxy honours besides a configuration file: ``--v`` and others of logging.
    """
    return (binary, f"--config={CONFIG}", f"--hostname-override={node}", f"--master={api}", "--v=2", *flags)


def _conntrack(conntrack: ConntrackTimeouts) -> dict[str, Any]:
    return {
        # nf_conntrack_max is read-only in a network namespace, and kube-proxy would end where it cannot write it.
        "maxPerCore": 0,
        "min": 0,
        "tcpEstablishedTimeout": _duration(conntrack.tcp_established),
        "tcpCloseWaitTimeout": _duration(conntrack.tcp_close_wait),
        "udpTimeout": _duration(conntrack.udp),
        "udpStreamTimeout": _duration(conntrack.udp_stream),
        "tcpBeLiberal": conntrack.tcp_be_liberal,
    }


def _of_mode(proxy: ProxyConfiguration | NftablesConfiguration) -> dict[str, Any]:
    return {
        "masqueradeBit": proxy.masquerade_bit,
        "masqueradeAll": proxy.masquerade_all,
        "syncPeriod": _duration(proxy.sync_period),
        "minSyncPeriod": _duration(proxy.min_sync_period),
    }


def _duration(seconds: float) -> str:
    """As Go writes it."""
    return f"{round(seconds * 1000)}ms"
