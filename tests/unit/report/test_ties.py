"""Whom session affinity had tied to an endpoint: found by rules that counted every packet, and written as rules."""

import pytest
from recorded import World

from lab.report.reproduction.affinity import tied
from lab.verdict.evidence import RuleCount
from lab.verdict.judge import judge

WORLD = World(flows=2)
ASKS = "-A KUBE-SVC-X -m recent --rcheck --seconds 10800 --reap --name KUBE-SEP-1 --rsource -j KUBE-SEP-1"
OTHER = ASKS.replace("KUBE-SEP-1", "KUBE-SEP-2")
SETS = f"-A KUBE-SEP-1 -m recent --set --name KUBE-SEP-1 -j DNAT --to-destination {WORLD.address('echo-1')}:8080"
LOAD = ("node-a", "iptables-restore", ("*nat", SETS, OTHER, ASKS, "COMMIT"))


def loaded(*counted: int) -> tuple[str, ...]:
    flows = [each for flow in range(2) for each in WORLD.round_trip(flow, "echo-1")]
    counts = tuple(RuleCount("node-a", "nat", "KUBE-SVC-X", ASKS, packets) for packets in counted)
    ((_, _, lines),) = tied([LOAD], judge(WORLD.probe, WORLD.errand, None, WORLD.evidence(flows, counts=counts)))
    return lines


def test_who_was_in_a_list_with_its_first_packet_is_led_there_before_any_list_is_asked() -> None:
    lines = loaded(2)
    assert lines[2].startswith(f"-A KUBE-SVC-X -s {WORLD.client(0)[0]} -m comment ")
    assert lines[2].endswith(" -j KUBE-SEP-1")
    assert lines[:2] + lines[3:] == LOAD[2]


@pytest.mark.parametrize("counted", [(), (1,)])
def test_whose_first_packet_was_in_no_list_is_tied_to_nobody(counted: tuple[int, ...]) -> None:
    assert loaded(*counted) == LOAD[2]
