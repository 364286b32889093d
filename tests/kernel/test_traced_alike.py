"""After a failure, the one more packet goes to the endpoint of the flow that failed."""

import pytest
from shared_sessions import shared_session

from proxylab.engines.protocol import EngineChoice
from proxylab.errors import CapabilityError
from proxylab.scenario.load import parse_scenario
from proxylab.verdict.flows import flows_of
from proxylab.verdict.hops import last_destination
from proxylab.verdict.model import Judgement

ENDPOINTS = 3
FAILURES = 3
PROBE = """
  - name: probe {number}
    from: client
    to: {{service: echo, via: clusterIP}}
    expect: {{outcome: delivered, source: 192.0.2.1}}
"""
TEXT = f"""
apiVersion: proxylab/v1
kind: Scenario
metadata: {{name: x}}
spec:
  nodes: {{node-a: {{}}}}
  pods:
    echo: {{replicas: {ENDPOINTS}, nodes: [node-a], labels: {{app: echo}}, ports: [8080]}}
    client: {{nodes: [node-a]}}
  probes:
  {"".join(PROBE.format(number=number) for number in range(FAILURES)).strip()}
---
apiVersion: v1
kind: Service
metadata: {{name: echo}}
spec: {{selector: {{app: echo}}, ports: [{{port: 80, targetPort: 8080}}]}}
"""


@pytest.mark.parametrize("engine", ["embedded/iptables", "embedded/nftables"])
def test_the_traced_packet_goes_where_the_failed_one_went(engine: str) -> None:
    with shared_session(EngineChoice(engine)) as session:
        try:
            lab = session.open(parse_scenario(TEXT, "x.lab.yaml"), TEXT)
        except CapabilityError as error:
            pytest.skip(str(error))
        for probe in lab.scenario.probes:
            verdict = lab.probe(probe)
            assert verdict.overall is Judgement.FAIL
            if verdict.traced is None:
                pytest.skip("this machine cannot trace in a network namespace")
            (failed,) = flows_of(verdict.resolved, verdict.evidence)
            (traced,) = flows_of(verdict.resolved, verdict.traced)
            assert last_destination(traced) == last_destination(failed)
