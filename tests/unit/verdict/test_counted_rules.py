"""Rules as iptables-save prints them, and whether they name what a probe dials."""

from collections.abc import Mapping
from ipaddress import ip_address

import pytest
from golden_words import Told
from msgspec.structs import replace
from recorded import World

from proxylab.addresses import Transport
from proxylab.evidence.evidence import RuleCount
from proxylab.verdict.counted_rules import (
    as_recorded,
    ending,
    may_be_engines,
    of_service,
    read,
    read_all,
    rule_action,
    short,
    the_rule,
)

WORLD = World()


def counted(text: str, packets: int = 1) -> RuleCount:
    return RuleCount("node-a", "filter", "KUBE-SERVICES", text, packets)


def speaks(text: str, world: World = WORLD) -> bool:
    return bool(ending(world.resolved, read_all([counted(text)]), "DROP"))


@pytest.mark.parametrize(
    "text",
    [
        '-A K -d 10.96.0.10/32 -p tcp -m comment --comment "a b -j REJECT" -m tcp --dport 80 -j DROP',
        "-A K -d 10.96.0.0/16 -p tcp -m tcp --dport 80 -j DROP",
        "-A K -d 10.96.0.10/32 -p tcp -m tcp --dport 79:81 -j DROP",
        "-A K ! -s 10.99.0.0/16 -d 10.96.0.10/32 -p tcp -m tcp --dport 80 -j DROP",
        "-A K -s 10.244.0.0/16 -d 10.96.0.10/32 -p tcp -m tcp --dport 80 -j DROP",
        "-A K -p tcp -m addrtype --dst-type LOCAL -m tcp --dport 80 -j DROP",
        '-A K -d 10.96.0.10/32 -p tcp -m comment --comment "-s 1.2.3.4/32" -m tcp --dport 80 -j DROP',
    ],
)
def test_rules_that_speak_of_the_probe(text: str) -> None:
    assert speaks(text)


@pytest.mark.parametrize(
    "text",
    [
        "-A K -j DROP",
        "-P FORWARD DROP",
        "-A K -d 10.96.0.10/32 -p tcp -j DROP",
        "-A K -d 10.96.0.10/32 -m tcp --dport 80 -j DROP",
        "-A K -p tcp -m tcp --dport 80 -j DROP",
        "-A K ! -d 10.96.0.10/32 -p tcp -m tcp --dport 80 -j DROP",
        "-A K ! -d 10.97.0.0/16 -p tcp -m tcp --dport 80 -j DROP",
        "-A K -d 10.96.0.10/32 -p tcp -m tcp ! --dport 80 -j DROP",
        "-A K -d 10.96.0.10/32 ! -p tcp -m tcp --dport 80 -j DROP",
        "-A K -s 10.99.0.0/16 -d 10.96.0.10/32 -p tcp -m tcp --dport 80 -j DROP",
        "-A K ! -s 10.244.0.0/16 -d 10.96.0.10/32 -p tcp -m tcp --dport 80 -j DROP",
        "-A K -d 10.96.0.10/32 -p tcp -m tcp --sport 80 -j DROP",
        "-A K -d 10.96.0.10/32 -p tcp -m tcp --dport 8080 -j DROP",
        "-A K -d fd00::1/128 -p tcp -m tcp --dport 80 -j DROP",
        "-A K -d echo -p tcp -m tcp --dport http -j DROP",
        "-A K -p tcp -m addrtype ! --dst-type LOCAL -m tcp --dport 80 -j DROP",
        "-A K -p tcp -m addrtype --dst-type BROADCAST -m tcp --dport 80 -j DROP",
        "-A K -d 10.96.0.10/32 -p tcp -m tcp --dport 80 -j LOG",
        '-A K -d 10.96.0.10/32 -p tcp -m comment --comment "-j DROP" -m tcp --dport 80',
        '-A K -d 10.96.0.10/32 -p tcp -m comment --comment "unfinished -m tcp --dport 80 -j DROP',
        "",
    ],
)
def test_rules_that_do_not(text: str) -> None:
    assert not speaks(text)


