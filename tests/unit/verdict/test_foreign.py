"""Foreign rules, which belong to no engine: verdicts, and the sentences that name a cause."""

import pytest
from golden_words import Told
from judging import DROPPED, FAIL, INCONCLUSIVE, PASS, REJECTED, judged, one
from msgspec.structs import replace
from recorded import World

from proxylab.evidence.evidence import Direction, Evidence, ForeignRule, KernelCount, Packet, RuleCount
from proxylab.evidence.ipvs import VIRTUAL_SERVERS
from proxylab.plan.resolved import STACK, ResolvedProbe
from proxylab.rules.effects import (
    CHANGING_HOPS,
    ENDING,
    EXEMPTING,
    MARKING,
    REJECTING,
    RESETTING,
    REWRITING,
    Effects,
)
from proxylab.scenario.words import Outcome
from proxylab.verdict.causes.table import why
from proxylab.verdict.drops import policy_drop
from proxylab.verdict.foreign import ended_by, may_have, may_meet
from proxylab.verdict.judge import judge

WORLD = World()
ROUTED = (KernelCount("node-a", "IpInReceives", 1),)
GUARD = ForeignRule("node-a", "inet guard", "early", "prerouting", -500, "tcp dport 80 drop", None)
WORDS = 'the rule "tcp dport 80 drop" in chain early (hook prerouting, priority -500) of table inet guard'


def lost(world: World, *foreign: ForeignRule, **changes: object) -> Evidence:
    """The flow came in at node-a, and its stack counted it only as received."""
    seen = replace(world.leaves(0), netns_name="node-a", device="debug", direction=Direction.IN, at=1001)
    told = world.evidence(
        [world.leaves(0), seen], kernel=ROUTED, counters_read_at=2000, foreign=foreign, metered_nodes=("node-a",)
    )
    return replace(told, **changes)  # type: ignore[arg-type]


def cause(world: World, evidence: Evidence) -> str:
    return why(judged(world, evidence))


@pytest.mark.parametrize(
    "foreign",
    [
        (),
        (replace(GUARD, packets=0),),
        (replace(GUARD, text="tcp dport 80 accept"),),
        (replace(GUARD, node="node-b"),),
    ],
    ids=["none", "counted nothing", "drops nothing", "another node"],
)
def test_routing_is_named_where_no_foreign_rule_may_have_dropped(foreign: tuple[ForeignRule, ...], told: Told) -> None:
    observed = one(DROPPED, lost(DROPPED, *foreign), "outcome").observed
    assert observed == told()
    assert judged(DROPPED, lost(DROPPED, *foreign)).overall is PASS
    assert "by its routing" in cause(WORLD, lost(WORLD, *foreign))


@pytest.mark.parametrize(
    "text",
    [
        "tcp dport 80 drop",
        "tcp dport vmap @fate",
        "tcp dport 80 reject with tcp reset",
        "queue to 1",
        "policy drop",
        "-A PREROUTING -p tcp -j DROP",
        "-A PREROUTING -p tcp -j NFQUEUE --queue-num 1",
        "-P FORWARD DROP",
        "",
    ],
)
@pytest.mark.parametrize("at", [None, "node-a"])
def test_a_drop_that_a_foreign_rule_may_have_made_passes_for_none(text: str, at: str | None) -> None:
    world = replace(DROPPED, at=at)
    told = lost(world, replace(GUARD, text=text))
    assert one(world, told, "outcome").judgement is INCONCLUSIVE
    assert any("which belongs to no engine" in reason for reason in one(world, told, "outcome").reasons)
    assert "by its routing" not in cause(WORLD, lost(WORLD, replace(GUARD, text=text)))


def test_a_foreign_rule_that_counted_every_packet_is_the_cause_and_proves_silence() -> None:
    counted = replace(GUARD, text="tcp dport 80 counter drop", packets=1)
    broken = tuple(replace(sentinel, answered=False) for sentinel in WORLD.sentinels)
    told = lost(WORLD, counted, sentinels=broken)
    assert one(WORLD, told, "outcome").judgement is FAIL
    assert cause(WORLD, told) == (
        f"node-a dropped the packet by {WORDS.replace('80 drop', '80 counter drop')}, which belongs to no engine "
        f"and counted 1 packet."
    )
    assert one(WORLD, lost(WORLD, GUARD, sentinels=broken), "outcome").judgement is INCONCLUSIVE


