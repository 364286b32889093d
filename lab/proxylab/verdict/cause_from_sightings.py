"""The sentence for a failure whose cause no rule, counter or plan shows: what the taps saw.

Every failed expectation gets such a sentence. ``causes`` goes first, where the cause is known.
"""

from proxylab.evidence.evidence import Direction
from proxylab.evidence.words import amount, endpoint, listed
from proxylab.verdict.case import Case
from proxylab.verdict.cause_clauses import dialled
from proxylab.verdict.flow_clauses import fate_clause
from proxylab.verdict.flows import Fate, Flow
from proxylab.verdict.last_sightings import hop, last_seen, last_sighting_of_lost
from proxylab.verdict.model import Verdict

__all__ = ["cause_by_taps"]


def cause_by_taps(case: Case, verdict: Verdict) -> str:
    """What the taps saw of this failed expectation.

    Args:
        case: the probe.
        verdict: a fail, with reasons.
    """
    flow = case.flows[verdict.example or 0]
    match verdict.expectation:
        case "outcome":
            sentence = _of_fate(case, flow)
        case "source":
            sentence = _of_source(case, flow)
        case "backends" if verdict.example is not None and flow.arrivals:
            sentence = (
                f"the packet reached {flow.arrivals[0].netns_name}, and no counter shows which rule sent it there."
            )
        case "reply":
            sentence = _of_reply(case, flow)
        case "at":
            sentence = _of_ending(flow)
        case "http":
            sentence = _of_http(case, flow)
        case "conntrack":
            sentence = _of_tables(case)
        case _:
            sentence = ""
    return sentence or f"{verdict.reasons[0]}."


def _of_fate(case: Case, flow: Flow) -> str:
    sender = case.resolved.sender.name
    match case.fates[flow.number]:
        case Fate.LOST:
            return last_sighting_of_lost(case)
        case Fate.UNSENT:
            errors = listed(sorted(set(case.evidence.refused_sends)), "or")
            who = (
                f"a rule in {sender}'s own namespace"
                if set(case.evidence.refused_sends) == {"EPERM"}
                else f"{sender}'s kernel"
            )
            return f"{who} kept the packet from leaving: the send failed with {errors}."
        case Fate.STRAYED:
            stray = flow.strays[0]
            to = endpoint(stray.destination, stray.destination_port)
            return (
                f"the packet came in at {stray.netns_name} addressed to {to}, which {stray.netns_name} does not have."
            )
        case Fate.MULTIPLIED:
            return f"the packet was copied on its way: {fate_clause(case, flow, Fate.MULTIPLIED)}."
        case Fate.REFUSED if not flow.arrivals:
            reset = flow.resets[0]
            refused = f"{endpoint(reset.source, reset.source_port)} refused the connection"
            return f"{refused} before any pod saw it: no program listens there, or a rule resets it."
        case Fate.DELIVERED if flow.arrivals:
            arrival = flow.arrivals[0]
            to = endpoint(arrival.destination, arrival.destination_port)
            return f"nothing stopped the packet: it came in at {arrival.netns_name}, addressed to {to}."
        case fate:
            return f"{fate_clause(case, flow, fate)}."


def _of_source(case: Case, flow: Flow) -> str:
    client = case.resolved.sender.of(flow.number)
    for arrival in flow.arrivals:
        if arrival.source != client:
            return (
                f"the source changed from {client} to {arrival.source} on the way to {arrival.netns_name}, "
                f"and no counter shows which rule changed it."
            )
    return f"nothing changed the packet's source: {listed(flow.reached)} saw {client}." if flow.arrivals else ""


def _of_reply(case: Case, flow: Flow) -> str:
    if not flow.replies:
        return ""
    reply = flow.replies[0]
    came, due = endpoint(reply.source, reply.source_port), dialled(case)
    if came == due:
        return ""
    return f"the probe dialled {due}, but {came} answered, or a rule made that the reply's source."


def _of_ending(flow: Flow) -> str:
    seen = last_seen(flow)
    if seen is None:
        return ""
    went = "leaving" if seen.direction is Direction.OUT else "coming in"
    return f"the packet got as far as {hop(seen)}: no tap saw it again after {went} there."


def _of_http(case: Case, flow: Flow) -> str:
    report = next((each for each in case.evidence.http if each.flow == flow.number), None)
    if report is None:
        return ""
    if report.error:
        return f"{dialled(case)} did not answer {case.resolved.sender.name} by HTTP: {report.error}."
    return f"{dialled(case)} answered with status {report.status}."


def _of_tables(case: Case) -> str:
    wanted, entries = case.probe.expect.conntrack, case.evidence.entries or ()
    if wanted is None or wanted.some is None:
        return ""
    nodes = (wanted.node,) if wanted.node is not None else case.resolved.nodes
    there = amount(sum(each.node in nodes for each in entries), "entry")
    missing = f"conntrack on {listed(list(nodes), 'or')} has no such entry among {there}"
    return f"{missing}: no such flow passed there, or its entry is gone."
