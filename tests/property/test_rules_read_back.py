"""Whatever a rule is made of, its printed text is read as the same rule, and packets are answered alike."""

from ipaddress import ip_address

from hypothesis import given
from hypothesis import strategies as st

from proxylab.addresses import Family, IPAddress, Protocol, Transport
from proxylab.evidence.ipvs import IpSet, IpvsDestination, Member, VirtualServer
from proxylab.rules import ipset, iptables, ipvs, nftables
from proxylab.rules.effects import effects
from proxylab.rules.packets import Answer, Packets, matches
from proxylab.rules.rule import Action, Match, Rule, Tool

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

ADDRESSES = st.ip_addresses()
NUMBERS = st.integers(1, 65535)
OPTIONS = st.lists(st.from_regex(r"-{1,2}[a-z]{1,8}", fullmatch=True) | WORDS, max_size=5).map(tuple)
SERVICES = st.one_of(
    st.builds(
        lambda name, host, port: Match(name, (f"{host}:{port}",)),
        st.sampled_from([*ipvs.SERVICES.values()]),
        WORDS,
        PORTS,
    ),
    st.builds(lambda mark: Match("--fwmark-service", (mark,)), PORTS),
)
IPVS = st.builds(
    lambda service, command, words: Rule("", (service, Action(command, words)), Tool.IPVSADM),
    SERVICES,
    st.sampled_from((ipvs.SERVER, ipvs.DESTINATION)),
    OPTIONS,
)
SERVERS = st.builds(
    lambda address, ends, **of: VirtualServer(
        address=address,
        destinations=tuple(IpvsDestination(address=to, port=port, weight=weight) for to, port, weight in ends),
        **of,
    ),
    ADDRESSES,
    st.lists(st.tuples(ADDRESSES, NUMBERS, st.integers(0, 3)), max_size=3),
    port=NUMBERS,
    protocol=st.sampled_from(Protocol),
    scheduler=st.sampled_from(("rr", "mh")),
    persistence=st.integers(0, 3),
    scheduler_flags=st.sampled_from((0, 0x8, 0x10, 0x38)),
)
SET_OPTIONS = st.one_of(
    st.just(()),
    st.just(("nomatch",)),
    st.builds(lambda seconds: ("timeout", str(seconds)), st.integers(0, 99)),
    st.builds(
        lambda text: ("comment", text), st.text(st.characters(exclude_characters='"\\', exclude_categories=["C", "Z"]))
    ),
)
MEMBERS = st.builds(
    ipset.SetMember,
    NAMES,
    st.lists(st.from_regex(r"[0-9a-z][0-9a-z.:/]{0,20}", fullmatch=True), min_size=1, max_size=3).map(tuple),
    st.lists(SET_OPTIONS, max_size=3).map(lambda each: sum(each, ())),
)
SETS = st.builds(
    lambda name, kind, options, members: ipset.NamedSet(
        name, kind, options, tuple(ipset.SetMember(name, each.fields, each.options) for each in members)
    ),
    NAMES,
    st.sampled_from(("hash:ip", "hash:ip,port,net", "bitmap:port", "list:set")),
    st.sampled_from(((), ("family", "inet6", "hashsize", "64"), ("range", "0-65535"), ("timeout", "5", "comment"))),
    st.lists(MEMBERS, max_size=4),
)


@given(IPVS)
def test_a_virtual_server_or_destination_is_read_as_it_was_printed(rule: Rule) -> None:
    assert ipvs.read_rule(ipvs.print_rule(rule)) == rule


@given(st.lists(SETS, max_size=4, unique_by=lambda each: each.name))
def test_sets_are_read_as_they_were_printed(sets: list[ipset.NamedSet]) -> None:
    assert ipset.read_sets("\n".join(ipset.print_sets(sets))) == {each.name: each for each in sets}


@given(SERVERS)
def test_packets_to_a_virtual_server_of_the_lab_match_each_line_of_it(server: VirtualServer) -> None:
    to = Packets({Transport(server.protocol)}, destinations={server.address}, destination_ports={server.port})
    other = Packets({Transport(server.protocol)}, destinations={server.address}, destination_ports={server.port ^ 1})
    for line in server.lines():
        rule = ipvs.read_rule(line)
        assert rule is not None
        assert ipvs.print_rule(rule) == line
        assert (matches(rule, to), matches(rule, other)) == (Answer.YES, Answer.NO)


@given(ADDRESSES, st.sampled_from(Protocol), NUMBERS, ADDRESSES)
def test_packets_that_are_a_member_of_a_set_of_the_lab_match_it(
    address: IPAddress, protocol: Protocol, port: int, source: IPAddress
) -> None:
    member = Member(address=address, protocol=protocol, port=port, other=source)
    made = IpSet(name="S", kind="hash:ip,port,ip", family=Family.of(address), members=frozenset({member}))
    sets = ipset.read_sets("\n".join(made.lines()))
    assert ipset.print_sets(sets.values()) == made.lines()
    rule = Rule("C", (Match("--match-set", ("S", "dst,dst,src")),))
    sent = Packets({Transport(protocol)}, {source}, {address}, {40000}, {port})
    other = Packets({Transport(protocol)}, {source}, {address}, {40000}, {port ^ 1})
    assert (matches(rule, sent, sets), matches(rule, other, sets)) == (Answer.YES, Answer.NO)


@given(IPTABLES)
def test_a_rule_of_iptables_is_read_as_it_was_printed(rule: Rule) -> None:
    assert iptables.read_rule(iptables.print_rule(rule)) == rule


@given(st.lists(PARTS, min_size=1, max_size=6), PREFIX)
def test_a_rule_of_nft_is_read_as_it_was_printed(parts: list[Match | Action], comment: str) -> None:
    rule = Rule("", (*parts, Action("comment", (f'"{comment}"',))), tool=Tool.NFT)
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
