"""From which address the packets came."""

from ipaddress import ip_address

import pytest
from golden_words import Told
from judging import FAIL, INCONCLUSIVE, NODE, PASS, judged, one
from msgspec.structs import replace
from recorded import World

from proxylab.addresses import IPAddress, Transport
from proxylab.errors import InternalError
from proxylab.evidence.evidence import ForeignRule, Observation, RuleCount, TableEntry, TrackedFlow
from proxylab.plan.resolved import STACK, MasqueradedAs
from proxylab.scenario.expect import (
    Masqueraded,
    NodeDevice,
    Preserved,
    SourceAddress,
    SourceByBackend,
    SourceExpectation,
)
from proxylab.verdict.causes.table import why
from proxylab.verdict.judge import judge
from proxylab.verdict.model import Judgement, ProbeVerdict, Verdict

GATEWAY = ip_address("10.244.1.1")


def test_a_source_without_an_address_is_our_fault() -> None:
    world = World(source=NodeDevice("node-a", "uplink"))
    with pytest.raises(InternalError, match="the plan gave no address for the source"):
        judged(world, world.evidence(world.round_trip(0, "echo-1")))


def test_the_source_an_author_gives_as_an_address() -> None:
    world = World(source=SourceAddress(NODE))
    assert judged(world, world.evidence(world.round_trip(0, "echo-1", NODE))).overall is PASS
    kept = one(world, world.evidence(world.round_trip(0, "echo-1")), "source")
    assert (kept.judgement, kept.expected, kept.observed) == (FAIL, "172.18.0.2", "10.244.1.2")


def test_one_flow_with_another_source_fails_and_is_the_example(told: Told) -> None:
    world = World(flows=20, source=Preserved())
    seen = [each for flow in range(20) for each in world.round_trip(flow, "echo-1", NODE if flow == 17 else None)]
    verdict = one(world, world.evidence(seen), "source")
    assert (verdict.judgement, verdict.example) == (FAIL, 17)
    assert verdict.reasons == told()


def test_flows_that_never_arrived_leave_source_and_backends_open() -> None:
    world = World(flows=2, backends=("echo-1", "echo-2"), source=Preserved())
    verdict = judged(world, world.evidence([*world.round_trip(0, "echo-1"), world.leaves(1)]))
    assert {each.expectation: each.judgement for each in verdict.verdicts} == {
        "outcome": FAIL,
        "reply": INCONCLUSIVE,
        "backends": INCONCLUSIVE,
        "source": INCONCLUSIVE,
    }


def of_source(verdict: ProbeVerdict) -> Verdict:
    return next(each for each in verdict.verdicts if each.expectation == "source")


def masqueraded(world: World, seen: list[Observation], *nodes: str, **changes: object) -> Verdict:
    """The verdict where each node would masquerade to its own address, but towards echo-1 to the gateway's."""
    ways = tuple(
        MasqueradedAs(
            node=node,
            backend=world.address(pod),
            source=GATEWAY if pod == "echo-1" else world.address(node),
        )
        for node in nodes
        for pod in world.pods
    )
    resolved = replace(world.resolved, masquerades=ways)
    return of_source(judge(world.probe, resolved, None, world.evidence(seen, **changes)))


def test_masqueraded_is_another_address_on_each_way(told: Told) -> None:
    world = World(flows=2, source=Masqueraded())
    near, far = world.round_trip(0, "echo-1", GATEWAY), world.round_trip(1, "echo-2", NODE)
    verdict = masqueraded(world, [*near, *far], "node-a")
    assert (verdict.judgement, verdict.expected) == (PASS, "masqueraded (10.244.1.1 or 172.18.0.2)")
    swapped = masqueraded(world, [*near, *world.round_trip(1, "echo-2", GATEWAY)], "node-a")
    assert swapped.judgement is FAIL
    assert swapped.reasons == told()
    kept = masqueraded(world, [*near, *world.round_trip(1, "echo-2")], "node-a")
    assert kept.reasons == told()


def test_of_several_nodes_the_first_on_the_way_masquerades(told: Told) -> None:
    world = World(source=Masqueraded(), pods=("far", "echo-1"))
    assert masqueraded(world, list(world.crossing(0, "far", NODE)), "node-b", "node-a").judgement is PASS
    other = masqueraded(world, list(world.crossing(0, "far", world.address("node-b"))), "node-b", "node-a")
    assert other.reasons == told()
    unseen = masqueraded(world, list(world.round_trip(0, "far", NODE)), "node-b", "node-a")
    assert (unseen.judgement, unseen.reasons) == (
        INCONCLUSIVE,
        told(),
    )


