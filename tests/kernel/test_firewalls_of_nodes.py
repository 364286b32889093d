"""Firewalls that a scenario gives its nodes: what they drop and reject at pods and addresses, all modes judge alike.

A probe of no Service asks nothing of the engine, so any rule proves what became of it by its own counter. In mode
iptables such rules stand in the engine's tables; in mode nftables they are foreign, whichever variant wrote them.
"""

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from shared_sessions import shared_session

from proxylab.engines.engine_names import IPTABLES_VARIANTS
from proxylab.engines.protocol import EngineChoice
from proxylab.report.failure_text import explain
from proxylab.scenario.load import load_scenario
from proxylab.verdict.model import Judgement, ProbeVerdict

FIREWALL = """\
*filter
:FORWARD ACCEPT [0:0]
-A FORWARD -p tcp --dport 8001 -j DROP
-A FORWARD -p tcp --dport 8002 -j REJECT --reject-with {unreachable}
-A FORWARD -p tcp --dport 8003 -j REJECT --reject-with {prohibited}
-A FORWARD -p tcp --dport 8004 -j REJECT --reject-with tcp-reset
-A FORWARD -p udp --dport 9001 -j DROP
-A FORWARD -p udp --dport 9002 -j REJECT --reject-with {unreachable}
-A FORWARD -s {refused} -m multiport -p tcp --dports 8010:8019 -j DROP
COMMIT
"""
OF_NFT = """\
table inet guard {
  chain early {
    type filter hook forward priority -10; policy accept;
    tcp dport 8005 drop
    tcp dport 8006 counter drop
    tcp dport 8007 counter reject with icmpx host-unreachable
  }
}
"""
SHUT = "*filter\n:INPUT DROP [0:0]\n-A INPUT -p tcp --dport 22 -j ACCEPT\nCOMMIT\n"
SHUT_6 = SHUT.replace("-p tcp", "-p ipv6-icmp -j ACCEPT\n-A INPUT -p tcp")
FIREWALLS = {
    "iptables": FIREWALL.format(
        unreachable="icmp-port-unreachable", prohibited="icmp-host-prohibited", refused="10.244.0.0/24"
    ),
    "ip6tables": FIREWALL.format(
        unreachable="icmp6-port-unreachable", prohibited="icmp6-adm-prohibited", refused="::/0"
    ),
    "nft": OF_NFT,
}
OF_UDP = "{{port: {}, protocol: UDP}}"
SCENARIO = f"""\
apiVersion: proxylab/v1
kind: Scenario
metadata: {{name: firewalls}}
spec:
  network: {{families: [IPv4, IPv6]}}
  nodes:
    node-a: {{leftovers: {json.dumps(FIREWALLS)}}}
    node-b:
      daemons: {{program: {{port: 9000}}}}
      leftovers: {json.dumps({"iptables": SHUT, "ip6tables": SHUT_6})}
  hosts: {{outside: {{}}}}
  pods:
    web:
      nodes: [node-a]
      ports: [8001, 8002, 8003, 8004, 8005, 8006, 8007, 8010, {OF_UDP.format(9001)}, {OF_UDP.format(9002)}]
    client: {{nodes: [node-a]}}
  probes: []
"""
PASS, FAIL, INCONCLUSIVE = Judgement.PASS, Judgement.FAIL, Judgement.INCONCLUSIVE
DROPPED, REJECTED = "outcome: dropped", "outcome: rejected"
PROBES = (
    (8001, "", DROPPED, PASS),
    (8001, "", f"{DROPPED}, at: node-a", PASS),
    (8001, "", f"{DROPPED}, at: node-b", FAIL),
    (8001, "flows: 2", REJECTED, FAIL),
    (8010, "as: packet", DROPPED, PASS),
    (9001, "", DROPPED, PASS),
    (9001, "flows: 2", REJECTED, FAIL),
    (8002, "", REJECTED, PASS),
    (8002, "flows: 2", DROPPED, FAIL),
    (8003, "", REJECTED, PASS),
    (8003, "", f"{REJECTED}, icmp: port-unreachable", FAIL),
    (9002, "flows: 2", REJECTED, PASS),
    (8004, "", REJECTED, FAIL),
    (8005, "", DROPPED, INCONCLUSIVE),
    (8006, "", DROPPED, PASS),
    (8007, "", REJECTED, PASS),
)
"""The port of the pod, how the probe sends, what its author expects, and the judgement in all modes. A rule without a
counter proves nothing."""


def scenario_of(folder: Path) -> Path:
    probes = []
    for number, (port, send, expect, _) in enumerate(PROBES):
        for family in ("IPv4", "IPv6"):
            to = f"{{pod: web, port: {port}, family: {family}}}"
            sent = f"from: client, to: {to}, send: {{{send}}}"
            probes.append(f"  - {{name: {number} {family}, {sent}, expect: {{{expect}}}}}\n")
    for address, family in (("172.18.0.3", "IPv4"), ("fd00:172:18::3", "IPv6")):
        to = f'{{address: "{address}", port: 9000}}'
        probes.append(f"  - {{name: shut {family}, from: outside, to: {to}, expect: {{{DROPPED}, at: node-b}}}}\n")
    file = folder / "firewalls.lab.yaml"
    file.write_text(SCENARIO.replace("probes: []\n", "probes:\n" + "".join(probes)), encoding="utf-8")
    return file


ENGINES = {
    f"{mode} {variant}": (f"embedded/{mode}", variant)
    for mode in ("iptables", "nftables")
    for variant in IPTABLES_VARIANTS
}


@pytest.fixture(params=ENGINES)
def verdicts(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[dict[str, ProbeVerdict]]:
    scenario = load_scenario(scenario_of(tmp_path))
    engine, variant = ENGINES[request.param]
    with shared_session(EngineChoice(engine, iptables=variant)) as session, closing(session.open(scenario)) as lab:
        yield {each.name: lab.judged(each) for each in scenario.probes}


def test_what_a_nodes_firewall_ends_is_judged_alike_in_all_modes(verdicts: dict[str, ProbeVerdict]) -> None:
    said = {name: "\n".join(explain(verdict)) for name, verdict in verdicts.items()}
    for number, (_, _, _, judged) in enumerate(PROBES):
        for family in ("IPv4", "IPv6"):
            name = f"{number} {family}"
            assert verdicts[name].overall is judged, said[name]
    for family in ("IPv4", "IPv6"):
        assert verdicts[f"shut {family}"].overall is PASS, said[f"shut {family}"]
