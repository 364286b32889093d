"""What a step expects of its streams against their records."""

from ipaddress import ip_address
from typing import Any

import pytest
from golden_words import Told
from made_steps import CLIENT, NEW, OLD, VIP, ZERO, answered, entry, judged, lost, record, rejected, resolved, step
from msgspec.structs import replace

from proxylab.addresses import IPAddress, Transport
from proxylab.errors import InternalError
from proxylab.evidence.evidence import ForeignRule, LinkCount, Packet, TableEntry, TrackedFlow
from proxylab.evidence.stream_records import StreamCopy, StreamPacket, StreamRecord
from proxylab.plan.resolved import Destination, Receiver
from proxylab.report.failure_text import explain
from proxylab.scenario.expect import Masqueraded, Preserved, SourceAddress, SourceByBackend
from proxylab.scenario.steps import Count
from proxylab.verdict.model import Judgement, StepVerdict, Verdict

BEFORE = answered(9, 0.2, "old")
TRANSITION = answered(10, 10, "old")
BEHIND = tuple(answered(number, 20 + number - 11, "new") for number in range(11, 16))


def seen(*packets: StreamPacket) -> tuple[StreamPacket, ...]:
    return (BEFORE, TRANSITION, *packets)


def only(verdict: StepVerdict) -> tuple[str, str]:
    (each,) = verdict.verdicts
    return each.judgement.value, each.observed


def test_who_answers_is_asked_behind_the_wait() -> None:
    assert only(judged(step(backend="new"), record(*seen(*BEHIND)))) == ("pass", "new")
    assert only(judged(step(backend="old"), record(*seen(*BEHIND)))) == ("fail", "new")


def test_one_packet_without_an_answer_is_enough_to_fail() -> None:
    verdict = judged(step(backend="new"), record(*seen(*BEHIND[:-1], lost(15, 24))))
    assert only(verdict) == ("fail", "new and no backend")
    assert verdict.verdicts[0].reasons == ("1 of 5 packets: no answer came",)


def test_without_a_packet_after_the_wait_the_verdict_is_inconclusive() -> None:
    assert only(judged(step(backend="new"), record(*seen()))) == ("inconclusive", "none")


def test_backends_are_those_of_the_whole_step_in_order() -> None:
    packets = record(*seen(*BEHIND))
    assert only(judged(step(backends=("old", "new")), packets)) == ("pass", "old, new")
    for wrong in (("new", "old"), ("new",), ("old", "new", "third")):
        assert only(judged(step(backends=wrong), packets))[0] == "fail"


def test_the_source_is_what_backends_say_they_saw() -> None:
    assert only(judged(step(source=SourceAddress(CLIENT)), record(*seen(*BEHIND)))) == ("pass", str(CLIENT))
    assert only(judged(step(source=SourceAddress(CLIENT)), record(*seen(*BEHIND)), source=NEW)) == ("fail", str(CLIENT))
    assert only(judged(step(source=SourceAddress(CLIENT)), record(*seen(lost(11, 21)))))[0] == "fail"


def test_the_source_may_differ_from_backend_to_backend(told: Told) -> None:
    packets = tuple(answered(number, 20 + number - 11, "new", peer=NEW) for number in range(11, 16))
    due = {"old": CLIENT, "new": NEW}
    assert only(judged(step(source=Masqueraded()), record(*seen(*packets)), source=due)) == ("pass", str(NEW))
    verdict = judged(step(source=Masqueraded()), record(*seen(*BEHIND)), source=due)
    assert verdict.verdicts[0].expected == f"masqueraded ({NEW})"
    assert verdict.verdicts[0].reasons == told()


TAKEN = TableEntry("node-a", Transport.UDP, CLIENT, 4000, VIP, 53, NEW, 5353, CLIENT, 4000)
OWN = TableEntry("node-a", Transport.UDP, CLIENT, 4000, VIP, 54, NEW, 5353, CLIENT, 12345)


