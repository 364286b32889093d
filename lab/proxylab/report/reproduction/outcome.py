"""The fate of one packet as a line, the same for the script, the lab and the expectation; and why there is no script.

The lab's own line of a flow only decides which flow the script sends: the first whose line does not match.
"""

import re
from collections.abc import Sequence
from typing import Final

from proxylab.addresses import IPAddress, Transport
from proxylab.evidence.evidence import RuleCount
from proxylab.plan.resolved import ResolvedProbe
from proxylab.rules.texts import read_rule
from proxylab.scenario.expect import Masqueraded, Preserved, SourceAddress, SourceByBackend
from proxylab.scenario.words import Outcome, Reply
from proxylab.verdict.case import Case
from proxylab.verdict.flows import Flow
from proxylab.verdict.model import UNRESOLVED, ProbeVerdict

_PORT_UNREACHABLE: Final = {4: "type 3 code 3", 6: "type 1 code 4"}
_ANY: Final = ".*"
_NO_WAY: Final = {4: "type (3 code [01]|11 code 0)", 6: "type (1 code [03]|3 code 0)"}
"""No route, no such host, or a routing loop that ends when the packet's TTL expires."""


def expected(case: Case, flow: Flow) -> str:
    """An extended regular expression for the lines of a flow that the probe's expectations allow."""
    resolved, expect = case.resolved, case.expect
    version = resolved.destination.version
    dialled = _end(resolved, resolved.destination, resolved.port)
    match expect.outcome:
        case Outcome.DELIVERED:
            return _delivered(case, flow, dialled)
        case Outcome.REJECTED:
            return f"not delivered, rejected by ICMP {_PORT_UNREACHABLE[version]}"
        case Outcome.REFUSED:
            return f"(not delivered|delivered to .*), reset by {dialled}"
        case Outcome.DROPPED:
            return "not delivered, no answer|not sent: EPERM"
        case Outcome.CLOSED:
            return f"not delivered, answered by {dialled}"
        case Outcome.UNTRANSLATED:
            own = {each.name for each in resolved.receivers if each.address == resolved.destination}
            unheard = f"not delivered, (no answer|rejected by ICMP {_NO_WAY[version]})"
            return "|".join([unheard, *(f"delivered to {name} from .*" for name in sorted(own))])


def _delivered(case: Case, flow: Flow, dialled: str) -> str:
    """Any backend is right, from the source and with the reply that the author or the network gives it."""
    expect = case.expect
    backends: dict[tuple[str, str], list[str]] = {}
    for name in sorted(expect.backend_names) or [_ANY]:
        of_author = expect.reply_from(name)
        reply = (
            "no answer"
            if of_author in (Reply.LOST, Reply.NONE)
            else f"answered by {_ANY if of_author in (Reply.UNTRANSLATED, Reply.NODE_PORT) else dialled}"
        )
        backends.setdefault((_source(case, flow, name), reply), []).append(name)
    return "|".join(
        f"delivered to {_one_of(names)} from {source}, {reply}" for (source, reply), names in backends.items()
    )


def _one_of(words: Sequence[str]) -> str:
    return f"({'|'.join(words)})" if len(words) > 1 else words[0]


def _source(case: Case, flow: Flow, backend: str) -> str:
    of_author, own = case.expect.source, case.resolved.sender.address_of_flow(flow.number)
    if isinstance(of_author, SourceByBackend):
        of_author = of_author.of.get(backend)
    match of_author:
        case None:
            return _ANY
        case Preserved():
            return str(own)
        case Masqueraded():
            names = {each.address: each.name for each in case.resolved.receivers}
            ways = [way for way in case.resolved.masquerades if backend in (_ANY, names.get(way.backend))]
            return _one_of(sorted({str(way.source) for way in ways if way.source is not None}) or [_ANY])
        case SourceAddress(address):
            return str(address)
        case _:
            return str(case.source)


