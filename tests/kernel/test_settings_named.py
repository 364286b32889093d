"""Where a setting of Kubernetes decides about a packet, ``why:`` and ``diagnose`` name it in Kubernetes' words."""

import re
from pathlib import Path

import pytest
from command_line import CommandLine
from guests import OWN

SCENARIO = """\
apiVersion: proxylab/v1
kind: Scenario
metadata: {name: settings}
spec:
  nodes: {node-a: {}, node-b: {}}
  hosts: {outside: {}}
  loadBalancers: {metal: {pool: [192.0.2.0/28], nodes: [node-a]}}
  pods:
    web: {nodes: [node-b], labels: {app: web}, ports: [8080]}
    near: {nodes: [node-a], labels: {app: near}, ports: [8080]}
    far: {nodes: [node-b], labels: {app: near}, ports: [8080]}
    slow: {nodes: [node-b], labels: {app: slow}, ports: [8080], ready: false}
    client: {nodes: [node-a]}
    bare: {nodes: [node-a]}
  probes:
"""
PROBE = "  - {{name: {name}, from: {sender}, to: {{service: {service}, {to}}}, {send}expect: {{{expect}}}}}\n"
SERVICE = """\
---
apiVersion: v1
kind: Service
metadata: {{name: {name}}}
spec: {{{spec}, ports: [{{port: 80, targetPort: {target}}}]}}
"""
SERVICES = {
    "web": "type: NodePort, selector: {app: web}",
    "local": "type: NodePort, externalTrafficPolicy: Local, selector: {app: web}",
    "inner": "internalTrafficPolicy: Local, selector: {app: web}",
    "both": "type: NodePort, selector: {app: near}",
    "one": "type: NodePort, externalTrafficPolicy: Local, selector: {app: near}",
    "none": "selector: {app: wep}",
    "bare": "clusterIP: 10.96.5.5",
    "slow": "selector: {app: slow}",
    "early": "publishNotReadyAddresses: true, selector: {app: slow}",
    "named": "selector: {app: web}",
    "lonely": "selector: {tier: front}",
    "closed": "selector: {app: web}",
    "misplaced": "type: NodePort, externalTrafficPolicy: Local",
    "astray": "clusterIP: 10.96.5.6",
    "misnamed": "clusterIP: 10.96.5.7",
    "ranged": "type: LoadBalancer, loadBalancerSourceRanges: [10.0.0.0/8], selector: {app: near}",
}
TARGETS = {"named": "http", "closed": 8081}
SLICES = {
    "misplaced": ("", "10.244.1.10", "node-a"),
    "astray": ("", "10.244.1.77", "node-b"),
    "misnamed": ("web", "10.244.1.10", "node-b"),
}
"""The port's name, the address and the node of EndpointSlices that an author wrote."""
SLICE = """\
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {{name: {service}-x, labels: {{kubernetes.io/service-name: {service}}}}}
addressType: IPv4
ports: [{{name: "{name}", port: 8080}}]
endpoints: [{{addresses: [{address}], nodeName: {node}}}]
"""
TO_NODE = "via: nodePort, node: node-a"
CLUSTER_IP = "via: clusterIP"
ARRIVES = "outcome: delivered, source: preserved"
MASQUERADED = "outcome: delivered, source: masqueraded"
MANY = "send: {flows: 60, as: packet}, "

