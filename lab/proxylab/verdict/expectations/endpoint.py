"""``endpoint``, which needs no key: flows arrive at an endpoint that they may reach at that moment, at its target port.

It needs the taps at the pods. A pod answers on every port that it listens on, and every pod of the lab answers, so an
answer does not show that the way was right. The right ends follow from the Service and its EndpointSlices
(``oracle.weakest``): whatever the policy, and whether or not the author names backends, a flow to a Service reaches
one of them and nothing else. ``backends`` says more: which of them, and a pod that the author names may be none of them
(``expected_ends``). A flow that asks no Service arrives where it was sent to.
"""

from collections import Counter
from collections.abc import Collection

from proxylab.addresses import IPAddress
from proxylab.evidence.evidence import Observation
from proxylab.evidence.words import amount, endpoint, listed
from proxylab.scenario.words import Outcome
from proxylab.verdict.case import Case
from proxylab.verdict.expectations.expectation import Expectation
from proxylab.verdict.expected_ends import ExpectedEnds
from proxylab.verdict.findings import Findings
from proxylab.verdict.flows.sorting import counted_ends
from proxylab.verdict.model import Verdict

_End = tuple[IPAddress, int]
_Arrived = Counter[_End]


def _expected(case: Case) -> _Arrived | None:
    """How many packets arrived at each address and port; ``None`` where none did or should, or any end will do."""
    may_arrive = case.probe.expect.outcome in (Outcome.DELIVERED, Outcome.REFUSED) or case.ends_beyond_nodes
    if not case.is_about_packets or not may_arrive or not case.expected_ends.is_known:
        return None
    return counted_ends([_end(each) for flow in case.arrived for each in flow.arrivals]) or None


def _judge(case: Case, arrived: _Arrived) -> Verdict:
    """Every packet that arrived came to an endpoint that it may reach."""
    resolved, findings, ends = case.resolved, Findings(case), case.expected_ends
    known: dict[tuple[str, IPAddress, int], bool] = {}
    for flow in case.arrived:
        for each in flow.arrivals:
            where = (each.netns_name, *_end(each))
            if where not in known:
                known[where] = each in ends
            if not known[where]:
                findings.wrong(_clause(case, each, ends), flow.number)
    at_dialled = ends.is_what_was_dialled or (resolved.or_dialled and set(arrived) == {case.dialled})
    witness = "what was dialled" if at_dialled else f"an endpoint of {resolved.service_port}"
    return findings.settle(
        "endpoint",
        expected=_several(ends.reachable, "any of {}") or listed([endpoint(*each) for each in ends.reachable]),
        observed=_several(arrived if set(arrived) <= {*ends.reachable} else (), "{}")
        or listed([endpoint(*each) for each in arrived]),
        witnesses=[witness if set(arrived) <= {*ends.reachable} else "a backend that the author names"],
    )


def _several(ends: Collection[_End], words: str) -> str:
    """Several endpoints by their number; empty for one, or none."""
    return words.format(amount(len(ends), "endpoint")) if len(ends) > 1 else ""


def _clause(case: Case, arrival: Observation, ends: ExpectedEnds) -> str:
    at, service_port = endpoint(*_end(arrival)), case.resolved.service_port
    instead = ends.instead_of(arrival.destination)
    ports = listed([str(port) for _, port in instead], "or")
    has_address = bool(instead) and instead[0][0] == arrival.destination
    if has_address:
        whose = f"the target port of {service_port} there" if service_port else "that was dialled"
        came = f"it arrived at port {arrival.destination_port} of {arrival.netns_name}, not at port {ports}"
        return f"{came}, {whose}" if service_port else f"{came} {whose}"
    if not service_port:
        return f"it arrived at {at}, not at {endpoint(*instead[0])} that was dialled"
    what = "an endpoint that is not ready" if ends.is_unready(_end(arrival)) else "no endpoint"
    return f"it arrived at {arrival.netns_name}, at {at}, which is {what} of {service_port}"


def _end(arrival: Observation) -> _End:
    return arrival.destination, arrival.destination_port


ENDPOINT = Expectation[Case, _Arrived](key="endpoint", expected=_expected, judge=_judge)