def test_a_foreign_rule_without_a_counter_may_have_done_it_and_is_said_to_have_no_more(told: Told) -> None:
    assert cause(WORLD, lost(WORLD, GUARD)) == told()


def test_a_rule_of_the_service_that_counted_is_proof_beside_foreign_rules() -> None:
    told = lost(DROPPED, GUARD, counts=(DROPPED.dropped(),))
    assert judged(DROPPED, told).overall is PASS


def test_a_rule_that_counted_other_traffic_too_is_no_proof_beside_foreign_rules() -> None:
    counts = (DROPPED.dropped(5),)
    assert one(DROPPED, lost(DROPPED, counts=counts), "outcome").judgement is PASS
    assert one(DROPPED, lost(DROPPED, GUARD, counts=counts), "outcome").judgement is INCONCLUSIVE


@pytest.mark.parametrize(("counted", "judgement"), [(1, PASS), (2, INCONCLUSIVE)])
def test_a_rule_of_the_service_that_counted_the_packet_proves_its_loss_without_sentinel_packets(
    counted: int, judgement: object
) -> None:
    broken = tuple(replace(sentinel, answered=False) for sentinel in DROPPED.sentinels)
    told = lost(DROPPED, counts=(DROPPED.dropped(counted),), kernel=(), sentinels=broken)
    assert one(DROPPED, told, "outcome").judgement is judgement


@pytest.mark.parametrize(("packets", "judgement"), [((2,), PASS), ((1, 1), PASS), ((1,), INCONCLUSIVE)])
def test_rules_that_counted_all_packets_together_prove_their_loss_without_sentinel_packets(
    packets: tuple[int, ...], judgement: object
) -> None:
    world = replace(DROPPED, flows=2)
    left = [world.leaves(flow) for flow in range(2)]
    came = [replace(each, netns_name="node-a", device="debug", direction=Direction.IN, at=2000) for each in left]
    counts = tuple(replace(world.dropped(each), chain=f"KUBE-{number}") for number, each in enumerate(packets))
    broken = tuple(replace(sentinel, answered=False) for sentinel in world.sentinels)
    evidence = world.evidence([*left, *came], counts=counts, sentinels=broken)
    assert one(world, evidence, "outcome").judgement is judgement


def test_what_a_rule_rejected_is_not_named_as_discarded_by_the_stack() -> None:
    discarded = (KernelCount("node-a", "IpOutDiscards", 1),)
    assert "on the way out: IpOutDiscards" in cause(WORLD, lost(WORLD, kernel=discarded))
    sentence = cause(WORLD, lost(WORLD, kernel=discarded, counts=(WORLD.rejected(),)))
    assert sentence.startswith("node-a rejected the packet by its rule")
    assert sentence.endswith("in KUBE-SERVICES, and the ICMP error did not reach debug.")


def test_routing_is_not_named_beside_a_rule_of_nftables_that_dropped() -> None:
    rule = RuleCount("node-a", "kube-proxy", "filter", "ip daddr 10.0.0.1 drop", 1, "DROP")
    assert "by its routing" not in cause(WORLD, lost(WORLD, counts=(rule,)))


def test_what_left_the_node_was_dropped_by_none_of_its_rules() -> None:
    gone = replace(DROPPED.leaves(0), netns_name="node-a", device="eth0", direction=Direction.OUT, at=1002)
    told = lost(DROPPED, GUARD, kernel=())
    told = replace(told, observations=(*told.observations, gone))
    assert one(DROPPED, told, "outcome").judgement is PASS


