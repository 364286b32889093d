"""Clauses that causes of several kinds share: the name of a rule, and what counters and connection tracking show."""

from proxylab.addresses import IPAddress
from proxylab.evidence.words import endpoint, listed
from proxylab.verdict.case import Case
from proxylab.verdict.flows import Flow
from proxylab.verdict.rule_actions import MARKING
from proxylab.verdict.rules import Rule, ending, read_all, translations

__all__ = [
    "REWRITING",
    "by_rule",
    "dialled",
    "marked_in_vain",
    "marking",
    "nodes",
    "remembered",
    "rewriting",
    "the_rule",
    "translation",
]

REWRITING = frozenset({"MASQUERADE", "SNAT"})
"""The targets that change the source address."""


def by_rule(case: Case, target: str, participle: str) -> str:
    """The sentence that a rule naming the dialled address ended the flows; empty without such a rule."""
    rules = ending(case.resolved, case.evidence.counts, target)
    return f"{rules[0].count.node} {participle} the packet by {the_rule(rules[0])}." if rules else ""


def the_rule(rule: Rule) -> str:
    """A rule, named so that a reader can find it: its comment and its chain, or the map that it looks up."""
    if rule.comment:
        return f'its rule "{rule.comment}" in {rule.count.chain}'
    asking = f", which looks up the map {rule.looked_up}" if rule.looked_up else ""
    return f"its rule in {rule.count.chain}{asking}"


def translation(case: Case, address: IPAddress) -> Rule | None:
    """The DNAT rule to an address, if it counted."""
    found = translations(case.evidence.counts)
    return next((rule for rule in found if rule.translates_to and rule.translates_to[0] == address), None)


def rewriting(case: Case) -> list[Rule]:
    """The rules that counted and change source addresses."""
    return [rule for rule in read_all(case.evidence.counts) if rule.target in REWRITING]


def marking(case: Case) -> list[Rule]:
    """The rules that counted and mark packets for masquerading."""
    return [rule for rule in read_all(case.evidence.counts) if rule.target.endswith(MARKING)]


def marked_in_vain(case: Case) -> str:
    """The clause that a rule marked the packet and no rule masqueraded it; empty otherwise."""
    asked = marking(case)
    if not asked or rewriting(case):
        return ""
    where = f"{asked[0].count.node} by {the_rule(asked[0])}"
    return f"was marked for masquerading on {where}, but no MASQUERADE rule counted"


def remembered(case: Case, flow: Flow) -> str:
    """The sentence that connection tracking sent a flow where no current rule sends it; empty otherwise.

    The kernel translates a flow that conntrack knows as it did the first time, and consults no rule (nf_nat_inet_fn in
    net/netfilter/nf_nat_core.c).
    """
    sent = (case.resolved.destination, case.resolved.port)
    for entry in flow.tracked:
        there = (entry.reply_source, entry.reply_source_port)
        if there != sent and case.evidence.counted and translation(case, entry.reply_source) is None:
            pods = {pod.address: pod.name for pod in case.resolved.receivers}
            name = pods.get(entry.reply_source, "")
            to = f"{name} ({endpoint(*there)})" if name else f"{endpoint(*there)}, which is no pod of this lab,"
            return (
                f"conntrack on {entry.node} sent the flow to {to} by an older entry: "
                f"no DNAT rule to that address counted it."
            )
    return ""


def dialled(case: Case) -> str:
    """The address and port that the probe dialled."""
    return endpoint(case.resolved.destination, case.resolved.port)


def nodes(case: Case) -> str:
    """The nodes of the resolved probe."""
    return listed(case.resolved.nodes, "or")
