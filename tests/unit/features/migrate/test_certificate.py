"""What changes from one proxy to another one: which answers are the same, why others differ, and what to do."""

import json
from pathlib import Path

import pytest
from audits import RIGHT, asked, audit_of, promised, wrong
from made_dump import PLANTED
from msgspec.structs import replace

from proxylab.errors import ExitCode
from proxylab.features.audit.findings import Audit, AuditAnswer
from proxylab.features.audit.senders import SenderKind
from proxylab.features.migrate.certificate import Certificate, certificate_of
from proxylab.features.migrate.certificate_page import page
from proxylab.features.migrate.certificate_text import LEFT_OUT, UNEXPLAINED, to_json, to_lines
from proxylab.features.migrate.reasons import departed, promised_otherwise
from proxylab.scenario.words import Outcome
from proxylab.verdict.model import Judgement, ProbeVerdict

PAGE = Path(__file__).resolve().parents[4] / "docs" / "how-to" / "change-the-mode.md"


def on(engine: str, *answers: AuditAnswer) -> Audit:
    return replace(audit_of(*answers), engine=engine)


def compared(
    old: ProbeVerdict, new: ProbeVerdict, engines: tuple[str, str] = ("embedded/ipvs", "embedded/nftables")
) -> Certificate:
    return certificate_of(on(engines[0], asked(old)), on(engines[1], asked(new)))


def text_of(found: Certificate) -> str:
    return " ".join(" ".join(to_lines(found, 200)).split())


def test_the_same_answers_are_counted_and_green() -> None:
    answers = asked(RIGHT), asked(RIGHT, "another", "shop/db")
    found = certificate_of(on("embedded/iptables", *answers), on("embedded/nftables", *answers))
    assert found.exit_code is ExitCode.OK
    assert dict(found.same) == {"shop/web": 1, "shop/db": 1}
    assert "2 with the same answer, 0 with another for 0 Services" in text_of(found)
    assert "nothing changes for 2 Services: shop/web and shop/db" in text_of(found)
    assert "No answer changes" in page(found)


def test_another_promise_is_told_with_both_documents_and_advice() -> None:
    old = promised(RIGHT, "untranslated", "unused-port/iptables")
    new = promised(RIGHT, "rejected", "unused-port/nftables")
    (change,) = compared(old, new, ("embedded/iptables", "embedded/nftables")).changes
    assert (change.before, change.after) == ("outcome untranslated", "outcome rejected")
    assert change.reason.is_documented
    assert [each.text.split()[1] for each in change.reason.statements] == ["iptables", "nftables"]
    assert all(each.because.startswith("https://kubernetes.io/") for each in change.reason.statements)
    assert "declared ports only" in change.reason.advice


def test_the_page_explains_its_words_and_links_each_document() -> None:
    """Who gets it need not know proxylab: each outcome and kind of sender on it is defined, and no other one."""
    old = promised(RIGHT, "untranslated", "unused-port/iptables")
    new = promised(RIGHT, "rejected", "unused-port/nftables")
    found = compared(old, new, ("embedded/iptables", "embedded/nftables"))
    text = page(found)
    assert {word for word in Outcome if f"<dt>{word}</dt>" in text} == {Outcome.UNTRANSLATED, Outcome.REJECTED}
    assert {kind for kind in SenderKind if f"<dt>{kind}</dt>" in text} == set(found.changes[0].senders)
    for each in found.changes[0].reason.statements:
        assert f'<a href="{each.because}">{each.text}</a>' in text
    assert '<a href="#change-1">' in text
    assert 'id="change-1"' in text


def test_a_promise_that_only_the_new_proxy_breaks_has_no_excuse() -> None:
    found = compared(RIGHT, wrong())
    assert found.exit_code is ExitCode.FAILED
    (change,) = found.changes
    assert not change.reason.is_documented
    assert "Do not change before this is mended" in text_of(found)
    assert UNEXPLAINED in text_of(found)
    assert UNEXPLAINED in page(found)


