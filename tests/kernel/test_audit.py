"""``proxylab audit`` in labs: green on a right proxy, red on one that loads a wrong rule."""

from contextlib import closing

import pytest

from proxylab.client.session import Session
from proxylab.engines.embedded.mutation import Mutation
from proxylab.engines.protocol import EngineChoice
from proxylab.errors import ExitCode
from proxylab.features.audit.findings import Audit, to_lines
from proxylab.features.audit.manifests import scenario_of_manifests
from proxylab.features.audit.runs import audit
from proxylab.features.audit.senders import SenderKind, with_senders
from proxylab.features.mutate.runs import mutants_of, ruled
from proxylab.scenario.cases import cases
from proxylab.scenario.model import Scenario
from proxylab.verdict.model import Judgement

MANIFESTS = """
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {type: NodePort, selector: {app: web}, ports: [{port: 80, targetPort: 8080, nodePort: 30080}]}
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


def audited(engine: str, mutation: Mutation | None = None) -> Audit:
    with Session(EngineChoice(engine)) as session, closing(session.open(whole(engine), mutation=mutation)) as lab:
        return audit(lab, "proxylab audit shop.yaml", lambda done, of: None)


def whole(engine: str) -> Scenario:
    (case,) = cases(scenario_of_manifests(MANIFESTS, "shop.yaml"), engine.rpartition("/")[2], (1, 37))
    return with_senders(case)


@pytest.mark.parametrize("engine", ["embedded/iptables", "embedded/nftables"])
def test_every_answer_of_a_right_proxy_is_as_promised(engine: str) -> None:
    found = audited(engine)
    assert [line for line in to_lines(found, 120) if "promised" in line][1:] == []
    assert found.exit_code is ExitCode.OK
    assert found.kinds == tuple(SenderKind)
    assert len(found.answers) > 20


def test_a_wrong_rule_is_found_and_explained() -> None:
    engine = "embedded/iptables"
    mutants = mutants_of([ruled(whole(engine), engine)], engine)
    wrong = next(
        each for each in mutants if "KUBE-SEP" in each.rule_class and "DNAT" in each.rule and not each.equivalent
    )
    found = audited(engine, Mutation(wrong.rule_class, wrong.mutation))
    assert found.exit_code is ExitCode.FAILED
    assert {each.service for each in found.of(Judgement.FAIL)} == {"default/web"}
    text = "\n".join(to_lines(found, 120))
    assert "what differs:" in text
    assert "reproduce: proxylab audit shop.yaml" in text
