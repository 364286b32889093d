"""``port``, which needs no key: flows arrive at the target port of the dialled Service port.

It needs the taps at the pods. A pod answers on every port that it listens on, so an answer does not show that the port
is right. The right port follows from the Service and its EndpointSlices, and the resolved probe has it for each
endpoint. An address without an endpoint of the Service has no right port: ``backends`` judges whether flows may arrive
there.
"""

from proxylab.addresses import IPAddress
from proxylab.evidence.evidence import Observation
from proxylab.evidence.words import endpoint, listed
from proxylab.scenario.words import Outcome
from proxylab.verdict.case import JudgedProbe
from proxylab.verdict.expectations.expectation import Expectation
from proxylab.verdict.findings import Findings
from proxylab.verdict.flows.flows import counted_ends
from proxylab.verdict.model import Verdict

__all__ = ["PORT"]

_End = tuple[IPAddress, int]


def _wanted(case: JudgedProbe) -> dict[_End, int] | None:
    """How many packets arrived at each address and port; ``None`` where none did or should, or any port will do."""
    expect = case.probe.expect
    may_arrive = expect.outcome in (Outcome.DELIVERED, Outcome.REFUSED) or case.ends_beyond_nodes
    if not case.is_about_packets or not may_arrive or not case.resolved.endpoints:
        return None
    return counted_ends([_end(each) for flow in case.arrived for each in flow.arrivals]) or None


def _judge(case: JudgedProbe, arrived: dict[_End, int]) -> Verdict:
    """Every packet that arrived came to the right port."""
    resolved, findings = case.resolved, Findings(case)
    wrong = {end for end in arrived if case.expected_ends(*end)}
    for flow in case.arrived if wrong else ():
        for each in flow.arrivals:
            if _end(each) in wrong:
                findings.wrong(_clause(case, each), flow.number)
    return findings.settle(
        "port",
        expected=listed([str(port) for port in sorted({each.port for each in resolved.endpoints})], "or"),
        observed=listed([str(port) for port in sorted({port for _, port in arrived})]),
        witnesses=[f"the port of {resolved.service_port}" if resolved.service_port else "the port that was dialled"],
    )


def _clause(case: JudgedProbe, arrival: Observation) -> str:
    due, resolved = case.expected_ends(*_end(arrival)), case.resolved
    ports = listed([str(port) for _, port in due], "or")
    came = f"it arrived at port {arrival.destination_port} of {arrival.netns_name}"
    if resolved.service_port:
        return f"{came}, not at port {ports}, the target port of {resolved.service_port} there"
    if due[0][0] == arrival.destination:
        return f"{came}, not at port {ports} that was dialled"
    return f"it arrived at {endpoint(*_end(arrival))}, not at {endpoint(*due[0])} that was dialled"


def _end(arrival: Observation) -> _End:
    return arrival.destination, arrival.destination_port


PORT = Expectation[JudgedProbe, dict[_End, int]](key="port", wanted=_wanted, judge=_judge)