@pytest.mark.parametrize(
    ("ports", "holds"),
    [
        ("80", True),
        ("79", False),
        ("81", False),
        ("8080", False),
        ("80:80", True),
        ("80:90", True),
        ("70:80", True),
        ("70:90", True),
        ("81:90", False),
        ("70:79", False),
        ("90:70", False),
    ],
)
def test_a_rule_names_the_ports_of_its_range_and_no_other(ports: str, holds: bool) -> None:
    assert speaks(f"-A K -d 10.96.0.10/32 -p tcp -m tcp --dport {ports} -j DROP") is holds
    for port, is_in in ((80, "80:90"), (85, "80:90"), (90, "80:90")):
        resolved = replace(WORLD.resolved, port=port)
        for text in ("80", is_in):
            counts = [counted(f"-A K -d 10.96.0.10/32 -p tcp -m tcp --dport {text} -j DROP")]
            assert bool(ending(resolved, read_all(counts), "DROP")) is (text == is_in or port == 80)


def test_the_protocol_is_the_probes() -> None:
    text = "-A K -d 10.96.0.10/32 -p udp -m udp --dport 80 -j DROP"
    assert not speaks(text)
    assert speaks(text, World(protocol=Transport.UDP))


def test_a_rule_is_about_an_echo_request_if_it_names_the_address_and_no_other_protocol() -> None:
    echo = World(protocol=Transport.ICMP)
    for text in ("-A K -d 10.96.0.10/32 -j DROP", "-A K -d 10.96.0.10/32 -p icmp -m icmp --icmp-type 8 -j DROP"):
        assert speaks(text, echo)
    for text in (
        "-A K -d 10.96.0.11/32 -j DROP",
        "-A K -p icmp -j DROP",
        "-A K -d 10.96.0.10/32 -p tcp -m tcp --dport 80 -j DROP",
        "-A K -d 10.96.0.10/32 -p tcp -m tcp --dport 0 -j DROP",
        "-A K -d 10.96.0.10/32 -p ipv6-icmp -j DROP",
    ):
        assert not speaks(text, echo)


def test_a_rule_that_did_not_count_is_no_witness() -> None:
    assert not ending(WORLD.resolved, read_all([counted("-A K -d 10.96.0.10 -p tcp --dport 80 -j DROP", 0)]), "DROP")


@pytest.mark.parametrize(
    ("destination", "to"),
    [("10.244.2.3:8080", ("10.244.2.3", 8080)), ("[fd00::3]:8080", ("fd00::3", 8080)), ("10.244.2.3", None)],
)
def test_translations(destination: str, to: tuple[str, int] | None) -> None:
    (rule,) = read_all([counted(f"-A KUBE-SEP -p tcp -m tcp -j DNAT --to-destination {destination}")])
    assert rule.target == "DNAT"
    assert rule.translates_to == ((ip_address(to[0]), to[1]) if to else None)


def test_comments_are_read_without_their_quotes() -> None:
    rule = read(counted('-A K -m comment --comment "default/echo \\"x\\" -> 10.0.0.1:80" -j ACCEPT'))
    assert rule is not None
    assert (rule.comment, rule.target) == ('default/echo "x" -> 10.0.0.1:80', "ACCEPT")


MARKED = (
    ("nat", "KUBE-NODEPORTS", "-A KUBE-NODEPORTS -p tcp -m tcp --dport 80 -j KUBE-XLB-A"),
    ("nat", "KUBE-XLB-A", '-A KUBE-XLB-A -m comment --comment "echo has no local endpoints" -j KUBE-MARK-DROP'),
    ("nat", "KUBE-MARK-DROP", "-A KUBE-MARK-DROP -j MARK --set-xmark 0x8000/0x8000"),
    ("filter", "KUBE-FIREWALL", "-A KUBE-FIREWALL -m mark --mark 0x8000/0x8000 -j DROP"),
)