@pytest.mark.parametrize(
    ("change", "wanted", "led_to", "entries", "told"),
    [
        ({"port": 4000}, Preserved(), NEW, None, "port 12345, not from port 4000"),
        ({"port": 4000}, Preserved(), NEW, (OWN,), "port 12345, not from port 4000"),
        (
            {"port": 4000},
            SourceByBackend({"new": Preserved()}),
            NEW,
            (),
            "port 12345, not from port 4000",
        ),
        ({"port": 12345}, Preserved(), NEW, (), ""),
        ({"port": 0}, Preserved(), NEW, (), ""),
        ({"port": 4000}, Masqueraded(), NEW, (), ""),
        ({"port": 4000}, SourceAddress(CLIENT), NEW, (), ""),
        ({"port": 4000}, Preserved(), OLD, (), ""),
        (
            {"port": 4000, "own": VIP, "own_port": 53},
            Preserved(),
            OLD,
            (),
            "port 12345, not from port 4000",
        ),
        ({"port": 4000}, Preserved(), NEW, (OWN, TAKEN), "another connection on node-a holds that one"),
        (
            {"port": 4000},
            Preserved(),
            NEW,
            (OWN, replace(TAKEN, node="node-b")),
            "port 12345, not from port 4000",
        ),
        (
            {"port": 4000},
            Preserved(),
            NEW,
            (replace(OWN, protocol=Transport.TCP), replace(TAKEN, protocol=Transport.TCP)),
            "port 12345, not from port 4000",
        ),
    ],
)
def test_a_preserved_source_has_its_port_unless_another_connection_holds_it(
    change: dict[str, Any], wanted: Any, led_to: IPAddress, entries: tuple[TableEntry, ...] | None, told: str
) -> None:
    """``led_to`` is where connection tracking leads: elsewhere than to the backend, a program ends the connections."""
    packets = (*(replace(each, own=OLD, own_port=5353, port=1) for each in (BEFORE, TRANSITION)), *(
        replace(each, **{"own": NEW, "own_port": 5353, **change}) for each in BEHIND
    ))  # fmt: skip
    tracked = (TrackedFlow(0, "node-a", led_to, 5353, CLIENT, 12345),)
    verdict = judged(step(source=wanted), replace(record(*packets), tracked=tracked), entries=entries)
    (source,) = (each for each in verdict.verdicts if each.expectation == "queries.source")
    held = told.startswith("another")
    assert source.judgement is (Judgement.FAIL if told and not held else Judgement.PASS), source
    assert told in "; ".join(source.witnesses if held else source.reasons), source


@pytest.mark.parametrize("number", range(11, 16))
def test_one_packet_from_another_port_is_enough(number: int, told: Told) -> None:
    """The entry of its endpoint may be one of several, and so may its endpoint."""
    packets = [replace(each, own=OLD, own_port=1, port=12345) for each in seen(*BEHIND)]
    packets = [replace(each, own=NEW, port=4000) if each.number == number else each for each in packets]
    tracked = tuple(TrackedFlow(0, "node-a", who, 1, CLIENT, 12345) for who in (VIP, NEW))
    verdict = judged(step(source=Preserved()), replace(record(*packets), tracked=tracked))
    (source,) = (each for each in verdict.verdicts if each.expectation == "queries.source")
    assert (source.judgement, source.example) == (Judgement.FAIL, number)
    assert source.reasons == told()


def test_a_source_that_nothing_masquerades_is_no_masqueraded_one(told: Told) -> None:
    of_node = replace(resolved(), receivers=(Receiver(name="new", namespace="node-a", device="eth0", address=NEW),))
    verdict = judged(step(source=Masqueraded()), record(*seen(*BEHIND)), source={"old": NEW}, streams=(of_node,))
    assert only(verdict) == ("fail", str(CLIENT))
    where = "new is a program of node-a itself, and packets to it do not pass POSTROUTING there"
    assert verdict.verdicts[0].reasons == (f"5 of 5 packets: nothing masquerades it: {where}; it came from {CLIENT}",)
    unknown = judged(step(source=Masqueraded()), record(*seen(*BEHIND)), source={"old": NEW})
    assert unknown.verdicts[0].reasons == told()
    assert only(unknown) == ("inconclusive", str(CLIENT))


def test_a_source_by_backend_has_an_entry_for_each_backend(told: Told) -> None:
    verdict = judged(step(source=SourceByBackend({"old": Preserved()})), record(*seen(*BEHIND)), source={"old": CLIENT})
    assert only(verdict) == ("fail", str(CLIENT))
    assert verdict.verdicts[0].expected == "old preserved"
    assert verdict.verdicts[0].reasons == told()


@pytest.mark.parametrize(
    ("wanted", "judgement"),
    [
        (ZERO, "fail"),
        (Count(at_least=2, at_most=2), "pass"),
        (Count(at_least=3), "fail"),
        (Count(at_least=1, at_most=3), "pass"),
    ],
)
def test_what_the_change_costs_belongs_to_the_step(wanted: Count, judgement: str) -> None:
    packets = record(BEFORE, lost(10, 5), *BEHIND, lost(16, 40))
    assert only(judged(step(lost=wanted), packets)) == (judgement, "2")