def test_nothing_masquerades_packets_of_other_machines_for_a_program_of_the_node(told: Told) -> None:
    world = World(source=Masqueraded())
    resolved = replace(
        world.resolved, masquerades=(MasqueradedAs(node="node-a", backend=world.address("echo-1"), source=None),)
    )
    verdict = of_source(judge(world.probe, resolved, None, world.evidence(world.round_trip(0, "echo-1"))))
    assert (verdict.judgement, verdict.expected) == (FAIL, "masqueraded")
    (reason,) = verdict.reasons
    assert reason == told()


def test_sources_by_backend(told: Told) -> None:
    world = World(flows=2, source=SourceByBackend({"echo-1": SourceAddress(GATEWAY), "echo-2": Preserved()}))
    near = world.round_trip(0, "echo-1", GATEWAY)
    verdict = one(world, world.evidence([*near, *world.round_trip(1, "echo-2")]), "source")
    assert (verdict.judgement, verdict.expected) == (PASS, "echo-1 10.244.1.1, echo-2 preserved")
    changed = one(world, world.evidence([*near, *world.round_trip(1, "echo-2", NODE)]), "source")
    assert changed.reasons == told()
    unnamed = one(world, world.evidence([*near, *world.round_trip(1, "echo-3")]), "source")
    assert unnamed.reasons == told()


def from_a_node(
    source: SourceExpectation, port: int, counts: tuple[RuleCount, ...], reached: tuple[str, ...] = ("echo-2",)
) -> ProbeVerdict:
    """A node's own packets, which have the same address with and without masquerading; ``port`` is of the first."""
    world = World(source=source, addresses={"debug": NODE}, flows=len(reached))
    pods = dict.fromkeys(reached)
    resolved = replace(
        world.resolved,
        sender=replace(world.resolved.sender, namespace="node-a", device=STACK),
        masquerades=tuple(MasqueradedAs(node="node-a", backend=world.address(pod), source=NODE) for pod in pods),
    )
    seen, tracked = list[Observation](), list[TrackedFlow]()
    for flow, pod in enumerate(reached):
        leaves, arrives, answers, hears = world.round_trip(flow, pod)
        arrived_from = port if flow == 0 else leaves.source_port
        seen += [
            replace(leaves, device=STACK),
            replace(arrives, source_port=arrived_from),
            replace(answers, destination_port=arrived_from),
            replace(hears, device=STACK),
        ]
        # An entry of another node says nothing of what the sender's node did.
        tracked.append(TrackedFlow(flow, "node-b", world.address(pod), 8080, NODE, 60001))
        tracked.append(TrackedFlow(flow, "node-a", world.address(pod), 8080, NODE, arrived_from))
    translated = (world.translated(pod, reached.count(pod)) for pod in pods)
    evidence = world.evidence(
        seen, counts=(*translated, *counts), metered_nodes=("node-a", "node-b"), tracked=tuple(tracked)
    )
    return judge(world.probe, resolved, None, evidence)


MASQUERADE = (World().masqueraded(),)


@pytest.mark.parametrize(
    ("source", "port", "counts", "judgement"),
    [
        (Preserved(), 40000, (), PASS),
        (
            Preserved(),
            51234,
            (),
            INCONCLUSIVE,
        ),  # the kernel gives a port of its own where two flows would look the same
        (Preserved(), 40000, MASQUERADE, FAIL),
        (Preserved(), 51234, MASQUERADE, FAIL),
        (Masqueraded(), 40000, (), FAIL),
        (Masqueraded(), 40000, MASQUERADE, PASS),
        (Masqueraded(), 51234, MASQUERADE, PASS),
        (SourceAddress(NODE), 40000, (), PASS),
        (SourceAddress(NODE), 51234, MASQUERADE, PASS),
    ],
)
def test_a_nodes_own_packet_has_one_address_but_is_masqueraded_or_not(
    source: SourceExpectation, port: int, counts: tuple[RuleCount, ...], judgement: Judgement
) -> None:
    assert of_source(from_a_node(source, port, counts)).judgement is judgement


def test_why_a_nodes_own_packet_is_not_as_expected(told: Told) -> None:
    hidden = from_a_node(Preserved(), 51234, MASQUERADE)
    assert of_source(hidden).reasons == told()
    assert why(hidden).startswith("node-a masqueraded the packet by its rule")
    kept = from_a_node(Masqueraded(), 40000, ())
    assert of_source(kept).reasons == told()
    assert why(kept) == told()


