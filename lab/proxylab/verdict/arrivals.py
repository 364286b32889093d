"""The verdicts ``backends``, ``source`` and ``spread``: which pods the flows reached, and from which address.

They rest on the packets that the taps saw at the pods. A flow that no pod saw only casts doubt here; ``judge`` judges
what became of it.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

from proxylab.addresses import IPAddress
from proxylab.evidence.words import amount, endpoint, listed
from proxylab.plan.resolved import Sender
from proxylab.scenario.model import Manner, NodeDevice, Preserved, Shares, SourceExpectation, Spread
from proxylab.statistics import (
    SHARE_CHANGE,
    SIGNIFICANCE,
    flows_needed_for,
    flows_to_hit_all,
    flows_to_stick,
    spread_p_value,
)
from proxylab.verdict.case import Case, Findings
from proxylab.verdict.flows import Flow, counted_ends
from proxylab.verdict.model import Verdict
from proxylab.verdict.rules import Rule, read_all

__all__ = ["arrivals_by_pod", "due_shares", "judge_backends", "judge_source", "judge_spread", "masqueraded_again"]

_MOST_SHARES = 6
"""How many pods the one line of a verdict names with their flows; ``explain`` prints a table."""


def arrivals_by_pod(case: Case) -> Counter[str]:
    """How many flows arrived at each pod, in the order of first arrival."""
    return Counter(netns_name for flow in case.flows for netns_name in flow.reached)


def judge_backends(case: Case, expected: Sequence[str]) -> Verdict:
    """The flows reached exactly the pods in ``expected``.

    The proxy picks a backend by chance, so few flows need not reach all of them. Only from ``flows_to_hit_all`` flows
    on does a backend without a flow count as missing; below that the verdict says so. With session affinity the proxy
    chooses once for each client. A client of a headless Service's name dials one pod; the verdict ``name`` checks that
    the name gives all of them.
    """
    found = arrivals_by_pod(case)
    findings = _unseen(case)
    for flow in case.arrived:
        strangers = [netns_name for netns_name in flow.reached if netns_name not in expected]
        if strangers:
            findings.wrong.append((flow.number, f"the request reached {listed(strangers)}, not an expected backend"))
        elif flow.number in case.disagreements:
            findings.doubts.append((flow.number, case.disagreements[flow.number]))
    question = case.resolved.question
    chosen_by_client = question is not None and question.headless
    never = [] if chosen_by_client else [name for name in dict.fromkeys(expected) if not found[name]]
    observed = _shares(found)
    sticky = case.probe.expect.spread is Spread.STICKY
    choices = len(_backends_of_clients(case)) if sticky else len(case.arrived)
    said = bool(findings.wrong) and len(set(expected)) == 1  # a stranger was hit, so the only backend was not
    if never and found and not said and (choices > 1 or not sticky):
        chosen = amount(choices, "client" if sticky else "flow")
        if choices >= flows_to_hit_all(len(set(expected))):
            findings.missing_overall.append(f"the proxy never chose {listed(never)} in {chosen}")
        else:
            observed += f" ({chosen} need not hit all {len(set(expected)):,})"
    return findings.settle(case, "backends", expected=listed(expected), observed=observed)


def judge_source(case: Case, expected: IPAddress) -> Verdict:
    """Every packet that arrived has the source address ``expected``, and each node changed it once at most."""
    findings = _unseen(case)
    sender = case.resolved.sender
    kept = bool(sender.others) and isinstance(case.probe.expect.source, Preserved)
    for flow in case.arrived:
        due = sender.of(flow.number) if kept else expected
        contradiction = _disagreement_on_source(case, flow)
        strangers = [str(each.source) for each in flow.arrivals if each.source != due]
        if contradiction:
            findings.doubts.append((flow.number, contradiction))
        elif strangers:
            origin = listed(list(dict.fromkeys(strangers)))
            findings.wrong.append((flow.number, f"{listed(flow.reached)} saw it come from {origin}"))
        elif flow.number in case.disagreements:
            findings.doubts.append((flow.number, case.disagreements[flow.number]))
    again = masqueraded_again(case)
    if again is not None:
        count = again.count
        findings.wrong_overall.append(
            f"{count.node} masqueraded {amount(count.packets, 'packet')} for {amount(len(case.flows), 'flow')}"
        )
    sources = counted_ends([(flow.arrivals[0].source, 0) for flow in case.arrived])
    seen = Counter({str(address): count for (address, _), count in sources.items()})
    return findings.settle(
        case,
        "source",
        expected=_source(case.probe.expect.source, expected, sender),
        observed=_shares(seen) if len(seen) > 1 else listed(list(seen)),
    )


def masqueraded_again(case: Case) -> Rule | None:
    """The rule that changed more sources than there are flows; ``None`` where there is none.

    The kernel consults source NAT once for each flow, and a lab has no other traffic. A further change is that of a
    tunnel's packet, which inherits the mark of the packet inside (skb->mark); a rule should have cleared it.
    """
    changing = (rule for rule in read_all(case.evidence.counts) if rule.target in ("MASQUERADE", "SNAT"))
    return next((rule for rule in changing if rule.count.packets > len(case.flows)), None)


def _source(wanted: SourceExpectation | None, address: IPAddress, sender: Sender) -> str:
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


def _disagreement_on_source(case: Case, flow: Flow) -> str:
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


def judge_spread(case: Case, wanted: Spread | Shares, backends: Sequence[str] | None) -> Verdict:
    """The spread of flows over ``backends``, or without ``backends`` over the pods that they reached.

    A spread over too few flows is neither even nor uneven: see ``proxylab.statistics``.
    """
    match wanted:
        case Spread.STICKY:
            return _judge_sticky(case, backends)
        case Shares(of):
            shown = ", ".join(f"{name} {share:.1%}" for name, share in of.items())
            return _judge_shares(case, of, shown)
        case _:
            names = list(dict.fromkeys(backends)) if backends else list(arrivals_by_pod(case))
            due = dict.fromkeys(names, 1 / len(names)) if names else {}
            return _judge_shares(
                case, due, f"even, {1 / len(names):.1%} each" if names else "even", named=bool(backends)
            )


def _judge_shares(case: Case, due: Mapping[str, float], expected: str, *, named: bool = True) -> Verdict:
    """Each pod got its due share of all flows, as far as chance allows."""
    found = arrivals_by_pod(case)
    counts = [found[name] for name in due]
    shares = tuple(due.values())
    flows, findings = sum(counts), _unseen(case)
    findings.doubts += case.disagreements.items()
    _note_strangers(findings, found, due)
    chance = spread_p_value(counts, shares) if due else 1.0
    if not named and len(due) == 1:
        only = next(iter(due))
        findings.doubts_overall.append(
            f"the flows reached only {only}; without backends the judge cannot know whether there are others"
        )
    elif due and flows < (needed := flows_needed_for(shares)):
        findings.doubts_overall.append(
            f"{amount(flows, 'flow')} over {amount(len(due), 'backend')} cannot show a change of one share by "
            f"{SHARE_CHANGE:.0%}; {needed:,} flows can"
        )
    elif chance < SIGNIFICANCE:
        findings.missing_overall.append(f"chance alone spreads as unevenly as this with p = {chance:.1e}")
    return findings.settle(case, "spread", expected=expected, observed=_shares(found))


def _judge_sticky(case: Case, backends: Sequence[str] | None) -> Verdict:
    """All flows of a client went to one backend, and there were too many of them for chance.

    A client is an address. Each client may have another backend; the flows after its first show whether affinity held.
    """
    found = arrivals_by_pod(case)
    clients = _backends_of_clients(case)
    findings = _unseen(case)
    findings.doubts += case.disagreements.items()
    names = list(dict.fromkeys(backends or ()))
    if names:
        _note_strangers(findings, found, names)
    strayed = {client: reached for client, reached in clients.items() if len(reached) > 1}
    if len(clients) > 1 and strayed:
        findings.wrong_overall.append(f"{len(strayed):,} of {len(clients):,} clients went to several backends")
    elif strayed:
        findings.wrong_overall.append(f"the flows of one client went to {listed(list(found))}")
    elif len(names) < 2:
        only = listed(list(found))
        findings.doubts_overall.append(f"the flows reached only {only}; affinity shows only among two backends or more")
    elif len(case.arrived) < (needed := flows_to_stick(len(names)) + max(len(clients), 1) - 1):
        findings.doubts_overall.append(
            f"{amount(len(case.arrived), 'flow')} may all go to one of {len(names):,} backends by chance; "
            f"{needed:,} hardly do"
        )
    wanted = "sticky, all to one" if len(clients) < 2 else "sticky, all of a client to one"
    return findings.settle(case, "spread", expected=wanted, observed=_shares(found))


def _backends_of_clients(case: Case) -> dict[IPAddress, set[str]]:
    """Where the flows of each address arrived."""
    if not case.resolved.sender.others:
        return {case.resolved.sender.address: set(arrivals_by_pod(case))}
    found: dict[IPAddress, set[str]] = {}
    for flow in case.arrived:
        found.setdefault(case.resolved.sender.of(flow.number), set()).update(flow.reached)
    return found


def due_shares(case: Case) -> Mapping[str, float]:
    """The share of the flows due to each pod: the one that the author wrote, or an equal one for each backend."""
    spread = case.probe.expect.spread
    if isinstance(spread, Shares):
        return spread.of
    names = list(dict.fromkeys(case.probe.expect.backends or arrivals_by_pod(case)))
    return dict.fromkeys(names, 1 / len(names)) if names else {}


def _note_strangers(findings: Findings, found: Iterable[str], names: Collection[str]) -> None:
    strangers = [name for name in found if name not in names]
    if strangers:
        findings.wrong_overall.append(f"requests reached {listed(strangers)}, not an expected backend")


def _unseen(case: Case) -> Findings:
    """The findings that every verdict about arrivals starts from: flows that no pod saw show nothing."""
    unseen = len(case.flows) - len(case.arrived)
    if not unseen:
        return Findings()
    clause = "no flow arrived, so the judge has nothing to compare"
    if case.arrived:
        clause = f"{unseen:,} of {amount(len(case.flows), 'flow')} did not arrive, so the judge cannot compare those"
    return Findings(doubts_overall=[clause])


def _shares(found: Counter[str]) -> str:
    """Names with their flows, in a line; the name alone for one flow."""
    if found.total() <= 1:
        return listed(list(found))
    shown = [f"{name} {count:,}" for name, count in found.most_common(_MOST_SHARES)]
    more = len(found) - len(shown)
    return ", ".join(shown) + (f", {more:,} more" if more else "")
