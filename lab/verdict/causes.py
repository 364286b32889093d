"""The one sentence that names the cause, where the evidence shows one.

Owns: what counters, addresses and arrivals together say about why an expectation failed.
Must not: guess. Every sentence names what it rests on; where nothing in the evidence points at a cause, there is none.
"""

from collections.abc import Iterable

from lab.ip import IPAddress
from lab.verdict.arrivals import hits
from lab.verdict.case import Case
from lab.verdict.evidence import Observation
from lab.verdict.flows import Fate, Flow
from lab.verdict.model import Judgement, Verdict
from lab.verdict.rules import Rule, ending, read_all, translations, within
from lab.verdict.words import amount, endpoint, listed

__all__ = ["cause", "why_masqueraded"]

_REWRITING = frozenset({"MASQUERADE", "SNAT"})
_ICMP_NAMES = {
    (4, 3, 0): "network unreachable",
    (4, 3, 1): "host unreachable",
    (4, 11, 0): "time to live exceeded",
    (6, 1, 0): "no route",
    (6, 1, 3): "address unreachable",
    (6, 3, 0): "hop limit exceeded",
}
"""By IP version, type and code."""

_MARKING_SUFFIX = "MARK-MASQ"


def cause(case: Case, verdict: Verdict) -> str:
    """Why this expectation failed, as a sentence; empty if the evidence does not show it, or if it did not fail."""
    if verdict.judgement is not Judgement.FAIL:
        return ""
    flow = case.flows[verdict.example or 0]
    match verdict.expectation:
        case "outcome":
            return _of_outcome(case, flow)
        case "reply":
            return _of_reply(case, flow)
        case "source":
            return _of_source(case, flow)
        case "backends":
            return _of_backends(case, verdict)
        case "spread":
            return _of_spread(case)
        case _:
            return ""


def _of_outcome(case: Case, flow: Flow) -> str:
    fate = case.fates[flow.number]
    match fate:
        case Fate.LOST:
            return _of_loss(case)
        case Fate.STRAYED if _still_dialled(case, flow.strays[0]):
            stray = flow.strays[0]
            return f"no rule translated the packet: it came in at {stray.place} still addressed to {_dialled(case)}."
        case Fate.REJECTED:
            return _by_rule(case, "REJECT", "rejected") or f"{flow.unreachables[0].source} rejected it."
        case Fate.UNREACHABLE if flow.errors and not translations(case.evidence.counts):
            icmp = flow.errors[0]
            left = f"it left {case.errand.sender.name} for {_dialled(case)}"
            return f"no rule translated the packet: {left}, and {icmp.source} answered with {_icmp(icmp)}."
        case Fate.REFUSED if flow.arrivals:
            arrival = flow.arrivals[0]
            where = endpoint(arrival.destination, arrival.destination_port)
            return f"the packet reached {arrival.place} at {where}, and a reset came back: no rule stopped it."
        case Fate.DELIVERED:
            rule = _translation(case, flow.arrivals[0].destination)
            return f"{rule.count.node} has an endpoint for it: {_rule(rule)}." if rule else ""
        case _:
            return ""


def _of_loss(case: Case) -> str:
    dropped = _by_rule(case, "DROP", "dropped")
    if dropped:
        return dropped
    translated = translations(case.evidence.counts)
    pods = {pod.address: pod.name for pod in case.errand.receivers}
    for rule in translated:
        if rule.translates_to is None:
            continue
        address, port = rule.translates_to
        if address not in pods:
            return f"{rule.count.node} translated it to {endpoint(address, port)}, which is no pod of this lab."
        if not hits(case)[pods[address]]:
            where = f"{pods[address]} ({endpoint(address, port)})"
            return f"{rule.count.node} translated it to {where}, but {pods[address]} never saw it."
    if translated or not case.evidence.counts:
        return ""
    stopped = next((rule for rule in read_all(case.evidence.counts) if rule.speaks_of(case.errand)), None)
    left = f"it left {case.errand.sender.name} for {_dialled(case)}"
    if stopped:
        return (
            f"no rule translated the packet: {left}; {stopped.count.node} counted it in "
            f"{_rule(stopped)}, but in no DNAT rule."
        )
    return f"no rule translated the packet: {left}, and no rule for that address counted on {_nodes(case)}."


def _of_reply(case: Case, flow: Flow) -> str:
    pod = {pod.address: pod.name for pod in case.errand.receivers}
    for reply in flow.replies:
        if reply.source in pod and not _from_dialled(case, reply):
            heard = f"{case.errand.sender.name} heard {pod[reply.source]}'s own address"
            unmasqueraded = _marked_in_vain(case)
            if unmasqueraded:
                return f"nothing translated the reply back: {heard}, since the request {unmasqueraded}."
            return f"nothing translated the reply back: {heard}."
    if flow.answers and not flow.replies:
        answer = flow.answers[-1]
        to = endpoint(answer.destination, answer.destination_port)
        return f"the way back is broken: {answer.place} replied to {to}, and {case.errand.sender.name} heard nothing."
    if flow.arrivals and not flow.answers and not flow.replies:
        if flow.arrivals[0].source == flow.arrivals[0].destination:
            return f"{flow.places[0]} got the request from its own address and did not reply: nothing masqueraded it."
        return f"{flow.places[0]} got the request and did not reply: no rule stopped it."
    return ""


