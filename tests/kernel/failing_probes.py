"""What is broken in a lab, the probe that fails by it, and what becomes of its script.

Owns: the table of them, in which a packet goes to the wrong pod, has the wrong source, is dropped, is rejected, is
shared unevenly, or is answered by HTTP as it should not be.
Must not: run anything.
"""

from dataclasses import dataclass

__all__ = ["BROKEN", "Broken"]

BODIES = "lab.engines.embedded.iptables.bodies"
FIXED = "lab.engines.embedded.iptables.fixed"
FRONTS = "lab.engines.embedded.iptables.fronts"
SCOPE = "lab.engines.embedded.iptables.scope"
FROM_A_POD = "scenarios/clusterip/from-a-pod.lab.yaml"
SOLO = "to: {service: solo, via: clusterIP}\n    expect: {outcome: delivered, backends: [solo], source: preserved}"


@dataclass(frozen=True)
class Broken:
    """A scenario, what is wrong with its lab, and the probe that shows it.

    ``before`` is a probe that has to be sent first. ``mended`` are edits of the script, with which it shows no failure.
    ``none`` is a part of the reason why there is no script.
    """

    name: str
    probe: str
    scenario: str = FROM_A_POD
    edits: tuple[tuple[str, str], ...] = ()
    patch: str = ""
    before: str = ""
    mended: tuple[tuple[str, str], ...] = ()
    none: str = ""


