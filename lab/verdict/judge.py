"""The judge: recorded evidence against the expectations of one probe.

Owns: ``judge``; the outcome, the reply and the hop where a flow ended (``arrivals`` judges who was reached, as whom).
Must not: pass what is not proven. ``case`` says how findings weigh.

What each outcome needs, for every flow of the probe:

* ``delivered``: it left the sender, arrived at exactly one pod, once per packet sent, under that pod's own address. The
  reply is a verdict of its own: sent by that pod, and back at the sender from the address that was dialled. Where the
  pod is not what was dialled, DNAT rules that lead to it counted every flow: else conntrack may have taken it there.
* ``rejected``: an ICMP port unreachable at the sender that quotes it, not from a pod; no pod saw it; and rules that
  reject, and that name what was dialled, counted every packet of it: a node's own stack says the same of a closed port.
* ``refused``: a TCP reset at the sender, from the address that was dialled.
* ``dropped``: no pod saw it and the sender heard nothing; rules that drop, and that name what was dialled, counted
  every packet of it; and fences that were sent after it are back, so that it is not merely late.

Flows by kernel sockets have a second witness. Where it contradicts the taps about a flow, nobody knows.
"""

from collections import Counter
from collections.abc import Iterator

from lab.errors import InternalError
from lab.ip import IPAddress, Protocol
from lab.plan.errand import Errand
from lab.scenario.model import Expect, Manner, NodeDevice, Outcome, Preserved, Probe, Reply
from lab.verdict.arrivals import hits, judge_backends, judge_source, judge_spread
from lab.verdict.beside import judge_conntrack, judge_http
from lab.verdict.case import Case, Findings, open_case
from lab.verdict.evidence import Evidence
from lab.verdict.flows import Fate, Flow
from lab.verdict.model import ProbeVerdict, Verdict
from lab.verdict.rules import Rule, ending, translations
from lab.verdict.words import amount, endpoint, listed, tally, times

__all__ = ["judge"]

_FATE = {
    Outcome.DELIVERED: Fate.DELIVERED,
    Outcome.REJECTED: Fate.REJECTED,
    Outcome.REFUSED: Fate.REFUSED,
    Outcome.DROPPED: Fate.LOST,
}

_UNDECIDED = {
    Outcome.DELIVERED: frozenset({Fate.CONTRADICTORY, Fate.UNEXPLAINED}),
    Outcome.REJECTED: frozenset({Fate.CONTRADICTORY}),
    Outcome.REFUSED: frozenset({Fate.CONTRADICTORY}),
    Outcome.DROPPED: frozenset[Fate](),
}
"""Fates that neither hold nor break an outcome: one witness is missing, or two speak against each other."""

_TARGET = {Outcome.DROPPED: "DROP", Outcome.REJECTED: "REJECT"}

_ABOUT_ARRIVALS = ("backends", "source", "spread")


def judge(probe: Probe, errand: Errand, source: IPAddress | None, evidence: Evidence) -> ProbeVerdict:
    """Judge every expectation of a probe.

    Args:
        probe: with what the author expects.
        errand: the probe, resolved.
        source: the address that ``expect.source`` comes to; ``None`` for ``preserved``, an address, or no expectation.
        evidence: what was seen.

    Raises:
        InternalError: if ``expect.source`` names a node's device and ``source`` does not say what address that is.
    """
    case = open_case(probe, errand, evidence)
    expect = probe.expect
    return ProbeVerdict(
        probe=probe,
        errand=errand,
        verdicts=tuple(_verdicts(case, source)),
        evidence=evidence,
        source=None if expect.source is None else _resolved(errand, expect, source),
    )


def _verdicts(case: Case, source: IPAddress | None) -> Iterator[Verdict]:
    expect = case.probe.expect
    if expect.http is None or "outcome" in expect.positions:
        yield from _about_packets(case, source)
    if expect.http is not None:
        yield judge_http(case, expect.http)
    if expect.conntrack is not None:
        yield judge_conntrack(case, expect.conntrack)


def _about_packets(case: Case, source: IPAddress | None) -> Iterator[Verdict]:
    expect = case.probe.expect
    yield _judge_outcome(case)
    if expect.outcome is Outcome.DELIVERED:
        yield _judge_reply(case, expect.reply or Reply.TRANSLATED)
    if expect.outcome in _TARGET:
        yield from _beside_the_point(case)
    else:
        if expect.backends is not None:
            yield judge_backends(case, expect.backends)
        if expect.source is not None:
            yield judge_source(case, _resolved(case.errand, expect, source))
        if expect.spread is not None:
            yield judge_spread(case, expect.spread, expect.backends)
    if expect.at is not None:
        yield _judge_place(case, expect.at)


