"""What is told beside the packets, by HTTP.

Owns: the verdict on ``http``.
Must not: judge what became of a flow (``judge`` does).
"""

from collections import Counter

from lab.scenario.model import HttpExpect
from lab.verdict.case import Case, Findings
from lab.verdict.evidence import HttpReport
from lab.verdict.model import Verdict
from lab.verdict.words import amount

__all__ = ["judge_http"]


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
