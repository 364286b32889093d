"""One probe or step in the HTML report. An entry is plain text, so an xdist worker can send it to the controller."""

from collections.abc import Iterator
from textwrap import dedent
from typing import Final

from proxylab.encoding import Record
from proxylab.evidence.words import amount
from proxylab.oracle.rows import OracleRow, rows
from proxylab.report.failure_text import explain
from proxylab.report.html.ladder import ladder
from proxylab.report.html.markup import Markup, joined, tag, unbroken
from proxylab.report.html.shares import shares
from proxylab.report.html.timeline import timeline
from proxylab.report.trace_text import journey
from proxylab.report.view import ProbeView, StepView, view_of
from proxylab.scenario.words import HOST
from proxylab.verdict.counted_rules import CountedRule, short
from proxylab.verdict.model import Judgement, ProbeVerdict, ScenarioResult, StepVerdict, Verdict

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
    view = view_of(judged)
    name = judged.written.name
    reason = next(iter(reasons_of(view)), "")
    return PageEntry(
        heading=heading,
        name=name.removesuffix(f"[{heading.case}]") if heading.case else name,
        judgement=view.judgement,
        seconds=judged.seconds,
        summary=reason or view.summary,
        body=str(_step(view) if isinstance(view, StepView) else _probe(view)),
    )


def reasons_of(view: ProbeView | StepView) -> Iterator[str]:
    """The reasons of the worst verdicts, as the judge gave them; none for a pass."""
    for each in view.deciding if view.judgement is not Judgement.PASS else ():
        yield from each.reasons


def _step(view: StepView) -> Markup:
    """A step: its verdicts, its timeline, and the explanation in words."""
    return joined(
        _verdicts(view),
        timeline(view.verdict),
        tag(
            "details",
            tag("summary", "The whole explanation"),
            tag("pre", "\n".join(explain(view.verdict)), tabindex=0),
            class_="trace",
        ),
        _again(view),
    )


def _probe(view: ProbeView) -> Markup:
    return joined(
        tag("p", view.sent, class_="intent"),
        tag("p", tag("b", "Why: "), view.cause, class_="why") if view.cause else None,
        _verdicts(view),
        _frame(view),
        ladder(view),
        shares(view),
        rules(view),
        traced(view.verdict),
        _again(view),
    )


def _verdicts(view: ProbeView | StepView) -> Markup:
    head = tag("tr", [tag("th", word, scope="col") for word in ("", "expectation", "expected", "observed")])
    return tag(
        "div",
        tag(
            "table",
            tag("thead", head),
            tag("tbody", [_verdict(each) for each in view.verdict.verdicts]),
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


def _frame(view: ProbeView) -> Markup | None:
    """The packet that came otherwise than expected, beside the expected one."""
    found = view.frame
    if found is None:
        return None
    head = tag("tr", [tag("th", word, scope="col") for word in ("", "expected", "observed")])
    rows = [
        tag(
            "tr",
            tag("th", each.name, scope="row"),
            tag("td", tag("code", each.expected)),
            tag("td", tag("mark" if each.differs else "code", each.observed)),
        )
        for each in found.fields
    ]
    return tag(
        "div",
        tag("p", found.title, class_="said"),
        tag("table", tag("thead", head), tag("tbody", rows), class_="verdicts"),
        class_="scroll",
    )


def _again(view: ProbeView | StepView) -> Markup:
    """The position in the file, the command to run it again, and the path of its evidence."""
    rows = [("written at", str(view.verdict.written.position)), ("run again", str(view.command))]
    if view.verdict.bundle:
        rows.append(("evidence", view.verdict.bundle))
    return tag("dl", [joined(tag("dt", word), tag("dd", tag("code", text))) for word, text in rows], class_="again")


def rules(view: ProbeView) -> Markup | None:
    """A table of the relevant rules that counted packets, with their texts; ``None`` if there are none."""
    shown = view.rules[:_MOST_RULES]
    if not shown:
        return None
    head = tag(
        "tr",
        [tag("th", word, scope="col", class_=kind) for word, kind in _COLUMNS],
    )
    others = len(view.verdict.evidence.counts) - len(shown)
    return tag(
        "details",
        tag("summary", f"{amount(len(shown), 'rule')} of Services, and what they did"),
        tag(
            "div",
            tag("table", tag("thead", head), tag("tbody", [_row(rule, action) for rule, action in shown])),
            class_="scroll",
        ),
        tag("p", f"and {amount(others, 'more rule')} that counted a packet", class_="said") if others > 0 else None,
        class_="rules",
    )


_COLUMNS: Final = (("on", ""), ("packets", "number"), ("rule in", ""), ("what it did", ""))


def _row(rule: CountedRule, action: str) -> Markup:
    count = rule.count
    text = f"-t {count.table} {count.text}" if count.text.startswith("-A ") else count.text
    return tag(
        "tr",
        tag("td", count.node),
        tag("td", f"{count.packets:,}", class_="number"),
        tag("td", tag("code", short(count.chain), title=count.chain)),
        tag("td", action, tag("code", text, class_="rule") if text else None),
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
