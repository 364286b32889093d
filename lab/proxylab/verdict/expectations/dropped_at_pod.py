"""``outcome`` and ``at`` of a drop that the author expects at a pod or an outside host.

A tap sees the packets come in there. That the stack behind the device dropped them needs the proof of any other drop:
its counters account for every packet, and the lab read them before a sentinel packet came. Rules drop on nodes, so no
rule is a witness here.
"""

from proxylab.evidence.words import amount, listed
from proxylab.scenario.words import Outcome
from proxylab.verdict.case import Case, fate_clause, fates_text
from proxylab.verdict.doubts import disagreement
from proxylab.verdict.drops import KernelDrop, drop_at
from proxylab.verdict.findings import Findings
from proxylab.verdict.flows import Fate, Flow
from proxylab.verdict.hops import hop, is_at
from proxylab.verdict.model import Verdict


def judge_drop_at_pod(case: Case, expected: Outcome) -> Verdict:
    """Every flow came in there, and the stack counted each packet as received and passed none on."""
    where = str(case.expect.at)
    findings = Findings(case)
    drop = _drop(case)
    for flow, fate in case.flows_with_fates:
        # Connection tracking is no witness here: such drops are about packets that bypassed it or came twice.
        contradiction = disagreement(flow, fate, case.resolved.protocol)
        if contradiction:
            findings.doubt(contradiction, flow.number)
        elif _answered(flow):
            findings.wrong(_answer(case, flow, fate), flow.number)
        elif fate is Fate.LOST_ON_LINK:
            findings.doubt(case.on_links[flow.number], flow.number)
        elif fate is Fate.LOST:
            findings.missing(f"no tap saw it come to {where}", flow.number)
        elif fate not in (Fate.DELIVERED, Fate.COPIED, Fate.STRAYED) or not _came(flow, where):
            findings.wrong(fate_clause(case, flow, fate), flow.number)
        elif drop is None:
            findings.doubt(f"it came to {where}, but no counter shows that {where} dropped it", flow.number)
    for rule in case.dropping:
        findings.doubt(f"a rule on {rule.count.node} dropped {amount(rule.count.packets, 'packet')} on the way")
    return findings.settle(
        "outcome",
        expected=expected,
        observed=f"dropped at {drop.node} by {drop.by}" if drop and not findings.any_wrong else fates_text(case),
        may_be_late=case.may_be_late,
        witnesses=() if drop is None else (str(drop),),
    )


def judge_end_at_pod(case: Case, where: str) -> Verdict:
    """``at``: the taps saw every flow last there, and nothing answered it."""
    findings = Findings(case)
    reached: dict[str, None] = {}
    for flow, fate in case.flows_with_fates:
        seen = flow.last_seen
        if seen is not None:
            reached[hop(seen)] = None
        if _answered(flow):
            findings.wrong(f"it did not end: {_answer(case, flow, fate)}", flow.number)
        elif seen is None:
            findings.missing("no tap saw it on its way", flow.number)
        elif not _came(flow, where):
            strangers = [hop(each) for each in (seen, *flow.strays, *flow.arrivals) if not is_at(each, where)]
            findings.wrong(f"it was seen last at {strangers[0]}", flow.number)
    return findings.settle("at", expected=where, observed=listed(list(reached)), may_be_late=case.may_be_late)


def _drop(case: Case) -> KernelDrop | None:
    (namespace,) = case.resolved.watched
    came = {(arrival.source, arrival.destination) for flow in case.flows for arrival in flow.arrivals}
    alike = came.pop() if len(came) == 1 else None
    return drop_at(case.resolved, case.evidence, namespace, case.packets_counted, alike)


def _answer(case: Case, flow: Flow, fate: Fate) -> str:
    return fate_clause(case, flow, fate) if _heard(flow) and not flow.replies else f"{listed(flow.reached)} answered it"


def _answered(flow: Flow) -> bool:
    return bool(flow.answers) or _heard(flow)


def _heard(flow: Flow) -> bool:
    """Whether the sender heard anything."""
    return bool(flow.replies or flow.resets or flow.unreachables or flow.errors)


def _came(flow: Flow, where: str) -> bool:
    """Whether the flow came in there, and nowhere else."""
    seen = [*flow.arrivals, *flow.strays]
    return all(is_at(each, where) for each in seen) and (last := flow.last_seen) is not None and is_at(last, where)
