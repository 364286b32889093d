"""One probe or step in the HTML report. An entry is plain text, so an xdist worker can send it to the controller."""

from textwrap import dedent
from typing import Final

from proxylab.encoding import Record
from proxylab.evidence.words import amount
from proxylab.oracle.rows import OracleRow, rows
from proxylab.report.failure_text import command, explain, sent_line, summary
from proxylab.report.html.ladder import ladder
from proxylab.report.html.markup import Markup, joined, tag, unbroken
from proxylab.report.html.shares import shares
from proxylab.report.html.timeline import timeline
from proxylab.report.informative_rules import action_of, informative_rules
from proxylab.report.trace_text import journey
from proxylab.scenario.words import HOST
from proxylab.verdict.case import Case
from proxylab.verdict.causes.table import why
from proxylab.verdict.counted_rules import CountedRule
from proxylab.verdict.model import Judgement, ProbeVerdict, ScenarioResult, StepVerdict, Verdict
from proxylab.verdict.rule_words import short

_MOST_RULES: Final = 30
_UNBROKEN: Final = 1000
"""The width of lines that the browser breaks, at the width of their box."""

_DEEPEST: Final = 4
"""The number of indentations that the style sheet defines, in steps of two blanks."""


class Heading(Record, frozen=True, kw_only=True):
    """The section of an entry: the run of a scenario, or of one case of it, on an engine.

    ``engine`` also names a kernel that is not the machine's, and ``kernel`` is then its release. ``binary`` says which
    one ran as the proxy; it is empty for an embedded engine.
    """

    file: str
    engine: str
    kernel: str = ""
    binary: str = ""
    case: str = ""
    scenario: str = ""
    description: str = ""
    tags: tuple[str, ...] = ()


class PageEntry(Record, frozen=True, kw_only=True):
    """A probe or step, or the error or skip of a whole scenario.

    Attributes:
        heading: its section.
        name: the probe's name, without its case.
        judgement: the worst of its verdicts.
        summary: the observation in one line.
        body: HTML.
    """

    heading: Heading
    name: str
    judgement: Judgement
    seconds: float
    summary: str
    body: str


def entries_of(result: ScenarioResult) -> list[PageEntry]:
    """The entries of a scenario's run: its probes and steps, and its error or skip."""
    heading = Heading(
        file=result.file,
        engine=result.engine_on_kernel,
        kernel=result.release if result.kernel != HOST else "",
        binary=str(result.binary or ""),
        case=result.case,
        scenario=result.name,
        description=result.description,
        tags=result.tags,
    )
    found = [entry(heading, judged) for judged in result.judged]
    if result.skipped is not None:
        lack = f"needs {result.skipped.missing}; {result.skipped.cure}"
        found.append(message(heading, "skipped", Judgement.SKIP, lack, result.seconds))
    if result.foreseen is not None:
        found.append(message(heading, "the engine fails", Judgement.PASS, str(result.foreseen), result.seconds))
    if result.fault is not None:
        found.append(message(heading, "ended by an error", Judgement.FAIL, result.fault.message, result.seconds))
    return found


def message(heading: Heading, name: str, judgement: Judgement, text: str, seconds: float = 0.0) -> PageEntry:
    """An entry without a verdict, such as an error or a skip."""
    first, _, more = text.partition("\n")
    body = tag("pre", text, tabindex=0) if more else tag("p", text)
    return PageEntry(heading=heading, name=name, judgement=judgement, seconds=seconds, summary=first, body=str(body))


def entry(heading: Heading, judged: ProbeVerdict | StepVerdict) -> PageEntry:
    """The entry of a judged probe or step."""
    return _of_step(heading, judged) if isinstance(judged, StepVerdict) else _of_probe(heading, judged)


def _of_step(heading: Heading, judged: StepVerdict) -> PageEntry:
    """A step: its verdicts, its timeline, and the explanation in words."""
    evidence = judged.evidence
    return PageEntry(
        heading=heading,
        name=judged.step.name.removesuffix(f"[{heading.case}]") if heading.case else judged.step.name,
        judgement=judged.overall,
        seconds=(evidence.ended - evidence.began) / 1e9,
        summary=_reason(judged) or summary(judged),
        body=str(
            joined(
                _verdicts(judged),
                timeline(judged),
                tag(
                    "details",
                    tag("summary", "The whole explanation"),
                    tag("pre", "\n".join(explain(judged)), tabindex=0),
                    class_="trace",
                ),
                _again(judged),
            )
        ),
    )


def _of_probe(heading: Heading, probed: ProbeVerdict) -> PageEntry:
    name = probed.probe.name.removesuffix(f"[{heading.case}]") if heading.case else probed.probe.name
    return PageEntry(
        heading=heading,
        name=name,
        judgement=probed.overall,
        seconds=probed.evidence.seconds,
        summary=_reason(probed) or summary(probed),
        body=str(_body(probed)),
    )


