"""The judge on evidence that is good, bad, missing, contradictory and forged."""

from ipaddress import ip_address

import pytest
from golden_words import Told
from judging import (
    CONNECTED,
    DELIVERED,
    DROPPED,
    FAIL,
    INCONCLUSIVE,
    NODE,
    PASS,
    POD,
    REFUSED,
    REJECTED,
    SPREAD,
    Change,
    changed,
    dropped_evidence,
    judged,
    one,
    plus,
    without,
)
from msgspec.structs import replace
from recorded import World

from proxylab.addresses import Transport
from proxylab.evidence.evidence import (
    Direction,
    ForeignRule,
    KernelCount,
    Observation,
    Packet,
    RuleCount,
    SentinelReport,
    TapLoss,
)
from proxylab.plan.resolved import STACK, Sender
from proxylab.scenario.expect import NodeDevice
from proxylab.scenario.probes import PodTarget
from proxylab.scenario.words import IcmpError, Manner, Outcome
from proxylab.verdict.case import Case
from proxylab.verdict.causes.table import why
from proxylab.verdict.expectations.outcome import lost_where
from proxylab.verdict.judge import judge
from proxylab.verdict.model import Judgement, ProbeVerdict

# What is proven passes.


def test_a_packet_delivered_and_answered_passes() -> None:
    world = replace(DELIVERED, backends=("echo-2",))
    verdict = judged(world, world.evidence(world.round_trip(0, "echo-2")))
    assert [(each.expectation, each.judgement) for each in verdict.verdicts] == [
        ("outcome", PASS),
        ("reply", PASS),
        ("backends", PASS),
        ("source", PASS),
    ]
    assert verdict.overall is PASS


def test_an_outcome_that_the_author_does_not_write_is_judged_without_a_service_too() -> None:
    probe = replace(DELIVERED.probe, target=PodTarget(pod="echo-2"))
    unwritten = replace(probe, expect=replace(probe.expect, backends=None, spread=None, source=None, positions={}))
    answered = DELIVERED.evidence(DELIVERED.round_trip(0, "echo-2"))
    silent = replace(answered, observations=answered.observations[:3])
    resolved = replace(DELIVERED.resolved, service_port="")
    passed, failed = (
        {each.expectation: each.judgement for each in judge(unwritten, resolved, None, evidence).verdicts}
        for evidence in (answered, silent)
    )
    assert (passed["outcome"], passed["reply"]) == (PASS, PASS)
    assert failed["reply"] is not PASS


def test_a_connection_passes_when_both_witnesses_agree() -> None:
    world = replace(CONNECTED, backends=("echo-1",))
    evidence = world.evidence(world.round_trip(0, "echo-1"), connects=(world.report(0, "echo-1"),))
    assert judged(world, evidence).overall is PASS


def without_end(why_not: str, **changes: object) -> ProbeVerdict:
    """A connection that carried data both ways and did not end in order."""
    world = replace(CONNECTED, backends=("echo-1",))
    reports = (replace(world.report(0, "echo-1"), unended=why_not),)
    return judged(world, world.evidence(world.round_trip(0, "echo-1"), connects=reports, **changes))


def test_a_connection_that_carried_data_ends_with_a_fin_of_both_sides(told: Told) -> None:
    verdict = without_end("timeout")
    (failed,) = (each for each in verdict.verdicts if each.judgement is not PASS)
    assert (failed.expectation, failed.judgement, failed.observed, failed.reasons) == (
        "outcome",
        FAIL,
        "delivered, 1 connection without an end",
        told(),
    )
    assert why(verdict) == told()
    reset = without_end("ECONNRESET")
    assert reset.verdicts[0].reasons == told()


def test_a_connection_without_an_end_is_only_late_until_the_sentinel_packets_are_back() -> None:
    silent = tuple(replace(each, answered=False) for each in CONNECTED.sentinels)
    assert without_end("timeout", sentinels=silent).verdicts[0].judgement is INCONCLUSIVE


def test_a_rule_that_counted_drops_is_the_cause_of_a_connection_without_an_end(told: Told) -> None:
    verdict = without_end(
        "timeout", counts=(CONNECTED.translated("echo-1"), CONNECTED.dropped(2)), metered_nodes=("node-a", "node-b")
    )
    assert why(verdict) == told()


