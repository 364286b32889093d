"""The time to check a scenario grows with its probes, not with their square."""

import time

from proxylab.scenario.load import parse_scenario

HEAD = """apiVersion: proxylab/v1
kind: Scenario
metadata: {name: many}
spec:
  nodes: {node-a: {}}
  pods:
    echo: {nodes: [node-a], labels: {app: echo}, ports: [8080]}
    client: {nodes: [node-a]}
  probes:
"""
PROBE = """  - name: probe {}
    from: client
    to: {{service: echo, via: clusterIP}}
    expect: {{outcome: delivered, source: preserved}}
"""
SERVICE = """---
apiVersion: v1
kind: Service
metadata: {name: echo}
spec: {selector: {app: echo}, ports: [{port: 80, targetPort: 8080}]}
"""
FEW, TIMES, MOST = 1000, 12, 24
"""A square takes far more than linear work, which takes 12 times as long, on however slow a processor."""


def seconds(probes: int) -> float:
    text = HEAD + "".join(PROBE.format(number) for number in range(probes)) + SERVICE
    began = time.process_time()
    assert len(parse_scenario(text, "many.lab.yaml").probes) == probes
    return time.process_time() - began


def test_probes_that_send_the_same_are_not_compared_with_each_other() -> None:
    seconds(1)  # the first import takes its own time
    assert seconds(FEW * TIMES) < MOST * seconds(FEW)