@pytest.mark.parametrize(
    ("rule", "judgement"),
    [
        (ForeignRule("node-a", "nat", "PREROUTING", "", 0, "-A PREROUTING -p tcp -j ACCEPT", 1), INCONCLUSIVE),
        (ForeignRule("node-b", "nat", "PREROUTING", "", 0, "-A PREROUTING -p tcp -j ACCEPT", 1), PASS),
        (replace(GUARD, text="tcp dport 80 queue to 1"), INCONCLUSIVE),
        (replace(GUARD, text="tcp dport 80 accept"), PASS),
    ],
    ids=["exempts it", "exempts it elsewhere", "takes it", "exempts nothing"],
)
def test_a_drop_on_the_next_node_is_doubted_where_a_rule_kept_the_packet_from_the_engine_of_the_first(
    rule: ForeignRule, judgement: object
) -> None:
    world = replace(DROPPED, at="node-b")
    left = replace(world.leaves(0), netns_name="node-a", device="eth0", direction=Direction.OUT, at=1002)
    came = replace(left, netns_name="node-b", direction=Direction.IN, at=1003)
    told = lost(world, rule, kernel=(), counts=(world.dropped(node="node-b"),), metered_nodes=("node-a", "node-b"))
    told = replace(told, observations=(*told.observations, left, came))
    resolved = replace(world.resolved, service_port="default/echo:tcp")
    verdict = next(each for each in judge(world.probe, resolved, None, told).verdicts if each.expectation == "outcome")
    assert verdict.judgement is judgement, verdict.reasons
    kept = [reason for reason in verdict.reasons if "may have kept it from the engine's rules" in reason]
    assert bool(kept) is (judgement is INCONCLUSIVE)


@pytest.mark.parametrize(
    ("at", "judgement"), [("node-b", PASS), ("node-b/eth0", PASS), ("node-a", FAIL), ("echo-1", FAIL)]
)
def test_a_refusal_is_where_its_reset_was_first_seen_to_leave(at: str, judgement: object) -> None:
    world = World(outcome=Outcome.REFUSED, at=at)
    reset = world.hears_reset(0)
    sent = replace(reset, netns_name="node-b", device="eth0", direction=Direction.OUT, at=reset.at - 1)
    told = world.evidence([world.leaves(0), sent, reset])
    assert one(world, told, "at").judgement is judgement


def test_a_reset_that_only_came_in_shows_no_place() -> None:
    world = World(outcome=Outcome.REFUSED, at="node-b")
    reset = world.hears_reset(0)
    came = replace(reset, netns_name="node-b", device="eth0", direction=Direction.IN, at=reset.at - 1)
    told = world.evidence([world.leaves(0), came, reset])
    assert one(world, told, "at").judgement is INCONCLUSIVE
    assert came.packet is Packet.RESET


def test_a_counter_of_a_node_that_the_packet_left_explains_no_loss() -> None:
    gone = replace(WORLD.leaves(0), netns_name="node-a", device="eth0", direction=Direction.OUT, at=1002)
    told = lost(WORLD, replace(GUARD, text="tcp dport 80 counter drop", packets=1))
    told = replace(told, observations=(*told.observations, gone))
    assert "node-a dropped the packet" not in cause(WORLD, told)


@pytest.mark.parametrize(
    ("counted", "node", "judgement"),
    [(2, "node-a", FAIL), (1, "node-a", INCONCLUSIVE), (3, "node-a", INCONCLUSIVE), (2, "node-b", INCONCLUSIVE)],
)
def test_a_policy_that_counted_the_packet_and_the_lost_sentinel_packet_proves_a_loss(
    counted: int, node: str, judgement: object
) -> None:
    told = lost(WORLD, kernel=())
    (first, *others) = told.sentinels
    policy = RuleCount(node, "filter", "FORWARD", "-P FORWARD DROP", counted)
    told = replace(told, sentinels=(replace(first, answered=False), *others), counts=(policy,))
    assert one(WORLD, told, "outcome").judgement is judgement


@pytest.mark.parametrize(
    ("counted", "node", "judgement"),
    [(2, "node-b", FAIL), (1, "node-b", INCONCLUSIVE), (3, "node-b", INCONCLUSIVE), (2, "node-a", INCONCLUSIVE)],
)
@pytest.mark.parametrize("target", ["DROP", "REJECT --reject-with icmp-port-unreachable"])
def test_a_rule_that_counted_the_answer_and_the_lost_sentinel_packet_proves_that_the_answer_is_lost(
    target: str, counted: int, node: str, judgement: object
) -> None:
    assert one(WORLD, ended_answer(target, counted, node), "reply").judgement is judgement


@pytest.mark.parametrize(
    ("target", "did"), [("DROP", "dropped"), ("REJECT --reject-with icmp-port-unreachable", "rejected")]
)
def test_the_rule_that_ended_the_answer_is_named(target: str, did: str) -> None:
    told = ended_answer(target, 2, "node-b")
    assert f"last at node-b/echo-1, which {did} 2 packets by its rule in KUBE-FORWARD." in cause(WORLD, told)


