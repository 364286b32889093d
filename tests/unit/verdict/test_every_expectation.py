"""The judge: a verdict for every expectation, and doubts that weigh on all."""

import pytest
from golden_words import Told
from judging import CONNECTED, DELIVERED, DROPPED, FAIL, dropped_evidence, judged, one
from msgspec.structs import replace
from recorded import World

from proxylab.encoding import decode, encode
from proxylab.errors import InternalError
from proxylab.scenario.expect import Expect, Preserved
from proxylab.scenario.keys import declared_keys
from proxylab.scenario.steps import StreamExpect
from proxylab.scenario.words import Outcome
from proxylab.verdict.expectations.table import OF_PROBES, OF_STREAMS
from proxylab.verdict.judge import judge
from proxylab.verdict.model import ProbeVerdict, expectations


def test_expectations_about_pods_where_no_pod_is_reached_are_an_error(told: Told) -> None:
    world = replace(DROPPED, source=Preserved(), backends=("echo-1",))
    verdict = judged(world, dropped_evidence(world))
    assert verdict.overall is FAIL
    assert one(world, dropped_evidence(world), "source").reasons == told()


def test_a_verdict_for_every_expectation_or_an_error() -> None:
    verdict = judged(DELIVERED, DELIVERED.evidence(DELIVERED.round_trip(0, "echo-1")))
    with pytest.raises(InternalError, match="the judge gave no verdict on source"):
        replace(verdict, verdicts=verdict.verdicts[:-1])


def test_what_was_not_seen_to_leave_a_node_is_not_untranslated() -> None:
    world = World(outcome=Outcome.UNTRANSLATED)
    assert judged(world, world.evidence([world.leaves(0)])).overall is FAIL


def test_a_refused_send_excuses_no_packet_that_no_tap_saw_leave(told: Told) -> None:
    evidence = DELIVERED.evidence(DELIVERED.round_trip(0, "echo-1")[1:], sent=0, refused_sends=("EPERM",))
    assert one(DELIVERED, evidence, "outcome").reasons == told()


def test_a_verdict_carried_elsewhere_is_judged_again_the_same() -> None:
    evidence = CONNECTED.evidence(CONNECTED.round_trip(0, "echo-1"), connects=(CONNECTED.report(0, "echo-1"),))
    verdict = judged(CONNECTED, evidence)
    carried = decode(encode(verdict), ProbeVerdict)
    assert carried == verdict
    assert judge(carried.probe, carried.resolved, None, carried.evidence) == verdict


def test_every_key_of_the_format_has_its_row_in_the_order_of_judging() -> None:
    not_judged = {"position", "positions", "proves", "follows", "either", "undecided"}
    assert {each.key for each in OF_PROBES} == {*Expect.__struct_fields__, "name", "endpoint"} - not_judged
    keys_of_streams = [key.alias for key in declared_keys(StreamExpect)]
    assert [each.key for each in OF_STREAMS] == [*keys_of_streams, "endpoint", "whole"]


@pytest.mark.parametrize("undecided", ["", "the promises leave it open"])
def test_what_a_probe_proves_has_no_verdict(undecided: str) -> None:
    expect = replace(DELIVERED.probe.expect, undecided=undecided)
    assert "proves" not in expectations(replace(expect, proves=("a/promise",)))
    assert expectations(replace(expect, proves=("a/promise",))) == expectations(expect)
