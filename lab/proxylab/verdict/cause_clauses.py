"""Parts of sentences that causes of several kinds share.

Owns: how a rule is named, and what counters and connection tracking say in a clause.
Must not: choose among causes.
"""

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
    """That a rule which speaks of the errand ended it; empty if none did."""
    rules = ending(case.resolved, case.evidence.counts, target)
    return f"{rules[0].count.node} {participle} the packet by {the_rule(rules[0])}." if rules else ""


def the_rule(rule: Rule) -> str:
    """A rule, named so that it can be found: what its writer said about it, and its chain; or the map that it asks."""
    if rule.comment:
        return f'its rule "{rule.comment}" in {rule.count.chain}'
    asking = f", which looks up the map {rule.looked_up}" if rule.looked_up else ""
    return f"its rule in {rule.count.chain}{asking}"


def translation(case: Case, address: IPAddress) -> Rule | None:
    """The DNAT rule to an address that counted."""
    found = translations(case.evidence.counts)
    return next((rule for rule in found if rule.translates_to and rule.translates_to[0] == address), None)


def rewriting(case: Case) -> list[Rule]:
    """The rules that changed source addresses."""
    return [rule for rule in read_all(case.evidence.counts) if rule.target in REWRITING]


def marking(case: Case) -> list[Rule]:
    """The rules that asked for masquerading."""
    return [rule for rule in read_all(case.evidence.counts) if rule.target.endswith(MARKING)]


def marked_in_vain(case: Case) -> str:
    """That a packet was to be masqueraded and was not, as the rest of a sentence about it; empty if that is not so."""
    asked = marking(case)
    if not asked or rewriting(case):
        return ""
    where = f"{asked[0].count.node} by {the_rule(asked[0])}"
    return f"was marked for masquerading on {where}, but no MASQUERADE rule counted"


def remembered(case: Case, flow: Flow) -> str:
    """That connection tracking sent a flow where no rule of today sends it; empty if that is not so.

    A flow that conntrack knows is translated as it was the first time, and no rule is asked (nf_nat_inet_fn in
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
    """The address and port that were dialled."""
    return endpoint(case.resolved.destination, case.resolved.port)


def nodes(case: Case) -> str:
    """The nodes of the errand."""
    return listed(case.resolved.nodes, "or")
