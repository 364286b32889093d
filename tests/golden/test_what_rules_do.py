"""What kube-proxy's rules do with packets: the table of who reaches whom, and under which address.

The rules are those that kube-proxy 1.36.3 wrote (``test_against_kube_proxy`` compares the embedded engine's with them).
They are read as iptables would read them, and packets walk through.
"""

from pathlib import Path

import pytest
from rule_cases import Addresses
from rule_walk import Fate, Packet, walk

from proxylab.addresses import Family
from proxylab.engines.embedded.iptables.meaning import read_rules

FILES = Path(__file__).parent / "kube-proxy-v1.36.3"
ALL, LOCAL, ELSEWHERE = (10, 11, 12), (10, 11), (12,)
FRONTS = {
    "clusterIP": ("cluster", 20, 80),
    "nodePort": ("node", 2, 30080),
    "loadBalancerIP": ("vip", 7, 80),
    "externalIP": ("external", 9, 80),
}
POD, NODE, OUTSIDE, ITSELF = "pod", "node", "outside", "the endpoint itself"

# file, front, and of each sender: the endpoints and whether it is masqueraded, or what refuses it, if anything does
SNAT, KEPT = True, False
ROWS = [
    # Both policies Cluster.
    ("cluster-ip", "clusterIP", {POD: (ALL, KEPT), NODE: (ALL, SNAT), OUTSIDE: (ALL, SNAT)}),
    ("node-port", "clusterIP", {POD: (ALL, KEPT), NODE: (ALL, SNAT), OUTSIDE: (ALL, SNAT)}),
    ("node-port", "nodePort", {POD: (ALL, SNAT), NODE: (ALL, SNAT), OUTSIDE: (ALL, SNAT)}),
    ("load-balancer", "loadBalancerIP", {POD: (ALL, SNAT), NODE: (ALL, SNAT), OUTSIDE: (ALL, SNAT)}),
    ("load-balancer", "nodePort", {POD: (ALL, SNAT), NODE: (ALL, SNAT), OUTSIDE: (ALL, SNAT)}),
    ("external-ip", "externalIP", {POD: (ALL, SNAT), NODE: (ALL, SNAT), OUTSIDE: (ALL, SNAT)}),
    # externalTrafficPolicy Local.
    ("node-port-local", "clusterIP", {POD: (ALL, KEPT), NODE: (ALL, SNAT), OUTSIDE: (ALL, SNAT)}),
    ("node-port-local", "nodePort", {POD: (ALL, KEPT), NODE: (ALL, SNAT), OUTSIDE: (LOCAL, KEPT)}),
    ("node-port-local-none-here", "nodePort", {POD: (ELSEWHERE, KEPT), NODE: (ELSEWHERE, SNAT), OUTSIDE: "DROP"}),
    ("load-balancer-local", "loadBalancerIP", {POD: (ALL, KEPT), NODE: (ALL, SNAT), OUTSIDE: (LOCAL, KEPT)}),
    ("load-balancer-local-none-here", "loadBalancerIP", {POD: (ELSEWHERE, KEPT), OUTSIDE: "DROP"}),
    ("external-ip-local-none-here", "externalIP", {POD: (ELSEWHERE, KEPT), NODE: (ELSEWHERE, SNAT), OUTSIDE: "DROP"}),
    # internalTrafficPolicy Local.
    ("cluster-ip-internal-local", "clusterIP", {POD: (LOCAL, KEPT), NODE: (LOCAL, SNAT), OUTSIDE: (LOCAL, SNAT)}),
    ("cluster-ip-internal-local-none-here", "clusterIP", {POD: "DROP", NODE: "DROP", OUTSIDE: "DROP"}),
    ("node-port-internal-local", "nodePort", {POD: (ALL, SNAT), NODE: (ALL, SNAT), OUTSIDE: (ALL, SNAT)}),
    ("node-port-internal-local", "clusterIP", {POD: (LOCAL, KEPT), NODE: (LOCAL, SNAT), OUTSIDE: (LOCAL, SNAT)}),
    ("node-port-both-local", "nodePort", {POD: (ALL, KEPT), NODE: (ALL, SNAT), OUTSIDE: (LOCAL, KEPT)}),
    # No endpoint: the node itself is refused in OUTPUT at a cluster IP, and in INPUT at its own addresses.
    ("cluster-ip-no-endpoints", "clusterIP", {POD: "REJECT", NODE: "REJECT", OUTSIDE: "REJECT"}),
    ("node-port-no-endpoints", "nodePort", {POD: "REJECT", NODE: "REJECT", OUTSIDE: "REJECT"}),
    ("external-ip-no-endpoints", "externalIP", {POD: "REJECT", NODE: "", OUTSIDE: "REJECT"}),
    ("load-balancer-no-endpoints", "loadBalancerIP", {POD: "REJECT", NODE: "", OUTSIDE: "REJECT"}),
    # Without pod CIDRs no rule tells pods from other senders.
    ("detect-none", "clusterIP", {POD: (ALL, KEPT), NODE: (ALL, KEPT), OUTSIDE: (ALL, KEPT)}),
    ("detect-none", "nodePort", {POD: (LOCAL, KEPT), NODE: (ALL, SNAT), OUTSIDE: (LOCAL, KEPT)}),
    ("masquerade-all", "clusterIP", {POD: (ALL, SNAT), NODE: (ALL, SNAT), OUTSIDE: (ALL, SNAT)}),
    # By interfaces, what the node sends counts as not local: it comes in by none.
    ("detect-bridge", "clusterIP", {NODE: (ALL, SNAT)}),
    ("detect-prefix", "clusterIP", {NODE: (ALL, SNAT)}),
    ("detect-node-cidr", "clusterIP", {POD: (ALL, KEPT), NODE: (ALL, SNAT), OUTSIDE: (ALL, SNAT)}),
    # Source ranges: pods are not asked first, and node ports not at all.
    ("load-balancer-source-ranges", "loadBalancerIP", {POD: "DROP", NODE: "DROP", OUTSIDE: (ALL, SNAT)}),
    ("load-balancer-source-ranges", "nodePort", {POD: (ALL, SNAT), NODE: (ALL, SNAT), OUTSIDE: (ALL, SNAT)}),
    ("load-balancer-source-ranges-with-node", "loadBalancerIP", {POD: "DROP", NODE: (ALL, SNAT), OUTSIDE: (ALL, SNAT)}),
    # The balancer rewrites the destination itself: its address is nothing to the node.
    ("load-balancer-ip-mode-proxy", "loadBalancerIP", {POD: "", NODE: "", OUTSIDE: ""}),
    # Hints and last resorts.
    ("cluster-ip-zone-hints", "clusterIP", {POD: (LOCAL, KEPT)}),
    ("cluster-ip-node-hints", "clusterIP", {POD: ((10,), KEPT)}),
    ("cluster-ip-terminating-only", "clusterIP", {POD: ((10,), KEPT)}),
]


