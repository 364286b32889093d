"""``proxylab migrate`` on a made dump of 30 Services: it reports the twelve planted differences, and nothing else."""

from collections import Counter
from contextlib import closing

import pytest
from made_dump import PLANTED, SERVICES, made_dump
from msgspec.structs import replace
from shared_sessions import shared_session

from proxylab.engines.protocol import EngineChoice
from proxylab.features.audit.findings import Audit
from proxylab.features.audit.runs import audit
from proxylab.features.audit.senders import with_senders
from proxylab.features.import_.importing import import_cluster
from proxylab.features.import_.reading import read_kubectl_output
from proxylab.features.migrate.certificate import Certificate, certificate_of
from proxylab.scenario.cases import cases
from proxylab.scenario.load import parse_scenario
from proxylab.verdict.model import Judgement

# 600 questions on each proxy; test_audit.py asks 24, and compares the certificate too.
pytestmark = pytest.mark.thorough


def audited(mode: str) -> Audit:
    imported = import_cluster(read_kubectl_output([("dump.yaml", made_dump())]), "imported")
    (case,) = cases(parse_scenario(imported.text, "dump.yaml"), mode, (1, 37))
    asked = with_senders(replace(case, probes=(), steps=(), streams=()))
    with shared_session(EngineChoice(f"embedded/{mode}")) as session, closing(session.open(asked)) as lab:
        return audit(lab, "proxylab migrate dump.yaml", lambda done, of: None)


@pytest.fixture(scope="module")
def certificate() -> Certificate:
    return certificate_of(audited("iptables"), audited("nftables"))


def test_every_planted_difference_is_reported_and_nothing_else(certificate: Certificate) -> None:
    assert (len(SERVICES), len(PLANTED)) == (30, 12)
    found, others = Counter[str](), []
    for change in certificate.changes:
        assert change.reason.is_documented, change
        for answer, _ in change.answers:
            service, frontend = answer.question.service, answer.question.frontend
            planted = [each.title for each in PLANTED if each.concerns(service, frontend)]
            same = [each for each in PLANTED if each.title in planted and each.before == change.before]
            if len(same) == 1 and same[0].after == change.after:
                found[same[0].title] += 1
            else:
                others.append((service, frontend, change.before, change.after, planted))
    assert others == []
    assert [each.title for each in PLANTED if not found[each.title]] == []


def test_each_planted_difference_concerns_its_services_and_no_other(certificate: Certificate) -> None:
    changed = {
        (answer.question.service, answer.question.frontend)
        for change in certificate.changes
        for answer, _ in change.answers
    }
    for each in PLANTED:
        concerned = {service for service, frontend in changed if each.concerns(service, frontend)}
        assert concerned == (each.services or {""}), each.title


def test_both_proxies_keep_every_promise_and_nothing_is_undecided(certificate: Certificate) -> None:
    assert certificate.undecided == ()
    for one in (certificate.before, certificate.after):
        assert {each.judgement for each in one.answers} == {Judgement.PASS}
    changed = sum(len(each.answers) for each in certificate.changes)
    assert sum(certificate.same.values()) + changed == len(certificate.before.answers)
    assert set(certificate.before.undialled) == {"shop/cart", "shop/legacy"}