def test_a_rejection_is_no_loss() -> None:
    packets = record(BEFORE, rejected(10, 5), *BEHIND)
    assert only(judged(step(lost=ZERO), packets)) == ("pass", "0")
    assert only(judged(step(rejected=Count(at_least=1)), packets)) == ("pass", "1")


def test_every_reset_counts() -> None:
    assert only(judged(step(resets=ZERO), record(*seen(*BEHIND), resets=2))) == ("fail", "2")
    assert only(judged(step(resets=ZERO), record(*seen(*BEHIND), closed=30.0))) == ("pass", "0")


def test_the_longest_answer_counts() -> None:
    slow = record(BEFORE, answered(10, 5, "new", delay=150.0), *BEHIND)
    assert only(judged(step(delay=200), slow)) == ("pass", "150.0 ms at most")
    assert only(judged(step(delay=100), slow))[0] == "fail"
    assert only(judged(step(delay=100), record(lost(1, 30))))[0] == "inconclusive"


def test_what_is_missing_where_no_sentinel_packet_comes_back_decides_nothing() -> None:
    packets = replace(record(BEFORE, lost(10, 5), *BEHIND), silent=("node-b",))
    assert only(judged(step(lost=ZERO), packets))[0] == "inconclusive"
    assert only(judged(step(lost=Count(at_least=1)), packets))[0] == "inconclusive", "its answer may only be late"
    assert only(judged(step(lost=Count(at_most=1)), packets))[0] == "pass", "late or lost, it is one at most"
    assert only(judged(step(lost=Count(at_least=2)), packets))[0] == "fail"
    assert only(judged(step(delay=100), packets))[0] == "inconclusive"
    behind = replace(record(*seen(*BEHIND[:-1], lost(15, 24))), silent=("node-b",))
    for wanted in ({"backend": "new"}, {"source": CLIENT}, {"backends": ("old", "new", "third")}):
        assert only(judged(step(**wanted), behind))[0] == "inconclusive"
    assert only(judged(step(backend="old"), behind))[0] == "fail", "new was seen to answer"
    torn = replace(record(BEFORE, lost(10, 5, "ECONNRESET"), *BEHIND), silent=("node-b",))
    assert only(judged(step(lost=ZERO), torn))[0] == "fail", "its socket has said so"


def test_what_a_proxys_process_may_still_hold_decides_nothing() -> None:
    packets = replace(record(BEFORE, lost(10, 5), *BEHIND), undrained=("node-a",))
    verdict = judged(step(lost=ZERO), packets)
    assert only(verdict)[0] == "inconclusive"
    held = "the proxy's process on node-a may still hold packets"
    assert f"{held}, so silence proves nothing" in verdict.verdicts[0].reasons
    assert held in " ".join(" ".join(explain(verdict)).split())


def test_what_the_mode_lacks_is_skipped_and_decides_only_where_it_lacks_everything() -> None:
    wanted, packets = step(backend="new", source=SourceAddress(CLIENT)), record(*seen(*BEHIND))
    lacks = {"queries.source": "it never preserves the source", "conntrack": "it leaves no entry"}
    verdict = judged(wanted, packets, lacks=lacks)
    judgements = {each.expectation: each.judgement for each in verdict.verdicts}
    assert judgements == {"queries.backend": Judgement.PASS, "queries.source": Judgement.SKIP}
    assert verdict.overall is Judgement.PASS
    assert judged(step(backend="old", source=SourceAddress(CLIENT)), packets, lacks=lacks).overall is Judgement.FAIL
    whole = judged(wanted, packets, lacks={"queries": "it serves one family"})
    assert whole.overall is Judgement.SKIP
    assert {reason for each in whole.verdicts for reason in each.reasons} == {"it serves one family"}


def test_a_packet_missing_from_the_record_casts_doubt_on_all() -> None:
    for packets in ((BEFORE, *BEHIND), (BEFORE, BEFORE, TRANSITION)):
        assert only(judged(step(lost=ZERO), record(*packets)))[0] == "inconclusive"


def test_tables_are_judged_without_any_stream() -> None:
    assert only(judged(step(conntrack=True), entries=(entry(NEW),)))[0] == "pass"
    assert only(judged(step(conntrack=True), entries=(entry(OLD),)))[0] == "fail"
    assert only(judged(step(conntrack=True), entries=None))[0] == "inconclusive"


def test_a_stream_that_was_not_sent_never_looks_green() -> None:
    with pytest.raises(InternalError, match="nothing was recorded of stream 'queries'"):
        judged(step(lost=ZERO))


def test_an_expectation_without_verdict_never_looks_green() -> None:
    verdict = judged(step(lost=ZERO), record(*seen(*BEHIND)))
    assert verdict.overall is Judgement.PASS
    with pytest.raises(InternalError, match=r"the judge gave no verdict on queries\.lost"):
        replace(verdict, verdicts=())