def _resolved(errand: Errand, expect: Expect, source: IPAddress | None) -> IPAddress:
    match expect.source:
        case Preserved():
            return errand.sender.address
        case NodeDevice() as device if source is None:
            raise InternalError(f"{expect.position}: nobody resolved the source {device}; please report this")
        case NodeDevice() | None:
            return source or errand.sender.address
        case address:
            return source or address


def _beside_the_point(case: Case) -> Iterator[Verdict]:
    """Expectations about pods, where no pod is to be reached: nothing that is seen could ever bear on them."""
    expect = case.probe.expect
    for key in _ABOUT_ARRIVALS:
        if getattr(expect, key) is not None:
            clause = f"nothing can be seen of {key} where the outcome is {expect.outcome}: take one of the two out"
            yield Findings(wrong_overall=[clause]).settle(case, key, expected="", observed="")


def _judge_outcome(case: Case) -> Verdict:
    outcome = case.probe.expect.outcome
    observed = _fates(case)
    wanted = _FATE.get(outcome)
    if wanted is None:
        clause = f"no tap of this lab stands where a packet could be seen that is {outcome}"
        return Findings(doubts_overall=[clause]).settle(case, "outcome", expected=outcome, observed=observed)
    findings = Findings()
    for flow, fate in zip(case.flows, case.fates, strict=True):
        if flow.number in case.disagreements:
            findings.doubts.append((flow.number, case.disagreements[flow.number]))
        elif fate is wanted or (outcome is Outcome.DROPPED and fate is Fate.UNSENT):
            findings.doubts += ((flow.number, clause) for clause in _doubts_about(case, flow, fate))
        elif fate is Fate.LOST:
            findings.missing.append((flow.number, "nothing of it was seen again after it left"))
        elif fate in _UNDECIDED[outcome]:
            findings.doubts.append((flow.number, _told(case, flow, fate)))
        else:
            findings.wrong.append((flow.number, _told(case, flow, fate)))
    if outcome is Outcome.DELIVERED:
        findings.doubts_overall += _doubts_about_translation(case)
    elif outcome is Outcome.REJECTED and Fate.REJECTED in case.fates:
        findings.doubts_overall += _doubts_about_rules(case, outcome, "reject", "an ICMP error came")
    elif outcome is Outcome.DROPPED:
        findings.doubts_overall += case.silence
        findings.doubts_overall += _doubts_about_rules(case, outcome, "drop", "nothing arrived")
    return findings.settle(
        case,
        "outcome",
        expected=outcome,
        observed=observed,
        silence=case.silence,
        witnesses=_witnesses(case, outcome),
    )


def _fates(case: Case) -> str:
    """What became of the flows; silence is called a drop only where rules account for all of it."""
    counts = Counter(case.fates)
    rules = ending(case.errand, case.evidence.counts, "DROP")
    if set(counts) == {Fate.LOST} and sum(rule.count.packets for rule in rules) >= _packets(case):
        return f"dropped on {listed(_nodes(rules))}"
    if len(case.flows) == 1:
        return str(case.fates[0])
    return ", ".join(f"{count:,} {fate}" for fate, count in counts.most_common())


def _told(case: Case, flow: Flow, fate: Fate) -> str:
    """A clause that tells what was seen of a flow."""
    heard = [f"ICMP {icmp.icmp[0]}/{icmp.icmp[1]} from {icmp.source}" for icmp in flow.errors if icmp.icmp]
    heard += [f"ICMP port unreachable from {icmp.source}" for icmp in flow.unreachables]
    heard += [f"a reset from {endpoint(reset.source, reset.source_port)}" for reset in flow.resets]
    heard += [f"a reply from {endpoint(reply.source, reply.source_port)}" for reply in flow.replies]
    by_whom = listed(list(dict.fromkeys(heard)))
    match fate:
        case Fate.DELIVERED:
            return f"it arrived at {flow.places[0]}"
        case Fate.MULTIPLIED if len(flow.places) > 1:
            return f"it arrived at {listed(flow.places)}"
        case Fate.MULTIPLIED:
            left = times(len(flow.departures))
            return f"it arrived {times(len(flow.arrivals))} at {flow.places[0]}, but left {left}"
        case Fate.STRAYED:
            stray = flow.strays[0]
            return f"it came in at {stray.place}, addressed to {endpoint(stray.destination, stray.destination_port)}"
        case Fate.UNSENT:
            errors = listed(sorted(set(case.evidence.refused_sends)), "or")
            return f"the sender's own kernel refused to send it: {errors}"
        case Fate.UNEXPLAINED:
            return f"{case.errand.sender.name} heard {by_whom}, but no pod saw the request"
        case _:
            arrival = f"it arrived at {listed(flow.places)}, and " if flow.places else ""
            return f"{arrival}{case.errand.sender.name} heard {by_whom}"


