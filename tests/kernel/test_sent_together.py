"""Probes that a lab sends together get the verdicts that each gets alone, from right proxies and from wrong ones."""

from collections.abc import Sequence
from contextlib import closing
from functools import cache
from pathlib import Path

import pytest
from sandboxed import ROOT
from thoroughness import sentinels

from proxylab.client import open_lab
from proxylab.client.open_lab import OpenLab
from proxylab.client.session import Session
from proxylab.engines.embedded.mutation import Mutation
from proxylab.engines.protocol import EngineChoice
from proxylab.errors import CapabilityError
from proxylab.evidence.evidence import Evidence, EvidenceTogether
from proxylab.features.audit.findings import Audit
from proxylab.features.audit.manifests import scenario_of_manifests
from proxylab.features.audit.runs import audit
from proxylab.features.audit.senders import SenderKind, with_senders
from proxylab.features.mutate.runs import mutants_of, ruled
from proxylab.plan.resolved import ResolvedProbe
from proxylab.scenario.cases import cases
from proxylab.scenario.load import load_scenario
from proxylab.scenario.model import Scenario
from proxylab.scenario.probes import Probe
from proxylab.verdict.model import Judgement, ProbeVerdict
from proxylab.verdict.shared_counts import evidence_of_each

ENGINE = "embedded/iptables"
SERVICES = """
apiVersion: v1
kind: Service
metadata: {name: plain}
spec: {selector: {app: web}, ports: [{port: 80, targetPort: 8080}]}
---
apiVersion: v1
kind: Service
metadata: {name: at-nodes}
spec: {type: NodePort, selector: {app: web}, ports: [{port: 80, targetPort: 8080, nodePort: 30080}]}
---
apiVersion: v1
kind: Service
metadata: {name: local}
spec:
  type: NodePort
  externalTrafficPolicy: Local
  internalTrafficPolicy: Local
  selector: {app: web}
  ports: [{port: 80, targetPort: 8080, nodePort: 30081}]
---
apiVersion: v1
kind: Service
metadata: {name: sticky}
spec: {sessionAffinity: ClientIP, selector: {app: web}, externalIPs: [192.0.2.7], ports: [{port: 80, targetPort: 8080}]}
---
apiVersion: v1
kind: Service
metadata: {name: ranged}
spec:
  type: LoadBalancer
  loadBalancerSourceRanges: [203.0.113.0/24]
  selector: {app: web}
  ports: [{port: 80, targetPort: 8080, nodePort: 30082}]
status: {loadBalancer: {ingress: [{ip: 192.0.2.8}]}}
---
apiVersion: v1
kind: Service
metadata: {name: without-endpoints}
spec: {type: NodePort, selector: {app: none}, ports: [{port: 80, targetPort: 8080, nodePort: 30083}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: web, ports: [{containerPort: 8080}]}]}
"""
_PARTS = SERVICES.split("---")
TWO_SERVICES = "---".join([*_PARTS[1:3], _PARTS[-1]])
"""At nodes, by each policy: enough for rules whose counts several Services share."""

FILES = sorted((ROOT / "scenarios").rglob("*.lab.yaml"))


class Told:
    """What was sent together: how many probes, and of how many the counts were told apart."""

    def __init__(self) -> None:
        self.sent = self.apart = 0

    def evidence_of_each(self, found: EvidenceTogether, probes: Sequence[ResolvedProbe]) -> tuple[Evidence, ...] | None:
        each = evidence_of_each(found, probes)
        self.sent += len(probes)
        self.apart += len(each or ())
        return each


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Told:
    told = Told()
    monkeypatch.setattr(open_lab, "evidence_of_each", told.evidence_of_each)
    return told


def services(manifests: str = SERVICES) -> Scenario:
    (case,) = cases(scenario_of_manifests(manifests, "shop.yaml"), "iptables", (1, 37))
    return with_senders(case)


def asked(mutation: Mutation | None = None, manifests: str = SERVICES) -> tuple[Audit, dict[str, ProbeVerdict]]:
    """An audit, and the verdicts on the same probes when each is sent by itself."""
    with Session(EngineChoice(ENGINE)) as session, closing(session.open(services(manifests), mutation=mutation)) as lab:
        found = audit(lab, "proxylab audit shop.yaml", lambda done, of: None)
        probes = [lab_probe(lab, each.question.probe.name) for each in found.answers]
        return found, {probe.name: lab.judged(probe) for probe in probes}