def _of_source(case: Case, flow: Flow) -> str:
    if not flow.arrivals:
        return ""
    rules = read_all(case.evidence.counts)
    rewriting = [rule for rule in rules if rule.target in _REWRITING]
    marking = [rule for rule in rules if rule.target.endswith(_MARKING_SUFFIX)]
    sender, seen = case.errand.sender, flow.arrivals[0].source
    if seen == sender.address:
        if rewriting or not case.evidence.counts:
            return ""
        if marking:
            return f"the client's address was kept: the packet {_marked_in_vain(case)}."
        return "the client's address was kept: nothing masqueraded it."
    if not rewriting:
        return ""
    why = _why_marked(marking, flow.arrivals[0].destination, sender.address)
    return f"{rewriting[0].count.node} masqueraded the packet{why or ': ' + _rule(rewriting[0])}."


def _icmp(error: Observation) -> str:
    """An ICMP error by its name, or by type and code (RFC 792, RFC 4443)."""
    kind = error.icmp or (0, 0)
    name = _ICMP_NAMES.get((error.source.version, *kind), "")
    return f"ICMP {name or 'type'} ({kind[0]}/{kind[1]})"


def _marked_in_vain(case: Case) -> str:
    """That a packet was to be masqueraded and was not, as the rest of a sentence about it; empty if that is not so."""
    rules = read_all(case.evidence.counts)
    marking = [rule for rule in rules if rule.target.endswith(_MARKING_SUFFIX)]
    if not marking or any(rule.target in _REWRITING for rule in rules):
        return ""
    where = f"{marking[0].count.node} by {_rule(marking[0])}"
    return f"was marked for masquerading on {where}, but no MASQUERADE rule counted"


def _why_marked(marking: Iterable[Rule], endpoint_hit: IPAddress, client: IPAddress) -> str:
    """Why a packet was marked for masquerading, in words for the rules that Service proxies write.

    A rule for packets from one endpoint to itself explains nothing but those, and nothing else explains those.
    """
    for rule in marking:
        if _is_from_itself(rule, client) is not (endpoint_hit == client):
            continue
        return f"{why_masqueraded(rule, client) or ' because of'} {_rule(rule)}"
    return ""


def why_masqueraded(rule: Rule, client: IPAddress) -> str:
    """Why a rule that counted marks a packet of ``client`` for masquerading, if its matches say so.

    Returns:
        A clause that begins with a blank and ends with a colon; empty if the matches do not say why.
    """
    if _is_from_itself(rule, client):
        return " because the client is the endpoint:"
    values, negated = _source_test(rule)
    if negated and values and not within(client, values[0]):
        return f" because the client is not in {values[0]}:"
    return ""


def _source_test(rule: Rule) -> tuple[tuple[str, ...], bool]:
    return next(((values, negated) for name, values, negated in rule.options if name == "-s"), ((), False))


def _is_from_itself(rule: Rule, client: IPAddress) -> bool:
    values, negated = _source_test(rule)
    return bool(values) and not negated and _host(values[0]) == str(client)


def _host(text: str) -> str:
    return text.removesuffix("/32").removesuffix("/128")


def _of_backends(case: Case, verdict: Verdict) -> str:
    expected = case.probe.expect.backends or ()
    flow = case.flows[verdict.example] if verdict.example is not None else None
    if flow is not None and flow.arrivals:
        stranger = next((each for each in flow.arrivals if each.place not in expected), None)
        rule = _translation(case, stranger.destination) if stranger else None
        return f"{rule.count.node} has {stranger.place} for an endpoint: {_rule(rule)}." if rule and stranger else ""
    never = [name for name in expected if not hits(case)[name]]
    if not never:
        return ""
    sentence = f"{listed(never)} never chosen in {amount(len(case.arrived), 'flow')}: its share is 0"
    if len(never) > 1:
        sentence = sentence.replace("its share is", "their share is")
    unruled = [pod for pod in case.errand.receivers if pod.name in never and not _translation(case, pod.address)]
    if unruled and translations(case.evidence.counts):
        sentence += f", and no rule counted that translates to {listed([str(pod.address) for pod in unruled], 'or')}"
    return f"{sentence}."


def _of_spread(case: Case) -> str:
    found = hits(case)
    names = list(dict.fromkeys(case.probe.expect.backends or found))
    flows = sum(found[name] for name in names)
    if not flows:
        return ""
    due = flows / len(names)
    furthest = max(names, key=lambda name: abs(found[name] - due))
    if not found[furthest]:
        return f"{furthest} never chosen in {amount(flows, 'flow')}: its share is 0."
    got = f"{found[furthest]:,} of {amount(flows, 'flow')}"
    return f"{furthest} got {got}: its share is {found[furthest] / flows:.1%}, and {1 / len(names):.1%} was due."


def _by_rule(case: Case, target: str, participle: str) -> str:
    rules = ending(case.errand, case.evidence.counts, target)
    if not rules:
        return ""
    return f"{rules[0].count.node} {participle} it: {_rule(rules[0])}."


def _rule(rule: Rule) -> str:
    """A rule, named so that it can be found: what its writer said about it, and its chain."""
    return f'its rule "{rule.comment}" in {rule.count.chain}' if rule.comment else f"its rule in {rule.count.chain}"


def _translation(case: Case, address: IPAddress) -> Rule | None:
    found = translations(case.evidence.counts)
    return next((rule for rule in found if rule.translates_to and rule.translates_to[0] == address), None)


def _from_dialled(case: Case, reply: Observation) -> bool:
    return (reply.source, reply.source_port) == (case.errand.destination, case.errand.port)


def _still_dialled(case: Case, stray: Observation) -> bool:
    return (stray.destination, stray.destination_port) == (case.errand.destination, case.errand.port)


def _dialled(case: Case) -> str:
    return endpoint(case.errand.destination, case.errand.port)


def _nodes(case: Case) -> str:
    return listed(case.errand.nodes, "or")