@pytest.mark.parametrize(
    ("why_not", "drops", "reason"),
    [
        ("timeout", (), "its connection did not end: debug sent its FIN, and none came back from echo-1."),
        ("ECONNRESET", (CONNECTED.dropped(2),), "its connection ended with ECONNRESET at debug."),
    ],
)
def test_a_rule_that_did_its_work_is_not_the_cause_of_a_connection_without_an_end(
    why_not: str, drops: tuple[RuleCount, ...], reason: str
) -> None:
    """Nor is one that dropped something the cause of a reset."""
    verdict = without_end(why_not, counts=(CONNECTED.translated("echo-1"), *drops))
    assert why(verdict) == reason


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
    for ipv6, advice in ((False, ((5, 1), (3, 4))), (True, ((2, 0), (137, 0)))):
        world = replace(DELIVERED, backends=("echo-1",), ipv6=ipv6)
        for icmp in advice:
            seen = (*world.round_trip(0, "echo-1"), world.hears_icmp(0, icmp=icmp))
            assert judged(world, world.evidence(seen)).overall is PASS


def test_a_repeated_packet_may_arrive_as_often_as_it_was_sent() -> None:
    world = replace(DELIVERED, backends=("echo-1",))
    seen = world.round_trip(0, "echo-1")
    evidence = world.evidence((*seen, *seen[:2]))
    assert judged(world, evidence).overall is PASS


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


