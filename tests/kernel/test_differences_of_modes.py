"""The page of the differences between modes is made from a run. ``LAB_DOCS=write`` writes it again."""

import os
from collections.abc import Iterator

import pytest
from guests import OWN
from msgspec.structs import replace
from sandboxed import ROOT

from proxylab.client.open_lab import OpenLab
from proxylab.client.session import Session
from proxylab.engines.engine_names import mode_of
from proxylab.engines.protocol import EngineChoice
from proxylab.scenario.cases import cases
from proxylab.scenario.load import load_scenario, parse_scenario
from proxylab.scenario.matrix import Matrix
from proxylab.scenario.model import Scenario
from proxylab.scenario.probes import Probe
from proxylab.scenario.words import Manner
from proxylab.verdict.case import Case
from proxylab.verdict.causes.layout import holder
from proxylab.verdict.flows import Fate
from proxylab.verdict.model import Judgement, ProbeVerdict

ENGINES = ("embedded/iptables", "embedded/nftables", "embedded/ipvs", "embedded/userspace")
GUESTS = {"embedded/ipvs": "uml"}  # few machines have IPVS
PAGE = ROOT / "docs" / "reference" / "modes.md"
FILES = (
    "every-pod-sees-the-node",
    "accepted-then-closed",
    "another-endpoint-is-tried",
    "round-robin-and-affinity",
    "proxy-stops",
)
KEEPS = "udp-client-keeps-its-endpoint"
FLOWS = 40
BECOMES_READY = "another pod, which listens, becomes ready"

# The question of each row, and the words that begin the name of its probe.
ROWS = {
    "a pod asks a pod on another node": "ClusterIP to another node",
    "a pod asks a pod on another node by HTTP": "ClusterIP by HTTP",
    "a pod asks a pod on its own node": "ClusterIP to the same node",
    "a pod asks a pod on its own node over UDP": "ClusterIP by UDP",
    "a pod asks itself": "ClusterIP from a pod to itself",
    "a node asks a pod on another node": "ClusterIP from the node itself",
    "an outside host asks a node port": "NodePort from outside",
    "a node asks a node port at 127.0.0.1": "NodePort at 127.0.0.1",
    "a pod asks a cluster IP of the second family": "ClusterIP over IPv6",
    "a Service has no endpoint": "ClusterIP without endpoints",
    "a Service over UDP has no endpoint": "ClusterIP over UDP without endpoints",
    "a node port has no endpoint": "NodePort without endpoints",
    "the only endpoint listens on no port": "ClusterIP of a closed port",
    "the endpoint of a client under ClientIP affinity listens on no port": f"{BECOMES_READY}: ClusterIP fails",
    "connections to a Service of two endpoints": "ClusterIP spreads connections",
    "connections of a client under ClientIP affinity": "ClusterIP with ClientIP affinity",
    "the proxy has stopped": "the proxy of the client's node stops",
}
KEPT = "the endpoint of a standing UDP client is no longer ready"

DUAL = """\
apiVersion: proxylab/v1
kind: Scenario
metadata: {name: two-families}
spec:
  network: {families: [IPv4, IPv6]}
  nodes: {node-a: {}, node-b: {}}
  pods:
    web: {nodes: [node-b], labels: {app: web}, ports: [8080]}
    client: {nodes: [node-a]}
  probes:
  - name: NodePort at 127.0.0.1
    from: {name: node-a, loopback: true}
    to: {service: web, via: nodePort, node: node-a, family: IPv4}
    expect: {outcome: delivered, source: {node: node-a, device: uplink}}
  - name: ClusterIP over IPv6
    from: client
    to: {service: web, via: clusterIP, family: IPv6}
    expect: {outcome: delivered, source: preserved}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {type: NodePort, ipFamilyPolicy: RequireDualStack, selector: {app: web}, ports: [{port: 80, targetPort: 8080}]}
"""

