"""The rules that counted packets of a probe, and the work that they did.

Owns: which of them tell something, in which order, and what each did.
Must not: lay anything out.
"""

from proxylab.evidence.evidence import Evidence, Packet
from proxylab.verdict.case import Case
from proxylab.verdict.cause_clauses import rewriting
from proxylab.verdict.rule_actions import MARKING, rule_action
from proxylab.verdict.rules import Rule, read_all

__all__ = ["telling", "work"]

_TELLING_TARGETS = frozenset({"DNAT", "SNAT", "MASQUERADE", "DROP", "REJECT"})

# Where in kube-proxy's chains a packet is when it meets them: from the front to the endpoint, and out.
_STAGES = ("KUBE-PROXY-FIREWALL", "KUBE-SERVICES", "KUBE-EXTERNAL", "KUBE-NODEPORTS", "KUBE-FW-", "KUBE-EXT-",
           "KUBE-XLB-", "KUBE-SVL-", "KUBE-SVC-", "KUBE-SEP-", "KUBE-FORWARD", "POSTROUTING")  # fmt: skip


def telling(case: Case, traced: Evidence | None) -> list[Rule]:
    """The rules that changed or ended packets of the probe or speak of what it dials, in the order of the way.

    Args:
        case: with what the rules counted.
        traced: one more packet that was followed through the rules, which shows the order of the nodes.
    """
    counted = read_all(case.evidence.counts)
    return sorted((rule for rule in counted if _tells(rule, case)), key=lambda rule: _order(rule, case, traced))


def work(rule: Rule, case: Case) -> str:
    """What a rule did, as ``rule_action`` says it; to ask for masquerading is not to do it."""
    did = rule_action(rule, case.resolved)
    if rule.target.endswith(MARKING) and not rewriting(case):
        return did.replace("masquerades", "marks it for masquerading", 1)
    return did


def _tells(rule: Rule, case: Case) -> bool:
    return rule.target in _TELLING_TARGETS or rule.target.endswith(MARKING) or rule.speaks_of(case.resolved)


def _order(rule: Rule, case: Case, traced: Evidence | None) -> tuple[int, int]:
    """By node as the traced packet came by, else as the errand names them; on a node by the stage of the chain."""
    passed = [step.netns_name for step in traced.steps if step.packet is Packet.REQUEST] if traced else []
    nodes = list(dict.fromkeys([*passed, *case.resolved.nodes, rule.count.node]))
    stage = next((at for at, prefix in enumerate(_STAGES) if prefix in rule.count.chain), -1)
    return nodes.index(rule.count.node), stage
