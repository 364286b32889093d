"""What is told beside the packets: the answers of HTTP, and the tables of connection tracking.

Owns: the verdicts on ``http`` and ``conntrack``.
Must not: judge what became of a flow (``judge`` does).
"""

from collections import Counter
from collections.abc import Iterator
from ipaddress import ip_address

from lab.ip import IPAddress
from lab.scenario.model import ConntrackExpect, Entries, HttpExpect
from lab.verdict.case import Case, Findings
from lab.verdict.evidence import HttpReport, TableEntry
from lab.verdict.model import Verdict
from lab.verdict.words import amount, endpoint, listed

__all__ = ["entry_words", "expected_entries", "judge_conntrack", "judge_http", "unwanted_entry"]

_MOST_ENTRIES = 3


def judge_http(case: Case, wanted: HttpExpect) -> Verdict:
    """Every flow was answered with that status, and told that number of local endpoints."""
    findings = Findings()
    answers = {report.flow: report for report in case.evidence.http}
    for flow in case.flows:
        report = answers.get(flow.number)
        if report is None:
            findings.doubts.append((flow.number, "nothing was asked by HTTP"))
        elif report.error == "timeout":
            findings.missing.append((flow.number, "no answer came by HTTP"))
        elif report.error:
            findings.wrong.append((flow.number, f"no answer by HTTP: the socket says {report.error}"))
        elif report.status != wanted.status:
            findings.wrong.append((flow.number, f"the status was {report.status}"))
        elif wanted.local_endpoints not in (None, report.local_endpoints):
            findings.wrong.append((flow.number, f"it told of {_endpoints(report.local_endpoints)}"))
    seen = Counter(_answer(report) for report in case.evidence.http)
    return findings.settle(
        case,
        "http",
        expected=_shown(wanted.status, wanted.local_endpoints),
        observed=", ".join(f"{count:,} x {what}" if len(seen) > 1 else what for what, count in seen.most_common())
        or "none",
        silence=case.silence,
        witnesses=[f"{amount(len(answers), 'flow')} answered by HTTP"],
    )


def _answer(report: HttpReport) -> str:
    return report.error or _shown(report.status, report.local_endpoints)


def _shown(status: int, local_endpoints: int | None) -> str:
    return f"{status}" if local_endpoints is None else f"{status}, {_endpoints(local_endpoints)}"


def _endpoints(number: int | None) -> str:
    return "no number of local endpoints" if number is None else amount(number, "local endpoint")


def judge_conntrack(case: Case, wanted: ConntrackExpect) -> Verdict:
    """The tables hold an entry of the one kind, and none of the other."""
    findings = Findings()
    nodes = _nodes(case, wanted)
    where = listed(nodes, "or")
    if case.evidence.entries is None:
        findings.doubts_overall.append(f"the connection tracking of {where} was not read")
    entries = [entry for entry in case.evidence.entries or () if entry.node in nodes]
    some = expected_entries(case, wanted)
    none = [] if wanted.none is None else [entry for entry in entries if _fits(case, entry, wanted.none)]
    if wanted.some is not None and not some:
        findings.missing_overall.append(f"no entry {_kind(wanted.some)} on {where}")
    if none:
        findings.wrong_overall.append(f"{entry_words(none[0])} stands on {none[0].node}")
    shown = [f"{entry_words(entry)} on {entry.node}" for entry in (*none, *some)[:_MOST_ENTRIES]]
    more = len(none) + len(some) - len(shown)
    return findings.settle(
        case,
        "conntrack",
        expected="; ".join(_expected(wanted)),
        observed=", ".join(shown) + (f", {more:,} more" if more else "") if shown else "no such entry",
        witnesses=[f"the tables of {where} hold {amount(len(entries), 'entry').replace('entrys', 'entries')}"],
    )


def unwanted_entry(case: Case, wanted: ConntrackExpect) -> TableEntry | None:
    """An entry of which the author expects that there is none."""
    nodes = _nodes(case, wanted)
    entries = (entry for entry in case.evidence.entries or () if entry.node in nodes)
    return next((entry for entry in entries if wanted.none and _fits(case, entry, wanted.none)), None)


def expected_entries(case: Case, wanted: ConntrackExpect | None) -> list[TableEntry]:
    """Those entries of which the author expects that there is one."""
    if wanted is None or wanted.some is None:
        return []
    nodes = _nodes(case, wanted)
    entries = [entry for entry in case.evidence.entries or () if entry.node in nodes]
    return [entry for entry in entries if _fits(case, entry, wanted.some)]


def _nodes(case: Case, wanted: ConntrackExpect) -> tuple[str, ...]:
    return (wanted.node,) if wanted.node is not None else case.errand.nodes


def _expected(wanted: ConntrackExpect) -> Iterator[str]:
    if wanted.some is not None:
        yield f"some {_kind(wanted.some)}"
    if wanted.none is not None:
        yield f"none {_kind(wanted.none)}"


def _kind(entries: Entries) -> str:
    parts = []
    if entries.original_from is not None:
        parts.append(f"from {entries.original_from}")
    if entries.port is not None:
        parts.append(f"to port {entries.port}")
    if entries.reply_from is not None:
        parts.append(f"answered by {entries.reply_from}")
    if entries.masqueraded is not None:
        parts.append("whose source was translated" if entries.masqueraded else "whose source was left alone")
    return " ".join(parts) or "at all"


def entry_words(entry: TableEntry) -> str:
    """An entry: who dialled what, and who answers."""
    flow = f"{endpoint(entry.source, entry.source_port)} > {endpoint(entry.destination, entry.destination_port)}"
    answered = f"{flow}, answered by {endpoint(entry.reply_source, entry.reply_source_port)}"
    if not _is_masqueraded(entry):
        return answered
    return f"{answered} to {endpoint(entry.reply_destination, entry.reply_destination_port)}"


def _is_masqueraded(entry: TableEntry) -> bool:
    """Whether answers go elsewhere than to where the first packet came from."""
    return (entry.reply_destination, entry.reply_destination_port) != (entry.source, entry.source_port)


def _fits(case: Case, entry: TableEntry, wanted: Entries) -> bool:
    return (
        (wanted.reply_from is None or entry.reply_source in _addresses(case, wanted.reply_from))
        and (wanted.original_from is None or entry.source in _addresses(case, wanted.original_from))
        and wanted.port in (None, entry.destination_port)
        and wanted.masqueraded in (None, _is_masqueraded(entry))
    )


def _addresses(case: Case, name: str) -> tuple[IPAddress, ...]:
    """Those of a name of the scenario, or the one that is written."""
    known = case.errand.addresses.get(name)
    if known is not None:
        return known
    try:
        return (ip_address(name),)
    except ValueError:
        return ()
