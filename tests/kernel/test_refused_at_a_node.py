"""``refused`` with ``at``: the refusing node is the one that the author names, or the probe fails."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import CommandLine

from proxylab.report.failure_text import explain
from proxylab.verdict.model import Judgement, ProbeVerdict

NODE_A, NODE_B = "172.18.0.2", "172.18.0.3"
UDP = {"as": "connect", "protocol": "UDP"}
REJECTED = "*filter\n-A INPUT -p udp -m udp --dport 81 -j REJECT --reject-with icmp-port-unreachable\nCOMMIT\n"
CASES = {
    "a pod dials a closed port of a node": ("client", NODE_B, None, "node-b", Judgement.PASS, ""),
    "by its device": ("client", NODE_B, None, "node-b/eth0", Judgement.PASS, ""),
    "by many packets": ("client", NODE_B, {"as": "packet", "flows": 40}, "node-b", Judgement.PASS, ""),
    "a node dials itself": ("node-a", NODE_A, None, "node-a", Judgement.PASS, ""),
    "a node dials another": ("node-a", NODE_B, None, "node-b", Judgement.PASS, ""),
    "an outside host dials a node": ("outside", NODE_A, None, "node-a", Judgement.PASS, ""),
    "by a datagram": ("client", NODE_B, UDP, "node-b", Judgement.PASS, ""),
    "another node is named": (
        "client",
        NODE_B,
        None,
        "node-a",
        Judgement.FAIL,
        "at: the reset was first seen at node-b/eth0",
    ),
    "another node is named, by a datagram": (
        "client",
        NODE_B,
        UDP,
        "node-a",
        Judgement.FAIL,
        "at: the port-unreachable was first seen at node-b/eth0",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_place_that_refuses_is_judged(
    name: str, verdict_in: Callable[[Path], ProbeVerdict], tmp_path: Path
) -> None:
    sender, address, send, at, judged, says = CASES[name]
    verdict = verdict_in(written(tmp_path, sender, address, send, at))
    said = " ".join("\n".join(explain(verdict)).split())
    assert verdict.overall is judged, said
    assert says in said


def test_a_datagram_that_a_rule_rejects_was_refused_by_no_stack(cli: CommandLine, tmp_path: Path) -> None:
    ran = cli.type("run", str(written(tmp_path, "client", NODE_B, UDP, "node-b", REJECTED)), "--no-bundles")
    assert ran.status == 1, ran.output + ran.errors
    assert "fail outcome refused rejected" in " ".join(ran.output.split())


def written(folder: Path, sender: str, address: str, send: dict[str, object] | None, at: str, rules: str = "") -> Path:
    probe = {
        "name": "a closed port",
        "from": sender,
        "to": {"address": address, "port": 81},
        "expect": {"outcome": "refused", "at": at},
    }
    scenario = {
        "apiVersion": "proxylab/v1",
        "kind": "Scenario",
        "metadata": {"name": "refused"},
        "spec": {
            "nodes": {"node-a": {}, "node-b": {"leftovers": {"iptables": rules}} if rules else {}},
            "pods": {"client": {"nodes": ["node-a"]}},
            "hosts": {"outside": {}},
            "probes": [probe | ({"send": send} if send else {})],
        },
    }
    file = folder / "refused.lab.yaml"
    file.write_text(json.dumps(scenario, indent=1), encoding="utf-8")
    return file
