"""The judge on evidence that is good, bad, missing, contradictory and forged."""

from collections.abc import Callable
from dataclasses import replace
from ipaddress import ip_address

import pytest
from recorded import World

from lab.codec import dumps, loads
from lab.errors import InternalError
from lab.ip import Transport
from lab.scenario.model import (
    ConntrackExpect,
    Entries,
    HttpExpect,
    Manner,
    NodeDevice,
    Outcome,
    Position,
    Preserved,
    Reply,
    Shares,
    Spread,
)
from lab.verdict.evidence import (
    Direction,
    Evidence,
    FenceReport,
    HttpReport,
    KernelCount,
    Observation,
    Packet,
    RuleCount,
    TableEntry,
    TapLoss,
)
from lab.verdict.judge import judge
from lab.verdict.model import Judgement, ProbeVerdict, Verdict

PASS, FAIL, INCONCLUSIVE = Judgement.PASS, Judgement.FAIL, Judgement.INCONCLUSIVE

DELIVERED = World(backends=("echo-1", "echo-2", "echo-3"), source=Preserved())
CONNECTED = replace(DELIVERED, manner=Manner.CONNECT)
REJECTED = World(outcome=Outcome.REJECTED)
REFUSED = World(outcome=Outcome.REFUSED)
DROPPED = World(outcome=Outcome.DROPPED, at="node-a")
SPREAD = World(flows=2000, backends=("echo-1", "echo-2", "echo-3"), spread=Spread.EVEN)


def judged(world: World, evidence: Evidence, source: str | None = None) -> ProbeVerdict:
    return judge(world.probe, world.errand, ip_address(source) if source else None, evidence)


def one(world: World, evidence: Evidence, key: str) -> Verdict:
    return next(verdict for verdict in judged(world, evidence).verdicts if verdict.expectation == key)


def dropped_evidence(world: World = DROPPED, **changes: object) -> Evidence:
    evidence = world.evidence([world.leaves(flow) for flow in range(world.flows)], counts=(world.dropped(world.flows),))
    return replace(evidence, **changes)  # type: ignore[arg-type]


# What is proven passes.


def test_a_packet_delivered_and_answered_passes() -> None:
    verdict = judged(DELIVERED, DELIVERED.evidence(DELIVERED.round_trip(0, "echo-2")))
    assert [(each.expectation, each.judgement) for each in verdict.verdicts] == [
        ("outcome", PASS),
        ("reply", PASS),
        ("backends", PASS),
        ("source", PASS),
    ]
    assert verdict.overall is PASS


def test_a_connection_passes_when_both_witnesses_agree() -> None:
    evidence = CONNECTED.evidence(CONNECTED.round_trip(0, "echo-1"), connects=(CONNECTED.report(0, "echo-1"),))
    assert judged(CONNECTED, evidence).overall is PASS


def test_a_pod_that_reaches_itself_is_both_sender_and_backend() -> None:
    world = World(pods=(), backends=("debug",), source=NodeDevice("node-a", "pods"))
    evidence = world.evidence(world.round_trip(0, "debug", ip_address("10.244.1.1")))
    assert judged(world, evidence, "10.244.1.1").overall is PASS


def test_rejection_passes() -> None:
    for world in (REJECTED, World(outcome=Outcome.REJECTED, ipv6=True)):
        evidence = world.evidence([world.leaves(0), world.hears_icmp(0)], counts=(world.rejected(),))
        assert judged(world, evidence).overall is PASS
    world = World(outcome=Outcome.REJECTED, manner=Manner.CONNECT, at="node-a")
    seen = [world.leaves(0), world.hears_icmp(0)]
    evidence = world.evidence(seen, connects=(world.failed(0, "ECONNREFUSED"),), counts=(world.rejected(),))
    assert judged(world, evidence).overall is PASS


def test_refusal_passes() -> None:
    seen = [REFUSED.leaves(0), REFUSED.arrives(0, "echo-1"), REFUSED.hears_reset(0)]
    assert judged(REFUSED, REFUSED.evidence(seen)).overall is PASS


def test_a_drop_passes_with_its_rule_as_witness() -> None:
    verdict = judged(DROPPED, dropped_evidence())
    assert verdict.overall is PASS
    assert verdict.verdicts[0].observed == "dropped on node-a"
    assert verdict.verdicts[0].witnesses == (f"node-a counted 1 packet: {DROPPED.dropped().text}",)


def test_a_drop_in_the_senders_own_kernel_passes_when_the_rule_counted() -> None:
    evidence = dropped_evidence(observations=(), sent=0, refused_sends=("EPERM",))
    assert judged(DROPPED, evidence).overall is PASS


def test_advice_by_icmp_ends_no_flow() -> None:
    for icmp in ((5, 1), (3, 4)):
        seen = (*DELIVERED.round_trip(0, "echo-1"), DELIVERED.hears_icmp(0, icmp=icmp))
        assert judged(DELIVERED, DELIVERED.evidence(seen)).overall is PASS


def test_a_repeated_packet_may_arrive_as_often_as_it_was_sent() -> None:
    seen = DELIVERED.round_trip(0, "echo-1")
    evidence = DELIVERED.evidence((*seen, *seen[:2]))
    assert judged(DELIVERED, evidence).overall is PASS


