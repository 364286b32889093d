"""``endpoint``, ``backend``, ``backends`` and ``spread``: where the flows of a probe arrived, or a stream's packets.

Of a probe the taps at the pods tell, of a stream the answers. Both share the clauses, and the ends where packets may
arrive (``expected_ends``).

``endpoint``, which needs no key: flows arrive at an endpoint that they may reach at that moment, at its target port.

A pod answers on every port that it listens on, and every pod of the lab answers, so an answer does not show that the
way was right. The right ends follow from the Service and its EndpointSlices (``oracle.weakest``): whatever the policy,
and whether or not the author names backends, a flow to a Service reaches one of them and nothing else. ``backends``
says more: which of them, and a pod that the author names may be none of them (``expected_ends``).
A flow that asks no Service arrives where it was sent to.

``backends`` also says at which port. ``spread`` says in which shares the flows went to the pods that they reached.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from proxylab.addresses import IPAddress
from proxylab.evidence.evidence import Observation
from proxylab.evidence.words import amount, endpoint, listed, numbers
from proxylab.plan.resolved import ResolvedProbe
from proxylab.scenario.expect import Backend, Shares
from proxylab.scenario.words import Outcome, Spread
from proxylab.statistics import (
    SHARE_CHANGE,
    SIGNIFICANCE,
    flows_needed_for,
    flows_to_hit_all,
    flows_to_stick,
    spread_p_value,
)
from proxylab.verdict.case import Case, ExpectedEnds
from proxylab.verdict.findings import Expectation, Findings, Needs
from proxylab.verdict.flows import end_counts
from proxylab.verdict.model import Verdict
from proxylab.verdict.step_case import StreamCase, answer_words, may_be_late

_End = tuple[IPAddress, int]
_Arrived = Counter[_End]


def _expected(case: Case) -> _Arrived | None:
    """How many packets arrived at each address and port; ``None`` where none did or should, or any end will do."""
    may_arrive = case.expect.outcome in (Outcome.DELIVERED, Outcome.REFUSED) or case.ends_beyond_nodes
    if not case.is_about_packets or not may_arrive or not case.expected_ends.is_known:
        return None
    return end_counts([_end(each) for flow in case.arrived for each in flow.arrivals]) or None


def _judge_endpoint(case: Case, arrived: _Arrived) -> Verdict:
    """Every packet that arrived came to an endpoint that it may reach."""
    resolved, findings, ends = case.resolved, Findings(case), case.expected_ends
    known: dict[tuple[str, _End], bool] = {}
    for flow in case.arrived:
        for each in flow.arrivals:
            where = (each.netns_name, _end(each))
            if where not in known:
                known[where] = ends.allow(*where)
            if not known[where]:
                is_what = f"is {'an endpoint that is not ready' if ends.is_unready(where[1]) else 'no endpoint'}"
                findings.wrong(_clause(resolved, ends, *where, is_what), flow.number)
    # Ends of a backend that the author names are right as well, and alone where flows came to nothing else.
    named = dict.fromkeys(end for (_, end), is_right in known.items() if is_right and end not in ends.reachable)
    expected = list(named) if arrived.keys() == named.keys() else [*ends.reachable, *named]
    reachable = {(each.address, each.port) for each in resolved.endpoints if each.is_reachable}
    at_dialled = not resolved.service_port or (set(arrived) == {case.dialled} and case.dialled not in reachable)
    witness = "what was dialled" if at_dialled else f"an endpoint of {resolved.service_port}"
    return findings.settle(
        "endpoint",
        expected=_several(expected, "any of {}") or listed([endpoint(*each) for each in expected]),
        observed=_several(arrived if set(arrived) <= {*expected} else (), "{}")
        or listed([endpoint(*each) for each in arrived]),
        witnesses=[witness if set(arrived) <= {*ends.reachable} else "a backend that the author names"],
    )


def _several(ends: Collection[_End], words: str) -> str:
    """Several endpoints by their number; empty for one, or none."""
    return words.format(amount(len(ends), "endpoint")) if len(ends) > 1 else ""


def _clause(resolved: ResolvedProbe, ends: ExpectedEnds, name: str, end: _End, is_what: str) -> str:
    """That a packet arrived at another end than it may; ``is_what`` says what that is to the Service."""
    (address, at_port), service_port = end, resolved.service_port
    instead = ends.instead_of(address) or [(resolved.destination, resolved.port)]
    ports = listed([str(port) for _, port in instead], "or")
    if instead[0][0] == address:
        whose = f", the target port of {service_port} there" if service_port else " that was dialled"
        return f"it arrived at port {at_port} of {name}, not at port {ports}{whose}"
    if not service_port:
        return f"it arrived at {endpoint(*end)}, not at {endpoint(*instead[0])} that was dialled"
    return f"it arrived at {name}, at {endpoint(*end)}, which {is_what} of {service_port}"


def _end(arrival: Observation) -> _End:
    return arrival.destination, arrival.destination_port


ENDPOINT = Expectation[Case, _Arrived](key="endpoint", expected=_expected, judge=_judge_endpoint)


def _strays(stream: StreamCase) -> dict[int, str] | None:
    """The packets that reached what is no expected endpoint, each with a clause; ``None`` without any.

    A stream stays where conntrack or its connection holds it; after the step's wait it moves only to endpoints that new
    flows may reach.
    """
    ends, found = ExpectedEnds.of_stream(stream.resolved, stream.expect), dict[int, str]()
    before: _End | None = None
    for packet in stream.answered:
        if packet.own is None:
            continue
        end, earlier = (packet.own, packet.own_port), before
        before = end
        if not ends.allow(packet.backend, end):
            found[packet.number] = _clause(stream.resolved, ends, packet.backend, end, "was at no time an endpoint")
        moved = earlier not in (None, end) and packet.at >= stream.step.settled
        if moved and ends.is_unready(end) and packet.backend not in stream.expect.backend_names:
            found[packet.number] = f"it moved to {packet.backend}, an endpoint that is not ready"
    return found or None


def _judge_endpoint_of_stream(stream: StreamCase, strays: dict[int, str]) -> Verdict:
    findings = Findings(stream)
    for number, clause in strays.items():
        findings.wrong(clause, number)
    ends = [(each.own, each.own_port) for each in stream.answered if each.own is not None]
    return findings.settle(
        f"{stream.name}.endpoint",
        expected=listed([endpoint(each.address, each.port) for each in stream.resolved.endpoints], "or"),
        observed=listed([endpoint(*end) for end in dict.fromkeys(ends)]),
    )


ENDPOINT_OF_STREAM = Expectation[StreamCase, dict[int, str]](
    key="endpoint", expected=_strays, judge=_judge_endpoint_of_stream
)


def _judge_backends(case: Case, expected: tuple[Backend, ...]) -> Verdict:
    """The flows reached exactly the pods in ``expected``, and where it names ports exactly those.

    The proxy picks a backend by chance, so few flows need not reach all of them. A backend without a flow is missing
    from ``flows_to_hit_all`` flows on; below that it is in doubt. With session affinity the proxy
    chooses once for each client, and a scenario may have few of them: then the verdict only says so. A client of a
    headless Service's name dials one pod; ``name`` checks that the name gives all of them.
    """
    with_port = {each.name for each in expected if each.port is not None}
    names, found, findings = list(dict.fromkeys(map(str, expected))), Counter[str](), Findings(case, case.unseen)
    for flow in case.arrived:
        reached = list(dict.fromkeys(_called(each, with_port) for each in flow.arrivals))
        found.update(reached)
        if strangers := [each for each in reached if each not in names]:
            _note_stranger(findings, flow.number, strangers, case.too_late.get(flow.number, ""))
        elif flow.number in case.disagreements:
            findings.doubt(case.disagreements[flow.number], flow.number)
    question = case.resolved.question
    chosen_by_client = question is not None and question.headless
    never = [] if chosen_by_client else [each for each in names if not found[each]]
    observed = numbers(found)
    by_client = case.expect.spread is Spread.STICKY or case.resolved.affinity_timeout is not None
    choices = len(case.clients) if by_client else len(case.arrived)
    said = (findings.any_wrong or case.too_late) and len(names) == 1  # a stranger was hit, so the only backend was not
    if never and found and not said and (choices > 1 or not by_client):
        chosen = amount(choices, "client" if by_client else "flow")
        enough = flows_to_hit_all(len(names))
        if choices >= enough:
            findings.missing(f"the proxy never chose {listed(never)} in {chosen}")
        elif by_client or "backends" in case.expect.follows:  # no promise says that few flows hit all
            observed += f" ({chosen} need not hit all {len(names):,})"
        else:
            findings.doubt(f"no flow reached {listed(never)}: {chosen} need not hit all {len(names):,}, {enough:,} do")
    return findings.settle("backends", expected=listed(names), observed=observed)


def _note_stranger(findings: Findings, number: int, strangers: Sequence[str], but: str = "") -> None:
    """Note a flow or packet that reached what is no expected backend; ``but`` is a clause that may excuse it."""
    clause = f"the request reached {listed(strangers)}, not an expected backend"
    (findings.doubt if but else findings.wrong)(f"{clause}, but {but}" if but else clause, number)


def _called(arrival: Observation, with_port: Collection[str]) -> str:
    """A backend as the author writes it: with the port if the author names a port of that pod."""
    name = arrival.netns_name
    return f"{name}:{arrival.destination_port}" if name in with_port else name


def _reached(case: Case, verdict: Verdict) -> str:
    flow = None if verdict.example is None else case.flows[verdict.example]
    if flow is None or not flow.arrivals:
        return ""
    return f"the packet reached {flow.arrivals[0].netns_name}, and no counter shows which rule sent it there."


BACKENDS = Expectation[Case, tuple[Backend, ...]](
    key="backends",
    judge=_judge_backends,
    needs=Needs.ARRIVALS,
    as_seen=_reached,
    shows_in_shares=True,
)


def _judge_backend_of_stream(stream: StreamCase, expected: str) -> Verdict:
    """That pod answered every packet sent after the step's wait."""
    stream = stream.after_wait
    findings = Findings(stream, stream.foreign)
    for packet in stream.packets:
        if may_be_late(packet):
            findings.missing(answer_words(packet), packet.number)
        elif not packet.backend:
            findings.wrong(answer_words(packet), packet.number)
        elif packet.backend != expected:
            _note_stranger(findings, packet.number, [packet.backend])
    return findings.settle(
        f"{stream.name}.backend",
        expected=expected,
        observed=listed(list(dict.fromkeys(packet.backend or "no backend" for packet in stream.packets))),
        may_be_late=stream.may_be_late,
        witnesses=[f"{expected} answered all {amount(len(stream.packets), 'packet')} sent after the wait"],
    )


