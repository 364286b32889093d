"""When engines differ, and how that is told."""

from golden_words import Told
from made_steps import all_well, entry_remains
from msgspec.structs import replace
from probed import CASES

from proxylab.cli.diff import differ, difference_lines
from proxylab.report.step_timeline import timeline
from proxylab.verdict.model import Judgement, StepVerdict, Verdict


def seen_otherwise(verdict: StepVerdict, judgement: Judgement) -> StepVerdict:
    def other(each: Verdict) -> Verdict:
        return replace(each, observed="another number", judgement=judgement)

    return replace(verdict, verdicts=tuple(map(other, verdict.verdicts)))


def test_a_probe_differs_by_what_became_of_it() -> None:
    assert not differ({"a": CASES["dropped"](), "b": CASES["dropped"]()})
    assert differ({"a": CASES["dropped"](), "b": CASES["delivered-instead-of-dropped"]()})


def test_a_step_differs_by_what_is_expected_and_how_that_is_judged() -> None:
    well = all_well()
    assert not differ({"a": well, "b": seen_otherwise(well, Judgement.PASS)})
    assert differ({"a": well, "b": seen_otherwise(well, Judgement.FAIL)})
    first, *others = well.verdicts
    assert differ({"a": well, "b": replace(well, verdicts=(replace(first, expected="5 at least"), *others))})


def test_of_a_step_what_happened_is_told() -> None:
    verdict = entry_remains()
    lines = list(difference_lines({"one": verdict}, {"one": timeline(verdict)[1:]}))
    assert lines[0] == f"{verdict.step.position}: {verdict.step.name}"
    assert lines[1].startswith("  one  fail: ")
    happened = lines.index("  what happened on one:")
    assert all(line.startswith("       ") for line in lines[2:happened]), "the rest of what was observed"
    assert lines[happened + 1].split() == ["ms"]


def test_of_a_probe_that_no_rule_saw_that_is_told(told: Told) -> None:
    lines = list(difference_lines({"one": CASES["dropped"]()}, {"one": ()}))
    assert lines[-2:] == told()
