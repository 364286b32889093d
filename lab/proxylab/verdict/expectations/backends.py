"""``backends``: which pods the flows reached. It needs the taps at the pods."""

from proxylab.evidence.words import amount, counted, listed
from proxylab.scenario.model import Spread
from proxylab.statistics import flows_to_hit_all
from proxylab.verdict.case import Case
from proxylab.verdict.expectations.expectation import Expectation, Needs
from proxylab.verdict.findings import Findings
from proxylab.verdict.model import Verdict

__all__ = ["BACKENDS"]


def _judge(case: Case, expected: tuple[str, ...]) -> Verdict:
    """The flows reached exactly the pods in ``expected``.

    The proxy picks a backend by chance, so few flows need not reach all of them. Only from ``flows_to_hit_all`` flows
    on does a backend without a flow count as missing; below that the verdict says so. With session affinity the proxy
    chooses once for each client. A client of a headless Service's name dials one pod; ``name`` checks that the name
    gives all of them.
    """
    found, findings = case.found, Findings(case, case.unseen)
    for flow in case.arrived:
        strangers = [netns_name for netns_name in flow.reached if netns_name not in expected]
        if strangers:
            findings.wrong(f"the request reached {listed(strangers)}, not an expected backend", flow.number)
        elif flow.number in case.disagreements:
            findings.doubt(case.disagreements[flow.number], flow.number)
    question = case.resolved.question
    chosen_by_client = question is not None and question.headless
    never = [] if chosen_by_client else [name for name in dict.fromkeys(expected) if not found[name]]
    observed = counted(found)
    sticky = case.probe.expect.spread is Spread.STICKY
    choices = len(case.clients) if sticky else len(case.arrived)
    said = findings.any_wrong and len(set(expected)) == 1  # a stranger was hit, so the only backend was not
    if never and found and not said and (choices > 1 or not sticky):
        chosen = amount(choices, "client" if sticky else "flow")
        if choices >= flows_to_hit_all(len(set(expected))):
            findings.missing(f"the proxy never chose {listed(never)} in {chosen}")
        else:
            observed += f" ({chosen} need not hit all {len(set(expected)):,})"
    return findings.settle("backends", expected=listed(expected), observed=observed)


def _as_seen(case: Case, verdict: Verdict) -> str:
    flow = None if verdict.example is None else case.flows[verdict.example]
    if flow is None or not flow.arrivals:
        return ""
    return f"the packet reached {flow.arrivals[0].netns_name}, and no counter shows which rule sent it there."


BACKENDS = Expectation[Case, tuple[str, ...]](
    key="backends",
    wanted=lambda case: case.probe.expect.backends,
    judge=_judge,
    needs=Needs.ARRIVALS,
    as_seen=_as_seen,
    shows_in_shares=True,
)
