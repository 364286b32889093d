"""Over random evidence: the judge passes nothing that the definition forbids.

The forbidden cases are written out here a second time, straight from the observations, without a line of the verdict
room: neither its flows nor its fates, its rules or its words.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from ipaddress import ip_address

from hypothesis import event, given, settings
from hypothesis import strategies as st
from recorded import World
from thoroughness import examples

from lab.ip import IPAddress
from lab.scenario.model import Manner, Outcome, Preserved, Spread
from lab.verdict.evidence import (
    Direction,
    Evidence,
    FenceReport,
    KernelCount,
    Observation,
    Packet,
    RuleCount,
    TapLoss,
    TrackedFlow,
)
from lab.verdict.explain import explain
from lab.verdict.judge import judge
from lab.verdict.model import Judgement

PODS = ("echo-1", "echo-2")
NODE = ip_address("172.18.0.2")
CLIENT = ip_address("10.244.1.2")
DIALLED = (ip_address("10.96.0.10"), 80)
POD_ADDRESS = {"echo-1": ip_address("10.244.2.3"), "echo-2": ip_address("10.244.2.4"), "debug": CLIENT}
GONE = {3, 11, 12}
FILTER = "TcpExtIPReversePathFilter"
NODES = ("node-a", "node-b")


# What was seen, asked in the plainest way.


def of(evidence: Evidence, flow: int, packet: Packet, direction: Direction) -> list[Observation]:
    return [o for o in evidence.observations if (o.flow, o.packet, o.direction) == (flow, packet, direction)]


def at_pods(evidence: Evidence, flow: int) -> list[Observation]:
    coming = of(evidence, flow, Packet.REQUEST, Direction.IN)
    return [o for o in coming if POD_ADDRESS.get(o.place) == o.destination]


def departures(evidence: Evidence, flow: int) -> list[Observation]:
    return [o for o in of(evidence, flow, Packet.REQUEST, Direction.OUT) if o.place == "debug"]


def heard(evidence: Evidence, flow: int, *packets: Packet) -> list[Observation]:
    found = [o for packet in packets for o in of(evidence, flow, packet, Direction.IN) if o.place == "debug"]
    return [o for o in found if not (o.icmp and (o.icmp[0] not in GONE or o.icmp == (3, 4)))]


def reports(evidence: Evidence, flow: int) -> list[object]:
    return [r for r in evidence.connects if r.flow == flow]


# The forbidden cases. Each yields a clause for whatever makes a pass of that expectation a lie.


def untrustworthy(world: World, evidence: Evidence) -> Iterator[str]:
    if evidence.unfinished:
        yield "the run did not finish"
    if any(loss.frames for loss in evidence.losses):
        yield "a tap lost frames"
    if not evidence.sent <= world.flows <= evidence.sent + len(evidence.refused_sends):
        yield "not as many sent as the probe has"
    if any(o.flow not in range(world.flows) for o in evidence.observations):
        yield "a flow that does not exist"
    if world.manner is Manner.CONNECT and any(len(reports(evidence, f)) != 1 for f in range(world.flows)):
        yield "a socket did not report once"


def stack_drops(evidence: Evidence) -> list[KernelCount]:
    """Counters of packets that a node's stack dropped; or received, where nothing else of that node moved."""
    named = [count for count in evidence.kernel if count.counter == FILTER]
    alone = [count for count in evidence.kernel if len(evidence.kernel) == 1 and count.counter == "IpInReceives"]
    return [*named, *(count for count in alone if not any("DROP" in each.text for each in evidence.counts))]


def mistracked(evidence: Evidence) -> Iterator[str]:
    """Conntrack knows nothing of what was seen at a pod, or knows otherwise."""
    for arrival in (o for o in evidence.observations if o.packet is Packet.REQUEST and o.direction is Direction.IN):
        if evidence.tracked is None or POD_ADDRESS.get(arrival.place) != arrival.destination:
            continue
        there = (arrival.destination, arrival.destination_port, arrival.source, arrival.source_port)
        entries = [e for e in evidence.tracked if e.flow == arrival.flow]
        known = [(e.reply_source, e.reply_source_port, e.reply_destination, e.reply_destination_port) for e in entries]
        if there not in known:
            yield "conntrack contradicts what arrived"