def test_a_node_may_not_masquerade_some_of_its_own_packets(told: Told) -> None:
    some = of_source(from_a_node(Preserved(), 40000, MASQUERADE, ("echo-2", "echo-2", "echo-1")))
    assert (some.judgement, some.reasons) == (
        FAIL,
        told(),
    )


@pytest.mark.parametrize(
    ("packets", "judgement", "reasons"),
    [
        (1, PASS, ()),
        (0, FAIL, ("1 of 2 flows: nothing masqueraded it: echo-1 saw port 40000, from which it left",)),
        (2, FAIL, ("1 of 2 flows: node-a masqueraded it, although its address is 172.18.0.2 in either case",)),
    ],
)
def test_a_node_masquerades_its_own_packets_to_some_backends(
    packets: int, judgement: Judgement, reasons: tuple[str, ...]
) -> None:
    wanted = SourceByBackend({"echo-1": Masqueraded(), "echo-2": Preserved()})
    counts = (World().masqueraded(packets),) if packets else ()
    verdict = of_source(from_a_node(wanted, 40000, counts, ("echo-1", "echo-2")))
    assert (verdict.judgement, verdict.reasons) == (judgement, reasons)


SNAT = ForeignRule("node-a", "ip attack", "x", "postrouting", 90, "counter snat to 172.18.0.2", 1)
MARK = replace(SNAT, hook="prerouting", text="counter meta mark set 0x00004000")


@pytest.mark.parametrize("source", [SourceAddress(NODE), NodeDevice("node-a", "uplink")])
@pytest.mark.parametrize(
    ("foreign", "counts", "judgement"),
    [
        ((), (), PASS),
        ((SNAT,), (), INCONCLUSIVE),
        ((SNAT,), (World().masqueraded(),), PASS),
        ((MARK,), (World().masqueraded(),), INCONCLUSIVE),
        ((MARK,), (World().masqueraded(), World().marked()), PASS),
    ],
)
def test_a_rule_of_others_may_have_given_a_services_request_the_source_that_the_author_names(
    source: SourceExpectation, foreign: tuple[ForeignRule, ...], counts: tuple[RuleCount, ...], judgement: Judgement
) -> None:
    assert named(source, NODE, "default/echo", foreign, counts).judgement is judgement
    assert named(source, NODE, "", foreign, counts).judgement is PASS, "of a pod, nothing is asked of the engine"


def test_what_a_rule_of_others_in_the_engines_tables_changed_counts_for_no_rule_of_the_engine() -> None:
    text = "-A POSTROUTING -s 10.244.0.0/16 -j SNAT --to-source 172.18.0.2"
    counts = (RuleCount("node-a", "nat", "POSTROUTING", text, 1),)
    assert named(SourceAddress(NODE), NODE, "default/echo", (), counts).judgement is INCONCLUSIVE
    assert named(SourceAddress(NODE), NODE, "default/echo", (), (*counts, World().masqueraded())).judgement is PASS


def test_no_rule_needs_to_give_the_senders_own_address() -> None:
    assert named(SourceAddress(World().address("debug")), None, "default/echo", (SNAT,), ()).judgement is PASS


def test_an_author_may_name_the_source_that_a_rule_of_the_scenario_gives() -> None:
    for source, judgement in ((SourceAddress(NODE), PASS), (Masqueraded(), INCONCLUSIVE)):
        assert named(source, NODE, "default/echo", (SNAT,), (), (SNAT.text,)).judgement is judgement
    for source in (SourceAddress(NODE), Masqueraded()):
        assert named(source, NODE, "default/echo", (SNAT,), (), ("another",)).judgement is INCONCLUSIVE


def named(
    source: SourceExpectation,
    seen: IPAddress | None,
    service_port: str,
    foreign: tuple[ForeignRule, ...],
    counts: tuple[RuleCount, ...],
    leftovers: tuple[str, ...] = (),
) -> Verdict:
    """The verdict about a source that the author names, of one flow that came from ``seen``."""
    world = World(source=source)
    ways = (MasqueradedAs(node="node-a", backend=world.address("echo-1"), source=NODE),)
    resolved = replace(world.resolved, service_port=service_port, masquerades=ways, leftovers=leftovers)
    told = world.evidence(world.round_trip(0, "echo-1", seen), foreign=foreign, counts=counts)
    return of_source(judge(world.probe, resolved, seen or world.address("debug"), told))


OTHER_SERVICE = ip_address("10.96.0.99")


