"""Clauses about flows that several verdicts share: the words for a fate, and the packets that a rule must count."""

from collections import Counter
from collections.abc import Sequence

from proxylab.evidence.words import endpoint, listed, times
from proxylab.verdict.case import Case, packets_of, packets_until
from proxylab.verdict.copies import copies
from proxylab.verdict.drops import KernelDrop, kernel_drop
from proxylab.verdict.flows import Fate, Flow
from proxylab.verdict.rules import Rule, ending

__all__ = ["dropped_by_stack", "fate_clause", "fates", "nodes_of", "packets"]


def fates(case: Case) -> str:
    """What became of the flows; a loss is called a drop only where rules or a stack account for all of it."""
    counts = Counter(case.fates)
    rules = ending(case.resolved, case.evidence.counts, "DROP")
    if set(counts) == {Fate.LOST} and sum(rule.count.packets for rule in rules) >= packets(case):
        return f"dropped on {listed(nodes_of(rules))}"
    if (drop := dropped_by_stack(case)) is not None:
        return f"dropped on {drop.node} by {drop.by}"
    if len(case.flows) == 1:
        return str(case.fates[0])
    return ", ".join(f"{count:,} {fate}" for fate, count in counts.most_common())


def fate_clause(case: Case, flow: Flow, fate: Fate) -> str:
    """A clause about what the taps saw of a flow."""
    heard = [f"ICMP {icmp.icmp[0]}/{icmp.icmp[1]} from {icmp.source}" for icmp in flow.errors if icmp.icmp]
    heard += [f"ICMP port unreachable from {icmp.source}" for icmp in flow.unreachables]
    heard += [f"a reset from {endpoint(reset.source, reset.source_port)}" for reset in flow.resets]
    heard += [f"a reply from {endpoint(reply.source, reply.source_port)}" for reply in flow.replies]
    answers = listed(list(dict.fromkeys(heard)))
    match fate:
        case Fate.DELIVERED:
            return f"it arrived at {flow.reached[0]}"
        case Fate.MULTIPLIED if len(flow.reached) > 1:
            return f"it arrived at {listed(flow.reached)}"
        case Fate.MULTIPLIED:
            left = times(len(flow.departures))
            return f"it arrived {times(len(flow.arrivals))} at {flow.reached[0]}, but left {left}"
        case Fate.COPIED:
            where = copies(flow.strays) if flow.strays else f"{case.lost_copies[flow.number]}, and went no further"
            return f"it arrived at {listed(flow.reached)}, and a copy of it came in at {where}"
        case Fate.STRAYED:
            stray = flow.strays[0]
            return (
                f"it came in at {stray.netns_name}, addressed to {endpoint(stray.destination, stray.destination_port)}"
            )
        case Fate.UNSENT:
            errors = listed(sorted(set(case.evidence.refused_sends)), "or")
            return f"the sender's own kernel refused to send it: {errors}"
        case Fate.UNEXPLAINED:
            return f"{case.resolved.sender.name} heard {answers}, but no pod saw the request"
        case _:
            arrival = f"it arrived at {listed(flow.reached)}, and " if flow.reached else ""
            return f"{arrival}{case.resolved.sender.name} heard {answers}"


def packets(case: Case) -> int:
    """How many packets a rule must have counted if it ended every flow: a repeated SYN is one more."""
    return packets_of(case.flows)


def dropped_by_stack(case: Case) -> KernelDrop | None:
    """The drop by a node's stack that accounts for every packet of the probe, if there is one."""
    if set(case.fates) != {Fate.LOST}:
        return None
    return kernel_drop(case.resolved, case.evidence, packets_until(case.flows, case.evidence.counters_read_at))


def nodes_of(rules: Sequence[Rule]) -> list[str]:
    """The nodes on which rules counted, each once."""
    return list(dict.fromkeys(rule.count.node for rule in rules))
