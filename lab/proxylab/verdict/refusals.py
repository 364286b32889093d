"""The verdict ``at`` of the outcome ``refused``: which node, pod or host refused the flows.

A refusing stack sends a reset over TCP, an abort over SCTP, an ICMP port unreachable over UDP. It belongs to the node,
pod or host where a tap first saw the refusal. Every device of a node has a tap, so a refusal that reached a program of
a node without crossing a device comes from that node itself.
"""

from proxylab.evidence.evidence import Direction, Observation, Packet
from proxylab.evidence.words import listed
from proxylab.plan.resolved import STACK
from proxylab.verdict.arrivals import hits
from proxylab.verdict.case import Case, Findings
from proxylab.verdict.flows import hops
from proxylab.verdict.last_hop import hop, is_at
from proxylab.verdict.model import Verdict

__all__ = ["judge_ending_of_refusal"]

_REFUSALS = frozenset({Packet.RESET, Packet.PORT_UNREACHABLE})


def judge_ending_of_refusal(case: Case, expected: str) -> Verdict:
    """``at``: the pod that got and refused every flow, or the node that sent the refusal."""
    findings = Findings()
    reached = dict.fromkeys(hits(case))
    for flow in case.flows:
        answer = next((each for each in hops(flow) if each.packet in _REFUSALS), None)
        if flow.reached:
            if not all(is_at(arrival, expected) for arrival in flow.arrivals):
                findings.wrong.append((flow.number, f"it arrived at {listed(flow.reached)}"))
        elif answer is None:
            findings.missing.append((flow.number, "no tap saw a refusal"))
        else:
            reached[hop(answer)] = None
            if not _sent_there(answer):
                findings.doubts.append((flow.number, _unknown(answer)))
            elif not is_at(answer, expected):
                findings.wrong.append((flow.number, f"the {answer.packet} was first seen at {hop(answer)}"))
    return findings.settle(
        case,
        "at",
        expected=expected,
        observed=listed(list(reached)),
        silence=case.silence,
        witnesses=[f"{listed(list(reached))} refused it"],
    )


def _sent_there(answer: Observation) -> bool:
    """Whether the refusal comes from the node, pod or host where a tap first saw it."""
    return answer.direction is Direction.OUT or answer.device == STACK


def _unknown(answer: Observation) -> str:
    return f"the {answer.packet} came in at {hop(answer)}, and no tap saw where it came from"
