"""The verdict ``at``: where flows ended; and the fate and rule target that each outcome stands for.

A stack that refuses a flow sends a reset over TCP, an abort over SCTP, an ICMP port unreachable over UDP. The refusal
belongs to the node, pod or host where a tap first saw it. Every device of a node has a tap, so a refusal that reached a
program of a node without crossing a device comes from that node itself.
"""

from collections import Counter

from proxylab.evidence.evidence import Direction, Observation, Packet
from proxylab.evidence.words import amount, listed
from proxylab.plan.resolved import STACK
from proxylab.scenario.model import Outcome
from proxylab.verdict.arrivals import arrivals_by_pod
from proxylab.verdict.case import Case, Findings
from proxylab.verdict.drops_beyond_nodes import ends_beyond_nodes, judge_end_beyond_nodes
from proxylab.verdict.flow_clauses import dropped_by_stack, packets
from proxylab.verdict.flows import Fate, hops
from proxylab.verdict.last_sightings import hop, is_at, last_seen
from proxylab.verdict.model import Verdict
from proxylab.verdict.rules import Rule, ending
from proxylab.verdict.untranslated import judge_last_hop

__all__ = ["FATE", "TARGET", "ending_rules", "judge_ending", "judge_refusing_node", "went_no_further"]

FATE = {
    Outcome.DELIVERED: Fate.DELIVERED,
    Outcome.REJECTED: Fate.REJECTED,
    Outcome.REFUSED: Fate.REFUSED,
    Outcome.DROPPED: Fate.LOST,
}

TARGET = {Outcome.DROPPED: "DROP", Outcome.REJECTED: "REJECT"}


def judge_ending(case: Case, expected: str) -> Verdict:
    """``at``: the node whose rule or stack ended every flow, or the node, pod or host that refused every flow."""
    outcome = case.probe.expect.outcome
    if ends_beyond_nodes(case):
        return judge_end_beyond_nodes(case)
    if outcome is Outcome.UNTRANSLATED or went_no_further(case):
        return judge_last_hop(case, expected)
    return _of_rules(case, expected) if outcome in TARGET else judge_refusing_node(case, expected)


def _of_rules(case: Case, expected: str) -> Verdict:
    outcome = case.probe.expect.outcome
    findings = Findings()
    needed = packets(case)
    counted = _counted_by_node(case, outcome)
    here = counted[expected]
    elsewhere = [node for node in counted if node != expected and counted[node]]
    ended = sum(fate in (FATE[outcome], Fate.UNSENT) for fate in case.fates)
    if expected not in case.resolved.nodes:
        findings.doubts_overall.append(f"the lab counts rules on nodes only, and {expected} is no node of this lab")
    elif ended < len(case.flows):
        findings.doubts_overall.append(f"{ended:,} of {amount(len(case.flows), 'flow')} {_were(ended)} {outcome}")
    elif here < needed and elsewhere:
        findings.wrong_overall.append(
            f"it was {outcome} by {'a rule' if ending_rules(case, outcome) else 'the stack'} on {listed(elsewhere)}"
        )
    elif here < needed:
        findings.doubts_overall.append(f"no rule on {expected} counted it as {outcome}")
    return findings.settle(case, "at", expected=expected, observed=listed([*counted]) if counted else "not known")


def went_no_further(case: Case) -> bool:
    """Whether the taps saw each flow last where the author expects its end, and no rule counted its end."""
    where = case.probe.expect.at
    if case.probe.expect.outcome is not Outcome.DROPPED or where is None or ending_rules(case, Outcome.DROPPED):
        return False
    last = [last_seen(flow) for flow in case.flows]
    return all(seen is not None and seen.netns_name in case.resolved.nodes and is_at(seen, where) for seen in last)


def ending_rules(case: Case, outcome: Outcome) -> tuple[Rule, ...]:
    """The rules that counted, end flows in that way, and name what the probe dials."""
    return ending(case.resolved, case.evidence.counts, TARGET[outcome])


def _counted_by_node(case: Case, outcome: Outcome) -> Counter[str]:
    """How many packets rules, or stacks, of each node ended in that way."""
    counted = Counter[str]()
    for rule in ending_rules(case, outcome):
        counted[rule.count.node] += rule.count.packets
    if outcome is Outcome.DROPPED and (drop := dropped_by_stack(case)) is not None:
        counted[drop.node] += drop.packets
    return counted


def _were(number: int) -> str:
    return "was" if number == 1 else "were"


_REFUSALS = frozenset({Packet.RESET, Packet.PORT_UNREACHABLE})


def judge_refusing_node(case: Case, expected: str) -> Verdict:
    """``at``: the pod that got and refused every flow, or the node that sent the refusal."""
    findings = Findings()
    reached = dict.fromkeys(arrivals_by_pod(case))
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
