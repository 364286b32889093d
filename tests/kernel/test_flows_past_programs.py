"""What the lab proves of datagrams that a proxy's own process takes: it asks the process, since no sentinel passes."""

from collections.abc import Iterator

import pytest
from sandboxed import ROOT
from shared_sessions import shared_session

from proxylab.client.open_lab import OpenLab
from proxylab.engines.protocol import EngineChoice
from proxylab.report.failure_text import explain
from proxylab.scenario.cases import cases
from proxylab.scenario.load import load_scenario, parse_scenario
from proxylab.verdict.model import Judgement

TEXT = """\
apiVersion: proxylab/v1
kind: Scenario
metadata: {name: past-a-program}
spec:
  nodes: {node-a: {}, node-b: {}}
  pods:
    dns: {nodes: [node-b], labels: {app: dns}, ports: [{port: 53, protocol: UDP}, 53]}
    client: {nodes: [node-a]}
  streams:
    queries: {from: client, to: {service: dns, via: clusterIP}, send: {every: 5ms}}
    nowhere: {from: client, to: {service: empty, via: clusterIP}, send: {every: 5ms}}
  steps:
  - name: a stream reaches its pod, and one without an endpoint loses every datagram
    expect: {queries: {backend: dns, lost: 0}, nowhere: {lost: {atLeast: 5}, rejected: 0}}
    probes:
    - name: a query is answered
      from: client
      to: {service: dns, via: clusterIP}
      expect: {outcome: delivered, source: {node: node-a, device: uplink}}
    - name: a query without an endpoint is discarded
      from: client
      to: {service: empty, via: clusterIP}
      expect: {outcome: dropped, at: node-a}
  - name: nothing changes
    expect: {queries: {lost: {atLeast: 5}}}
    probes:
    - name: a node reaches the Service at its own node port
      from: node-a
      to: {service: web, via: nodePort, node: node-a}
      send: {as: connect}
      expect: {outcome: delivered, source: {node: node-a, device: uplink}}
---
apiVersion: v1
kind: Service
metadata: {name: dns}
spec: {selector: {app: dns}, ports: [{port: 53, protocol: UDP}]}
---
apiVersion: v1
kind: Service
metadata: {name: empty}
spec: {selector: {app: none}, ports: [{port: 53, protocol: UDP}]}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {type: NodePort, selector: {app: dns}, ports: [{port: 53}]}
---
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
udpIdleTimeout: 1m
"""


@pytest.fixture
def lab() -> Iterator[OpenLab]:
    with shared_session(EngineChoice("embedded/userspace")) as session:
        yield session.open(parse_scenario(TEXT, "past-a-program.lab.yaml"), TEXT)


def signalled(lab: OpenLab, name: str) -> int:
    """How many proxies' processes on node-a got a signal."""
    mine = '[ "$(readlink $each/ns/net)" = "$(readlink /proc/self/ns/net)" ]'
    found = f"{mine} && grep -q 'userspace[.]program' $each/cmdline"
    script = f"for each in /proc/[0-9]*; do {found} && kill -{name} ${{each#/proc/}} && echo sent; done; true"
    return lab.execute("node-a", "sh", "-c", script).stdout.count("sent")


def test_what_a_process_discards_is_lost_and_dropped_beyond_doubt(lab: OpenLab) -> None:
    (step, _) = lab.scenario.steps
    verdict = lab.conclude(step)
    assert verdict.overall is Judgement.PASS, verdict.verdicts
    queries, nowhere = verdict.evidence.streams
    assert {packet.peer for packet in queries.packets} <= set(lab.addresses["node-a"])
    assert (nowhere.silent, nowhere.undrained) == ((), ())
    outcome = lab.probe(step.probes[1]).verdicts[0]
    assert outcome.judgement is Judgement.PASS, outcome.reasons
    assert "the proxy's process on node-a discarded 1 datagram" in outcome.witnesses


def test_a_connection_that_a_held_node_port_accepts_is_not_delivered(lab: OpenLab) -> None:
    (probe,) = lab.scenario.steps[1].probes
    assert lab.probe(probe).overall is Judgement.PASS
    lab.execute("node-a", "iptables", "-w", "-t", "nat", "-F", "KUBE-NODEPORT-HOST")
    verdict = lab.probe(probe)
    assert verdict.verdicts[0].judgement is Judgement.FAIL
    why = " ".join(" ".join(explain(verdict)).split())
    assert "why: no rule led the packet to the proxy's process: node-a accepted the connection at 172.18.0.2:" in why


@pytest.mark.thorough  # a second for each question that the process does not answer
def test_what_a_stopped_process_holds_may_only_be_late(lab: OpenLab) -> None:
    first, last = lab.scenario.steps
    assert lab.conclude(first).overall is Judgement.PASS
    assert signalled(lab, "STOP") == 1
    outcome = lab.probe(first.probes[0]).verdicts[0]
    assert outcome.judgement is Judgement.INCONCLUSIVE
    assert "the proxy's process on node-a got 1 flow and may still act" in str(outcome.reasons)
    outcome = lab.probe(first.probes[1]).verdicts[0]
    assert outcome.judgement is Judgement.INCONCLUSIVE, "it may have an endpoint for it yet"
    accepted = lab.probe(last.probes[0]).verdicts[0]
    assert accepted.judgement is Judgement.INCONCLUSIVE, "it may take the connection yet"
    verdict = lab.conclude(last)
    assert [each.judgement for each in verdict.verdicts] == [Judgement.INCONCLUSIVE]
    assert "the proxy's process on node-a may still hold packets" in str(verdict.verdicts[0].reasons)
    assert signalled(lab, "CONT") == 1


def test_a_change_of_the_mode_leaves_neither_chains_nor_a_process() -> None:
    path = ROOT / "scenarios" / "steps" / "proxy-mode-changes-from-userspace.lab.yaml"
    own, other = "KUBE-PORTALS-CONTAINER", "KUBE-SERVICES"
    with shared_session(EngineChoice("embedded/userspace")) as session:
        lab = session.open(cases(load_scenario(path), "userspace")[0])
        seen = []
        for _ in lab.scenario.steps:
            lab.step()
            rules = lab.rules_of("node-a")
            seen.append((own in rules, other in rules, signalled(lab, "CONT")))
        assert seen == [(True, False, 1), (False, True, 0), (True, False, 1)]
