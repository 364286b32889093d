# ruff: noqa: E501 - a rule is one line
"""Every kind of rule that kube-proxy writes is written for one of the small clusters, and nothing else is for any.

The kinds are those of pkg/proxy/iptables/proxier.go, in its order. ``A`` is an address, ``C`` a network, ``S`` the name
of a service port, ``E`` an endpoint; ``[…]`` may be there. Both ways: a kind that no cluster
shows is not compared with kube-proxy's own, and a line without a kind has not been thought of.
"""

import re

import pytest
from rule_cases import CASES, Addresses

from proxylab.addresses import Family
from proxylab.engines.embedded.iptables.kernel_state import KernelState
from proxylab.engines.embedded.iptables.render import render
from proxylab.engines.embedded.iptables.restore import restore

V4_ONLY = {"guard of loopback", "node ports", "node ports, not on localhost, IPv4", "node port, localhost counted"}
V6_ONLY = {"node ports, not on localhost, IPv6"}

P = "-m X -p X"
TO = f"{P} -d A --dport N"
SHAPES = {
    # Fixed rules of the nat table.
    "what has no mark returns": "-A KUBE-POSTROUTING -m mark ! --mark M/M -j RETURN",
    "the mark is cleared": "-A KUBE-POSTROUTING -j MARK --xor-mark M",
    "masquerading": '-A KUBE-POSTROUTING -m comment --comment "kubernetes service traffic requiring SNAT" -j MASQUERADE --random-fully',
    "masquerading without random-fully": '-A KUBE-POSTROUTING -m comment --comment "kubernetes service traffic requiring SNAT" -j MASQUERADE',
    "the mark": "-A KUBE-MARK-MASQ -j MARK --or-mark M",
    # Fixed rules of the filter table.
    "guard of loopback": '-A KUBE-FIREWALL -m comment --comment "block incoming localnet connections" -d C ! -s C -m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP',
    "invalid": "-A KUBE-FORWARD -m conntrack --ctstate INVALID -j DROP",
    "invalid, counted": "-A KUBE-FORWARD -m conntrack --ctstate INVALID -m nfacct --nfacct-name ct_state_invalid_dropped_pkts -j DROP",
    "forward what is marked": '-A KUBE-FORWARD -m comment --comment "kubernetes forwarding rules" -m mark --mark M/M -j ACCEPT',
    "forward what belongs to it": '-A KUBE-FORWARD -m comment --comment "kubernetes forwarding conntrack rule" -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT',
    # 1 to 5: fronts.
    "cluster IP": f'-A KUBE-SERVICES -m comment --comment "S cluster IP" {TO} -j KUBE-SVC-H',
    "cluster IP, local": f'-A KUBE-SERVICES -m comment --comment "S cluster IP" {TO} -j KUBE-SVL-H',
    "cluster IP, rejected": f'-A KUBE-SERVICES -m comment --comment "S has no endpoints" {TO} -j REJECT',
    "cluster IP, dropped": f'-A KUBE-SERVICES -m comment --comment "S has no local endpoints" {TO} -j DROP',
    "external IP": f'-A KUBE-SERVICES -m comment --comment "S external IP" {TO} -j KUBE-EXT-H',
    "external or balanced IP, rejected": f'-A KUBE-EXTERNAL-SERVICES -m comment --comment "S has no endpoints" {TO} -j REJECT',
    "external or balanced IP, dropped": f'-A KUBE-EXTERNAL-SERVICES -m comment --comment "S has no local endpoints" {TO} -j DROP',
    "load-balancer IP": f'-A KUBE-SERVICES -m comment --comment "S loadbalancer IP" {TO} -j KUBE-EXT-H',
    "load-balancer IP, by source ranges": f'-A KUBE-SERVICES -m comment --comment "S loadbalancer IP" {TO} -j KUBE-FW-H',
    "not of the source ranges": f'-A KUBE-PROXY-FIREWALL -m comment --comment "S traffic not accepted by KUBE-FW-H" {TO} -j DROP',
    "node port": f"-A KUBE-NODEPORTS -m comment --comment S {P} --dport N -j KUBE-EXT-H",
    "node port, localhost counted": f"-A KUBE-NODEPORTS -m comment --comment S {P} -d C --dport N -m nfacct --nfacct-name localhost_nps_accepted_pkts -j KUBE-EXT-H",
    "node port, rejected": f'-A KUBE-EXTERNAL-SERVICES -m comment --comment "S has no endpoints" -m addrtype --dst-type LOCAL {P} --dport N -j REJECT',
    "node port, dropped": f'-A KUBE-EXTERNAL-SERVICES -m comment --comment "S has no local endpoints" -m addrtype --dst-type LOCAL {P} --dport N -j DROP',
    "health-check node port": '-A KUBE-NODEPORTS -m comment --comment "S health check node port" -m tcp -p tcp --dport N -j ACCEPT',
    # 6: who is masqueraded at the cluster IP.
    "masquerade by source": f'-A KUBE-SVC-H -m comment --comment "S cluster IP" {TO} ! -s C -j KUBE-MARK-MASQ',
    "masquerade by source, local": f'-A KUBE-SVL-H -m comment --comment "S cluster IP" {TO} ! -s C -j KUBE-MARK-MASQ',
    "masquerade by bridge": f'-A KUBE-SVC-H -m comment --comment "S cluster IP" {TO} ! -i cni0 -j KUBE-MARK-MASQ',
    "masquerade by prefix": f'-A KUBE-SVC-H -m comment --comment "S cluster IP" {TO} ! -i veth+ -j KUBE-MARK-MASQ',
    "masquerade all": f'-A KUBE-SVC-H -m comment --comment "S cluster IP" {TO} -j KUBE-MARK-MASQ',
    # 7: external destinations.
    "external, masqueraded": '-A KUBE-EXT-H -m comment --comment "masquerade traffic for S external destinations" -j KUBE-MARK-MASQ',
    "external, pods by source": '-A KUBE-EXT-H -m comment --comment "pod traffic for S external destinations" -s C -j KUBE-SVC-H',
    "external, pods by bridge": '-A KUBE-EXT-H -m comment --comment "pod traffic for S external destinations" -i cni0 -j KUBE-SVC-H',
    "external, pods by prefix": '-A KUBE-EXT-H -m comment --comment "pod traffic for S external destinations" -i veth+ -j KUBE-SVC-H',
    "external, the node masqueraded": '-A KUBE-EXT-H -m comment --comment "masquerade LOCAL traffic for S external destinations" -m addrtype --src-type LOCAL -j KUBE-MARK-MASQ',
    "external, the node": '-A KUBE-EXT-H -m comment --comment "route LOCAL traffic for S external destinations" -m addrtype --src-type LOCAL -j KUBE-SVC-H',
    "external, all endpoints": "-A KUBE-EXT-H -j KUBE-SVC-H",
    "external, local endpoints": "-A KUBE-EXT-H -j KUBE-SVL-H",
    # 8: source ranges.
    "of the source ranges": '-A KUBE-FW-H -m comment --comment "S loadbalancer IP" -s C -j KUBE-EXT-H',
    "the balancer's own address": '-A KUBE-FW-H -m comment --comment "S loadbalancer IP" -s A -j KUBE-EXT-H',
    "none of the source ranges": '-A KUBE-FW-H -m comment --comment "other traffic to S will be dropped by KUBE-PROXY-FIREWALL"',
    # 9: which endpoint.
    "remembered": '-A KUBE-SVC-H -m comment --comment "S -> E" -m recent --name KUBE-SEP-H --rcheck --seconds N --reap -j KUBE-SEP-H',
    "remembered, local": '-A KUBE-SVL-H -m comment --comment "S -> E" -m recent --name KUBE-SEP-H --rcheck --seconds N --reap -j KUBE-SEP-H',
    "drawn": '-A KUBE-SVC-H -m comment --comment "S -> E" -m statistic --mode random --probability 0.D -j KUBE-SEP-H',
    "drawn, local": '-A KUBE-SVL-H -m comment --comment "S -> E" -m statistic --mode random --probability 0.D -j KUBE-SEP-H',
    "last": '-A KUBE-SVC-H -m comment --comment "S -> E" -j KUBE-SEP-H',
    "last, local": '-A KUBE-SVL-H -m comment --comment "S -> E" -j KUBE-SEP-H',
    "last, in a large cluster": "-A KUBE-SVC-H -j KUBE-SEP-H",
    "drawn, in a large cluster": "-A KUBE-SVC-H -m statistic --mode random --probability 0.D -j KUBE-SEP-H",
    # 10: one endpoint.
    "hairpin": "-A KUBE-SEP-H -m comment --comment S -s A -j KUBE-MARK-MASQ",
    "hairpin, in a large cluster": "-A KUBE-SEP-H -s A -j KUBE-MARK-MASQ",
    "translation": f"-A KUBE-SEP-H -m comment --comment S {P} -j DNAT --to-destination E",
    "translation, remembered": f"-A KUBE-SEP-H -m comment --comment S -m recent --name KUBE-SEP-H --set {P} -j DNAT --to-destination E",
    "translation, in a large cluster": f"-A KUBE-SEP-H {P} -j DNAT --to-destination E",
    # The end of KUBE-SERVICES.
    "node ports": f"{(LAST := '-A KUBE-SERVICES -m comment --comment Q ')}-m addrtype --dst-type LOCAL -j KUBE-NODEPORTS",
    "node ports, not on localhost, IPv4": f"{LAST}-m addrtype --dst-type LOCAL ! -d C -j KUBE-NODEPORTS",
    "node ports, not on localhost, IPv6": f"{LAST}-m addrtype --dst-type LOCAL ! -d C -j KUBE-NODEPORTS",
    "node ports of one address": f"{LAST}-d A -j KUBE-NODEPORTS",
}
WORDS = {
    "A": r"[0-9a-f.:]+",
    "C": r"[0-9a-f.:]+/\d+",
    "E": r"(?:[0-9.]+|\[[0-9a-f:]+\]):\d+",
    "H": "[A-Z2-7]{16}",
    "M": "0x[0-9a-f]+",
    "N": r"\d+",
    "D": r"\d{10}",
    "Q": '"kubernetes service nodeports; NOTE: this must be the last rule in this chain"',
    "S": r"[a-z]+/[a-z]+(?::[a-z0-9-]+)?",
    "X": "(?:tcp|udp|sctp)",
}


