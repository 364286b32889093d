"""The judge on backends, source and spread."""

import pytest
from judging import CONNECTED, DELIVERED, DROPPED, FAIL, INCONCLUSIVE, NODE, PASS, SPREAD, dropped_evidence, judged, one
from msgspec.structs import replace
from recorded import World

from proxylab.addresses import Transport
from proxylab.encoding import decode, encode
from proxylab.errors import InternalError
from proxylab.evidence.evidence import (
    Evidence,
    HttpReport,
    TableEntry,
    TapLoss,
)
from proxylab.scenario.model import (
    ConntrackExpect,
    Entries,
    HttpExpect,
    NodeDevice,
    Outcome,
    Position,
    Preserved,
    Reply,
    Shares,
    SourceAddress,
    Spread,
)
from proxylab.verdict.judge import judge
from proxylab.verdict.model import Judgement, ProbeVerdict, Verdict


def test_expectations_about_pods_where_no_pod_is_reached_are_an_error() -> None:
    world = replace(DROPPED, source=Preserved(), backends=("echo-1",))
    verdict = judged(world, dropped_evidence(world))
    assert verdict.overall is FAIL
    assert one(world, dropped_evidence(world), "source").reasons == (
        "source needs packets at a pod, and the outcome dropped allows none: take one of the two out",
    )


def test_a_verdict_for_every_expectation_or_an_error() -> None:
    verdict = judged(DELIVERED, DELIVERED.evidence(DELIVERED.round_trip(0, "echo-1")))
    with pytest.raises(InternalError, match="the judge gave no verdict on source"):
        replace(verdict, verdicts=verdict.verdicts[:-1])


def test_a_source_without_an_address_is_our_fault() -> None:
    world = World(source=NodeDevice("node-a", "uplink"))
    with pytest.raises(InternalError, match="the plan gave no address for the source"):
        judged(world, world.evidence(world.round_trip(0, "echo-1")))


def test_the_source_an_author_gives_as_an_address() -> None:
    world = World(source=SourceAddress(NODE))
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
    assert (verdict.judgement, verdict.reasons) == (FAIL, ("the request reached echo-3, not an expected backend",))


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
    resolved = DELIVERED.resolved
    shared = replace(resolved, receivers=tuple(replace(pod, namespace="echo") for pod in resolved.receivers))
    seen = tuple(
        replace(each, netns_name="echo") if each.netns_name == "echo-2" else each
        for each in DELIVERED.round_trip(0, "echo-2")
    )
    verdict = judge(DELIVERED.probe, shared, None, DELIVERED.evidence(seen))
    assert verdict.overall is PASS
    assert verdict.verdicts[2].observed == "echo-2 (1 flow need not hit all 3)"


def test_a_refused_send_excuses_no_packet_that_no_tap_saw_leave() -> None:
    evidence = DELIVERED.evidence(DELIVERED.round_trip(0, "echo-1")[1:], sent=0, refused_sends=("EPERM",))
    assert one(DELIVERED, evidence, "outcome").reasons == ("the taps never saw 1 flow leave debug",)


def test_a_verdict_carried_elsewhere_is_judged_again_the_same() -> None:
    evidence = CONNECTED.evidence(CONNECTED.round_trip(0, "echo-1"), connects=(CONNECTED.report(0, "echo-1"),))
    verdict = judged(CONNECTED, evidence)
    carried = decode(encode(verdict), ProbeVerdict)
    assert carried == verdict
    assert judge(carried.probe, carried.resolved, None, carried.evidence) == verdict


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
    verdicts = judge(probe, world.resolved, None, evidence).verdicts
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
        (HttpReport(0, 200, 1), FAIL, "it reported 1 local endpoint"),
        (HttpReport(0, 200), FAIL, "it reported no number of local endpoints"),
        (HttpReport(0, 0, error="ECONNREFUSED"), FAIL, "no answer by HTTP: the socket reports ECONNREFUSED"),
        (HttpReport(0, 0, error="timeout"), FAIL, "no answer came by HTTP"),
        (None, INCONCLUSIVE, "no HTTP request was sent"),
    ],
)
def test_http_is_judged_by_status_and_body(report: HttpReport | None, judgement: Judgement, reason: str | None) -> None:
    evidence = DELIVERED.evidence(DELIVERED.round_trip(0, "echo-1"), http=(report,) if report else ())
    verdict = expecting(DELIVERED, evidence, "http", http=HttpExpect(status=200, local_endpoints=2))
    assert verdict.judgement is judgement
    assert verdict.reasons[:1] == ((reason,) if reason else ())


