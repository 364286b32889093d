"""Causes that name a rule of others: only one that may have met the packet, and no more surely than its count says."""

from ipaddress import ip_address

import pytest
from golden_words import Told
from judging import judged
from msgspec.structs import replace
from recorded import World

from proxylab.evidence.evidence import ConnectReport, Direction, Evidence, ForeignRule, Observation, Packet, RuleCount
from proxylab.plan.resolved import Destination, ResolvedProbe
from proxylab.scenario.words import Manner
from proxylab.verdict.causes.table import why
from proxylab.verdict.judge import judge

WORLD = World()
OF_SERVICE = replace(WORLD.resolved, service_port="default/echo:tcp")
SERVICE, NOWHERE, STRANGER = WORLD.address("service"), ip_address("10.244.2.77"), ip_address("203.0.113.10")
LEADS = ForeignRule("node-a", "ip cni", "x", "prerouting", -150, f"ip daddr {SERVICE} counter dnat to {NOWHERE}", 1)
IN_X = "in chain x (hook prerouting, priority -150) of table ip cni, which belongs to no engine"
LED = f'the packet\'s destination by the rule "{LEADS.text}" {IN_X}'
LED_THERE = LED.replace("destination", f"destination to {NOWHERE}:80")
CAME = replace(WORLD.leaves(0), netns_name="node-a", device="debug", direction=Direction.IN, at=1001)
LEFT = replace(CAME, device="eth0", direction=Direction.OUT, at=1002)
LOST = (WORLD.leaves(0), CAME)
LED_AWAY = (*LOST, replace(LEFT, destination=NOWHERE))
ANSWERED = (*LOST, WORLD.hears_icmp(0, SERVICE, (3, 1)))


def cause(evidence: Evidence, resolved: ResolvedProbe = WORLD.resolved, world: World = WORLD) -> str:
    return why(judge(world.probe, resolved, None, evidence))


@pytest.mark.parametrize(
    ("seen", "rule", "sentence"),
    [
        (LOST, LEADS, f"node-a changed {LED}."),
        (LOST, replace(LEADS, packets=None), f"node-a may have changed {LED} and has no counter."),
        (LOST, replace(LEADS, packets=7), f"node-a may have changed {LED} and counted 7 packets."),
        (LED_AWAY, LEADS, f"node-a changed {LED_THERE}."),
        (LED_AWAY, replace(LEADS, packets=None), f"node-a changed {LED_THERE.replace('by the', 'perhaps by the')}."),
        (ANSWERED, LEADS, f"node-a changed {LED}, and {SERVICE} answered with ICMP host unreachable (3/1)."),
    ],
)
def test_a_rule_of_others_that_changed_the_destination_is_named(
    seen: tuple[Observation, ...], rule: ForeignRule, sentence: str
) -> None:
    evidence = WORLD.evidence(seen, foreign=(rule,), counts=(WORLD.balanced(),))
    assert cause(evidence) == sentence


@pytest.mark.parametrize("seen", [LOST, ANSWERED])
@pytest.mark.parametrize(
    "rule",
    [
        replace(LEADS, packets=0),
        replace(LEADS, node="node-b"),
        replace(LEADS, text=LEADS.text.replace("10.96.0.10", "10.96.0.99")),
        replace(LEADS, text=f"ip daddr {SERVICE} counter snat to {NOWHERE}"),
    ],
    ids=["counted nothing", "another node", "another Service", "of the source"],
)
def test_no_rule_translated_what_none_can_have(seen: tuple[Observation, ...], rule: ForeignRule) -> None:
    evidence = WORLD.evidence(seen, foreign=(rule,), counts=(WORLD.balanced(),))
    assert cause(evidence).startswith("no rule translated the packet: it left debug for 10.96.0.10:80")


def test_no_rule_changed_the_destination_of_what_left_its_node_as_it_was_sent() -> None:
    evidence = WORLD.evidence((*LOST, LEFT), foreign=(LEADS,), counts=(WORLD.balanced(),))
    assert cause(evidence).startswith("no rule translated the packet: it left debug for 10.96.0.10:80")