def on_link(number: int, ms: float) -> StreamPacket:
    return replace(lost(number, ms), link="client")


def test_what_a_link_lost_counts_apart() -> None:
    packets = record(*seen(*BEHIND[:-2], on_link(14, 23), lost(15, 24)))
    assert only(judged(step(lost=Count(at_least=1, at_most=1)), packets)) == ("pass", "1")
    assert only(judged(step(lost_on_link=Count(at_least=1, at_most=1)), packets)) == ("pass", "1")
    assert only(judged(step(lost=ZERO), packets)) == ("fail", "1")
    assert only(judged(step(lost_on_link=ZERO), packets)) == ("fail", "1")


def test_the_backend_is_that_of_the_packets_that_no_link_lost() -> None:
    assert only(judged(step(backend="new"), record(*seen(*BEHIND[:-1], on_link(15, 24))))) == ("pass", "new")
    every = [on_link(packet.number, 21) for packet in BEHIND]
    verdict = judged(step(backend="new"), record(*seen(*every)))
    assert only(verdict)[0] == "inconclusive"
    assert verdict.verdicts[0].reasons == ("links lost every packet of queries",)


def test_the_loss_of_a_connection_is_unclear_while_links_drop_packets(told: Told) -> None:
    packets = record(*seen(*BEHIND[:-1], lost(15, 24)), by_connection=True)
    assert only(judged(step(lost=ZERO), packets)) == ("fail", "1")
    dropped = LinkCount(link="client", outward=True, netem="loss 10%", dropped=3, copies=False, behind=())
    verdict = judged(step(lost=ZERO), packets, links=(dropped,))
    assert only(verdict)[0] == "inconclusive"
    assert verdict.verdicts[0].reasons[-1] == told()
    assert only(judged(step(lost=Count(at_most=1)), packets, links=(dropped,)))[0] == "pass"


TO_POD, TO_NOTHING = (TrackedFlow(0, "node-a", *ends, CLIENT, 12345) for ends in ((NEW, 5353), (VIP, 53)))
KEPT = record(*seen(*BEHIND))


@pytest.mark.parametrize(
    ("told", "judgement"),
    [
        (replace(KEPT, tracked=(TO_POD,)), "pass"),
        (replace(KEPT, tracked=(TO_NOTHING, TO_POD)), "pass"),
        (replace(KEPT, tracked=(TO_NOTHING,)), "inconclusive"),
        (KEPT, "inconclusive"),
        (record(*seen(*BEHIND, lost(16, 40))), "pass"),  # an engine may have deleted the entry before the last packet
        (record(*seen(*BEHIND), closed=45.0), "pass"),  # the entries are of the next connection
        (record(*seen(*BEHIND), closed=15.0), "inconclusive"),
    ],
)
def test_what_no_node_translates_the_engine_may_not_have_led(told: StreamRecord, judgement: str) -> None:
    of_service = replace(resolved(), service_port="default/dns:dns")
    for wanted in (step(backends=("old", "new")), step(source=SourceAddress(CLIENT)), step(resets=Count(at_most=1))):
        if told.packets[-1].backend or "source" not in wanted.expect.streams["queries"].positions:
            assert only(judged(wanted, told, streams=(of_service,)))[0] == judgement
            assert only(judged(wanted, told, streams=(resolved(),)))[0] == "pass", "a pod's own address needs none"
    sctp = replace(of_service, protocol=Transport.SCTP)
    assert only(judged(step(backends=("old", "new")), told, streams=(sctp,)))[0] == "pass"
    assert only(judged(step(delay=200), told, streams=(of_service,)))[0] == "pass"


@pytest.mark.parametrize(("ports", "judgement"), [((), "pass"), ((53,), "pass"), ((54,), "inconclusive")])
def test_a_backend_with_the_dialled_address_needs_no_translation(ports: tuple[int, ...], judgement: str) -> None:
    daemon = Receiver(name="new", namespace="node-b", device="stack", address=VIP, ports=ports)
    of_service = replace(resolved(), service_port="default/dns:dns", receivers=(daemon,))
    assert only(judged(step(backend="new"), KEPT, streams=(of_service,)))[0] == judgement


