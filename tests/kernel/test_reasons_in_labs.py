"""``why:`` names what did it: the rule of another program, the socket, the path, or the pod that is gone.

Each lab has one probe or step that fails for a reason that is not the Service proxy's.
"""

import json
import re
from pathlib import Path

import pytest
from command_line import CommandLine

HEAD = "apiVersion: proxylab/v1\nkind: Scenario\nmetadata: {{name: reasons}}\nspec:\n{spec}\n"
WEB = (
    "---\napiVersion: v1\nkind: Service\nmetadata: {name: web}\n"
    "spec: {clusterIP: 10.96.0.80, selector: {app: web}, ports: [{name: p, port: 80, targetPort: 8080}]}\n"
)
OVER_UDP = WEB.replace("port: 80,", "port: 80, protocol: UDP,")
NO_CIDR = '---\napiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nclusterCIDR: ""\n'


def filtering(text: str) -> str:
    """A lab in which the rules of another program stand on the way from a pod to a Service."""
    leftovers = json.dumps(f"*filter\n:INPUT ACCEPT [0:0]\n:FORWARD ACCEPT [0:0]\n-A FORWARD {text}\nCOMMIT\n")
    return f"""\
  nodes: {{node-a: {{leftovers: {{iptables: {leftovers}}}}}, node-b: {{}}}}
  pods: {{client: {{nodes: [node-a]}}, web: {{nodes: [node-b], labels: {{app: web}}, ports: [8080]}}}}
  probes:
  - name: a pod reaches the Service
    from: client
    to: {{service: web, via: clusterIP}}
    expect: {{outcome: delivered, source: preserved}}
"""


