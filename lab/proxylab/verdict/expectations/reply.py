"""``reply``: whether the reply came back, with its data, and from which address.

It needs the taps at the pods and at the sender, and what sockets say of the data. A stream's sockets are connected, so
its answers come from the dialled address; ``whole`` needs no key, and says that packets and answers came once, and as
they were sent.
"""

from collections import Counter
from collections.abc import Iterator

from proxylab.addresses import IPAddress, Transport
from proxylab.evidence.evidence import Direction, Packet
from proxylab.evidence.words import amount, endpoint, listed, times
from proxylab.scenario.expect import ReplyByBackend
from proxylab.scenario.words import Manner, Outcome, Reply
from proxylab.verdict.case import Case, fate_clause
from proxylab.verdict.findings import Expectation, Findings
from proxylab.verdict.flows import Fate, Flow, end_counts
from proxylab.verdict.foreign import suspicion_where_lost
from proxylab.verdict.hop_limits import HopLimits
from proxylab.verdict.hops import altered_clauses, copied_on_link, copies, data_changed, dropped_meanwhile
from proxylab.verdict.model import Verdict
from proxylab.verdict.step_case import StreamCase

_NO_ARRIVAL = "it never arrived at a pod that could reply"


def _expected(case: Case) -> Reply | ReplyByBackend | None:
    """The author's word; a reply from the dialled address where the author only expects a delivery."""
    expect = case.expect
    if not case.is_about_packets or expect.outcome is not Outcome.DELIVERED:
        return None
    return expect.reply or Reply.TRANSLATED


def _judge(case: Case, expected: Reply | ReplyByBackend) -> Verdict:
    """The reply has the dialled address as its source; for ``untranslated`` that of the backend which the flow reached.

    For ``nodePort`` that is the node's address and port to which a load balancer sent the request.

    A backend that the author does not name answers as usual.
    """
    # Flows that links lost show nothing of the proxy: the others decide.
    others = [(flow, fate) for flow, fate in case.flows_with_fates if flow.number not in case.on_links]
    findings = Findings(case, () if others else dict.fromkeys(case.on_links.values()))
    answered = lost = unanswered = 0
    altered = {
        **HopLimits(case.resolved, case.evidence).clauses([flow for flow, _ in others], Packet.REPLY),
        **altered_clauses(case.evidence.altered, replies=True),
    }
    for flow, fate in others:
        if not flow.arrivals:
            strange = _strange_end(case, flow, case.dialled, "that was dialled")
            (findings.wrong if strange else findings.doubt)(strange or _NO_ARRIVAL, flow.number)
            continue
        reply = case.expect.reply_from(flow.reached[0]) or Reply.TRANSLATED
        if reply is Reply.LOST:
            lost += _judge_loss(case, flow, findings)
            continue
        if reply is Reply.NONE:
            unanswered += _judge_silence(case, flow, findings)
            continue
        # The sender of an answer comes before its data: the answer of another machine has other data, too.
        if flow.number in altered and not _strange_end(case, flow, *_expected_end(case, flow, reply)):
            findings.wrong(altered[flow.number], flow.number)
            continue
        answered += _judge_answer(case, flow, fate, reply, findings)
    return findings.settle(
        "reply",
        expected=_in_words(case, expected),
        observed=_replies(case),
        may_be_late=case.may_be_late,
        witnesses=[
            *([f"{amount(answered, 'flow')} answered"] if answered or not (lost or unanswered) else []),
            *([f"the answers of {amount(lost, 'flow')} did not come back"] if lost else []),
            *([f"no backend of {amount(unanswered, 'flow')} sent an answer"] if unanswered else []),
        ],
    )


