"""Causes of an HTTP answer that differs: what a health check knows, and which address a controller passed on."""

from proxylab.evidence.evidence import HttpReport
from proxylab.evidence.words import amount
from proxylab.verdict.causes.failure import Failure


def health_port_knows(failure: Failure) -> str:
    """A health-check node port answers by the number of local endpoints that the proxy of its node knows."""
    report = _report(failure)
    if report is None or report.error or report.local_endpoints is None:
        return ""
    known = amount(report.local_endpoints, "local endpoint")
    return f"the proxy that serves {failure.dialled} knows of {known}, so it answers {report.status}."


def address_not_forwarded(failure: Failure) -> str:
    """The X-Forwarded-For that a pod got is missing, or is the address that the controller saw."""
    report, expect = _report(failure), failure.case.expect.http
    if report is None or report.error or expect is None or expect.forwarded_for is None or not failure.flow.arrivals:
        return ""
    controller = failure.flow.arrivals[0].netns_name
    if not report.forwarded_for:
        writes = "an Ingress controller that ends HTTP writes it, and no Service changes a header"
        return f"{controller} sent {report.backend} the request without X-Forwarded-For: {writes}."
    if not forwards_what_it_saw(failure):
        return ""
    saw = failure.flow.arrivals[0].source
    return f"{controller} saw the connection come from {saw}, and wrote that into X-Forwarded-For."


def forwards_what_it_saw(failure: Failure) -> bool:
    """Whether the pod got, as X-Forwarded-For, the source that the controller saw, and the author expects another."""
    report, expect = _report(failure), failure.case.expect.http
    if report is None or expect is None or expect.forwarded_for is None or not failure.flow.arrivals:
        return False
    named = failure.case.resolved.addresses.get(expect.forwarded_for, ())
    saw = failure.flow.arrivals[0].source
    return report.forwarded_for == str(saw) and saw not in named and expect.forwarded_for != str(saw)


def _report(failure: Failure) -> HttpReport | None:
    number = failure.verdict.example or 0
    return next((each for each in failure.case.evidence.http if each.flow == number), None)
