"""The rules that counted packets of a probe, and the trace of one more packet, in closed sections."""

from textwrap import dedent
from typing import Final

from proxylab.evidence.words import amount
from proxylab.report.html.markup import Markup, tag
from proxylab.report.informative_rules import action_of, informative_rules
from proxylab.report.trace_text import journey
from proxylab.verdict.case import JudgedProbe
from proxylab.verdict.counted_rules import Rule
from proxylab.verdict.model import ProbeVerdict
from proxylab.verdict.rule_words import short

__all__ = ["rules", "traced"]

_MOST_RULES: Final = 30
_UNBROKEN: Final = 1000
"""The width of lines that the browser breaks, at the width of their box."""

_DEEPEST: Final = 4
"""The number of indentations that the style sheet defines, in steps of two blanks."""


def rules(case: JudgedProbe, probed: ProbeVerdict) -> Markup | None:
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


def _row(rule: Rule, case: JudgedProbe) -> Markup:
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
