"""The judge: recorded evidence against the expectations of one probe. It passes nothing without proof.

This module judges the outcome. ``arrivals`` judges backends, source and spread; ``ending`` where a flow ended;
``drops_beyond_nodes`` drops at a pod; ``untranslated`` untranslated flows; ``replies``, ``ports``, ``http``, ``dns``
and ``conntrack`` the rest. ``case`` explains how findings weigh.

What each outcome needs, for every flow of the probe:

* ``delivered``: the flow left the sender and arrived at exactly one pod, once per packet sent, under that pod's own
  address, and no copy of it came in anywhere else. The reply has a verdict of its own: that pod sends it, and it comes
  back from the dialled address. So has the port (``ports``). Where the pod does not have the dialled address, DNAT
  rules to it counted every flow: otherwise an old conntrack entry may have sent it there. If the author expects such an
  entry by ``conntrack``, the entry is the witness.
* ``rejected``: the sender gets an ICMP port unreachable that quotes the flow and comes from no pod; no pod saw it; and
  rules that reject and name the dialled address counted every packet: a node's own stack sends the same ICMP error
  for a closed port.
* ``refused``: the sender gets a TCP reset from the dialled address; over UDP an ICMP port unreachable from there that
  no rule can have sent.
* ``dropped``: no pod saw the flow and the sender heard nothing; rules that drop and name the dialled address counted
  every packet; and the sentinel packets sent after it came back, so that it is not merely late. Where no rule drops it
  and the author names the last hop, the taps saw it last there. Or the stack of a node counted every packet as dropped
  before the lab sent a sentinel packet (``drops``): then no packet can be late. Where the author names a pod or host,
  the flow came in there, nothing answered it, and that stack's counters account for every packet.
* ``untranslated``: a device of a node saw the flow leave under the dialled address, or a pod or host got it so; no pod
  got it under its own address, no device saw it under any other, no DNAT rule counted, and the sender heard at most an
  ICMP error that it cannot be delivered.

Kernel sockets are a second witness of their flows, and connection tracking is another. Where one contradicts the taps
about the path of a flow, the verdict is inconclusive, unless the taps captured the flow at every hop: then the packets
decide, and a translation that another node added is wrong (``second_nat``). A tap at the pod saw an unexpected
backend or source, so that is wrong whatever connection tracking holds. A reply from a wrong address is wrong, too: the
sender heard it, and a lost conntrack entry may be the reason.
"""

from collections import Counter
from collections.abc import Iterator

from proxylab.addresses import IPAddress, Transport
from proxylab.errors import InternalError
from proxylab.evidence.evidence import Direction, Evidence
from proxylab.evidence.words import amount, endpoint, listed, tally
from proxylab.plan.resolved import STACK, ResolvedProbe
from proxylab.scenario.model import Expect, NodeDevice, Outcome, Preserved, Probe, Reply, SourceAddress
from proxylab.verdict.arrivals import judge_backends, judge_source, judge_spread
from proxylab.verdict.case import Case, Findings, open_case
from proxylab.verdict.conntrack import expected_entries, judge_conntrack
from proxylab.verdict.dns import has_no_address, judge_name, not_dialled
from proxylab.verdict.drops_beyond_nodes import ends_beyond_nodes, judge_drop_beyond_nodes
from proxylab.verdict.ending import FATE, TARGET, ending_rules, judge_ending, went_no_further
from proxylab.verdict.flow_clauses import dropped_by_stack, fate_clause, fates, nodes_of, packets
from proxylab.verdict.flows import Fate, Flow, counted_ends
from proxylab.verdict.foreign import rejects, suspicion
from proxylab.verdict.http import judge_http
from proxylab.verdict.last_sightings import hop, last_seen
from proxylab.verdict.model import ProbeVerdict, Verdict, expectations
from proxylab.verdict.ports import judge_port
from proxylab.verdict.replies import judge_reply
from proxylab.verdict.rules import translations
from proxylab.verdict.untranslated import judge_untranslated

__all__ = ["judge"]

_UNDECIDED = {
    Outcome.DELIVERED: frozenset({Fate.CONTRADICTORY, Fate.UNEXPLAINED}),
    Outcome.REJECTED: frozenset({Fate.CONTRADICTORY}),
    Outcome.REFUSED: frozenset({Fate.CONTRADICTORY}),
    Outcome.DROPPED: frozenset[Fate](),
}
"""Fates that neither fulfil nor break an outcome: a witness is missing, or two contradict each other."""