def drops(changes: Mapping[int, str], nodes: str = "aaaa") -> tuple[str, ...]:
    counts = [
        RuleCount(f"node-{node}", table, chain, changes.get(number, text), 1 if changes.get(number) != "" else 0)
        for number, ((table, chain, text), node) in enumerate(zip(MARKED, nodes, strict=True))
    ]
    return tuple(rule.count.chain for rule in ending(WORLD.resolved, read_all(counts), "DROP"))


def test_a_drop_by_mark_speaks_for_what_set_the_mark() -> None:
    assert drops({}) == ("KUBE-FIREWALL",)


@pytest.mark.parametrize(
    ("changes", "nodes"),
    [
        ({}, "aaab"),
        ({}, "aabb"),
        ({0: "-A KUBE-NODEPORTS -p tcp -m tcp --dport 81 -j KUBE-XLB-A"}, "aaaa"),
        ({0: "-A KUBE-NODEPORTS -p tcp -m tcp --dport 80 -j KUBE-XLB-B"}, "aaaa"),
        ({1: ""}, "aaaa"),
        ({2: "-A KUBE-MARK-DROP -j MARK --set-xmark 0x4000/0x4000"}, "aaaa"),
        ({2: "-A KUBE-MARK-DROP -j MARK --set-xmark 0x8000/0x0"}, "aaaa"),
        ({3: "-A KUBE-FIREWALL -m mark ! --mark 0x8000/0x8000 -j DROP"}, "aaaa"),
        ({3: "-A KUBE-FIREWALL -s 10.0.0.0/8 -m mark --mark 0x8000/0x8000 -j DROP"}, "aaaa"),
    ],
)
def test_a_drop_by_mark_speaks_for_nothing_else(changes: Mapping[int, str], nodes: str) -> None:
    assert drops(changes, nodes) == ()


@pytest.mark.parametrize(
    ("chain", "shown"),
    [
        ("KUBE-SVC-HV6DMF63W6MGLRDE", "KUBE-SVC-HV6DMF…"),
        ("KUBE-SERVICES", "KUBE-SERVICES"),
        ("service-NOJZO4L6-default/solo/tcp/", "service-NOJZO4L6-…"),
        ("endpoint-5OJB2KTY-default/echo/tcp/http__10.244.1.10/8080", "endpoint-5OJB2KTY-…"),
        ("nodeport-endpoints-check", "nodeport-endpoints-check"),
    ],
)
def test_a_chain_is_shown_by_what_tells_it_apart(chain: str, shown: str) -> None:
    assert short(chain) == shown


def test_a_rule_without_comment_names_the_map_that_it_asks(told: Told) -> None:
    text = "ip daddr @nodeport-ips meta l4proto . th dport vmap @no-endpoint-nodeports"
    rule = read(RuleCount("node-a", "kube-proxy", "nodeport-endpoints-check", text, 1, "DROP"))
    assert rule is not None
    assert the_rule(rule) == told()
    assert rule_action(rule, WORLD.resolved) == "drops it by the map no-endpoint-nodeports"


@pytest.mark.parametrize(
    ("table", "chain", "text", "engines"),
    [
        ("nat", "KUBE-SEP-A6I4TZKHGWDX2FDI", "-A KUBE-SEP-A6I4TZKHGWDX2FDI -j DNAT --to-destination 10.0.0.1:80", True),
        ("filter", "FORWARD", '-A FORWARD -m comment --comment "kubernetes forwarding rules" -j KUBE-FORWARD', True),
        ("filter", "FORWARD", '-A FORWARD -m comment --comment "-j KUBE-FORWARD" -j DROP', False),
        ("nat", "PREROUTING", "-A PREROUTING -d 10.96.0.10/32 -j DNAT --to-destination 10.0.0.1:80", False),
        ("filter", "FORWARD", "-P FORWARD DROP", False),
        ("kube-proxy", "services", "ip daddr 10.96.0.10 drop", True),
    ],
)
def test_a_rule_of_others_in_the_engines_tables_is_not_the_engines(
    table: str, chain: str, text: str, engines: bool
) -> None:
    count = RuleCount("node-a", table, chain, text, 1)
    service = replace(World().resolved, service_port="default/echo")
    assert may_be_engines(count, service) is engines
    assert may_be_engines(count, World().resolved), "a probe of no Service asks nothing of the engine"