def _doubts_about(case: Case, flow: Flow, fate: Fate) -> Iterator[str]:
    """Why a fate that looks as expected may not be what it looks like."""
    errand = case.errand
    if fate is Fate.REJECTED:
        # What listens on a node has the node's address, which is no sign of a port that it closed.
        pods = {pod.address: pod.name for pod in errand.receivers if not pod.ports}
        for icmp in flow.unreachables:
            if icmp.source in pods:
                yield f"the ICMP error is from {pods[icmp.source]}'s address, but {pods[icmp.source]} saw no request"
            if icmp.destination != errand.sender.address:
                yield f"the ICMP error is addressed to {icmp.destination}, not to {errand.sender.name}"
    elif fate is Fate.REFUSED:
        dialled = (errand.destination, errand.port)
        for reset in flow.resets:
            if (reset.source, reset.source_port) != dialled:
                stranger = endpoint(reset.source, reset.source_port)
                yield f"the reset is from {stranger}, not from {endpoint(*dialled)} that was dialled"
    elif fate is Fate.UNSENT and set(case.evidence.refused_sends) != {"EPERM"}:
        yield _told(case, flow, fate)


def _doubts_about_translation(case: Case) -> Iterator[str]:
    """Why it may not have been a rule that led to a pod: no DNAT rule that names it accounts for every flow it got.

    A DNAT rule counts the first packet of a flow, and each flow of a probe is a new one. A flow that conntrack knew
    from before would go the old way, and no rule would be asked.
    """
    if not set(case.errand.nodes) <= set(case.evidence.counted):
        return
    dialled = (case.errand.destination, case.errand.port)
    got = Counter((flow.arrivals[0].destination, flow.arrivals[0].destination_port) for flow in case.arrived)
    counted = Counter[tuple[IPAddress, int] | None]()
    for rule in translations(case.evidence.counts):
        counted[rule.translates_to] += rule.count.packets
    for where, flows in got.items():
        if where != dialled and counted[where] < flows:
            yield f"DNAT rules to {endpoint(*where)} counted {counted[where]:,} of {amount(flows, 'flow')} it got"


def _doubts_about_rules(case: Case, outcome: Outcome, verb: str, seen: str) -> Iterator[str]:
    """Why what was ``seen`` is not yet the work of rules: no counter accounts for every packet."""
    needed = _packets(case)
    rules = _ending_rules(case, outcome)
    counted = sum(rule.count.packets for rule in rules)
    if counted >= needed:
        return
    if rules:
        yield f"rules that {verb} it counted {counted:,} of {amount(needed, 'packet')}: {listed(_nodes(rules))}"
    else:
        yield f"{seen}, but no rule says it {outcome} it"


def _packets(case: Case) -> int:
    """How many packets a rule must have counted, if it ended every flow: a repeated SYN is one more."""
    return sum(max(1, len(flow.departures)) for flow in case.flows)


def _ending_rules(case: Case, outcome: Outcome) -> tuple[Rule, ...]:
    return ending(case.errand, case.evidence.counts, _TARGET[outcome])


def _nodes(rules: tuple[Rule, ...]) -> list[str]:
    return list(dict.fromkeys(rule.count.node for rule in rules))


def _witnesses(case: Case, outcome: Outcome) -> Iterator[str]:
    if outcome is Outcome.DELIVERED:
        places = [place for flow in case.arrived for place in flow.places]
        yield from tally((f"seen at {place}" for place in places), len(case.flows))
    elif outcome is Outcome.REJECTED:
        icmps = [flow.unreachables[0] for flow in case.flows if flow.unreachables]
        yield from tally((f"ICMP port unreachable from {icmp.source}" for icmp in icmps), len(case.flows))
    elif outcome is Outcome.REFUSED:
        yield from tally((f"reset by {flow.resets[0].source}" for flow in case.flows if flow.resets), len(case.flows))
    if outcome in _TARGET:
        for rule in _ending_rules(case, outcome):
            yield f"{rule.count.node} counted {amount(rule.count.packets, 'packet')}: {rule.count.text}"


