"""The hops of a request by the taps: the last one, and those that it passed untranslated or translated.

``last_sighting_of_lost`` says at which hop the taps saw lost flows last, and what counted there. It does not guess why
they were lost. It names a rule or a counter only if that counted exactly as many packets there.
"""

from collections import defaultdict
from collections.abc import Sequence

from proxylab.evidence.evidence import Direction, Observation, Packet
from proxylab.evidence.words import amount, endpoint
from proxylab.plan.resolved import STACK
from proxylab.verdict.case import Case, packets_of, packets_until
from proxylab.verdict.cause_clauses import the_rule
from proxylab.verdict.drops import kernel_drop
from proxylab.verdict.flows import Fate, Flow
from proxylab.verdict.rules import read_all

__all__ = ["hop", "is_at", "last_seen", "last_sighting_of_lost", "seen_untranslated", "translated"]

_ENDING = frozenset({"DROP", "REJECT"})


def last_sighting_of_lost(case: Case) -> str:
    """Where the taps saw most of the lost flows last, as a sentence; empty if none was lost."""
    lost = [flow for flow, fate in zip(case.flows, case.fates, strict=True) if fate is Fate.LOST]
    if not lost:
        return ""
    by_hop: defaultdict[tuple[str, str, Direction] | None, list[tuple[Flow, Observation | None]]] = defaultdict(list)
    for flow in lost:
        seen = last_seen(flow)
        by_hop[None if seen is None else (seen.netns_name, seen.device, seen.direction)].append((flow, seen))
    most = max(by_hop.values(), key=len)
    flows, seen = [flow for flow, _ in most], most[0][1]
    who = _who(case, flows)
    if seen is None:
        return f"no tap saw {who}, not even leaving {case.resolved.sender.name}."
    return _dropped_at(case, flows, seen, who) or f"{who} {_lost(case, flows, seen)}."


def _who(case: Case, flows: Sequence[Flow]) -> str:
    return "the packet" if len(case.flows) == 1 else f"{len(flows):,} of {amount(len(case.flows), 'flow')}"


def _dropped_at(case: Case, flows: Sequence[Flow], seen: Observation, who: str) -> str:
    """The rule or stack that counted exactly as many packets at their last hop; empty if there is none."""
    if seen.netns_name not in case.resolved.nodes:
        return ""
    packets = packets_of(flows)
    for rule in read_all(case.evidence.counts):
        if rule.count.node == seen.netns_name and rule.target in _ENDING and rule.count.packets == packets:
            counted = f"which counted {amount(packets, 'packet')}"
            return f"{seen.netns_name} dropped {who} by {the_rule(rule)}, {counted}."
    drop = kernel_drop(case.resolved, case.evidence, packets_until(flows, case.evidence.counters_read_at))
    return f"{drop}." if drop is not None and drop.node == seen.netns_name else ""


def _lost(case: Case, flows: Sequence[Flow], seen: Observation) -> str:
    was, they, them = ("was", "it", "it") if len(flows) == 1 else ("were", "they", "them")
    to = f"addressed to {endpoint(seen.destination, seen.destination_port)}"
    if seen.netns_name not in case.resolved.nodes:
        return f"{was} lost behind {seen.netns_name}: {they} left by {seen.device}, {to}, and came in at no node"
    if seen.device == STACK:
        return f"{was} lost in {seen.netns_name}: a program there sent {them}, {to}, but no device sent {them} on"
    if seen.direction is Direction.IN:
        return f"{was} lost in {seen.netns_name}: {they} came in by {seen.device}, {to}, and did not leave again"
    return f"{was} lost behind {seen.netns_name}: {they} left by {seen.device}, {to}, and came in nowhere"


def last_seen(flow: Flow) -> Observation | None:
    """The last observation of a request."""
    seen = [
        each
        for each in (*flow.departures, *flow.passages, *flow.strays, *flow.arrivals)
        if each.packet is Packet.REQUEST
    ]
    # Of observations at one time the last recorded: the sort is stable.
    return sorted(seen, key=lambda each: each.at)[-1] if seen else None


def seen_untranslated(case: Case, flow: Flow) -> Observation | None:
    """The request leaving a node's device, or coming in at a pod or host, under the address that was dialled.

    A request that leaves a node has passed that node's translation. A later node may still translate it
    (``translated``).
    """
    dialled = (case.resolved.destination, case.resolved.port)
    out = [each for each in flow.passages if each.direction is Direction.OUT and each.packet is Packet.REQUEST]
    return next((each for each in (*out, *flow.strays) if (each.destination, each.destination_port) == dialled), None)


def translated(case: Case, flow: Flow) -> Observation | None:
    """The request on its path, or where it came in, under another address than the dialled one."""
    dialled = (case.resolved.destination, case.resolved.port)
    seen = [each for each in (*flow.passages, *flow.strays) if each.packet is Packet.REQUEST]
    return next((each for each in seen if (each.destination, each.destination_port) != dialled), None)


def hop(seen: Observation) -> str:
    """A hop as ``expect.at`` writes it; the node alone for its own programs."""
    return seen.netns_name if seen.device == STACK else f"{seen.netns_name}/{seen.device}"


def is_at(seen: Observation, where: str) -> bool:
    """Whether ``expect.at`` names this hop, as NODE or as NODE/DEVICE."""
    return where in (seen.netns_name, f"{seen.netns_name}/{seen.device}")