SETTINGS = {
    "a node port": (
        ("outside", "web", TO_NODE, ARRIVES),
        "The Service's externalTrafficPolicy is Cluster, so node-a masquerades; Local keeps the client's address",
    ),
    "a node port under policy Local": (
        ("outside", "one", TO_NODE, MASQUERADED),
        "The Service's externalTrafficPolicy is Local, so node-a keeps the client's address; Cluster masquerades.",
    ),
    "a node without an endpoint": (
        ("outside", "local", TO_NODE, ARRIVES),
        "No endpoint on node-a, and externalTrafficPolicy is Local; Cluster uses the one on node-b.",
    ),
    "a node without an endpoint for its pods": (
        ("client", "inner", CLUSTER_IP, ARRIVES),
        "No endpoint on node-a, and internalTrafficPolicy is Local; Cluster uses the one on node-b.",
    ),
    "a cluster IP from outside": (
        ("outside", "web", "via: clusterIP, node: node-a", ARRIVES),
        "clusterCIDR is 10.244.0.0/16, so node-a masquerades clients from elsewhere at a cluster IP;",
    ),
    "a cluster IP from a pod": (
        ("client", "web", CLUSTER_IP, MASQUERADED),
        "node-a keeps the addresses of the cluster's pods at a cluster IP; masqueradeAll: true masquerades",
    ),
    "no pod": (
        ("client", "none", CLUSTER_IP, ARRIVES),
        "The selector app=wep matches no pod (web has app=web); change the selector, or label a pod so.",
    ),
    "no selector": (
        ("client", "bare", CLUSTER_IP, ARRIVES),
        "default/bare has no selector, and no EndpointSlice names an endpoint for it; give it a selector",
    ),
    "no ready pod": (
        ("client", "slow", CLUSTER_IP, ARRIVES),
        "slow is not ready; a passing readiness probe or publishNotReadyAddresses: true lets such a pod get",
    ),
    "a name of no port": (
        ("client", "named", CLUSTER_IP, ARRIVES),
        "targetPort 'http' is the name of no port of web; it names none; write its number.",
    ),
    "a label that none has": (
        ("client", "lonely", CLUSTER_IP, ARRIVES),
        "The selector tier=front matches no pod (no pod has the label tier); change the selector, or label a pod so.",
    ),
    "a port on which none listens": (
        ("client", "closed", CLUSTER_IP, ARRIVES),
        "The Service's targetPort is 8081/TCP, and web listens on 8080/TCP; make both the same.",
    ),
    "a slice with another node": (
        ("outside", "misplaced", "via: nodePort, node: node-b", ARRIVES),
        "externalTrafficPolicy is Local, and the slice names node node-a for web; web runs on node-b, so nodeName must",
    ),
    "a slice with an unused address": (
        ("client", "astray", CLUSTER_IP, ARRIVES),
        "The EndpointSlice names 10.244.1.77, which nothing in this lab has; it must name that of a pod, and web has",
    ),
    "a slice with another port": (
        ("client", "misnamed", CLUSTER_IP, ARRIVES),
        "they have web (TCP), and a slice's port must have no name, as the Service's.",
    ),
    "a pod that dials itself": (
        ("web", "web", CLUSTER_IP, ARRIVES),
        "node-b masqueraded the packet because the client is the endpoint",
    ),
    "a pod at a node port": (
        ("client", "web", "via: nodePort, node: node-b", ARRIVES),
        "The Service's externalTrafficPolicy is Cluster, so node-b masquerades; Local keeps the address of a pod, too.",
    ),
    "a client out of range": (
        ("outside", "ranged", "via: loadBalancerIP", ARRIVES),
        "203.0.113.10 is not in loadBalancerSourceRanges (10.0.0.0/8); with 203.0.113.10/32 among them, it may pass.",
    ),
    "a range does not guard a node port": (
        ("outside", "ranged", TO_NODE, "outcome: dropped"),
        "loadBalancerSourceRanges are for load-balancer IPs alone, and the probe dials the nodePort.",
    ),
    "endpoints of every node": (
        ("outside", "both", TO_NODE, f"{MASQUERADED}, backends: [near]"),
        "externalTrafficPolicy is Cluster, so node-a uses endpoints of every node; Local keeps to those on node-a.",
    ),
    "endpoints of one node": (
        ("outside", "one", TO_NODE, f"{ARRIVES}, backends: [near, far]"),
        "externalTrafficPolicy is Local, so node-a uses its own endpoints alone, and far is on node-b; Cluster uses",
    ),
    "a pod that the selector leaves out": (
        ("client", "web", CLUSTER_IP, f"{ARRIVES}, backends: [web, near]"),
        "The selector app=web does not match near, which has app=near.",
    ),
    "an unready pod": (
        ("client", "early", CLUSTER_IP, "outcome: delivered, backends: [web], source: preserved"),
        "slow is not ready, but publishNotReadyAddresses is true.",
    ),
}
OF_RULES = {
    "embedded/nftables": {
        "a node port": 'because of its rule "masquerade" in external-PFISGYVC-default/web/tcp/.',
        "a cluster IP from outside": 'its rule "masquerade clusterIP traffic from outside cluster" in services.',
        "no pod": "its rule in reject-chain, to which the map no-endpoint-services leads default/none.",
        "a node without an endpoint": "looks up the map no-endpoint-nodeports, for default/local.",
    }
}


