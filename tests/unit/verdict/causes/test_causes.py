"""Causes that need more than the counters of one probe, from recorded evidence."""

from ipaddress import ip_address

import pytest
from msgspec.structs import replace
from recorded import World

from proxylab.addresses import IPAddress
from proxylab.evidence.evidence import Evidence, RuleCount, TrackedFlow
from proxylab.scenario.expect import Preserved
from proxylab.verdict.case import open_case
from proxylab.verdict.causes.table import cause
from proxylab.verdict.counted_rules import read
from proxylab.verdict.judge import judge
from proxylab.verdict.rule_words import why_masqueraded

WORLD = World(backends=("echo-2",), source=Preserved())
NODE_A = ip_address("172.18.0.2")


def why(world: World, evidence: Evidence, expectation: str, source: IPAddress | None = None) -> str:
    verdict = judge(world.probe, world.resolved, source, evidence)
    case = open_case(world.probe, world.resolved, evidence)
    (wanted,) = [each for each in verdict.verdicts if each.expectation == expectation]
    return cause(case, wanted)


def test_conntrack_is_the_cause_where_it_sends_what_no_rule_does() -> None:
    tracked = TrackedFlow(0, "node-a", WORLD.address("echo-1"), 8080, *WORLD.client(0))
    evidence = WORLD.evidence(WORLD.round_trip(0, "echo-1"), tracked=(tracked,), counted=("node-a",))
    assert why(WORLD, evidence, "backends") == (
        "conntrack on node-a sent the flow to echo-1 (10.244.2.3:8080) by an older entry: no DNAT rule to "
        "that address counted it."
    )


def test_a_rule_is_the_cause_where_it_counted_what_conntrack_holds() -> None:
    tracked = TrackedFlow(0, "node-a", WORLD.address("echo-1"), 8080, *WORLD.client(0))
    counts = (WORLD.translated("echo-1"),)
    evidence = WORLD.evidence(WORLD.round_trip(0, "echo-1"), tracked=(tracked,), counted=("node-a",), counts=counts)
    assert why(WORLD, evidence, "backends").startswith("node-a sent the packet to echo-1 by ")


def test_a_mark_that_stays_masquerades_twice() -> None:
    world = replace(WORLD, backends=None)
    counts = (world.marked(), world.translated("echo-1"), world.masqueraded(2))
    evidence = world.evidence(world.round_trip(0, "echo-1", NODE_A), counts=counts)
    assert why(world, evidence, "source") == (
        "node-a masqueraded the packet, and then a packet with the same mark: no rule in KUBE-POSTROUTING cleared "
        "the mark."
    )


@pytest.mark.parametrize(
    ("test", "words"),
    [
        ("! -s 10.99.0.0/16", " because the client is not in 10.99.0.0/16, though it is a pod:"),
        ("! -i cali+", " because it did not come in by cali+, though it is a pod:"),
        ("-s 10.244.1.2/32", " because the client is the endpoint:"),
        ("! -s 10.244.0.0/16", ""),
    ],
)
def test_why_a_pod_is_masqueraded(test: str, words: str) -> None:
    rule = read(RuleCount("node-a", "nat", "KUBE-SVC-X", f"-A KUBE-SVC-X {test} -j KUBE-MARK-MASQ", 1))
    assert rule is not None
    assert why_masqueraded(rule, WORLD.resolved) == words


def test_a_client_outside_is_no_pod() -> None:
    outside = replace(WORLD, addresses={"debug": ip_address("203.0.113.10")})
    rule = read(RuleCount("node-a", "nat", "KUBE-SVC-X", "-A KUBE-SVC-X ! -s 10.244.0.0/16 -j KUBE-MARK-MASQ", 1))
    assert rule is not None
    assert why_masqueraded(rule, outside.resolved) == " because the client is not in 10.244.0.0/16:"
