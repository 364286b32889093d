"""A certificate as one HTML file, to hand to colleagues, who need to know neither proxylab nor modes of proxies."""

from collections.abc import Iterator
from typing import Final

from proxylab.features.audit.audit_page import senders
from proxylab.features.audit.senders import SenderKind
from proxylab.features.migrate.certificate import Certificate, CertifiedChange
from proxylab.features.migrate.certificate_text import (
    LEFT_OUT,
    TELL_MORE,
    UNEXPLAINED,
    concerns,
    dialled,
    headline,
    kept,
    switch_lines,
)
from proxylab.features.migrate.reasons import Statement
from proxylab.report.html.markup import Markup, tag
from proxylab.report.html.page import document
from proxylab.scenario.words import Outcome

_OUTCOMES: Final = {
    Outcome.DELIVERED: "an endpoint of the Service answers",
    Outcome.REJECTED: "a rule of the proxy answers with an error, so the client fails at once",
    Outcome.REFUSED: "no program listens there, so the client fails at once",
    Outcome.DROPPED: "nothing answers, so the client waits until its own time-out",
    Outcome.UNTRANSLATED: "the proxy leaves the packet alone: it goes on to the address that the client dialled",
    Outcome.CLOSED: "the connection is accepted, and closed without an answer",
}


def page(found: Certificate) -> str:
    """The text of the file."""
    old, new = found.before.engine, found.after.engine
    return document(
        f"from {old} to {new}",
        "",
        tag("header", tag("h1", f"From {old} to {new}"), tag("p", headline(found))),
        tag(
            "main",
            tag("p", _about(found)),
            tag("ul", [tag("li", kept(audit)) for audit in (found.before, found.after)]),
            tag("h2", "What changes") if found.changes else tag("p", "No answer changes."),
            _overview(found) if found.changes else None,
            [_change(number, each) for number, each in enumerate(found.changes, 1)],
            _words(found) if found.changes else None,
            tag("h2", "What the lab could not decide") if found.undecided else None,
            [tag("p", f"{each.probe} on {each.engine}: {each.why}") for each in found.undecided],
            tag("h2", "Connections that are open during the change"),
            [tag("p", line) for line in switch_lines(found.switch)],
            tag("h2", "What stays"),
            _same(found),
            [tag("p", f"{service}: not asked: {why}") for service, why in found.before.undialled.items()],
            tag("h2", LEFT_OUT.capitalize()) if found.left_out else None,
            tag("ul", [tag("li", each) for each in found.left_out]) if found.left_out else None,
            tag("p", TELL_MORE) if found.left_out else None,
            class_="prose",
        ),
    )


def _about(found: Certificate) -> str:
    return (
        f"A lab with the nodes, pods and Services of {found.before.subject} ran the old proxy and then the new one on"
        " all nodes. From every kind of sender it dialled every address and port of every Service, and some beside"
        " them. This page has each answer that changes, why it does, and what to do before the change."
    )


def _overview(found: Certificate) -> Markup:
    heads = ("", "what is dialled", found.before.engine, found.after.engine, "Services", "questions")
    rows = [
        tag(
            "tr",
            tag("td", tag("a", str(number), href=f"#change-{number}")),
            tag("th", dialled(each), scope="row"),
            tag("td", each.before),
            tag("td", each.after),
            tag("td", f"{len(each.services):,}", class_="number"),
            tag("td", f"{len(each.answers):,}", class_="number"),
        )
        for number, each in enumerate(found.changes, 1)
    ]
    head = tag("tr", [tag("th", each, scope="col") for each in heads])
    return tag("div", tag("table", tag("thead", head), tag("tbody", rows)), class_="scroll")


def _change(number: int, change: CertifiedChange) -> Markup:
    return tag(
        "details",
        tag(
            "summary",
            tag("span", f"{number}. {dialled(change)}", class_="name"),
            tag("span", f"{change.before}, then {change.after}"),
        ),
        tag(
            "div",
            tag("p", concerns(change)),
            tag("ul", [tag("li", _statement(each)) for each in change.reason.statements]),
            None if change.reason.is_documented else tag("p", UNEXPLAINED, class_="why"),
            tag("p", tag("b", "What to do"), f": {change.reason.advice}"),
            class_="body",
        ),
        class_="probe",
        id=f"change-{number}",
        open=True,
    )


def _statement(statement: Statement) -> Iterator[str]:
    """What a document states leads to it; what was observed names on what."""
    if statement.because.startswith("https://"):
        yield tag("a", statement.text, href=statement.because)
    else:
        yield f"{statement.text} ({statement.because})"


def _words(found: Certificate) -> Markup:
    """What the words of the changes mean."""
    said = {word for each in found.changes for word in (*each.before.split(), *each.after.split())}
    kinds = {kind for each in found.changes for kind in each.senders}
    return tag(
        "section",
        tag("h2", "What the words mean"),
        tag(
            "dl",
            [(tag("dt", word), tag("dd", meaning)) for word, meaning in _OUTCOMES.items() if word in said],
            senders(kind for kind in SenderKind if kind in kinds),
            class_="again",
        ),
    )


def _same(found: Certificate) -> Markup:
    head = tag("tr", tag("th", "Service", scope="col"), tag("th", "same answers", scope="col"))
    body = [
        tag("tr", tag("th", service, scope="row"), tag("td", f"{count:,}", class_="number"))
        for service, count in found.same.items()
    ]
    return tag("div", tag("table", tag("thead", head), tag("tbody", body)), class_="scroll")