def leading_to(evidence: Evidence, arrival: Observation) -> int:
    """Packets counted by DNAT rules to where a packet arrived."""
    ours = f"-j DNAT --to-destination {arrival.destination}:{arrival.destination_port}"
    return sum(count.packets for count in evidence.counts if count.text.endswith(ours))


def no_delivery(world: World, evidence: Evidence) -> Iterator[str]:
    yield from mistracked(evidence)
    for flow in range(world.flows):
        arrivals = at_pods(evidence, flow)
        if len({o.place for o in arrivals}) != 1:
            yield "not at exactly one pod"
        if not departures(evidence, flow) or len(arrivals) > len(departures(evidence, flow)):
            yield "more arrived than left"
        if heard(evidence, flow, Packet.RESET, Packet.PORT_UNREACHABLE, Packet.OTHER_ICMP):
            yield "turned away"
        if evidence.counted and any(leading_to(evidence, o) < 1 for o in arrivals):
            yield "no rule translated it"
        for report in reports(evidence, flow) if world.manner is Manner.CONNECT else ():
            if not report.error and report.backend not in {o.place for o in arrivals}:
                yield "answered by another pod"


def no_reply(world: World, evidence: Evidence) -> Iterator[str]:
    yield from mistracked(evidence)
    for flow in range(world.flows):
        replies = heard(evidence, flow, Packet.REPLY)
        if not replies:
            yield "no reply"
        if any((o.source, o.source_port) != DIALLED for o in replies):
            yield "a reply from elsewhere"
        if any((o.destination, o.destination_port) != world.client(flow) for o in replies):
            yield "a reply to somebody else"
        senders = {o.place for o in of(evidence, flow, Packet.REPLY, Direction.OUT)}
        if not {o.place for o in at_pods(evidence, flow)} <= senders:
            yield "a reply that no pod sent"
        if world.manner is Manner.CONNECT and any(report.error for report in reports(evidence, flow)):
            yield "a socket that was not answered"


def no_rejection(world: World, evidence: Evidence) -> Iterator[str]:
    for flow in range(world.flows):
        if of(evidence, flow, Packet.REQUEST, Direction.IN):
            yield "it came in somewhere"
        if heard(evidence, flow, Packet.REPLY, Packet.RESET, Packet.OTHER_ICMP):
            yield "something else was heard"
        errors = heard(evidence, flow, Packet.PORT_UNREACHABLE)
        if not errors or any(o.icmp != (3, 3) or o.destination != CLIENT for o in errors):
            yield "no ICMP port unreachable to the sender"
        if any(o.source in POD_ADDRESS.values() for o in errors):
            yield "an ICMP error from a pod"
        if world.manner is Manner.CONNECT and any(r.error != "ECONNREFUSED" for r in reports(evidence, flow)):
            yield "a socket that was not refused"
    if rejections(evidence) < sum(max(1, len(departures(evidence, flow))) for flow in range(world.flows)):
        yield "no rule that counted it all"


def no_refusal(world: World, evidence: Evidence) -> Iterator[str]:
    for flow in range(world.flows):
        resets = heard(evidence, flow, Packet.RESET)
        if not resets or any((o.source, o.source_port) != DIALLED for o in resets):
            yield "no reset from the address dialled"
        if heard(evidence, flow, Packet.REPLY, Packet.PORT_UNREACHABLE, Packet.OTHER_ICMP):
            yield "something else was heard"
        if len({o.place for o in at_pods(evidence, flow)}) > 1:
            yield "at two pods"


def drops(evidence: Evidence, node: str | None = None, end: str = "-j DROP") -> int:
    """Packets counted by the one dropping rule of this world that names what was dialled."""
    ours = [c for c in evidence.counts if c.text.endswith(f"--dport 80 {end}") and "-d 10.96.0.10/32 -p tcp" in c.text]
    return sum(c.packets for c in ours if node in (None, c.node))


def rejections(evidence: Evidence) -> int:
    """Packets counted by the rejecting one."""
    return drops(evidence, end="-j REJECT --reject-with icmp-port-unreachable")


def no_drop(world: World, evidence: Evidence) -> Iterator[str]:
    left = 0
    for flow in range(world.flows):
        left += max(1, len(departures(evidence, flow)))
        if of(evidence, flow, Packet.REQUEST, Direction.IN):
            yield "it came in somewhere"
        if heard(evidence, flow, Packet.REPLY, Packet.RESET, Packet.PORT_UNREACHABLE, Packet.OTHER_ICMP):
            yield "the sender heard something"
        if world.manner is Manner.CONNECT and any(not r.error for r in reports(evidence, flow)):
            yield "a socket that was answered"
    if all(count.packets != left for count in stack_drops(evidence)):
        yield from silence_that_may_break(world, evidence)
        if drops(evidence) < left:
            yield "no rule that counted it all"


