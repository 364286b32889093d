"""How an audit tells what it found: counted, as text, as JSON and as a page."""

import json

import pytest
from audits import RIGHT, answer, audit_of, wrong

from proxylab.errors import ExitCode
from proxylab.features.audit.audit_page import page
from proxylab.features.audit.findings import cell, to_json, to_lines
from proxylab.features.audit.senders import SenderKind
from proxylab.verdict.model import ProbeVerdict


def test_what_differs_is_counted_told_once_and_the_first_is_explained() -> None:
    found = audit_of(answer(RIGHT), answer(wrong()), answer(wrong(), SenderKind.FAR))
    assert found.exit_code is ExitCode.FAILED
    text = "\n".join(to_lines(found, 120))
    assert "shop.yaml on embedded/iptables: 1 Service, 3 questions in 1.2 s: 1 as promised, 2 differ" in text
    assert "shop/web  1 differ of 2  1 differ of 1" in text
    assert text.count("shop/web clusterIP 10.96.0.10:80/TCP from debug (pod near), debug (pod far): outcome") == 1
    assert "promised:" in text
    assert "A node leads what it gets or sends to a cluster IP" in text
    assert "shop/db: not asked: a headless Service" in text
    assert "not asked from: a machine on the link of the nodes" in text


def test_all_as_promised_is_green() -> None:
    found = audit_of(answer(RIGHT), answer(RIGHT, service=""))
    assert found.exit_code is ExitCode.OK
    text = "\n".join(to_lines(found, 120))
    assert "what differs" not in text
    assert "(no Service)" in text


def test_nothing_asked_is_not_green() -> None:
    assert audit_of().exit_code is ExitCode.NOTHING_SELECTED


@pytest.mark.parametrize(("answers", "text"), [((), "-"), ((RIGHT, RIGHT), "2"), ((RIGHT, wrong()), "1 differ of 2")])
def test_a_cell_counts(answers: tuple[ProbeVerdict, ...], text: str) -> None:
    assert cell([answer(each) for each in answers]) == text


def test_the_document_has_every_question_and_why() -> None:
    found = json.loads(to_json(audit_of(answer(RIGHT), answer(wrong()))))
    assert (found["kind"], found["exitCode"], found["counts"]["fail"]) == ("AuditReport", 1, 1)
    right, different = found["questions"]
    assert (right["judgement"], right["verdicts"]) == ("pass", [])
    (verdict,) = (each for each in different["verdicts"] if each["expectation"] == "outcome")
    assert verdict["promised"][0]["because"].startswith("https://kubernetes.io/")


def test_the_page_has_the_table_and_explains_what_differs() -> None:
    text = page(audit_of(answer(RIGHT), answer(wrong())))
    assert "1 differ of 2" in text
    assert text.count("<details open>") == 1
    assert "Every answer is as promised" not in text
    assert "Every answer is as promised" in page(audit_of(answer(RIGHT)))
