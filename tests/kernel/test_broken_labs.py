"""Broken labs, each explained by one sentence that names the cause.

An edit of a scenario breaks the lab, or the removal of a function of the engine (``sitecustomize``, as for the
mutants). A report has the sentence after ``why:``. The run keeps the lab, and the trace of a packet of the same probe,
by the command that the run suggests, has the sentence after ``in short:``.
"""

import os
import re
import shlex
from dataclasses import dataclass
from pathlib import Path

import pytest
from command_line import CommandLine
from sandboxed import ROOT

BODIES = "proxylab.engines.embedded.iptables.service_chains"
FIXED = "proxylab.engines.embedded.iptables.fixed"

FROM_A_POD = "scenarios/clusterip/from-a-pod.lab.yaml"
NODE_PORT = "scenarios/nodeport/traffic-policy-local.lab.yaml"
HEALTH_CHECKED = "scenarios/loadbalancer/health-checked.lab.yaml"
RANGES = "scenarios/loadbalancer/source-ranges.lab.yaml"

DROPPED = "{outcome: dropped, at: node-a"
SOLO = "to: {service: solo, via: clusterIP}"
DELIVERED = "{outcome: delivered, source: preserved"

NODES = "  nodes: {node-a: {}, node-b: {}}"
RP_FILTER = "{sysctls: {net.ipv4.conf.all.rp_filter: '1'}}"
OVERLAY = "  network: {interNode: vxlan}\n"
IN_AN_OVERLAY = ("  network: {families", "  network: {interNode: vxlan, families")
UNSEEN = "  nodes: {node-a: {}, node-b: {sysctls: {net.bridge.bridge-nf-call-iptables: '0'}}}"
DETECT_BY = """---
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
"""


@dataclass(frozen=True)
class Broken:
    """A scenario, the defect of its lab, the probe that shows it, and the sentence that names the cause.

    ``trace`` is the command where the probe dials no Service, or where one packet might go elsewhere. ``traced`` is the
    sentence about a traced packet where it differs.
    """

    name: str
    scenario: str
    probe: str
    why: str
    edits: tuple[tuple[str, str], ...] = ()
    module: str = ""
    function: str = ""
    becomes: str = ""
    trace: str = ""
    traced: str = ""