def _judge_answer(case: Case, flow: Flow, fate: Fate, expected: Reply, findings: Findings) -> bool:
    """Whether the backend's answer came back as expected."""
    wrong, reached = _wrong_reply(case, flow, expected), listed(flow.reached)
    if wrong:
        findings.wrong(wrong, flow.number)
    elif unanswered := _unanswered_data(case, flow):
        # A reset was heard, which no later packet takes back.
        in_time = findings.missing if flow.report and flow.report.error == "timeout" else findings.wrong
        (findings.doubt if dropped_meanwhile(case.evidence.links) else in_time)(unanswered, flow.number)
    elif flow.number in case.disagreements:
        findings.doubt(case.disagreements[flow.number], flow.number)
    elif not flow.replies:
        sent = "sent a reply, but it did not reach" if flow.answers else "sent no reply to"
        findings.missing(f"{reached} {sent} {case.resolved.sender.name}", flow.number)
    elif fate is Fate.CONTRADICTORY:
        findings.doubt(fate_clause(case, flow, fate), flow.number)
    elif set(flow.reached).difference([answer.netns_name for answer in flow.answers]):
        others = [f"{each.netns_name} sent one from {each.source}" for each in flow.answers_from_wrong_address]
        find = findings.wrong if others else findings.doubt
        sent = f", and {listed(list(dict.fromkeys(others)))}" if others else ""
        find(f"a reply came, but {reached} was not seen to send it{sent}", flow.number)
    else:
        return True
    return False


def _judge_loss(case: Case, flow: Flow, findings: Findings) -> bool:
    """Whether the backend's answer did not come back; only sentinel packets prove that it is not merely late."""
    if flow.replies:
        findings.wrong(f"the reply of {listed(flow.reached)} came back", flow.number)
    elif not flow.answers:
        findings.doubt(f"{listed(flow.reached)} was not seen to answer", flow.number)
    else:
        for doubt in (*case.may_be_late, *_doubts_about_loss(case, flow)):
            findings.doubt(doubt, flow.number)
    return not flow.replies and bool(flow.answers)


def _judge_silence(case: Case, flow: Flow, findings: Findings) -> bool:
    """Whether the backend sent no answer, and none came; only sentinel packets prove that it is not merely late."""
    if flow.replies or flow.answers:
        findings.wrong(f"{listed(flow.reached)} answered", flow.number)
        return False
    for doubt in case.may_be_late:
        findings.doubt(doubt, flow.number)
    return True


def _wrong_reply(case: Case, flow: Flow, expected: Reply) -> str:
    """What is wrong with the replies that the sender heard; empty if nothing is, or if there are none."""
    resolved = case.resolved
    if strange := _strange_end(case, flow, *_expected_end(case, flow, expected)):
        return strange
    if len(flow.replies) > max(1, len(flow.answers)) and not copied_on_link(resolved, case.evidence, flow):
        sent = f"{listed(flow.reached)} sent {_number(len(flow.answers))}"
        return f"{_number(len(flow.replies))} replies came to {resolved.sender.name}, but {sent}"
    if flow.stray_replies:
        where = copies(flow.stray_replies)
        return f"a copy of the reply came in at {where}" if flow.replies else f"the reply went to {where}"
    if flow.number in case.lost_reply_copies:
        return f"a copy of the reply came in at {case.lost_reply_copies[flow.number]}, and went no further"
    return ""


def _expected_end(case: Case, flow: Flow, expected: Reply) -> tuple[tuple[IPAddress, int], str]:
    """The address and port from which the reply must come, and what is there."""
    if expected is Reply.UNTRANSLATED:
        return (flow.arrivals[0].destination, flow.arrivals[0].destination_port), "where it arrived"
    if expected is Reply.NODE_PORT and (end := _node_port_of(case, flow)) is not None:
        return end, "at which the load balancer sent it to a node"
    return case.dialled, "that was dialled"


def _node_port_of(case: Case, flow: Flow) -> tuple[IPAddress, int] | None:
    """The end to which a load balancer had translated the request when it came into a node; ``None`` if none did."""
    came = (each for each in flow.passages if each.packet is Packet.REQUEST and each.direction is Direction.IN)
    ends = ((each.destination, each.destination_port) for each in came if not each.otherhost)
    return next((end for end in ends if end != case.dialled), None)


def _doubts_about_loss(case: Case, flow: Flow) -> Iterator[str]:
    """Foreign rules that may have dropped the answer, where the taps saw it last."""
    last = flow.last_reply
    if last is not None and (clause := suspicion_where_lost(case.resolved, case.evidence, last)):
        yield f"{clause}, and may have dropped the answer"


