"""What a scenario's KubeProxyConfiguration hands to the real kube-proxy."""

import json
from collections.abc import Iterator
from ipaddress import ip_network
from typing import Any, get_args

import pytest
from broken_scenarios import BASE

from proxylab.cluster.configuration import ProxyConfiguration
from proxylab.engines.kubeproxy.configuration import configuration
from proxylab.engines.modes import MODES
from proxylab.scenario.configuration import KubeProxyManifest
from proxylab.scenario.keys import Manifest, declared_keys
from proxylab.scenario.load import parse_scenario

NOT_HANDED_OVER = {
    "apiVersion": "is a constant of the document",
    "kind": "is a constant of the document",
    "mode": "chooses the engine, whose own mode is written",
}

# Of each key: what an author writes, and what kube-proxy reads.
WRITTEN: dict[str, tuple[str, Any]] = {
    "detectLocalMode": ("NodeCIDR", "NodeCIDR"),
    "detectLocal.bridgeInterface": ("cni0", "cni0"),
    "detectLocal.interfaceNamePrefix": ("veth", "veth"),
    "clusterCIDR": ("10.1.0.0/16,fd00::/48", "10.1.0.0/16,fd00::/48"),
    "nodePortAddresses": ("[primary]", ["primary"]),
    **{
        f"{mode}.{key}": value
        for mode in ("iptables", "nftables")
        for key, value in {
            "masqueradeBit": ("3", 3),
            "masqueradeAll": ("true", True),
            "syncPeriod": ("7s", "7000ms"),
            "minSyncPeriod": ("2s", "2000ms"),
        }.items()
    },
    "iptables.localhostNodePorts": ("false", False),
    "ipvs.scheduler": ("mh", "mh"),
    "ipvs.excludeCIDRs": ("[192.0.2.0/24]", ["192.0.2.0/24"]),
    "ipvs.strictARP": ("true", True),
    "ipvs.tcpTimeout": ("15m", "900000ms"),
    "ipvs.tcpFinTimeout": ("2m", "120000ms"),
    "ipvs.udpTimeout": ("5m", "300000ms"),
    "ipvs.syncPeriod": ("7s", "7000ms"),
    "ipvs.minSyncPeriod": ("2s", "2000ms"),
    "featureGates": ("{WatchListClient: false}", {"WatchListClient": False}),
    "conntrack.tcpEstablishedTimeout": ("1h", "3600000ms"),
    "conntrack.tcpCloseWaitTimeout": ("2m", "120000ms"),
    "conntrack.tcpBeLiberal": ("true", True),
    "conntrack.udpTimeout": ("3s", "3000ms"),
    "conntrack.udpStreamTimeout": ("4s", "4000ms"),
    "udpIdleTimeout": ("5s", "5000ms"),
    "bindAddress": ("172.18.0.9", "172.18.0.9"),
    "healthzBindAddress": ("127.0.0.1:1", "127.0.0.1:1"),
    "metricsBindAddress": ("'[::1]:2'", "[::1]:2"),
}


def keys(manifest: type[Manifest], path: str = "") -> Iterator[str]:
    """The keys that have an effect, with those of sections."""
    for key in declared_keys(manifest):
        section = get_args(key.hint)[0]
        if isinstance(section, type) and issubclass(section, Manifest):
            yield from keys(section, f"{path}{key.alias}.")
        else:
            yield f"{path}{key.alias}"


def read(document: Any, key: str) -> Any:
    for part in key.split("."):
        document = document[part]
    return document


def handed_over(proxy: ProxyConfiguration, mode: str = "iptables") -> Any:
    networks = (ip_network("10.244.0.0/16"),)
    return json.loads(configuration(MODES[mode], "node-a", proxy, cluster_cidrs=networks, feature_gates={}))


@pytest.mark.parametrize("key", sorted({*keys(KubeProxyManifest)} - {*NOT_HANDED_OVER}))
def test_every_key_with_an_effect_arrives(key: str) -> None:
    text, expected = WRITTEN[key]
    section, _, name = key.rpartition(".")
    body = f"{section}: {{{name}: {text}}}" if section else f"{name}: {text}"
    head = "---\napiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n"
    proxy = parse_scenario(f"{BASE}{head}{body}\n", "f").proxy
    assert proxy is not None
    mode = "userspace" if key == "udpIdleTimeout" else "iptables"
    assert read(handed_over(proxy, mode), key) == expected
    assert read(handed_over(ProxyConfiguration(), mode), key) != expected, "a default proves nothing"