BROKEN = [
    Broken(
        "nothing masquerades what is marked",
        FROM_A_POD,
        "ClusterIP from outside is masqueraded by the entry node towards another node",
        "nothing translated the reply back: outside heard solo's own address, since the request was marked for "
        'masquerading on node-a by its rule "default/solo cluster IP" in KUBE-SVC-XVJHHMIFZ6BOUBWS, but no MASQUERADE '
        "rule counted.",
        module=FIXED,
        function="masquerade",
        becomes="lambda settings: ()",
    ),
    Broken(
        "a pod that reaches itself is not marked",
        FROM_A_POD,
        "ClusterIP from a pod to itself is masqueraded by its node",
        "solo got the request from its own address and did not reply: nothing masqueraded it.",
        module=BODIES,
        function="hairpin",
        becomes="lambda scope, endpoint: ()",
    ),
    Broken(
        "nothing translates",
        FROM_A_POD,
        "ClusterIP from a pod preserves the client IP",
        "no rule translated the packet: it left client for 10.96.1.1:80, and 172.18.0.1 answered with ICMP "
        "time to live exceeded (11/0).",
        module=BODIES,
        function="translation",
        becomes="lambda scope, endpoint: ()",
    ),
    Broken(
        "a responder is dead",
        FROM_A_POD,
        "ClusterIP from a pod to another node preserves the client IP",
        "no program listens at 10.244.1.11:9 on solo: the packet reached it, and a reset came back. "
        "The Service's targetPort is 9/TCP, and solo listens on 8080/TCP; make both the same.",
        edits=(
            (
                "{selector: {app: solo}, ports: [{port: 80, targetPort: 8080}]}",
                "{selector: {app: solo}, ports: [{port: 80, targetPort: 9}]}",
            ),
        ),
    ),
    Broken(
        "no pod is behind the Service",
        FROM_A_POD,
        "ClusterIP from a pod to another node preserves the client IP",
        'node-a rejected the packet by its rule "default/solo has no endpoints" in KUBE-SERVICES. '
        "The selector app=nobody matches no pod (solo has app=solo); change the selector, or label a pod so.",
        edits=(("{selector: {app: solo}", "{selector: {app: nobody}"),),
    ),
    Broken(
        "Local without an endpoint there",
        NODE_PORT,
        "NodePort with externalTrafficPolicy Local drops on a node without endpoint",
        'node-a dropped the packet by its rule "default/echo has no local endpoints" in KUBE-EXTERNAL-SERVICES. '
        "No endpoint on node-a, and externalTrafficPolicy is Local; Cluster uses the one on node-b.",
        edits=((DROPPED, DELIVERED),),
    ),
    Broken(
        "a client out of the source range",
        RANGES,
        "loadBalancerSourceRanges drops an outside host outside the range",
        'node-b dropped the packet by its rule "default/closed traffic not accepted by KUBE-FW-XCZKWCHSPHCZIQ6X" in '
        "KUBE-PROXY-FIREWALL. 203.0.113.10 is not in loadBalancerSourceRanges (198.51.100.0/24 and "
        "2001:db8:51::/64); with 203.0.113.10/32 among them, it may pass.",
        edits=(("{outcome: dropped, at: node-b", DELIVERED),),
    ),
    Broken(
        "a balancer that does not look at health",
        HEALTH_CHECKED,
        "load balancer with health checks leaves out a node without endpoint",
        'node-c dropped the packet by its rule "default/echo has no local endpoints" in KUBE-EXTERNAL-SERVICES. '
        "No endpoint on node-c, and externalTrafficPolicy is Local; Cluster uses those on node-a and node-b.",
        edits=(("healthChecked: true", "healthChecked: false"),),
        trace="trace outside echo --via loadBalancerIP --node node-c --lab loadbalancer-health-checked",
    ),
    Broken(
        "an address without an owner",
        FROM_A_POD,
        "ClusterIP from a pod to another node preserves the client IP",
        "no rule translated the packet: it left client for 10.96.77.77:80, and 172.18.0.1 answered with ICMP "
        "time to live exceeded (11/0).",
        edits=(
            (
                f"{SOLO}\n    expect: {{outcome: delivered, backends: [solo], source: preserved",
                f"to: {{address: 10.96.77.77, port: 80}}\n    expect: {DELIVERED}",
            ),
        ),
        trace="trace client 10.96.77.77:80",
    ),
]