def test_a_repeated_packet_may_not_arrive_at_another_pod() -> None:
    evidence = DELIVERED.evidence((*DELIVERED.round_trip(0, "echo-1"), *DELIVERED.round_trip(0, "echo-2")))
    verdict = one(DELIVERED, evidence, "outcome")
    assert (verdict.judgement, verdict.reasons) == (FAIL, ("it arrived at echo-1 and echo-2",))


def test_an_even_spread_passes() -> None:
    seen = [each for flow in range(2000) for each in SPREAD.round_trip(flow, f"echo-{flow % 3 + 1}")]
    verdict = judged(SPREAD, SPREAD.evidence(seen))
    assert verdict.overall is PASS
    assert verdict.verdicts[-1].observed == "echo-1 667, echo-2 667, echo-3 666"


# Each way for good evidence to go bad. ``doubt`` makes it inconclusive, ``fault`` makes it fail.

Change = Callable[[Evidence], Evidence]


def without(packet: Packet, direction: Direction) -> Change:
    return lambda evidence: replace(
        evidence,
        observations=tuple(
            seen for seen in evidence.observations if (seen.packet, seen.direction) != (packet, direction)
        ),
    )


def plus(*observations: object) -> Change:
    return lambda evidence: replace(evidence, observations=(*evidence.observations, *observations))  # type: ignore[arg-type]


def changed(**changes: object) -> Change:
    return lambda evidence: replace(evidence, **changes)  # type: ignore[arg-type]


NODE = ip_address("172.18.0.2")
POD = ip_address("10.244.2.3")


@pytest.mark.parametrize(
    ("key", "change", "judgement", "words"),
    [
        ("outcome", changed(unfinished="the deadline passed"), INCONCLUSIVE, "did not finish: the deadline passed"),
        ("outcome", changed(losses=(TapLoss("echo-2", "eth0", 1),)), INCONCLUSIVE, "echo-2 eth0 lost 1 frame"),
        ("source", changed(losses=(TapLoss("echo-2", "eth0", 1),)), INCONCLUSIVE, "lost 1 frame"),
        ("outcome", changed(sent=0), INCONCLUSIVE, "0 of 1 flow were sent"),
        ("outcome", changed(sent=2), INCONCLUSIVE, "2 flows were sent, but the probe has 1"),
        ("outcome", changed(connects=()), INCONCLUSIVE, "did not report exactly once"),
        ("outcome", changed(connects=(CONNECTED.report(0, "echo-1"),) * 2), INCONCLUSIVE, "exactly once"),
        ("outcome", plus(CONNECTED.leaves(7)), INCONCLUSIVE, "of none of its flows"),
        (
            "outcome",
            plus(replace(CONNECTED.leaves(0), protocol=Transport.UDP)),
            INCONCLUSIVE,
            "of none of its flows",
        ),
        ("outcome", without(Packet.REQUEST, Direction.OUT), INCONCLUSIVE, "never seen to leave debug"),
        ("outcome", plus(CONNECTED.arrives(0, "echo-2")), FAIL, "arrived at echo-1 and echo-2"),
        ("outcome", plus(CONNECTED.arrives(0, "echo-1")), FAIL, "it arrived twice at echo-1, but left once"),
        ("outcome", plus(CONNECTED.hears_icmp(0)), INCONCLUSIVE, "port unreachable from 172.18.0.2 and a reply"),
        ("outcome", changed(connects=(CONNECTED.report(0, "echo-2"),)), INCONCLUSIVE, "the answer is by echo-2"),
        ("backends", changed(connects=(CONNECTED.report(0, "echo-2"),)), INCONCLUSIVE, "the answer is by echo-2"),
        (
            "source",
            changed(connects=(CONNECTED.report(0, "echo-1", NODE),)),
            INCONCLUSIVE,
            "echo-1 saw 10.244.1.2:40000, echo-1 itself saw 172.18.0.2:61000",
        ),
        ("reply", changed(connects=(CONNECTED.failed(0, "timeout"),)), FAIL, "the data was not: timeout"),
        ("reply", without(Packet.REPLY, Direction.IN), INCONCLUSIVE, "saw no reply, the socket says that it was"),
        ("reply", without(Packet.REPLY, Direction.OUT), INCONCLUSIVE, "echo-1 was not seen to send it"),
        ("reply", plus(CONNECTED.hears(0, (POD, 8080))), FAIL, "came from 10.244.2.3:8080, not from 10.96.0.10:80"),
        (
            "reply",
            plus(replace(CONNECTED.hears(0), destination_port=40001)),
            FAIL,
            "addressed to 10.244.1.2:40001, from where the request did not come",
        ),
        ("reply", plus(replace(CONNECTED.hears(0), destination=NODE)), FAIL, "addressed to 172.18.0.2:40000"),
    ],
)
def test_a_delivery_with_one_thing_wrong(key: str, change: Change, judgement: Judgement, words: str) -> None:
    good = CONNECTED.evidence(CONNECTED.round_trip(0, "echo-1"), connects=(CONNECTED.report(0, "echo-1"),))
    verdict = one(CONNECTED, change(good), key)
    assert (verdict.judgement, verdict.judgement is PASS) == (judgement, False)
    assert words in "\n".join(verdict.reasons)


