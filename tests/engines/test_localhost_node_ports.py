"""With localhost among nodePortAddresses, the process of kube-proxy 1.37 serves node ports at loopback addresses.

Mode nftables has that behind an alpha gate, KubeProxyNFTablesLocalhostNodePorts. A connection to 127.0.0.1 or ::1 ends
at kube-proxy, which opens another one to an endpoint; a datagram is rejected.
"""

from pathlib import Path

import pytest
from judged_runs import judged_cases

from proxylab.binaries.binary import Binary, order

pytestmark = pytest.mark.timeout(200)

SCENARIO = """\
apiVersion: proxylab/v1
kind: Scenario
metadata: {name: localhost}
spec:
  network: {families: [IPv4, IPv6]}
  nodes: {node-a: {}, node-b: {}}
  hosts: {outside: {}}
  pods: {web: {nodes: [node-b], labels: {app: web}, ports: [8080, {port: 8080, protocol: UDP}]}}
  probes:
  - name: over IPv4
    from: node-a
    to: {address: 127.0.0.1, port: 30080}
    expect: {outcome: delivered, backends: [web], source: {node: node-a, device: uplink}}
  - name: over IPv6
    from: node-a
    to: {address: "::1", port: 30080}
    expect: {outcome: delivered, backends: [web], source: {node: node-a, device: uplink}}
  - name: a datagram
    from: node-a
    to: {address: 127.0.0.1, port: 30081}
    send: {protocol: UDP}
    expect: {outcome: rejected}
  - name: from outside
    from: outside
    to: {service: web, via: nodePort, port: tcp, node: node-a}
    expect: {outcome: delivered, source: masqueraded}
---
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: nftables
nodePortAddresses: ADDRESSES
featureGates: {KubeProxyNFTablesLocalhostNodePorts: true}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  type: NodePort
  ipFamilyPolicy: PreferDualStack
  selector: {app: web}
  ports:
  - {name: tcp, port: 80, nodePort: 30080, targetPort: 8080}
  - {name: udp, port: 80, nodePort: 30081, targetPort: 8080, protocol: UDP}
"""


def judged(addresses: str, kube_proxy: Binary, folder: Path) -> dict[str, dict[str, str]]:
    file = folder / "localhost.lab.yaml"
    file.write_text(SCENARIO.replace("ADDRESSES", addresses))
    (case,) = judged_cases(file, "kube-proxy/nftables", kube_proxy)
    return {each["name"]: each for each in case["probes"]}


@pytest.fixture
def since_1_37(kube_proxy: Binary) -> Binary:
    if order(kube_proxy.version)[:2] < (1, 37):
        pytest.skip(f"needs kube-proxy 1.37, which has the gate (this is {kube_proxy.version})")
    return kube_proxy


def test_a_connection_to_a_loopback_address_reaches_an_endpoint(since_1_37: Binary, tmp_path: Path) -> None:
    probes = judged("[primary, localhost]", since_1_37, tmp_path)
    assert {name: each["judgement"] for name, each in probes.items()} == dict.fromkeys(probes, "pass")


def test_without_localhost_the_node_refuses_it(since_1_37: Binary, tmp_path: Path) -> None:
    probes = judged("[primary]", since_1_37, tmp_path)
    failed = {name for name, each in probes.items() if each["judgement"] == "fail"}
    assert failed == {"over IPv4", "over IPv6"}
