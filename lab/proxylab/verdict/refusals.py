"""Where flows were refused: ``at`` of the outcome ``refused``.

Owns: that verdict.
Must not: judge whether they were refused (``judge`` does).

A stack that refuses says so: a reset over TCP, an abort over SCTP, an ICMP port unreachable over UDP. The place is the
one that was first seen to send it. The devices of every node are tapped, so an answer that came to a program of a node
and crossed no device was made by that node itself.
"""

from proxylab.evidence.evidence import Direction, Observation, Packet
from proxylab.evidence.words import listed
from proxylab.plan.resolved import STACK
from proxylab.verdict.arrivals import hits
from proxylab.verdict.case import Case, Findings
from proxylab.verdict.flows import hops
from proxylab.verdict.last_hop import hop, is_at
from proxylab.verdict.model import Verdict

__all__ = ["judge_place_of_refusal"]

_REFUSALS = frozenset({Packet.RESET, Packet.PORT_UNREACHABLE})


def judge_place_of_refusal(case: Case, expected: str) -> Verdict:
    """``at``: the pod that got every flow and refused it, or the node that was seen to refuse it."""
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
    """Whether an answer that was seen nowhere before was made at the place where it was seen."""
    return answer.direction is Direction.OUT or answer.device == STACK


def _unknown(answer: Observation) -> str:
    return f"the {answer.packet} came in at {hop(answer)}, and no tap saw it leave the place that made it"
