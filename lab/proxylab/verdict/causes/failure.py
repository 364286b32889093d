"""``Failure``: a failed expectation with everything that may show its cause; and the clauses that causes share.

A cause rests on the evidence of the probe. Two more things help to name it: the plan of the lab's network, and one more
packet that the lab traced afterwards. A sentence that needs that packet says so.

``without_excluded`` leaves out rules whose own matches exclude a flow's packets: what such a rule counted, it did to
other packets.
"""

from msgspec import Struct
from msgspec.structs import replace

from proxylab.addresses import IPAddress, Transport
from proxylab.evidence.evidence import Evidence, Packet
from proxylab.evidence.words import endpoint
from proxylab.plan.dialled_service import DialledService
from proxylab.plan.model import Plan
from proxylab.plan.resolved import Receiver
from proxylab.rules.packets import Packets
from proxylab.rules.texts import excludes
from proxylab.verdict.case import Case
from proxylab.verdict.counted_rules import CountedRule, the_rule
from proxylab.verdict.drops import reason_words, reported_drop
from proxylab.verdict.flows import Fate, Flow
from proxylab.verdict.foreign import rewrote, rule_words
from proxylab.verdict.model import Verdict


class Failure(Struct, frozen=True):
    """A failed expectation of a probe.

    Attributes:
        case: the probe.
        verdict: a fail.
        plan: of the lab; ``None`` where it is not known.
        traced: the evidence of one more packet; ``None`` without a trace.
        service: what the API server says of the dialled Service; ``None`` where that is not known.
    """

    case: Case
    verdict: Verdict
    plan: Plan | None = None
    traced: Evidence | None = None
    service: DialledService | None = None

    @property
    def flow(self) -> Flow:
        """The flow that shows it; the first where all do."""
        return self.case.flows[self.verdict.example or 0]

    @property
    def fate(self) -> Fate:
        """What became of that flow."""
        return self.case.fates[self.verdict.example or 0]

    @property
    def dialled(self) -> str:
        """The address and port that the probe dialled."""
        return endpoint(*self.case.dialled)

    @property
    def pods(self) -> dict[IPAddress, Receiver]:
        """The receivers of the lab by their addresses."""
        return {pod.address: pod for pod in self.case.resolved.receivers}

    @property
    def rewriting(self) -> list[CountedRule]:
        """The rules that counted and change source addresses."""
        return [rule for rule in self.case.rules if rule.changes_source]

    @property
    def marking(self) -> list[CountedRule]:
        """The rules that counted and mark packets for masquerading."""
        return [rule for rule in self.case.rules if rule.marks_for_masquerading]

    @property
    def marked_in_vain(self) -> str:
        """The clause that a rule marked the packet and no rule masqueraded it; empty otherwise."""
        if not self.marking or self.rewriting:
            return ""
        where = f"{self.marking[0].count.node} by {the_rule(self.marking[0])}"
        return f"was marked for masquerading on {where}, but no MASQUERADE rule counted"

    def translation(self, address: IPAddress, port: int | None = None) -> CountedRule | None:
        """The DNAT rule to an address, and to a port there if one is given, if it counted."""
        for rule in self.case.translations:
            to = rule.translates_to
            if to is not None and to[0] == address and port in (None, to[1]):
                return rule
        return None

    def with_drop_reason(self, sentence: str) -> str:
        """A sentence with the kernel's reason for dropping one more packet, which the lab traced."""
        drop = None if self.traced is None else reported_drop(self.case.resolved, self.traced)
        if drop is None:
            return sentence
        reason = f"the kernel dropped one more packet, which was traced: {reason_words(drop)}."
        return f"{sentence.removesuffix('.')}; {reason}" if sentence else reason


def remembered(failure: Failure) -> str:
    """Connection tracking sent the flow where no current rule sends it.

    The kernel translates a flow that conntrack knows as it did the first time, and consults no rule (nf_nat_inet_fn in
    net/netfilter/nf_nat_core.c).
    """
    case = failure.case
    for entry in failure.flow.tracked if case.evidence.metered_nodes else ():
        there = (entry.reply_source, entry.reply_source_port)
        if there != failure.case.dialled and failure.translation(entry.reply_source) is None:
            pod = failure.pods.get(entry.reply_source)
            to = f"{pod.name} ({endpoint(*there)})" if pod else f"{endpoint(*there)}, which is no pod of this lab,"
            if foreign := by_foreign_rule(failure, entry.node):
                return f"{entry.node} sent the flow to {to}{foreign}."
            sent = f"conntrack on {entry.node} sent the flow to {to} by an older entry"
            return f"{sent}: no DNAT rule to that address counted it."
    return ""


def by_foreign_rule(failure: Failure, node: str) -> str:
    """The foreign rule of a node that changed addresses or may have, as the end of a clause; empty without one."""
    rule = rewrote(failure.case.resolved, failure.case.evidence, node)
    if rule is None:
        return ""
    return f" {'' if rule.packets else 'perhaps '}by {rule_words(rule)}, which belongs to no engine"


def without_excluded(failure: Failure, *kinds: Packet) -> Failure:
    """The failure without the rules that can have matched no packet of the flow in any of these directions.

    A node may have translated a packet before the rule or behind it, so each address that it ever had counts. Nothing
    is excluded where a tunnel carries it, since a rule may match the tunnel's packet.
    """
    case = failure.case
    if failure.plan is not None and any(each.vxlans for each in failure.plan.namespaces):
        return failure
    ways = [_possible(failure, kind) for kind in kinds]

    def may_match(text: str) -> bool:
        return any(not excludes(text, way) for way in ways)

    counts = [each for each in case.evidence.counts if may_match(each.text)]
    foreign = [each for each in case.evidence.foreign if may_match(each.text)]
    return replace(failure, case=case.with_rules(counts, foreign))


def _possible(failure: Failure, kind: Packet) -> Packets:
    """What packets of one direction had. ICMP errors come from anywhere."""
    if kind is Packet.OTHER_ICMP:
        return Packets({Transport.ICMP})
    case, there = failure.case, kind is Packet.REQUEST
    client, (service, port) = case.resolved.sender.address_of_flow(failure.flow.number), case.dialled
    seen = [each for each in failure.flow.hops if each.packet is kind]
    # No tap sees a packet that a rule ended between its translation and the device by which it would have left.
    pods = [rule.translates_to for rule in case.translations if rule.translates_to is not None]
    ends = ([address for address, _ in pods], [number for _, number in pods])
    return Packets(
        protocols={case.resolved.protocol},
        sources={*((client,) if there else (service, *ends[0])), *(each.source for each in seen)},
        destinations={*((service, *ends[0]) if there else (client,)), *(each.destination for each in seen)},
        source_ports={*(() if there else (port, *ends[1])), *(each.source_port for each in seen)},
        destination_ports={*((port, *ends[1]) if there else ()), *(each.destination_port for each in seen)},
    )
