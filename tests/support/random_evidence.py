"""Random evidence: most flows go as expected, and then random faults are added."""

from itertools import combinations, product

from forbidden import FILTER, NO_OUTCOME, NODE, NODES, POD_ADDRESS, PODS
from hypothesis import strategies as st
from msgspec.structs import replace
from recorded import World

from proxylab.addresses import IPAddress, Transport
from proxylab.evidence.evidence import (
    Direction,
    Evidence,
    HttpReport,
    KernelCount,
    Observation,
    RuleCount,
    SentinelReport,
    TableEntry,
    TapLoss,
    TrackedFlow,
)
from proxylab.scenario.expect import ConntrackExpect, Entries, HttpExpect, Preserved
from proxylab.scenario.words import Manner, Outcome, Spread

PLACES: dict[Outcome, tuple[str | None, ...]] = {
    Outcome.DROPPED: (None, "node-a", "echo-1"),
    Outcome.UNTRANSLATED: (None, "node-a"),
}


HTTP = (HttpExpect(status=200), HttpExpect(status=200, local_endpoints=1))
SOME = (
    Entries(reply_from="echo-1"),
    Entries(reply_from=str(POD_ADDRESS["echo-1"]), port=80),
    Entries(original_from="debug", masqueraded=False),
    Entries(masqueraded=True),
    Entries(protocol=Transport.UDP),
)
NONE = (
    Entries(reply_from="echo-2"),
    Entries(protocol=Transport.UDP, port=80),
    Entries(masqueraded=True),
    Entries(original_from="debug", port=81),
)
CONNTRACK = tuple(
    ConntrackExpect(node=node, some=some, none=none)
    for node, some, none in product((None, "node-a"), (None, *SOME), (None, *NONE))
    if some or none
)


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
        at=draw(st.sampled_from(PLACES.get(outcome, (None,)))),
        http=draw(st.sampled_from((None, None, None, *HTTP))),
        conntrack=draw(st.sampled_from(CONNTRACK)) if draw(st.integers(0, 5)) == 5 else None,
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
        metered_nodes=draw(st.sampled_from([(), ("node-a", "node-b")])),
        tracked=draw(tracked(world)),
        http=draw(st.sampled_from(answered(world))) if world.http else (),
        entries=draw(st.sampled_from(tables(world))) if world.conntrack else None,
    )
    if world.at == "echo-1" and draw(st.booleans()):
        evidence = replace(evidence, kernel=(KernelCount("echo-1", "IpInReceives", world.flows),))
    if draw(st.integers(0, 3)) == 3:
        evidence = replace(evidence, **draw(spoilt(world)))
    return world, evidence


def all_stories(world: World, flow: int) -> dict[Outcome, tuple[tuple[Observation, ...], str]]:
    """What is seen of one flow where all is as its outcome says, and the errno of its socket."""
    left, arrived = world.leaves(flow), world.arrives(flow, "echo-1")
    return {
        Outcome.DELIVERED: (world.round_trip(flow, "echo-1"), ""),
        Outcome.REJECTED: ((left, world.hears_icmp(flow)), "ECONNREFUSED"),
        Outcome.REFUSED: ((left, arrived, world.hears_reset(flow)), "ECONNREFUSED"),
        Outcome.DROPPED: ((left, arrived) if world.at == "echo-1" else (left,), "timeout"),
        Outcome.UNTRANSLATED: ((left, crossing(world, flow)), "timeout"),
    }


def expected_story(world: World, flow: int) -> tuple[tuple[Observation, ...], str]:
    """The one that the world expects."""
    return all_stories(world, flow)[world.outcome]


def stories(world: World, flow: int) -> st.SearchStrategy[tuple[tuple[Observation, ...], str]]:
    """What is seen of one flow, and the errno of its socket; the story that was expected comes first."""
    left, arrived = world.leaves(flow), world.arrives(flow, "echo-1")
    told = all_stories(world, flow)
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


def crossing(world: World, flow: int, node: str = "node-a", pod: str = "") -> Observation:
    """The request as it leaves a node: as it was dialled, or for a pod."""
    left = world.leaves(flow)
    there = (left.destination, left.destination_port) if not pod else (POD_ADDRESS[pod], 8080)
    return replace(left, netns_name=node, destination=there[0], destination_port=there[1], at=left.at + 1)


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
        st.builds(crossing, st.just(world), flow, st.sampled_from(NODES), st.sampled_from(["", "", "echo-1"])),
        st.builds(lambda f: replace(world.leaves(f), netns_name="outside", direction=Direction.IN), flow),
        st.builds(lambda f: replace(world.leaves(f), netns_name="echo-1", direction=Direction.IN), flow),
    )