@pytest.mark.parametrize(
    ("counts", "words"),
    [
        ((), "DNAT rules to 10.244.2.3:8080 counted 0 of 2 flows it got"),
        ((DELIVERED.balanced(2),), "counted 0 of 2 flows"),
        ((DELIVERED.translated("echo-1", 1),), "counted 1 of 2 flows"),
        ((DELIVERED.translated("echo-2", 2),), "DNAT rules to 10.244.2.3:8080 counted 0 of 2 flows"),
        ((DELIVERED.translated("echo-1", 2),), ""),
        ((DELIVERED.translated("echo-1", 1), replace(DELIVERED.translated("echo-1", 1), node="node-b")), ""),
    ],
)
def test_a_translation_that_no_rule_counted_is_not_the_rules_work(counts: tuple[RuleCount, ...], words: str) -> None:
    world = replace(DELIVERED, flows=2, backends=("echo-1",))
    seen = [each for flow in range(2) for each in world.round_trip(flow, "echo-1")]
    verdict = one(world, world.evidence(seen, counts=counts, counted=("node-a", "node-b")), "outcome")
    assert verdict.judgement is (INCONCLUSIVE if words else PASS)
    assert words in "\n".join(verdict.reasons)


def test_what_arrives_where_it_was_sent_needs_no_rule() -> None:
    world = replace(DELIVERED, backends=("echo-1",), addresses={"service": ip_address("10.244.2.3")})
    straight = [replace(o, destination_port=80) for o in world.round_trip(0, "echo-1")[:2]]
    verdict = one(
        world, world.evidence([*straight, *world.round_trip(0, "echo-1")[2:]], counted=("node-a",)), "outcome"
    )
    assert verdict.judgement is PASS, verdict.reasons


def test_a_frame_at_a_pod_that_is_addressed_to_somebody_else_has_not_arrived() -> None:
    leaving = DELIVERED.leaves(0)
    stray = replace(leaving, place="echo-1", direction=Direction.IN)
    verdict = one(DELIVERED, DELIVERED.evidence([leaving, stray]), "outcome")
    assert verdict.judgement is FAIL
    assert verdict.reasons == ("it came in at echo-1, addressed to 10.96.0.10:80",)


def test_a_reply_without_an_arrival_proves_nothing() -> None:
    verdict = one(DELIVERED, DELIVERED.evidence([DELIVERED.leaves(0), DELIVERED.hears(0)]), "outcome")
    assert verdict.judgement is INCONCLUSIVE
    assert "no pod saw the request" in verdict.reasons[0]


def test_udp_sockets_and_taps_must_agree_on_the_reply() -> None:
    world = World(manner=Manner.CONNECT, protocol=Transport.UDP)
    evidence = world.evidence(world.round_trip(0, "echo-1"), connects=(world.failed(0, "timeout"),))
    assert one(world, evidence, "reply").reasons == ("the taps saw a reply, the socket says that nothing came",)
    assert judged(world, evidence).overall is INCONCLUSIVE


def test_a_lost_packet_fails_only_when_the_silence_is_proven() -> None:
    lost = DELIVERED.evidence([DELIVERED.leaves(0)])
    assert one(DELIVERED, lost, "outcome").judgement is FAIL
    silent = (FenceReport("node-a", False), *lost.fences[1:])
    for doubtful, words in (
        (replace(lost, fences=silent), "the way to node-a is itself broken, so silence proves nothing"),
        (replace(lost, fences=()), "no fence was sent to node-a, echo-1, echo-2 and echo-3, so silence proves nothing"),
        (replace(lost, unpinned="refused"), "the run could not be kept on one CPU (refused): a fence may have come"),
        (replace(lost, losses=(TapLoss("echo-1", "eth0", 3),)), "the tap at echo-1 eth0 lost 3 frames"),
        (replace(lost, fences=tuple(replace(fence, at=1) for fence in lost.fences)), "before the last flow had left"),
    ):
        verdict = one(DELIVERED, doubtful, "outcome")
        assert verdict.judgement is INCONCLUSIVE
        assert words in "\n".join(verdict.reasons)


def test_what_was_seen_fails_even_where_the_rest_is_in_doubt() -> None:
    evidence = DELIVERED.evidence(DELIVERED.round_trip(0, "echo-1", NODE), losses=(TapLoss("echo-1", "eth0", 3),))
    assert one(DELIVERED, evidence, "source").judgement is FAIL


def test_a_send_that_the_senders_kernel_refused() -> None:
    evidence = DELIVERED.evidence([], sent=0, refused_sends=("EPERM",))
    assert one(DELIVERED, evidence, "outcome").reasons == ("the sender's own kernel refused to send it: EPERM",)
    assert judged(DELIVERED, evidence).overall is FAIL
    unreachable = dropped_evidence(observations=(), sent=0, refused_sends=("ENETUNREACH",))
    assert one(DROPPED, unreachable, "outcome").judgement is INCONCLUSIVE


