"""Settings that an engine does not behave like are refused by name: feature gates, and words for node ports."""

import json

import pytest

from proxylab.binary_identity import BinaryIdentity
from proxylab.cluster.configuration import ProxyConfiguration
from proxylab.engines.embedded.gates import refuse_mode, refuse_settings
from proxylab.engines.kubeproxy.configuration import configuration
from proxylab.engines.kubeproxy.refusals import refuse_settings as refuse_by_kube_proxy
from proxylab.engines.modes import MODES
from proxylab.engines.protocol import EngineChoice, Upstream
from proxylab.errors import EngineError, ScenarioError


def test_gates_that_change_nothing_are_taken() -> None:
    refuse_settings("embedded/iptables", ProxyConfiguration())
    refuse_settings(
        "embedded/nftables",
        ProxyConfiguration(
            feature_gates={"AllowServiceExternalIPs": True, "KubeProxyNFTablesLocalhostNodePorts": False}
        ),
    )


@pytest.mark.parametrize("gate", ["AllowServiceExternalIPs", "KubeProxyIPVS", "NFTablesNetlink"])
@pytest.mark.parametrize("value", [True, False])
def test_gates_of_removals_are_taken_either_way(gate: str, value: bool) -> None:
    refuse_settings("embedded/iptables", ProxyConfiguration(feature_gates={gate: value}))


def test_mode_ipvs_does_not_start_without_its_gate() -> None:
    off = ProxyConfiguration(feature_gates={"KubeProxyIPVS": False})
    with pytest.raises(EngineError, match="must be iptables, nftables or blank"):
        refuse_mode("node-a", "ipvs", off)
    refuse_mode("node-a", "nftables", off)
    refuse_mode("node-a", "ipvs", ProxyConfiguration())


def test_every_other_gate_has_its_line() -> None:
    gates = {"ServiceTrafficDistribution": False, "WatchListClient": True, "NFTablesProxyMode": True}
    with pytest.raises(ScenarioError) as refused:
        refuse_settings("embedded/iptables", ProxyConfiguration(feature_gates=gates))
    first, second = str(refused.value).splitlines()
    assert "featureGates.ServiceTrafficDistribution: embedded/iptables behaves as with true; remove it" in first
    assert "featureGates.WatchListClient: embedded/iptables does not know this gate; remove it" in second


def upstream(version: str, **gates: bool) -> EngineChoice:
    binary = Upstream("/kube-proxy", BinaryIdentity(version=version, origin="a test", digest=""), feature_gates=gates)
    return EngineChoice(f"kube-proxy@{version}/nftables", upstream=binary)


@pytest.mark.parametrize(
    ("version", "gates", "said"),
    [
        ("v1.37.2", {"NFTablesProxyMode": False}, "NFTablesProxyMode: kube-proxy has locked it to true since 1.33"),
        ("v1.36.3", {"GitRepoVolumeDriver": True}, "GitRepoVolumeDriver: kube-proxy has locked it to false since 1.36"),
        ("v1.37.2", {"NFTablesProxyMode": True, "WatchListClient": False}, ""),
        ("v1.32.0", {"NFTablesProxyMode": False}, ""),
    ],
)
def test_a_locked_gate_is_refused_by_name(version: str, gates: dict[str, bool], said: str) -> None:
    for choice, settings in (
        (upstream(version), ProxyConfiguration(feature_gates=gates)),
        (upstream(version, **gates), ProxyConfiguration()),
    ):
        if not said:
            refuse_by_kube_proxy(choice, settings)
            continue
        with pytest.raises(ScenarioError, match=said):
            refuse_by_kube_proxy(choice, settings)


WORDS = ProxyConfiguration(node_port_primary=True, node_port_localhost=True)


def test_words_for_node_ports_are_of_kube_proxy_1_37() -> None:
    refuse_by_kube_proxy(upstream("v1.37.0"), WORDS)
    with pytest.raises(ScenarioError, match="knows neither localhost nor primary beside another entry"):
        refuse_by_kube_proxy(upstream("v1.36.3"), WORDS)
    with pytest.raises(ScenarioError, match=r"embedded/nftables does not serve \[primary, localhost\]"):
        refuse_settings("embedded/nftables", WORDS)
    refuse_settings("embedded/nftables", ProxyConfiguration(node_port_primary=True))


def test_words_for_node_ports_are_handed_on() -> None:
    text = configuration(MODES["nftables"], "node-a", WORDS, cluster_cidrs=(), feature_gates={})
    assert json.loads(text)["nodePortAddresses"] == ["primary", "localhost"]
