"""``backends``: which pods the flows reached, and at which port of them. It needs the taps at the pods."""

from collections import Counter
from collections.abc import Collection

from proxylab.evidence.evidence import Observation
from proxylab.evidence.words import amount, listed, numbers
from proxylab.scenario.expect import Backend
from proxylab.scenario.words import Spread
from proxylab.statistics import flows_to_hit_all
from proxylab.verdict.case import Case
from proxylab.verdict.expectations.expectation import Expectation, Needs
from proxylab.verdict.findings import Findings
from proxylab.verdict.model import Verdict


def _judge(case: Case, expected: tuple[Backend, ...]) -> Verdict:
    """The flows reached exactly the pods in ``expected``, and where it names ports exactly those.

    The proxy picks a backend by chance, so few flows need not reach all of them. Only from ``flows_to_hit_all`` flows
    on does a backend without a flow count as missing; below that it is in doubt. With session affinity the proxy
    chooses once for each client, and a scenario may have few of them: then the verdict only says so. A client of a
    headless Service's name dials one pod; ``name`` checks that the name gives all of them.
    """
    with_port = {each.name for each in expected if each.port is not None}
    names, found, findings = list(dict.fromkeys(map(str, expected))), Counter[str](), Findings(case, case.unseen)
    for flow in case.arrived:
        reached = list(dict.fromkeys(_called(each, with_port) for each in flow.arrivals))
        found.update(reached)
        strangers = [each for each in reached if each not in names]
        if strangers:
            clause = f"the request reached {listed(strangers)}, not an expected backend"
            if flow.number in case.too_late:
                findings.doubt(f"{clause}, but {case.too_late[flow.number]}", flow.number)
            else:
                findings.wrong(clause, flow.number)
        elif flow.number in case.disagreements:
            findings.doubt(case.disagreements[flow.number], flow.number)
    question = case.resolved.question
    chosen_by_client = question is not None and question.headless
    never = [] if chosen_by_client else [each for each in names if not found[each]]
    observed = numbers(found)
    by_client = case.probe.expect.spread is Spread.STICKY or case.resolved.affinity_timeout is not None
    choices = len(case.clients) if by_client else len(case.arrived)
    said = (findings.any_wrong or case.too_late) and len(names) == 1  # a stranger was hit, so the only backend was not
    if never and found and not said and (choices > 1 or not by_client):
        chosen = amount(choices, "client" if by_client else "flow")
        enough = flows_to_hit_all(len(names))
        if choices >= enough:
            findings.missing(f"the proxy never chose {listed(never)} in {chosen}")
        elif by_client or "backends" in case.probe.expect.follows:  # no promise says that few flows hit all
            observed += f" ({chosen} need not hit all {len(names):,})"
        else:
            findings.doubt(f"no flow reached {listed(never)}: {chosen} need not hit all {len(names):,}, {enough:,} do")
    return findings.settle("backends", expected=listed(names), observed=observed)


def _called(arrival: Observation, with_port: Collection[str]) -> str:
    """A backend as the author writes it: with the port if the author names a port of that pod."""
    name = arrival.netns_name
    return f"{name}:{arrival.destination_port}" if name in with_port else name


def _as_seen(case: Case, verdict: Verdict) -> str:
    flow = None if verdict.example is None else case.flows[verdict.example]
    if flow is None or not flow.arrivals:
        return ""
    return f"the packet reached {flow.arrivals[0].netns_name}, and no counter shows which rule sent it there."


BACKENDS = Expectation[Case, tuple[Backend, ...]](
    key="backends",
    expected=lambda case: case.probe.expect.backends,
    judge=_judge,
    needs=Needs.ARRIVALS,
    as_seen=_as_seen,
    shows_in_shares=True,
)
