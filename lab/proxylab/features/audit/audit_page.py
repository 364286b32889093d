"""An audit as one HTML file: the table of Services and senders, what differs, and each difference explained."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from proxylab.features.audit.findings import NO_SERVICE, NOTHING_ASKED, Audit, AuditAnswer, cell, headline
from proxylab.features.audit.senders import MEANINGS, SenderKind
from proxylab.report.failure_text import explain
from proxylab.report.html.markup import Markup, tag, unbroken
from proxylab.report.html.page import document
from proxylab.verdict.model import UNRESOLVED, Judgement

_MOST_EXPLAINED: Final = 50
_WIDTH: Final = 110


def page(audit: Audit) -> str:
    """The text of the file."""
    unresolved = [each for each in audit.answers if each.judgement in UNRESOLVED]
    shown = unresolved[:_MOST_EXPLAINED]
    more = len(unresolved) - len(shown)
    return document(
        f"audit of {audit.subject}",
        "",
        tag("header", tag("h1", "proxylab audit"), tag("p", headline(audit))),
        tag(
            "main",
            tag("h2", "Services and senders"),
            tag("p", _about(audit)),
            tag("div", _table(audit), class_="scroll"),
            tag("dl", senders(audit.kinds), class_="again"),
            [tag("p", f"not asked from {kind}: the lab has none") for kind in audit.missing],
            tag("h2", "What differs") if shown else tag("p", "Every answer is as promised."),
            [_explained(each, is_open=not number) for number, each in enumerate(shown)],
            tag("p", f"and {more:,} more, which -o json has") if more else None,
            [tag("p", f"{service}: not asked: {why}") for service, why in audit.undialled.items()],
            class_="prose",
        ),
    )


def senders(kinds: Iterable[SenderKind]) -> Iterator[Markup]:
    """Terms of a list of definitions: the kinds of senders, and who each is."""
    for kind in kinds:
        yield tag("dt", kind)
        yield tag("dd", MEANINGS[kind])


def _about(audit: Audit) -> str:
    told = (
        f"A lab ran {audit.engine} on its nodes. From each kind of sender it dialled every address and port of every"
        " Service, and some beside them. A number counts the questions whose answer is what Kubernetes promises;"
        f' "{NOTHING_ASKED}" stands where such a sender has nothing to dial.'
    )
    if NO_SERVICE in audit.by_service:
        told += f" {NO_SERVICE} has the addresses that no Service has."
    return told


def _table(audit: Audit) -> Markup:
    columns = [tag("th", unbroken(kind), scope="col") for kind in audit.kinds]
    head = tag("tr", tag("th", "Service", scope="col"), columns)
    body = [
        tag("tr", tag("th", service, scope="row"), [_cell(found.get(kind, ())) for kind in audit.kinds])
        for service, found in audit.by_service.items()
    ]
    return tag("table", tag("thead", head), tag("tbody", body))


def _cell(answers: Sequence[AuditAnswer]) -> Markup:
    judgements = {each.judgement for each in answers}
    worst = next((each for each in (Judgement.FAIL, Judgement.INCONCLUSIVE) if each in judgements), None)
    text = cell(answers)
    return tag("td", tag("span", text, class_=f"judgement {worst}") if worst else text)


def _explained(answer: AuditAnswer, *, is_open: bool) -> Markup:
    question = answer.question
    title = f"{answer.service} {question.frontend} from {answer.verdict.probe.source.name} ({question.kind})"
    return tag(
        "details",
        tag("summary", tag("span", str(answer.judgement), class_=f"judgement {answer.judgement}"), " ", title),
        tag("pre", "\n".join(explain(answer.verdict, _WIDTH))),
        open=is_open,
    )