def pattern(shape: str) -> re.Pattern[str]:
    spelled = re.sub(r"(?<![A-Za-z-])([ACEHMNDQSX])(?![A-Za-z])|(?<=-)H\b|(?<=0\.)D\b", lambda m: f"\0{m[0]}\0", shape)
    parts = spelled.split("\0")
    return re.compile("".join(WORDS[part] if index % 2 else re.escape(part) for index, part in enumerate(parts)))


PATTERNS = {name: pattern(shape) for name, shape in SHAPES.items()}


def lines(family: Family) -> list[str]:
    """The rules of each cluster; the jumps of the built-in chains are the same for all."""
    cases = [make(Addresses(family)) for make in CASES.values()]
    texts = [restore(render(each.cluster, each.node, each.settings, family), KernelState()).text for each in cases]
    return [line for text in texts for line in text.splitlines() if line.startswith("-A KUBE-")]


@pytest.mark.parametrize("family", list(Family), ids=str)
def test_every_kind_of_rule_is_written(family: Family) -> None:
    written = lines(family)
    shown = {name for name, shape in PATTERNS.items() if any(shape.fullmatch(line) for line in written)}
    of_other = V6_ONLY if family is Family.IPV4 else V4_ONLY
    assert set(SHAPES) - shown - of_other == set()


@pytest.mark.parametrize("family", list(Family), ids=str)
def test_every_rule_is_of_a_kind(family: Family) -> None:
    of_other = V6_ONLY if family is Family.IPV4 else V4_ONLY - {"node ports, not on localhost, IPv4"}
    known = [shape for name, shape in PATTERNS.items() if name not in of_other]
    assert [line for line in lines(family) if not any(shape.fullmatch(line) for shape in known)] == []