@pytest.mark.parametrize(
    ("seen", "judgement", "words"),
    [
        ([], FAIL, "nothing of it was seen again"),
        ([REJECTED.arrives(0, "echo-1"), REJECTED.hears_icmp(0)], FAIL, "it arrived at echo-1, and debug heard ICMP"),
        ([REJECTED.hears_icmp(0, icmp=(3, 1))], FAIL, "debug heard ICMP 3/1 from 172.18.0.2"),
        ([REJECTED.hears_icmp(0), REJECTED.hears(0)], INCONCLUSIVE, "port unreachable from 172.18.0.2 and a reply"),
        ([REJECTED.hears_icmp(0), REJECTED.hears_reset(0)], INCONCLUSIVE, "and a reset from"),
        ([REJECTED.hears_reset(0)], FAIL, "debug heard a reset from 10.96.0.10:80"),
        ([REJECTED.hears_icmp(0, POD)], INCONCLUSIVE, "from echo-1's address, but echo-1 saw no request"),
        (
            [replace(REJECTED.hears_icmp(0), destination=NODE)],
            INCONCLUSIVE,
            "addressed to 172.18.0.2, not to debug",
        ),
        ([replace(REJECTED.hears_icmp(0), icmp=(3, 13))], FAIL, "ICMP 3/13"),
    ],
)
def test_what_is_no_rejection(seen: list[object], judgement: Judgement, words: str) -> None:
    evidence = REJECTED.evidence([REJECTED.leaves(0), *seen], counts=(REJECTED.rejected(),))  # type: ignore[list-item]
    verdict = one(REJECTED, evidence, "outcome")
    assert verdict.judgement is judgement
    assert words in "\n".join(verdict.reasons)


@pytest.mark.parametrize(
    ("counts", "words"),
    [
        ((), "an ICMP error came, but no rule says it rejected it"),
        ((REJECTED.dropped(2),), "no rule says it rejected it"),
        ((REJECTED.rejected(1),), "rules that reject it counted 1 of 2 packets: node-a"),
        ((replace(REJECTED.rejected(2), text=REJECTED.rejected().text.replace("dport 80", "dport 81")),), "no rule"),
    ],
)
def test_an_icmp_error_that_no_rule_accounts_for_may_be_of_the_nodes_own_stack(
    counts: tuple[RuleCount, ...], words: str
) -> None:
    world = replace(REJECTED, flows=2)
    seen = [each for flow in range(2) for each in (world.leaves(flow), world.hears_icmp(flow))]
    verdict = one(world, world.evidence(seen, counts=counts), "outcome")
    assert verdict.judgement is INCONCLUSIVE
    assert words in "\n".join(verdict.reasons)
    assert judged(world, world.evidence(seen, counts=(world.rejected(2),))).overall is PASS


def test_a_rejected_socket_must_say_so() -> None:
    world = replace(REJECTED, manner=Manner.CONNECT)
    seen = [world.leaves(0), world.hears_icmp(0)]
    evidence = world.evidence(seen, connects=(world.failed(0, "timeout"),), counts=(world.rejected(),))
    assert one(world, evidence, "outcome").reasons == ("the taps say rejected, the socket says that nothing came",)
    assert judged(world, evidence).overall is INCONCLUSIVE


def test_a_reset_from_a_stranger_is_no_refusal() -> None:
    seen = [REFUSED.leaves(0), REFUSED.arrives(0, "echo-1"), REFUSED.hears_reset(0, (POD, 8080))]
    assert one(REFUSED, REFUSED.evidence(seen), "outcome").judgement is INCONCLUSIVE


def rule(text: str, packets: int = 1) -> RuleCount:
    return RuleCount("node-a", "filter", "KUBE-SERVICES", f"-A KUBE-SERVICES {text}", packets)


@pytest.mark.parametrize(
    ("change", "judgement", "words"),
    [
        (changed(counts=()), INCONCLUSIVE, "nothing arrived, but no rule says it dropped it"),
        (changed(counts=(DROPPED.rejected(),)), INCONCLUSIVE, "no rule says it dropped it"),
        (changed(counts=(rule("-d 10.96.0.11/32 -p tcp -m tcp --dport 80 -j DROP"),)), INCONCLUSIVE, "no rule says"),
        (changed(counts=(rule("-d 10.96.0.10/32 -p udp -m udp --dport 80 -j DROP"),)), INCONCLUSIVE, "no rule says"),
        (changed(counts=(rule("-d 10.96.0.10/32 -p tcp -m tcp --dport 81 -j DROP"),)), INCONCLUSIVE, "no rule says"),
        (changed(counts=(rule("-m conntrack --ctstate INVALID -j DROP"),)), INCONCLUSIVE, "no rule says"),
        (changed(fences=(FenceReport("node-a", False),)), INCONCLUSIVE, "the way to node-a is itself broken"),
        (changed(unpinned="refused"), INCONCLUSIVE, "could not be kept on one CPU"),
        (plus(DROPPED.leaves(0)), INCONCLUSIVE, "counted 1 of 2 packets: node-a"),
        (plus(DROPPED.arrives(0, "echo-1")), FAIL, "it arrived at echo-1"),
        (plus(DROPPED.hears_icmp(0)), FAIL, "port unreachable from 172.18.0.2"),
        (plus(DROPPED.hears_icmp(0, icmp=(11, 0))), FAIL, "ICMP 11/0"),
        (plus(DROPPED.hears(0)), FAIL, "a reply from 10.96.0.10:80, but no pod saw the request"),
        (plus(DROPPED.hears(0), DROPPED.hears_icmp(0)), FAIL, "and a reply"),
        (
            plus(replace(DROPPED.leaves(0), place="outside", direction=Direction.IN)),
            FAIL,
            "it came in at outside, addressed to 10.96.0.10:80",
        ),
        (changed(unfinished="the deadline passed"), INCONCLUSIVE, "did not finish"),
        (changed(losses=(TapLoss("echo-1", "eth0", 1),)), INCONCLUSIVE, "lost 1 frame"),
    ],
)
def test_what_is_no_drop(change: Change, judgement: Judgement, words: str) -> None:
    verdict = one(DROPPED, change(dropped_evidence()), "outcome")
    assert verdict.judgement is judgement
    assert words in "\n".join(verdict.reasons)