LED = """\
  network: {routed: [{network: 100.100.100.8, nodes: [node-a]}]}
  nodes:
    node-a:
      leftovers:
        iptables: |
          *nat
          :PREROUTING ACCEPT [0:0]
          -A PREROUTING -d 100.100.100.8/32 -j DNAT --to-destination 10.96.0.80
          COMMIT
    node-b: {}
  hosts: {laptop: {}}
  pods: {web: {nodes: [node-b], labels: {app: web}, ports: [8080]}}
  probes:
  - name: another address leads to the Service
    from: laptop
    to: {address: 100.100.100.8, port: 80}
    expect: {outcome: delivered, backends: [web], source: masqueraded}
"""
CLOSED = """\
  nodes: {n1: {leftovers: {iptables: "*filter\\n:INPUT DROP [0:0]\\n-A INPUT -i lo -j ACCEPT\\nCOMMIT\\n"}}}
  hosts: {balancer: {}}
  probes:
  - name: a balancer asks for the health of kube-proxy
    from: balancer
    to: {address: 172.18.0.2, port: 10256}
    expect: {http: {status: 200}}
"""
ON_NODE = """\
  nodes: {node-a: {}, node-b: {}}
  pods:
    web: {nodes: [node-a], hostNetwork: true, labels: {app: web}, ports: [{port: 8080, protocol: UDP}]}
    near: {nodes: [node-a]}
  probes:
  - name: a pod asks a server on its own node
    from: near
    to: {service: web, via: clusterIP}
    expect: {outcome: delivered, source: preserved}
"""
UNTRACKED = """\
  nodes:
    node-a:
      addresses: [{address: 169.254.20.10, device: lo}]
      leftovers:
        iptables: |
          *raw
          :PREROUTING ACCEPT [0:0]
          -A PREROUTING -d 169.254.20.10/32 -p udp -m udp --dport 53 -j NOTRACK
          COMMIT
  pods: {client: {nodes: [node-a]}, cache: {nodes: [node-a], hostNetwork: true, ports: [{port: 53, protocol: UDP}]}}
  probes:
  - name: a pod asks the cache of its node
    from: client
    to: {address: 169.254.20.10, port: 53}
    send: {protocol: UDP}
    expect: {outcome: delivered, backends: [cache], source: preserved}
"""
PAST = """\
  network: {podNetwork: ptp-unnumbered}
  nodes: {n1: {}, n2: {}}
  hosts: {lan: {segment: nodes}}
  pods: {web: {nodes: [n2], labels: {app: web}, ports: [8080]}}
  probes:
  - name: a host beside the nodes dials a cluster IP through node n1
    from: lan
    to: {service: web, via: clusterIP, node: n1}
    expect: {outcome: delivered, source: preserved}
"""
DEAF = """\
  network: {segments: {storage: {cidr: 172.19.0.0/16}}}
  nodes:
    node-a:
      sysctls: {net.ipv4.conf.all.rp_filter: 1}
      uplinks: {eth1: {segment: storage}}
      routes: [{to: 172.19.0.0/24, device: eth0, via: 172.18.0.1}]
  hosts: {store: {segment: storage}}
  pods: {web: {nodes: [node-a], hostNetwork: true, ports: [8080]}}
  probes:
  - name: a host beside the second uplink dials its address
    from: store
    to: {address: 172.19.0.11, port: 8080}
    expect: {outcome: delivered, source: preserved}
"""
BALANCED = """\
  nodes: {node-a: {}, node-b: {}}
  hosts: {outside: {}}
  loadBalancers: {metal: {pool: [192.0.2.0/28], nodes: [node-a, node-b]}}
  pods: {web: {replicas: 2, nodes: [node-a, node-b], labels: {app: web}, ports: [8080]}}
  probes:
  - name: a client behind a balancer stays at one endpoint
    from: outside
    to: {service: web, via: loadBalancerIP}
    send: {flows: 40, as: packet}
    expect: {outcome: delivered, source: preserved, spread: sticky, backends: [web-1, web-2]}
"""
STICKY = WEB.replace("spec: {", "spec: {type: LoadBalancer, externalTrafficPolicy: Local, sessionAffinity: ClientIP, ")
GONE = """\
  nodes: {node-a: {}, node-b: {}}
  pods:
    client: {nodes: [node-a]}
    old: {nodes: [node-b], labels: {app: web}, ports: [8080]}
    new: {nodes: [node-b], labels: {app: web}, ports: [8080], present: false}
  streams: {conn: {from: client, to: {service: web, via: clusterIP}, send: {every: 20ms, protocol: TCP}}}
  steps:
  - name: the pod is replaced, and its link is cut
    change: {pods: {old: null, new: {present: true}}, links: {old: cut}}
    expect: {conn: {resets: {atLeast: 1}}}
"""
SILENT = """\
  nodes: {node-a: {}}
  pods: {client: {nodes: [node-a]}}
  probes:
  - name: a Service without endpoints is silent
    from: client
    to: {service: web, via: clusterIP}
    expect: {outcome: dropped}
"""
REJECTED = 'node-a rejected the packet with {} by the rule "-A FORWARD -p tcp -m tcp --dport 8080 -j REJECT'
REASONS = {
    "ICMP host prohibited": (
        filtering("-p tcp -m tcp --dport 8080 -j REJECT --reject-with icmp-host-prohibited") + WEB,
        REJECTED.format("ICMP host prohibited (3/10)"),
    ),
    "ICMP administratively prohibited": (
        filtering("-p tcp -m tcp --dport 8080 -j REJECT --reject-with icmp-admin-prohibited") + WEB,
        REJECTED.format("ICMP administratively prohibited (3/13)"),
    ),
    "a reset": (
        filtering("-p tcp -m tcp --dport 8080 -j REJECT --reject-with tcp-reset") + WEB,
        REJECTED.format("a reset"),
    ),
    "a reset at a pod's own address": (
        filtering("-p tcp -m tcp --dport 8080 -j REJECT --reject-with tcp-reset").replace(
            "{service: web, via: clusterIP}", "{pod: web}"
        )
        + WEB,
        (
            'node-a rejected the packet with a reset by the rule "-A FORWARD -p tcp -m tcp --dport 8080 -j REJECT '
            '--reject-with tcp-reset" in chain FORWARD of table filter.'
        ),
    ),
    "DNAT to a cluster IP": (
        LED + WEB,
        (
            "node-a changed the packet's destination to 10.96.0.80:80, the cluster IP of default/web:p, by the rule "
            '"-A PREROUTING -d 100.100.100.8/32 -j DNAT --to-destination 10.96.0.80" in chain PREROUTING of table nat, '
            "which belongs to no engine; the router sent it back, and node-a translated it to 10.244.1.10:8080 by"
        ),
    ),
    "a policy behind an HTTP probe": (CLOSED, "n1 dropped the packet by the policy of INPUT, which counted"),
    "another address of the node": (
        ON_NODE + OVER_UDP,
        (
            "web's socket answered from 10.244.0.1:8080, another address of node-a, not from 172.18.0.2:8080, which "
            "got the request; so no connection tracking entry knew the reply. A UDP server on a node must bind each"
        ),
    ),
    "NOTRACK": (
        UNTRACKED,
        (
            "not from 169.254.20.10:53, which got the request; nothing was to be translated back, and node-a does not "
            'track the flow, by the rule "-A PREROUTING -d 169.254.20.10/32 -p udp -m udp --dport 53 -j NOTRACK" in'
        ),
    ),
    "past the entrance": (
        PAST + WEB + NO_CIDR,
        "the reply did not pass n1, which alone could translate it back: n2 sent it straight to lan.",
    ),
    "a neighbour that does not answer ARP": (
        DEAF,
        "nothing left store: node-a, the next hop, does not answer ARP from a source whose packets it refuses:",
    ),
    "affinity behind a balancer": (
        BALANCED + STICKY,
        "sessionAffinity is ClientIP, but each node remembers its clients for itself, and node-a and node-b translated",
    ),
    "a pod that is gone": (
        GONE + WEB,
        "conntrack on node-a still leads conn to old (10.244.1.10:8080), a pod that is gone: nothing answers or",
    ),
    "an ICMP error that was heard": (
        SILENT + WEB,
        'node-a rejected the packet by its rule "default/web:p has no endpoints" in KUBE-SERVICES. The selector',
    ),
}


