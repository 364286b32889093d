"""The summary of a traced packet, in one sentence.

It names the cause where a rule or a node stopped the packet or its reply, or changed its source; else how it went. A
trace has no expectations, so the summary compares the packet with a plain delivery: the client's own source address,
and a reply from the dialled address.
"""

from msgspec.structs import replace

from proxylab.evidence.evidence import Evidence
from proxylab.evidence.words import endpoint
from proxylab.plan.model import Plan
from proxylab.plan.resolved import ResolvedProbe
from proxylab.scenario.expect import Expect, Preserved
from proxylab.scenario.probes import Probe
from proxylab.scenario.words import Outcome
from proxylab.verdict.case import JudgedProbe, fate_clause, fates_text, open_case
from proxylab.verdict.causes.table import known_cause
from proxylab.verdict.expectations.outcome import lost_where
from proxylab.verdict.flows.flows import Fate
from proxylab.verdict.judge import judge

__all__ = ["trace_summary"]


def trace_summary(probe: Probe, resolved: ResolvedProbe, evidence: Evidence, plan: Plan | None = None) -> str:
    """The sentence about the only flow of a probe.

    Args:
        probe: its expectations do not matter.
        resolved: of one flow.
        evidence: of that flow, with ``steps``.
        plan: of the lab; without it the summary finds no cause in the network.
    """
    plain = Expect(outcome=Outcome.DELIVERED, source=Preserved(), position=probe.expect.position)
    probe = replace(probe, expect=plain)
    case = open_case(probe, resolved, evidence)
    verdict = replace(judge(probe, resolved, None, evidence), plan=plan, traced=evidence)
    return known_cause(case, verdict) or _how_it_went(case)


def _how_it_went(case: JudgedProbe) -> str:
    """What the taps saw of a packet without a known cause."""
    flow, fate = case.flows[0], case.fates[0]
    if fate is Fate.DELIVERED and flow.replies:
        arrival, reply = flow.arrivals[0], flow.replies[0]
        kept = arrival.source == case.resolved.sender.address_of_flow(flow.number)
        source = f"from {case.resolved.sender.name}'s own address" if kept else f"from {arrival.source}"
        back = endpoint(reply.source, reply.source_port)
        return f"{arrival.netns_name} got the request {source}, and the reply came back from {back}."
    if not flow.departures:
        return f"no tap saw the packet leave {case.resolved.sender.name}."
    if fate is Fate.LOST:
        return lost_where(case)
    return f"{fates_text(case)}: {fate_clause(case, flow, fate)}, and nothing the lab saw shows why."
