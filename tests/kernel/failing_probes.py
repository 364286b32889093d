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
        "an outside host is masqueraded where it enters, on the way to a pod there",
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
        "a backend on another node sees the pod that dialled",
        ("expected at echo-1, seen at solo",),
        edits=((SOLO, SOLO.replace("[solo]", "[echo-1]")),),
    ),
    Broken(
        "dropped",
        "a node without endpoint drops[ipv4]",
        ("expected delivered, seen dropped",),
        scenario="scenarios/nodeport/traffic-policy-local.lab.yaml",
        edits=(("{outcome: dropped, at: node-a}", "{outcome: delivered, source: preserved}"),),
    ),
    Broken(
        "dropped elsewhere",
        "a node without endpoint drops[ipv4]",
        ("expected to end at node-b, seen last at node-a/eth0",),
        scenario="scenarios/nodeport/traffic-policy-local.lab.yaml",
        edits=(("{outcome: dropped, at: node-a}", "{outcome: dropped, at: node-b}"),),
        mended=(('"at": [\n   "node-b"', '"at": [\n   "node-a"'),),
    ),
    Broken(
        "clients that are kept by another pod",
        "an outside host's connections go to one backend of the node[ipv4]",
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
        "crafted fragments arrive at one backend[ipv6]",
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
        "a pod's connections are shared by the agents[ipv4]",
        ("expected at agent-1, seen at agent-2",),
        scenario="scenarios/clusterip/host-network-endpoints.lab.yaml",
        edits=(("backends: [agent-1, agent-2]", "backends: [agent-1]"),),
        mended=(('"agent-1"\n  ]', '"agent-1", "agent-2"\n  ]'),),
    ),
    Broken(
        "a client that was tied to an endpoint before",
        "others come: the client stays[ipv4]",
        ("expected at three, seen at one (15 of 15 flows)",),
        before="one serves[ipv4]",
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
        "a pod answers a host, in fragments[ipv4]",
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
        "a backend on another node sees the pod that dialled",
        ("expected delivered, seen rejected", "port unreachable"),
        edits=(("{selector: {app: solo}", "{selector: {app: nobody}"),),
    ),
    Broken(
        "refused",
        "a backend on another node sees the pod that dialled",
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
        "every backend gets its share",
        ("expected at echo-2 too, seen never in 2000 flows", "expected about 667 flows at echo-1, seen 2000"),
        patch=f"import {BODIES} as m; m.share = lambda index, count: ''",
    ),
    Broken(
        "not translated, from a node, over IPv6",
        "a node reaches a pod elsewhere[ipv6]",
        ("node-a", "expected delivered, seen "),
        scenario="scenarios/senders/from-a-node.lab.yaml",
        patch=f"import {BODIES} as m; m.translation = lambda scope, endpoint: ()",
    ),
    Broken(
        "translated where it was to be left alone",
        "a port that the Service does not have is left alone",
        ("expected to stay addressed to 198.51.100.7:81, seen for 10.244.1.10:8080 at node-a/eth0",),
        scenario="scenarios/untranslated/other-ports-and-addresses.lab.yaml",
        patch=f"import {FRONTS} as m; m.external_ip = lambda scope, address: "
        "[m.write(m.names.SERVICES, f'-d {address}', scope.chains.external)]",
    ),
    Broken(
        "an echo request, over IPv6",
        "so is the cluster IP of one without endpoints[ipv6]",
        ("expected untranslated, answered by port unreachable",),
        scenario="scenarios/icmp/echo-requests.lab.yaml",
        patch=f"import {SCOPE} as m; m.to_address = lambda protocol, address, port: f'-d {{address}}'",
    ),
    Broken(
        "associations",
        "a stranger keeps its address where the policy is Local[ipv4]",
        ("expected at echo-1, seen at echo-2", "reply"),
        scenario="scenarios/sctp/associations.lab.yaml",
        edits=(("backends: [echo-2], source: preserved", "backends: [echo-1], source: preserved"),),
    ),
    Broken(
        "associations from a node",
        "a node reaches it as well[ipv6]",
        ("node-b", "expected from fd00:10:244::99, seen from fd00:10:244:1::1 at echo-2", "reply"),
        scenario="scenarios/sctp/associations.lab.yaml",
        edits=(("source: {node: node-b, device: pods}", 'source: "fd00:10:244::99"'),),
    ),
    Broken(
        "an echo request from a node",
        "a pod answers a node[ipv4]",
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
        "a node without endpoint is not[ipv4]",
        ("expected HTTP 200 with 1 local endpoint, seen 503 with 0 local endpoints", "reply"),
        scenario="scenarios/loadbalancer/health-check-node-port.lab.yaml",
        edits=(("{status: 503, localEndpoints: 0}", "{status: 200, localEndpoints: 1}"),),
    ),
    Broken(
        "a node asks itself by HTTP",
        "a node may ask itself[ipv6]",
        ("node-b", "expected HTTP 200, seen 503 with 0 local endpoints"),
        scenario="scenarios/loadbalancer/health-check-node-port.lab.yaml",
        edits=(("expect: {http: {status: 503}}", "expect: {http: {status: 200}}"),),
    ),
    Broken(
        "what connection tracking has not forgotten",
        "another pod takes its place: the pod's next datagram reaches the new one[ipv4]",
        (
            "expected at new, seen at old",
            "expected a reply from 10.96.",
            "seen none",
            "expected no entry answered by old, seen UDP",
        ),
        before="a pod asks[ipv4]",
        mended=(("                remember(entry)\n", "                pass\n"),),
        scenario="scenarios/steps/udp-client-outlives-its-backend.lab.yaml",
        patch="import lab.engines.embedded.udp as m; m.UdpReconciler.update = lambda self, ports: False",
    ),
    Broken(
        "what connection tracking has not forgotten, over IPv6",
        "another pod takes its place: so does the outside host's[ipv6]",
        ("expected at new, seen at old",),
        before="an outside host asks[ipv6]",
        scenario="scenarios/steps/udp-client-outlives-its-backend.lab.yaml",
        patch="import lab.engines.embedded.udp as m; m.UdpReconciler.update = lambda self, ports: False",
    ),
    Broken(
        "a name that does not exist",
        "the name gives the ready pods[ipv4]",
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
            ("name: the name gives the ready pods", "name: the name gives other pods"),
            ("backends: [db-1, db-2], source", "backends: [db-1, late], source"),
        ),
    ),
    Broken(
        "a name for which nobody answers",
        "a pod elsewhere does so[ipv4-ptp-host-gw]",
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
        "the pod is cut off: its node lets it go[ipv4]",
        ("expected delivered, seen dropped",),
        scenario="scenarios/steps/link-failure.lab.yaml",
        edits=(("expect: {outcome: dropped, at: node-b}", "expect: {outcome: delivered, source: preserved}"),),
        mended=(("inside echo ip link set dev eth0 down", ":"),),
    ),
    Broken(
        "on a bridge, over vxlan",
        "a backend on another node sees the pod that dialled",
        ("expected from 10.244.0.1, seen from 10.244.0.12 at solo",),
        edits=(
            ("  nodes:", "  network: {podNetwork: bridge, interNode: vxlan}\n  nodes:"),
            (SOLO, SOLO.replace("preserved", "10.244.0.1")),
        ),
    ),
]