def _led(*counts: RuleCount) -> int:
    """How many packets the Service's own DNAT rules counted."""
    resolved = replace(WORLD.resolved, service_port="default/echo:http")
    return sum(rule.count.packets for rule in of_service(resolved, read_all(counts)))


def _in_nat(chain: str, text: str, packets: int = 1) -> RuleCount:
    return RuleCount("node-a", "nat", chain, f"-A {chain} {text}", packets)


TO_POD = "-p tcp -m tcp -j DNAT --to-destination 10.244.1.10:8080"
TO_ECHO = _in_nat("KUBE-SERVICES", "-d 10.96.0.10/32 -p tcp -m tcp --dport 80 -j KUBE-SVC-A")
TO_TWIN = _in_nat("KUBE-SERVICES", "-d 10.96.0.11/32 -p tcp -m tcp --dport 80 -j KUBE-SVC-B")
CHOSEN = _in_nat("KUBE-SVC-A", "-j KUBE-SEP-A"), _in_nat("KUBE-SVC-B", "-j KUBE-SEP-B")
ENDS = _in_nat("KUBE-SEP-A", TO_POD), _in_nat("KUBE-SEP-B", TO_POD, packets=10)


def test_rules_of_another_service_with_the_same_endpoint_are_no_witnesses() -> None:
    assert _led(TO_ECHO, TO_TWIN, *CHOSEN, *ENDS) == 1
    assert _led(TO_TWIN, *CHOSEN, *ENDS) == 0
    assert _led(_in_nat("KUBE-EVIL", f"-d 10.96.0.10/32 {TO_POD.replace('-j', '--dport 80 -j')}")) == 0


@pytest.mark.parametrize(
    ("table", "chain", "packets"),
    [
        ("kube-proxy", "service-ABCDEFGH-default/echo/tcp/http", 1),
        ("kube-proxy", "endpoint-ABCDEFGH-default/echo/tcp/http__10.244.1.10/8080", 1),
        ("kube-proxy", "service-ABCDEFGH-default/echo/tcp/http2", 0),
        ("kube-proxy", "service-ABCDEFGH-default/twin/tcp/http", 0),
        ("ipvs", "-t 10.96.0.10:80", 1),
        ("ipvs", "-t 10.96.0.11:80", 0),
    ],
)
def test_a_chain_or_a_virtual_server_names_its_service(table: str, chain: str, packets: int) -> None:
    text = f"-a {chain} -r 10.244.1.10:8080 -m -w 1" if table == "ipvs" else "meta l4proto tcp dnat to 10.244.1.10:8080"
    assert _led(RuleCount("node-a", table, chain, text, 1, "DNAT", ip_address("10.244.1.10"), 8080)) == packets


def test_a_bundle_keeps_the_hashes_that_its_evidence_names_and_no_others() -> None:
    first, second, third, other = (letter * 16 for letter in "ABCD")
    known = frozenset({first, second, third, other})
    resolved = replace(WORLD.resolved, service_port="default/echo:http", chain_hashes=known)
    leading = f"-A KUBE-SVC-{first} -j KUBE-SEP-{second}"
    strange = f'-A KUBE-SEP-EVIL -m comment --comment "KUBE-FW-{third}" -j ACCEPT'
    counts = (
        RuleCount("node-a", "nat", f"KUBE-SVC-{first}", leading, 1),
        RuleCount("node-a", "nat", "KUBE-SEP-EVIL", strange, 1),
    )
    kept = as_recorded(resolved, (WORLD.evidence((), counts=counts), None))
    assert kept.chain_hashes == {first, second, third}
    assert [may_be_engines(each, kept) for each in counts] == [may_be_engines(each, resolved) for each in counts]
    unknown = replace(resolved, chain_hashes=None)
    assert as_recorded(unknown, ()) == unknown