def ended_answer(target: str, counted: int, node: str) -> Evidence:
    """An answer seen last as it came to node-b, a sentinel packet without an answer, and a rule that counted."""
    came = replace(WORLD.answers(0, "echo-1"), netns_name="node-b", device="echo-1", direction=Direction.IN, at=1004)
    told = WORLD.evidence([WORLD.leaves(0), WORLD.arrives(0, "echo-1"), WORLD.answers(0, "echo-1"), came])
    (first, *others) = told.sentinels
    invalid = RuleCount(
        node, "filter", "KUBE-FORWARD", f"-A KUBE-FORWARD -m conntrack --ctstate INVALID -j {target}", counted
    )
    return replace(told, sentinels=(replace(first, answered=False), *others), counts=(invalid,))


def test_a_rule_proves_nothing_about_an_answer_that_left_its_node() -> None:
    left = replace(WORLD.answers(0, "echo-1"), netns_name="node-b", device="eth0", direction=Direction.OUT, at=1004)
    told = WORLD.evidence([WORLD.leaves(0), WORLD.arrives(0, "echo-1"), WORLD.answers(0, "echo-1"), left])
    (first, *others) = told.sentinels
    drop = RuleCount("node-b", "filter", "FORWARD", "-P FORWARD DROP", 2)
    told = replace(told, sentinels=(replace(first, answered=False), *others), counts=(drop,))
    assert one(WORLD, told, "reply").judgement is INCONCLUSIVE


def test_a_drop_by_ipsec_is_named() -> None:
    ipsec = KernelCount("node-a", "XfrmInPolBlock", 1)
    told = lost(DROPPED, kernel=(*ROUTED, ipsec))
    assert "its IPsec policy" in cause(WORLD, lost(WORLD, kernel=(*ROUTED, ipsec)))
    assert judged(DROPPED, told).overall is PASS, "a probe of no Service asks for no rule"


@pytest.mark.parametrize("dropped", [0, 5])
def test_what_a_queue_holds_a_sentinel_packet_may_have_overtaken(dropped: int, told: Told) -> None:
    queue = ForeignRule("node-a", "tc", "eth0", "egress", 0, "queue htb", dropped, waiting=1)
    found = one(WORLD, lost(WORLD, queue, kernel=()), "outcome")
    assert found.judgement is INCONCLUSIVE
    assert "; ".join(found.reasons) == told()
    assert one(WORLD, lost(WORLD, replace(queue, waiting=0), kernel=()), "outcome").judgement is FAIL


def test_a_drop_is_not_the_engines_where_a_filter_of_tc_or_an_xdp_program_may_have_dropped() -> None:
    for table, text in (("tc", "filter bpf"), ("XDP", "program")):
        found = lost(DROPPED, ForeignRule("node-a", table, "eth0", "ingress", 0, text, None))
        assert one(DROPPED, found, "outcome").judgement is INCONCLUSIVE
        assert f"the {text} of {table} on eth0 (ingress)" in cause(WORLD, found)


OF_SERVICE = replace(WORLD.resolved, service_port="default/echo")
OF_NODE = replace(OF_SERVICE, sender=replace(OF_SERVICE.sender, namespace="node-a", device=STACK))


def ended(resolved: ResolvedProbe, evidence: Evidence) -> bool:
    return ended_by(resolved, evidence, 1, {"node-a"}) is not None


@pytest.mark.parametrize(
    ("text", "may"),
    [
        ("-A FORWARD -p tcp -j DROP", True),
        ("-A FORWARD -p 6 -j DROP", True),
        ("-A FORWARD ! -p udp -j DROP", True),
        ("-A FORWARD -p icmp -j DROP", False),
        ("-A FORWARD ! -p tcp -j DROP", False),
        ("tcp dport 80 counter drop", True),
        ("meta l4proto { tcp, udp } counter drop", True),
        ("meta l4proto != udp counter drop", True),
        ("meta l4proto ipv6-icmp counter drop", False),
        ("ip protocol != tcp counter drop", False),
        ("meta l4proto { icmp, udp } counter drop", False),
        ("icmp type destination-unreachable counter drop", False),
        ("ip saddr 10.0.0.1 udp sport 53 counter drop", False),
    ],
)
def test_a_rule_of_another_protocol_ended_no_packet(text: str, may: bool) -> None:
    rule = replace(GUARD, text=text, packets=1)
    assert ended(OF_SERVICE, WORLD.evidence((), foreign=(rule,))) is may
    assert ("node-a dropped the packet by the rule" in cause(WORLD, lost(WORLD, rule))) is may
    assert (text in cause(WORLD, lost(WORLD, rule))) is may


