"""The outcome ``untranslated``, and ``at`` where no rule ended a flow, by the taps on devices of nodes."""

from collections.abc import Iterable

from proxylab.evidence.words import endpoint, listed, tally
from proxylab.scenario.model import Outcome
from proxylab.verdict.case import Case, Findings
from proxylab.verdict.flow_clauses import fate_clause, fates
from proxylab.verdict.flows import Fate
from proxylab.verdict.last_sightings import hop, is_at, last_seen, seen_untranslated, translated
from proxylab.verdict.model import Verdict

__all__ = ["judge_last_hop", "judge_untranslated"]

_LEFT_ALONE = frozenset({Fate.LOST, Fate.STRAYED, Fate.UNREACHABLE})
"""Fates of an untranslated packet: it ends somewhere, and a router may report that by ICMP."""


def judge_untranslated(case: Case, doubts: Iterable[str]) -> Verdict:
    """Every flow left a node, or reached a pod or host, under the dialled address and never under another.

    ``doubts`` are rule counters that show a translation.
    """
    findings = Findings(doubts_overall=list(doubts))
    witnesses: list[str] = []
    for flow, fate in zip(case.flows, case.fates, strict=True):
        seen = seen_untranslated(case, flow)
        if flow.number in case.disagreements:
            findings.doubts.append((flow.number, case.disagreements[flow.number]))
        elif fate not in _LEFT_ALONE:
            findings.wrong.append((flow.number, fate_clause(case, flow, fate)))
        elif (other := translated(case, flow)) is not None:
            where = endpoint(other.destination, other.destination_port)
            findings.wrong.append((flow.number, f"it crossed {hop(other)}, addressed to {where}"))
        elif seen is None:
            findings.missing.append((flow.number, "no tap saw it leave a node under the address that was dialled"))
        else:
            witnesses.append(f"it crossed {hop(seen)} as it was sent")
    found = len(witnesses) == len(case.flows)
    return findings.settle(
        case,
        "outcome",
        expected=Outcome.UNTRANSLATED,
        observed="untranslated" if found else fates(case),
        silence=case.silence,
        witnesses=tally(witnesses, len(case.flows)),
    )


def judge_last_hop(case: Case, expected: str) -> Verdict:
    """``at`` by the taps on devices of nodes: where each flow went on untranslated, or where it was seen last."""
    findings = Findings()
    reached: dict[str, None] = {}
    for flow in case.flows:
        seen = seen_untranslated(case, flow) if case.probe.expect.outcome is Outcome.UNTRANSLATED else last_seen(flow)
        if seen is None:
            findings.missing.append((flow.number, "no tap saw it on its way"))
            continue
        reached[hop(seen)] = None
        if not is_at(seen, expected):
            findings.wrong.append((flow.number, f"it was seen at {hop(seen)}"))
    return findings.settle(case, "at", expected=expected, observed=listed(list(reached)), silence=case.silence)