@pytest.mark.parametrize("seen", [LOST, ANSWERED])
def test_that_no_rule_translated_the_packet_is_not_said_of_one_seen_translated(seen: tuple[Observation, ...]) -> None:
    evidence = WORLD.evidence((*seen, replace(LEFT, destination=NOWHERE)), counts=(WORLD.balanced(),))
    assert "no rule translated" not in cause(evidence)


def test_a_rule_of_others_in_the_engines_table_is_named_where_a_router_answered(told: Told) -> None:
    text = f"-A PREROUTING -d {SERVICE}/32 -p tcp -j DNAT --to-destination {NOWHERE}"
    evidence = WORLD.evidence(ANSWERED, counts=(RuleCount("node-a", "nat", "PREROUTING", text, 1),))
    assert cause(evidence, OF_SERVICE) == told()
    engines = WORLD.evidence(ANSWERED, foreign=(LEADS,), counts=(WORLD.translated("echo-1"),))
    assert "changed the packet's destination" not in cause(engines, OF_SERVICE)


@pytest.mark.parametrize(("chain", "is_engines"), [("KUBE-SEP-EVIL", False), ("KUBE-SEP-BBBBBBBBBBBBBBBB", True)])
def test_a_rule_in_a_chain_that_is_only_named_like_the_engines_led_the_packet_to_a_service(
    chain: str, *, is_engines: bool
) -> None:
    led, hashes = ip_address("10.96.0.99"), frozenset({"AAAAAAAAAAAAAAAA", "BBBBBBBBBBBBBBBB"})
    way = [
        replace(each, destination=led, destination_port=80) if number in (2, 3) else each
        for number, each in enumerate(WORLD.crossing(0, "echo-1"))
    ]
    leads = RuleCount("node-a", "nat", chain, f"-A {chain} -p tcp -j DNAT --to-destination {led}", 1)
    text = "-A KUBE-SEP-AAAAAAAAAAAAAAAA -p tcp -m comment --comment default/echo:tcp -j DNAT --to-destination "
    translates = RuleCount("node-b", "nat", "KUBE-SEP-AAAAAAAAAAAAAAAA", f"{text}{WORLD.address('echo-1')}:8080", 1)
    elsewhere = (Destination(address=NOWHERE, port=8080),)
    resolved = replace(OF_SERVICE, chain_hashes=hashes, endpoints=elsewhere)
    sentence = cause(WORLD.evidence(way, counts=(leads, translates)), resolved)
    named = f"node-a changed the packet's destination to {led}:80" in sentence
    assert (named and f'the rule "{leads.text}" in chain {chain} of table nat' in sentence) is not is_engines, sentence


def strayed(*changed: Observation, foreign: tuple[ForeignRule, ...] = ()) -> Evidence:
    """The reply came in at a host outside, and no other did at the sender."""
    way = [each for each in WORLD.crossing(0, "echo-1") if each.packet is Packet.REQUEST]
    answer = WORLD.answers(0, "echo-1")
    stray = replace(answer, netns_name="outside", direction=Direction.IN, destination=STRANGER, at=99_000)
    return WORLD.evidence((*way, replace(answer, at=90_000), *changed, stray), foreign=foreign)


def test_the_only_reply_went_elsewhere_and_is_no_copy(told: Told) -> None:
    answer = WORLD.answers(0, "echo-1")
    came = replace(answer, netns_name="node-b", device="echo-1", direction=Direction.IN, at=91_000)
    went = replace(came, device="eth0", direction=Direction.OUT, destination=STRANGER, at=92_000)
    rule = ForeignRule("node-b", "ip cni", "x", "prerouting", -350, f"tcp sport 8080 ip daddr set {STRANGER}", 1)
    unrelated = replace(rule, text=f"udp sport 8080 counter ip daddr set {STRANGER}")
    where = "the reply went to outside/eth0, addressed to 203.0.113.10:40000"
    evidence = strayed(came, went, foreign=(unrelated, rule))
    found = next(each for each in judged(WORLD, evidence).verdicts if each.expectation == "reply")
    assert (str(found.judgement), found.reasons) == ("fail", (where,))
    assert cause(evidence) == told()
    assert cause(strayed()) == f"{where}, and debug heard nothing."