def test_a_forwarded_packet_meets_no_rule_of_the_hook_output() -> None:
    rule = replace(GUARD, hook="output", text="counter drop", packets=1)
    policy = RuleCount("node-a", "filter", "OUTPUT", "-P OUTPUT DROP", 2)
    of_ipvs = RuleCount("node-a", VIRTUAL_SERVERS, "TCP 10.96.0.10:80", "-a -t 10.96.0.10:80 -r 10.244.2.3:8080", 1)
    told = WORLD.evidence((), foreign=(rule,), counts=(policy,))
    for resolved, evidence, may in (
        (OF_SERVICE, told, False),
        (OF_NODE, told, True),
        (OF_SERVICE, replace(told, terminating=("node-a",)), True),
        (OF_SERVICE, replace(told, terminating=("node-b",)), False),
        (OF_SERVICE, replace(told, counts=(policy, of_ipvs)), True),
    ):
        assert ended(resolved, evidence) is may
        assert bool(policy_drop(resolved, evidence, 1, {"node-a"})) is may


@pytest.mark.parametrize(
    ("text", "answered", "may"),
    [
        ("-A FORWARD -j DROP", True, True),
        ("-A FORWARD -j DROP", False, False),
        ("-A FORWARD -p tcp -j DROP", False, True),
        ("-A INPUT -p icmp -j DROP", True, False),
        ("-A INPUT -p icmp -j DROP", False, False),
    ],
)
def test_a_rule_in_the_engines_tables_may_have_counted_a_sentinel_packet(text: str, answered: bool, may: bool) -> None:
    (first, *others) = WORLD.sentinels
    count = RuleCount("node-a", "filter", text.split()[1], text, 1)
    told = lost(WORLD, kernel=(), sentinels=(replace(first, answered=answered), *others), counts=(count,))
    assert ended(OF_SERVICE, told) is may
    assert ("node-a dropped the packet by its rule" in cause(WORLD, told)) is (may and answered)


@pytest.mark.parametrize("effect", [ENDING, RESETTING, REJECTING, REWRITING, CHANGING_HOPS, MARKING, EXEMPTING])
@pytest.mark.parametrize(
    "text", ["-A PREROUTING -d 10.96.0.10/32 -j ACCEPT", "-A OUTPUT -p tcp -j RETURN", "-A PREROUTING -j RETURN"]
)
def test_what_lets_a_packet_pass_keeps_it_from_the_engines_rules_and_does_nothing_else(
    effect: Effects, text: str
) -> None:
    rule = ForeignRule("node-a", "nat", "PREROUTING", "", 0, text, 1)
    for each, does in ((rule, effect is EXEMPTING), (replace(rule, table="filter"), False)):
        evidence = WORLD.evidence([], foreign=(each,))
        assert bool(may_have(effect, WORLD.resolved, evidence, ("node-a",))) is does


@pytest.mark.parametrize("rule", [replace(GUARD, hook="output"), replace(GUARD, chain="OUTPUT", hook="")])
@pytest.mark.parametrize(
    ("namespace", "device", "terminating", "meets"),
    [
        ("debug", "eth0", (), False),
        ("node-a", STACK, (), True),
        ("node-b", STACK, (), False),
        ("node-a", "eth0", (), False),
        ("debug", "eth0", ("node-a",), True),
        ("debug", "eth0", ("node-b",), False),
    ],
)
def test_a_rule_of_the_hook_output_meets_what_programs_of_its_own_node_send(
    rule: ForeignRule, namespace: str, device: str, terminating: tuple[str, ...], meets: bool
) -> None:
    resolved = replace(WORLD.resolved, sender=replace(WORLD.resolved.sender, namespace=namespace, device=device))
    assert may_meet(rule, resolved, WORLD.evidence([], terminating=terminating)) is meets
    assert may_meet(GUARD, resolved, WORLD.evidence([], terminating=terminating))


FIREWALL = ForeignRule("node-a", "filter", "FORWARD", "forward", 0, "-A FORWARD -p tcp --dport 80 -j DROP", 1)
SILENT = replace(DROPPED, at=None)