def _strange_end(case: Case, flow: Flow, expected: tuple[IPAddress, int], which: str) -> str:
    """What is wrong with the ends of the replies that the sender heard; empty if nothing is.

    Where no tap saw it dial that address, its own namespace may have translated the request, and will the reply.
    """
    ports = [departure.source_port for departure in flow.departures]
    for reply in flow.replies if flow.departures else ():
        if reply.source_port != expected[1] or reply.source != expected[0]:
            stranger = endpoint(reply.source, reply.source_port)
            return f"the reply came from {stranger}, not from {endpoint(*expected)} {which}"
        if reply.destination != case.resolved.sender.address_of_flow(flow.number) or (
            reply.destination_port not in ports
        ):
            other = endpoint(reply.destination, reply.destination_port)
            return f"the reply is addressed to {other}, but the request did not come from there"
    return ""


def _unanswered_data(case: Case, flow: Flow) -> str:
    """The clause that a connection began and its data got no answer; empty if it got one, or never began."""
    by_streams = case.resolved.manner is Manner.CONNECT and case.resolved.protocol is Transport.TCP
    # With an untranslated reply, the sender's socket dialled another address, and rightly rejects the reply.
    rejects = case.expect.reply_from(flow.reached[0]) in (Reply.UNTRANSLATED, Reply.NODE_PORT)
    if rejects or not (flow.replies and by_streams and flow.report and flow.report.error):
        return ""
    return f"the handshake was answered, the data was not: {flow.report.error}"


def _in_words(case: Case, expected: Reply | ReplyByBackend) -> str:
    if isinstance(expected, ReplyByBackend):
        return ", ".join(f"{name} {reply}" for name, reply in expected.of.items())
    words = {
        Reply.UNTRANSLATED: "from the backend itself",
        Reply.NODE_PORT: "from a node's own port",
        Reply.LOST: "none",
        Reply.NONE: "none",
    }
    return words.get(expected) or f"from {endpoint(*case.dialled)}"


def _number(replies: int) -> str:
    return "one" if replies == 1 else f"{replies:,}"


def _replies(case: Case) -> str:
    sources = end_counts([(flow.replies[0].source, flow.replies[0].source_port) for flow in case.flows if flow.replies])
    found = [f"from {endpoint(*source)}" for source, _ in sources.most_common()]
    silent = sum(not flow.replies for flow in case.flows)
    if silent and found:
        found.append(f"none to {silent:,} of {amount(len(case.flows), 'flow')}")
    return ", ".join(found[:4]) or "none"


def _as_seen(case: Case, verdict: Verdict) -> str:
    flow = case.flows[verdict.example or 0]
    if not flow.replies:
        return ""
    came, dialled = (flow.replies[0].source, flow.replies[0].source_port), endpoint(*case.dialled)
    if came == case.dialled:
        return ""
    return f"the probe dialled {dialled}, but {endpoint(*came)} answered, or a rule made that the reply's source."


def _seen_address(case: Case, verdict: Verdict) -> IPAddress | None:
    return next((reply.source for reply in case.flows[verdict.example or 0].replies), None)


REPLY = Expectation[Case, Reply | ReplyByBackend](
    key="reply", expected=_expected, judge=_judge, as_seen=_as_seen, seen_address=_seen_address
)


def _broken(stream: StreamCase) -> list[tuple[int | None, str]] | None:
    """How packets came in several copies or otherwise than they were sent; ``None`` if none did.

    A link with netem may copy packets, which shows nothing of the proxy.
    """
    found: list[tuple[int | None, str]] = []
    for copy in stream.record.copies if not any(link.copies for link in stream.step.links) else ():
        what = "the packet that begins its connection" if copy.number is None else f"the {copy.packet}"
        came = listed([f"{where} {times(count)}" for where, count in sorted(Counter(copy.came).items())])
        found.append((copy.number, f"{what} was sent {times(copy.sent)}, and came in at {came}"))
    found += ((each.number, data_changed(each.altered)) for each in stream.packets if each.altered)
    return found or None


def _judge_whole(stream: StreamCase, broken: list[tuple[int | None, str]]) -> Verdict:
    findings = Findings(stream)
    for number, clause in broken:
        findings.wrong(clause, number)
    what = "packets and answers"
    return findings.settle(
        f"{stream.name}.whole", expected=f"{what} once, as sent", observed=f"others: {len(broken):,}"
    )


WHOLE = Expectation[StreamCase, list[tuple[int | None, str]]](key="whole", expected=_broken, judge=_judge_whole)