def silence_that_may_break(world: World, evidence: Evidence) -> Iterator[str]:
    for flow in range(world.flows):
        for fence in evidence.fences:
            if not fence.answered or any(fence.at < o.at for o in departures(evidence, flow)[:1]):
                yield "a fence that proves nothing"
    if evidence.unpinned:
        yield "fences that may have overtaken a packet"
    if {fence.name for fence in evidence.fences} < {"node-a", *PODS}:
        yield "a fence that was not sent"


def wrong_source(world: World, evidence: Evidence) -> Iterator[str]:
    if any(c.packets > world.flows for c in evidence.counts if "-j MASQUERADE" in c.text):
        yield "more masqueraded than were sent"
    for flow in range(world.flows):
        arrivals = at_pods(evidence, flow)
        if not arrivals or any(o.source != CLIENT for o in arrivals):
            yield "another source, or none seen"
        if world.manner is Manner.CONNECT and any(not r.error and r.peer != CLIENT for r in reports(evidence, flow)):
            yield "the responder saw another peer"


def wrong_backend(world: World, evidence: Evidence) -> Iterator[str]:
    for flow in range(world.flows):
        if not {o.place for o in at_pods(evidence, flow)} or "echo-2" in {o.place for o in at_pods(evidence, flow)}:
            yield "a pod that is no backend, or none"


def too_few(world: World, evidence: Evidence) -> Iterator[str]:
    places = {o.place for flow in range(world.flows) for o in at_pods(evidence, flow)}
    if places != {"echo-1"}:
        yield "a spread that three flows cannot show"


def elsewhere(world: World, evidence: Evidence) -> Iterator[str]:
    here = any(count.packets >= world.flows for count in stack_drops(evidence) if count.node == "node-a")
    if world.outcome is Outcome.DROPPED and drops(evidence, "node-a") < world.flows and not here:
        yield "node-a did not count it"


FORBIDDEN: dict[str, Callable[[World, Evidence], Iterator[str]]] = {
    "reply": no_reply,
    "source": wrong_source,
    "backends": wrong_backend,
    "spread": too_few,
    "at": elsewhere,
}
NO_OUTCOME = {
    Outcome.DELIVERED: no_delivery,
    Outcome.REJECTED: no_rejection,
    Outcome.REFUSED: no_refusal,
    Outcome.DROPPED: no_drop,
}


# Random evidence: each flow has a story that is likely to be what was expected, and then things go wrong.


@st.composite
def cases(draw: st.DrawFn) -> tuple[World, Evidence]:
    outcome = draw(st.sampled_from(list(NO_OUTCOME)))
    about_pods = outcome in (Outcome.DELIVERED, Outcome.REFUSED)
    world = World(
        pods=PODS,
        flows=draw(st.integers(1, 3)),
        manner=draw(st.sampled_from(list(Manner))),
        outcome=outcome,
        source=Preserved() if about_pods and draw(st.booleans()) else None,
        backends=("echo-1",) if about_pods and draw(st.booleans()) else None,
        spread=Spread.EVEN if about_pods and draw(st.integers(0, 5)) == 5 else None,
        at="node-a" if outcome is Outcome.DROPPED and draw(st.booleans()) else None,
    )
    seen: list[Observation] = []
    connects = []
    for flow in range(world.flows):
        story, error = draw(stories(world, flow))
        seen += story
        connects.append(world.failed(flow, error) if error else world.report(flow, "echo-1"))
    match draw(st.sampled_from(["whole", "lost", "repeated", "intruded"])):
        case "lost" if seen:
            del seen[draw(st.integers(0, len(seen) - 1))]
        case "repeated" if seen:
            seen.append(draw(st.sampled_from(seen)))
        case "intruded":
            seen += draw(st.lists(intruders(world), min_size=1, max_size=2))
    evidence = world.evidence(
        sorted(seen, key=lambda o: o.at),
        connects=tuple(connects) if world.manner is Manner.CONNECT else (),
        counts=draw(counts(world)),
        counted=draw(st.sampled_from([(), ("node-a", "node-b")])),
        tracked=draw(tracked(world)),
    )
    if draw(st.integers(0, 3)) == 3:
        evidence = replace(evidence, **draw(spoilt(world)))
    return world, evidence