@pytest.mark.parametrize(
    ("rule", "judgement"),
    [
        (FIREWALL, PASS),
        (replace(FIREWALL, text="-A FORWARD -j DROP"), PASS),
        (replace(FIREWALL, text="-P FORWARD DROP"), PASS),
        (replace(FIREWALL, text="tcp dport 80 counter drop"), PASS),
        (replace(FIREWALL, packets=2), INCONCLUSIVE),
        (replace(FIREWALL, packets=None), INCONCLUSIVE),
        (replace(FIREWALL, node="node-b"), INCONCLUSIVE),
        (replace(FIREWALL, text="-A FORWARD -p udp -j DROP"), INCONCLUSIVE),
        (replace(FIREWALL, text="-A FORWARD -p tcp --dport 80 -j REJECT"), INCONCLUSIVE),
    ],
    ids=lambda value: value.text if isinstance(value, ForeignRule) else value,
)
def test_any_rule_proves_by_its_counter_what_became_of_a_probe_of_no_service(
    rule: ForeignRule, judgement: object
) -> None:
    """It asks nothing of the engine; a Service's probe does, and no other rule drops in place of the engine's."""
    evidence = lost(SILENT, rule, kernel=())
    assert one(SILENT, evidence, "outcome").judgement is judgement
    of_service = judge(SILENT.probe, replace(SILENT.resolved, service_port="default/echo"), None, evidence)
    assert of_service.overall is INCONCLUSIVE


@pytest.mark.parametrize(
    ("text", "packets", "judgement"),
    [
        ("-A FORWARD -p tcp --dport 80 -j REJECT --reject-with icmp-port-unreachable", 1, PASS),
        ("-A FORWARD -p tcp --dport 80 -j REJECT", 1, PASS),
        ("-A FORWARD -p tcp --dport 80 -j REJECT --reject-with icmp-host-unreachable", 1, INCONCLUSIVE),
        ("-A FORWARD -p tcp --dport 80 -j REJECT --reject-with tcp-reset", 1, INCONCLUSIVE),
        ("-A FORWARD -p tcp --dport 81 -j REJECT", 1, INCONCLUSIVE),
        ("-A FORWARD -p tcp --dport 80 -j REJECT", 2, INCONCLUSIVE),
        ("-A FORWARD -p tcp --dport 80 -j DROP", 1, FAIL),
        ("tcp dport 80 counter reject", 1, PASS),
        ("tcp dport 80 counter reject with icmp type port-unreachable", 1, PASS),
        ("tcp dport 80 counter reject with icmpx port-unreachable", 1, PASS),
        ("tcp dport 80 counter reject with icmp host-unreachable", 1, INCONCLUSIVE),
        ("tcp dport 80 counter reject with tcp reset", 1, INCONCLUSIVE),
        ("counter tcp dport 80 reject", 1, INCONCLUSIVE),
        ('tcp dport 80 counter xt target "REJECT"', 1, PASS),
    ],
)
def test_any_rule_rejects_a_probe_of_no_service_with_its_own_error(text: str, packets: int, judgement: object) -> None:
    rule = replace(FIREWALL, text=text, packets=packets)
    evidence = REJECTED.evidence(
        [REJECTED.leaves(0), REJECTED.hears_icmp(0)], foreign=(rule,), metered_nodes=REJECTED.resolved.nodes
    )
    assert one(REJECTED, evidence, "outcome").judgement is judgement
    of_service = judge(REJECTED.probe, replace(REJECTED.resolved, service_port="default/echo"), None, evidence)
    assert of_service.overall is (FAIL if judgement is FAIL else INCONCLUSIVE)


def test_the_policy_of_a_table_that_no_meter_counts_is_named(told: Told) -> None:
    policy = replace(FIREWALL, text="-P FORWARD DROP", packets=3)
    assert cause(WORLD, lost(WORLD, policy, kernel=())) == told()
    assert policy_drop(WORLD.resolved, lost(WORLD, replace(policy, packets=None)), 1, {"node-a"}) == ""
    may_have_dropped = cause(WORLD, lost(WORLD, replace(policy, packets=None), kernel=()))
    assert may_have_dropped == told()


def test_the_foreign_rule_that_dropped_a_packet_elsewhere_than_expected_is_named() -> None:
    world = replace(DROPPED, at="node-b")
    assert "node-a dropped the packet by the rule" in cause(world, lost(world, FIREWALL, kernel=()))
