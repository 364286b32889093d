"""The record of a dialogue, where a proxy has loaded its rules meanwhile."""

import pytest

from proxylab.evidence.evidence import RuleCount
from proxylab.evidence.segments import DialogueRecord
from proxylab.plan.dialogue import client

DROP = RuleCount("node-a", "filter", "KUBE-FORWARD", "-m conntrack --ctstate INVALID -j DROP", 1)


def record(*uncounted: str) -> DialogueRecord:
    return DialogueRecord("client", "echo", (client("SYN"),), (), counts=(DROP,), uncounted=uncounted)


def test_it_counts_what_rules_with_these_words_counted() -> None:
    assert record().packets_counted_by("--ctstate INVALID") == 1


def test_incomplete_counters_cannot_be_asked() -> None:
    with pytest.raises(LookupError, match="the rule counters of node-a and node-b are incomplete"):
        record("node-a", "node-b").packets_counted_by("--ctstate INVALID")


def test_incomplete_counters_cast_no_doubt_on_what_the_taps_saw() -> None:
    assert not record("node-b").doubts