def test_an_outcome_that_no_key_asks_for_beside_http_is_not_judged() -> None:
    probe = replace(DELIVERED.probe, expect=replace(DELIVERED.probe.expect, http=HttpExpect(status=200), positions={}))
    probe = replace(probe, expect=replace(probe.expect, backends=None, source=None))
    evidence = DELIVERED.evidence(DELIVERED.round_trip(0, "echo-1"), http=(HttpReport(0, 200),))
    assert [each.expectation for each in judge(probe, DELIVERED.resolved, None, evidence).verdicts] == ["http"]


ENTRY = TableEntry(
    "node-a",
    Transport.TCP,
    *(part for end in ("debug", "service", "echo-1", "debug") for part in (DELIVERED.address(end), 80)),
)


@pytest.mark.parametrize(
    ("wanted", "judgement"),
    [
        (ConntrackExpect(some=Entries(reply_from="echo-1")), PASS),
        (ConntrackExpect(some=Entries(reply_from=str(DELIVERED.address("echo-1")), port=80)), PASS),
        (ConntrackExpect(some=Entries(reply_from="echo-1", masqueraded=False)), PASS),
        (ConntrackExpect(some=Entries(reply_from="echo-1", masqueraded=True)), FAIL),
        (ConntrackExpect(none=Entries(masqueraded=True)), PASS),
        (ConntrackExpect(some=Entries(reply_from="echo-2")), FAIL),
        (ConntrackExpect(some=Entries(protocol=Transport.TCP)), PASS),
        (ConntrackExpect(some=Entries(protocol=Transport.UDP, reply_from="echo-1")), FAIL),
        (ConntrackExpect(none=Entries(protocol=Transport.UDP, reply_from="echo-1")), PASS),
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
    resolved = replace(world.resolved, tables=True, addresses=names)
    evidence = world.evidence(world.round_trip(0, "echo-1"), entries=(ENTRY,))
    (verdict,) = [each for each in judge(probe, resolved, None, evidence).verdicts if each.expectation == "conntrack"]
    assert verdict.judgement is judgement
    (unread,) = [
        each
        for each in judge(probe, resolved, None, replace(evidence, entries=None)).verdicts
        if each.expectation == "conntrack"
    ]
    assert unread.judgement is INCONCLUSIVE


def test_entries_with_equal_tuples_are_told_apart_by_their_protocol() -> None:
    both = (ENTRY, replace(ENTRY, protocol=Transport.UDP))
    wanted = ConntrackExpect(none=Entries(protocol=Transport.UDP, reply_from="echo-1"))
    probe = replace(DELIVERED.probe, expect=replace(DELIVERED.probe.expect, conntrack=wanted))
    resolved = replace(DELIVERED.resolved, tables=True, addresses={"echo-1": (DELIVERED.address("echo-1"),)})
    evidence = DELIVERED.evidence(DELIVERED.round_trip(0, "echo-1"), entries=both)
    verdict = judge(probe, resolved, None, evidence).verdicts[-1]
    words = "node-a holds UDP 10.244.1.2:80 > 10.96.0.10:80, answered by 10.244.2.3:80"
    assert (verdict.expectation, verdict.judgement, verdict.reasons) == ("conntrack", FAIL, (words,))


@pytest.mark.parametrize(
    ("wanted", "judgement"),
    [
        (None, INCONCLUSIVE),
        (ConntrackExpect(some=Entries(reply_from="echo-1")), PASS),
        (ConntrackExpect(some=Entries(reply_from="echo-2")), INCONCLUSIVE),
        (ConntrackExpect(none=Entries(reply_from="echo-2")), INCONCLUSIVE),
    ],
)
def test_an_entry_that_the_author_expects_stands_for_a_rule_that_did_not_count(
    wanted: ConntrackExpect | None, judgement: Judgement
) -> None:
    world = DELIVERED
    names = {name: (world.address(name),) for name in ("echo-1", "echo-2")}
    probe = replace(world.probe, expect=replace(world.probe.expect, conntrack=wanted))
    resolved = replace(world.resolved, tables=True, addresses=names)
    entry = replace(ENTRY, reply_source_port=8080)
    evidence = world.evidence(world.round_trip(0, "echo-1"), entries=(entry,), counted=("node-a", "node-b"), counts=())
    (verdict,) = [each for each in judge(probe, resolved, None, evidence).verdicts if each.expectation == "outcome"]
    assert verdict.judgement is judgement, verdict.reasons