def test_a_drop_somewhere_else() -> None:
    verdict = judged(DROPPED, dropped_evidence(counts=(DROPPED.dropped(node="node-b"),)))
    assert [each.judgement for each in verdict.verdicts] == [PASS, FAIL]
    assert verdict.verdicts[1].reasons == ("it was dropped by a rule on node-b",)
    device = replace(DROPPED, at="node-a/cni0")
    assert one(device, dropped_evidence(device), "at").judgement is INCONCLUSIVE


def test_expectations_about_pods_where_no_pod_is_reached_are_an_error() -> None:
    world = replace(DROPPED, source=Preserved(), backends=("echo-1",))
    verdict = judged(world, dropped_evidence(world))
    assert verdict.overall is FAIL
    assert one(world, dropped_evidence(world), "source").reasons == (
        "nothing can be seen of source where the outcome is dropped: take one of the two out",
    )


def test_a_verdict_for_every_expectation_or_an_error() -> None:
    verdict = judged(DELIVERED, DELIVERED.evidence(DELIVERED.round_trip(0, "echo-1")))
    with pytest.raises(InternalError, match="nobody judged source"):
        replace(verdict, verdicts=verdict.verdicts[:-1])


def test_a_source_that_nobody_resolved_is_our_fault() -> None:
    world = World(source=NodeDevice("node-a", "uplink"))
    with pytest.raises(InternalError, match="nobody resolved the source"):
        judged(world, world.evidence(world.round_trip(0, "echo-1")))


def test_the_source_an_author_gives_as_an_address() -> None:
    world = World(source=NODE)
    assert judged(world, world.evidence(world.round_trip(0, "echo-1", NODE))).overall is PASS
    kept = one(world, world.evidence(world.round_trip(0, "echo-1")), "source")
    assert (kept.judgement, kept.expected, kept.observed) == (FAIL, "172.18.0.2", "10.244.1.2")


def test_one_flow_with_another_source_fails_and_is_the_example() -> None:
    world = World(flows=20, source=Preserved())
    seen = [each for flow in range(20) for each in world.round_trip(flow, "echo-1", NODE if flow == 17 else None)]
    verdict = one(world, world.evidence(seen), "source")
    assert (verdict.judgement, verdict.example) == (FAIL, 17)
    assert verdict.reasons == ("1 of 20 flows: echo-1 saw it come from 172.18.0.2",)


def test_a_pod_that_is_no_backend() -> None:
    world = World(backends=("echo-1", "echo-2"))
    verdict = one(world, world.evidence(world.round_trip(0, "echo-3")), "backends")
    assert (verdict.judgement, verdict.reasons) == (FAIL, ("echo-3 was hit, which is none of the backends",))


@pytest.mark.parametrize(("flows", "judgement"), [(53, PASS), (54, FAIL)])
def test_a_backend_never_chosen_is_missing_once_the_flows_suffice(flows: int, judgement: Judgement) -> None:
    world = World(flows=flows, backends=("echo-1", "echo-2", "echo-3"))
    seen = [each for flow in range(flows) for each in world.round_trip(flow, f"echo-{flow % 2 + 1}")]
    assert one(world, world.evidence(seen), "backends").judgement is judgement


def test_a_lost_tap_frame_may_be_the_backend_that_seems_never_chosen() -> None:
    seen = [each for flow in range(2000) for each in SPREAD.round_trip(flow, f"echo-{flow % 2 + 1}")]
    evidence = SPREAD.evidence(seen, losses=(TapLoss("echo-3", "eth0", 700),))
    assert {one(SPREAD, evidence, key).judgement for key in ("backends", "spread")} == {INCONCLUSIVE}


def test_an_uneven_spread_fails() -> None:
    seen = [each for flow in range(2000) for each in SPREAD.round_trip(flow, f"echo-{min(flow % 4, 2) + 1}")]
    verdict = one(SPREAD, SPREAD.evidence(seen), "spread")
    assert verdict.judgement is FAIL
    assert verdict.observed == "echo-3 1,000, echo-1 500, echo-2 500"


def test_too_few_flows_show_no_spread() -> None:
    world = replace(SPREAD, flows=1990)
    seen = [each for flow in range(1990) for each in world.round_trip(flow, f"echo-{flow % 3 + 1}")]
    verdict = one(world, world.evidence(seen), "spread")
    assert verdict.judgement is INCONCLUSIVE
    assert "1,990 flows over 3 backends cannot show a change of one share by 30%; 1,991 flows can" in verdict.reasons


def test_a_spread_over_one_pod_shows_nothing_unless_the_author_says_it_is_alone() -> None:
    world = World(flows=10, spread=Spread.EVEN)
    seen = [each for flow in range(10) for each in world.round_trip(flow, "echo-1")]
    assert one(world, world.evidence(seen), "spread").judgement is INCONCLUSIVE
    alone = replace(world, backends=("echo-1",))
    assert one(alone, alone.evidence(seen), "spread").judgement is PASS


