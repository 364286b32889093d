"""Links with netem in a guest: what they lose proves nothing of the proxy, and a machine without netem says so.

``test_recorded_mutants`` shows that the scenarios about such links can fail.
"""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from command_line import CommandLine
from guests import OWN
from sandboxed import ROOT
from shared_sessions import shared_session

from proxylab.client.lab_process import LabProcess
from proxylab.engines.protocol import EngineChoice
from proxylab.scenario.cases import cases
from proxylab.scenario.load import load_scenario
from proxylab.scenario.probes import Probe
from proxylab.scenario.steps import Step
from proxylab.timing import Deadline
from proxylab.verdict.model import Judgement, Verdict

pytestmark = pytest.mark.timeout(300)

SCENARIO = """\
apiVersion: proxylab/v1
kind: Scenario
metadata: {name: lossy}
spec:
  nodes: {node-a: {netem: {loss: 100%}}, node-b: {}}
  pods:
    echo: {nodes: [node-b], labels: {app: echo}, ports: [8080, {port: 5353, protocol: UDP}]}
    client: {nodes: [node-b]}
  hosts: {outside: {}}
  probes:
  - name: a link loses what a rule would drop
    from: outside
    to: {service: echo, via: nodePort, node: node-a, port: http}
    send: {as: packet}
    expect: {outcome: dropped, at: node-a}
  streams:
    queries: {from: outside, to: {service: echo, via: nodePort, node: node-a, port: dns}, send: {every: 20ms}}
    local: {from: client, to: {service: echo, via: clusterIP, port: dns}, send: {every: 20ms}}
  steps:
  - name: the link loses everything
    expect: {queries: {lost: 0, lostOnLink: {atLeast: 5}}, local: {lost: 0, lostOnLink: 0, delay: 5s}}
  - name: the link is cut, which is no loss by netem
    change: {links: {node-a: cut}}
    expect: {queries: {lost: {atLeast: 5}}}
  - name: the link is mended
    change: {links: {node-a: mended}}
    expect: {queries: {backend: echo}}
---
apiVersion: v1
kind: Service
metadata: {name: echo}
spec:
  type: NodePort
  selector: {app: echo}
  ports:
  - {name: http, port: 80, targetPort: 8080, nodePort: 30080}
  - {name: dns, port: 53, targetPort: 5353, nodePort: 30053, protocol: UDP}
"""


def verdicts(file: Path) -> Iterator[tuple[str, Verdict]]:
    """Every verdict of the scenario in a guest, with the name of its probe or step."""
    (case,) = cases(load_scenario(file), "iptables")
    with shared_session(EngineChoice("embedded/iptables", kernel="uml")) as session, closing(session.open(case)) as lab:
        for each in case.judged:
            judged = lab.conclude(each) if isinstance(each, Step) else lab.judged(each)
            yield from ((each.name, verdict) for verdict in judged.verdicts)
            assert isinstance(each, Probe | Step)


@OWN
def test_what_a_link_loses_is_neither_dropped_nor_lost_by_the_proxy(tmp_path: Path) -> None:
    file = tmp_path / "lossy.lab.yaml"
    file.write_text(SCENARIO, encoding="utf-8")
    found = {(name, verdict.expectation): verdict for name, verdict in verdicts(file)}
    outcome = found.pop(("a link loses what a rule would drop", "outcome"))
    assert outcome.judgement is Judgement.INCONCLUSIVE
    assert any("the link of node-a (loss 100%) lost it behind outside/eth0" in each for each in outcome.reasons), (
        outcome
    )
    of_steps = {key: verdict for key, verdict in found.items() if "." in verdict.expectation}
    assert {key: verdict.reasons for key, verdict in of_steps.items() if verdict.judgement is not Judgement.PASS} == {}


def test_a_machine_without_netem_skips_the_scenario_with_the_cure(cli: CommandLine) -> None:
    with LabProcess() as process:
        found = process.examine((), Deadline.after(120))
    if next(each.works for each in found if each.name == "netem"):
        pytest.skip("needs a kernel without netem; this one shows the other half")
    done = cli.type("run", str(ROOT / "scenarios/links/link-begins-to-lose.lab.yaml"), "--no-bundles")
    assert done.status == 4, done.output
    told = " ".join(done.output.split())
    assert "needs netem" in told
    assert "'--kernel uml'" in told or "'modprobe -a sch_netem'" in told
