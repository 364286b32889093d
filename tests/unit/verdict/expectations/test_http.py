"""What HTTP answers report."""

import pytest
from judging import DELIVERED, FAIL, INCONCLUSIVE, PASS
from msgspec.structs import replace
from recorded import World

from proxylab.evidence.evidence import (
    Evidence,
    HttpReport,
)
from proxylab.scenario.expect import HttpExpect
from proxylab.scenario.words import Position
from proxylab.verdict.judge import judge
from proxylab.verdict.model import Judgement, Verdict


def expecting(world: World, evidence: Evidence, key: str, **expect: object) -> Verdict:
    positions = {each: Position("x", 1, 1) for each in ("outcome", *expect)}
    probe = replace(world.probe, expect=replace(world.probe.expect, positions=positions, **expect))  # type: ignore[arg-type]
    verdicts = judge(probe, world.resolved, None, evidence).verdicts
    return next(verdict for verdict in verdicts if verdict.expectation == key)


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
