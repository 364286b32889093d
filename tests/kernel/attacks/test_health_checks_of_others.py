"""Health checks that a rule of others leads to another node or to another server of the node: no such answer passes."""

import pytest
from attacked_lab import NODES, iptables, nft, program
from shared_sessions import shared_session

from proxylab.engines.protocol import EngineChoice
from proxylab.scenario.load import parse_scenario

PORT, OTHER_PORT = 30999, 30998
SCENARIO = f"""\
apiVersion: proxylab/v1
kind: Scenario
metadata: {{name: health-checks-of-others}}
spec:
  nodes: {{node-a: {{}}, node-b: {{}}}}
  pods:
    echo: {{nodes: [node-b], labels: {{app: echo}}, ports: [8080]}}
    client: {{nodes: [node-a]}}
  probes:
  - name: a node with a local endpoint answers 200
    from: client
    to: {{service: echo, via: healthCheckNodePort, node: node-a}}
    expect: {{http: {{status: 200}}}}
---
apiVersion: v1
kind: Service
metadata: {{name: echo}}
spec:
  {{type: LoadBalancer, externalTrafficPolicy: Local, healthCheckNodePort: {PORT}, selector: {{app: echo}},
   ports: [{{port: 80, targetPort: 8080}}]}}
"""
TO_NODE = f"-d {NODES['node-a']} -p tcp --dport {PORT} -j"
OWN_SERVER = program(
    "node-a",
    f"listener = socket.create_server(('', {OTHER_PORT}))\n",
    "while True:\n connection, _ = listener.accept(); connection.recv(4096)\n"
    " connection.sendall(b'HTTP/1.1 200 OK\\r\\nContent-Length: 0\\r\\n\\r\\n'); connection.close()",
)
ATTACKS = {
    "iptables to another node": (
        iptables("node-a", "nat", "PREROUTING", f"{TO_NODE} DNAT --to-destination {NODES['node-b']}:{PORT}"),
    ),
    "nftables to another node": (
        nft("node-a", "prerouting", -110, f"tcp dport {PORT} dnat to {NODES['node-b']}:{PORT}", "nat"),
    ),
    "another server of the node": (
        OWN_SERVER,
        iptables("node-a", "nat", "PREROUTING", f"{TO_NODE} REDIRECT --to-ports {OTHER_PORT}"),
    ),
}


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("engine", ["embedded/iptables", "embedded/nftables"])
def test_an_answer_of_another_server_is_none_of_the_nodes(engine: str, attack: str) -> None:
    scenario = parse_scenario(SCENARIO, "health-checks-of-others.lab.yaml")
    with shared_session(EngineChoice(engine)) as session:
        lab = session.open(scenario, SCENARIO)
        assert str(lab.probe(scenario.probes[0]).overall) == "fail", "node-a has no endpoint and answers 503"
        for each in ATTACKS[attack]:
            done = lab.execute(each.machine, "sh", "-c", each.change)
            assert done.status == 0, f"{each.change}\n{done.stdout}{done.stderr}"
        verdict = lab.probe(scenario.probes[0])
        said = [f"{each.expectation}: {each.judgement}: {each.reasons}" for each in verdict.verdicts]
        assert str(verdict.overall) in ("inconclusive", "fail"), said
        assert all(str(each.judgement) == "pass" for each in verdict.verdicts if each.expectation == "http"), said
