"""``proxylab expected``: what it prints for each probe, for one, and where the oracle does not say."""

import json

import pytest
from caller import Caller

from proxylab.errors import ExitCode

SCENARIO = """
apiVersion: proxylab/v1
kind: Scenario
metadata: {name: world}
spec:
  nodes: {node-a: {}, node-b: {}}
  pods:
    web: {replicas: 2, nodes: [node-a, node-b], labels: {app: web}, ports: [8080]}
    client: {nodes: [node-a]}
  hosts: {outside: {}}
  probes:
  - name: from a pod
    from: client
    to: {service: web, via: clusterIP}
    expect: {outcome: delivered, source: preserved}
  - name: from outside
    from: outside
    to: {service: web, via: nodePort, node: node-b}
    expect: {outcome: delivered, source: masqueraded}
  - {name: by name, from: client, to: {service: web, via: dnsName}, expect: {outcome: delivered, source: preserved}}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {type: NodePort, sessionAffinity: None, selector: {app: web}, ports: [{port: 80, targetPort: 8080}]}
"""


@pytest.fixture
def user(caller: Caller) -> Caller:
    (caller.folder / "world.lab.yaml").write_text(SCENARIO)
    return caller


def test_each_probe_has_its_outcome_endpoints_sources_and_reasons(user: Caller) -> None:
    code, output, errors = user.type("expected", "world.lab.yaml")
    assert (code, errors) == (ExitCode.OK, "")
    output = " ".join(output.split())
    assert "client (10.244.0.11) dials TCP 10.96.1.1 port 80: delivered" in output
    assert "web-1 at 10.244.0.10 port 8080, 0.5 of the flows, sees 10.244.0.11" in output
    assert "web-2 at 10.244.1.10 port 8080, 0.5 of the flows, sees 10.244.1.1 (masqueraded)" in output
    assert "the name gives 10.96.1.1 because" in output
    assert "https://kubernetes.io/docs/tutorials/services/source-ip/" in output


def test_a_probe_may_be_named(user: Caller) -> None:
    code, output, _ = user.type("expected", "world.lab.yaml", "from outside")
    assert code == ExitCode.OK
    assert output.startswith("from outside\n")
    assert "from a pod" not in output
    code, _, errors = user.type("expected", "world.lab.yaml", "from nowhere")
    assert code == ExitCode.NOTHING_SELECTED
    assert "no probe is named 'from nowhere'; there are\n  from a pod\n" in errors


def test_what_no_document_decides_is_said(user: Caller) -> None:
    code, output, _ = user.type("expected", "world.lab.yaml", "from a pod", "--mode", "userspace")
    assert code == ExitCode.OK
    why = "a process of the node ends connections in mode userspace, which Kubernetes removed in 1.26"
    assert " ".join(output.split()) == f"from a pod not said: {why}"


def test_json_has_the_answers_with_the_ids_of_their_rows(user: Caller) -> None:
    _, output, _ = user.type("expected", "world.lab.yaml", "by name", "-o", "json", "--kubernetes", "1.30")
    (probe,) = json.loads(output)
    assert probe["name"]["addresses"] == ["10.96.1.1"]
    (flow,) = probe["flows"]
    assert flow["answer"]["outcomes"] == ["delivered"]
    assert {each["name"]: each["share"] for each in flow["answer"]["reached"]} == {"web-1": 0.5, "web-2": 0.5}
    assert flow["answer"]["rows"]["source"] == ["preserve-pod-at-cluster-ip"]


def test_a_version_is_one_of_kubernetes(user: Caller) -> None:
    code, _, errors = user.type("expected", "world.lab.yaml", "--kubernetes", "new")
    assert code == ExitCode.SCENARIO
    assert "'new' is not a version" in errors