@pytest.mark.parametrize(
    ("key", "change", "judgement", "words"),
    [
        ("outcome", changed(unfinished="the deadline passed"), INCONCLUSIVE, "did not finish: the deadline passed"),
        ("outcome", changed(losses=(TapLoss("echo-2", "eth0", 1),)), INCONCLUSIVE, "echo-2 eth0 lost 1 frame"),
        ("source", changed(losses=(TapLoss("echo-2", "eth0", 1),)), INCONCLUSIVE, "lost 1 frame"),
        ("outcome", changed(sent=0), INCONCLUSIVE, "sent 0 of 1 flow"),
        ("outcome", changed(sent=2), INCONCLUSIVE, "sent 2 flows, but the probe has 1"),
        ("outcome", changed(connects=()), INCONCLUSIVE, "did not report exactly once"),
        ("outcome", changed(connects=(CONNECTED.report(0, "echo-1"),) * 2), INCONCLUSIVE, "exactly once"),
        ("outcome", plus(CONNECTED.leaves(7)), INCONCLUSIVE, "of none of its flows"),
        (
            "outcome",
            plus(replace(CONNECTED.leaves(0), protocol=Transport.UDP)),
            INCONCLUSIVE,
            "of none of its flows",
        ),
        ("outcome", without(Packet.REQUEST, Direction.OUT), INCONCLUSIVE, "never saw 1 flow leave debug"),
        ("outcome", plus(CONNECTED.arrives(0, "echo-2")), FAIL, "arrived at echo-1 and echo-2"),
        ("outcome", plus(CONNECTED.arrives(0, "echo-1")), FAIL, "it arrived twice at echo-1, but left once"),
        ("outcome", plus(CONNECTED.hears_icmp(0)), FAIL, "port unreachable from 172.18.0.2 and a reply"),
        ("outcome", changed(connects=(CONNECTED.report(0, "echo-2"),)), INCONCLUSIVE, "but echo-2 answered"),
        ("backends", changed(connects=(CONNECTED.report(0, "echo-2"),)), INCONCLUSIVE, "but echo-2 answered"),
        (
            "source",
            changed(connects=(CONNECTED.report(0, "echo-1", NODE),)),
            INCONCLUSIVE,
            "echo-1 saw 10.244.1.2:40000, echo-1 itself saw 172.18.0.2:61000",
        ),
        ("reply", changed(connects=(CONNECTED.failed(0, "timeout"),)), FAIL, "the data was not: timeout"),
        (
            "reply",
            changed(connects=(CONNECTED.failed(0, "timeout"),), sentinels=()),
            INCONCLUSIVE,
            "no sentinel packet was sent",
        ),
        ("reply", without(Packet.REPLY, Direction.IN), INCONCLUSIVE, "saw no reply, but the socket reports an answer"),
        ("reply", without(Packet.REPLY, Direction.OUT), INCONCLUSIVE, "echo-1 was not seen to send it"),
        ("reply", plus(CONNECTED.hears(0, (POD, 8080))), FAIL, "came from 10.244.2.3:8080, not from 10.96.0.10:80"),
        (
            "reply",
            plus(replace(CONNECTED.hears(0), destination_port=40001)),
            FAIL,
            "addressed to 10.244.1.2:40001, but the request did not come from there",
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
    verdict = one(world, world.evidence(seen, counts=counts, metered_nodes=("node-a", "node-b")), "outcome")
    assert verdict.judgement is (INCONCLUSIVE if words else PASS)
    assert words in "\n".join(verdict.reasons)


def test_what_arrives_where_it_was_sent_needs_no_rule() -> None:
    world = replace(DELIVERED, backends=("echo-1",), addresses={"service": ip_address("10.244.2.3")})
    straight = [replace(o, destination_port=80) for o in world.round_trip(0, "echo-1")[:2]]
    verdict = one(
        world, world.evidence([*straight, *world.round_trip(0, "echo-1")[2:]], metered_nodes=("node-a",)), "outcome"
    )
    assert verdict.judgement is PASS, verdict.reasons


def test_a_frame_at_a_pod_that_is_addressed_to_another_has_not_arrived(told: Told) -> None:
    leaving = DELIVERED.leaves(0)
    stray = replace(leaving, netns_name="echo-1", direction=Direction.IN)
    verdict = one(DELIVERED, DELIVERED.evidence([leaving, stray]), "outcome")
    assert verdict.judgement is FAIL
    assert verdict.reasons == told()


def test_a_reply_without_an_arrival_proves_nothing() -> None:
    verdict = one(DELIVERED, DELIVERED.evidence([DELIVERED.leaves(0), DELIVERED.hears(0)]), "outcome")
    assert verdict.judgement is INCONCLUSIVE
    assert "no pod saw the request" in verdict.reasons[0]


def test_udp_sockets_and_taps_must_agree_on_the_reply(told: Told) -> None:
    world = World(manner=Manner.CONNECT, protocol=Transport.UDP)
    evidence = world.evidence(world.round_trip(0, "echo-1"), connects=(world.failed(0, "timeout"),))
    assert one(world, evidence, "reply").reasons == told()
    assert judged(world, evidence).overall is INCONCLUSIVE


def test_a_lost_packet_fails_only_when_the_silence_is_proven() -> None:
    lost = DELIVERED.evidence([DELIVERED.leaves(0)])
    assert one(DELIVERED, lost, "outcome").judgement is FAIL
    silent = (SentinelReport("node-a", False), *lost.sentinels[1:])
    for doubtful, words in (
        (replace(lost, sentinels=silent), "no sentinel packet came back from node-a, so silence proves nothing"),
        (
            replace(lost, sentinels=()),
            "no sentinel packet was sent to node-a, echo-1, echo-2 and echo-3, so silence proves nothing",
        ),
        (replace(lost, unpinned="refused"), "the run could not stay on one CPU (refused): a sentinel packet may have"),
        (replace(lost, losses=(TapLoss("echo-1", "eth0", 3),)), "the tap at echo-1 eth0 lost 3 frames"),
        (
            replace(lost, sentinels=tuple(replace(sentinel, at=1) for sentinel in lost.sentinels)),
            "before the last flow left",
        ),
    ):
        verdict = one(DELIVERED, doubtful, "outcome")
        assert verdict.judgement is INCONCLUSIVE
        assert words in "\n".join(verdict.reasons)


def test_what_was_seen_fails_even_where_the_rest_is_in_doubt() -> None:
    evidence = DELIVERED.evidence(DELIVERED.round_trip(0, "echo-1", NODE), losses=(TapLoss("echo-1", "eth0", 3),))
    assert one(DELIVERED, evidence, "source").judgement is FAIL


def test_a_send_that_the_senders_kernel_refused(told: Told) -> None:
    evidence = DELIVERED.evidence([], sent=0, refused_sends=("EPERM",))
    assert one(DELIVERED, evidence, "outcome").reasons == told()
    assert judged(DELIVERED, evidence).overall is FAIL
    unreachable = dropped_evidence(observations=(), sent=0, refused_sends=("ENETUNREACH",))
    assert one(DROPPED, unreachable, "outcome").judgement is INCONCLUSIVE


@pytest.mark.parametrize(
    ("seen", "judgement", "words"),
    [
        ([], FAIL, "no tap saw it again"),
        ([REJECTED.arrives(0, "echo-1"), REJECTED.hears_icmp(0)], FAIL, "it arrived at echo-1, and debug heard ICMP"),
        (
            [REJECTED.hears_icmp(0, icmp=(3, 1))],
            FAIL,
            "but ICMP host unreachable (3/1) came",
        ),
        ([REJECTED.hears_icmp(0), REJECTED.hears(0)], FAIL, "port unreachable from 172.18.0.2 and a reply"),
        ([REJECTED.hears_icmp(0), REJECTED.hears_reset(0)], FAIL, "and a reset from"),
        ([REJECTED.hears_reset(0)], FAIL, "debug heard a reset from 10.96.0.10:80"),
        ([REJECTED.hears_icmp(0, POD)], INCONCLUSIVE, "from echo-1's address, but echo-1 saw no request"),
        (
            [replace(REJECTED.hears_icmp(0), destination=NODE)],
            INCONCLUSIVE,
            "addressed to 172.18.0.2, not to debug",
        ),
        ([replace(REJECTED.hears_icmp(0), icmp=(3, 13))], FAIL, "but ICMP administratively prohibited (3/13) came"),
    ],
)
def test_what_is_no_rejection(seen: list[object], judgement: Judgement, words: str) -> None:
    evidence = REJECTED.evidence([REJECTED.leaves(0), *seen], counts=(REJECTED.rejected(),))  # type: ignore[list-item]
    verdict = one(REJECTED, evidence, "outcome")
    assert verdict.judgement is judgement
    assert words in "\n".join(verdict.reasons)


@pytest.mark.parametrize(
    ("written", "code", "words"),
    [
        ("icmp-net-unreachable", (3, 0), "ICMP network unreachable (3/0)"),
        ("icmp-host-unreachable", (3, 1), "ICMP host unreachable (3/1)"),
        ("icmp-proto-unreachable", (3, 2), "ICMP protocol unreachable (3/2)"),
        ("icmp-net-prohibited", (3, 9), "ICMP network prohibited (3/9)"),
        ("icmp-host-prohibited", (3, 10), "ICMP host prohibited (3/10)"),
        ("icmp-admin-prohibited", (3, 13), "ICMP administratively prohibited (3/13)"),
    ],
)
def test_a_rule_may_reject_by_any_of_its_icmp_errors(written: str, code: tuple[int, int], words: str) -> None:
    text = REJECTED.rejected().text.replace("icmp-port-unreachable", written)
    seen = [REJECTED.leaves(0), REJECTED.hears_icmp(0, icmp=code)]
    evidence = REJECTED.evidence(seen, counts=(replace(REJECTED.rejected(), text=text),))
    verdict = one(REJECTED, evidence, "outcome")
    assert (verdict.judgement, verdict.observed) == (PASS, f"rejected by {words}")
    assert verdict.witnesses[0] == f"{words} from 172.18.0.2"
    asked = replace(REJECTED, icmp=IcmpError.PORT_UNREACHABLE)
    assert one(asked, evidence, "icmp").reasons == (f"debug heard {words}",)
    usual = REJECTED.evidence([REJECTED.leaves(0), REJECTED.hears_icmp(0)], counts=evidence.counts)
    assert one(REJECTED, usual, "outcome").judgement is FAIL, "the rule sends another error"
    assert one(asked, usual, "icmp").judgement is PASS


@pytest.mark.parametrize(
    ("counts", "words"),
    [
        ((), "an ICMP error came, but no rule counted it as rejected"),
        ((REJECTED.dropped(2),), "no rule counted it as rejected"),
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


def test_a_rejected_socket_must_say_so(told: Told) -> None:
    world = replace(REJECTED, manner=Manner.CONNECT)
    seen = [world.leaves(0), world.hears_icmp(0)]
    evidence = world.evidence(seen, connects=(world.failed(0, "timeout"),), counts=(world.rejected(),))
    assert one(world, evidence, "outcome").reasons == told()
    assert judged(world, evidence).overall is INCONCLUSIVE


def test_a_reset_from_a_stranger_is_no_refusal() -> None:
    seen = [REFUSED.leaves(0), REFUSED.arrives(0, "echo-1"), REFUSED.hears_reset(0, (POD, 8080))]
    assert one(REFUSED, REFUSED.evidence(seen), "outcome").judgement is INCONCLUSIVE


def rule(text: str, packets: int = 1) -> RuleCount:
    return RuleCount("node-a", "filter", "KUBE-SERVICES", f"-A KUBE-SERVICES {text}", packets)


@pytest.mark.parametrize(
    ("change", "judgement", "words"),
    [
        (changed(counts=()), INCONCLUSIVE, "nothing arrived, but no rule counted it as dropped"),
        (changed(counts=(DROPPED.rejected(),)), FAIL, "node-a rejected it by a rule, and the ICMP error was lost"),
        (changed(counts=(rule("-d 10.96.0.11/32 -p tcp -m tcp --dport 80 -j DROP"),)), INCONCLUSIVE, "no rule counted"),
        (changed(counts=(rule("-d 10.96.0.10/32 -p udp -m udp --dport 80 -j DROP"),)), INCONCLUSIVE, "no rule counted"),
        (changed(counts=(rule("-d 10.96.0.10/32 -p tcp -m tcp --dport 81 -j DROP"),)), INCONCLUSIVE, "no rule counted"),
        (changed(counts=(rule("-m conntrack --ctstate INVALID -j DROP"),)), INCONCLUSIVE, "no rule counted"),
        (
            changed(sentinels=(SentinelReport("node-a", False),)),
            INCONCLUSIVE,
            "no sentinel packet came back from node-a",
        ),
        (changed(unpinned="refused"), INCONCLUSIVE, "could not stay on one CPU"),
        (plus(DROPPED.leaves(0)), INCONCLUSIVE, "counted 1 of 2 packets: node-a"),
        (plus(DROPPED.arrives(0, "echo-1")), FAIL, "it arrived at echo-1"),
        (plus(DROPPED.hears_icmp(0)), FAIL, "port unreachable from 172.18.0.2"),
        (plus(DROPPED.hears_icmp(0, icmp=(11, 0))), FAIL, "ICMP time to live exceeded (11/0)"),
        (plus(DROPPED.hears(0)), FAIL, "a reply from 10.96.0.10:80, but no pod saw the request"),
        (plus(DROPPED.hears(0), DROPPED.hears_icmp(0)), FAIL, "and a reply"),
        (
            plus(replace(DROPPED.leaves(0), netns_name="outside", direction=Direction.IN)),
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


def test_a_drop_somewhere_else(told: Told) -> None:
    verdict = judged(DROPPED, dropped_evidence(counts=(DROPPED.dropped(node="node-b"),)))
    assert [each.judgement for each in verdict.verdicts] == [PASS, FAIL]
    assert verdict.verdicts[1].reasons == told()
    device = replace(DROPPED, at="node-a/cni0")
    assert one(device, dropped_evidence(device), "at").judgement is INCONCLUSIVE


@pytest.mark.parametrize("world", [DELIVERED, DROPPED], ids=["a loss", "a drop"])
@pytest.mark.parametrize("number", range(4))
def test_each_sentinel_packet_must_come_back(world: World, number: int, told: Told) -> None:
    """One answer of several is not enough: not of those to one name, nor of those to all names."""
    proven = FAIL if world is DELIVERED else PASS
    # A rule that counted more than the probe's packets does not account for them by itself.
    counts = () if world is DELIVERED else (world.dropped(3),)
    evidence = world.evidence([world.leaves(0)], counts=counts)
    assert one(world, evidence, "outcome").judgement is proven
    name = evidence.sentinels[number].name
    silent = replace(evidence.sentinels[number], answered=False)
    others = [each for each in evidence.sentinels if each.name != name]
    for sentinels in ((*others, silent), (*evidence.sentinels, silent), (silent, *evidence.sentinels)):
        verdict = one(world, replace(evidence, sentinels=sentinels), "outcome")
        assert verdict.judgement is INCONCLUSIVE
        assert verdict.reasons == told()
    early = replace(evidence.sentinels[number], at=1)
    for sentinels in ((*others, early), (*evidence.sentinels, early), (early, *evidence.sentinels)):
        assert one(world, replace(evidence, sentinels=sentinels), "outcome").judgement is INCONCLUSIVE
    lacking = one(world, replace(evidence, sentinels=tuple(others)), "outcome")
    assert lacking.reasons == told()


def came(*, leaves: bool = False) -> Observation:
    """The request at node-a: coming in, or leaving it again."""
    sent = DELIVERED.leaves(0)
    if leaves:
        return replace(sent, netns_name="node-a", device="eth0", direction=Direction.OUT, at=sent.at + 2)
    return replace(sent, netns_name="node-a", device="debug", direction=Direction.IN, at=sent.at + 1)


BY_RULE = 'node-a dropped the packet by its rule "default/echo has no local endpoints" in KUBE-SERVICES, which counted'
BY_STACK = "node-a dropped the packet by its routing: the packet is not for this node, and forwarding is off:"
IN_NODE = "the packet was lost in node-a: it came in by debug, addressed to 10.96.0.10:80, and did not leave again."
BEHIND_NODE = "the packet was lost behind node-a: it left by eth0, addressed to 10.96.0.10:80, and came in nowhere."
STACK_COUNTED = (KernelCount("node-a", "IpInAddrErrors", 1),)


@pytest.mark.parametrize(
    ("left", "told", "sentence"),
    [
        (False, {"counts": (DELIVERED.dropped(1),)}, f"{BY_RULE} 1 packet."),
        (False, {"counts": (DELIVERED.dropped(2),)}, IN_NODE),
        (False, {"counts": (DELIVERED.dropped(1, "node-b"),)}, IN_NODE),
        (False, {"counts": (DELIVERED.balanced(1),)}, IN_NODE),
        (False, {"kernel": STACK_COUNTED}, f"{BY_STACK} IpInAddrErrors counted 1 packet."),
        (False, {"kernel": (replace(STACK_COUNTED[0], node="node-b"),)}, IN_NODE),
        (False, {}, IN_NODE),
        (True, {"counts": (DELIVERED.dropped(1),)}, BEHIND_NODE),
        (True, {"kernel": STACK_COUNTED}, BEHIND_NODE),
        (True, {}, BEHIND_NODE),
    ],
)
def test_a_loss_is_laid_to_a_rule_or_a_stack_of_the_node_where_it_was_seen_last(
    left: bool, told: dict[str, object], sentence: str
) -> None:
    seen = [DELIVERED.leaves(0), came(), *([came(leaves=True)] if left else [])]
    evidence = DELIVERED.evidence(seen, metered_nodes=("node-a", "node-b"), **told)
    assert lost_where(Case(DELIVERED.probe, DELIVERED.resolved, evidence)) == sentence


def test_a_pod_is_judged_by_packets_though_the_author_writes_no_outcome() -> None:
    probe = replace(
        DELIVERED.probe,
        target=PodTarget(pod="echo-1"),
        expect=replace(DELIVERED.probe.expect, positions={}),
    )
    evidence = DELIVERED.evidence([DELIVERED.leaves(0)])
    verdicts = {each.expectation: each.judgement for each in judge(probe, DELIVERED.resolved, None, evidence).verdicts}
    assert verdicts["outcome"] is FAIL


@pytest.mark.parametrize(("packets", "judgement"), [((2,), PASS), ((1, 1), PASS), ((1,), INCONCLUSIVE)])
def test_all_rules_that_drop_count_together_beside_a_rule_of_others(
    packets: tuple[int, ...], judgement: Judgement
) -> None:
    world = World(flows=2, outcome=Outcome.DROPPED)
    guard = ForeignRule("node-a", "inet guard", "early", "prerouting", -500, "tcp dport 80 drop", None)
    seen = [each for flow in range(2) for each in (world.leaves(flow), replace(came(), flow=flow, at=2000 + flow))]
    counts = tuple(replace(world.dropped(each), chain=f"KUBE-{at}") for at, each in enumerate(packets))
    evidence = world.evidence(seen, counts=counts, foreign=(guard,))
    assert one(world, evidence, "outcome").judgement is judgement


def test_the_packets_that_a_stack_must_account_for_are_those_that_had_left() -> None:
    world = World(outcome=Outcome.DROPPED)
    sent = [replace(world.leaves(0), at=at) for at in (1000, 1500, 3000)]
    seen = [*sent, *(replace(came(), at=each.at + 1) for each in sent)]
    for packets, judgement in ((1, INCONCLUSIVE), (2, PASS), (3, INCONCLUSIVE)):
        told = world.evidence(
            seen,
            sentinels=(),
            kernel=(KernelCount("node-a", "IpInAddrErrors", packets),),
            counters_read_at=2000,
        )
        assert one(world, told, "outcome").judgement is judgement


def of_a_service(world: World, seen: list[Observation], sender: Sender | None = None) -> ProbeVerdict:
    resolved = replace(world.resolved, service_port="default/echo", sender=sender or world.resolved.sender)
    kernel = (KernelCount("node-a", "IpInHdrErrors", 1),)
    return judge(world.probe, resolved, None, world.evidence(seen, kernel=kernel, metered_nodes=("node-a", "node-b")))


def test_a_drop_by_a_stack_that_no_address_explains_is_no_work_of_the_engine(told: Told) -> None:
    world = World(outcome=Outcome.DROPPED)
    verdict = of_a_service(world, [world.leaves(0), came()])
    assert (verdict.overall, verdict.verdicts[0].reasons[-1].partition("; ")[2]) == (
        INCONCLUSIVE,
        told(),
    )


def test_a_packet_that_came_back_to_its_own_sender_is_explained() -> None:
    """The kernel takes no packet with its own source."""
    world = World(outcome=Outcome.DROPPED)
    sender = replace(world.resolved.sender, name="node-a", namespace="node-a", device=STACK)
    sent = replace(world.leaves(0), netns_name="node-a", device=STACK)
    gone = replace(sent, device="eth0", at=1001)
    back = replace(gone, direction=Direction.IN, at=1002)
    assert of_a_service(world, [sent, gone, back], sender).overall is PASS
    elsewhere = replace(sender, name="node-b")
    assert of_a_service(world, [sent, gone, back], elsewhere).overall is not PASS


ADVICE = [(False, (5, 1)), (False, (3, 4)), (True, (2, 0)), (True, (137, 0))]
FINAL = [
    (False, (3, 1)),
    (False, (11, 0)),
    (False, (2, 0)),
    (True, (1, 0)),
    (True, (3, 0)),
    (True, (4, 1)),
    (True, (5, 0)),
]


@pytest.mark.parametrize(
    ("ipv6", "icmp", "judgement"), [*((*each, PASS) for each in ADVICE), *((*each, FAIL) for each in FINAL)]
)
def test_a_redirect_and_a_packet_too_big_are_advice_and_other_icmp_errors_end_a_flow(
    ipv6: bool, icmp: tuple[int, int], judgement: Judgement
) -> None:
    world = replace(DELIVERED, ipv6=ipv6)
    leaves, *rest = world.round_trip(0, "echo-1")
    evidence = world.evidence([leaves, world.hears_icmp(0, icmp=icmp), *rest])
    assert one(world, evidence, "outcome").judgement is judgement


@pytest.mark.parametrize("last", range(3))
def test_a_sentinel_packet_proves_nothing_of_any_flow_that_left_after_it_was_back(last: int) -> None:
    world = World(flows=3)
    left = [replace(world.leaves(flow), at=5000 if flow == last else 1000) for flow in range(3)]
    for back, judgement in ((2000, INCONCLUSIVE), (6000, FAIL)):
        sentinels = tuple(replace(each, at=back) for each in world.sentinels)
        assert one(world, world.evidence(left, sentinels=sentinels), "outcome").judgement is judgement


def test_a_rule_that_rejected_beside_the_one_that_dropped_every_packet_takes_nothing_back() -> None:
    told = dropped_evidence(counts=(DROPPED.dropped(), DROPPED.rejected()))
    assert one(DROPPED, told, "outcome").judgement is PASS
    silent = dropped_evidence(counts=(DROPPED.rejected(),))
    assert one(DROPPED, silent, "outcome").judgement is FAIL


def test_only_what_comes_to_the_senders_own_device_is_its_answer() -> None:
    """A reply that a tap sees at another device, or at a pod's device of the same name, was not heard."""
    *sent, hears = DELIVERED.round_trip(0, "echo-1")
    for seen in (replace(hears, device="eth1"), replace(hears, netns_name="echo-3")):
        assert one(DELIVERED, DELIVERED.evidence([*sent, seen]), "reply").judgement is not PASS
    assert one(DELIVERED, DELIVERED.evidence([*sent, hears]), "reply").judgement is PASS
