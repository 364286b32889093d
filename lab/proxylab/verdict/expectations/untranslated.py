"""The outcome ``untranslated``, by the taps on devices of nodes and by the counters of DNAT rules."""

from collections.abc import Iterator

from proxylab.evidence.words import amount, endpoint, tally
from proxylab.rules.effects import EXEMPTING
from proxylab.scenario.words import Outcome
from proxylab.verdict.case import Case, fate_clause, fates_text
from proxylab.verdict.findings import Findings
from proxylab.verdict.flows import Fate
from proxylab.verdict.foreign import suspicion
from proxylab.verdict.hops import hop, seen_translated, seen_untranslated
from proxylab.verdict.model import Verdict

_LEFT_ALONE = frozenset({Fate.LOST, Fate.LOST_ON_LINK, Fate.STRAYED, Fate.UNREACHABLE})
"""Fates of an untranslated packet: it ends somewhere, and a router may report that by ICMP."""


def judge_untranslated(case: Case, expected: Outcome) -> Verdict:
    """Every flow left a node, or reached a pod or host, under the dialled address and never under another."""
    findings = Findings(case, (*_signs_of_translation(case), *_doubts_about_engine(case)))
    witnesses: list[str] = []
    for flow, fate in case.flows_with_fates:
        seen = seen_untranslated(flow, case.dialled)
        if flow.number in case.disagreements:
            findings.doubt(case.disagreements[flow.number], flow.number)
        elif fate not in _LEFT_ALONE:
            findings.wrong(fate_clause(case, flow, fate), flow.number)
        elif (other := seen_translated(flow, case.dialled)) is not None:
            where = endpoint(other.destination, other.destination_port)
            findings.wrong(f"it crossed {hop(other)}, addressed to {where}", flow.number)
        elif seen is None:
            findings.missing("no tap saw it leave a node under the address that was dialled", flow.number)
        else:
            witnesses.append(f"it crossed {hop(seen)} as it was sent")
    found = len(witnesses) == len(case.flows)
    return findings.settle(
        "outcome",
        expected=expected,
        observed="untranslated" if found else fates_text(case),
        may_be_late=case.may_be_late,
        witnesses=tally(witnesses, len(case.flows)),
    )


def _signs_of_translation(case: Case) -> Iterator[str]:
    """DNAT rules that counted: the lab sends nothing but the probe that they could translate."""
    for rule in case.translations:
        to = endpoint(*rule.translates_to) if rule.translates_to else rule.value("--to-destination")
        yield f"a DNAT rule to {to} counted {amount(rule.count.packets, 'packet')} on {rule.count.node}"


def _doubts_about_engine(case: Case) -> Iterator[str]:
    """What may have kept the packets from the engine's rules: then nothing shows what those would have done.

    It is a foreign rule, or an entry of connection tracking from before the probe that the author does not expect.
    """
    expected = {(entry.node, entry.reply_source) for entry in case.expected_entries}
    for known in case.evidence.known:
        if (known.node, known.reply_source) not in expected:
            yield f"conntrack on {known.node} knew it before, and the kernel asks no rule about a flow that it knows"
    for node in case.resolved.nodes:
        if clause := suspicion(case.resolved, case.evidence, node, EXEMPTING):
            yield f"{clause}, and may have kept it from the engine's rules"