@pytest.mark.parametrize(
    ("source", "service_port", "past", "judgement"),
    [
        (NEW, "default/dns:dns", False, "inconclusive"),
        (NEW, "default/dns:dns", True, "inconclusive"),
        (NEW, "", False, "pass"),
        (CLIENT, "default/dns:dns", False, "pass"),
    ],
)
def test_a_rule_of_others_may_have_marked_a_stream_for_masquerading(
    source: IPAddress, service_port: str, past: bool, judgement: str
) -> None:
    mark = ForeignRule("node-a", "ip x", "x", "prerouting", -150, "counter meta mark set 0x00004000", 1, past=past)
    packets = [replace(packet, peer=source) for packet in seen(*BEHIND)]
    told = replace(record(*packets), tracked=(TO_POD,))
    of_service = replace(resolved(), service_port=service_port)
    for wanted, due in ((step(source=Masqueraded()), judgement), (step(backend="new"), "pass")):
        assert only(judged(wanted, told, source=source, streams=(of_service,), foreign=(mark,)))[0] == due


ENDS = (Destination(address=OLD, port=5353, is_reachable=False), Destination(address=NEW, port=5353))


def at_end(packet: StreamPacket, address: IPAddress, port: int = 5353) -> StreamPacket:
    return replace(packet, own=address, own_port=port)


def receiver(name: str, address: IPAddress) -> Receiver:
    return Receiver(name=name, namespace=name, device="eth0", address=address)


def row(*packets: StreamPacket, key: str = "endpoint", wanted: dict[str, Any] | None = None) -> Verdict | None:
    """A row that appears only where something is wrong."""
    stream = replace(resolved(), service_port="default/dns:dns", endpoints=ENDS)
    stream = replace(stream, receivers=tuple(receiver(name, each) for name, each in (("old", OLD), ("new", NEW))))
    verdict = judged(step(**(wanted or {"lost": ZERO})), record(*packets), streams=(stream,))
    return next((each for each in verdict.verdicts if each.expectation == f"queries.{key}"), None)


def told(*packets: StreamPacket, key: str = "endpoint", wanted: dict[str, Any] | None = None) -> tuple[str, ...]:
    found = row(*packets, key=key, wanted=wanted)
    return () if found is None else found.reasons


def test_a_stream_stays_where_conntrack_holds_it_and_moves_to_what_new_flows_may_reach() -> None:
    stays = [at_end(answered(number, 20 + number, "old"), OLD) for number in range(9, 14)]
    assert told(*stays) == ()
    assert told(*stays, at_end(answered(14, 40, "new"), NEW)) == ()
    back = at_end(answered(15, 41, "old"), OLD)
    assert told(*stays, at_end(answered(14, 40, "new"), NEW), back) == (
        "1 of 7 packets: it moved to old, an endpoint that is not ready",
    )
    assert told(*stays, at_end(answered(14, 40, "new"), NEW), back, wanted={"backends": ("old", "new")}) == ()


def test_another_port_or_address_of_the_right_pod_is_no_endpoint() -> None:
    other = ip_address("172.18.0.9")
    assert told(at_end(answered(9, 21, "new"), NEW, 53)) == (
        "it arrived at port 53 of new, not at port 5353, the target port of default/dns:dns there",
    )
    assert told(at_end(answered(9, 21, "new"), other), wanted={"backend": "new"}) == (
        f"it arrived at new, at {other}:5353, which was at no time an endpoint of default/dns:dns",
    )


def test_a_wrong_end_is_shown_among_all_that_the_stream_reached() -> None:
    right, wrong = at_end(answered(9, 21, "new"), NEW), at_end(answered(10, 22, "new"), NEW, 53)
    found = row(right, wrong, replace(right, number=11, at=23))
    assert found is not None
    assert (found.expected, found.observed) == (f"{OLD}:5353 or {NEW}:5353", f"{NEW}:5353 and {NEW}:53")


def test_packets_and_answers_come_once_and_as_they_were_sent() -> None:
    altered = replace(answered(9, 21, "new"), altered="request")
    assert told(altered, key="whole") == ("the data of the request had changed on the way",)
    copy = StreamCopy(9, Packet.REQUEST, 1, ("new", "old", "new"))
    verdict = judged(step(lost=ZERO), record(answered(9, 21, "new"), copies=(copy,)))
    (whole,) = (each for each in verdict.verdicts if each.expectation == "queries.whole")
    assert whole.judgement is Judgement.FAIL
    assert whole.reasons == ("the request was sent once, and came in at new twice and old once",)


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        (ZERO, "0"),
        (Count(at_least=2, at_most=2), "2"),
        (Count(at_least=2), "2 or more"),
        (Count(at_least=1, at_most=3), "1 to 3"),
        (Count(at_most=3), "3 at most"),
    ],
)
def test_a_count_is_told_by_its_bounds(wanted: Count, words: str) -> None:
    assert judged(step(lost=wanted), record(*BEHIND)).verdicts[0].expected == words