def test_a_reply_that_came_and_came_in_elsewhere_is_a_copy() -> None:
    evidence = replace(strayed(), observations=(*strayed().observations, replace(WORLD.hears(0), at=100_000)))
    assert cause(evidence).startswith("the reply was copied on its way: a copy came in at outside/eth0")


def lost_reply(*counts: RuleCount, foreign: tuple[ForeignRule, ...] = ()) -> Evidence:
    """The taps saw the answer last as it came to node-b."""
    answer = WORLD.answers(0, "echo-1")
    came = replace(answer, netns_name="node-b", device="echo-1", direction=Direction.IN, at=1004)
    seen = [WORLD.leaves(0), WORLD.arrives(0, "echo-1"), answer, came]
    return WORLD.evidence(seen, counts=counts, foreign=foreign)


def dropping(matches: str, packets: int, chain: str = "KUBE-FORWARD") -> RuleCount:
    return RuleCount("node-b", "filter", chain, f"-A {chain} {matches} -j DROP", packets)


UNRELATED, INVALID = "-d 10.244.2.4/32 -p udp -m udp --dport 9", "-m conntrack --ctstate INVALID"
IN_FORWARD = 'the rule "-A FORWARD -s 10.244.2.3/32 -j DROP" in chain FORWARD of table filter'


@pytest.mark.parametrize(
    ("count", "clause"),
    [
        (dropping(INVALID, 1), ", which dropped 1 packet by its rule in KUBE-FORWARD."),
        (dropping(INVALID, 90), ", which may have dropped it by its rule in KUBE-FORWARD, which counted 90 packets."),
        (dropping(UNRELATED, 1), " and debug heard nothing: the taps saw the reply last at node-b/echo-1."),
        (dropping(UNRELATED, 1, "FORWARD"), " and debug heard nothing: the taps saw the reply last at node-b/echo-1."),
        (
            dropping("-s 10.244.2.3/32", 1, "FORWARD"),
            f", which dropped 1 packet by {IN_FORWARD}, which belongs to no engine.",
        ),
        (
            dropping("-s 10.244.2.3/32", 9, "FORWARD"),
            f": node-b has {IN_FORWARD}, which counted 9 packets, which belongs to no engine, and may have dropped it.",
        ),
    ],
)
def test_a_rule_that_may_have_met_the_reply_explains_its_loss(count: RuleCount, clause: str) -> None:
    assert cause(lost_reply(count), OF_SERVICE).endswith(clause)


def test_the_rule_that_counted_the_reply_is_named_before_those_that_counted_others() -> None:
    counts = (dropping(INVALID, 90), dropping("-s 10.244.2.3/32", 1, "FORWARD"))
    assert f"dropped 1 packet by {IN_FORWARD}" in cause(lost_reply(*counts), OF_SERVICE)
    exact = replace(dropping(INVALID, 1), chain="KUBE-PROXY-FIREWALL")
    sentence = cause(lost_reply(counts[0], exact), OF_SERVICE)
    assert sentence.endswith("which dropped 1 packet by its rule in KUBE-PROXY-FIREWALL.")


@pytest.mark.parametrize(
    ("told", "lost"),
    [
        ({"error": "timeout"}, "the handshake was answered, and what followed was lost"),
        ({"unended": "timeout"}, "the end of the connection (FIN) was lost after its data had crossed the network"),
    ],
)
def test_a_rule_that_may_have_met_a_segment_explains_its_loss(told: dict[str, str], lost: str) -> None:
    world = replace(WORLD, manner=Manner.CONNECT)
    report: ConnectReport = replace(world.report(0, "echo-1"), **told)  # type: ignore[arg-type]

    def sentence(*counts: RuleCount) -> str:
        evidence = world.evidence(world.crossing(0, "echo-1"), connects=(report,), counts=counts)
        return cause(evidence, replace(OF_SERVICE, manner=Manner.CONNECT), world)

    may_have = "node-b may have dropped it by its rule in KUBE-FORWARD, which counted 16 packets."
    assert sentence(dropping(UNRELATED, 15), dropping(INVALID, 16)) == f"{lost}: {may_have}"
    others = f"node-b has {IN_FORWARD}, which counted 5 packets, which belongs to no engine, and may have dropped it."
    assert sentence(dropping("-s 10.244.2.3/32", 5, "FORWARD")) == f"{lost}: {others}"
    for chain in ("FORWARD", "KUBE-FORWARD"):
        assert lost not in sentence(dropping(UNRELATED, 16, chain))


