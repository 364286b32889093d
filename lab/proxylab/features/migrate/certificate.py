"""``Certificate``: what an audit of one proxy and one of another proxy say together.

A question has one answer on each. Answers are the same if both are judged alike, and what was seen is the same wherever
chance plays no part. Questions whose answers differ alike, for the same reason, are one ``CertifiedChange``.
"""

import re
from collections import Counter
from collections.abc import Mapping
from typing import Final, NamedTuple

from msgspec import Struct

from proxylab.engines.engine_names import mode_of
from proxylab.errors import ExitCode
from proxylab.features.audit.findings import Audit, AuditAnswer
from proxylab.features.audit.senders import SenderKind
from proxylab.features.migrate.open_connections import ConnectionFate, Switch
from proxylab.features.migrate.reasons import ReasonOfChange, departed, promised_otherwise
from proxylab.verdict.model import Judgement, Verdict

_BY_CHANCE: Final = frozenset({"backends", "endpoint", "spread"})
"""What is observed of these is random for each flow, so only the judgement is compared."""
_NUMBER: Final = re.compile(r" \d+(?=,|$)")
"""A number of flows behind what they showed."""
_ADDRESSES: Final = re.compile(r" \([^)]*\)")
"""The addresses of a masquerading node, in the order in which flows came."""
_UNDECIDED: Final = (Judgement.INCONCLUSIVE, Judgement.SKIP)


class CertifiedChange(Struct, frozen=True, kw_only=True):
    """What differs between two proxies, alike at some frontends of some Services.

    Attributes:
        before: what the old proxy does, in a few words; ``after`` what the new one does.
        reason: why.
        answers: of the old and the new proxy to each question.
    """

    before: str
    after: str
    reason: ReasonOfChange
    answers: tuple[tuple[AuditAnswer, AuditAnswer], ...]

    @property
    def services(self) -> tuple[str, ...]:
        """NAMESPACE/NAME of each; none for an address that no Service has."""
        return tuple(dict.fromkeys(each.question.service for each, _ in self.answers if each.question.service))

    @property
    def frontends(self) -> tuple[str, ...]:
        """What is dialled, in words."""
        return tuple(dict.fromkeys(each.question.frontend for each, _ in self.answers))

    @property
    def senders(self) -> Mapping[SenderKind, int]:
        """The kinds of senders that it concerns, and how many questions each asked."""
        return Counter(each.question.kind for each, _ in self.answers)


class Undecided(Struct, frozen=True):
    """A question that a lab could not decide, on one proxy at least, and why."""

    service: str
    probe: str
    engine: str
    why: str


class Certificate(Struct, frozen=True, kw_only=True):
    """What changes when one proxy takes over from another one.

    Attributes:
        before: the audit of the old proxy; ``after`` that of the new one.
        changes: in the order of the questions.
        same: how many questions have the same answer on both, by what the table of an audit calls their Service.
        undecided: what the lab could not decide.
        switch: what became of connections that were open while the new proxy took over.
        left_out: what the lab lacks of the cluster whose dump it read, or has in another way.
    """

    before: Audit
    after: Audit
    changes: tuple[CertifiedChange, ...]
    same: Mapping[str, int]
    undecided: tuple[Undecided, ...]
    switch: Switch = Switch(untried="they were not asked for")
    left_out: tuple[str, ...] = ()

    @property
    def services(self) -> tuple[str, ...]:
        """The Services that something changes for."""
        return tuple(dict.fromkeys(service for each in self.changes for service in each.services))

    @property
    def exit_code(self) -> ExitCode:
        """Red with a change, or with what could not be decided."""
        if self.changes or self.switch.of(ConnectionFate.ENDS) or self.switch.of(ConnectionFate.DISTURBED):
            return ExitCode.FAILED
        if self.undecided or self.switch.of(ConnectionFate.UNDECIDED):
            return ExitCode.INCONCLUSIVE
        return ExitCode.OK if self.same else ExitCode.NOTHING_SELECTED


class _Change(NamedTuple):
    """What several answers have alike: what was seen before and after, in words, and why it may differ."""

    before: str
    after: str
    reason: ReasonOfChange


def certificate_of(before: Audit, after: Audit) -> Certificate:
    """Compare the answers of two audits that asked the same questions."""
    there = {each.verdict.probe.name: each for each in after.answers}
    alike: dict[_Change, list[tuple[AuditAnswer, AuditAnswer]]] = {}
    same, undecided = Counter[str](), list[Undecided]()
    for old in before.answers:
        new = there[old.verdict.probe.name]
        both = (before.engine, old), (after.engine, new)
        if is_open := [(engine, each) for engine, each in both if each.judgement in _UNDECIDED]:
            undecided += (
                Undecided(old.service, old.verdict.probe.name, engine, "; ".join(each.deciding.reasons[:1]))
                for engine, each in is_open
            )
        elif _seen(old) == _seen(new):
            same[old.service] += 1
        else:
            here, now = _first_difference(old, new)
            key = _Change(_words(here), _words(now), _reason(before.engine, after.engine, here, now))
            alike.setdefault(key, []).append((old, new))
    changes = (
        CertifiedChange(before=each.before, after=each.after, reason=each.reason, answers=tuple(answers))
        for each, answers in alike.items()
    )
    return Certificate(before=before, after=after, changes=tuple(changes), same=dict(same), undecided=tuple(undecided))


def _seen(answer: AuditAnswer) -> dict[str, tuple[str, str]]:
    """What each expectation says of an answer. How flows spread over endpoints and addresses is chance."""
    return {each.expectation: (each.judgement, _words(each)) for each in answer.verdict.verdicts}


def _words(verdict: Verdict) -> str:
    """What was seen, without numbers of flows: what was promised where it came so."""
    if verdict.judgement is Judgement.PASS:
        return f"{verdict.expectation} {_ADDRESSES.sub('', verdict.expected)}"
    seen = "otherwise" if verdict.expectation in _BY_CHANCE else _NUMBER.sub("", verdict.observed) or "nothing"
    return f"{verdict.expectation} {seen}"


def _first_difference(old: AuditAnswer, new: AuditAnswer) -> tuple[Verdict, Verdict]:
    """The first expectation that both have and that differs; the outcome comes first of all."""
    here, there = ({each.expectation: each for each in answer.verdict.verdicts} for answer in (old, new))
    seen = _seen(old), _seen(new)
    both = [key for key in here if key in there]
    found = next((key for key in both if seen[0][key] != seen[1][key]), both[0])
    return here[found], there[found]


def _reason(old_engine: str, new_engine: str, old: Verdict, new: Verdict) -> ReasonOfChange:
    failed = [each.judgement is Judgement.FAIL for each in (old, new)]
    if not any(failed) and (reason := promised_otherwise(old.follows, new.follows)):
        return reason
    if old.expected != new.expected and (reason := promised_otherwise(old.follows, new.follows)):
        return reason
    modes = [mode_of(engine) for engine in (old_engine, new_engine)]
    return departed(
        new.follows if failed[1] else old.follows,
        before=modes[0] if failed[0] else "",
        after=modes[1] if failed[1] else "",
    )