def lab_probe(lab: OpenLab, name: str) -> Probe:
    return next(each for each in lab.scenario.all_probes if each.name == name)


def words(verdict: ProbeVerdict) -> list[tuple[str, Judgement]]:
    return [(each.expectation, each.judgement) for each in verdict.verdicts]


def test_an_audit_has_the_verdicts_of_its_probes_alone(told: Told) -> None:
    found, alone = asked()
    assert {each.question.probe.name: words(each.verdict) for each in found.answers} == {
        name: words(each) for name, each in alone.items()
    }
    assert {each.overall for each in alone.values()} == {Judgement.PASS}
    assert found.kinds == tuple(SenderKind)
    assert told.sent > len(found.answers) / 3
    assert told.apart > told.sent * 0.8


def mutants(chain: str, manifests: str = SERVICES) -> list[Mutation]:
    """Those of the rules in chains of that kind, by table and the beginning of their name."""
    return [each for each in every_mutant(manifests) if each.rule.startswith(chain)]


@cache
def every_mutant(manifests: str) -> tuple[Mutation, ...]:
    every = mutants_of([ruled(services(manifests), ENGINE)], ENGINE)
    return tuple(Mutation(each.rule_class, each.mutation) for each in every if not each.equivalent)


def same(mutation: Mutation, manifests: str = SERVICES) -> set[Judgement]:
    """The judgements on the questions to that proxy, which are the same together and alone."""
    found, alone = asked(mutation, manifests)
    together = {each.question.probe.name: each.judgement for each in found.answers}
    assert together == {name: each.overall for name, each in alone.items()}
    return set(together.values())


CHAINS = (
    "nat KUBE-SEP",
    "nat KUBE-POSTROUTING",
    "filter KUBE-SERVICES",
    "nat KUBE-EXT",
    "nat KUBE-SVC",
    "nat KUBE-SVL",
    "nat KUBE-SERVICES",
    "nat KUBE-NODEPORTS",
    "nat KUBE-MARK",
    "nat KUBE-FW",
    "nat PREROUTING",
    "nat OUTPUT",
    "nat POSTROUTING",
    "filter KUBE-EXTERNAL-SERVICES",
    "filter KUBE-FIREWALL",
    "filter KUBE-FORWARD",
    "filter KUBE-PROXY-FIREWALL",
    "filter INPUT",
    "filter FORWARD",
    "filter OUTPUT",
)


def test_every_wrong_rule_has_its_row() -> None:
    assert [each for each in every_mutant(SERVICES) if not each.rule.startswith(CHAINS)] == []


@pytest.mark.parametrize("chain", CHAINS[:3])
def test_so_has_an_audit_of_a_proxy_with_a_wrong_rule(chain: str) -> None:
    assert Judgement.FAIL in same(mutants(chain, TWO_SERVICES)[0], TWO_SERVICES)


@pytest.mark.thorough  # the same with every mutant of every rule
@pytest.mark.timeout(2400)
@pytest.mark.parametrize("chain", CHAINS)
def test_so_has_one_with_any_wrong_rule_of_a_chain(chain: str) -> None:
    wrong = mutants(chain)
    assert wrong
    for each in wrong:
        same(each)


IN_EVERY_RUN = ("affinity", "clusterip", "loadbalancer", "nodeport")


def folder(file: Path) -> str:
    return file.parent.name if file.parent.name in IN_EVERY_RUN else "another"


@pytest.mark.parametrize("file", sentinels(FILES, folder, lambda file: str(file.relative_to(ROOT / "scenarios"))))
def test_so_have_the_probes_of_a_scenario_that_one_moment_has(file: Path) -> None:
    """Each in a lab of its own: a probe leaves traces in connection tracking, and an author may ask for these."""
    moments = [case for case in cases(load_scenario(file), "iptables", (1, 37)) if not case.failures and case.probes]
    with Session(EngineChoice(ENGINE)) as session:
        for case in moments:
            try:
                with closing(session.open(case)) as lab:
                    probes = [each for each in case.probes if lab.assembly.resolved(each).question is None]
                    together = dict(lab.judged_together(probes))
                with closing(session.open(case)) as lab:
                    alone = [lab.judged(each) for each in probes]
            except CapabilityError as lacking:
                pytest.skip(str(lacking))
            assert [words(together[number]) for number in range(len(probes))] == [words(each) for each in alone]
