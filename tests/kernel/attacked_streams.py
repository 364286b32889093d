"""A lab with a stream to a Service, which an attack alters: the verdicts of two steps."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from attacked_lab import Alteration
from shared_sessions import shared_session

from proxylab.client.open_lab import OpenLab
from proxylab.engines.protocol import EngineChoice
from proxylab.scenario.load import parse_scenario
from proxylab.scenario.steps import Step
from proxylab.verdict.model import StepVerdict

SCENARIO = """\
apiVersion: proxylab/v1
kind: Scenario
metadata: {name: led-by-others}
spec:
  nodes: {node-a: {}, node-b: {}}
  pods:
    echo: {nodes: [node-b], labels: {app: echo}, ports: [8080, {port: 8080, protocol: UDP}]}
    client: {nodes: [node-a]}
  streams:
    stream: {from: client, to: {service: echo, via: clusterIP, port: PORT}, send: {every: 5ms}}
  steps:
  - {name: the stream begins, expect: {stream: EXPECT}}
  - {name: the stream goes on, expect: {stream: EXPECT}}
---
apiVersion: v1
kind: Service
metadata: {name: echo}
spec:
  selector: {app: echo}
  ports: [{name: tcp, port: 80, targetPort: 8080}, {name: udp, port: 80, targetPort: 8080, protocol: UDP}]
"""


@contextmanager
def streaming(
    choice: EngineChoice, port: str, expect: str, *alterations: Alteration, text: str = SCENARIO
) -> Iterator[Sequence[StepVerdict]]:
    """The verdicts of both steps in a lab with these alterations."""
    text = text.replace("PORT", port).replace("EXPECT", expect)
    scenario = parse_scenario(text, "led-by-others.lab.yaml")
    with shared_session(choice) as session:
        lab: OpenLab = session.open(scenario, text)
        for each in alterations:
            altered(lab, each.machine, each.change)
        yield [concluded(lab, step) for step in scenario.steps]


def altered(lab: OpenLab, machine: str, command: str) -> None:
    """Run a command in a machine of the lab."""
    done = lab.execute(machine, "sh", "-c", command)
    assert done.status == 0, f"{command}\n{done.stdout}{done.stderr}"


def concluded(lab: OpenLab, step: Step) -> StepVerdict:
    """Make a step, send its probes, and judge it."""
    lab.step()
    for probe in step.probes:
        lab.probe(probe)
    return lab.conclude(step)


def said(verdict: StepVerdict) -> str:
    """All verdicts of a step with their reasons."""
    return "\n".join(f"{each.expectation}: {each.judgement}: {each.reasons}" for each in verdict.verdicts)
