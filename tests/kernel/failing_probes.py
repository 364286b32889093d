"""Defects in a lab, the probe that each makes fail, and what its reproduction script shows.

In the table a packet goes to the wrong pod, has the wrong source, is dropped, is rejected, is shared unevenly, or gets
a wrong HTTP answer.
"""

from dataclasses import dataclass

__all__ = ["BROKEN", "Broken"]

BODIES = "proxylab.engines.embedded.iptables.service_chains"
FIXED = "proxylab.engines.embedded.iptables.fixed"
FRONTS = "proxylab.engines.embedded.iptables.dispatch_rules"
SCOPE = "proxylab.engines.embedded.iptables.scope"
FROM_A_POD = "scenarios/clusterip/from-a-pod.lab.yaml"
SOLO = "to: {service: solo, via: clusterIP}\n    expect: {outcome: delivered, backends: [solo], source: preserved"


@dataclass(frozen=True)
class Broken:
    """A scenario, the defect of its lab, and the probe that shows it.

    The test sends the probe ``before`` first. ``mended`` has edits that repair the script. ``none`` is a part of the
    reason why there is no script.
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
        "ClusterIP from outside is masqueraded by the entry node towards its own pod",
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
        "ClusterIP from a pod to another node preserves the client IP",
        edits=((SOLO, SOLO.replace("[solo]", "[echo-1]")),),
    ),
    Broken(
        "dropped",
        "NodePort with externalTrafficPolicy Local drops on a node without endpoint[ipv4]",
        scenario="scenarios/nodeport/traffic-policy-local.lab.yaml",
        edits=(("{outcome: dropped, at: node-a", "{outcome: delivered, source: preserved"),),
    ),
    Broken(
        "dropped elsewhere",
        "NodePort with externalTrafficPolicy Local drops on a node without endpoint[ipv4]",
        scenario="scenarios/nodeport/traffic-policy-local.lab.yaml",
        edits=(("{outcome: dropped, at: node-a", "{outcome: dropped, at: node-b"),),
        none="each single packet is as expected",
    ),
    Broken(
        "clients that are kept by another pod",
        "ClientIP affinity with policy Local sends an outside host to one local endpoint[ipv4]",
        scenario="scenarios/affinity/client-ip.lab.yaml",
        edits=(
            ("hosts: {outside: {}}", "hosts: {outside: {addresses: 20}}"),
            ("    from: outside\n", "    from: {name: outside, address: all}\n"),
            ("backends: [echo-1, echo-3]", "backends: [echo-1, echo-2]"),
        ),
        none="session affinity binds each client",
    ),
    Broken(
        "in fragments, over IPv6",
        "ClusterIP over UDP delivers crafted fragments to one endpoint[ipv6]",
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
        "ClusterIP from a pod reaches host-network endpoints on all nodes[ipv4]",
        scenario="scenarios/clusterip/host-network-endpoints.lab.yaml",
        edits=(("backends: [agent-1, agent-2]", "backends: [agent-1]"),),
    ),
    Broken(
        "a client that was tied to an endpoint before",
        "two endpoints are added: ClientIP affinity survives added endpoints[ipv4]",
        before="ClientIP affinity sends the client to the only endpoint[ipv4]",
        scenario="scenarios/steps/affinity-when-endpoints-change.lab.yaml",
        edits=(
            (
                "send: {flows: 15}\n      expect: {outcome: delivered, backends: [one]",
                "send: {flows: 15}\n      expect: {outcome: delivered, backends: [three]",
            ),
        ),
        none="session affinity had bound the client",
    ),
    Broken(
        "an echo request in fragments",
        "fragmented echo request from outside is answered by a pod[ipv4]",
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
        "ClusterIP from a pod to another node preserves the client IP",
        edits=(("{selector: {app: solo}", "{selector: {app: nobody}"),),
    ),
    Broken(
        "refused",
        "ClusterIP from a pod to another node preserves the client IP",
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
        "ClusterIP from a pod spreads connections evenly over all endpoints",
        patch=f"import {BODIES} as m; m.share = lambda index, count: ''",
        none="each single packet is as expected",
    ),
    Broken(
        "not translated, from a node, over IPv6",
        "ClusterIP from a node reaches a pod of another node[ipv6]",
        scenario="scenarios/senders/from-a-node.lab.yaml",
        patch=f"import {BODIES} as m; m.translation = lambda scope, endpoint: ()",
    ),
    Broken(
        "translated where it was to be left alone",
        "external IP at another port is not translated",
        scenario="scenarios/untranslated/other-ports-and-addresses.lab.yaml",
        patch=f"import {FRONTS} as m; m.external_ip = lambda scope, address: "
        "[m.append_line(m.names.SERVICES, f'-d {address}', scope.chains.external)]",
    ),
    Broken(
        "an echo request, over IPv6",
        "echo request to an empty Service is untranslated, or rejected in nftables[ipv6]",
        scenario="scenarios/icmp/echo-requests.lab.yaml",
        patch=f"import {SCOPE} as m; m.to_address = lambda protocol, address, port: f'-d {{address}}'",
    ),
    Broken(
        "associations",
        "NodePort over SCTP with externalTrafficPolicy Local preserves the client IP[ipv4]",
        scenario="scenarios/sctp/associations.lab.yaml",
        edits=(("backends: [echo-2], source: preserved", "backends: [echo-1], source: preserved"),),
    ),
    Broken(
        "associations from a node",
        "ClusterIP over SCTP with internalTrafficPolicy Local serves its node[ipv6]",
        scenario="scenarios/sctp/associations.lab.yaml",
        edits=(("source: {node: node-b, device: pods}", 'source: "fd00:10:244::99"'),),
    ),
    Broken(
        "an echo request from a node",
        "echo request from a node is answered by a pod[ipv4]",
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
        "healthCheckNodePort of a node without endpoint answers 503[ipv4]",
        scenario="scenarios/loadbalancer/health-check-node-port.lab.yaml",
        edits=(("{status: 503, localEndpoints: 0}", "{status: 200, localEndpoints: 1}"),),
        none="the probe sends an HTTP request",
    ),
    Broken(
        "what connection tracking has not forgotten",
        "another pod replaces the endpoint: "
        "ClusterIP over UDP from the same source port reaches the new endpoint[ipv4]",
        before="ClusterIP over UDP from a pod reaches the first endpoint[ipv4]",
        scenario="scenarios/steps/udp-client-outlives-its-backend.lab.yaml",
        patch="import proxylab.engines.embedded.udp as m; m.UdpReconciler.update = lambda self, ports: False",
        none="connection tracking had an entry",
    ),
    Broken(
        "a name that does not exist",
        "DNS name of a headless Service gives the ready pods only[ipv4]",
        scenario="scenarios/dns/headless-by-name.lab.yaml",
        edits=(("labels: {app: db}, ports: [5432]}", "labels: {app: db}, ports: [5432], ready: false}"),),
        none="the probe dials a name",
    ),
    Broken(
        "beyond a cable that is cut",
        "the pod's link is cut, and streams lose packets without a reset: "
        "ClusterIP to an endpoint behind a cut link is dropped at its node[ipv4]",
        scenario="scenarios/steps/link-failure.lab.yaml",
        edits=(("expect: {outcome: dropped, at: node-b}", "expect: {outcome: delivered, source: preserved}"),),
        mended=(("ip -n echo link set dev eth0 down\n", ""),),
    ),
    Broken(
        "on a bridge, over vxlan",
        "ClusterIP from a pod to another node preserves the client IP",
        edits=(
            ("  nodes:", "  network: {podNetwork: bridge, interNode: vxlan}\n  nodes:"),
            (SOLO, SOLO.replace("preserved", "10.244.0.1")),
        ),
    ),
]