SENTINELS = {
    *("ICMP host prohibited", "a reset", "DNAT to a cluster IP", "past the entrance"),
    *("a neighbour that does not answer ARP", "a pod that is gone"),
}


# Every run has an error, a reset, a translation, a way past and a dead pod; unit tests of verdict/causes have all.
@pytest.mark.parametrize(
    "name", [name if name in SENTINELS else pytest.param(name, marks=pytest.mark.thorough) for name in REASONS]
)
def test_why_names_it(name: str, cli: CommandLine, tmp_path: Path) -> None:
    spec, reason = REASONS[name]
    file = tmp_path / "reasons.lab.yaml"
    file.write_text(HEAD.format(spec=spec))
    typed = cli.type("run", str(file), "--no-bundles")
    shown = re.sub(r"\s+", " ", typed.output)
    assert reason in shown.partition(" why: ")[2], shown
    assert "nothing translated the reply back" not in shown
    assert "the ICMP error was lost" not in shown


def test_a_foreign_translation_is_named_before_the_rejection_that_follows(cli: CommandLine, tmp_path: Path) -> None:
    """Mode nftables rejects what another program led to a cluster IP: no packet is translated twice on one node."""
    file = tmp_path / "reasons.lab.yaml"
    file.write_text(HEAD.format(spec=LED + WEB))
    shown = re.sub(r"\s+", " ", cli.type("run", str(file), "--no-bundles", "--engine", "embedded/nftables").output)
    why = shown.partition(" why: ")[2]
    assert why.startswith(
        "node-a changed the packet's destination by the rule \"-A PREROUTING -d 100.100.100.8/32 -j DNAT"
    )
    assert 'node-a then rejected it by its rule "Reject traffic to invalid ports of ClusterIPs"' in why


