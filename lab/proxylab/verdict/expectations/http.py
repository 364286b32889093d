"""``http``: the status and the local endpoints that HTTP answers report. It needs a report of each flow's socket."""

from collections import Counter

from proxylab.evidence.evidence import HttpReport
from proxylab.evidence.words import amount, endpoint
from proxylab.scenario.expect import HttpExpect
from proxylab.verdict.case import JudgedProbe
from proxylab.verdict.expectations.expectation import Expectation
from proxylab.verdict.findings import Findings
from proxylab.verdict.model import Verdict

__all__ = ["HTTP"]


def _judge(case: JudgedProbe, wanted: HttpExpect) -> Verdict:
    """Every flow got an HTTP answer with that status and that number of local endpoints."""
    findings = Findings(case)
    answers: dict[int, list[HttpReport]] = {flow.number: [] for flow in case.flows}
    if not {report.flow for report in case.evidence.http} <= answers.keys():
        findings.doubt("an HTTP answer belongs to none of the probe's flows")
    for report in case.evidence.http:
        answers.get(report.flow, []).append(report)
    for flow, reports in answers.items():
        if len(reports) != 1:
            findings.doubt(f"HTTP answered it {len(reports)} times" if reports else "no HTTP request was sent", flow)
        for report in reports:
            if report.error == "timeout":
                findings.missing("no answer came by HTTP", flow)
            elif report.error:
                findings.wrong(f"no answer by HTTP: the socket reports {report.error}", flow)
            elif report.status != wanted.status:
                findings.wrong(f"the status was {report.status}", flow)
            elif wanted.local_endpoints not in (None, report.local_endpoints):
                findings.wrong(f"it reported {_endpoints(report.local_endpoints)}", flow)
    seen = Counter(report.error or _shown(report.status, report.local_endpoints) for report in case.evidence.http)
    return findings.settle(
        "http",
        expected=_shown(wanted.status, wanted.local_endpoints),
        observed=", ".join(f"{count:,} x {what}" if len(seen) > 1 else what for what, count in seen.most_common())
        or "none",
        silence=case.silence,
        witnesses=[f"{amount(len(answers), 'flow')} answered by HTTP"],
    )


def _shown(status: int, local_endpoints: int | None) -> str:
    return f"{status}" if local_endpoints is None else f"{status}, {_endpoints(local_endpoints)}"


def _endpoints(number: int | None) -> str:
    return "no number of local endpoints" if number is None else amount(number, "local endpoint")


def _as_seen(case: JudgedProbe, verdict: Verdict) -> str:
    report = next((each for each in case.evidence.http if each.flow == (verdict.example or 0)), None)
    if report is None:
        return ""
    if report.error:
        return f"{endpoint(*case.dialled)} did not answer {case.resolved.sender.name} by HTTP: {report.error}."
    return f"{endpoint(*case.dialled)} answered with status {report.status}."


HTTP = Expectation[JudgedProbe, HttpExpect](
    key="http", wanted=lambda case: case.probe.expect.http, judge=_judge, as_seen=_as_seen
)