_ABOUT_ARRIVALS = ("backends", "source", "spread")


def judge(probe: Probe, resolved: ResolvedProbe, source: IPAddress | None, evidence: Evidence) -> ProbeVerdict:
    """Judge every expectation of a probe.

    Args:
        probe: with what the author expects.
        resolved: the probe, resolved.
        source: the address of ``expect.source``; ``None`` for ``preserved``, an address, or no expectation.
        evidence: what the lab recorded.

    Raises:
        InternalError: if ``expect.source`` names a node's device and ``source`` has no address for it.
    """
    case = open_case(probe, resolved, evidence)
    expect = probe.expect
    return ProbeVerdict(
        probe=probe,
        resolved=resolved,
        verdicts=tuple(_verdicts(case, source)),
        evidence=evidence,
        source=None if expect.source is None else _resolved(resolved, expect, source),
    )


def _verdicts(case: Case, source: IPAddress | None) -> Iterator[Verdict]:
    expect, question = case.probe.expect, case.resolved.question
    if question is not None:
        yield judge_name(case, question)
        if has_no_address(case.resolved, case.evidence.lookups):
            yield from (not_dialled(case, key) for key in expectations(expect))
            return
    if expect.http is None or "outcome" in expect.positions:
        yield from _about_packets(case, source)
    if expect.http is not None:
        yield judge_http(case, expect.http)
    if expect.conntrack is not None:
        resolved = case.resolved
        own = (resolved.protocol,)
        yield judge_conntrack(case, expect.conntrack, case.evidence.entries, resolved.nodes, resolved.addresses, own)


def _about_packets(case: Case, source: IPAddress | None) -> Iterator[Verdict]:
    expect = case.probe.expect
    yield _judge_outcome(case)
    port = judge_port(case)
    if port is not None:
        yield port
    if expect.outcome is Outcome.DELIVERED:
        yield judge_reply(case, expect.reply or Reply.TRANSLATED)
    if expect.outcome in TARGET:
        yield from _beside_the_point(case)
    else:
        if expect.backends is not None:
            yield judge_backends(case, expect.backends)
        if expect.source is not None:
            yield judge_source(case, _resolved(case.resolved, expect, source))
        if expect.spread is not None:
            yield judge_spread(case, expect.spread, expect.backends)
    if expect.at is not None:
        yield judge_ending(case, expect.at)


def _resolved(resolved: ResolvedProbe, expect: Expect, source: IPAddress | None) -> IPAddress:
    match expect.source:
        case Preserved():
            return resolved.sender.address
        case NodeDevice() as device if source is None:
            raise InternalError(
                f"{expect.position}: the plan gave no address for the source {device}; please report this"
            )
        case NodeDevice() | None:
            return source or resolved.sender.address
        case SourceAddress(address):
            return source or address


def _beside_the_point(case: Case) -> Iterator[Verdict]:
    """Expectations about pods, where the outcome lets no packet reach a pod: no evidence could decide them."""
    expect = case.probe.expect
    for key in _ABOUT_ARRIVALS:
        if getattr(expect, key) is not None:
            clause = (
                f"{key} needs packets at a pod, and the outcome {expect.outcome} allows none: take one of the two out"
            )
            yield Findings(wrong_overall=[clause]).settle(case, key, expected="", observed="")


def _judge_outcome(case: Case) -> Verdict:
    outcome = case.probe.expect.outcome
    if outcome is Outcome.UNTRANSLATED:
        return judge_untranslated(case, _signs_of_translation(case))
    if ends_beyond_nodes(case) and any(flow.arrivals or flow.strays for flow in case.flows):
        return judge_drop_beyond_nodes(case)
    observed = _ended_silently(case) or fates(case)
    wanted = FATE[outcome]
    findings = Findings()
    for flow, fate in zip(case.flows, case.fates, strict=True):
        if flow.number in case.second_nats:
            findings.wrong.append((flow.number, f"it was translated twice: {case.second_nats[flow.number]}"))
        elif fate is Fate.COPIED:
            findings.wrong.append((flow.number, fate_clause(case, flow, fate)))
        elif flow.number in case.disagreements:
            findings.doubts.append((flow.number, case.disagreements[flow.number]))
        elif fate is wanted or _comes_to(case, flow, fate):
            findings.doubts += ((flow.number, clause) for clause in _doubts_about(case, flow, fate))
        elif fate is Fate.LOST:
            findings.missing.append((flow.number, _unseen(case, flow)))
        elif fate in _UNDECIDED[outcome]:
            findings.doubts.append((flow.number, fate_clause(case, flow, fate)))
        else:
            findings.wrong.append((flow.number, fate_clause(case, flow, fate)))
    findings.doubts_overall += _doubts_about_outcome(case, outcome)
    return findings.settle(
        case,
        "outcome",
        expected=outcome,
        observed=observed,
        silence=case.silence,
        witnesses=_witnesses(case, outcome),
    )