def test_flows_that_never_arrived_leave_source_and_backends_open() -> None:
    world = World(flows=2, backends=("echo-1", "echo-2"), source=Preserved())
    verdict = judged(world, world.evidence([*world.round_trip(0, "echo-1"), world.leaves(1)]))
    assert {each.expectation: each.judgement for each in verdict.verdicts} == {
        "outcome": FAIL,
        "reply": INCONCLUSIVE,
        "backends": INCONCLUSIVE,
        "source": INCONCLUSIVE,
    }


def test_what_was_not_seen_to_leave_a_node_is_not_untranslated() -> None:
    world = World(outcome=Outcome.UNTRANSLATED)
    assert judged(world, world.evidence([world.leaves(0)])).overall is FAIL


def test_replicas_of_one_namespace_are_told_apart_by_address() -> None:
    errand = DELIVERED.errand
    shared = replace(errand, receivers=tuple(replace(pod, namespace="echo") for pod in errand.receivers))
    seen = tuple(
        replace(each, place="echo") if each.place == "echo-2" else each for each in DELIVERED.round_trip(0, "echo-2")
    )
    verdict = judge(DELIVERED.probe, shared, None, DELIVERED.evidence(seen))
    assert verdict.overall is PASS
    assert verdict.verdicts[2].observed == "echo-2 (1 flow need not hit all 3)"


def test_a_refused_send_excuses_no_packet_that_nobody_saw_leave() -> None:
    evidence = DELIVERED.evidence(DELIVERED.round_trip(0, "echo-1")[1:], sent=0, refused_sends=("EPERM",))
    assert one(DELIVERED, evidence, "outcome").reasons == ("1 flow was never seen to leave debug",)


def test_a_verdict_carried_elsewhere_is_judged_again_the_same() -> None:
    evidence = CONNECTED.evidence(CONNECTED.round_trip(0, "echo-1"), connects=(CONNECTED.report(0, "echo-1"),))
    verdict = judged(CONNECTED, evidence)
    carried = loads(dumps(verdict, ProbeVerdict), ProbeVerdict)
    assert carried == verdict
    assert judge(carried.probe, carried.errand, None, carried.evidence) == verdict


# Expectations beside the outcome.

STICKY = World(flows=40, backends=("echo-1", "echo-2", "echo-3"), spread=Spread.STICKY)


def spread_over(world: World, counts: dict[str, int]) -> Evidence:
    pods = [pod for pod, count in counts.items() for _ in range(count)]
    return world.evidence([seen for flow, pod in enumerate(pods) for seen in world.round_trip(flow, pod)])


def test_flows_that_stick_to_one_backend_pass_and_the_others_are_not_missed() -> None:
    verdict = judged(STICKY, spread_over(STICKY, {"echo-2": 40}))
    assert verdict.overall is PASS
    assert one(STICKY, verdict.evidence, "spread").observed == "echo-2 40"


def test_one_flow_elsewhere_is_not_sticky() -> None:
    verdict = one(STICKY, spread_over(STICKY, {"echo-2": 39, "echo-1": 1}), "spread")
    assert (verdict.judgement, verdict.reasons) == (FAIL, ("the flows of one client went to echo-2 and echo-1",))


def test_too_few_flows_or_backends_show_no_sticking() -> None:
    few = replace(STICKY, flows=19)
    assert one(few, spread_over(few, {"echo-1": 19}), "spread").reasons == (
        "19 flows may all go to one of 3 backends by chance; 20 hardly do",
    )
    alone = replace(STICKY, backends=None)
    assert one(alone, spread_over(alone, {"echo-1": 40}), "spread").judgement is INCONCLUSIVE


WEIGHTED = World(flows=5000, spread=Shares({"echo-1": 0.75, "echo-2": 0.25}))


@pytest.mark.parametrize(
    ("counts", "judgement"),
    [
        ({"echo-1": 3750, "echo-2": 1250}, PASS),
        ({"echo-1": 2500, "echo-2": 2500}, FAIL),
        ({"echo-1": 3750, "echo-2": 1249, "echo-3": 1}, FAIL),
        ({"echo-1": 5000}, FAIL),
    ],
)
def test_shares_are_those_that_the_author_names(counts: dict[str, int], judgement: Judgement) -> None:
    assert one(WEIGHTED, spread_over(WEIGHTED, counts), "spread").judgement is judgement


def test_shares_of_too_few_flows_show_nothing() -> None:
    few = replace(WEIGHTED, flows=8)
    assert one(few, spread_over(few, {"echo-1": 6, "echo-2": 2}), "spread").judgement is INCONCLUSIVE


def expecting(world: World, evidence: Evidence, key: str, **expect: object) -> Verdict:
    positions = {each: Position("x", 1, 1) for each in ("outcome", *expect)}
    probe = replace(world.probe, expect=replace(world.probe.expect, positions=positions, **expect))  # type: ignore[arg-type]
    verdicts = judge(probe, world.errand, None, evidence).verdicts
    return next(verdict for verdict in verdicts if verdict.expectation == key)


