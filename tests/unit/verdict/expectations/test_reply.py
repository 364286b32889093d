"""Whether the reply came back, and from where."""

from judging import DELIVERED, FAIL, PASS, one
from msgspec.structs import replace
from recorded import World

from proxylab.evidence.evidence import (
    Evidence,
)
from proxylab.scenario.model import (
    Position,
    Reply,
)
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