def _comes_to(case: Case, flow: Flow, fate: Fate) -> bool:
    """Whether another fate is the outcome, too: a drop in the sender's own OUTPUT, or a closed port over UDP.

    For a closed UDP port a stack sends what a rejecting rule sends: ICMP port unreachable. It is the stack's where no
    rule can have sent it.
    """
    outcome = case.probe.expect.outcome
    if outcome is Outcome.DROPPED:
        return fate is Fate.UNSENT
    if outcome is not Outcome.REFUSED or case.resolved.protocol is not Transport.UDP or not flow.unreachables:
        return False
    return not flow.errors and fate in (Fate.REJECTED, Fate.UNREACHABLE) and not rejects(case.evidence)


def _unseen(case: Case, flow: Flow) -> str:
    seen = last_seen(flow)
    behind = hop(seen) if seen is not None and seen.netns_name in case.resolved.nodes else ""
    return f"no tap saw it behind {behind}" if behind else "no tap saw it again after it left"


def _ended_silently(case: Case) -> str:
    """Where the taps saw flows last that no rule and no stack counted as dropped; empty for other flows."""
    if not went_no_further(case) or dropped_by_stack(case) or set(case.fates) != {Fate.LOST}:
        return ""
    return f"seen last at {listed(list(dict.fromkeys(hop(seen) for flow in case.flows if (seen := last_seen(flow)))))}"


def _doubts_about_outcome(case: Case, outcome: Outcome) -> Iterator[str]:
    """Reasons why flows with the expected fate may owe it to something else than the rules."""
    if outcome is Outcome.DELIVERED:
        yield from _doubts_about_translation(case)
    elif outcome is Outcome.REJECTED and Fate.REJECTED in case.fates:
        yield from _doubts_about_rules(case, outcome, "reject", "an ICMP error came")
    elif outcome is Outcome.DROPPED:
        yield from case.silence
        yield from _doubts_about_whose_drop(case)
        if not went_no_further(case):
            yield from _doubts_about_rules(case, outcome, "drop", "nothing arrived")


def _doubts_about_whose_drop(case: Case) -> Iterator[str]:
    """Foreign rules that may have dropped the packets in place of the engine under test.

    Rules that name the dialled address, and stacks, prove a drop by their own counters. Otherwise the last hop is the
    only witness, and a foreign rule that dropped the packets there shows nothing about the engine. A packet that left a
    node has passed all rules of that node.
    """
    if sum(rule.count.packets for rule in ending_rules(case, Outcome.DROPPED)) >= packets(case) or dropped_by_stack(
        case
    ):
        return
    last = [seen for flow in case.flows if (seen := last_seen(flow)) is not None]
    within = {seen.netns_name for seen in last if seen.direction is Direction.IN or seen.device == STACK}
    for node in case.resolved.nodes:
        if node in within and (clause := suspicion(case.evidence, node)):
            yield f"{clause}, and may have dropped it before the engine's rules saw it"


def _doubts_about(case: Case, flow: Flow, fate: Fate) -> Iterator[str]:
    """Reasons why a fate that looks as expected may be another one."""
    if case.probe.expect.outcome is Outcome.REFUSED:
        yield from _doubts_about_refusal(case, flow)
    elif fate is Fate.REJECTED:
        resolved = case.resolved
        # A receiver on a node has the node's address, so an ICMP error from there may be a rule's.
        pods = {pod.address: pod.name for pod in resolved.receivers if not pod.ports}
        for icmp in flow.unreachables:
            if icmp.source in pods:
                yield f"the ICMP error is from {pods[icmp.source]}'s address, but {pods[icmp.source]} saw no request"
            if icmp.destination != resolved.sender.of(flow.number):
                yield f"the ICMP error is addressed to {icmp.destination}, not to {resolved.sender.name}"
    elif fate is Fate.UNSENT and set(case.evidence.refused_sends) != {"EPERM"}:
        yield fate_clause(case, flow, fate)