def test_a_reply_that_is_to_be_left_as_it_is_comes_from_the_backend_itself() -> None:
    leaves, arrives, answers, hears = DELIVERED.round_trip(0, "echo-1")
    own = replace(hears, source=arrives.destination, source_port=arrives.destination_port)
    asked = {"key": "reply", "reply": Reply.UNTRANSLATED}
    left_alone = DELIVERED.evidence([leaves, arrives, answers, own])
    assert expecting(DELIVERED, left_alone, **asked).judgement is PASS  # type: ignore[arg-type]
    translated = expecting(DELIVERED, DELIVERED.evidence([leaves, arrives, answers, hears]), **asked)  # type: ignore[arg-type]
    assert translated.judgement is FAIL
    assert translated.reasons[0].endswith("where it arrived")
    assert one(DELIVERED, left_alone, "reply").judgement is FAIL


@pytest.mark.parametrize(
    ("report", "judgement", "reason"),
    [
        (HttpReport(0, 200, 2), PASS, None),
        (HttpReport(0, 503, 2), FAIL, "the status was 503"),
        (HttpReport(0, 200, 1), FAIL, "it told of 1 local endpoint"),
        (HttpReport(0, 200), FAIL, "it told of no number of local endpoints"),
        (HttpReport(0, 0, error="ECONNREFUSED"), FAIL, "no answer by HTTP: the socket says ECONNREFUSED"),
        (HttpReport(0, 0, error="timeout"), FAIL, "no answer came by HTTP"),
        (None, INCONCLUSIVE, "nothing was asked by HTTP"),
    ],
)
def test_http_is_judged_by_status_and_body(report: HttpReport | None, judgement: Judgement, reason: str | None) -> None:
    evidence = DELIVERED.evidence(DELIVERED.round_trip(0, "echo-1"), http=(report,) if report else ())
    verdict = expecting(DELIVERED, evidence, "http", http=HttpExpect(status=200, local_endpoints=2))
    assert verdict.judgement is judgement
    assert verdict.reasons[:1] == ((reason,) if reason else ())


def test_an_outcome_that_nobody_asked_for_beside_http_is_not_judged() -> None:
    probe = replace(DELIVERED.probe, expect=replace(DELIVERED.probe.expect, http=HttpExpect(status=200), positions={}))
    probe = replace(probe, expect=replace(probe.expect, backends=None, source=None))
    evidence = DELIVERED.evidence(DELIVERED.round_trip(0, "echo-1"), http=(HttpReport(0, 200),))
    assert [each.expectation for each in judge(probe, DELIVERED.errand, None, evidence).verdicts] == ["http"]


ENTRY = TableEntry("node-a", *(part for end in ("debug", "service", "echo-1") for part in (DELIVERED.address(end), 80)))


@pytest.mark.parametrize(
    ("wanted", "judgement"),
    [
        (ConntrackExpect(some=Entries(reply_from="echo-1")), PASS),
        (ConntrackExpect(some=Entries(reply_from=str(DELIVERED.address("echo-1")), port=80)), PASS),
        (ConntrackExpect(some=Entries(reply_from="echo-2")), FAIL),
        (ConntrackExpect(some=Entries(original_from="debug", port=81)), FAIL),
        (ConntrackExpect(node="node-b", some=Entries(reply_from="echo-1")), FAIL),
        (ConntrackExpect(none=Entries(reply_from="echo-1")), FAIL),
        (ConntrackExpect(none=Entries(reply_from="echo-2")), PASS),
        (ConntrackExpect(node="node-b", none=Entries(reply_from="echo-1")), PASS),
    ],
)
def test_the_tables_hold_what_they_must_and_nothing_that_they_must_not(
    wanted: ConntrackExpect, judgement: Judgement
) -> None:
    world = DELIVERED
    names = {name: (world.address(name),) for name in ("debug", "echo-1", "echo-2")}
    probe = replace(world.probe, expect=replace(world.probe.expect, conntrack=wanted))
    errand = replace(world.errand, tables=True, addresses=names)
    evidence = world.evidence(world.round_trip(0, "echo-1"), entries=(ENTRY,))
    (verdict,) = [each for each in judge(probe, errand, None, evidence).verdicts if each.expectation == "conntrack"]
    assert verdict.judgement is judgement
    (unread,) = [
        each
        for each in judge(probe, errand, None, replace(evidence, entries=None)).verdicts
        if each.expectation == "conntrack"
    ]
    assert unread.judgement is INCONCLUSIVE


@pytest.mark.parametrize(
    ("wanted", "judgement"),
    [
        (None, INCONCLUSIVE),
        (ConntrackExpect(some=Entries(reply_from="echo-1")), PASS),
        (ConntrackExpect(some=Entries(reply_from="echo-2")), INCONCLUSIVE),
        (ConntrackExpect(none=Entries(reply_from="echo-2")), INCONCLUSIVE),
    ],
)
def test_an_entry_that_the_author_expects_stands_for_the_rule_that_nobody_asked(
    wanted: ConntrackExpect | None, judgement: Judgement
) -> None:
    world = DELIVERED
    names = {name: (world.address(name),) for name in ("echo-1", "echo-2")}
    probe = replace(world.probe, expect=replace(world.probe.expect, conntrack=wanted))
    errand = replace(world.errand, tables=True, addresses=names)
    entry = replace(ENTRY, reply_source_port=8080)
    evidence = world.evidence(world.round_trip(0, "echo-1"), entries=(entry,), counted=("node-a", "node-b"), counts=())
    (verdict,) = [each for each in judge(probe, errand, None, evidence).verdicts if each.expectation == "outcome"]
    assert verdict.judgement is judgement, verdict.reasons


