"""The rules that counted packets of a probe: which of them matter, in which order, and what each did."""

from proxylab.evidence.evidence import Evidence, Packet
from proxylab.verdict.case import Case
from proxylab.verdict.counted_rules import CountedRule
from proxylab.verdict.rule_words import rule_action

_INFORMATIVE_TARGETS = frozenset({"DNAT", "REDIRECT", "SNAT", "MASQUERADE", "DROP", "REJECT"})

_PASSING = frozenset({"ACCEPT", "RETURN"})

# The order in which a packet meets kube-proxy's chains: from the frontend to the endpoint, and out.
_STAGES = ("KUBE-PROXY-FIREWALL", "KUBE-SERVICES", "KUBE-EXTERNAL", "KUBE-NODEPORTS", "KUBE-FW-", "KUBE-EXT-",
           "KUBE-XLB-", "KUBE-SVL-", "KUBE-SVC-", "KUBE-SEP-", "KUBE-LOAD-BALANCER", "KUBE-NODE-PORT",
           "KUBE-SOURCE-RANGES", "KUBE-IPVS-FILTER", "-t ", "-u ", "--sctp-service ",
           "KUBE-FORWARD", "POSTROUTING")  # fmt: skip


def informative_rules(case: Case, traced: Evidence | None) -> list[CountedRule]:
    """The rules that changed or ended packets of the probe, or name what it dials, in the order of the path.

    ``traced`` is one more packet, traced through the rules, which shows the order of the nodes.
    """
    return sorted((rule for rule in case.rules if _tells(rule, case)), key=lambda rule: _order(rule, case, traced))


def action_of(rule: CountedRule, case: Case) -> str:
    """What a rule did, as ``rule_action`` words it; marking a packet for masquerading is not masquerading it."""
    did = rule_action(rule, case.resolved)
    if rule.marks_for_masquerading and not any(each.changes_source for each in case.rules):
        return did.replace("masquerades", "marks it for masquerading", 1)
    return did


def _tells(rule: CountedRule, case: Case) -> bool:
    if rule.count.member and not rule.comment and rule.target in _PASSING:
        return False  # of mode ipvs, which lets all packets of its sets pass in several places
    return rule.target in _INFORMATIVE_TARGETS or rule.marks_for_masquerading or rule.matches(case.resolved)


def _order(rule: CountedRule, case: Case, traced: Evidence | None) -> tuple[int, int]:
    """By node in the order of the traced packet, else of the resolved probe; on a node by the stage of the chain."""
    passed = [step.netns_name for step in traced.steps if step.packet is Packet.REQUEST] if traced else []
    nodes = list(dict.fromkeys([*passed, *case.resolved.nodes, rule.count.node]))
    stage = next((at for at, prefix in enumerate(_STAGES) if prefix in rule.count.chain), -1)
    return nodes.index(rule.count.node), stage