BROKEN = [
    Broken(
        "the wrong source",
        "an outside host is masqueraded where it enters, on the way to a pod there",
        patch=f"import {FIXED} as m; m.masquerade = lambda settings: ()",
        mended=(
            (
                "\n-A KUBE-POSTROUTING -j MARK --set-xmark 0x4000/0x0\n",
                "\n-A KUBE-POSTROUTING -j MARK --set-xmark 0x4000/0x0\n-A KUBE-POSTROUTING -j MASQUERADE\n",
            ),
        ),
    ),
    Broken(
        "the wrong pod",
        "a backend on another node sees the pod that dialled",
        edits=((SOLO, SOLO.replace("[solo]", "[echo-1]")),),
    ),
    Broken(
        "dropped",
        "a node without endpoint drops[ipv4]",
        scenario="scenarios/nodeport/traffic-policy-local.lab.yaml",
        edits=(("{outcome: dropped, at: node-a}", "{outcome: delivered, source: preserved}"),),
    ),
    Broken(
        "dropped elsewhere",
        "a node without endpoint drops[ipv4]",
        scenario="scenarios/nodeport/traffic-policy-local.lab.yaml",
        edits=(("{outcome: dropped, at: node-a}", "{outcome: dropped, at: node-b}"),),
        none="no single packet shows",
    ),
    Broken(
        "clients that are kept by another pod",
        "an outside host's connections go to one backend of the node[ipv4]",
        scenario="scenarios/affinity/client-ip.lab.yaml",
        edits=(
            ("hosts: {outside: {}}", "hosts: {outside: {addresses: 20}}"),
            ("    from: outside\n", "    from: {name: outside, address: all}\n"),
            ("backends: [echo-1, echo-3]", "backends: [echo-1, echo-2]"),
        ),
        none="session affinity ties each client",
    ),
    Broken(
        "in fragments, over IPv6",
        "crafted fragments arrive at one backend[ipv6]",
        scenario="scenarios/fragments/datagrams-above-the-mtu.lab.yaml",
        edits=(
            (
                "as: packet, flows: 40, payload: 4000}\n    expect: {outcome: delivered, backends: [echo-1, echo-2]",
                "as: packet, flows: 40, payload: 4000}\n    expect: {outcome: delivered, backends: [echo-1]",
            ),
        ),
    ),
    Broken(
        "at programs of nodes, by crafted SYNs",
        "a pod's connections are shared by the agents[ipv4]",
        scenario="scenarios/clusterip/host-network-endpoints.lab.yaml",
        edits=(("backends: [agent-1, agent-2]", "backends: [agent-1]"),),
    ),
    Broken(
        "a client that was tied to an endpoint before",
        "others come: the client stays[ipv4]",
        before="one serves[ipv4]",
        scenario="scenarios/steps/clients-who-stick.lab.yaml",
        edits=(
            (
                "send: {flows: 15}\n      expect: {outcome: delivered, backends: [one]",
                "send: {flows: 15}\n      expect: {outcome: delivered, backends: [three]",
            ),
        ),
        none="session affinity had tied the client",
    ),
    Broken(
        "an echo request in fragments",
        "a pod answers a host, in fragments[ipv4]",
        scenario="scenarios/icmp/echo-requests.lab.yaml",
        edits=(
            (
                "payload: 4000}\n    expect: {outcome: delivered, backends: [echo], source: preserved}",
                "payload: 4000}\n    expect: {outcome: rejected}",
            ),
        ),
    ),
    Broken(
        "rejected",
        "a backend on another node sees the pod that dialled",
        edits=(("{selector: {app: solo}", "{selector: {app: nobody}"),),
    ),
    Broken(
        "refused",
        "a backend on another node sees the pod that dialled",
        edits=(
            (
                "{selector: {app: solo}, ports: [{port: 80, targetPort: 8080}]}",
                "{selector: {app: solo}, ports: [{port: 80, targetPort: 9}]}",
            ),
        ),
        mended=(("10.244.1.11:9", "10.244.1.11:8080"),),
    ),
    Broken(
        "crafted and unevenly shared",
        "every backend gets its share",
        patch=f"import {BODIES} as m; m.share = lambda index, count: ''",
        none="no single packet shows",
    ),
    Broken(
        "not translated, from a node, over IPv6",
        "a node reaches a pod elsewhere[ipv6]",
        scenario="scenarios/senders/from-a-node.lab.yaml",
        patch=f"import {BODIES} as m; m.translation = lambda scope, endpoint: ()",
    ),
    Broken(
        "translated where it was to be left alone",
        "a port that the Service does not have is left alone",
        scenario="scenarios/untranslated/headed-elsewhere.lab.yaml",
        patch=f"import {FRONTS} as m; m.external_ip = lambda scope, address: "
        "[m.write(m.names.SERVICES, f'-d {address}', scope.chains.external)]",
    ),
    Broken(
        "an echo request, over IPv6",
        "so is the cluster IP of one without endpoints[ipv6]",
        scenario="scenarios/icmp/echo-requests.lab.yaml",
        patch=f"import {SCOPE} as m; m.to_address = lambda protocol, address, port: f'-d {{address}}'",
    ),
    Broken(
        "associations",
        "a stranger keeps its address where the policy is Local[ipv4]",
        scenario="scenarios/sctp/associations.lab.yaml",
        edits=(("backends: [echo-2], source: preserved", "backends: [echo-1], source: preserved"),),
    ),
    Broken(
        "associations from a node",
        "a node reaches it as well[ipv6]",
        scenario="scenarios/sctp/associations.lab.yaml",
        edits=(("source: {node: node-b, device: pods}", 'source: "fd00:10:244::99"'),),
    ),
    Broken(
        "an echo request from a node",
        "a pod answers a node[ipv4]",
        scenario="scenarios/icmp/echo-requests.lab.yaml",
        edits=(
            (
                "{outcome: delivered, backends: [echo], source: {node: node-a, device: uplink}}",
                "{outcome: rejected}",
            ),
        ),
    ),
    Broken(
        "another answer by HTTP",
        "a node without endpoint is not[ipv4]",
        scenario="scenarios/loadbalancer/health-check-node-port.lab.yaml",
        edits=(("{status: 503, localEndpoints: 0}", "{status: 200, localEndpoints: 1}"),),
        none="the probe asks by HTTP",
    ),
    Broken(
        "what connection tracking has not forgotten",
        "another pod takes its place: the pod's next datagram reaches the new one[ipv4]",
        before="a pod asks[ipv4]",
        scenario="scenarios/steps/a-datagram-after-its-backend.lab.yaml",
        patch="import lab.engines.embedded.udp as m; m.UdpReconciler.update = lambda self, ports: False",
        none="connection tracking knew the flow",
    ),
    Broken(
        "a name that does not exist",
        "the name gives the ready pods[ipv4]",
        scenario="scenarios/dns/headless-by-name.lab.yaml",
        edits=(("labels: {app: db}, ports: [5432]}", "labels: {app: db}, ports: [5432], ready: false}"),),
        none="the probe dials a name",
    ),
    Broken(
        "beyond a cable that is cut",
        "the pod is cut off: its node lets it go[ipv4]",
        scenario="scenarios/steps/a-cable-is-cut.lab.yaml",
        edits=(("expect: {outcome: dropped, at: node-b}", "expect: {outcome: delivered, source: preserved}"),),
        mended=(("ip -n echo link set dev eth0 down\n", ""),),
    ),
    Broken(
        "on a bridge, over vxlan",
        "a backend on another node sees the pod that dialled",
        edits=(
            ("  nodes:", "  network: {podNetwork: bridge, interNode: vxlan}\n  nodes:"),
            (SOLO, SOLO.replace("preserved", "10.244.0.1")),
        ),
    ),
]