TEXT = """\
# What the modes do otherwise

The same probes in each mode, as the taps of a run saw them: what became of the flows, and what the endpoint took for
the client. The scenarios are in `scenarios/userspace`, and a test makes this page from a run of them on the embedded
engines: no binary of kube-proxy takes part.

{table}

*accepted, then closed*: the proxy's process takes the connection before it looks for an endpoint. A client cannot tell
such a Service from one whose program closes every connection.

*lost*: the process takes the datagram and discards it.

*not served*: a proxy in mode userspace serves the first family of its cluster alone.

Mode ipvs runs on a kernel with IPVS, here in a guest.
[Change the mode of a cluster](../how-to/change-the-mode.md#3-if-you-leave-mode-ipvs) says where it differs from mode
nftables.
"""


def in_every_mode(scenario: Scenario, mode: str) -> Scenario:
    """The case of that mode, also of a scenario that is about another one."""
    return cases(replace(scenario, matrix=Matrix()), mode)[0]


def seen(probe: Probe, verdict: ProbeVerdict) -> str:
    case = Case(probe, verdict.resolved, verdict.evidence)
    became = sorted({str(fate) for fate in case.fates}, key=list(map(str, Fate)).index)
    sources = {arrival.source for flow in case.arrived for arrival in flow.arrivals}
    assert verdict.plan is not None
    sender = case.resolved.sender
    named = {"the client" if each == sender.address else holder(verdict.plan, each) for each in sources}
    return " or ".join(became) + (
        f"; sees {', '.join(sorted(named))}" if named and Fate.DELIVERED in case.fates else ""
    )


def chosen(verdict: ProbeVerdict) -> str:
    """How the flows went to endpoints, in the order of their arrival."""
    arrivals = sorted((each for flow in verdict.case.arrived for each in flow.arrivals), key=lambda each: each.at)
    ends = [each.destination for each in arrivals]
    assert len(ends) == FLOWS
    if len(set(ends)) == 1:
        return "all go to one"
    return "take turns" if ends == ends[:2] * (FLOWS // 2) else "are spread at random"


def answer(probe: Probe, lab: OpenLab) -> str:
    several = probe.expect.spread is not None
    flows = FLOWS if several else probe.send.flows
    sent = replace(probe, send=replace(probe.send, manner=Manner.CONNECT, flows=flows))
    lab.add(sent)
    verdict = lab.judged(sent)
    if verdict.overall is Judgement.SKIP:
        return "not served"
    return chosen(verdict) if several else seen(sent, verdict)


def rows_of(engine: str) -> Iterator[tuple[str, str]]:
    mode, folder = mode_of(engine), ROOT / "scenarios" / "userspace"
    written = [load_scenario(folder / f"{file}.lab.yaml") for file in FILES]
    with Session(EngineChoice(engine, kernel=GUESTS.get(engine, "host"))) as session:
        for scenario in [in_every_mode(each, mode) for each in (*written, parse_scenario(DUAL, "dual.lab.yaml"))]:
            lab = session.open(scenario, DUAL)
            for probe in scenario.all_probes:
                question = next((row for row, words in ROWS.items() if probe.name.startswith(words)), "")
                if question:
                    yield question, answer(probe, lab)
        lab = session.open(in_every_mode(load_scenario(folder / f"{KEEPS}.lab.yaml"), mode))
        (queries,) = lab.conclude(lab.scenario.steps[1]).evidence.streams
        yield KEPT, {"first": "it stays there", "second": "it goes to a ready one"}[queries.packets[-1].backend]


@pytest.mark.thorough  # the scenarios in scenarios/userspace run without it, each with its own expectations
@OWN
def test_the_page_is_of_this_code() -> None:
    columns = {mode_of(engine): dict(rows_of(engine)) for engine in ENGINES}
    lines = [f"| where | {' | '.join(columns)} |", "| --- |" + " --- |" * len(columns)]
    lines += [f"| {row} | {' | '.join(column[row] for column in columns.values())} |" for row in (*ROWS, KEPT)]
    made = TEXT.format(table="\n".join(lines))
    if os.environ.get("LAB_DOCS") == "write":
        PAGE.write_text(made)
    assert PAGE.read_text() == made, "LAB_DOCS=write ./dev pytest tests/kernel/test_differences_of_modes.py"