def _judge_reply(case: Case, wanted: Reply) -> Verdict:
    """The reply bears the address that was dialled, or where it is to be left as it is, the backend's own."""
    errand = case.errand
    findings = Findings()
    answered = 0
    for flow, fate in zip(case.flows, case.fates, strict=True):
        if not flow.arrivals:
            findings.doubts.append((flow.number, "it never arrived at a pod that could reply"))
            continue
        if flow.number in case.disagreements:
            findings.doubts.append((flow.number, case.disagreements[flow.number]))
            continue
        wrong = _wrong_reply(case, flow, wanted)
        if wrong:
            findings.wrong.append((flow.number, wrong))
        elif not flow.replies:
            sent = "sent a reply, but it did not reach" if flow.answers else "sent no reply to"
            findings.missing.append((flow.number, f"{listed(flow.places)} {sent} {errand.sender.name}"))
        elif fate is Fate.CONTRADICTORY:
            findings.doubts.append((flow.number, _told(case, flow, fate)))
        elif any(place not in (answer.place for answer in flow.answers) for place in flow.places):
            findings.doubts.append((flow.number, f"a reply came, but {listed(flow.places)} was not seen to send it"))
        else:
            answered += 1
    return findings.settle(
        case,
        "reply",
        expected=(
            f"from {endpoint(errand.destination, errand.port)}"
            if wanted is Reply.TRANSLATED
            else "from the backend itself"
        ),
        observed=_replies(case),
        silence=case.silence,
        witnesses=[f"{amount(answered, 'flow')} answered"],
    )


def _wrong_reply(case: Case, flow: Flow, wanted: Reply) -> str:
    """What is wrong with the replies that the sender heard; empty if nothing is, or if there are none."""
    errand = case.errand
    ports = [departure.source_port for departure in flow.departures]
    due, whose = (errand.destination, errand.port), "that was dialled"
    if wanted is Reply.UNTRANSLATED:
        due, whose = (flow.arrivals[0].destination, flow.arrivals[0].destination_port), "where it arrived"
    for reply in flow.replies:
        if reply.source_port != due[1] or reply.source != due[0]:
            stranger = endpoint(reply.source, reply.source_port)
            return f"the reply came from {stranger}, not from {endpoint(*due)} {whose}"
        if reply.destination != errand.sender.address or (ports and reply.destination_port not in ports):
            other = endpoint(reply.destination, reply.destination_port)
            return f"the reply is addressed to {other}, from where the request did not come"
    if wanted is Reply.UNTRANSLATED:
        return ""  # the sender's socket has dialled somebody else, and rightly knows nothing of this reply
    report = flow.report
    if flow.replies and errand.manner is Manner.CONNECT and errand.protocol is Protocol.TCP and report and report.error:
        return f"the handshake was answered, the data was not: {report.error}"
    return ""


def _replies(case: Case) -> str:
    sources = Counter((flow.replies[0].source, flow.replies[0].source_port) for flow in case.flows if flow.replies)
    found = [f"from {endpoint(*source)}" for source, _ in sources.most_common()]
    silent = sum(not flow.replies for flow in case.flows)
    if silent and found:
        found.append(f"none to {silent:,} of {amount(len(case.flows), 'flow')}")
    return ", ".join(found[:4]) or "none"


def _judge_place(case: Case, expected: str) -> Verdict:
    """``at``: the node whose rule ended every flow, or the pod at which every flow arrived."""
    outcome = case.probe.expect.outcome
    findings = Findings()
    if outcome not in _TARGET:
        for flow in case.flows:
            if not flow.places:
                findings.missing.append((flow.number, "it arrived nowhere"))
            elif flow.places != (expected,):
                findings.wrong.append((flow.number, f"it arrived at {listed(flow.places)}"))
        observed = listed(list(hits(case)))
        return findings.settle(case, "at", expected=expected, observed=observed, silence=case.silence)
    rules = _ending_rules(case, outcome)
    here = sum(rule.count.packets for rule in rules if rule.count.node == expected)
    elsewhere = [node for node in _nodes(rules) if node != expected]
    needed = _packets(case)
    ended = sum(fate in (_FATE[outcome], Fate.UNSENT) for fate in case.fates)
    if expected not in case.errand.nodes:
        findings.doubts_overall.append(f"only rules on nodes are counted, and {expected} is no node of this lab")
    elif ended < len(case.flows):
        findings.doubts_overall.append(f"{ended:,} of {amount(len(case.flows), 'flow')} {_were(ended)} {outcome}")
    elif here < needed and elsewhere:
        findings.wrong_overall.append(f"it was {outcome} by a rule on {listed(elsewhere)}")
    elif here < needed:
        findings.doubts_overall.append(f"no rule on {expected} counted it as {outcome}")
    return findings.settle(case, "at", expected=expected, observed=listed(_nodes(rules)) if rules else "not known")


def _were(number: int) -> str:
    return "was" if number == 1 else "were"
