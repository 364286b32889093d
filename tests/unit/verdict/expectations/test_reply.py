"""Whether the reply came back, and from where."""

import pytest
from golden_words import Told
from judging import CONNECTED, DELIVERED, FAIL, INCONCLUSIVE, PASS, judged, one
from msgspec.structs import replace
from recorded import World

from proxylab.evidence.evidence import (
    Evidence,
    LinkCount,
)
from proxylab.scenario.expect import ReplyByBackend
from proxylab.scenario.words import Position, Reply
from proxylab.verdict.causes.table import why
from proxylab.verdict.judge import judge
from proxylab.verdict.model import Verdict


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


def test_a_reply_that_is_left_as_it_is_on_one_way_only(told: Told) -> None:
    world = World(flows=2)
    leaves, arrives, answers, hears = world.round_trip(0, "echo-1")
    own = replace(hears, source=arrives.destination, source_port=arrives.destination_port)
    asked = {"key": "reply", "reply": ReplyByBackend({"echo-1": Reply.UNTRANSLATED, "echo-2": Reply.TRANSLATED})}
    both = world.evidence([leaves, arrives, answers, own, *world.round_trip(1, "echo-2")])
    verdict = expecting(world, both, **asked)  # type: ignore[arg-type]
    assert (verdict.judgement, verdict.expected) == (PASS, "echo-1 untranslated, echo-2 translated")
    swapped = world.evidence([leaves, arrives, answers, hears, *world.round_trip(1, "echo-2")])
    failed = expecting(world, swapped, **asked)  # type: ignore[arg-type]
    assert failed.reasons == told()


def test_a_port_rewritten_in_the_reply_fails_and_names_the_reply(told: Told) -> None:
    *before, leaves_node, hears = DELIVERED.crossing(0, "echo-1")
    rewritten = [*before, replace(leaves_node, source_port=81), replace(hears, source_port=81)]
    verdict = judged(DELIVERED, DELIVERED.evidence(rewritten))
    failed = next(each for each in verdict.verdicts if each.expectation == "reply")
    assert (failed.judgement, failed.reasons) == (
        FAIL,
        told(),
    )
    changed = "node-a changed the reply's source to 10.96.0.10:81, but the probe dialled 10.96.0.10:80."
    assert why(verdict) == changed


def test_a_lost_reply_needs_an_answer_and_sentinel_packets() -> None:
    leaves, arrives, answers, hears = DELIVERED.round_trip(0, "echo-1")
    asked = {"key": "reply", "reply": Reply.LOST}
    lost = expecting(DELIVERED, DELIVERED.evidence([leaves, arrives, answers]), **asked)  # type: ignore[arg-type]
    assert (lost.judgement, lost.expected) == (PASS, "none")
    came = expecting(DELIVERED, DELIVERED.evidence([leaves, arrives, answers, hears]), **asked)  # type: ignore[arg-type]
    assert came.judgement is FAIL
    unsent = expecting(DELIVERED, DELIVERED.evidence([leaves, arrives]), **asked)  # type: ignore[arg-type]
    assert unsent.judgement is INCONCLUSIVE
    late = replace(DELIVERED.evidence([leaves, arrives, answers]), sentinels=())
    assert expecting(DELIVERED, late, **asked).judgement is INCONCLUSIVE  # type: ignore[arg-type]


def test_a_backend_that_answers_nothing_is_shown_by_the_arrival_and_sentinel_packets() -> None:
    leaves, arrives, answers, hears = DELIVERED.round_trip(0, "echo-1")
    asked = {"key": "reply", "reply": Reply.NONE}
    silent = expecting(DELIVERED, DELIVERED.evidence([leaves, arrives]), **asked)  # type: ignore[arg-type]
    assert (silent.judgement, silent.expected) == (PASS, "none")
    for seen in ([leaves, arrives, answers], [leaves, arrives, answers, hears]):
        assert expecting(DELIVERED, DELIVERED.evidence(seen), **asked).judgement is FAIL  # type: ignore[arg-type]
    late = replace(DELIVERED.evidence([leaves, arrives]), sentinels=())
    assert expecting(DELIVERED, late, **asked).judgement is INCONCLUSIVE  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("error", "dropped", "judgement"),
    [("timeout", 0, FAIL), ("timeout", 1, INCONCLUSIVE), ("ECONNRESET", 0, FAIL), ("ECONNRESET", 1, INCONCLUSIVE)],
)
def test_data_without_an_answer_fails_unless_a_link_dropped_packets_meanwhile(
    error: str, dropped: int, judgement: object
) -> None:
    link = LinkCount(link="client", outward=True, netem="loss 10%", dropped=dropped, copies=False, behind=())
    told = CONNECTED.evidence(CONNECTED.round_trip(0, "echo-1"), connects=(CONNECTED.failed(0, error),), links=(link,))
    assert one(CONNECTED, told, "reply").judgement is judgement
