"""``source``: from which address the packets came to the pods. It needs the taps there, and rule counters."""

from collections import Counter

from proxylab.addresses import IPAddress
from proxylab.evidence.words import amount, counted, endpoint, listed
from proxylab.plan.resolved import Sender
from proxylab.scenario.model import Manner, NodeDevice, Preserved, SourceExpectation
from proxylab.verdict.account.flows import Flow, counted_ends
from proxylab.verdict.case import Case
from proxylab.verdict.expectations.expectation import Expectation, Needs
from proxylab.verdict.findings import Findings
from proxylab.verdict.model import Verdict

__all__ = ["SOURCE"]


def _judge(case: Case, wanted: SourceExpectation) -> Verdict:
    """Every packet that arrived has the expected source address, and each node changed it once at most."""
    findings, sender = Findings(case, case.unseen), case.resolved.sender
    expected = case.source or sender.address
    kept = bool(sender.others) and isinstance(wanted, Preserved)
    for flow in case.arrived:
        due = sender.address_of_flow(flow.number) if kept else expected
        contradiction = _disagreement(case, flow)
        strangers = [str(each.source) for each in flow.arrivals if each.source != due]
        if contradiction:
            findings.doubt(contradiction, flow.number)
        elif strangers:
            origin = listed(list(dict.fromkeys(strangers)))
            findings.wrong(f"{listed(flow.reached)} saw it come from {origin}", flow.number)
        elif flow.number in case.disagreements:
            findings.doubt(case.disagreements[flow.number], flow.number)
    again = case.masqueraded_again
    if again is not None:
        changed = amount(again.count.packets, "packet")
        findings.wrong(f"{again.count.node} masqueraded {changed} for {amount(len(case.flows), 'flow')}")
    sources = counted_ends([(flow.arrivals[0].source, 0) for flow in case.arrived])
    seen = Counter({str(address): count for (address, _), count in sources.items()})
    return findings.settle(
        "source",
        expected=_in_words(wanted, expected, sender),
        observed=counted(seen) if len(seen) > 1 else listed(list(seen)),
    )


def _in_words(wanted: SourceExpectation, address: IPAddress, sender: Sender) -> str:
    """What the author wrote, and the address that it resolves to."""
    match wanted:
        case Preserved() if sender.others:
            return f"preserved ({len(sender.addresses):,} addresses)"
        case Preserved():
            return f"preserved ({address})"
        case NodeDevice(node, device):
            return f"{address} ({node} {device})"
        case _:
            return str(address)


def _disagreement(case: Case, flow: Flow) -> str:
    """How the tap at the pod and the responder behind it contradict each other; empty where they agree."""
    report = flow.report
    if case.resolved.manner is not Manner.CONNECT or report is None or report.error:
        return ""
    if report.peer is None:
        return f"{report.backend} did not say which peer it saw"
    peer = (report.peer, report.peer_port)
    seen = {(arrival.source, arrival.source_port) for arrival in flow.arrivals}
    if peer in seen:
        return ""
    at_tap = listed([endpoint(*each) for each in sorted(seen, key=str)])
    return f"the tap at {listed(flow.reached)} saw {at_tap}, {report.backend} itself saw {endpoint(*peer)}"


def _as_seen(case: Case, verdict: Verdict) -> str:
    flow = case.flows[verdict.example or 0]
    client = case.resolved.sender.address_of_flow(flow.number)
    for arrival in flow.arrivals:
        if arrival.source != client:
            changed = f"the source changed from {client} to {arrival.source} on the way to {arrival.netns_name}"
            return f"{changed}, and no counter shows which rule changed it."
    return f"nothing changed the packet's source: {listed(flow.reached)} saw {client}." if flow.arrivals else ""


def _seen_address(case: Case, verdict: Verdict) -> IPAddress | None:
    return next((arrival.source for arrival in case.flows[verdict.example or 0].arrivals), None)


SOURCE = Expectation[Case, SourceExpectation](
    key="source",
    wanted=lambda case: case.probe.expect.source,
    judge=_judge,
    needs=Needs.ARRIVALS,
    as_seen=_as_seen,
    seen_address=_seen_address,
)
