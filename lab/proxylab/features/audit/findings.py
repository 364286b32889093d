"""What an audit found: the answers, counted by Service and sender, as text and as JSON."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from msgspec import Struct

from proxylab.errors import ExitCode
from proxylab.evidence.words import amount
from proxylab.features.audit.questions import AuditQuestion
from proxylab.features.audit.senders import MEANINGS, SenderKind
from proxylab.oracle.rows import rows
from proxylab.report.failure_text import explain
from proxylab.report.view import view_of
from proxylab.text import table, wrapped
from proxylab.verdict.model import Judgement, ProbeVerdict, Verdict

_MOST_LINES: Final = 40
"""So many differences are listed; `-o json` has them all."""
NO_SERVICE: Final = "(no Service)"
NOTHING_ASKED: Final = "-"
_TITLES: Final = {
    Judgement.FAIL: "what differs:",
    Judgement.INCONCLUSIVE: "what the lab could not decide:",
    Judgement.SKIP: "what was not sent:",
}


class AuditAnswer(Struct, frozen=True):
    """A question, and the verdict on it."""

    question: AuditQuestion
    verdict: ProbeVerdict

    @property
    def judgement(self) -> Judgement:
        return self.verdict.overall

    @property
    def deciding(self) -> Verdict:
        """The verdict that decides: the first of the worst."""
        return next(each for each in self.verdict.verdicts if each.judgement is self.verdict.overall)

    @property
    def service(self) -> str:
        """The Service, for the table."""
        return self.question.service or NO_SERVICE


class Audit(Struct, frozen=True, kw_only=True):
    """An audit of one lab.

    Attributes:
        subject: the file, or the standing lab.
        engine: the proxy.
        answers: in the order of the questions.
        undialled: Services without a frontend, each with the reason.
        missing: kinds of senders that the lab does not have.
        seconds: from the first question to the last verdict.
    """

    subject: str
    engine: str
    answers: tuple[AuditAnswer, ...]
    undialled: Mapping[str, str]
    missing: tuple[SenderKind, ...]
    seconds: float

    @property
    def counts(self) -> Counter[Judgement]:
        return Counter(each.judgement for each in self.answers)

    def of(self, judgement: Judgement) -> list[AuditAnswer]:
        return [each for each in self.answers if each.judgement is judgement]

    @property
    def exit_code(self) -> ExitCode:
        """Red with a difference, or with what could not be decided."""
        if self.of(Judgement.FAIL):
            return ExitCode.FAILED
        if self.of(Judgement.INCONCLUSIVE):
            return ExitCode.INCONCLUSIVE
        return ExitCode.OK if self.answers else ExitCode.NOTHING_SELECTED

    @property
    def kinds(self) -> tuple[SenderKind, ...]:
        """The kinds of senders that were asked, in the order of the table."""
        asked = {each.question.kind for each in self.answers}
        return tuple(kind for kind in SenderKind if kind in asked)

    @property
    def by_service(self) -> Mapping[str, Mapping[SenderKind, Sequence[AuditAnswer]]]:
        """The answers by Service and kind of sender."""
        found: dict[str, dict[SenderKind, list[AuditAnswer]]] = {}
        for each in self.answers:
            found.setdefault(each.service, {}).setdefault(each.question.kind, []).append(each)
        return found


def cell(answers: Sequence[AuditAnswer]) -> str:
    """How many answers are as promised; of others, how many of all differ, or are undecided."""
    if not answers:
        return NOTHING_ASKED
    counts = Counter(each.judgement for each in answers)
    words = {Judgement.FAIL: "differ", Judgement.INCONCLUSIVE: "unclear", Judgement.SKIP: "not sent"}
    told = [f"{counts[judgement]} {word}" for judgement, word in words.items() if counts[judgement]]
    return f"{', '.join(told)} of {len(answers)}" if told else str(len(answers))


def headline(audit: Audit) -> str:
    """What was asked, and how much of it is as promised, in one sentence."""
    counts = audit.counts
    services = len({each.question.service for each in audit.answers} - {""})
    asked = f"{amount(services, 'Service')}, {amount(len(audit.answers), 'question')} in {audit.seconds:.1f} s"
    told = [f"{counts[Judgement.PASS]:,} as promised"]
    told += [f"{counts[Judgement.FAIL]:,} differ"] if counts[Judgement.FAIL] else []
    told += [f"{counts[Judgement.INCONCLUSIVE]:,} unclear"] if counts[Judgement.INCONCLUSIVE] else []
    told += [f"{counts[Judgement.SKIP]:,} not sent"] if counts[Judgement.SKIP] else []
    return f"{audit.subject} on {audit.engine}: {asked}: {', '.join(told)}"


def to_lines(audit: Audit, width: int) -> Iterator[str]:
    """The headline, the table of Services and senders, what differs, and the first failure explained."""
    yield from wrapped(headline(audit), rest="  ", width=width)
    if audit.answers:
        yield ""
        head = ("Service", *audit.kinds)
        body = [
            (service, *(cell(found.get(kind, ())) for kind in audit.kinds))
            for service, found in audit.by_service.items()
        ]
        yield from table([head, *body], "  ", width=width)
    for judgement, title in _TITLES.items():
        found = differences(audit.of(judgement))
        if found:
            yield from ("", title)
        for each in found[:_MOST_LINES]:
            yield from wrapped(each, "  ", "    ", width)
        if len(found) > _MOST_LINES:
            yield f"  and {len(found) - _MOST_LINES:,} more; -o json has all"
    for service, why in audit.undialled.items():
        yield from ("", *wrapped(f"{service}: not asked: {why}", rest="  ", width=width))
    for kind in audit.missing:
        yield from ("", *wrapped(f"not asked from: {MEANINGS[kind]}: the lab has none", rest="  ", width=width))
    failed = audit.of(Judgement.FAIL) or audit.of(Judgement.INCONCLUSIVE)
    if failed:
        yield from ("", *explain(failed[0].verdict, width))


class _WhatDiffers(NamedTuple):
    """What several answers have alike: their frontend of a Service, and what was seen there in place of the promise."""

    service: str
    frontend: str
    expectation: str
    expected: str
    observed: str


def differences(answers: Sequence[AuditAnswer]) -> list[str]:
    """What differs, a line for all senders and frontends of a Service that show the same."""
    by_what: dict[_WhatDiffers, list[AuditAnswer]] = {}
    for each in answers:
        found, question = each.deciding, each.question
        key = _WhatDiffers(each.service, question.frontend, found.expectation, found.expected, found.observed)
        by_what.setdefault(key, []).append(each)
    lines = []
    for different, alike in by_what.items():
        senders = ", ".join(dict.fromkeys(f"{each.verdict.probe.source.name} ({each.question.kind})" for each in alike))
        what = f"{different.expectation} {different.observed or 'nothing'}, promised {different.expected}"
        reasons = alike[0].deciding.reasons
        if reasons and alike[0].judgement is not Judgement.FAIL:
            what = reasons[0]
        lines.append(f"{different.service} {different.frontend} from {senders}: {what}")
    return lines


def to_json(audit: Audit) -> str:
    """The audit as a document for programs."""
    return json.dumps(
        {
            "apiVersion": "proxylab/v1",
            "kind": "AuditReport",
            "subject": audit.subject,
            "engine": audit.engine,
            "exitCode": audit.exit_code,
            "seconds": round(audit.seconds, 3),
            "counts": {judgement.value: audit.counts[judgement] for judgement in Judgement},
            "notAsked": dict(audit.undialled),
            "missingSenders": list(audit.missing),
            "questions": [_document(each) for each in audit.answers],
        },
        indent=2,
    )


def _document(answer: AuditAnswer) -> dict[str, object]:
    probe = answer.verdict.probe
    return {
        "service": answer.question.service or None,
        "frontend": answer.question.frontend,
        "kind": answer.question.kind,
        "from": probe.source.name,
        "probe": probe.name,
        "judgement": answer.judgement,
        "observed": view_of(answer.verdict).summary,
        "verdicts": [
            {
                "expectation": each.expectation,
                "judgement": each.judgement,
                "expected": each.expected,
                "observed": each.observed,
                "reasons": list(each.reasons),
                "promised": [{"text": rows()[row].text, "because": rows()[row].because} for row in each.follows],
            }
            for each in answer.verdict.verdicts
            if each.judgement is not Judgement.PASS
        ],
    }
