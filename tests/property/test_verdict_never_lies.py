"""Over random evidence, the judge passes nothing that the definition forbids.

``forbidden`` defines the forbidden cases a second time.
"""

from itertools import product

import pytest
from forbidden import DIALLED, FORBIDDEN, NO_OUTCOME, PODS, at_pods, heard, untrustworthy
from hypothesis import event, given, settings
from msgspec.structs import replace
from random_evidence import CONNTRACK, HTTP, PLACES, answered, cases, entry, expected_story, tables
from recorded import World
from thoroughness import examples

from proxylab.evidence.evidence import Evidence, HttpReport, KernelCount, Packet
from proxylab.report.failure_text import explain
from proxylab.scenario.expect import ConntrackExpect, Entries, HttpExpect
from proxylab.scenario.words import Manner, Outcome
from proxylab.verdict.causes.table import why
from proxylab.verdict.judge import judge
from proxylab.verdict.model import Judgement, ProbeVerdict


@settings(max_examples=examples(150), deadline=None)
@given(cases())
def test_no_pass_that_the_definition_forbids(case: tuple[World, Evidence]) -> None:
    event(f"{case[0].outcome}: {hold(*case).overall}")


@pytest.mark.parametrize("flows", [1, 2])
def test_no_answer_by_http_and_no_table_passes_that_the_definition_forbids(flows: int) -> None:
    """The packets are as expected. The test tries all of the few other cases."""
    plain = World(pods=PODS, flows=flows, manner=Manner.CONNECT)
    whole = plain.evidence(
        [each for flow in range(flows) for each in plain.round_trip(flow, "echo-1")],
        connects=tuple(plain.report(flow, "echo-1") for flow in range(flows)),
    )
    for wanted, told in product(HTTP, answered(plain)):
        hold(replace(plain, http=wanted), replace(whole, http=told))
    for kept, entries in product(CONNTRACK, tables(plain)):
        hold(replace(plain, conntrack=kept), replace(whole, entries=entries))


def hold(world: World, evidence: Evidence) -> ProbeVerdict:
    """The verdict: it passes nothing forbidden, and gives a reason for everything else."""
    verdict = judge(world.probe, world.resolved, None, evidence)
    for each in verdict.verdicts:
        if each.judgement is not Judgement.PASS:
            assert each.reasons, f"{each.expectation} is {each.judgement} without a reason"
            continue
        forbidden = NO_OUTCOME[world.outcome] if each.expectation == "outcome" else FORBIDDEN[each.expectation]
        lies = [*untrustworthy(world, evidence), *forbidden(world, evidence)]
        assert not lies, f"{each.expectation} passed, but: {lies}"
    sentence = why(verdict)
    unproven = {Judgement.FAIL, Judgement.INCONCLUSIVE} & {each.judgement for each in verdict.verdicts}
    assert sentence.endswith(".") if unproven else not sentence, (
        "every failure and doubt has its sentence, and no pass has one"
    )
    return verdict


@settings(max_examples=examples(100), deadline=None)
@given(cases())
def test_a_reply_from_elsewhere_fails_whatever_else_is_in_doubt(case: tuple[World, Evidence]) -> None:
    world, evidence = case
    for each in judge(world.probe, world.resolved, None, evidence).verdicts:
        if each.expectation != "reply":
            continue
        astray = [
            flow
            for flow in range(world.flows)
            if at_pods(evidence, flow)
            and any((o.source, o.source_port) != DIALLED for o in heard(evidence, flow, Packet.REPLY))
        ]
        event(f"replies from elsewhere: {bool(astray)}")
        assert not astray or each.judgement is Judgement.FAIL


@settings(max_examples=examples(40), deadline=None)
@given(cases())
def test_every_verdict_can_be_explained_in_80_columns(case: tuple[World, Evidence]) -> None:
    world, evidence = case
    lines = explain(judge(world.probe, world.resolved, None, evidence))
    assert lines[0].startswith("scenarios/cluster-ip.lab.yaml:")
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize("manner", list(Manner))
@pytest.mark.parametrize("outcome", list(NO_OUTCOME))
def test_the_expected_stories_pass_when_nothing_goes_wrong(outcome: Outcome, manner: Manner) -> None:
    """The property above would hold for a judge that passes nothing."""
    for at in PLACES.get(outcome, (None,)):
        world = World(
            pods=PODS,
            flows=2,
            outcome=outcome,
            manner=manner,
            at=at,
            http=HttpExpect(status=200, local_endpoints=1),
            conntrack=ConntrackExpect(some=Entries(reply_from="echo-1"), none=Entries(masqueraded=True)),
        )
        told = [expected_story(world, flow) for flow in range(2)]
        said = [
            world.failed(flow, error) if error else world.report(flow, "echo-1") for flow, (_, error) in enumerate(told)
        ]
        counted = (world.dropped(2), world.rejected(2), world.translated("echo-1", 2))
        evidence = world.evidence(
            [each for seen, _ in told for each in seen],
            connects=tuple(said) if manner is Manner.CONNECT else (),
            counts=() if outcome is Outcome.UNTRANSLATED or at == "echo-1" else counted,
            metered_nodes=("node-a",),
            kernel=(KernelCount("echo-1", "IpInReceives", 2),) if at == "echo-1" else (),
            http=tuple(HttpReport(flow, 200, 1) for flow in range(2)),
            entries=tuple(entry(world, flow) for flow in range(2)),
        )
        assert judge(world.probe, world.resolved, None, evidence).overall is Judgement.PASS
