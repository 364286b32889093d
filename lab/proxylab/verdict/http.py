"""The verdict ``http``: the status and the local endpoints that HTTP answers report."""

from collections import Counter

from proxylab.evidence.evidence import HttpReport
from proxylab.evidence.words import amount
from proxylab.scenario.model import HttpExpect
from proxylab.verdict.case import Case, Findings
from proxylab.verdict.model import Verdict

__all__ = ["judge_http"]


def judge_http(case: Case, wanted: HttpExpect) -> Verdict:
    """Every flow got an HTTP answer with that status and that number of local endpoints."""
    findings = Findings()
    answers: dict[int, list[HttpReport]] = {flow.number: [] for flow in case.flows}
    if not {report.flow for report in case.evidence.http} <= answers.keys():
        findings.doubts_overall.append("an HTTP answer belongs to none of the probe's flows")
    for report in case.evidence.http:
        answers.get(report.flow, []).append(report)
    for flow, reports in answers.items():
        if len(reports) != 1:
            answered = f"HTTP answered it {len(reports)} times" if reports else "no HTTP request was sent"
            findings.doubts.append((flow, answered))
        for report in reports:
            if report.error == "timeout":
                findings.missing.append((flow, "no answer came by HTTP"))
            elif report.error:
                findings.wrong.append((flow, f"no answer by HTTP: the socket reports {report.error}"))
            elif report.status != wanted.status:
                findings.wrong.append((flow, f"the status was {report.status}"))
            elif wanted.local_endpoints not in (None, report.local_endpoints):
                findings.wrong.append((flow, f"it reported {_endpoints(report.local_endpoints)}"))
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