def tracked(world: World) -> st.SearchStrategy[tuple[TrackedFlow, ...] | None]:
    """Conntrack unread; or an entry for every flow as it has likely gone; or other entries, or none."""

    def known(flow: int, pod: str = "echo-1", source: IPAddress | None = None) -> TrackedFlow:
        return TrackedFlow(flow, "node-a", POD_ADDRESS[pod], 8080, *world.as_seen(flow, source))

    flows = range(world.flows)
    right = st.just(tuple(known(flow) for flow in flows))
    wrong = st.lists(
        st.builds(known, st.integers(0, world.flows), st.sampled_from(PODS), st.sampled_from([None, NODE])), max_size=3
    ).map(tuple)
    return st.one_of(st.none(), right, right, wrong)


def answered(world: World) -> list[tuple[HttpReport, ...]]:
    """Every flow got the expected answer; or one or none got another one, no answer, or two."""
    right = tuple(HttpReport(flow, 200, 1) for flow in range(world.flows))
    flows = range(world.flows + 1)
    odd = [HttpReport(flow, status, told) for flow, status, told in product(flows, (200, 503), (1, 0, None))]
    odd += [HttpReport(flow, 0, error=error) for flow, error in product(flows, ("timeout", "ECONNRESET"))]
    instead = [tuple(one if one.flow == each.flow else each for each in right) for one in odd]
    return [right, right[1:], *instead, *((one, *right) for one in odd), *((*right, one) for one in odd)]


def entry(world: World, flow: int, pod: str = "echo-1", source: IPAddress | None = None, port: int = 80) -> TableEntry:
    """What a flow to a pod leaves in the tables of node-a."""
    there = (world.dialled[0], port)
    return TableEntry(
        "node-a", Transport.TCP, *world.client(flow), *there, POD_ADDRESS[pod], 8080, *world.as_seen(flow, source)
    )


def tables(world: World) -> list[tuple[TableEntry, ...] | None]:
    """Tables unread; or with the entry of a flow to echo-1; or with up to two other entries, besides or instead."""
    own = entry(world, 0)
    kinds = (
        own,
        entry(world, 0, "echo-2"),
        entry(world, 0, source=NODE),
        entry(world, 0, port=81),
        replace(own, source=NODE, reply_destination=NODE),
        replace(own, node="node-b"),
        replace(own, protocol=Transport.UDP),
    )
    right = tuple(entry(world, flow) for flow in range(world.flows))
    return [None, right, (), *((each,) for each in kinds), *combinations(kinds, 2), *((*right, each) for each in kinds)]


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
    sentinels = world.sentinels
    return st.sampled_from(
        [
            {"unfinished": "the deadline passed"},
            *({"kernel": (KernelCount(node, FILTER, world.flows + more),)} for node in NODES for more in (-1, 0, 0, 1)),
            {"kernel": (KernelCount("node-a", "IpInReceives", world.flows),)},
            *({"kernel": (KernelCount("echo-1", name, world.flows),)} for name in ("IpInReceives", FILTER)),
            {"kernel": tuple(KernelCount("node-a", name, world.flows) for name in ("IpInReceives", "IpForwDatagrams"))},
            {"losses": (TapLoss("echo-1", "eth0", 1),)},
            {"losses": (TapLoss("echo-1", "eth0", 0),)},
            {"sentinels": ()},
            {"unpinned": "refused"},
            {"sentinels": sentinels[1:]},
            {"sentinels": (SentinelReport("node-a", False), *sentinels[1:])},
            {"sentinels": tuple(replace(sentinel, at=1) for sentinel in sentinels)},
            {"sent": world.flows - 1},
            {"sent": world.flows - 1, "refused_sends": ("EPERM",)},
            {"sent": 0, "refused_sends": ("EPERM",) * world.flows},
            {"sent": world.flows + 1},
            {"connects": ()},
            {"connects": tuple(world.report(flow, "echo-2") for flow in range(world.flows))},
            {"connects": tuple(world.report(flow, "echo-1", NODE) for flow in range(world.flows))},
        ]
    )