def test_of_two_rules_that_may_have_changed_the_destination_the_one_that_counted_is_named() -> None:
    silent = replace(LEADS, chain="y", packets=None)
    for rules in ((silent, LEADS), (LEADS, silent)):
        evidence = WORLD.evidence(LOST, foreign=rules, counts=(WORLD.balanced(),))
        assert cause(evidence) == f"node-a changed {LED}."


OTHER = ip_address("10.96.0.80")
OF_OTHER = "endpoint-ABCDEFGH-default/web/tcp/p__10.244.2.3/8080"
POD = WORLD.address("echo-1")
BY_NFTABLES = RuleCount("node-b", "kube-proxy", OF_OTHER, f"meta l4proto tcp dnat to {POD}:8080", 1, "DNAT", POD, 8080)
"""The chain of mode nftables for an endpoint of another Service."""


@pytest.mark.parametrize(
    ("translating", "named"),
    [
        (
            replace(WORLD.translated("echo-1"), node="node-b"),
            "an address of the Service default/echo, by the rule",
        ),
        (
            BY_NFTABLES,
            "an address of the Service default/web, by the rule",
        ),
        (
            replace(BY_NFTABLES, chain="mine"),
            "an address of a Service, by the rule",
        ),
    ],
    ids=["by a comment", "by the chain's name", "by nothing"],
)
def test_the_service_to_which_a_rule_of_others_led_the_packet_is_named(translating: RuleCount, named: str) -> None:
    led = replace(LEFT, destination=OTHER)
    came = replace(led, netns_name="node-b", device="eth0", direction=Direction.IN, at=1003)
    translated = replace(came, device="echo-1", direction=Direction.OUT, destination=POD, at=1004)
    there = replace(translated, destination_port=8080)
    rule = replace(LEADS, text=LEADS.text.replace(str(NOWHERE), str(OTHER)))
    evidence = WORLD.evidence((*LOST, led, came, there), foreign=(rule,), counts=(translating,))
    assert f"changed the packet's destination to {OTHER}:80, {named}" in cause(evidence)


@pytest.mark.parametrize(
    ("node", "packets", "text", "is_named"),
    [
        ("node-a", 1, "-p tcp -m tcp --dport 80 -j REJECT --reject-with tcp-reset", True),
        ("node-b", 1, "-p tcp -m tcp --dport 80 -j REJECT --reject-with tcp-reset", False),
        ("node-a", 2, "-p tcp -m tcp --dport 80 -j REJECT --reject-with tcp-reset", False),
        ("node-a", 1, "-p tcp -m tcp --dport 80 -j REJECT --reject-with icmp-port-unreachable", False),
    ],
    ids=["this one", "of another node", "that counted others", "that sends no reset"],
)
def test_the_rule_that_reset_a_connection_past_all_services_is_named(
    node: str, packets: int, text: str, is_named: bool
) -> None:
    heard = replace(WORLD.hears_reset(0), at=1010)
    left = replace(heard, netns_name="node-a", device="debug", direction=Direction.OUT, at=1009)
    rule = RuleCount(node, "filter", "FORWARD", f"-A FORWARD {text}", packets)
    said = cause(WORLD.evidence((*LOST, left, heard), counts=(rule,)))
    by = f'node-a rejected the packet with a reset by the rule "{rule.text}" in chain FORWARD of table filter.'
    assert (said == by) is is_named, said