def stories(world: World, flow: int) -> st.SearchStrategy[tuple[tuple[Observation, ...], str]]:
    """What is seen of one flow, and the errno of its socket; the story that was expected comes first."""
    left, arrived = world.leaves(flow), world.arrives(flow, "echo-1")
    told = {
        Outcome.DELIVERED: (world.round_trip(flow, "echo-1"), ""),
        Outcome.REJECTED: ((left, world.hears_icmp(flow)), "ECONNREFUSED"),
        Outcome.REFUSED: ((left, arrived, world.hears_reset(flow)), "ECONNREFUSED"),
        Outcome.DROPPED: ((left,), "timeout"),
    }
    wanted = told.pop(world.outcome)
    others = [
        *told.values(),
        (world.round_trip(flow, "echo-1", NODE), ""),
        (world.round_trip(flow, "echo-2"), ""),
        ((left, arrived), "timeout"),
        ((left, arrived, world.answers(flow, "echo-1"), world.hears(flow, (POD_ADDRESS["echo-1"], 8080))), "timeout"),
        ((), "EPERM"),
    ]
    return st.integers(0, 5).flatmap(lambda n: st.sampled_from(others) if n == 5 else st.just(wanted))


def intruders(world: World) -> st.SearchStrategy[Observation]:
    """Packets that have no business to be there."""
    flow = st.integers(0, world.flows)
    pod = st.sampled_from(PODS)
    return st.one_of(
        st.builds(world.leaves, flow),
        st.builds(world.arrives, flow, pod, st.sampled_from([None, NODE])),
        st.builds(world.answers, flow, pod),
        st.builds(world.hears, flow, st.sampled_from([None, (NODE, 80)])),
        st.builds(world.hears_reset, flow, st.sampled_from([None, (NODE, 80)])),
        st.builds(
            world.hears_icmp,
            flow,
            st.sampled_from([None, POD_ADDRESS["echo-1"]]),
            st.sampled_from([None, (3, 1), (3, 4), (3, 13), (5, 1), (11, 0)]),
        ),
        st.builds(lambda f: replace(world.leaves(f), place="outside", direction=Direction.IN), flow),
        st.builds(lambda f: replace(world.leaves(f), place="echo-1", direction=Direction.IN), flow),
    )


def tracked(world: World) -> st.SearchStrategy[tuple[TrackedFlow, ...] | None]:
    """Nobody looked; conntrack knows every flow as it has likely gone; or it knows something else, or nothing."""

    def entry(flow: int, pod: str = "echo-1", source: IPAddress | None = None) -> TrackedFlow:
        return TrackedFlow(flow, "node-a", POD_ADDRESS[pod], 8080, *world.as_seen(flow, source))

    flows = range(world.flows)
    right = st.just(tuple(entry(flow) for flow in flows))
    wrong = st.lists(
        st.builds(entry, st.integers(0, world.flows), st.sampled_from(PODS), st.sampled_from([None, NODE])), max_size=3
    ).map(tuple)
    return st.one_of(st.none(), right, right, wrong)


def counts(world: World) -> st.SearchStrategy[tuple[RuleCount, ...]]:
    number = st.integers(max(0, world.flows - 1), world.flows + 1)
    dropping = st.builds(world.dropped, number, st.sampled_from(["node-a", "node-a", "node-b"]))
    invalid = RuleCount("node-a", "filter", "KUBE-FORWARD", "-A KUBE-FORWARD -m conntrack --ctstate INVALID -j DROP", 9)
    other = st.one_of(
        st.just(invalid),
        st.builds(world.rejected, number),
        st.builds(world.masqueraded, number),
        st.builds(world.translated, st.just("echo-1")),
    )
    flows = world.flows + 1
    whole = st.just((world.dropped(flows), world.rejected(flows), world.translated("echo-1", flows)))
    return st.one_of(whole, whole, st.lists(st.one_of(dropping, other), max_size=3).map(tuple))