def _doubts_about_refusal(case: Case, flow: Flow) -> Iterator[str]:
    dialled = (case.resolved.destination, case.resolved.port)
    for reset in flow.resets:
        if (reset.source, reset.source_port) != dialled:
            stranger = endpoint(reset.source, reset.source_port)
            yield f"the reset is from {stranger}, not from {endpoint(*dialled)} that was dialled"
    for icmp in flow.unreachables:
        if icmp.source != dialled[0]:
            yield f"the ICMP error is from {icmp.source}, not from {dialled[0]} that was dialled"


def _doubts_about_translation(case: Case) -> Iterator[str]:
    """Pods that got more flows than the DNAT rules to them counted: something else may have sent the flows there.

    A DNAT rule counts the first packet of a flow, and each flow of a probe is new. The kernel would translate a flow
    that conntrack already knew by its old entry, and consult no rule.
    """
    wanted, resolved = case.probe.expect.conntrack, case.resolved
    known = {
        (entry.reply_source, entry.reply_source_port)
        for entry in expected_entries(
            wanted, case.evidence.entries, resolved.nodes, resolved.addresses, (resolved.protocol,)
        )
    }
    if not set(case.resolved.nodes) <= set(case.evidence.counted):
        return
    dialled = (case.resolved.destination, case.resolved.port)
    got = counted_ends([(flow.arrivals[0].destination, flow.arrivals[0].destination_port) for flow in case.arrived])
    counted = Counter[tuple[IPAddress, int] | None]()
    for rule in translations(case.evidence.counts):
        counted[rule.translates_to] += rule.count.packets
    for where, flows in got.items():
        if where not in (dialled, *known) and counted[where] < flows:
            yield f"DNAT rules to {endpoint(*where)} counted {counted[where]:,} of {amount(flows, 'flow')} it got"


def _signs_of_translation(case: Case) -> Iterator[str]:
    """DNAT rules that counted: the lab sends nothing but the probe that they could translate."""
    for rule in translations(case.evidence.counts):
        to = endpoint(*rule.translates_to) if rule.translates_to else rule.value("--to-destination")
        yield f"a DNAT rule to {to} counted {amount(rule.count.packets, 'packet')} on {rule.count.node}"


def _doubts_about_rules(case: Case, outcome: Outcome, verb: str, seen: str) -> Iterator[str]:
    """Why ``seen`` does not prove the work of rules: no counter accounts for every packet."""
    needed = packets(case)
    rules = ending_rules(case, outcome)
    counted = sum(rule.count.packets for rule in rules)
    if counted >= needed or (outcome is Outcome.DROPPED and dropped_by_stack(case)):
        return
    if rules:
        yield f"rules that {verb} it counted {counted:,} of {amount(needed, 'packet')}: {listed(nodes_of(rules))}"
    else:
        yield f"{seen}, but no rule counted it as {outcome}"


def _witnesses(case: Case, outcome: Outcome) -> Iterator[str]:
    if outcome is Outcome.DELIVERED:
        reached = [netns_name for flow in case.arrived for netns_name in flow.reached]
        yield from tally((f"seen at {netns_name}" for netns_name in reached), len(case.flows))
    elif outcome is Outcome.REJECTED:
        icmps = [flow.unreachables[0] for flow in case.flows if flow.unreachables]
        yield from tally((f"ICMP port unreachable from {icmp.source}" for icmp in icmps), len(case.flows))
    elif outcome is Outcome.REFUSED:
        yield from tally((f"reset by {flow.resets[0].source}" for flow in case.flows if flow.resets), len(case.flows))
        closed = [flow.unreachables[0].source for flow in case.flows if flow.unreachables]
        yield from tally((f"ICMP port unreachable from {source}" for source in closed), len(case.flows))
    elif outcome is Outcome.DROPPED and (drop := dropped_by_stack(case)) is not None:
        yield str(drop)
    elif outcome is Outcome.DROPPED and went_no_further(case):
        seen = [each for flow in case.flows if (each := last_seen(flow)) is not None]
        yield from tally(
            (f"seen last at {hop(each)}, and the sentinel packets came back" for each in seen), len(case.flows)
        )
    if outcome in TARGET:
        for rule in ending_rules(case, outcome):
            yield f"{rule.count.node} counted {amount(rule.count.packets, 'packet')}: {rule.count.text}"