def test_hops_stand_in_their_order_at_a_server_on_the_host_network(cli: CommandLine, tmp_path: Path) -> None:
    file = tmp_path / "reasons.lab.yaml"
    file.write_text(HEAD.format(spec=ON_NODE + OVER_UDP))
    shown = cli.type("run", str(file), "--no-bundles").output
    _, _, table = shown.partition("hop by hop")
    hops = [match[1] for match in re.finditer(r"^    ((?:near|node-a|web) \S+ (?:in|out)) ", table, re.MULTILINE)]
    assert hops == [
        "near eth0 out",
        "node-a near in",
        "web stack in",
        "web stack out",
        "node-a near out",
        "near eth0 in",
    ]
    assert re.search(r"node-a near in +request +\S+ +10\.96\.0\.80:80\n", table), (
        "a device shows it untranslated, unmarked"
    )


def test_a_flow_traced_twice_gives_one_result(cli: CommandLine, tmp_path: Path) -> None:
    file = tmp_path / "reasons.lab.yaml"
    file.write_text(HEAD.format(spec=PAST.replace("ports: [8080]", "ports: [{port: 8080, protocol: UDP}]") + OVER_UDP))
    traces = set()
    for _ in range(2):
        shown = cli.type("trace", str(file), "n1:5000", "web").output
        traces.add(re.sub(r"(?<=172\.18\.0\.[23]:)\d+", "PORT", shown))
    assert len(traces) == 1, traces


DNS_CACHE = """\
  nodes:
    node-a:
      addresses: [{address: 10.96.0.10, device: lo}]
      daemons: {dns-cache: {port: 53, protocol: UDP, address: 10.96.0.10}}
      leftovers:
        iptables: |
          *raw
          -A PREROUTING -d 10.96.0.10/32 -p udp -m udp --dport 53 -j NOTRACK
          OF_THE_NODE
          -A OUTPUT -s 10.96.0.10/32 -p udp -m udp --sport 53 -j NOTRACK
          COMMIT
    node-b: {}
  pods:
    kube-dns: {nodes: [node-b], labels: {k8s-app: kube-dns}, ports: [{port: 53, protocol: UDP}]}
    client: {nodes: [node-a]}
    hostnet: {nodes: [node-a], hostNetwork: true}
  probes:
  - {name: from a pod, from: client, to: {address: 10.96.0.10, port: 53}, send: {protocol: UDP}, expect: CACHED}
  - {name: from the node, from: hostnet, to: {address: 10.96.0.10, port: 53}, send: {protocol: UDP}, expect: CACHED}
---
apiVersion: v1
kind: Service
metadata: {name: kube-dns}
spec: {clusterIP: 10.96.0.10, selector: {k8s-app: kube-dns}, ports: [{name: dns, port: 53, protocol: UDP}]}
"""
CACHED = "{outcome: delivered, backends: [dns-cache], source: preserved}"
OF_THE_NODE = "-A OUTPUT -d 10.96.0.10/32 -p udp -m udp --dport 53 -j NOTRACK"


@pytest.mark.parametrize("engine", ["embedded/iptables", "embedded/nftables"])
@pytest.mark.parametrize("untracked", [True, False], ids=["all untracked", "the node's queries tracked"])
def test_a_dns_cache_on_a_node_is_a_backend_where_nothing_tracks_its_queries(
    engine: str, untracked: bool, cli: CommandLine, tmp_path: Path
) -> None:
    """Without its rule for the node's own queries, the proxy translates those to a pod, and its rule is the reason."""
    spec = DNS_CACHE.replace("CACHED", CACHED).replace("OF_THE_NODE", OF_THE_NODE if untracked else "")
    file = tmp_path / "cache.lab.yaml"
    file.write_text(HEAD.format(spec="MARK").replace("MARK", spec))
    typed = cli.type("run", str(file), "--no-bundles", "--engine", engine)
    shown = re.sub(r"\s+", " ", typed.output)
    if untracked:
        assert typed.status == 0, shown
        return
    assert "1 failed, 1 passed" in shown
    assert shown.partition(" why: ")[2].startswith("node-a sent the packet to kube-dns by its rule ")
    assert "FAIL: from the node" in shown
