"""Upstream's own table of which endpoints a node uses: the 32 cases of ``TestCategorizeEndpoints``, typed in as data.

The source is https://github.com/kubernetes/kubernetes/blob/v1.37.2/pkg/proxy/topology_test.go; ``line`` is where the
case begins there. ``all_nodes`` are the endpoints that policy Cluster gives there, ``own_node`` those of policy Local;
``None`` where upstream does not ask.
"""

from dataclasses import dataclass
from ipaddress import ip_address

import pytest

from proxylab.cluster.configuration import Mode
from proxylab.cluster.objects import ZONE_LABEL, Endpoint, Node, Service
from proxylab.oracle.choice import Candidate, Choice, choose
from proxylab.oracle.setting import ProxySetting
from proxylab.scenario.versions import Version

HERE, AWAY = "here", "away"
READY, UNREADY = (True, True, False), (False, False, False)
TERMINATING = (False, True, True)

State = tuple[bool, bool, bool]
Given = tuple[int, State, str, str, str]
"""The last number of an address, its conditions, its node, and its hints for zones and nodes."""


def end(number: int, state: State = READY, *, at: str = AWAY, zones: str = "", nodes: str = "") -> Given:
    return number, state, at, zones, nodes


def zoned(**zones: str) -> tuple[Given, ...]:
    """Ready endpoints with hints for zones, by the last number of their addresses."""
    return tuple(end(int(number[1:]), zones=zone) for number, zone in zones.items())


def states(*given: tuple[State, str]) -> tuple[Given, ...]:
    """Endpoints 0, 1, … without hints, by their conditions and their nodes."""
    return tuple(end(number, state, at=at) for number, (state, at) in enumerate(given))


NODES = tuple(end(3 + number, zones=zone, nodes=f"node-{number + 1}") for number, zone in enumerate("abca"))


@dataclass(frozen=True)
class Case:
    line: int
    ends: tuple[Given, ...]
    all_nodes: set[int] | None
    own_node: set[int] | None = None
    zone: str = ""
    node: str = HERE
    version: Version = (1, 37)
    has_any: bool | None = None


MIXED = (
    end(3, zones="a", at=HERE),
    end(4, zones="b", at=HERE),
    end(5, zones="c"),
    end(6, zones="a"),
)

CASES = [
    Case(69, zoned(_3="a", _4="b", _5="c", _6="a"), {3, 6}, zone="a"),
    Case(81, MIXED, {3, 6}, {3, 4}, zone="a"),
    Case(94, MIXED, {3, 6}, {3, 4}, zone="a"),
    Case(107, zoned(_3="a"), {3}),
    Case(116, zoned(_3="a"), {3}, zone=""),
    Case(125, zoned(_3="a"), {3}, zone="b"),
    Case(134, (*zoned(_3="a", _4="b", _5="c"), end(6, UNREADY, zones="a")), {3}, zone="a"),
    Case(146, (end(3, UNREADY, zones="a"), *zoned(_4="b", _5="c"), end(6, UNREADY, zones="a")), {4, 5}, zone="a"),
    Case(158, zoned(_3="a", _4="b", _5="", _6="a"), {3, 4, 5, 6}, zone="a"),
    Case(170, zoned(_3="abc", _4="bc", _5="bd", _6="c"), {3, 4, 6}, zone="c"),
    Case(182, NODES, {3, 6}, zone="a", node="node-1", version=(1, 33)),
    Case(196, NODES, {3}, zone="a", node="node-1"),
    Case(210, (NODES[0], end(4), *NODES[2:]), {3, 4, 5, 6}, zone="a", node="node-1"),
    Case(224, NODES, {3, 6}, zone="a", node="node-0"),
    Case(
        238,
        (end(0, zones="a", at=HERE), end(1, zones="b", at=HERE), end(2, zones="a"), end(3, zones="b")),
        {0, 2},
        {0, 1},
        zone="a",
    ),
    Case(251, (), None, set(), has_any=False),
    Case(257, states((READY, AWAY), (READY, AWAY)), None, set(), has_any=True),
    Case(267, states((READY, HERE), (READY, HERE)), None, {0, 1}),
    Case(276, states((READY, HERE), (READY, AWAY)), None, {0}),
    Case(285, states((UNREADY, AWAY), (UNREADY, AWAY)), set(), has_any=False),
    Case(294, states((UNREADY, AWAY), (READY, AWAY)), {1}),
    Case(303, states((TERMINATING, HERE), (TERMINATING, AWAY)), {0, 1}),
    Case(312, states((READY, HERE), (READY, AWAY)), {0, 1}, {0}),
    Case(322, states((READY, HERE), (READY, AWAY)), {0, 1}, {0}),
    Case(332, states((READY, HERE), (READY, AWAY)), {0, 1}, {0}),
    Case(342, states((READY, AWAY), (READY, AWAY)), {0, 1}, set(), has_any=True),
    Case(352, states((TERMINATING, AWAY), (TERMINATING, AWAY)), {0, 1}, set(), has_any=True),
    Case(363, states((READY, AWAY), (UNREADY, HERE), (TERMINATING, HERE), (TERMINATING, AWAY)), {0}, {2}),
    Case(375, states((READY, AWAY), (READY, HERE)), {0, 1}),
    Case(385, states((READY, AWAY), (READY, HERE)), None, {1}),
    Case(395, (), set(), has_any=False),
    Case(402, states((UNREADY, AWAY)), set(), zone="a", has_any=False),
]


def _candidate(given: Given) -> Candidate:
    number, (ready, serving, terminating), at, zones, nodes = given
    made = Endpoint(
        addresses=(ip_address(f"10.1.2.{number}"),),
        ready=ready,
        serving=serving,
        terminating=terminating,
        node_name=at,
        for_zones=tuple(f"zone-{zone}" for zone in zones),
        for_nodes=(nodes,) if nodes else (),
    )
    return Candidate(made, 80)


def _chosen(case: Case, *, is_local: bool) -> Choice:
    setting = ProxySetting(mode=Mode.IPTABLES, version=case.version)
    candidates = tuple(map(_candidate, case.ends))
    zone = Node(name="n", labels={ZONE_LABEL: f"zone-{case.zone}" if case.zone else ""}).labels[ZONE_LABEL]
    return choose(Service(name="s"), candidates, setting, node=case.node, zone=zone, is_local=is_local)


def _numbers(choice: Choice) -> set[int]:
    return {int(each.address) & 0xFF for each in choice.chosen}


def test_all_of_upstreams_cases_are_here() -> None:
    assert len({case.line for case in CASES}) == 32


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"line-{case.line}")
def test_a_node_uses_the_endpoints_of_upstreams_table(case: Case) -> None:
    asked: list[Choice] = []
    if case.all_nodes is not None:
        asked.append(_chosen(case, is_local=False))
        assert _numbers(asked[-1]) == case.all_nodes
    if case.own_node is not None:
        asked.append(_chosen(case, is_local=True))
        assert _numbers(asked[-1]) == case.own_node
    if case.has_any is not None:
        assert any(each.chosen or each.is_elsewhere for each in asked) is case.has_any
