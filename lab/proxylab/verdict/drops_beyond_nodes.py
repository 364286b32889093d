"""The verdicts ``outcome`` and ``at`` of a drop that the author expects at a pod or an outside host.

A tap sees the packets come in there. That the stack behind the device dropped them needs the proof of any other drop:
its counters account for every packet, and the lab read them before a sentinel packet came. Rules drop on nodes, so no
rule is a witness here.
"""

from proxylab.evidence.words import amount, listed
from proxylab.scenario.model import Outcome
from proxylab.verdict.case import Case, Findings, disagreement, packets_until
from proxylab.verdict.drops import KernelDrop, drop_at
from proxylab.verdict.flow_clauses import fate_clause, fates
from proxylab.verdict.flows import Fate, Flow
from proxylab.verdict.last_sightings import hop, is_at, last_seen
from proxylab.verdict.model import Verdict
from proxylab.verdict.rules import ending

__all__ = ["ends_beyond_nodes", "judge_drop_beyond_nodes", "judge_end_beyond_nodes"]


def ends_beyond_nodes(case: Case) -> bool:
    """Whether the author expects the drop at a pod or host."""
    return case.probe.expect.outcome is Outcome.DROPPED and bool(case.resolved.watched)


def judge_drop_beyond_nodes(case: Case) -> Verdict:
    """Every flow came in there, and the stack counted each packet as received and passed none on."""
    where = str(case.probe.expect.at)
    findings = Findings()
    drop = _drop(case)
    for flow, fate in zip(case.flows, case.fates, strict=True):
        # Connection tracking is no witness here: such drops are about packets that bypassed it or came twice.
        contradiction = disagreement(flow, fate, case.resolved.protocol)
        if contradiction:
            findings.doubts.append((flow.number, contradiction))
        elif _answered(flow):
            findings.wrong.append((flow.number, _answer(case, flow, fate)))
        elif fate is Fate.LOST:
            findings.missing.append((flow.number, f"no tap saw it come to {where}"))
        elif fate not in (Fate.DELIVERED, Fate.COPIED, Fate.STRAYED) or not _came(flow, where):
            findings.wrong.append((flow.number, fate_clause(case, flow, fate)))
        elif drop is None:
            findings.doubts.append((flow.number, f"it came to {where}, but no counter shows that {where} dropped it"))
    for rule in ending(case.resolved, case.evidence.counts, "DROP"):
        counted = amount(rule.count.packets, "packet")
        findings.doubts_overall.append(f"a rule on {rule.count.node} dropped {counted} on the way")
    return findings.settle(
        case,
        "outcome",
        expected=Outcome.DROPPED,
        observed=f"dropped at {drop.node} by {drop.by}" if drop and not findings.wrong else fates(case),
        silence=case.silence,
        witnesses=() if drop is None else (str(drop),),
    )


def judge_end_beyond_nodes(case: Case) -> Verdict:
    """``at``: the taps saw every flow last there, and nothing answered it."""
    where = str(case.probe.expect.at)
    findings = Findings()
    reached: dict[str, None] = {}
    for flow, fate in zip(case.flows, case.fates, strict=True):
        seen = last_seen(flow)
        if seen is not None:
            reached[hop(seen)] = None
        if _answered(flow):
            findings.wrong.append((flow.number, f"it did not end: {_answer(case, flow, fate)}"))
        elif seen is None:
            findings.missing.append((flow.number, "no tap saw it on its way"))
        elif not _came(flow, where):
            strangers = [hop(each) for each in (seen, *flow.strays, *flow.arrivals) if not is_at(each, where)]
            findings.wrong.append((flow.number, f"it was seen last at {strangers[0]}"))
    return findings.settle(case, "at", expected=where, observed=listed(list(reached)), silence=case.silence)


def _drop(case: Case) -> KernelDrop | None:
    (namespace,) = case.resolved.watched
    sources = {arrival.source for flow in case.flows for arrival in flow.arrivals}
    own = sources == {arrival.destination for flow in case.flows for arrival in flow.arrivals}
    source = sources.pop() if own and len(sources) == 1 else None
    return drop_at(
        case.resolved, case.evidence, namespace, packets_until(case.flows, case.evidence.counters_read_at), source
    )


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
    return all(is_at(each, where) for each in seen) and (last := last_seen(flow)) is not None and is_at(last, where)
