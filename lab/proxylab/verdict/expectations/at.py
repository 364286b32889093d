"""``at``: where flows ended. It needs the counters that ended them, or the taps that saw them last.

A stack that refuses a flow sends a reset over TCP, an abort over SCTP, an ICMP port unreachable over UDP. The refusal
belongs to the node, pod or host where a tap first saw it. Every device of a node has a tap, so a refusal that reached a
program of a node without crossing a device comes from that node itself.
"""

from collections import Counter
from collections.abc import Iterator

from proxylab.evidence.evidence import Direction, Observation, Packet
from proxylab.evidence.words import amount, listed
from proxylab.plan.resolved import STACK
from proxylab.scenario.words import Outcome
from proxylab.verdict.case import Case
from proxylab.verdict.expectations.dropped_at_pod import judge_end_at_pod
from proxylab.verdict.expectations.outcome import lost_where
from proxylab.verdict.findings import Expectation, Findings
from proxylab.verdict.flows import Fate
from proxylab.verdict.hops import hop, is_at, seen_untranslated
from proxylab.verdict.model import Verdict

_ENDING = {Outcome.DROPPED: ("DROP", Fate.LOST), Outcome.REJECTED: ("REJECT", Fate.REJECTED)}
"""The target of rules that end flows so, and the fate of these flows."""

_REFUSALS = frozenset({Packet.RESET, Packet.PORT_UNREACHABLE})
_ERRORS = frozenset({Packet.PORT_UNREACHABLE, Packet.OTHER_ICMP})


def _judge(case: Case, expected: str) -> Verdict:
    """Every flow ended there: by a rule or the stack of a node, at a pod or host, or by the refusal of any of them."""
    outcome = case.expect.outcome
    if case.ends_beyond_nodes:
        return judge_end_at_pod(case, expected)
    if outcome is Outcome.UNTRANSLATED or case.went_no_further:
        return _by_taps(case, expected)
    if outcome in _ENDING:
        return _by_rules(case, expected, *_ENDING[outcome])
    return _by_refusals(case, expected)


def _by_rules(case: Case, expected: str, target: str, fate: Fate) -> Verdict:
    outcome, rules = case.expect.outcome, case.ending(target)
    findings, needed = Findings(case), case.packets
    counted = Counter[str]()
    for rule in rules:
        counted[rule.count.node] += rule.count.packets
    if outcome is Outcome.DROPPED and (drop := case.stack_drop) is not None:
        counted[drop.node] += drop.packets
    here = counted[expected]
    elsewhere = [node for node in counted if node != expected and counted[node]]
    ended = sum(
        each in (fate, Fate.UNSENT) or (outcome is Outcome.REJECTED and flow.rejected_by is not None)
        for flow, each in case.flows_with_fates
    )
    node = expected.partition("/")[0]
    seen = dict.fromkeys(hop(each) for each in _ends(case) if each.netns_name != node)
    if ended < len(case.flows):
        findings.doubt(f"{ended:,} of {amount(len(case.flows), 'flow')} {'was' if ended == 1 else 'were'} {outcome}")
    elif here < needed and elsewhere and expected in case.resolved.nodes:
        findings.wrong(f"it was {outcome} by {'a rule' if rules else 'the stack'} on {listed(elsewhere)}")
    elif here < needed and seen:
        what = "was seen last" if outcome is Outcome.DROPPED else "was answered by an ICMP error that was first seen"
        findings.missing(f"it {what} at {listed(list(seen))}")
    elif expected not in case.resolved.nodes:
        findings.doubt(f"the lab counts rules on nodes only, and {expected} is no node of this lab")
    elif here < needed:
        findings.doubt(f"no rule on {expected} counted it as {outcome}")
    observed = listed([*counted] or [*seen]) if counted or seen else "not known"
    return findings.settle("at", expected=expected, observed=observed, may_be_late=case.may_be_late)


def _ends(case: Case) -> Iterator[Observation]:
    """Where the taps show that flows ended: a dropped one came in there and went no further; or it was rejected there.

    What was seen last as it left a node may have ended behind that node, where no tap is.
    """
    for flow in case.flows:
        if case.expect.outcome is Outcome.DROPPED:
            seen = flow.last_seen
            if seen is not None and (seen.direction is Direction.IN or seen.device == STACK):
                yield seen
        elif (error := next((each for each in flow.hops if each.packet in _ERRORS), None)) and _sent_there(error):
            yield error


def _by_taps(case: Case, expected: str) -> Verdict:
    """``at`` by the taps on devices of nodes: where each flow went on untranslated, or where it was seen last."""
    untranslated = case.expect.outcome is Outcome.UNTRANSLATED
    findings = Findings(case)
    reached: dict[str, None] = {}
    for flow in case.flows:
        seen = seen_untranslated(flow, case.dialled) if untranslated else flow.last_seen
        if seen is None:
            findings.missing("no tap saw it on its way", flow.number)
            continue
        reached[hop(seen)] = None
        if not is_at(seen, expected):
            findings.wrong(f"it was seen at {hop(seen)}", flow.number)
    return findings.settle("at", expected=expected, observed=listed(list(reached)), may_be_late=case.may_be_late)


def _by_refusals(case: Case, expected: str) -> Verdict:
    """``at``: the pod that got and refused every flow, or the node that sent the refusal."""
    findings = Findings(case)
    reached = dict.fromkeys(case.arrivals_by_pod)
    for flow in case.flows:
        answer = next((each for each in flow.hops if each.packet in _REFUSALS), None)
        if flow.reached:
            if not all(is_at(arrival, expected) for arrival in flow.arrivals):
                findings.wrong(f"it arrived at {listed(flow.reached)}", flow.number)
        elif answer is None:
            findings.missing("no tap saw a refusal", flow.number)
        else:
            reached[hop(answer)] = None
            if not _sent_there(answer):
                findings.doubt(_unknown(answer), flow.number)
            elif not is_at(answer, expected):
                findings.wrong(f"the {answer.packet} was first seen at {hop(answer)}", flow.number)
    return findings.settle(
        "at",
        expected=expected,
        observed=listed(list(reached)),
        may_be_late=case.may_be_late,
        witnesses=[f"{listed(list(reached))} refused it"],
    )


def _sent_there(answer: Observation) -> bool:
    """Whether the refusal comes from the node, pod or host where a tap first saw it."""
    return answer.direction is Direction.OUT or answer.device == STACK


def _unknown(answer: Observation) -> str:
    return f"the {answer.packet} came in at {hop(answer)}, and no tap saw where it came from"


def _as_seen(case: Case, verdict: Verdict) -> str:
    seen = case.flows[verdict.example or 0].last_seen
    if seen is None:
        return ""
    if case.expect.outcome is Outcome.DROPPED and (sentence := lost_where(case)):
        return sentence
    went = "leaving" if seen.direction is Direction.OUT else "coming in"
    return f"the packet got as far as {hop(seen)}: no tap saw it again after {went} there."


AT = Expectation[Case, str](key="at", judge=_judge, as_seen=_as_seen)