# What devices of nodes see.

ALONE = World(outcome=Outcome.UNTRANSLATED, at="node-a/eth0")


def on_node(world: World, device: str, direction: Direction, destination: str = "service") -> Observation:
    port = 80 if destination == "service" else 8080
    leaves = world.leaves(0)
    return replace(
        leaves,
        place="node-a",
        device=device,
        direction=direction,
        destination=world.address(destination),
        destination_port=port,
        at=leaves.at + 1,
    )


def test_what_leaves_a_node_as_it_was_dialled_is_untranslated() -> None:
    seen = [ALONE.leaves(0), on_node(ALONE, "debug", Direction.IN), on_node(ALONE, "eth0", Direction.OUT)]
    verdict = judged(ALONE, ALONE.evidence(seen))
    assert {each.expectation: each.judgement for each in verdict.verdicts} == {"outcome": PASS, "at": PASS}
    elsewhere = replace(ALONE, at="node-b")
    assert one(elsewhere, elsewhere.evidence(seen), "at").reasons == ("it was seen at node-a/eth0",)


@pytest.mark.parametrize(
    ("seen", "judgement"),
    [
        ([on_node(ALONE, "debug", Direction.IN)], FAIL),  # it came in, and nobody saw it leave again
        ([on_node(ALONE, "eth0", Direction.OUT, "echo-1")], FAIL),
        ([on_node(ALONE, "eth0", Direction.OUT), ALONE.arrives(0, "echo-1")], FAIL),
        ([on_node(ALONE, "eth0", Direction.OUT), ALONE.hears_icmp(0)], FAIL),
        ([on_node(ALONE, "eth0", Direction.OUT), ALONE.hears_reset(0)], FAIL),
    ],
)
def test_anything_else_is_not(seen: list[Observation], judgement: Judgement) -> None:
    assert one(ALONE, ALONE.evidence([ALONE.leaves(0), *seen]), "outcome").judgement is judgement


def test_what_a_later_node_translates_is_not_untranslated() -> None:
    left = [ALONE.leaves(0), on_node(ALONE, "eth0", Direction.OUT)]
    inside = replace(on_node(ALONE, "echo-1", Direction.OUT, "echo-1"), place="node-b")
    verdict = one(ALONE, ALONE.evidence([*left, inside]), "outcome")
    assert verdict.judgement is FAIL
    assert verdict.reasons == (f"it crossed node-b/echo-1, addressed to {ALONE.address('echo-1')}:8080",)
    rule = RuleCount(
        "node-b", "nat", "KUBE-SEP-A", f"-A KUBE-SEP-A -j DNAT --to-destination {ALONE.address('echo-1')}:8080", 1
    )
    counted = one(ALONE, ALONE.evidence(left, counts=(rule,)), "outcome")
    assert counted.judgement is INCONCLUSIVE
    assert counted.reasons == (f"a DNAT rule to {ALONE.address('echo-1')}:8080 counted 1 packet on node-b",)


def test_of_many_flows_nobody_saw_whether_they_left_as_they_were() -> None:
    many = replace(ALONE, flows=17)
    evidence = many.evidence([many.leaves(flow) for flow in range(17)])
    verdict = one(many, evidence, "outcome")
    assert verdict.judgement is INCONCLUSIVE
    assert "17 flows are not followed through nodes; up to 16 are" in verdict.reasons


STOPPED = World(outcome=Outcome.DROPPED, at="node-a/eth0")


def test_without_a_rule_the_last_hop_that_the_author_names_is_the_witness_of_a_drop() -> None:
    seen = [STOPPED.leaves(0), on_node(STOPPED, "debug", Direction.IN), on_node(STOPPED, "eth0", Direction.OUT)]
    verdict = judged(STOPPED, STOPPED.evidence(seen))
    assert {each.expectation: each.judgement for each in verdict.verdicts} == {"outcome": PASS, "at": PASS}
    assert verdict.verdicts[0].witnesses == ("seen last at node-a/eth0, and the fences came back",)
    before = STOPPED.evidence(seen[:2])
    assert judged(STOPPED, before).overall is INCONCLUSIVE, "it was seen last somewhere else, and no rule tells why"
    silent = STOPPED.evidence(seen, fences=())
    assert judged(STOPPED, silent).overall is INCONCLUSIVE
    unnamed = replace(STOPPED, at=None)
    assert judged(unnamed, unnamed.evidence(seen)).overall is INCONCLUSIVE


@pytest.mark.parametrize(
    ("counter", "judgement"),
    [("IpInAddrErrors", PASS), ("Ip6InAddrErrors", INCONCLUSIVE), ("ConntrackDrop", PASS)],
)
def test_a_stack_is_a_witness_of_a_drop_by_a_counter_of_the_packets_own_family(
    counter: str, judgement: Judgement
) -> None:
    world = World(outcome=Outcome.DROPPED)
    evidence = world.evidence([world.leaves(0)], fences=(), kernel=(KernelCount("node-a", counter, 1),))
    assert one(world, evidence, "outcome").judgement is judgement
