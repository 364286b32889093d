"""Probes within one namespace are refused, and no others."""

import pytest

from proxylab.errors import ScenarioError
from proxylab.plan.assembly import assemble
from proxylab.scenario.cases import cases
from proxylab.scenario.load import parse_scenario

TEXT = """\
apiVersion: proxylab/v1
kind: Scenario
metadata: {name: n, description: d}
spec:
  nodes: {node-a: {}, node-b: {}}
  pods:
    crowd: {replicas: 4, nodes: [node-a, node-b], labels: {app: crowd}, ports: [8080], sharedNetns: true, READY}
    alone: {nodes: [node-a], labels: {app: alone}, ports: [8080]}
    agent: {replicas: 2, nodes: [node-a, node-b], labels: {app: agent}, ports: [9100], hostNetwork: true}
  probes:
  - {name: p, from: SENDER, to: TARGET, expect: {outcome: delivered, source: preserved}}
---
{apiVersion: v1, kind: Service, metadata: {name: crowd}, spec: {selector: {app: crowd}, ports: [{port: 8080}]}}
---
{apiVersion: v1, kind: Service, metadata: {name: agent}, spec: {selector: {app: agent}, ports: [{port: 9100}]}}
---
{apiVersion: v1, kind: Service, metadata: {name: alone}, spec: {selector: {app: alone}, ports: [{port: 8080}]}}
"""


def lay_out(sender: str, target: str, ready: bool = True) -> None:
    text = TEXT.replace("SENDER", sender).replace("TARGET", target).replace("READY", f"ready: {str(ready).lower()}")
    (case,) = cases(parse_scenario(text, "f"), "iptables")
    assemble(case)


@pytest.mark.parametrize(
    "target",
    ["{service: crowd, via: clusterIP}", "{pod: crowd-3}", "{address: 10.244.0.11, port: 8080}"],
)
def test_a_pod_cannot_send_to_another_of_its_namespace(target: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        lay_out("crowd-1", target)
    (problem,) = caught.value.problems
    assert problem.startswith("f:11:5: probe 'p': crowd-1 shares its network namespace with crowd-3, ")


@pytest.mark.parametrize(
    ("sender", "target"),
    [
        ("crowd-1", "{service: alone, via: clusterIP}"),
        ("crowd-1", "{pod: crowd-2}"),
        ("crowd-1", "{address: 10.244.1.11, port: 8080}"),
        ("alone", "{service: crowd, via: clusterIP}"),
        ("agent-1", "{service: agent, via: clusterIP}"),
    ],
)
def test_pods_whose_packets_leave_the_namespace_may_send(sender: str, target: str) -> None:
    lay_out(sender, target)


def test_a_neighbour_that_no_rule_leads_to_is_no_harm() -> None:
    lay_out("crowd-1", "{service: crowd, via: clusterIP}", ready=False)
