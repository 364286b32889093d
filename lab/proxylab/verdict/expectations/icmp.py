"""``icmp``: which ICMP error rejected the flows. It needs the tap at the sender."""

from proxylab.evidence.words import listed
from proxylab.scenario.words import IcmpError
from proxylab.verdict.case import Case
from proxylab.verdict.expectations.expectation import Expectation
from proxylab.verdict.findings import Findings
from proxylab.verdict.icmp_errors import icmp_words, rejecting_error
from proxylab.verdict.model import Verdict


def _judge(case: Case, expected: IcmpError) -> Verdict:
    """Each flow was rejected by that error."""
    findings, heard = Findings(case), dict[str, None]()
    for flow in case.flows:
        errors = (*flow.unreachables, *flow.errors)
        heard |= dict.fromkeys(map(icmp_words, errors))
        others = [icmp_words(each) for each in errors if rejecting_error(each) is not expected]
        if others:
            findings.wrong(f"{case.resolved.sender.name} heard {listed(others)}", flow.number)
        elif not errors:
            findings.missing(f"{case.resolved.sender.name} heard no ICMP error", flow.number)
    return findings.settle(
        "icmp", expected=expected.replace("-", " "), observed=listed(list(heard)), may_be_late=case.may_be_late
    )


ICMP = Expectation[Case, IcmpError](key="icmp", expected=lambda case: case.probe.expect.icmp, judge=_judge)
