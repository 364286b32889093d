"""Drops by a node's stack: which counter is the witness, what it says, and whether that explains the drop."""

import pytest
from golden_words import Told
from msgspec.structs import replace
from recorded import World

from proxylab.evidence.evidence import ForeignRule, KernelCount, RuleCount
from proxylab.verdict.drops import KernelDrop, drop_at, dropped_with_sentinels, kernel_drop

WORLD = World()
BY_IPSEC = "node-a dropped the packet by its IPsec policy on the way out: XfrmOutPolBlock counted 1 packet"


def drop(world: World = WORLD, **counters: int) -> KernelDrop | None:
    kernel = tuple(KernelCount("node-a", name, packets) for name, packets in sorted(counters.items()))
    return kernel_drop(world.resolved, world.evidence([], kernel=kernel, metered_nodes=("node-a",)), 1, {"node-a"})


def test_ipsec_is_named_before_what_the_ip_layer_says_of_the_same_packet() -> None:
    found = drop(replace(WORLD, ipv6=True), Ip6InReceives=1, Ip6InDiscards=1, XfrmOutPolBlock=1)
    assert str(found) == BY_IPSEC


@pytest.mark.parametrize(
    ("counter", "is_known"),
    [
        ("IpInHdrErrors", False),
        ("IpExtInTruncatedPkts", False),
        ("XfrmOutNoStates", False),
        ("XfrmInStateExpired", False),
        ("IpInAddrErrors", True),
        ("TcpExtIPReversePathFilter", True),
    ],
)
def test_a_counter_that_others_may_move_explains_nothing(counter: str, is_known: bool) -> None:
    found = drop(IpInReceives=1, **{counter: 1})
    assert found is not None
    assert (found.counter, found.is_known) == (counter, is_known)


def test_what_ipv6_discards_has_several_reasons(told: Told) -> None:
    found = drop(replace(WORLD, ipv6=True), Ip6InReceives=1, Ip6InDiscards=1)
    assert found is not None
    assert (found.by, found.is_known) == (told(), False)


def test_without_a_counter_routing_is_not_the_only_one_that_may_have_dropped(told: Told) -> None:
    found = drop(IpInReceives=1)
    assert found is not None
    assert (found.by, found.is_known) == (told(), False)


@pytest.mark.parametrize(
    ("others", "is_witness"),
    [
        ({"IcmpOutDestUnreachs": 1}, True),
        pytest.param({}, False, id="a fragment was dropped on its way out"),
    ],
)
def test_a_packet_was_too_large_only_if_the_stack_says_so_by_icmp(others: dict[str, int], is_witness: bool) -> None:
    assert (drop(IpInReceives=1, IpForwDatagrams=1, IpFragFails=1, **others) is not None) is is_witness


def test_what_a_node_accepted_was_not_dropped_because_its_answer_cannot_leave() -> None:
    assert drop(IpOutNoRoutes=1) is not None
    assert drop(IpInReceives=1, IpInDelivers=1, IpOutNoRoutes=1) is None


@pytest.mark.parametrize("ipv6", [False, True])
@pytest.mark.parametrize("text", ["", "ip ttl set 1", "ip6 hoplimit set 1"])
def test_a_packet_without_hops_is_explained_unless_a_rule_may_have_taken_them(ipv6: bool, text: str) -> None:
    world = replace(WORLD, ipv6=ipv6)
    names = ("Ip6InHdrErrors", "Icmp6OutTimeExcds") if ipv6 else ("IpInHdrErrors", "IcmpOutTimeExcds")
    kernel = tuple(KernelCount("node-a", name, 1) for name in names)
    foreign = (ForeignRule("node-a", "ip filter", "x", "prerouting", -300, text, 1),) if text else ()
    evidence = world.evidence([], kernel=kernel, metered_nodes=("node-a",), foreign=foreign)
    found = kernel_drop(world.resolved, evidence, 1, {"node-a"})
    assert found is not None
    assert found.is_known is not bool(text)


@pytest.mark.parametrize("packets", [1, 2, 3, 5])
@pytest.mark.parametrize("counter", ["IpInAddrErrors", "TcpExtIPReversePathFilter", "IpInReceives", "XfrmInNoPols"])
def test_a_counter_is_a_witness_of_exactly_as_many_packets(counter: str, packets: int) -> None:
    """One with more counted others too, and of those at most one fewer may be the probe's."""
    kernel = (KernelCount("node-a", counter, packets),)
    evidence = WORLD.evidence([], kernel=kernel, metered_nodes=("node-a",))
    found = kernel_drop(WORLD.resolved, evidence, 2, {"node-a"})
    assert (found is not None) is (packets == 2)


@pytest.mark.parametrize("packets", [1, 2, 3])
def test_a_counter_of_a_pod_is_a_witness_of_exactly_as_many_packets(packets: int) -> None:
    evidence = WORLD.evidence([], kernel=(KernelCount("echo-1", "IpInAddrErrors", packets),))
    assert (drop_at(WORLD.resolved, evidence, "echo-1", 2, None) is not None) is (packets == 2)


POLICY = "-P FORWARD DROP"


@pytest.mark.parametrize("counted", [1, 2, 3, 4])
@pytest.mark.parametrize("silent", [0, 1])
def test_a_policy_drops_the_packets_and_each_sentinel_packet_that_did_not_come_back(counted: int, silent: int) -> None:
    sentinels = tuple(replace(each, answered=number >= silent) for number, each in enumerate(WORLD.sentinels))
    others = RuleCount("node-a", "filter", "KUBE-FORWARD", "-A KUBE-FORWARD -j ACCEPT", 2 + silent)
    counts = (others, RuleCount("node-a", "filter", "FORWARD", POLICY, counted), replace(others, packets=1))
    evidence = WORLD.evidence([], sentinels=sentinels, counts=counts)
    assert dropped_with_sentinels(evidence, 2, {"node-a"}) is (counted == 2 + silent)
    assert not dropped_with_sentinels(evidence, 2, {"node-b"})
    assert not dropped_with_sentinels(evidence, 2, {"node-a", "node-b"})
    assert not dropped_with_sentinels(evidence, 0, {"node-a"})


def test_a_rule_of_another_node_does_not_hide_what_routing_dropped() -> None:
    for node, is_witness in (("node-a", False), ("node-b", True)):
        for text in (POLICY, "-A FORWARD -p tcp -j DROP", "-A FORWARD -p tcp -j REJECT"):
            counts = (RuleCount(node, "filter", "FORWARD", text, 1),)
            kernel = (KernelCount("node-a", "IpInReceives", 1),)
            evidence = WORLD.evidence([], kernel=kernel, counts=counts, metered_nodes=("node-a", "node-b"))
            assert (kernel_drop(WORLD.resolved, evidence, 1, {"node-a"}) is not None) is is_witness
