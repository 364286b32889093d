"""What is broken in a lab, the probe that fails by it, and what the script of its bundle then says.

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
    """A scenario, what is wrong with its lab, the probe that shows it, and what its script then says.

    ``before`` is a probe that has to be sent first. ``mended`` are edits of the script, with which it shows no failure.
    """

    name: str
    probe: str
    says: tuple[str, ...]
    scenario: str = FROM_A_POD
    edits: tuple[tuple[str, str], ...] = ()
    patch: str = ""
    before: str = ""
    mended: tuple[tuple[str, str], ...] = ()


NO_SUCH_NAME = """"code": "NXDOMAIN",
    "answers": []"""
NAMED = """"code": "NOERROR",
    "answers": [["db.default.svc.cluster.local", "A", "10.244.0.10"],
                ["db.default.svc.cluster.local", "CNAME", "db.shop.svc.cluster.local"],
                ["db.shop.svc.cluster.local", "A", "10.244.1.10"]]"""

BROKEN = [
    Broken(
        "the wrong source",
        "ClusterIP from outside is masqueraded by the entry node towards its own pod",
        ("expected from 10.244.1.1, seen from 203.0.113.10 at solo",),
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
        ("expected at echo-1, seen at solo",),
        edits=((SOLO, SOLO.replace("[solo]", "[echo-1]")),),
    ),
    Broken(
        "dropped",
        "NodePort with externalTrafficPolicy Local drops on a node without endpoint[ipv4]",
        ("expected delivered, seen dropped",),
        scenario="scenarios/nodeport/traffic-policy-local.lab.yaml",
        edits=(("{outcome: dropped, at: node-a}", "{outcome: delivered, source: preserved}"),),
    ),
    Broken(
        "dropped elsewhere",
        "NodePort with externalTrafficPolicy Local drops on a node without endpoint[ipv4]",
        ("expected to end at node-b, seen last at node-a/eth0",),
        scenario="scenarios/nodeport/traffic-policy-local.lab.yaml",
        edits=(("{outcome: dropped, at: node-a}", "{outcome: dropped, at: node-b}"),),
        mended=(('"at": [\n   "node-b"', '"at": [\n   "node-a"'),),
    ),
    Broken(
        "clients that are kept by another pod",
        "ClientIP affinity with policy Local sends an outside host to one local endpoint[ipv4]",
        ("expected at echo-1 or echo-2, seen at echo-3",),
        scenario="scenarios/affinity/client-ip.lab.yaml",
        edits=(
            ("hosts: {outside: {}}", "hosts: {outside: {addresses: 20}}"),
            ("    from: outside\n", "    from: {name: outside, address: all}\n"),
            ("backends: [echo-1, echo-3]", "backends: [echo-1, echo-2]"),
        ),
        mended=(('"echo-1",\n   "echo-2"', '"echo-1", "echo-3"'),),
    ),
    Broken(
        "in fragments, over IPv6",
        "ClusterIP over UDP delivers crafted fragments to one endpoint[ipv6]",
        ("expected at echo-1, seen at echo-2",),
        scenario="scenarios/fragments/datagrams-above-the-mtu.lab.yaml",
        edits=(
            (
                "as: packet, flows: 40, payload: 4000}\n    expect: {outcome: delivered, backends: [echo-1, echo-2]",
                "as: packet, flows: 40, payload: 4000}\n    expect: {outcome: delivered, backends: [echo-1]",
            ),
        ),
        mended=(('"echo-1"\n  ]', '"echo-1", "echo-2"\n  ]'),),
    ),
    Broken(
        "at programs of nodes, by crafted SYNs",
        "ClusterIP from a pod reaches host-network endpoints on all nodes[ipv4]",
        ("expected at agent-1, seen at agent-2",),
        scenario="scenarios/clusterip/host-network-endpoints.lab.yaml",
        edits=(("backends: [agent-1, agent-2]", "backends: [agent-1]"),),
        mended=(('"agent-1"\n  ]', '"agent-1", "agent-2"\n  ]'),),
    ),
    Broken(
        "a client that was tied to an endpoint before",
        "two endpoints are added: ClientIP affinity survives added endpoints[ipv4]",
        ("expected at three, seen at one (15 of 15 flows)",),
        before="ClientIP affinity sends the client to the only endpoint[ipv4]",
        scenario="scenarios/steps/affinity-when-endpoints-change.lab.yaml",
        edits=(
            (
                "send: {flows: 15}\n      expect: {outcome: delivered, backends: [one]",
                "send: {flows: 15}\n      expect: {outcome: delivered, backends: [three]",
            ),
        ),
        mended=(('"three"\n  ]', '"one"\n  ]'),),
    ),
    Broken(
        "an echo request in fragments",
        "fragmented echo request from outside is answered by a pod[ipv4]",
        ("expected rejected, seen delivered",),
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
        ("expected delivered, seen rejected", "port unreachable"),
        edits=(("{selector: {app: solo}", "{selector: {app: nobody}"),),
    ),
    Broken(
        "refused",
        "ClusterIP from a pod to another node preserves the client IP",
        ("expected delivered, seen refused", "reset"),
        edits=(
            (
                "{selector: {app: solo}, ports: [{port: 80, targetPort: 8080}]}",
                "{selector: {app: solo}, ports: [{port: 80, targetPort: 9}]}",
            ),
        ),
    ),
    Broken(
        "crafted and unevenly shared",
        "ClusterIP from a pod spreads connections evenly over all endpoints",
        ("expected at echo-2 too, seen never in 2000 flows", "expected about 667 flows at echo-1, seen 2000"),
        patch=f"import {BODIES} as m; m.share = lambda index, count: ''",
    ),
    Broken(
        "not translated, from a node, over IPv6",
        "ClusterIP from a node reaches a pod of another node[ipv6]",
        ("node-a", "expected delivered, seen "),
        scenario="scenarios/senders/from-a-node.lab.yaml",
        patch=f"import {BODIES} as m; m.translation = lambda scope, endpoint: ()",
    ),
    Broken(
        "translated where it was to be left alone",
        "external IP at another port is not translated",
        ("expected to stay addressed to 198.51.100.7:81, seen for 10.244.1.10:8080 at node-a/eth0",),
        scenario="scenarios/untranslated/other-ports-and-addresses.lab.yaml",
        patch=f"import {FRONTS} as m; m.external_ip = lambda scope, address: "
        "[m.write(m.names.SERVICES, f'-d {address}', scope.chains.external)]",
    ),
    Broken(
        "an echo request, over IPv6",
        "echo request to an empty Service is untranslated, or rejected in nftables[ipv6]",
        ("expected untranslated, answered by port unreachable",),
        scenario="scenarios/icmp/echo-requests.lab.yaml",
        patch=f"import {SCOPE} as m; m.to_address = lambda protocol, address, port: f'-d {{address}}'",
    ),
    Broken(
        "associations",
        "NodePort over SCTP with externalTrafficPolicy Local preserves the client IP[ipv4]",
        ("expected at echo-1, seen at echo-2", "reply"),
        scenario="scenarios/sctp/associations.lab.yaml",
        edits=(("backends: [echo-2], source: preserved", "backends: [echo-1], source: preserved"),),
    ),
    Broken(
        "associations from a node",
        "ClusterIP over SCTP with internalTrafficPolicy Local serves its node[ipv6]",
        ("node-b", "expected from fd00:10:244::99, seen from fd00:10:244:1::1 at echo-2", "reply"),
        scenario="scenarios/sctp/associations.lab.yaml",
        edits=(("source: {node: node-b, device: pods}", 'source: "fd00:10:244::99"'),),
    ),
    Broken(
        "an echo request from a node",
        "echo request from a node is answered by a pod[ipv4]",
        ("node-a", "expected rejected, seen delivered"),
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
        ("expected HTTP 200 with 1 local endpoint, seen 503 with 0 local endpoints", "reply"),
        scenario="scenarios/loadbalancer/health-check-node-port.lab.yaml",
        edits=(("{status: 503, localEndpoints: 0}", "{status: 200, localEndpoints: 1}"),),
    ),
    Broken(
        "a node asks itself by HTTP",
        "healthCheckNodePort of a node answers the node itself[ipv6]",
        ("node-b", "expected HTTP 200, seen 503 with 0 local endpoints"),
        scenario="scenarios/loadbalancer/health-check-node-port.lab.yaml",
        edits=(("expect: {http: {status: 503}}", "expect: {http: {status: 200}}"),),
    ),
    Broken(
        "what connection tracking has not forgotten",
        "another pod replaces the endpoint: "
        "ClusterIP over UDP from the same source port reaches the new endpoint[ipv4]",
        (
            "expected at new, seen at old",
            "expected a reply from 10.96.",
            "seen none",
            "expected no entry answered by old, seen UDP",
        ),
        before="ClusterIP over UDP from a pod reaches the first endpoint[ipv4]",
        mended=(("                remember(entry)\n", "                pass\n"),),
        scenario="scenarios/steps/udp-client-outlives-its-backend.lab.yaml",
        patch="import lab.engines.embedded.udp as m; m.UdpReconciler.update = lambda self, ports: False",
    ),
    Broken(
        "what connection tracking has not forgotten, over IPv6",
        "another pod replaces the endpoint: NodePort over UDP from the same source port reaches the new endpoint[ipv6]",
        ("expected at new, seen at old",),
        before="NodePort over UDP from outside reaches the first endpoint[ipv6]",
        scenario="scenarios/steps/udp-client-outlives-its-backend.lab.yaml",
        patch="import lab.engines.embedded.udp as m; m.UdpReconciler.update = lambda self, ports: False",
    ),
    Broken(
        "a name that does not exist",
        "DNS name of a headless Service gives the ready pods only[ipv4]",
        (
            "client asks 10.96.0.10 for db.default.svc.cluster.local A: NXDOMAIN",
            "client asks 10.96.0.10 for db.cluster.local A: NXDOMAIN",
            "The name led nowhere, so nothing was dialled.",
            "expected the name to give 10.244.0.10 and 10.244.1.10, seen none",
        ),
        scenario="scenarios/dns/headless-by-name.lab.yaml",
        edits=(("labels: {app: db}, ports: [5432]}", "labels: {app: db}, ports: [5432], ready: false}"),),
        mended=((NO_SUCH_NAME, NAMED),),
    ),
    Broken(
        "a name that gives another pod, over IPv6",
        "the name gives other pods[ipv6]",
        ("expected the name to give fd00:10:244:1::b, seen ", "flow 0 of 1, as it was seen"),
        scenario="scenarios/dns/headless-by-name.lab.yaml",
        edits=(
            ("name: DNS name of a headless Service gives the ready pods only", "name: the name gives other pods"),
            ("backends: [db-1, db-2], source", "backends: [db-1, late], source"),
        ),
    ),
    Broken(
        "a name for which nobody answers",
        "DNS name of a Service in the pod's namespace resolves from another node[ipv4-ptp-host-gw]",
        (
            "expected 10.96.0.10 to answer for web.default.svc.cluster.local A, seen none",
            "there asks 10.244.0.2 itself: 10.96.",
        ),
        scenario="scenarios/dns/cluster-ip-by-name.lab.yaml",
        patch=f"import {BODIES} as m; m.translation = lambda scope, endpoint: ()",
        mended=(("-j KUBE-SEP-YIL6JZP7A3QYXJU2", "-p udp -j DNAT --to-destination 10.244.0.2:53"),),
    ),
    Broken(
        "beyond a cable that is cut",
        "the pod's link is cut, and streams lose packets without a reset: "
        "ClusterIP to an endpoint behind a cut link is dropped at its node[ipv4]",
        ("expected delivered, seen dropped",),
        scenario="scenarios/steps/link-failure.lab.yaml",
        edits=(("expect: {outcome: dropped, at: node-b}", "expect: {outcome: delivered, source: preserved}"),),
        mended=(("inside echo ip link set dev eth0 down", ":"),),
    ),
    Broken(
        "on a bridge, over vxlan",
        "ClusterIP from a pod to another node preserves the client IP",
        ("expected from 10.244.0.1, seen from 10.244.0.12 at solo",),
        edits=(
            ("  nodes:", "  network: {podNetwork: bridge, interNode: vxlan}\n  nodes:"),
            (SOLO, SOLO.replace("preserved", "10.244.0.1")),
        ),
    ),
]