def sent(sender: str, a: Addresses, frontend: str) -> Packet:
    kind, number, port = FRONTS[frontend]
    source = {
        POD: a.of("pod", 99),
        NODE: a.of("node", 2),
        OUTSIDE: a.of("external", 50),
        ITSELF: a.of("pod", 10),
    }[sender]
    return Packet(source, a.of(kind, number), port, from_node=sender == NODE, to_node=frontend == "nodePort")


def expected(said: object, a: Addresses) -> Fate:
    if isinstance(said, str):
        return Fate(refused=said)
    numbers, masqueraded = said
    bracketed = "[{}]:8080" if a.family is Family.IPV6 else "{}:8080"
    return Fate(frozenset((bracketed.format(a.of("pod", number)), masqueraded) for number in numbers))


def fate(name: str, sender: str, frontend: str, a: Addresses) -> Fate:
    text = (FILES / f"{name}.{a.family.lower()}.saved").read_text()
    return walk(read_rules(text), sent(sender, a, frontend))


@pytest.mark.parametrize("family", list(Family), ids=str)
@pytest.mark.parametrize(
    ("name", "frontend", "senders"), ROWS, ids=[f"{name} {frontend}" for name, frontend, _ in ROWS]
)
def test_the_table(name: str, frontend: str, senders: dict[str, object], family: Family) -> None:
    a = Addresses(family)
    found = {sender: fate(name, sender, frontend, a) for sender in senders}
    assert found == {sender: expected(said, a) for sender, said in senders.items()}


@pytest.mark.parametrize("family", list(Family), ids=str)
@pytest.mark.parametrize(
    ("name", "frontend"),
    [("cluster-ip", "clusterIP"), ("node-port-local", "nodePort"), ("cluster-ip-internal-local", "clusterIP")],
)
def test_an_endpoint_that_gets_itself_is_masqueraded(name: str, frontend: str, family: Family) -> None:
    a = Addresses(family)
    found = dict(fate(name, ITSELF, frontend, a).endpoints)
    itself, *others = sorted(found)
    assert found[itself], "a reply from its own address would never leave it"
    assert not any(found[other] for other in others)


@pytest.mark.parametrize(("family", "said"), [(Family.IPV4, (ALL, SNAT)), (Family.IPV6, "")])
def test_the_nodes_loopback_has_node_ports_in_ipv4_only(family: Family, said: object) -> None:
    a = Addresses(family)
    loopback = a.of("loopback", 1)
    packet = Packet(loopback, loopback, 30080, from_node=True, to_node=True)
    text = (FILES / f"node-port.{family.lower()}.saved").read_text()
    assert walk(read_rules(text), packet) == expected(said, a)