def from_another_port(protocol: Transport = Transport.UDP, **how: object) -> Verdict:
    """The source of a flow that left from port 40000 and that echo-1 saw come from port 51234, of the same address."""
    world = World(source=Preserved(), protocol=protocol)
    pod, client = world.address("echo-1"), world.resolved.sender.address
    leaves, arrives, answers, hears = world.round_trip(0, "echo-1")
    seen = [
        replace(leaves, source_port=40000),
        replace(arrives, source_port=51234, destination_port=8080),
        replace(answers, destination_port=51234, source_port=8080),
        replace(hears, destination_port=40000),
    ]
    tracked = (TrackedFlow(0, "node-a", pod, 8080, client, 51234),)
    changes: dict[str, object] = {"tracked": tracked, "entries": (), **how}
    return of_source(judge(world.probe, world.resolved, None, world.evidence(seen, **changes)))


def entry(
    node: str = "node-a", protocol: Transport = Transport.UDP, pod: str = "echo-1", port: int = 40000
) -> TableEntry:
    """A connection of the client to another Service with the same endpoint."""
    world = World()
    client, answers = world.resolved.sender.address, world.address(pod)
    return TableEntry(node, protocol, client, port, OTHER_SERVICE, 80, answers, 8080, client, port)


def own(node: str = "node-a") -> TableEntry:
    """The entry of the flow itself on the node that gave it another port."""
    world = World()
    client, pod = world.resolved.sender.address, world.address("echo-1")
    return TableEntry(node, Transport.UDP, client, 40000, *world.dialled, pod, 8080, client, 51234)


@pytest.mark.parametrize("protocol", [Transport.TCP, Transport.UDP, Transport.SCTP])
def test_a_preserved_source_has_its_port(protocol: Transport, told: Told) -> None:
    verdict = from_another_port(protocol)
    assert (verdict.judgement, verdict.reasons) == (
        FAIL,
        told(),
    )


def test_another_connection_that_holds_the_port_excuses_its_change_and_is_noted(told: Told) -> None:
    verdict = from_another_port(entries=(own(), entry()))
    assert verdict.judgement is PASS
    (noted,) = verdict.witnesses
    assert noted == told()


def test_a_connection_of_the_backend_itself_excuses_it_too() -> None:
    world = World()
    there = (world.address("echo-1"), 8080, world.resolved.sender.address, 40000)
    back = (world.resolved.sender.address, 40000, world.address("echo-1"), 8080)
    opened = TableEntry("node-a", Transport.UDP, *there, *back)
    assert from_another_port(entries=(own(), opened)).judgement is PASS


@pytest.mark.parametrize(
    "other",
    [entry(node="node-b"), entry(protocol=Transport.TCP), entry(pod="echo-2"), entry(port=40001), entry(port=51234)],
    ids=["node", "protocol", "endpoint", "port", "its own port"],
)
def test_a_connection_elsewhere_excuses_no_changed_port(other: TableEntry) -> None:
    assert from_another_port(entries=(own(), other)).judgement is FAIL


def test_a_port_that_no_connection_tracking_changed_is_no_clash() -> None:
    world = World()
    unchanged = (TrackedFlow(0, "node-a", world.address("echo-1"), 8080, world.resolved.sender.address, 40000),)
    assert from_another_port(tracked=unchanged, entries=(entry(),)).judgement is FAIL
    assert from_another_port(tracked=(), entries=None).judgement is FAIL


def test_the_second_node_may_be_the_one_that_changes_the_port() -> None:
    far = (own("node-b"), entry("node-b"))
    assert from_another_port(tracked=None, entries=far).judgement is PASS
    assert from_another_port(tracked=None, entries=far[1:]).judgement is FAIL


def test_a_changed_port_without_all_entries_is_inconclusive() -> None:
    assert from_another_port(entries=None).judgement is INCONCLUSIVE
    assert from_another_port(tracked=None, entries=None).judgement is INCONCLUSIVE


@pytest.mark.parametrize(("port", "judgement"), [(40000, PASS), (40001, PASS), (40002, FAIL)])
def test_a_request_that_left_from_two_ports_may_come_from_either(port: int, judgement: object) -> None:
    world = World(source=Preserved())
    leaves, arrives, answers, hears = world.round_trip(0, "echo-1")
    seen = [
        leaves,
        replace(leaves, source_port=40001, at=leaves.at + 1),
        replace(arrives, source_port=port, at=leaves.at + 2),
        replace(answers, destination_port=port, at=leaves.at + 3),
        replace(hears, destination_port=port, at=leaves.at + 4),
    ]
    verdict = of_source(judge(world.probe, world.resolved, None, world.evidence(seen, entries=())))
    assert verdict.judgement is judgement