def spoilt(world: World) -> st.SearchStrategy[dict[str, object]]:
    fences = world.fences
    return st.sampled_from(
        [
            {"unfinished": "the deadline passed"},
            *({"kernel": (KernelCount(node, FILTER, world.flows + more),)} for node in NODES for more in (-1, 0, 0, 1)),
            {"kernel": (KernelCount("node-a", "IpInReceives", world.flows),)},
            {"kernel": tuple(KernelCount("node-a", name, world.flows) for name in ("IpInReceives", "IpForwDatagrams"))},
            {"losses": (TapLoss("echo-1", "eth0", 1),)},
            {"losses": (TapLoss("echo-1", "eth0", 0),)},
            {"fences": ()},
            {"unpinned": "refused"},
            {"fences": fences[1:]},
            {"fences": (FenceReport("node-a", False), *fences[1:])},
            {"fences": tuple(replace(fence, at=1) for fence in fences)},
            {"sent": world.flows - 1},
            {"sent": world.flows - 1, "refused_sends": ("EPERM",)},
            {"sent": 0, "refused_sends": ("EPERM",) * world.flows},
            {"sent": world.flows + 1},
            {"connects": ()},
            {"connects": tuple(world.report(flow, "echo-2") for flow in range(world.flows))},
            {"connects": tuple(world.report(flow, "echo-1", NODE) for flow in range(world.flows))},
        ]
    )


@settings(max_examples=examples(150), deadline=None)
@given(cases())
def test_no_pass_that_the_definition_forbids(case: tuple[World, Evidence]) -> None:
    world, evidence = case
    verdict = judge(world.probe, world.errand, None, evidence)
    event(f"{world.outcome}: {verdict.overall}")
    for each in verdict.verdicts:
        if each.judgement is not Judgement.PASS:
            assert each.reasons, f"{each.expectation} is {each.judgement} without a reason"
            continue
        forbidden = NO_OUTCOME[world.outcome] if each.expectation == "outcome" else FORBIDDEN[each.expectation]
        lies = [*untrustworthy(world, evidence), *forbidden(world, evidence)]
        assert not lies, f"{each.expectation} passed, but: {lies}"


@settings(max_examples=examples(100), deadline=None)
@given(cases())
def test_a_reply_from_elsewhere_fails_whatever_else_is_in_doubt(case: tuple[World, Evidence]) -> None:
    world, evidence = case
    for each in judge(world.probe, world.errand, None, evidence).verdicts:
        if each.expectation != "reply":
            continue
        astray = [
            flow
            for flow in range(world.flows)
            if at_pods(evidence, flow)
            and any((o.source, o.source_port) != DIALLED for o in heard(evidence, flow, Packet.REPLY))
        ]
        event(f"replies from elsewhere: {bool(astray)}")
        assert not astray or each.judgement is Judgement.FAIL


@settings(max_examples=examples(40), deadline=None)
@given(cases())
def test_every_verdict_can_be_explained_in_80_columns(case: tuple[World, Evidence]) -> None:
    world, evidence = case
    lines = explain(judge(world.probe, world.errand, None, evidence))
    assert lines[0].startswith("scenarios/cluster-ip.lab.yaml:")
    assert max(map(len, lines)) <= 80


def test_the_expected_stories_pass_when_nothing_goes_wrong() -> None:
    """The property above would hold for a judge that passes nothing."""
    for outcome, error in (
        (Outcome.DELIVERED, ""),
        (Outcome.REJECTED, "ECONNREFUSED"),
        (Outcome.REFUSED, "ECONNREFUSED"),
        (Outcome.DROPPED, "timeout"),
    ):
        for manner in Manner:
            world = World(pods=PODS, flows=2, outcome=outcome, manner=manner)
            told = {
                Outcome.DELIVERED: lambda w, f: w.round_trip(f, "echo-1"),
                Outcome.REJECTED: lambda w, f: (w.leaves(f), w.hears_icmp(f)),
                Outcome.REFUSED: lambda w, f: (w.leaves(f), w.arrives(f, "echo-1"), w.hears_reset(f)),
                Outcome.DROPPED: lambda w, f: (w.leaves(f),),
            }[outcome]
            said = [world.failed(f, error) if error else world.report(f, "echo-1") for f in range(2)]
            evidence = world.evidence(
                [o for flow in range(2) for o in told(world, flow)],
                connects=tuple(said) if manner is Manner.CONNECT else (),
                counts=(world.dropped(2), world.rejected(2), world.translated("echo-1", 2)),
                counted=("node-a",),
            )
            assert judge(world.probe, world.errand, None, evidence).overall is Judgement.PASS
