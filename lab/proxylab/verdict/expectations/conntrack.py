"""``conntrack``, of probes and steps: whether the nodes hold the entries that the author expects, and no others.

It needs all entries of the nodes' connection tracking.
"""

from collections.abc import Iterator

from proxylab.evidence.words import amount, listed
from proxylab.scenario.expect import ConntrackExpect, Entries
from proxylab.verdict.case import Case
from proxylab.verdict.conntrack_tables import ConntrackTables, entry_words
from proxylab.verdict.findings import Expectation, Findings, Judged
from proxylab.verdict.model import Verdict
from proxylab.verdict.step_case import StepCase

_MOST_ENTRIES = 3


def _judge(subject: Judged, tables: ConntrackTables, expected: ConntrackExpect) -> Verdict:
    """The tables hold an entry that matches ``some``, and none that matches ``none``."""
    findings = Findings(subject)
    where = listed(tables.about(expected), "or")
    if tables.entries is None:
        findings.doubt(f"the connection tracking of {where} was not read")
    some, none = tables.some(expected), tables.none(expected)
    if expected.some is not None and not some:
        findings.missing(f"no entry {_kind_words(expected.some)} on {where}")
    if none:
        findings.wrong(f"{none[0].node} holds {entry_words(none[0])}")
    shown = [f"{entry_words(entry)} on {entry.node}" for entry in (*none, *some)[:_MOST_ENTRIES]]
    more = len(none) + len(some) - len(shown)
    return findings.settle(
        "conntrack",
        expected="; ".join(_expected(expected)),
        observed=", ".join(shown) + (f", {more:,} more" if more else "") if shown else "no such entry",
        witnesses=[f"the tables of {where} hold {amount(len(tables.there(expected)), 'entry')}"],
    )


def _expected(expected: ConntrackExpect) -> Iterator[str]:
    if expected.some is not None:
        yield f"some {_kind_words(expected.some)}"
    if expected.none is not None:
        yield f"none {_kind_words(expected.none)}"


def _kind_words(entries: Entries) -> str:
    parts = [] if entries.protocol is None else [f"of {entries.protocol}"]
    if entries.original_from is not None:
        parts.append(f"from {entries.original_from}")
    if entries.port is not None:
        parts.append(f"to port {entries.port}")
    if entries.reply_from is not None:
        parts.append(f"answered by {entries.reply_from}")
    if entries.masqueraded is not None:
        parts.append("with a translated source" if entries.masqueraded else "with the sender's own source")
    return " ".join(parts) or "at all"


def _as_seen(tables: ConntrackTables, expected: ConntrackExpect | None) -> str:
    left = tables.none(expected)
    if left:
        return f"conntrack on {left[0].node} still holds {entry_words(left[0])}: nothing deleted it."
    if expected is None or expected.some is None:
        return ""
    missing = f"conntrack on {listed(tables.about(expected), 'or')} has no such entry among "
    return f"{missing}{amount(len(tables.there(expected)), 'entry')}: no such flow passed there, or its entry is gone."


CONNTRACK = Expectation[Case, ConntrackExpect](
    key="conntrack",
    judge=lambda case, expected: _judge(case, case.tables, expected),
    as_seen=lambda case, _verdict: _as_seen(case.tables, case.expect.conntrack),
)

CONNTRACK_OF_STEP = Expectation[StepCase, ConntrackExpect](
    key="conntrack",
    judge=lambda case, expected: _judge(case, case.tables, expected),
    as_seen=lambda case, _verdict: _as_seen(case.tables, case.expect.conntrack),
)