def _reason(probed: ProbeVerdict | StepVerdict) -> str:
    """The first reason of the worst verdict; empty for a pass."""
    if probed.overall is Judgement.PASS:
        return ""
    deciding = (each for each in probed.verdicts if each.judgement is probed.overall)
    return next((reason for each in deciding for reason in each.reasons), "")


def _body(probed: ProbeVerdict) -> Markup:
    case, cause = probed.case, why(probed)
    shown = next((each.example for each in probed.verdicts if each.judgement is probed.overall), None)
    return joined(
        tag("p", sent_line(probed), class_="intent"),
        tag("p", tag("b", "Why: "), cause, class_="why") if cause else None,
        _verdicts(probed),
        ladder(case, probed, shown or 0),
        shares(case),
        rules(case, probed),
        traced(probed),
        _again(probed),
    )


def _verdicts(probed: ProbeVerdict | StepVerdict) -> Markup:
    head = tag("tr", [tag("th", word, scope="col") for word in ("", "expectation", "expected", "observed")])
    return tag(
        "div",
        tag(
            "table",
            tag("thead", head),
            tag("tbody", [_verdict(each) for each in probed.verdicts]),
            class_="verdicts",
        ),
        class_="scroll",
    )


def _verdict(verdict: Verdict) -> Markup:
    notes = verdict.witnesses if verdict.judgement is Judgement.PASS else verdict.reasons
    word = str(verdict.judgement)
    return tag(
        "tr",
        tag("td", tag("span", word, class_=f"judgement {word}")),
        tag("th", verdict.expectation, scope="row"),
        tag("td", unbroken(verdict.expected), [_promised(rows()[each]) for each in verdict.follows]),
        tag("td", unbroken(verdict.observed), [tag("span", unbroken(note), class_="note") for note in notes]),
    )


def _promised(row: OracleRow) -> Markup:
    """A fact from which the expectation follows, with its document."""
    if not row.source:
        return tag("span", unbroken(f"{row.text} ({row.because})"), class_="note")
    return tag("span", tag("a", row.text, href=row.source), class_="note")


def _again(probed: ProbeVerdict | StepVerdict) -> Markup:
    """The position in the file, the command to run it again, and the path of its evidence."""
    written = probed.step if isinstance(probed, StepVerdict) else probed.probe
    rows = [("written at", str(written.position)), ("run again", " ".join(command(probed)).rstrip())]
    if probed.bundle:
        rows.append(("evidence", probed.bundle))
    return tag("dl", [joined(tag("dt", word), tag("dd", tag("code", text))) for word, text in rows], class_="again")


def rules(case: Case, probed: ProbeVerdict) -> Markup | None:
    """A table of the relevant rules that counted packets, with their texts; ``None`` if there are none."""
    found = informative_rules(case, probed.traced)
    if not found:
        return None
    head = tag(
        "tr",
        [tag("th", word, scope="col", class_=kind) for word, kind in _COLUMNS],
    )
    others = len(case.evidence.counts) - min(len(found), _MOST_RULES)
    return tag(
        "details",
        tag("summary", f"{amount(min(len(found), _MOST_RULES), 'rule')} of Services, and what they did"),
        tag(
            "div",
            tag("table", tag("thead", head), tag("tbody", [_row(rule, case) for rule in found[:_MOST_RULES]])),
            class_="scroll",
        ),
        tag("p", f"and {amount(others, 'more rule')} that counted a packet", class_="said") if others > 0 else None,
        class_="rules",
    )


_COLUMNS: Final = (("on", ""), ("packets", "number"), ("rule in", ""), ("what it did", ""))


def _row(rule: CountedRule, case: Case) -> Markup:
    count = rule.count
    text = f"-t {count.table} {count.text}" if count.text.startswith("-A ") else count.text
    return tag(
        "tr",
        tag("td", count.node),
        tag("td", f"{count.packets:,}", class_="number"),
        tag("td", tag("code", short(count.chain), title=count.chain)),
        tag("td", action_of(rule, case), tag("code", text, class_="rule") if text else None),
    )


def traced(probed: ProbeVerdict) -> Markup | None:
    """The path of the traced packet, which is sent after the probe; ``None`` without one."""
    lines = journey(probed.resolved, probed.traced, _UNBROKEN) if probed.traced is not None else ()
    if not lines:
        return None
    return tag(
        "details",
        tag("summary", "One more packet, followed through every rule"),
        tag("pre", [_line(each) for each in dedent("\n".join(lines[1:])).splitlines()], tabindex=0),
        class_="trace",
    )


def _line(text: str) -> Markup:
    """A line; what the browser breaks off is indented further."""
    depth = (len(text) - len(text.lstrip(" "))) // 2
    return tag("span", text, "\n", class_=f"line-of-trace i{min(depth, _DEEPEST)}")