BROKEN += [
    Broken(
        "the wrong hairpin mode",
        FROM_A_POD,
        "ClusterIP from a pod to itself is masqueraded by its node",
        "node-b translated solo's packet to solo itself, and its bridge cni0 does not send a frame back by the port it "
        "came in by: hairpin is off on solo.",
        edits=((NODES, f"  network: {{podNetwork: bridge, hairpin: none}}\n{NODES}"),),
    ),
    Broken(
        "a bridge whose packets no rule sees",
        FROM_A_POD,
        "ClusterIP from a pod to another node preserves the client IP",
        "nothing translated the reply back: client heard solo's own address, since the bridge cni0 on node-b carried "
        "it past the rules: bridge-nf-call-iptables is 0 there.",
        edits=(
            (NODES, f"  network: {{podNetwork: bridge}}\n{UNSEEN}"),
            ("client: {nodes: [node-a]}", "client: {nodes: [node-b]}"),
        ),
    ),
    Broken(
        "a mark that nothing clears",
        FROM_A_POD,
        "ClusterIP from outside is masqueraded by the entry node towards another node",
        "node-a masqueraded the packet, and then the tunnel's packet around it (flannel.1): no rule in "
        "KUBE-POSTROUTING cleared the mark.",
        edits=((NODES, f"{OVERLAY}{NODES}"), ("{node: node-a, device: uplink}", "10.244.0.0")),
        module=FIXED,
        function="postrouting",
        becomes="lambda settings, rules=module.postrouting: [r for r in rules(settings) if r.target[:4] != 'MARK']",
    ),
    Broken(
        "a datagram that goes on to a pod that is gone",
        "scenarios/steps/udp-client-outlives-its-backend.lab.yaml",
        "another pod replaces the endpoint: "
        "ClusterIP over UDP from the same source port reaches the new endpoint[ipv4]",
        "conntrack on node-a sent the flow to old (10.244.1.10:5353) by an older entry: no DNAT rule to that "
        "address counted it.",
        module="proxylab.engines.embedded.udp",
        function="UdpReconciler.__call__",
        becomes="lambda reconciler, flow: False",
    ),
    Broken(
        "a strict reverse path filter",
        "scenarios/nodeport/traffic-policy-cluster.lab.yaml",
        "NodePort from a pod at another node is masqueraded by that node",
        "node-b refused the packet after its PREROUTING rules: rp_filter is 1 there, it came in by eth0, and "
        "the way back to 10.244.0.10 leads by flannel.1.",
        edits=(IN_AN_OVERLAY, ("node-b: {}", f"node-b: {RP_FILTER}")),
    ),
    Broken(
        "a strict reverse path filter on the way back",
        "scenarios/nodeport/traffic-policy-cluster.lab.yaml",
        "NodePort from a pod at another node is masqueraded by that node",
        "the way back is broken: echo replied to 10.244.1.1:PORT, and node-a refused the reply: rp_filter is 1 there, "
        "it came in by flannel.1, and the way back to 172.18.0.3 leads by eth0.",
        edits=(IN_AN_OVERLAY, ("node-a: {}", f"node-a: {RP_FILTER}")),
    ),
    Broken(
        "pods told by an interface that none of them has",
        FROM_A_POD,
        "ClusterIP from a pod to another node preserves the client IP",
        "node-a masqueraded the packet because it did not come in by cali+, though it is a pod: its rule "
        '"default/solo cluster IP" in KUBE-SVC-XVJHHMIFZ6BOUBWS. '
        "detectLocalMode is InterfaceNamePrefix, so node-a takes the pod for a client from outside; "
        "interfaceNamePrefix must begin the device name of every pod of the node.",
        edits=(
            (
                "---\n",
                f"{DETECT_BY}detectLocalMode: InterfaceNamePrefix\ndetectLocal: {{interfaceNamePrefix: cali}}\n---\n",
            ),
        ),
    ),
    Broken(
        "pods told by a network that is not theirs",
        FROM_A_POD,
        "ClusterIP from a pod to another node preserves the client IP",
        "node-a masqueraded the packet because the client is not in 10.99.0.0/16, though it is a pod: its rule "
        '"default/solo cluster IP" in KUBE-SVC-XVJHHMIFZ6BOUBWS. '
        "clusterCIDR is 10.99.0.0/16, so node-a takes the pod for a client from outside; "
        "it must cover the networks of all pods.",
        edits=(("---\n", f"{DETECT_BY}clusterCIDR: 10.99.0.0/16\n---\n"),),
    ),
]


SENTINELS = {
    *("nothing masquerades what is marked", "no pod is behind the Service", "Local without an endpoint there"),
    *("an address without an owner", "pods told by a network that is not theirs", "a strict reverse path filter"),
}


# Every run breaks a rule, a Service, a setting and the network; tests/unit/verdict/causes has the other causes.
@pytest.mark.parametrize(
    "broken",
    [
        pytest.param(broken, id=broken.name, marks=[] if broken.name in SENTINELS else [pytest.mark.thorough])
        for broken in BROKEN
    ],
)
def test_a_broken_lab_is_explained(
    broken: Broken, cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (ROOT / broken.scenario).read_text(encoding="utf-8")
    for old, new in broken.edits:
        assert old in text
        text = text.replace(old, new, 1)
    scenario = tmp_path / "broken.lab.yaml"
    scenario.write_text(text, encoding="utf-8")
    if broken.module:
        patch = f"import {broken.module} as module\nmodule.{broken.function}\n"
        patch += f"module.{broken.function} = {broken.becomes}\n"
        (tmp_path / "sitecustomize.py").write_text(patch, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), str(ROOT / "lab")]))  # of the lab process

    ran = cli.type("run", str(scenario), "--probe", broken.probe, "--no-bundles", "--keep")
    assert ran.status == 1, ran.output + ran.errors
    assert sentence(ran.output, "  why: ") == broken.why

    told = re.search(r"^  proxylab (trace .*)$", ran.errors, re.MULTILINE)
    assert told or broken.trace
    traced = cli.type(*shlex.split(broken.trace or told[1]))
    assert traced.status == 0, traced.errors
    assert sentence(traced.output, "in short: ") == (broken.traced or broken.why)


def sentence(output: str, label: str) -> str:
    """The text after a label, in one line, with random ports of masqueraded packets replaced."""
    _, _, behind = output.partition(f"\n{label}")
    return re.sub(r"(10\.244\.1\.1):\d+", r"\1:PORT", " ".join(behind.partition("\n\n")[0].split()))