def seen(case: Case, flow: Flow) -> str:
    """The line of a flow, from the lab's evidence."""
    resolved = case.resolved
    if flow.unsendable:
        return f"not sent: {case.evidence.refused_sends[0]}"
    netns_names = dict.fromkeys(f"delivered to {each.netns_name} from {each.source}" for each in flow.arrivals)
    answers = [f"answered by {_end(resolved, each.source, each.source_port)}" for each in flow.replies[:1]]
    answers += [f"reset by {_end(resolved, each.source, each.source_port)}" for each in flow.resets[:1]]
    for each in (*flow.unreachables, *flow.errors)[:1]:
        kind, code = each.icmp or (0, 0)
        answers.append(f"rejected by ICMP type {kind} code {code}")
    return f"{' and '.join(netns_names) or 'not delivered'}, {' and '.join(answers) or 'no answer'}"


def _end(resolved: ResolvedProbe, address: IPAddress, port: int) -> str:
    return str(address) if resolved.protocol is Transport.ICMP else f"{address} port {port}"


def flow_to_send(case: Case) -> tuple[Flow, str]:
    """The flow that a script sends, and its line: the first unexpected one, or else the first."""
    lines = ((flow, seen(case, flow)) for flow in case.flows)
    wrong = ((flow, line) for flow, line in lines if not re.fullmatch(expected(case, flow), line))
    return next(wrong, (case.flows[0], seen(case, case.flows[0])))


def obstacle(verdict: ProbeVerdict) -> str:
    """Why no script can reproduce the probe's result, as a clause; empty if one can."""
    resolved = verdict.resolved
    if resolved.question is not None:
        return "the probe dials a name, and the name server of the lab follows the objects of the cluster"
    if resolved.http:
        return "the probe sends an HTTP request, and on a node the proxy itself answers it"
    if resolved.sender.frame_mac:
        return "the probe sends frames to a MAC address that the author chose, which no socket can do"
    if Reply.NONE in (verdict.probe.expect.reply_from(each.name) for each in resolved.receivers):
        return "the endpoint answers nothing, and the listeners of a script answer"
    if any(each.netns_name in resolved.forwarders for each in verdict.evidence.observations):
        return "a pod passes the packet on by rules of its own, and a script has those of nodes alone"
    if verdict.evidence.terminating:
        return "a process of the proxy ends the connection, and a script has rules and one packet only"
    case = verdict.case
    return _in_what_was_seen(case, verdict) or _from_before(case, verdict)


def _in_what_was_seen(case: Case, verdict: ProbeVerdict) -> str:
    if any(link.dropped for link in case.evidence.links):
        return "links with netem dropped packets by chance, and the links of a script pass all packets"
    flow, line = flow_to_send(case)
    failed = [each.expectation for each in verdict.verdicts if each.judgement in UNRESOLVED]
    if failed and re.fullmatch(expected(case, flow), line):
        return f"each single packet is as expected; the failure ({', '.join(failed)}) shows only in many"
    if case.expect.outcome is Outcome.DROPPED and flow.arrivals:
        return "the packet reached a pod's device, and only the pod's network stack can show what happened next"
    return ""


def _from_before(case: Case, verdict: ProbeVerdict) -> str:
    resolved, counts = case.resolved, case.evidence.counts
    if resolved.protocol is not Transport.ICMP and _was_known(case, flow_to_send(case)[0]):
        return "connection tracking had an entry from an earlier flow, and a script starts with empty tables"
    if sum(each.packets for each in counts if _remembers(each, ("--rcheck", ""))) >= resolved.flows:
        return "session affinity had bound the client to an endpoint before, and a script starts without clients"
    failed = {each.expectation for each in verdict.verdicts if each.judgement in UNRESOLVED}
    if "backends" in failed and any(_remembers(each, ("-m", "recent")) for each in counts):
        return "session affinity binds each client to a random endpoint, and a script has one client"
    return ""


def _remembers(count: RuleCount, condition: tuple[str, str]) -> bool:
    """Whether a rule of mode iptables asks or notes which clients it knows, by that condition."""
    rule = read_rule(count.text)
    return rule is not None and condition in [(each.name, each.value) for each in rule.matches]


def _was_known(case: Case, flow: Flow) -> bool:
    """Whether a node translated the flow although none of its rules did: the conntrack entry was there before."""
    if not case.is_metered:
        return False
    dialled = (case.resolved.destination, case.resolved.port)
    ruled = {rule.translates_to for rule in case.translations}
    ends = {(each.reply_source, each.reply_source_port) for each in flow.tracked}
    return any(end != dialled and end not in ruled for end in ends)
