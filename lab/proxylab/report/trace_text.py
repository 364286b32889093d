"""The lines of a trace: the whole path of one packet and its reply, hop by hop and rule by rule, without colour.

The trace leaves out what decides nothing: policies, returns at the end of a chain, and jumps into a chain of which no
rule matched. A line ``now A > B`` shows that the addresses changed since the step before.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby, zip_longest

from msgspec import Struct
from msgspec.structs import replace

from proxylab.evidence.evidence import Direction, Evidence, Observation, Packet, RuleCount, TraceStep
from proxylab.evidence.words import endpoint
from proxylab.plan.dialled_service import DialledService
from proxylab.plan.model import Plan
from proxylab.plan.resolved import STACK, ResolvedProbe
from proxylab.rules.texts import read_rule
from proxylab.scenario.expect import Expect, Preserved
from proxylab.scenario.probes import Probe
from proxylab.scenario.words import Outcome
from proxylab.text import WIDTH, table, wrapped
from proxylab.verdict.case import Case, fate_clause, fates_text
from proxylab.verdict.causes.table import known_cause
from proxylab.verdict.counted_rules import NFT_TABLE, CountedRule, read, rule_action, short, target_of
from proxylab.verdict.drops import reason_words, reported_drop
from proxylab.verdict.expectations.outcome import lost_where
from proxylab.verdict.flows import Fate
from proxylab.verdict.judge import judge

_INDENT = "  "
_ENDINGS = frozenset({"DROP", "REJECT"})
_NEVER = 1 << 63
"""Later than any time."""
_VERDICTS = {"drop": "drops it", "accept": "lets it pass", "return": "returns it to the calling chain"}


class _Passage(Struct, frozen=True):
    """One packet on its path through one node."""

    steps: tuple[TraceStep, ...]

    @property
    def first(self) -> TraceStep:
        return self.steps[0]


def journey(resolved: ResolvedProbe, evidence: Evidence, width: int = WIDTH) -> tuple[str, ...]:
    """The path of a traced packet, without colour; ``evidence`` has the ``steps`` of the only flow."""
    passages = list(_passages(evidence.steps))
    if not passages:
        return ()
    lines = ["the way of one packet, rule by rule:"]
    # Inside a node the rules show more than its devices do.
    ends = [seen for seen in evidence.observations if seen.netns_name not in resolved.nodes or seen.device == STACK]
    for netns_name in _in_order(ends, passages):
        if isinstance(netns_name, Observation):
            lines.append(_sighting(netns_name))
        else:
            lines += _through(resolved, netns_name, width)
    drop = reported_drop(resolved, evidence)
    if drop is not None and not any(_ended(passage.steps[-1]) for passage in passages):
        lines += wrapped(f"the kernel drops it there: {reason_words(drop)}", _INDENT, _INDENT * 2, width)
    return tuple(lines)


def _passages(steps: Sequence[TraceStep]) -> Iterator[_Passage]:
    """Steps grouped by node and packet; a packet that comes to the same node again begins a new group."""
    for _, same in groupby(steps, key=lambda step: (step.netns_name, step.packet, step.leg)):
        together: list[TraceStep] = []
        for step in same:
            if together and step.chain == "PREROUTING" and together[-1].chain == "POSTROUTING":
                yield _Passage(tuple(together))
                together = []
            together.append(step)
        yield _Passage(tuple(together))


def _in_order(observations: Sequence[Observation], passages: Sequence[_Passage]) -> list[Observation | _Passage]:
    """Sightings and passages: those of the request, then those of each answer.

    A packet leaves its sender, passes nodes, and comes to its receiver. Taps and traces read the clock on their own, so
    that order counts, and time only between nodes. The kernel gives no time in OUTPUT, where a packet starts its path.
    """
    reached: list[Observation | _Passage] = [*observations, *passages]
    begun: dict[Packet, int] = {}
    for each in reached:
        first = _first(each)
        begun[first.packet] = min(begun.get(first.packet, _NEVER), first.at or _NEVER)
    return sorted(reached, key=lambda each: _turn(each, begun))


def _first(reached: Observation | _Passage) -> Observation | TraceStep:
    return reached if isinstance(reached, Observation) else reached.first


def _turn(reached: Observation | _Passage, begun: Mapping[Packet, int]) -> tuple[int, ...]:
    """The way there by its legs, then the way back by its legs in reverse; there each answer as it began."""
    first = _first(reached)
    back = first.packet is not Packet.REQUEST
    leg = -first.leg if back else int(first.leg)
    if isinstance(reached, Observation):
        part = 0 if reached.direction is Direction.OUT else 3
    else:
        part = 2 if first.at else 1
    return back, leg, begun[first.packet], part, first.at


def _sighting(seen: Observation) -> str:
    verb = "sends" if seen.direction is Direction.OUT else "gets"
    what = f"{seen.packet} {seen.icmp[0]}/{seen.icmp[1]}" if seen.icmp else str(seen.packet)
    return f"{_INDENT}{seen.netns_name} {verb} the {what} {_ends(seen)}"


def _through(resolved: ResolvedProbe, passage: _Passage, width: int) -> Iterator[str]:
    first = passage.first
    way = f"in by {first.in_device}" if first.in_device else "generated there"
    yield f"{_INDENT}{first.netns_name}: the {first.packet} {_ends(first)}, {way}"
    rows: list[tuple[str, ...]] = []
    ends = _ends(first)
    for step, following in zip_longest(passage.steps, passage.steps[1:]):
        if _ends(step) != ends:
            ends = _ends(step)
            rows.append(("", "", f"now {ends}"))
        words = _words(resolved, step, following)
        if words and not _came_to_nothing(step, following):
            rows.append((step.table, short(step.chain), words))
    last = passage.steps[-1]
    if last.kind == "policy" and _ended(last):
        rows.append((last.table, last.chain, "the policy of the chain drops it"))
    elif last.out_device and not _ended(last):
        rows.append(("", "", f"out by {last.out_device}"))
    if rows:
        yield from table(rows, _INDENT * 2, width=width)


def _ended(last: TraceStep) -> bool:
    """Whether the packet ended at the last step of a passage. Legacy iptables reports no verdict for policies."""
    if last.kind == "policy":
        return last.verdict == "drop" or (last.chain == "FORWARD" and not last.verdict)
    rule = _rule(last)
    return last.verdict == "drop" or (rule is not None and rule.target in _ENDINGS)


def _came_to_nothing(step: TraceStep, following: TraceStep | None) -> bool:
    """Whether a rule only jumped into a chain of which no rule matched."""
    rule = _rule(step)
    target = step.verdict.partition(" ")[2] if rule is None else rule.target
    return (
        target != ""
        and following is not None
        and following.kind == "return"
        and not following.text
        and following.chain == target
    )


def _words(resolved: ResolvedProbe, step: TraceStep, following: TraceStep | None) -> str:
    """What a rule did; empty for what decides nothing.

    A map of nftables names many destinations, of which the packet has one.
    """
    rule = _rule(step)
    if rule is None:
        return _verdict(step)
    if rule.target == "DNAT" and step.table == NFT_TABLE and rule.translates_to is None and following is not None:
        return f"translates the destination to {endpoint(following.destination, following.destination_port)}"
    return rule_action(rule, resolved, mark=step.mark, out_device=step.out_device)


def _verdict(step: TraceStep) -> str:
    """The verdict of a rule that iptables did not write, as nf_tables reports it; for a map, the chain it chose."""
    if step.kind != "rule":
        return ""
    word, _, chain = step.verdict.partition(" ")
    return f"goes to {short(chain)}" if chain else _VERDICTS.get(word, "")


def _rule(step: TraceStep) -> CountedRule | None:
    if not step.text:
        return None
    read_text = read_rule(step.text) if step.table == NFT_TABLE else None
    target = target_of(read_text) if read_text is not None else ""
    return read(RuleCount(step.netns_name, step.table, step.chain, step.text, 1, target))


def _ends(seen: Observation | TraceStep) -> str:
    source, destination = endpoint(seen.source, seen.source_port), endpoint(seen.destination, seen.destination_port)
    return f"{source} > {destination}"


def trace_summary(
    probe: Probe,
    resolved: ResolvedProbe,
    evidence: Evidence,
    plan: Plan | None = None,
    service: DialledService | None = None,
) -> str:
    """The sentence about the only flow of a probe.

    Args:
        probe: its expectations do not matter.
        resolved: of one flow.
        evidence: of that flow, with ``steps``.
        plan: of the lab; without it the summary finds no cause in the network.
        service: what the API server says of the dialled Service; without it the summary names no setting.
    """
    plain = Expect(outcome=Outcome.DELIVERED, source=Preserved(), position=probe.expect.position)
    probe = replace(probe, expect=plain)
    verdict = replace(judge(probe, resolved, None, evidence), plan=plan, traced=evidence, service=service)
    return known_cause(verdict) or _how_it_went(verdict.case)


def _how_it_went(case: Case) -> str:
    """What the taps saw of a packet without a known cause."""
    flow, fate = case.flows[0], case.fates[0]
    if fate is Fate.DELIVERED and flow.replies:
        arrival, reply = flow.arrivals[0], flow.replies[0]
        kept = arrival.source == case.resolved.sender.address_of_flow(flow.number)
        source = f"from {case.resolved.sender.name}'s own address" if kept else f"from {arrival.source}"
        back = endpoint(reply.source, reply.source_port)
        return f"{arrival.netns_name} got the request {source}, and the reply came back from {back}."
    if not flow.departures:
        return f"no tap saw the packet leave {case.resolved.sender.name}."
    if fate is Fate.LOST:
        return lost_where(case)
    return f"{fates_text(case)}: {fate_clause(case, flow, fate)}, and nothing the lab saw shows why."
