"""``also``: the promises leave open what must happen, so nothing but the author's own keys can judge the probe."""

from proxylab.verdict.case import Case, fates_text
from proxylab.verdict.expectations.expectation import Expectation, Needs
from proxylab.verdict.findings import Findings
from proxylab.verdict.model import Verdict


def _judge(case: Case, why: str) -> Verdict:
    findings = Findings(case)
    findings.doubt(f"the promises of Kubernetes do not say what must happen: {why}; write the expected result")
    return findings.settle("also", expected="what Kubernetes promises", observed=fates_text(case))


UNDECIDED = Expectation[Case, str](
    key="also",
    expected=lambda case: case.probe.expect.undecided or None,
    judge=_judge,
    needs=Needs.NOTHING,
)
