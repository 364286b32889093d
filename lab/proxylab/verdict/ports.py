"""The verdict ``port``, which needs no key: flows arrive at the target port of the dialled Service port.

A pod answers on every port that it listens on, so an answer does not show that the port is right. The right port
follows from the Service and its EndpointSlices, and the resolved probe has it for each endpoint. An address without an
endpoint of the Service has no right port: ``backends`` judges whether flows may arrive there.
"""

from proxylab.addresses import IPAddress
from proxylab.evidence.evidence import Observation
from proxylab.evidence.words import endpoint, listed
from proxylab.plan.resolved import ResolvedProbe
from proxylab.scenario.model import Outcome
from proxylab.verdict.case import Case, Findings
from proxylab.verdict.drops_beyond_nodes import ends_beyond_nodes
from proxylab.verdict.flows import counted_ends
from proxylab.verdict.model import Verdict

__all__ = ["due_at", "judge_port"]

_End = tuple[IPAddress, int]


def judge_port(case: Case) -> Verdict | None:
    """Every packet that arrived came to the right port; ``None`` where none arrived or none should."""
    resolved = case.resolved
    if case.probe.expect.outcome not in (Outcome.DELIVERED, Outcome.REFUSED) and not ends_beyond_nodes(case):
        return None
    arrived = counted_ends([_end(each) for flow in case.arrived for each in flow.arrivals])
    if not resolved.endpoints or not arrived:
        return None
    wrong = {end for end in arrived if _is_wrong(resolved, *end)}
    findings = Findings()
    for flow in case.arrived if wrong else ():
        findings.wrong += ((flow.number, _clause(resolved, each)) for each in flow.arrivals if _end(each) in wrong)
    return findings.settle(
        case,
        "port",
        expected=listed([str(port) for port in sorted({each.port for each in resolved.endpoints})], "or"),
        observed=listed([str(port) for port in sorted({port for _, port in arrived})]),
        witnesses=[f"the port of {resolved.service_port}" if resolved.service_port else "the port that was dialled"],
    )


def due_at(resolved: ResolvedProbe, address: IPAddress, port: int) -> tuple[_End, ...]:
    """Where a packet at this address and port should have arrived; nothing where this is right."""
    if (address, port) == (resolved.destination, resolved.port):
        return ()  # nothing translated it, which is no question of ports
    due = [(each.address, each.port) for each in resolved.endpoints]
    here = [end for end in due if end[0] == address]
    if (address, port) in here or (resolved.service_port and not here):
        return ()
    return tuple(here or due)


def _is_wrong(resolved: ResolvedProbe, address: IPAddress, port: int) -> bool:
    return bool(due_at(resolved, address, port))


def _clause(resolved: ResolvedProbe, arrival: Observation) -> str:
    due = due_at(resolved, *_end(arrival))
    ports = listed([str(port) for _, port in due], "or")
    came = f"it arrived at port {arrival.destination_port} of {arrival.netns_name}"
    if resolved.service_port:
        return f"{came}, not at port {ports}, the target port of {resolved.service_port} there"
    if due[0][0] == arrival.destination:
        return f"{came}, not at port {ports} that was dialled"
    return f"it arrived at {endpoint(*_end(arrival))}, not at {endpoint(*due[0])} that was dialled"


def _end(arrival: Observation) -> _End:
    return arrival.destination, arrival.destination_port
