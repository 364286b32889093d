"""A preserved source has its port, too: what the kernel changes by itself is noted, and what a rule changes is red."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from proxylab.report.failure_text import explain
from proxylab.verdict.model import Judgement, ProbeVerdict, Verdict

LEFT, OTHER, ENDPOINT = 40_000, 51_234, "10.244.1.10"
TRANSLATING = f"""\
table ip cni {{
  chain postrouting {{
    type nat hook postrouting priority 50; policy accept;
    ip daddr {ENDPOINT} counter snat to 10.244.0.10:{OTHER}
  }}
}}
"""


@pytest.fixture
def source_of(verdict_in: Callable[[Path], ProbeVerdict], tmp_path: Path) -> Callable[..., Verdict]:
    """Run one probe from a fixed port to a Service on another node, and return its verdict on the source."""

    def source_of(protocol: str, left: int, target: int, **node_a: object) -> Verdict:
        scenario = {
            "apiVersion": "proxylab/v1",
            "kind": "Scenario",
            "metadata": {"name": "source-ports"},
            "spec": {
                "nodes": {"node-a": node_a, "node-b": {}},
                "pods": {
                    "echo": {
                        "nodes": ["node-b"],
                        "addresses": [ENDPOINT],
                        "labels": {"app": "echo"},
                        "ports": [{"port": target, "protocol": protocol}],
                    },
                    "client": {"nodes": ["node-a"], "addresses": ["10.244.0.10"]},
                },
                "probes": [
                    {
                        "name": "a pod dials the Service from a port of its choice",
                        "from": {"name": "client", "port": left},
                        "to": {"service": "echo", "via": "clusterIP"},
                        "expect": {"outcome": "delivered", "backends": ["echo"], "source": "preserved"},
                    }
                ],
            },
        }
        port = f"{{protocol: {protocol}, port: 80, targetPort: {target}}}"
        service = f"spec: {{clusterIP: 10.96.1.1, selector: {{app: echo}}, ports: [{port}]}}"
        file = tmp_path / "source-ports.lab.yaml"
        head = "apiVersion: v1\nkind: Service\nmetadata: {name: echo}\n"
        file.write_text(f"{json.dumps(scenario)}\n---\n{head}{service}\n", encoding="utf-8")
        verdict = verdict_in(file)
        (source,) = (each for each in verdict.verdicts if each.expectation == "source")
        others = {each.expectation: each.judgement for each in verdict.verdicts if each is not source}
        assert set(others.values()) == {Judgement.PASS}, explain(verdict)
        return source

    return source_of


@pytest.mark.parametrize("protocol", ["TCP", "UDP"])
@pytest.mark.parametrize(
    ("service", "answers", "noted"),
    [("10.96.1.2:80", ENDPOINT, True), ("10.96.1.2:80", "10.244.1.77", False)],
    ids=["the same endpoint", "another endpoint"],
)
def test_one_client_port_to_two_services(
    source_of: Callable[..., Verdict], protocol: str, service: str, answers: str, *, noted: bool
) -> None:
    known = {"protocol": protocol, "from": f"10.244.0.10:{LEFT}", "to": service, "replyFrom": f"{answers}:8080"}
    source = source_of(protocol, LEFT, 8080, conntrack=[known])
    assert source.judgement is Judgement.PASS, source.reasons
    if noted:
        (note,) = source.witnesses
        assert f"not from port {LEFT}: another connection on node-a holds that one ({protocol} 10.244.0.10:" in note
    else:
        assert source.witnesses == ()


@pytest.mark.parametrize("protocol", ["TCP", "UDP"])
def test_a_rule_that_changes_the_port_alone(source_of: Callable[..., Verdict], protocol: str) -> None:
    rule = TRANSLATING.replace("counter", f"meta l4proto {protocol.lower()} counter")
    source = source_of(protocol, LEFT, 8080, leftovers={"nft": rule})
    assert source.judgement is Judgement.FAIL, source.reasons
    assert f"echo saw it come from port {OTHER}, not from port {LEFT}" in source.reasons


@pytest.mark.parametrize("left", [1024, 16_383])
def test_a_forwarded_flow_from_a_low_to_a_high_port_keeps_its_port(
    source_of: Callable[..., Verdict], left: int
) -> None:
    source = source_of("UDP", left, 32_768)
    assert (source.judgement, source.witnesses) == (Judgement.PASS, ())
