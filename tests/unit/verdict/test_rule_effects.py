"""What a rule does is read from its statement, never from a match, a name or a comment that has the same word."""

import pytest
from golden_words import Told
from msgspec.structs import replace
from recorded import World

from proxylab.evidence.evidence import ForeignRule, RuleCount
from proxylab.rules.effects import ENDING, REJECTING, RESETTING, REWRITING
from proxylab.rules.texts import read_rule
from proxylab.verdict.counted_rules import NFT_TABLE, read, target_of, why_masqueraded
from proxylab.verdict.foreign import ended_by, may_have, rewrote

WORLD = World()
HARMLESS = (
    "ct status dnat accept",
    "ct status snat,dnat counter accept",
    "ct status & (snat | dnat) != 0 accept",
    "ct status { dnat, snat } accept",
    'counter accept comment "no drop, reject or masquerade here"',
    'tcp dport 80 log prefix "reject: "',
    "ip saddr @drop-list counter accept",
    "ip daddr @dnat accept",
    'iifname "redirect" accept',
    "jump reject",
    "counter goto drop",
    "-A ufw-reject-input -p tcp -j ACCEPT",
    "-A INPUT -j ufw-reject-input",
    "-A FORWARD -j REJECT-AND-LOG",
    "-A FORWARD -j DROP-OTHERS",
    "-A FORWARD -m conntrack --ctstatus DNAT -j ACCEPT",
    "-A FORWARD -m comment --comment drop -j ACCEPT",
    '-A FORWARD -m comment --comment "reject or drop" -j LOG --log-prefix "drop "',
    "-A INPUT -m set --match-set drop src -j ACCEPT",
)
DOES = {
    "ct status dnat ip saddr 10.244.0.0/16 counter masquerade fully-random": REWRITING,
    'tcp dport 80 counter drop comment "closed"': ENDING,
    '-A FORWARD -p tcp -m comment --comment "a \\"quoted\\" word" -j DROP': ENDING,
    "-A FORWARD -j REJECT --reject-with tcp-reset": RESETTING,
    "-A PREROUTING -m comment --comment accept -j DNAT --to-destination 10.0.0.1": REWRITING,
}


@pytest.mark.parametrize("text", HARMLESS)
def test_a_word_outside_the_statement_does_nothing(text: str) -> None:
    rule = ForeignRule("node-a", "inet guard", "early", "forward", 0, text, 1)
    evidence = WORLD.evidence([], foreign=(rule,))
    effects = (ENDING, RESETTING, REJECTING, REWRITING)
    assert [each for each in effects if may_have(each, WORLD.resolved, evidence, ("node-a",))] == []
    assert ended_by(WORLD.resolved, evidence, 1, ("node-a",)) is None
    assert rewrote(WORLD.resolved, evidence, "node-a") is None


@pytest.mark.parametrize("text", DOES)
def test_a_statement_is_found_behind_matches_and_before_comments(text: str) -> None:
    rule = ForeignRule("node-a", "inet guard", "early", "forward", 0, text, 1)
    assert may_have(DOES[text], WORLD.resolved, WORLD.evidence([], foreign=(rule,)), ("node-a",)) == (rule,)


def test_a_drop_with_a_comment_that_counted_the_packet_ended_it() -> None:
    rule = ForeignRule("node-a", "ip guard", "x", "forward", 0, 'counter drop comment "closed"', 1)
    evidence = WORLD.evidence([], foreign=(rule, replace(rule, text="counter accept")))
    assert ended_by(WORLD.resolved, evidence, 1, ("node-a",)) == rule


def test_a_match_of_translated_connections_is_no_translation() -> None:
    rule = read_rule("ct status dnat ip saddr . ip daddr @hairpin-connections masquerade")
    assert rule is not None
    assert target_of(rule) == "MASQUERADE"


@pytest.mark.parametrize(
    ("text", "ends"),
    [
        ("tcp dport 80 counter drop", True),
        ("counter tcp dport 80 drop", False),
        ("counter drop", True),
        ("tcp dport 80 counter log drop", True),
        ("-A FORWARD -m hashlimit --hashlimit-above 5/sec --hashlimit-name drop -j ACCEPT", False),
        ("-A FORWARD -i drop -j ACCEPT", False),
        ("-P FORWARD DROP", True),
    ],
)
def test_a_counter_proves_an_end_only_where_it_counts_what_the_rule_ended(text: str, ends: bool) -> None:
    rule = ForeignRule("node-a", "inet guard", "early", "forward", 0, text, 1)
    evidence = WORLD.evidence([], foreign=(rule,))
    assert (ended_by(WORLD.resolved, evidence, 1, ("node-a",)) is not None) is ends


def test_a_rule_leaves_out_every_network_of_its_set(told: Told) -> None:
    text = "ip saddr != { 192.0.2.1, 198.51.100.0/24 } meta mark set meta mark | 0x00004000"
    rule = read(RuleCount("node-a", NFT_TABLE, "service-A", text, 1))
    assert rule is not None
    assert rule.excepted_sources == ("192.0.2.1", "198.51.100.0/24")
    assert why_masqueraded(rule, WORLD.resolved) == told()
    own = f"ip saddr != {{ 192.0.2.1, {WORLD.resolved.sender.address} }} meta mark set meta mark | 0x00004000"
    rule = read(RuleCount("node-a", NFT_TABLE, "service-A", own, 1))
    assert rule is not None
    assert why_masqueraded(rule, WORLD.resolved) == ""