def scenario(tmp_path: Path) -> Path:
    text = SCENARIO
    for name, ((sender, service, to, expect), _) in SETTINGS.items():
        several = "backends" in expect
        text += PROBE.format(
            name=name, sender=sender, service=service, to=to, expect=expect, send=MANY if several else ""
        )
    for name, spec in SERVICES.items():
        text += SERVICE.format(name=name, spec=spec, target=TARGETS.get(name, 8080))
    for service, (name, address, node) in SLICES.items():
        text += SLICE.format(service=service, name=name, address=address, node=node)
    file = tmp_path / "settings.lab.yaml"
    file.write_text(text)
    return file


OF_IPVS = {
    "a node without an endpoint": (
        "No endpoint on node-a, and externalTrafficPolicy is Local: mode ipvs then uses those of other nodes and keeps "
        "the client's address; Cluster masquerades, so that replies pass node-a."
    ),
    "a slice with another node": "",
}
"""Mode ipvs serves node ports under policy Local by endpoints of other nodes, if it has none."""
VIRTUAL_SERVERS = {
    "no pod": "its virtual server -t 10.96.1.6:80, which has no destination.",
    "endpoints of every node": "node-a sent the packet to far by its virtual server -t 172.18.0.2:",
    "a pod that dials itself": 'its rule "Kubernetes endpoints dst ip:port, source ip for solving hairpin purpose"',
}


def reasons(shown: str) -> dict[str, str]:
    """What ``why:`` says of each probe that failed."""
    texts = {}
    for words in re.sub(r"\s+", " ", shown).split(": FAIL: ")[1:]:
        name = next(name for name in sorted(SETTINGS, key=len, reverse=True) if words.startswith(name))
        texts[name] = words.partition(" why: ")[2].partition(" reproduce: ")[0]
    return texts


@pytest.mark.parametrize("engine", ["embedded/iptables", "embedded/nftables"])
def test_the_setting_follows_the_rule(engine: str, cli: CommandLine, tmp_path: Path) -> None:
    texts = reasons(cli.type("run", str(scenario(tmp_path)), "--engine", engine).output)
    wanted = {name: setting for name, (_, setting) in SETTINGS.items()}
    assert {name: texts.get(name, "") for name, each in wanted.items() if each not in texts.get(name, "")} == {}
    for name, rule in OF_RULES.get(engine, {}).items():
        assert rule in texts[name]


@OWN
@pytest.mark.guests
@pytest.mark.timeout(300)
def test_the_setting_follows_the_virtual_server(cli: CommandLine, tmp_path: Path) -> None:
    typed = cli.type("run", str(scenario(tmp_path)), "--engine", "embedded/ipvs", "--kernel", "uml", "--no-bundles")
    texts = reasons(typed.output)
    wanted = {name: setting for name, (_, setting) in SETTINGS.items()} | OF_IPVS
    assert {name: texts.get(name, "") for name, each in wanted.items() if each not in texts.get(name, "")} == {}
    for name, rule in VIRTUAL_SERVERS.items():
        assert rule in texts[name]


