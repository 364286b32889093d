"""The clauses under an explanation's table: the reasons or witnesses of the verdicts that decide a probe or step."""

from collections.abc import Iterator

from proxylab.text import wrapped
from proxylab.verdict.model import Judgement, ProbeVerdict, StepVerdict

__all__ = ["reasons"]

_INDENT = "  "


def reasons(verdict: ProbeVerdict | StepVerdict, width: int, rest: str | None = None) -> Iterator[str]:
    """Only those of the deciding verdicts, since the others often follow from them; with an empty line before them.

    Args:
        verdict: of a probe or a step.
        width: of the lines.
        rest: the indent of all lines of a clause but its first; by default blanks below its first word.
    """
    passes = verdict.overall is Judgement.PASS
    clauses = [
        (f"{_INDENT}{each.expectation}: ", clause)
        for each in verdict.verdicts
        if each.judgement is verdict.overall
        for clause in (each.witnesses if passes else each.reasons)
    ]
    if clauses:
        yield ""
    for expectation, clause in clauses:
        yield from wrapped(clause, expectation, rest, width)
