"""Silence after an answer that came into a node is proven by a counter there that accounts for every such packet."""

import pytest
from judging import DELIVERED, FAIL, INCONCLUSIVE, one
from msgspec.structs import replace

from proxylab.evidence.evidence import (
    Direction,
    Evidence,
    ForeignRule,
    KernelCount,
    Observation,
    Packet,
    SentinelReport,
)
from proxylab.verdict.model import Judgement

READ = 1_000_000_000
"""When the lab read the counters. A kernel sends an unanswered SYN-ACK again after a second."""


def answered_in_vain(*again: int) -> list[Observation]:
    """A flow whose answer came into node-a and did not leave it, and came again at these times."""
    *seen, _left, _heard = DELIVERED.crossing(0, "echo-1")
    assert (seen[-1].netns_name, seen[-1].direction) == ("node-a", Direction.IN)
    answers = [each for each in seen if each.packet is Packet.REPLY]
    return [*seen, *(replace(each, at=at + step) for at in again for step, each in enumerate(answers))]


def evidence(seen: list[Observation], *, read_until: int = READ, **changes: object) -> Evidence:
    silent = (SentinelReport("echo-1", answered=False),)
    return DELIVERED.evidence(seen, sentinels=silent, counters_read_at=READ, foreign_read_at=read_until, **changes)


def rule(packets: int | None, node: str = "node-a") -> ForeignRule:
    return ForeignRule(node, "raw", "PREROUTING", "prerouting", -300, "-A PREROUTING -j DROP", packets)


@pytest.mark.parametrize(
    ("foreign", "judgement"),
    [
        (rule(1), FAIL),
        (rule(2), INCONCLUSIVE),
        (rule(0), INCONCLUSIVE),
        (rule(None), INCONCLUSIVE),
        (rule(1, "node-b"), INCONCLUSIVE),
    ],
)
def test_a_foreign_rule_that_counted_each_answer_proves_that_none_is_late(
    foreign: ForeignRule, judgement: Judgement
) -> None:
    verdict = one(DELIVERED, evidence(answered_in_vain(), foreign=(foreign,)), "reply")
    assert verdict.judgement is judgement


def test_answers_sent_again_after_the_reading_do_not_count() -> None:
    again = answered_in_vain(READ + 500, READ + 900)
    assert one(DELIVERED, evidence(again, foreign=(rule(1),)), "reply").judgement is FAIL
    assert one(DELIVERED, evidence(again, foreign=(rule(3),)), "reply").judgement is INCONCLUSIVE
    meanwhile = evidence(again, read_until=READ + 600, foreign=(rule(2),))
    assert one(DELIVERED, meanwhile, "reply").judgement is FAIL, "one came while the lab read the counters"


@pytest.mark.parametrize(
    ("counter", "packets", "judgement"),
    [
        ("IpInAddrErrors", 1, FAIL),
        ("IpInAddrErrors", 2, INCONCLUSIVE),
        ("IpInReceives", 1, INCONCLUSIVE),
        ("Ip6InAddrErrors", 1, INCONCLUSIVE),
    ],
)
def test_a_stack_that_counted_each_answer_as_dropped_proves_it(
    counter: str, packets: int, judgement: Judgement
) -> None:
    counted = (KernelCount("node-a", counter, packets),)
    assert one(DELIVERED, evidence(answered_in_vain(), kernel=counted), "reply").judgement is judgement
