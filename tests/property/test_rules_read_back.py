"""Whatever a rule is made of, its printed text is read as the same rule, and packets are answered alike."""

from ipaddress import ip_address

from hypothesis import given
from hypothesis import strategies as st

from proxylab.addresses import Transport
from proxylab.rules import iptables, nftables
from proxylab.rules.effects import effects
from proxylab.rules.packets import Answer, Packets, matches
from proxylab.rules.rule import Action, Match, Rule

NAMES = st.from_regex(r"[A-Z][A-Z0-9-]{0,20}", fullmatch=True)
TEXTS = st.text(st.characters(min_codepoint=32, max_codepoint=126), min_size=1, max_size=40)
WORDS = st.from_regex(r"[0-9a-zA-Z][0-9a-zA-Z.:/,+_@%=-]{0,20}", fullmatch=True)
NETWORKS = st.builds("10.{}.{}.0/{}".format, st.integers(0, 255), st.integers(0, 255), st.integers(8, 24))
PORTS = st.integers(1, 65535).map(str)
NOT = st.sampled_from(("", "!"))

CONDITIONS = st.one_of(
    st.builds(lambda name, value, no: Match(name, (value,), no), st.sampled_from(("-s", "-d")), NETWORKS, NOT),
    st.builds(
        lambda name, value, no: Match(name, (value,), no), st.sampled_from(("-i", "-o", "--ctstate")), WORDS, NOT
    ),
    st.builds(lambda value, no: Match("-p", (value,), no), st.sampled_from(("tcp", "udp", "ipv6-icmp", "133")), NOT),
    st.builds(lambda name, value, no: Match(name, (value,), no), st.sampled_from(("--dport", "--sport")), PORTS, NOT),
    st.builds(lambda name: Match("-m", (name,)), st.sampled_from(("tcp", "comment", "later"))),
    st.builds(lambda text: Match("--comment", (text,)), TEXTS),
    st.builds(lambda text: Match("--string", (text,)), TEXTS),
    st.builds(lambda first, second, no: Match("--match-set", (first, second), no), WORDS, WORDS, NOT),
    st.builds(lambda name: Match(f"--{name}"), st.from_regex(r"later-[a-z]{1,9}", fullmatch=True)),
)
TARGETS = st.one_of(
    st.builds(lambda name, past: Action(name, (), past), NAMES, st.booleans()),
    st.builds(lambda to: Action("DNAT", ("--to-destination", to)), WORDS),
    st.builds(lambda text: Action("LOG", ("--log-prefix", text, "--log-tcp-options")), TEXTS),
)
IPTABLES = st.builds(
    lambda chain, conditions, target, inserted: Rule(chain, (*conditions, *target), inserted=inserted),
    NAMES,
    st.lists(CONDITIONS, max_size=6),
    st.lists(TARGETS, max_size=1),
    st.booleans(),
)

PREFIX = st.text(st.characters(min_codepoint=32, max_codepoint=126, exclude_characters='"\\'), max_size=30)
OPERATOR = st.sampled_from(("", "!="))
FIELDS = st.sampled_from(("ip saddr", "ip6 daddr", "tcp dport", "th sport", "meta l4proto", "ct state", "meta mark"))
PARTS = st.one_of(
    st.builds(lambda name, value, no: Match(name, (value,), no), FIELDS, WORDS, OPERATOR),
    st.builds(
        lambda name, values, no: Match(name, ("{ " + ", ".join(values) + " }",), no),
        FIELDS,
        st.lists(WORDS, min_size=1, max_size=4),
        OPERATOR,
    ),
    st.builds(lambda name, value: Action(f"{name} set", (value,)), FIELDS, WORDS),
    st.builds(Action, st.sampled_from(("accept", "drop", "notrack", "masquerade", "reject"))),
    st.builds(lambda text: Action("log", ("prefix", f'"{text}"')), PREFIX),
    st.builds(lambda chain: Action("jump", (chain,)), NAMES),
    st.builds(lambda to: Action("dnat", ("ip", "to", to)), NETWORKS),
    st.builds(lambda name: Action("vmap", ("meta l4proto . th dport", f"@{name}")), NAMES),
    st.builds(lambda packets: Action("counter", ("packets", str(packets), "bytes", "0")), st.integers(0, 10**9)),
)


@given(IPTABLES)
def test_a_rule_of_iptables_is_read_as_it_was_printed(rule: Rule) -> None:
    assert iptables.read_rule(iptables.print_rule(rule)) == rule


@given(st.lists(PARTS, min_size=1, max_size=6), PREFIX)
def test_a_rule_of_nft_is_read_as_it_was_printed(parts: list[Match | Action], comment: str) -> None:
    rule = Rule("", (*parts, Action("comment", (f'"{comment}"',))), is_nft=True)
    read = nftables.read_rule(nftables.print_rule(rule))
    assert read == rule
    assert read.comment == comment


@given(st.text(max_size=80))
def test_any_text_is_read_and_printed_without_losing_a_word(text: str) -> None:
    rule = nftables.read_rule(text)
    printed = nftables.print_rule(rule)
    assert "".join(printed.split()) == "".join(text.split())
    assert nftables.read_rule(printed) == rule
    effects(rule)
    rule_or_none = iptables.read_rule(f"-A C {text}")
    assert rule_or_none is None or iptables.read_rule(iptables.print_rule(rule_or_none)) == rule_or_none


@given(IPTABLES, st.sampled_from((Transport.TCP, Transport.UDP, Transport.ICMP)), PORTS)
def test_a_negated_condition_answers_the_opposite(rule: Rule, protocol: Transport, port: str) -> None:
    sent = Packets({protocol}, {ip_address("10.1.2.3")}, {ip_address("10.200.0.1")}, {40000}, {int(port)})
    opposite = {Answer.YES: Answer.NO, Answer.NO: Answer.YES, Answer.MAY: Answer.MAY}
    for part in rule.matches:
        if part.name in ("-s", "-d", "-p", "--sport", "--dport"):
            turned = Match(part.name, part.values, "" if part.negated else "!")
            assert matches(Rule("C", (turned,)), sent) is opposite[matches(Rule("C", (part,)), sent)]


@given(IPTABLES)
def test_another_condition_never_makes_more_packets_match(rule: Rule) -> None:
    sent = Packets({Transport.TCP}, {ip_address("10.1.2.3")}, {ip_address("10.200.0.1")}, {40000}, {80})
    order = [Answer.NO, Answer.MAY, Answer.YES]
    conditions = tuple(rule.matches)
    for count in range(len(conditions)):
        fewer, more = Rule("C", conditions[:count]), Rule("C", conditions[: count + 1])
        assert order.index(matches(more, sent)) <= order.index(matches(fewer, sent))