def _other_backend(stream: StreamCase, _verdict: Verdict) -> str:
    other = next((each for each in stream.after_wait.answered if each.backend != stream.expect.backend), None)
    return "" if other is None else f"{other.backend} answered packet {other.number}, {stream.sent(other)}."


def _judge_backends_of_stream(stream: StreamCase, expected: tuple[str, ...]) -> Verdict:
    """Those pods answered, in that order, and no others."""
    findings = Findings(stream, stream.foreign)
    answered = tuple(dict.fromkeys(packet.backend for packet in stream.packets if packet.backend))
    strangers = [packet for packet in stream.packets if packet.backend and packet.backend not in expected]
    silent = [name for name in expected if name not in answered]
    for packet in strangers:
        _note_stranger(findings, packet.number, [packet.backend])
    for name in silent:
        findings.missing(f"{name} answered nothing")
    if answered != expected and not strangers and not silent:
        findings.missing(f"the backends answered in another order: {listed(answered)}")
    return findings.settle(
        f"{stream.name}.backends",
        expected=", ".join(expected),
        observed=", ".join(answered) or "no backend",
        may_be_late=stream.may_be_late,
        witnesses=[f"first answers of {listed(answered)}"],
    )


def _last_backend(stream: StreamCase, _verdict: Verdict) -> str:
    if not stream.answered:
        return ""
    last = stream.answered[-1]
    return f"{last.backend} was the last to answer: packet {last.number}, {stream.sent(last)}."


