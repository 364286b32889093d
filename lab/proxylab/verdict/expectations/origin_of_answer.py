"""Which machine sent the answer: a refusal or a rejection shows the outcome only if the expected machine sent it.

A refusal is the work of the pod, host or node that got the flow; a rejection that of a rule on a node. The taps show
where an answer was seen first. Where that is another machine, the answer is wrong; where they do not show it, foreign
rules and strange addresses cast doubt.
"""

from collections.abc import Iterator
from itertools import chain

from proxylab.evidence.evidence import Packet
from proxylab.evidence.words import endpoint, listed
from proxylab.rules.effects import REJECTING, RESETTING, REWRITING
from proxylab.rules.texts import effects_of
from proxylab.scenario.words import Outcome
from proxylab.verdict.case import Case, nodes_of
from proxylab.verdict.flows import Flow
from proxylab.verdict.foreign import may_have, suspicion
from proxylab.verdict.hops import hop, origin
from proxylab.verdict.icmp_errors import errors_of, icmp_words, rejecting_error


def answered_by_another(case: Case, flow: Flow) -> str:
    """The clause that another machine or rule than expected sent the refusal or rejection of a flow; empty if not."""
    if case.expect.outcome is Outcome.REFUSED:
        return _refused_by_stranger(case, flow)
    if flow.refusals:
        return f"{_each([each.netns_name for each in flow.refusals])} sent the ICMP error, and no rule did"
    nodes = nodes_of(case.rejecting)
    first = origin(flow, _packet_of(flow))
    if wrong := _another_error(case, flow):
        return wrong
    if nodes and first is not None and first.maker not in nodes and not case.doubts:
        counted = f"a rule on {listed(nodes)} counted it as rejected"
        return f"{counted}, but the ICMP error was first seen at {hop(first.seen)}"
    if not nodes and case.is_metered and not rejects(case) and not case.doubts:
        at = "" if first is None else f"; it was first seen at {hop(first.seen)}"
        return f"an ICMP error came, but no rule of any node rejected anything{at}"
    return ""


def _packet_of(flow: Flow) -> Packet:
    """The kind of the ICMP error that rejected a flow."""
    return flow.rejected_by.packet if flow.rejected_by is not None else Packet.PORT_UNREACHABLE


def _another_error(case: Case, flow: Flow) -> str:
    """The clause that the sender heard another ICMP error than the counted rules send; empty if it may be theirs."""
    rules, heard = case.rejecting, flow.rejected_by
    expected = frozenset(chain.from_iterable(errors_of(rule.read) for rule in rules))
    if not expected or heard is None or rejecting_error(heard) in expected:
        return ""
    rejects_with = listed(sorted(expected), "or")
    return f"a rule on {listed(nodes_of(rules))} rejects with {rejects_with}, but {icmp_words(heard)} came"


def _refused_by_stranger(case: Case, flow: Flow) -> str:
    """The clause that a machine refused a flow which is no endpoint of the Service, and no node."""
    others = [each.netns_name for each in flow.refusals if each.netns_name not in flow.reached]
    if others:
        return f"{_each(others)} refused it, and is no endpoint that got it"
    first = origin(flow, Packet.RESET)
    if first is None or first.maker or flow.reached or not case.resolved.service_port or case.doubts:
        return ""
    return f"a machine beyond the nodes refused it: the reset was first seen coming in at {hop(first.seen)}"


def rejects(case: Case) -> bool:
    """Whether any rule, foreign or not, rejected packets or may have."""
    if may_have(REJECTING, case.resolved, case.evidence, case.resolved.nodes):
        return True
    return any(count.target == "REJECT" or effects_of(count.text) & REJECTING for count in case.evidence.counts)


def answered_elsewhere(case: Case, flow: Flow) -> bool:
    """Whether the taps saw a machine answer a flow that reached no pod, other than with what a pod told its program.

    A socket that got a pod's own answer shows that a program handed the flow on where no tap could follow.
    """
    strangers = {stray.netns_name for stray in flow.strays}
    if flow.report is not None and flow.report.backend and flow.report.backend not in strangers:
        return False
    first = origin(flow, Packet.REPLY)
    if first is None or case.doubts:
        return bool(strangers)
    # An answer without a maker comes from a machine without taps, beyond the nodes. A node's own program may answer
    # where its proxy ends connections; one that has nothing more to do has sent on what it got.
    by_node = first.maker in case.resolved.nodes and first.maker not in case.evidence.undrained
    return bool(strangers) or by_node or not first.maker


def doubts_about_rejection(case: Case, flow: Flow) -> Iterator[str]:
    """Addresses of ICMP errors that no rule gives them, where no tap saw the error leave the rule's node."""
    resolved = case.resolved
    # A receiver on a node has the node's address, so an ICMP error from there may be a rule's.
    pods = {pod.address: pod.name for pod in resolved.receivers if not pod.ports}
    # A node that owns the address of a host, as mode ipvs makes it, rejects in its name.
    is_known = any(rule.count.target or rule.count.member for rule in case.rejecting)
    first = origin(flow, _packet_of(flow))
    left_a_node = first is not None and first.maker in nodes_of(case.rejecting)
    for icmp in flow.rejections:
        if icmp.source in pods and not is_known and not left_a_node:
            yield f"the ICMP error is from {pods[icmp.source]}'s address, but {pods[icmp.source]} saw no request"
        if icmp.destination != resolved.sender.address_of_flow(flow.number):
            yield f"the ICMP error is addressed to {icmp.destination}, not to {resolved.sender.name}"


def doubts_about_refusal(case: Case, flow: Flow) -> Iterator[str]:
    """Resets that a foreign rule may have sent, where no pod or host was seen to send one, and strange addresses."""
    if flow.resets and not flow.refusals:
        for node in case.resolved.nodes:
            if clause := suspicion(case.resolved, case.evidence, node, RESETTING):
                yield f"{clause}, and may have reset it in place of a closed port"
    for node in case.resolved.nodes if not flow.reached else ():
        if clause := suspicion(case.resolved, case.evidence, node, REWRITING):
            yield f"{clause}, and may have led it to another closed port"
    for reset in flow.resets:
        if (reset.source, reset.source_port) != case.dialled:
            stranger = endpoint(reset.source, reset.source_port)
            yield f"the reset is from {stranger}, not from {endpoint(*case.dialled)} that was dialled"
    for icmp in flow.unreachables:
        if icmp.source != case.dialled[0]:
            yield f"the ICMP error is from {icmp.source}, not from {case.dialled[0]} that was dialled"


def _each(names: list[str]) -> str:
    return listed(list(dict.fromkeys(names)))