def test_a_known_departure_of_the_old_mode_has_its_link() -> None:
    old = promised(RIGHT, "delivered", "external-local-elsewhere", Judgement.FAIL)
    new = promised(RIGHT, "dropped", "external-local-elsewhere")
    (change,) = compared(old, new).changes
    assert change.reason.is_documented
    assert change.reason.statements[0].because.endswith("/issues/97081")
    assert "the new one keeps the promise" in change.reason.advice


def test_what_the_lab_lacks_of_a_dump_stands_in_each_form() -> None:
    lacking = "the ServiceCIDR, which no object tells; give --service-cidr: 10.96.0.0/16 stands for it"
    found = replace(compared(RIGHT, RIGHT), left_out=(lacking,))
    assert f"{LEFT_OUT}: {lacking}" in text_of(found)
    assert json.loads(to_json(found))["leftOut"] == [lacking]
    assert f"<li>{lacking}</li>" in page(found)
    nothing = compared(RIGHT, RIGHT)
    assert LEFT_OUT not in text_of(nothing)
    assert LEFT_OUT.capitalize() not in page(nothing)


def test_what_a_lab_cannot_decide_is_neither_the_same_nor_a_change() -> None:
    unclear = promised(RIGHT, "delivered", "frontend-clusterIP", Judgement.INCONCLUSIVE)
    found = compared(RIGHT, unclear)
    assert (found.exit_code, found.changes, dict(found.same)) == (ExitCode.INCONCLUSIVE, (), {})
    assert "what the lab could not decide: a question on embedded/nftables" in text_of(found)


@pytest.mark.parametrize(
    ("here", "there"),
    [
        ("masqueraded (172.18.0.2 or 10.244.0.1)", "masqueraded (10.244.0.1 or 172.18.0.2)"),
        ("preserved", "preserved"),
    ],
)
def test_chance_is_no_change(here: str, there: str) -> None:
    def seen(expected: str, observed: str) -> ProbeVerdict:
        changed = (
            replace(each, expected=expected, observed=observed) if each.expectation == "source" else each
            for each in RIGHT.verdicts
        )
        return replace(RIGHT, verdicts=tuple(changed))

    old, new = seen(here, "172.18.0.2 20, 10.244.0.1 11"), seen(there, "10.244.0.1 19, 172.18.0.2 12")
    assert compared(old, new).changes == ()
    assert compared(seen("preserved", "10.244.0.2"), seen("masqueraded (172.18.0.2)", "172.18.0.2")).changes != ()


def test_what_differs_alike_is_one_change_of_all_its_services() -> None:
    names = [f"question {number}" for number in range(5)]
    old = [asked(RIGHT, name, f"shop/{name[-1]}") for name in names]
    new = [asked(wrong(), name, f"shop/{name[-1]}") for name in names]
    found = certificate_of(on("embedded/ipvs", *old), on("embedded/nftables", *new))
    (change,) = found.changes
    assert len(change.services) == 5
    assert change.senders == {SenderKind.NEAR: 5}
    assert "concerns 5 Services (shop/0, shop/1, shop/2 and 2 more); 5 questions: pod near 5" in text_of(found)
    document = json.loads(to_json(found))
    assert (document["kind"], document["from"], document["exitCode"]) == ("MigrationCertificate", "embedded/ipvs", 1)
    assert document["changes"][0]["services"] == [f"shop/{number}" for number in range(5)]
    assert document["changes"][0]["probes"] == names


def test_reasons() -> None:
    assert promised_otherwise(["no-endpoint"], ["no-endpoint"]) is None
    other = promised_otherwise(["ready-endpoints"], ["ready-endpoints", "zone-hints/followed"])
    assert other is not None
    assert "zone" in other.advice
    assert departed(["no-endpoint"], before="ipvs", after="nftables").advice.startswith("Both proxies")


def test_the_page_has_the_planted_differences_of_the_dump() -> None:
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    for each in PLANTED:
        words = (each.title, each.before.removeprefix("outcome "), each.after.removeprefix("outcome "))
        assert f"| {' | '.join(words)} |" in rows
