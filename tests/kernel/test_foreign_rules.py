"""Rules that belong to no engine: their effect on a Service's packets is red or named, and never guessed.

Each lab has one plain Service, and rules that one of its nodes had before the engine started.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from command_line import CommandLine

from proxylab.report.failure_text import explain
from proxylab.verdict.model import Judgement, ProbeVerdict

FAILED, INCONCLUSIVE, PASSED = Judgement.FAIL, Judgement.INCONCLUSIVE, Judgement.PASS
DELIVERED: dict[str, object] = {"outcome": "delivered", "backends": ["echo"], "source": "preserved"}
SILENT: dict[str, object] = {"outcome": "dropped"}
SERVICE = """\
apiVersion: v1
kind: Service
metadata: {name: echo}
spec: {selector: {app: echo}, ports: [{port: 80, targetPort: 8080}]}
"""
EARLY = """\
table inet guard {
  chain early {
    type filter hook prerouting priority -500; policy accept;
    tcp dport 80 COUNTER drop
  }
}
"""
UNCOUNTED, COUNTED = EARLY.replace("COUNTER ", ""), EARLY.replace("COUNTER", "counter")
AGAIN = """\
table ip cni {
  chain CHAIN {
    type nat hook CHAIN priority PRIORITY; policy accept;
    ip daddr 10.244.1.10 tcp dport 8080 counter WHAT
  }
}
"""
MASQUERADED = AGAIN.replace("CHAIN", "postrouting").replace("PRIORITY", "50").replace("WHAT", "masquerade")
REDIRECTED = AGAIN.replace("CHAIN", "prerouting").replace("PRIORITY", "-150")
REPLIES = """\
table ip cni {
  chain replies {
    type filter hook postrouting priority 300; policy accept;
    ip saddr 10.96.1.1 PROTOCOL sport 80 counter WHAT
  }
}
"""
ENDS = """\
table inet guard {
  chain ends {
    type filter hook forward priority 10; policy accept;
    tcp flags & fin == fin counter drop
  }
}
"""
TWICE = (
    "the packet was translated twice: node-a translated 10.244.0.10 > 10.96.1.1:80 to 10.244.0.10 > 10.244.1.10:8080 "
    'by its rule "default/echo" in KUBE-SEP-'
)
GUARD = "chain early (hook prerouting, priority -500) of table inet guard"


@dataclass(frozen=True)
class Foreign:
    """Rules by the tool that loads them, their node, the expectation, and the outcome."""

    name: str
    rules: dict[str, str]
    judged: Judgement
    says: tuple[str, ...]
    node: str = "node-a"
    expect: dict[str, object] | None = None
    never: str = "by its routing"
    protocol: str = "TCP"


FOREIGN = [
    Foreign(
        "masqueraded once more where it arrives",
        {"nft": MASQUERADED},
        FAILED,
        (
            "fail outcome delivered delivered",
            "fail source preserved (10.244.0.10) 10.244.1.1",
            "source: echo saw it come from 10.244.1.1, which is node-b's gateway to its pods",
            TWICE,
            (
                "and node-b translated that to 10.244.1.1 > 10.244.1.10:8080 by the rule "
                '"ip daddr 10.244.1.10 tcp dport 8080 counter masquerade" in chain postrouting (hook postrouting, '
                "priority 50) of table ip cni, which belongs to no engine."
            ),
        ),
        node="node-b",
    ),
    Foreign(
        "masqueraded once more, as its author expects it",
        {"nft": MASQUERADED},
        FAILED,
        ("fail outcome delivered delivered", "pass source 10.244.1.1", TWICE),
        node="node-b",
        expect=DELIVERED | {"source": "10.244.1.1"},
    ),
    Foreign(
        "led to another pod once more",
        {"nft": REDIRECTED.replace("WHAT", "dnat to 10.244.1.11:8080")},
        FAILED,
        (
            "fail outcome delivered delivered",
            "fail backends echo other",
            TWICE,
            "and node-b translated that to 10.244.0.10 > 10.244.1.11:8080 by the rule ",
        ),
        node="node-b",
    ),
    Foreign(
        "led to nowhere once more",
        {"nft": REDIRECTED.replace("WHAT", "dnat to 10.244.1.77:8080")},
        FAILED,
        (TWICE, "and node-b translated that to 10.244.0.10 > 10.244.1.77:8080 by the rule "),
        node="node-b",
    ),
    Foreign(
        "rewritten without connection tracking",
        {"nft": REDIRECTED.replace("type nat", "type filter").replace("WHAT", "ip saddr set 10.244.0.99")},
        FAILED,
        ("fail source preserved (10.244.0.10) 10.244.0.99", TWICE, "by the rule "),
        node="node-b",
    ),
    Foreign(
        "masqueraded once more by the engine's own tool",
        {"iptables": "*nat\n-A POSTROUTING -d 10.244.1.10/32 -p tcp -j MASQUERADE\nCOMMIT\n"},
        FAILED,
        (
            TWICE,
            'and node-b translated that to 10.244.1.1 > 10.244.1.10:8080 by the rule "-A POSTROUTING -d 10.244.1.10/32',
            "in chain POSTROUTING of table nat, which belongs to no engine.",
        ),
        node="node-b",
    ),
    *(
        Foreign(
            f"answered from another {what} over {protocol.upper()}",
            {"nft": REPLIES.replace("WHAT", f"{field} set {value}").replace("PROTOCOL", protocol)},
            FAILED,
            (
                f"fail reply from 10.96.1.1:80 from {seen}",
                (
                    f"why: node-a changed the reply's source to {seen} by the rule \"ip saddr 10.96.1.1 {protocol} "
                    f'sport 80 counter {field} set {value}" in chain replies (hook postrouting, priority 300) of table '
                    "ip cni, which belongs to no engine, but the probe dialled 10.96.1.1:80."
                ),
            ),
            protocol=protocol.upper(),
        )
        for protocol in ("tcp", "udp")
        for what, field, value, seen in (
            ("port", f"{protocol} sport", "81", "10.96.1.1:81"),
            ("address", "ip saddr", "10.96.1.77", "10.96.1.77:80"),
        )
    ),
    *(
        Foreign(
            f"the end of connections dropped at {node}",
            {"nft": ENDS},
            FAILED,
            (
                "fail outcome delivered delivered, 1 connection without an end",
                (
                    "outcome: it was answered, but its connection did not end: client sent its FIN, and none came "
                    "back from echo"
                ),
                (
                    "why: the end of the connection (FIN) was lost after its data had crossed the network: "
                    f'{node} has the rule "tcp flags & fin == fin counter'
                ),
            ),
            node=node,
            # The sender's kernel repeats its FIN, so the counter does not show one packet in every run.
            expect=DELIVERED,
        )
        for node in ("node-a", "node-b")
    ),
    Foreign(
        "dropped before all others, uncounted",
        {"nft": UNCOUNTED},
        FAILED,
        (
            (
                f'why: the taps saw the packet last at node-a/client: node-a has the rule "tcp dport 80 drop" '
                f"in {GUARD}, without a counter, which belongs to no engine, and may have dropped it"
            ),
        ),
    ),
    Foreign(
        "dropped before all others, counted",
        {"nft": COUNTED},
        FAILED,
        (
            (
                f'why: node-a dropped the packet by the rule "tcp dport 80 counter drop" in {GUARD}, which belongs '
                "to no engine and counted 1 packet."
            ),
        ),
    ),
    Foreign(
        "dropped with the sentinel packets, counted",
        {"nft": COUNTED.replace("tcp dport 80 ", "iifname client ")},
        FAILED,
        ('why: node-a dropped the packet by the rule "iifname "client" counter drop" in chain early',),
    ),
    Foreign(
        "dropped by a policy",
        {"nft": UNCOUNTED.replace("policy accept", "policy drop").replace("tcp dport 80 drop", "tcp dport 81 accept")},
        INCONCLUSIVE,
        ("silence proves nothing",),
    ),
    Foreign(
        "dropped in the table raw",
        {"iptables": "*raw\n-A PREROUTING -p tcp -m tcp --dport 80 -j DROP\nCOMMIT\n"},
        FAILED,
        (
            (
                'why: node-a dropped the packet by the rule "-A PREROUTING -p tcp -m tcp --dport 80 -j DROP" in chain '
                "PREROUTING (hook prerouting, priority -300) of table raw, which belongs to no engine and "
                "counted 1 packet."
            ),
        ),
    ),
    Foreign(
        "dropped in the table mangle",
        {"iptables": "*mangle\n-A PREROUTING -p tcp -m tcp --dport 80 -j DROP\nCOMMIT\n"},
        FAILED,
        (
            (
                'why: node-a dropped the packet by the rule "-A PREROUTING -p tcp -m tcp --dport 80 -j DROP" in chain '
                "PREROUTING of table mangle, which belongs to no engine and counted 1 packet."
            ),
        ),
    ),
    Foreign(
        "rejected before all others",
        {"nft": COUNTED.replace("drop", "reject with icmpx port-unreachable").replace("-500", "-120")},
        FAILED,
        ("why: node-a rejected the packet by the rule ", "of table inet guard, which belongs to no engine."),
    ),
    Foreign(
        "a drop that no engine made is none of the Service's, uncounted",
        {"nft": UNCOUNTED},
        INCONCLUSIVE,
        ("inconclusive outcome dropped", f'node-a has the rule "tcp dport 80 drop" in {GUARD}, without a counter'),
        expect=SILENT,
    ),
    Foreign(
        "a drop that no engine made is none of the Service's, counted",
        {"nft": COUNTED},
        INCONCLUSIVE,
        ("inconclusive outcome dropped", f'"tcp dport 80 counter drop" in {GUARD}, which counted 1 packet'),
        expect=SILENT,
    ),
    Foreign(
        "a drop that no engine made is none of the Service's, where it was expected",
        {"nft": UNCOUNTED},
        INCONCLUSIVE,
        ("inconclusive outcome dropped", f'node-a has the rule "tcp dport 80 drop" in {GUARD}, without a counter'),
        expect=SILENT | {"at": "node-a"},
    ),
]


@pytest.mark.parametrize("foreign", FOREIGN, ids=lambda foreign: foreign.name)
def test_what_a_foreign_rule_does_is_red_or_named(
    foreign: Foreign, verdict_in: Callable[[Path], ProbeVerdict], tmp_path: Path
) -> None:
    verdict = verdict_in(written(foreign, tmp_path))
    said = " ".join("\n".join(explain(verdict)).split())
    assert verdict.overall is foreign.judged, said
    for clause in foreign.says:
        assert clause in said
    assert foreign.never not in said


@pytest.mark.parametrize(
    "rules",
    [
        {"nft": COUNTED.replace("tcp dport 80", "tcp dport 81")},
        {"nft": UNCOUNTED.replace("drop", "accept")},
        {"iptables": "*raw\n-A PREROUTING -p tcp -m tcp --dport 81 -j DROP\nCOMMIT\n"},
    ],
    ids=["another port", "accepted", "raw"],
)
def test_a_foreign_rule_that_does_nothing_changes_no_verdict(
    rules: dict[str, str], cli: CommandLine, tmp_path: Path
) -> None:
    ran = cli.type("run", str(written(Foreign("harmless", rules, PASSED, ()), tmp_path)), "--no-bundles")
    assert ran.status == 0, ran.output + ran.errors


def written(foreign: Foreign, folder: Path) -> Path:
    nodes: dict[str, object] = {"node-a": {}, "node-b": {}}
    nodes[foreign.node] = {"leftovers": foreign.rules}
    echo = {"nodes": ["node-b"], "ports": [{"port": 8080, "protocol": foreign.protocol}]}
    scenario = {
        "apiVersion": "proxylab/v1",
        "kind": "Scenario",
        "metadata": {"name": "foreign"},
        "spec": {
            "nodes": nodes,
            "pods": {
                "echo": {**echo, "labels": {"app": "echo"}},
                "other": {**echo, "labels": {"app": "other"}},
                "client": {"nodes": ["node-a"]},
            },
            "probes": [
                {
                    "name": "a pod dials the Service",
                    "from": "client",
                    "to": {"service": "echo", "via": "clusterIP"},
                    "expect": foreign.expect or DELIVERED,
                }
            ],
        },
    }
    file = folder / "foreign.lab.yaml"
    service = SERVICE.replace("port: 80", f"protocol: {foreign.protocol}, port: 80")
    file.write_text(f"{json.dumps(scenario, indent=1)}\n---\n{service}", encoding="utf-8")
    return file
