"""A KubeProxyConfiguration beside a scenario, and what the embedded engine makes of it."""

from ipaddress import ip_address, ip_network

import pytest
from broken_scenarios import BASE, noted

from proxylab.cluster.configuration import ConntrackTimeouts, DetectLocalMode, ProxyConfiguration, SocketAddress
from proxylab.encoding import decode, encode
from proxylab.engines.embedded.settings import (
    BridgeInterface,
    ClusterCIDR,
    DetectLocal,
    InterfaceNamePrefix,
    NodeCIDR,
    ProxySettings,
)
from proxylab.engines.protocol import EngineChoice
from proxylab.scenario.load import parse_scenario
from proxylab.scenario.model import Scenario

HEAD = "---\napiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n"
PODS = (ip_network("10.42.0.0/16"),)

# What `kubeadm config print init-defaults --component-configs KubeProxyConfiguration` writes.
KUBEADM = """
bindAddress: 0.0.0.0
bindAddressHardFail: false
clientConnection: {acceptContentTypes: "", burst: 0, contentType: "", kubeconfig: /var/lib/kube-proxy/k.conf, qps: 0}
clusterCIDR: ""
configSyncPeriod: 0s
conntrack: {maxPerCore: null, min: null, tcpBeLiberal: false, tcpCloseWaitTimeout: null, tcpEstablishedTimeout: null,
  udpStreamTimeout: 0s, udpTimeout: 0s}
detectLocal: {bridgeInterface: "", interfaceNamePrefix: ""}
detectLocalMode: ""
enableProfiling: false
healthzBindAddress: ""
hostnameOverride: ""
iptables: {localhostNodePorts: null, masqueradeAll: false, masqueradeBit: null, minSyncPeriod: 0s, syncPeriod: 0s}
ipvs: {excludeCIDRs: null, minSyncPeriod: 0s, scheduler: "", strictARP: false, syncPeriod: 0s}
logging: {flushFrequency: 0, verbosity: 0}
metricsBindAddress: ""
mode: ""
nftables: {masqueradeAll: false, masqueradeBit: null, minSyncPeriod: 0s, syncPeriod: 0s}
nodePortAddresses: null
oomScoreAdj: null
portRange: ""
showHiddenMetricsForVersion: ""
winkernel: {enableDSR: false, networkName: "", sourceVip: ""}
"""


def scenario(document: str) -> Scenario:
    return parse_scenario(BASE + HEAD + document, "f")


def configured(document: str) -> ProxyConfiguration:
    found = scenario(document).proxy
    assert found is not None
    return found


def test_a_file_without_one_configures_nothing() -> None:
    assert parse_scenario(BASE, "f").proxy is None


def test_an_empty_one_is_kube_proxys_defaults() -> None:
    assert configured("") == ProxyConfiguration()


def test_kubeadms_own_document_is_the_defaults_without_a_detector() -> None:
    assert configured(KUBEADM) == ProxyConfiguration(cluster_cidrs=())


def test_every_key_arrives() -> None:
    assert configured(
        """
detectLocalMode: BridgeInterface
detectLocal: {bridgeInterface: cni0, interfaceNamePrefix: veth}
clusterCIDR: 10.1.0.0/16,fd00::/48
nodePortAddresses: [172.18.0.0/16]
iptables: {masqueradeBit: 0, masqueradeAll: true, localhostNodePorts: false, syncPeriod: 1m30s, minSyncPeriod: 10ms}
conntrack: {tcpEstablishedTimeout: 0s, tcpBeLiberal: true, udpTimeout: 10s, udpStreamTimeout: 2m}
healthzBindAddress: 127.0.0.1:1
metricsBindAddress: "[::]"
"""
    ) == ProxyConfiguration(
        detect_local_mode=DetectLocalMode.BRIDGE_INTERFACE,
        bridge_interface="cni0",
        interface_name_prefix="veth",
        cluster_cidrs=(ip_network("10.1.0.0/16"), ip_network("fd00::/48")),
        node_port_addresses=(ip_network("172.18.0.0/16"),),
        masquerade_bit=0,
        masquerade_all=True,
        localhost_node_ports=False,
        sync_period=90,
        min_sync_period=0.01,
        conntrack=ConntrackTimeouts(tcp_established=0, udp=10, udp_stream=120, tcp_be_liberal=True),
        healthz=SocketAddress(ip_address("127.0.0.1"), 1),
        metrics=SocketAddress(ip_address("::"), 10249),
    )


def test_the_primary_address_is_a_word() -> None:
    assert configured("nodePortAddresses: [primary]").node_port_primary


def test_what_has_no_effect_is_named_once() -> None:
    document = "winkernel: {enableDSR: true}\nconntrack: {min: 0}\noomScoreAdj: 0"
    assert noted(scenario(document)) == ("no effect in KubeProxyConfiguration: conntrack.min, oomScoreAdj, winkernel",)


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ("", ClusterCIDR(PODS)),
        ("clusterCIDR: 10.9.0.0/16", ClusterCIDR((ip_network("10.9.0.0/16"),))),
        ('clusterCIDR: ""', ClusterCIDR()),
        ("detectLocalMode: NodeCIDR", NodeCIDR()),
        ("detectLocalMode: BridgeInterface\ndetectLocal: {bridgeInterface: cni0}", BridgeInterface("cni0")),
        (
            "detectLocalMode: InterfaceNamePrefix\ndetectLocal: {interfaceNamePrefix: veth}",
            InterfaceNamePrefix("veth"),
        ),
    ],
)
def test_how_local_traffic_is_told(document: str, expected: DetectLocal) -> None:
    assert ProxySettings.of(configured(document), PODS).detect_local == expected


def test_it_travels_to_the_lab_process() -> None:
    choice = EngineChoice(cluster_cidrs=PODS, configuration=configured("iptables: {minSyncPeriod: 10ms}"))
    assert decode(encode(choice), EngineChoice) == choice
