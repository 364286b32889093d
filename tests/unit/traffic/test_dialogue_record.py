"""The record of a dialogue, where a proxy has loaded its rules meanwhile."""

from ipaddress import ip_address

import pytest

from proxylab.evidence.evidence import RuleCount
from proxylab.evidence.segments import DialogueRecord, TcpSegment
from proxylab.plan.dialogue import client

CLIENT, SERVER = ip_address("10.0.0.1"), ip_address("10.0.0.2")
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


def test_each_turn_is_told_with_the_segments_of_that_turn() -> None:
    def segment(turn: int, netns_name: str, source_port: int) -> TcpSegment:
        return TcpSegment(turn, netns_name, "eth0", True, CLIENT, source_port, SERVER, 80, 2, 0, 0, "", turn)

    told = DialogueRecord(
        "client", "echo", (client("SYN"), client("ACK"), client("FIN")), (segment(1, "client", 1), segment(2, "pod", 2))
    )
    lines = list(told.lines())
    first, second, third = (
        next(at for at, line in enumerate(lines) if line.startswith(f"{turn}.")) for turn in (1, 2, 3)
    )
    assert "10.0.0.1:1" in "".join(lines[first:second])
    assert "10.0.0.1:2" not in "".join(lines[first:second])
    assert "10.0.0.1:2" in "".join(lines[second:third])
    assert "10.0.0.1:1" not in "".join(lines[second:third])
    assert lines[third + 1 :] == ["   no tap saw it"]
