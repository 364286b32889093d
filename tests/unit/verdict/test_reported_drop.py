"""Which of the kernel's reported drops belongs to a traced packet, and where the report shows it."""

import pytest
from golden_words import Told
from msgspec.structs import replace
from recorded import World

from proxylab.evidence.evidence import DropReason, Evidence
from proxylab.scenario.words import Outcome
from proxylab.verdict.case import Case
from proxylab.verdict.causes.table import cause
from proxylab.verdict.drops import reason_words, reported_drop
from proxylab.verdict.judge import judge
from proxylab.verdict.model import Judgement

WORLD = World()
LEFT = 1_000_000
HELD = LEFT + 200_000
TOLD = DropReason(4, "IP_RPFILTER", LEFT + 60_000)


def traced(*drops: DropReason, counters_read_at: int = HELD) -> Evidence:
    return WORLD.evidence([replace(WORLD.leaves(0), at=LEFT)], drops=drops, counters_read_at=counters_read_at)


def test_it_is_the_first_after_the_packet_was_seen_last() -> None:
    before, later = DropReason(4, "NO_SOCKET", LEFT - 50_000), DropReason(4, "OTHERHOST", LEFT + 70_000)
    assert reported_drop(WORLD.resolved, traced(before, TOLD, later)) == TOLD


@pytest.mark.parametrize(
    ("drops", "counters_read_at"),
    [
        ((), HELD),
        ((TOLD,), 0),
        ((replace(TOLD, at=HELD + 1),), HELD),
        ((replace(TOLD, at=LEFT - 50_000),), HELD),
        ((replace(TOLD, version=6),), HELD),
    ],
    ids=["none is told", "nothing is missing", "after a sentinel packet", "before it left", "of IPv6"],
)
def test_a_drop_that_cannot_be_the_packets_is_not_told(drops: tuple[DropReason, ...], counters_read_at: int) -> None:
    assert reported_drop(WORLD.resolved, traced(*drops, counters_read_at=counters_read_at)) is None


def test_a_word_is_explained_where_its_meaning_is_known() -> None:
    assert reason_words(TOLD) == "IP_RPFILTER (reverse-path filter)"
    assert reason_words(replace(TOLD, reason="DUALPI2_STEP_DROP")) == "DUALPI2_STEP_DROP"


def why(evidence: Evidence, followed: Evidence | None) -> str:
    verdict = judge(WORLD.probe, WORLD.resolved, None, evidence)
    outcome = verdict.verdicts[0]
    assert outcome.judgement is Judgement.FAIL
    return cause(Case(WORLD.probe, WORLD.resolved, evidence), outcome, None, followed)


def test_where_nothing_else_names_a_cause_the_kernels_word_does(told: Told) -> None:
    lost = WORLD.evidence([WORLD.leaves(0)])
    assert why(lost, traced()) == ""
    assert why(lost, traced(TOLD)) == told()


def test_no_verdict_rests_on_it() -> None:
    """Not even where the author expects a drop and the kernel reported one during the probe."""
    world = World(outcome=Outcome.DROPPED)
    verdict = judge(world.probe, world.resolved, None, traced(TOLD))
    assert verdict.verdicts == judge(world.probe, world.resolved, None, traced()).verdicts
    assert verdict.overall is Judgement.INCONCLUSIVE