BACKEND_OF_STREAM = Expectation[StreamCase, str](key="backend", judge=_judge_backend_of_stream, as_seen=_other_backend)
BACKENDS_OF_STREAM = Expectation[StreamCase, tuple[str, ...]](
    key="backends", judge=_judge_backends_of_stream, as_seen=_last_backend
)


def _judge_spread(case: Case, expected: Spread | Shares) -> Verdict:
    """The spread of flows over the expected backends, or without those over the pods that they reached.

    A spread over too few flows is neither even nor uneven: see ``proxylab.statistics``.
    """
    backends = case.expect.backend_names
    match expected:
        case Spread.STICKY:
            return _judge_sticky(case, backends)
        case Shares(of):
            shown = ", ".join(f"{name} {share:.1%}" for name, share in of.items())
            return _judge_shares(case, of, shown)
        case _:
            names = backends or tuple(case.arrivals_by_pod)
            shares = dict.fromkeys(names, 1 / len(names)) if names else {}
            return _judge_shares(
                case, shares, f"even, {1 / len(names):.1%} each" if names else "even", named=bool(backends)
            )


def _judge_shares(case: Case, shares: Mapping[str, float], expected: str, *, named: bool = True) -> Verdict:
    """Each pod got its expected share of all flows, as far as chance allows."""
    found = case.arrivals_by_pod
    counts = [found[name] for name in shares]
    flows, findings = sum(counts), Findings(case, case.unseen)
    findings.doubt_each(case.disagreements)
    _note_strange_shares(case, findings, shares)
    chance = spread_p_value(counts, tuple(shares.values())) if shares else 1.0
    if not named and len(shares) == 1:
        only = next(iter(shares))
        findings.doubt(
            f"the flows reached only {only}; without backends the judge cannot know whether there are others"
        )
    elif shares and flows < (needed := flows_needed_for(tuple(shares.values()))):
        findings.doubt(
            f"{amount(flows, 'flow')} over {amount(len(shares), 'backend')} cannot show a change of one share by "
            f"{SHARE_CHANGE:.0%}; {needed:,} flows can"
        )
    elif chance < SIGNIFICANCE:
        findings.missing(f"chance alone spreads as unevenly as this with p = {chance:.1e}")
    return findings.settle("spread", expected=expected, observed=numbers(found))


