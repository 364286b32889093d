"""The schedulers of mode ipvs in a guest's kernel: each has a scenario that notices every other one, or chooses alike.

kube-proxy gives every endpoint weight 1, and 0 to one that leaves. Then three schedulers have no choice of their own:
wrr is rr, wlc is lc, and nq is sed. The last two look at open connections alone: nq takes the first endpoint without
one, and that is the first with the fewest. The tests compare them flow by flow.
"""

from collections.abc import Iterator
from contextlib import closing
from typing import Final

import pytest
from guests import OWN
from sandboxed import ROOT
from shared_sessions import shared_session

from proxylab.client.session import Session
from proxylab.cluster.configuration import Scheduler
from proxylab.engines.protocol import EngineChoice
from proxylab.features.mutate.mutants import Mutant
from proxylab.features.mutate.runs import MutantRuns, with_objects
from proxylab.mutate.objects import ObjectMutation
from proxylab.scenario.cases import cases
from proxylab.scenario.load import load_scenario, parse_scenario

__all__ = ["ALIKE", "SCENARIOS"]

pytestmark = [OWN, pytest.mark.timeout(300)]

ENGINE: Final = "embedded/ipvs"
FIELD: Final = "KubeProxyConfiguration.ipvs.scheduler"
ALIKE: Final = {Scheduler.RR: Scheduler.WRR, Scheduler.LC: Scheduler.WLC, Scheduler.SED: Scheduler.NQ}
SCENARIOS: Final = {each: f"ipvs/scheduler-{each}" for each in Scheduler if each not in ALIKE.values()}
NEAREST: Final = {
    Scheduler.RR: Scheduler.MH,
    Scheduler.LC: Scheduler.SED,
    Scheduler.SED: Scheduler.LC,
    Scheduler.LBLC: Scheduler.LBLCR,
    Scheduler.LBLCR: Scheduler.LBLC,
    Scheduler.DH: Scheduler.SH,
    Scheduler.SH: Scheduler.DH,
    Scheduler.MH: Scheduler.RR,
}
"""Of each scheduler the one that is hardest to tell from it."""


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    with shared_session(EngineChoice(ENGINE, kernel="uml")) as opened:
        yield opened


def judgement_of(session: Session, own: Scheduler, other: Scheduler) -> str:
    """What the scenario of a scheduler says where the proxy is shown another one; empty if it passes."""
    (each,) = cases(load_scenario(ROOT / f"scenarios/{SCENARIOS[own]}.lab.yaml"), "ipvs")
    case, change = with_objects(each), f"as {other}"
    assert case.has(ObjectMutation(FIELD, change))
    mutant = Mutant(engine=ENGINE, rule_class=FIELD, mutation=change, rule="", of_objects=True)
    noticed = MutantRuns(session, ENGINE).settled(mutant, [case], lambda _what: None).noticed
    return "" if noticed is None else noticed.judgement


@pytest.mark.parametrize(
    ("own", "other"),
    [
        pytest.param(own, other, marks=[] if NEAREST[own] is other else [pytest.mark.thorough])
        for own in SCENARIOS
        for other in Scheduler
        if other not in (own, ALIKE.get(own))
    ],
)
def test_the_scenario_of_a_scheduler_notices_another_one(session: Session, own: Scheduler, other: Scheduler) -> None:
    assert judgement_of(session, own, other) == "fail"


@pytest.mark.parametrize("own", ALIKE)
def test_a_scheduler_that_differs_by_weights_alone_is_not_noticed(session: Session, own: Scheduler) -> None:
    assert judgement_of(session, own, ALIKE[own]) == ""


TO: Final = "from: client, to: {service: echo, via: clusterIP}"
ALL: Final = "{outcome: delivered, source: preserved}"
IN_TURN: Final = "{flows: 20, concurrency: 1}"
AT_ONCE: Final = "{flows: 40}"
COMPARED: Final = f"""
apiVersion: proxylab/v1
kind: Scenario
metadata: {{name: compared, description: IPVS balances it over IPv4 alone.}}
spec:
  nodes: {{node-a: {{}}, node-b: {{}}}}
  pods:
    first: {{nodes: [node-b], labels: {{app: echo}}, ports: [8080]}}
    second: {{nodes: [node-b], labels: {{app: echo}}, ports: [8080], ready: false}}
    third: {{nodes: [node-b], labels: {{app: echo}}, ports: [8080], ready: false}}
    client: {{nodes: [node-a]}}
  streams: {{open: {{from: client, to: {{service: echo, via: clusterIP}}}}}}
  steps:
  - {{name: one endpoint, expect: {{open: {{lost: 0}}}}}}
  - name: a second endpoint
    change: {{pods: {{second: {{ready: true}}}}}}
    probes: &sent
    - {{name: in turn, {TO}, send: {IN_TURN}, expect: {ALL}}}
    - {{name: at once, {TO}, send: {AT_ONCE}, expect: {ALL}}}
    - {{name: in turn again, {TO}, send: {IN_TURN}, expect: {ALL}}}
  - name: a third endpoint
    change: {{pods: {{third: {{ready: true}}}}}}
    probes: *sent
  - name: the second endpoint leaves
    change: {{pods: {{second: {{ready: false}}}}}}
    probes: *sent
---
apiVersion: v1
kind: Service
metadata: {{name: echo}}
spec: {{clusterIP: 10.96.0.50, selector: {{app: echo}}, ports: [{{port: 80, targetPort: 8080}}]}}
---
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
ipvs: {{scheduler: SCHEDULER}}
"""  # fmt: skip


def chosen(session: Session, scheduler: Scheduler) -> list[tuple[str, list[str]]]:
    """The endpoint of each flow of each probe."""
    found = []
    with closing(session.open(parse_scenario(COMPARED.replace("SCHEDULER", scheduler), "f"))) as lab:
        assert f"-s {scheduler}" in lab.rules_of("node-a")
        for step in lab.scenario.steps:
            for probe in step.probes:
                reports = lab.probe(probe).evidence.connects
                found.append((probe.name, [each.backend for each in reports]))
    return found


@pytest.mark.parametrize("own", [pytest.param(each, marks=pytest.mark.thorough) for each in ALIKE])
def test_with_weights_of_kube_proxy_two_schedulers_choose_the_same_endpoint_for_each_flow(
    session: Session, own: Scheduler
) -> None:
    mine, other = chosen(session, own), chosen(session, ALIKE[own])
    assert len(mine) == 9
    assert mine == other