def test_diagnose_says_why_the_clients_address_is_lost(cli: CommandLine, tmp_path: Path) -> None:
    file = str(scenario(tmp_path))
    lost, kept, ranged = (
        re.sub(r"\s+", " ", cli.type("diagnose", file, each).output) for each in ("web", "one", "ranged")
    )
    assert "in place of outside, since externalTrafficPolicy is Cluster (Local keeps the client's address)" in lost
    assert "outside keeps its address, since externalTrafficPolicy is Local (Cluster masquerades)" in kept
    assert "loadBalancerSourceRanges: nodes drop clients of load-balancer IPs outside 10.0.0.0/8" in ranged
    assert "matches no pod; web has app=web; change the selector" in re.sub(
        r"\s+", " ", cli.type("diagnose", file, "none").output
    )


NODE_PORTS = """\
apiVersion: proxylab/v1
kind: Scenario
metadata: {name: node-ports}
spec:
  nodes: {node-a: {addresses: [{address: 172.18.0.77, device: eth0}]}}
  hosts: {outside: {}}
  pods: {web: {nodes: [node-a], labels: {app: web}, ports: [8080, {port: 8080, protocol: UDP}]}}
  probes:
  - {name: tcp, from: outside, to: {address: 172.18.0.77, port: 30080}, expect: EXPECT}
  - {name: udp, from: outside, to: {address: 172.18.0.77, port: 30081}, send: {protocol: UDP}, expect: EXPECT}
  - {name: loopback, from: node-a, to: {address: 127.0.0.1, port: 30080}, expect: EXPECT}
---
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
SETTING
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  type: NodePort
  selector: {app: web}
  ports:
  - {name: tcp, port: 80, nodePort: 30080, targetPort: 8080}
  - {name: udp, port: 80, nodePort: 30081, targetPort: 8080, protocol: UDP}
"""
NETWORKS = "nodePortAddresses: [172.18.0.2/32]"
LEFT_OUT = "{} is not in nodePortAddresses (172.18.0.2/32); with {}/32 among them, node-a serves node ports there."
PRIMARY = "nodePortAddresses is primary, and 172.18.0.77 is not node-a's primary address; networks that hold"


@pytest.mark.parametrize(
    ("engine", "setting", "told"),
    [
        (
            "embedded/iptables",
            NETWORKS,
            {each: LEFT_OUT.format(*["172.18.0.77"] * 2) for each in ("tcp", "udp")}
            | {"loopback": LEFT_OUT.format(*["127.0.0.1"] * 2)},
        ),
        ("embedded/iptables", "nodePortAddresses: [primary]", {"tcp": PRIMARY}),
        (
            "embedded/iptables",
            "iptables: {localhostNodePorts: false}",
            {"loopback": "localhostNodePorts is false, so node-a serves no node ports at 127.0.0.1; true serves them."},
        ),
        (
            "embedded/nftables",
            "mode: nftables",
            {
                "tcp": "nodePortAddresses is empty, so mode nftables serves node ports at node-a's primary addresses",
                "udp": "nodePortAddresses is empty, so mode nftables serves node ports at node-a's primary addresses",
                "loopback": "Mode nftables serves no node ports at loopback addresses; nodePortAddresses: [primary,",
            },
        ),
    ],
)
def test_the_setting_that_leaves_an_address_without_node_ports_is_named(
    engine: str, setting: str, told: dict[str, str], cli: CommandLine, tmp_path: Path
) -> None:
    file = tmp_path / "node-ports.lab.yaml"
    file.write_text(NODE_PORTS.replace("SETTING", setting).replace("EXPECT", f"{{{MASQUERADED}}}"))
    shown = re.sub(r"\s+", " ", cli.type("run", str(file), "--engine", engine, "--no-bundles").output)
    for name, sentence in told.items():
        why = shown.partition(f": FAIL: {name} ")[2].partition(" why: ")[2].partition(" reproduce: ")[0]
        assert why.startswith("node-a serves no node port at "), shown
        assert sentence in why
