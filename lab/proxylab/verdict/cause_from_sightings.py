"""What a failure comes down to where no rule, counter or plan says who did it: what was seen, as a sentence.

Owns: that sentence, for every expectation. No failure is left without one.
Must not: choose it where a cause is known (``causes`` does), or say more than was seen.
"""

from proxylab.evidence.words import amount, endpoint, listed
from proxylab.verdict.case import Case
from proxylab.verdict.cause_clauses import dialled
from proxylab.verdict.flow_clauses import told
from proxylab.verdict.flows import Fate, Flow
from proxylab.verdict.last_hop import hop, last_seen
from proxylab.verdict.last_sightings import vanished
from proxylab.verdict.model import Verdict

__all__ = ["otherwise"]


def otherwise(case: Case, verdict: Verdict) -> str:
    """Why this expectation failed, by what was seen.

    Args:
        case: whose expectation it is.
        verdict: which is a fail, for a reason.
    """
    flow = case.flows[verdict.example or 0]
    match verdict.expectation:
        case "outcome":
            sentence = _of_fate(case, flow)
        case "source":
            sentence = _of_source(case, flow)
        case "backends" if verdict.example is not None and flow.arrivals:
            sentence = f"it was led to {flow.arrivals[0].netns_name}, and nothing that counted says by whom."
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
            return vanished(case)
        case Fate.UNSENT:
            errors = listed(sorted(set(case.evidence.refused_sends)), "or")
            who = f"a rule of {sender}'s own" if set(case.evidence.refused_sends) == {"EPERM"} else f"{sender}'s kernel"
            return f"{who} kept it from leaving: the send failed with {errors}."
        case Fate.STRAYED:
            stray = flow.strays[0]
            to = endpoint(stray.destination, stray.destination_port)
            return f"it was led to {stray.netns_name}, which is not whom it was addressed to: {to}."
        case Fate.MULTIPLIED:
            return f"it was copied on its way: {told(case, flow, Fate.MULTIPLIED)}."
        case Fate.REFUSED if not flow.arrivals:
            reset = flow.resets[0]
            whose = f"{endpoint(reset.source, reset.source_port)} refused it"
            return f"{whose} before any pod saw it: nobody listens there, or a rule resets it."
        case Fate.DELIVERED if flow.arrivals:
            arrival = flow.arrivals[0]
            to = endpoint(arrival.destination, arrival.destination_port)
            return f"nothing stopped it: it came in at {arrival.netns_name}, addressed to {to}."
        case fate:
            return f"{told(case, flow, fate)}."


def _of_source(case: Case, flow: Flow) -> str:
    client = case.resolved.sender.of(flow.number)
    for arrival in flow.arrivals:
        if arrival.source != client:
            return (
                f"{arrival.source} was put in the place of {client} on the way to {arrival.netns_name}, "
                f"and nothing that counted says by whom."
            )
    return f"nothing changed its source: {listed(flow.reached)} saw {client} itself." if flow.arrivals else ""


def _of_reply(case: Case, flow: Flow) -> str:
    if not flow.replies:
        return ""
    reply = flow.replies[0]
    came, due = endpoint(reply.source, reply.source_port), dialled(case)
    if came == due:
        return ""
    return f"whoever has {came} answered, or something made that the reply's source: {due} was dialled."


def _of_ending(flow: Flow) -> str:
    seen = last_seen(flow)
    return "" if seen is None else f"it got as far as {hop(seen)}: {seen.direction} was the last that was seen of it."


def _of_http(case: Case, flow: Flow) -> str:
    report = next((each for each in case.evidence.http if each.flow == flow.number), None)
    if report is None:
        return ""
    if report.error:
        return f"nobody answered {case.resolved.sender.name} by HTTP at {dialled(case)}: {report.error}."
    return f"who answers at {dialled(case)} said {report.status}."


def _of_tables(case: Case) -> str:
    wanted, entries = case.probe.expect.conntrack, case.evidence.entries or ()
    if wanted is None or wanted.some is None:
        return ""
    nodes = (wanted.node,) if wanted.node is not None else case.resolved.nodes
    there = amount(sum(each.node in nodes for each in entries), "entry")
    whose = f"{listed(list(nodes), 'or')} tracks no such flow among {there}"
    return f"{whose}: nothing that would leave one passed there, or it is forgotten."
