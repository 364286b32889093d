"""Probes that the promises judge: by one of several results, by none, and with the rows behind each expectation."""

import pytest
from golden_words import Told
from judging import DELIVERED, DROPPED, FAIL, INCONCLUSIVE, PASS, REJECTED, dropped_evidence, judged
from msgspec.structs import replace
from recorded import World

from proxylab.evidence.evidence import Evidence
from proxylab.scenario.expect import PROMISED, Backend, Expect
from proxylab.scenario.words import IcmpError, Outcome
from proxylab.verdict.judge import judge
from proxylab.verdict.model import ProbeVerdict


def judged_by(world: World, evidence: Evidence, expect: Expect) -> ProbeVerdict:
    verdict = judged(world, evidence)
    return judge(replace(verdict.probe, expect=expect), verdict.resolved, None, evidence)


def either() -> Expect:
    """Rejected or dropped, as behind source ranges without an endpoint."""
    dropped = Expect(outcome=Outcome.DROPPED, position=PROMISED.position)
    return replace(dropped, outcome=Outcome.REJECTED, either=(dropped,))


def test_one_of_several_results_is_enough_and_judging_again_says_the_same() -> None:
    verdict = judged_by(DROPPED, dropped_evidence(DROPPED), either())
    assert verdict.overall is PASS
    assert verdict.verdicts[0].expected == "rejected or dropped"
    kept = verdict.probe.expect
    assert {kept.outcome, *(each.outcome for each in kept.either)} == {Outcome.REJECTED, Outcome.DROPPED}
    again = judge(verdict.probe, verdict.resolved, None, verdict.evidence)
    assert (again.probe, again.verdicts) == (verdict.probe, verdict.verdicts)


def test_each_result_may_have_keys_of_its_own() -> None:
    expect = replace(either(), icmp=IcmpError.PORT_UNREACHABLE)
    assert judged_by(DROPPED, dropped_evidence(DROPPED), expect).overall is PASS


def test_a_result_beside_the_set_fails() -> None:
    verdict = judged_by(DELIVERED, DELIVERED.evidence(DELIVERED.round_trip(0, "echo-1")), either())
    assert verdict.overall is FAIL
    assert verdict.verdicts[0].expected == "rejected or dropped"


def test_without_a_promise_nothing_passes_and_the_reason_is_said(told: Told) -> None:
    evidence = DELIVERED.evidence(DELIVERED.round_trip(0, "echo-1"))
    verdict = judged_by(DELIVERED, evidence, replace(PROMISED, undecided="an Ingress controller answers"))
    assert verdict.overall is INCONCLUSIVE
    (only,) = verdict.verdicts
    assert (only.expectation, only.observed) == ("also", "delivered")
    (reason,) = only.reasons
    assert reason == told()


def test_without_a_promise_the_keys_of_the_author_are_judged_all_the_same() -> None:
    evidence = DELIVERED.evidence(DELIVERED.round_trip(0, "echo-1"))
    here = PROMISED.position
    written = replace(PROMISED, outcome=Outcome.DROPPED, positions={"outcome": here}, undecided="it is open")
    verdict = judged_by(DELIVERED, evidence, written)
    assert [(each.expectation, each.judgement) for each in verdict.verdicts] == [
        ("outcome", FAIL),
        ("also", INCONCLUSIVE),
    ]


def test_each_verdict_has_the_rows_from_which_it_follows() -> None:
    evidence = DELIVERED.evidence(DELIVERED.round_trip(0, "echo-1"))
    rows = {"outcome": ("frontend-clusterIP",), "backends": ("ready-endpoints",)}
    expect = replace(judged(DELIVERED, evidence).probe.expect, backends=(Backend("echo-1"),), follows=rows)
    found = {each.expectation: each.follows for each in judged_by(DELIVERED, evidence, expect).verdicts}
    assert found == {"outcome": ("frontend-clusterIP",), "reply": (), "backends": ("ready-endpoints",), "source": ()}


@pytest.mark.parametrize(("promised", "judgement"), [(True, PASS), (False, INCONCLUSIVE)])
def test_no_promise_says_that_few_flows_reach_every_endpoint(promised: bool, judgement: object) -> None:
    evidence = DELIVERED.evidence(DELIVERED.round_trip(0, "echo-1"))
    both = (Backend("echo-1"), Backend("echo-2"))
    follows = {"backends": ("ready-endpoints",)} if promised else {}
    expect = replace(judged(DELIVERED, evidence).probe.expect, backends=both, follows=follows)
    assert judged_by(DELIVERED, evidence, expect).overall is judgement


def test_a_rejected_flow_is_not_dropped() -> None:
    assert judged_by(REJECTED, dropped_evidence(DROPPED), replace(either(), either=())).overall is FAIL
