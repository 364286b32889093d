"""``proxylab audit`` in labs: green on a right proxy, red on one that loads a wrong rule."""

from contextlib import closing
from functools import cache

import pytest
from shared_sessions import shared_session

from proxylab.engines.embedded.mutation import Mutation
from proxylab.engines.protocol import EngineChoice
from proxylab.errors import ExitCode
from proxylab.features.audit.findings import Audit, to_lines
from proxylab.features.audit.manifests import scenario_of_manifests
from proxylab.features.audit.runs import audit
from proxylab.features.audit.senders import SenderKind, with_senders
from proxylab.features.migrate.certificate import certificate_of
from proxylab.features.migrate.open_connections import ConnectionFate
from proxylab.features.migrate.runs import switch
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


BALANCED = MANIFESTS.replace("type: NodePort,", "type: LoadBalancer, externalIPs: [192.0.2.20],").replace(
    "nodePort: 30080}]}\n", "nodePort: 30080}]}\nstatus: {loadBalancer: {ingress: [{ip: 192.0.2.10}]}}\n"
)


@cache
def audited(engine: str, mutation: Mutation | None = None, manifests: str = MANIFESTS) -> Audit:
    with (
        shared_session(EngineChoice(engine)) as session,
        closing(session.open(whole(engine, manifests), mutation=mutation)) as lab,
    ):
        return audit(lab, "proxylab audit shop.yaml", lambda done, of: None)


def whole(engine: str, manifests: str = MANIFESTS) -> Scenario:
    (case,) = cases(scenario_of_manifests(manifests, "shop.yaml"), engine.rpartition("/")[2], (1, 37))
    return with_senders(case)


@pytest.mark.parametrize("engine", ["embedded/iptables", "embedded/nftables"])
def test_every_answer_of_a_right_proxy_is_as_promised(engine: str) -> None:
    found = audited(engine)
    assert [line for line in to_lines(found, 120) if "promised" in line][1:] == []
    assert found.exit_code is ExitCode.OK
    assert found.kinds == tuple(SenderKind)
    assert len(found.answers) > 20


def wrong_rule() -> Mutation:
    engine = "embedded/iptables"
    mutants = mutants_of([ruled(whole(engine), engine)], engine)
    wrong = next(
        each for each in mutants if "KUBE-SEP" in each.rule_class and "DNAT" in each.rule and not each.equivalent
    )
    return Mutation(wrong.rule_class, wrong.mutation)


def test_a_wrong_rule_is_found_and_explained() -> None:
    found = audited("embedded/iptables", wrong_rule())
    assert found.exit_code is ExitCode.FAILED
    assert {each.service for each in found.of(Judgement.FAIL)} == {"default/web"}
    text = "\n".join(to_lines(found, 120))
    assert "what differs:" in text
    assert "reproduce: proxylab audit shop.yaml" in text


def test_from_iptables_to_nftables_what_is_documented_changes_and_nothing_else() -> None:
    found = certificate_of(audited("embedded/iptables"), audited("embedded/nftables"))
    changed = {(each.before, each.after, tuple(each.senders)) for each in found.changes}
    beside = (SenderKind.NEAR, SenderKind.NODE)
    assert changed == {
        ("outcome untranslated", "outcome rejected", beside),
        ("outcome untranslated", "outcome dropped", beside),
        ("outcome delivered", "outcome refused", (SenderKind.LOOPBACK,)),
    }
    assert len(found.changes) == 4  # an unused port and an echo request are rejected for different reasons
    assert all(each.reason.is_documented for each in found.changes)
    assert found.undecided == ()
    assert sum(found.same.values()) + sum(len(each.answers) for each in found.changes) == len(found.before.answers)


def test_a_new_proxy_with_a_wrong_rule_is_not_certified() -> None:
    found = certificate_of(audited("embedded/nftables"), audited("embedded/iptables", wrong_rule()))
    faults = [each for each in found.changes if not each.reason.is_documented]
    assert {service for each in faults for service in each.services} == {"default/web"}
    assert all("Do not change before this is mended" in each.reason.advice for each in faults)


def test_connections_survive_a_change_from_iptables_to_nftables() -> None:
    engine = "embedded/iptables"
    with shared_session(EngineChoice(engine)) as session:
        found = switch(session, whole(engine), audited(engine), "nftables")
    assert {(each.connection.service, each.connection.kind) for each in found.connections} == {
        ("default/web", SenderKind.NEAR),
        ("default/web", SenderKind.OUTSIDE),
    }
    assert {(each.fate, each.seen) for each in found.connections} == {(ConnectionFate.SURVIVES, "")}
    assert (found.left_out, found.untried) == (0, "")


def test_so_do_those_from_outside_to_addresses_that_no_node_has() -> None:
    engine = "embedded/iptables"
    with shared_session(EngineChoice(engine)) as session:
        found = switch(session, whole(engine, BALANCED), audited(engine, manifests=BALANCED), "nftables")
    dialled = {each.connection.frontend for each in found.connections if each.connection.kind is SenderKind.OUTSIDE}
    assert dialled == {"nodePort 30080/TCP", "loadBalancerIP 192.0.2.10:80/TCP", "externalIP 192.0.2.20:80/TCP"}
    assert {(each.fate, each.seen) for each in found.connections} == {(ConnectionFate.SURVIVES, "")}