def _judge_sticky(case: Case, names: Sequence[str]) -> Verdict:
    """All flows of a client went to one backend, and there were too many of them for chance.

    A client is an address. Each client may have another backend; the flows after its first show whether affinity held.
    """
    found = case.arrivals_by_pod
    clients = case.clients
    findings = Findings(case, case.unseen)
    findings.doubt_each(case.disagreements)
    if names:
        _note_strange_shares(case, findings, names)
    strayed = {client: reached for client, reached in clients.items() if len(reached) > 1}
    if len(clients) > 1 and strayed:
        findings.wrong(f"{len(strayed):,} of {len(clients):,} clients went to several backends")
    elif strayed:
        findings.wrong(f"the flows of one client went to {listed(list(found))}")
    elif len(names) < 2:
        only = listed(list(found))
        findings.doubt(f"the flows reached only {only}; affinity shows only among two backends or more")
    elif len(case.arrived) < (needed := flows_to_stick(len(names)) + max(len(clients), 1) - 1):
        findings.doubt(
            f"{amount(len(case.arrived), 'flow')} may all go to one of {len(names):,} backends by chance; "
            f"{needed:,} hardly do"
        )
    expected = "sticky, all to one" if len(clients) < 2 else "sticky, all of a client to one"
    return findings.settle("spread", expected=expected, observed=numbers(found))


def _note_strange_shares(case: Case, findings: Findings, names: Collection[str]) -> None:
    in_time = (name for flow in case.arrived if flow.number not in case.too_late for name in flow.reached)
    strangers = [name for name in dict.fromkeys(in_time) if name not in names]
    if strangers:
        findings.wrong(f"requests reached {listed(strangers)}, not an expected backend")
    findings.doubt_each(case.too_late)


SPREAD = Expectation[Case, Spread | Shares](
    key="spread",
    judge=_judge_spread,
    needs=Needs.ARRIVALS,
    shows_in_shares=True,
)
