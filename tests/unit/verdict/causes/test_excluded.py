"""Rules whose own matches exclude a packet explain nothing about it, whatever they counted."""

import pytest
from judging import judged
from msgspec.structs import replace
from recorded import World
from scenario_cases import frontend, probe, two_nodes

from proxylab.addresses import Transport
from proxylab.evidence.evidence import Evidence, ForeignRule, Packet, RuleCount
from proxylab.plan.topology import draw
from proxylab.verdict.case import Case
from proxylab.verdict.causes.failure import Failure, without_excluded

WORLD = World()
THERE, BACK = (Packet.REQUEST,), (Packet.REPLY,)


def rule(text: str) -> ForeignRule:
    return ForeignRule("node-b", "ip cni", "x", "forward", 0, text, 90)


def failure(evidence: Evidence, world: World = WORLD) -> Failure:
    verdict = judged(world, evidence)
    return Failure(Case(world.probe, world.resolved, evidence), verdict.verdicts[0])


def remains(text: str, kinds: tuple[Packet, ...], world: World = WORLD) -> bool:
    evidence = world.evidence(
        world.crossing(0, "echo-1"),
        foreign=(rule(text),),
        counts=(RuleCount("node-b", "filter", "FORWARD", text, 90),),
    )
    found = without_excluded(failure(evidence, world), *kinds).case.evidence
    assert bool(found.foreign) is bool(found.counts)
    return bool(found.foreign)


@pytest.mark.parametrize(
    ("text", "there", "back"),
    [
        ("-A FORWARD -d 10.244.1.11/32 -p udp -m udp --dport 9 -j DROP", False, False),
        ("-A FORWARD -p udp -j DROP", False, False),
        ("-A FORWARD ! -p tcp -j DROP", False, False),
        ("-A FORWARD -p tcp -m tcp --dport 9 -j DROP", False, False),
        ("-A FORWARD -p tcp -m tcp --dport 8000:8100 -j DROP", True, False),
        ("-A FORWARD -p tcp -m tcp --sport 8080 -j DROP", False, True),
        ("-A FORWARD -s 10.244.2.0/24 -j DROP", False, True),
        ("-A FORWARD ! -s 10.244.2.0/24 -j DROP", True, True),
        ("-A FORWARD ! -s 10.0.0.0/8 -j DROP", False, False),
        ("-A FORWARD -d 10.96.0.10/32 -p tcp -j DROP", True, False),
        ('-A FORWARD -m comment --comment "not -d 1.2.3.4 or \\" -p udp" -j DROP', True, True),
        ("-A FORWARD -m conntrack --ctstate INVALID -j DROP", True, True),
        ("-A FORWARD -d nonsense -p nonsense -m udp --dport http -j DROP", True, True),
        ("-A FORWARD -p 133 -j DROP", False, False),
        ("-A FORWARD -p tcp -m multiport --dports 9,8000:8100 -j DROP", True, False),
        ("-A FORWARD -p tcp -m multiport --dports 9,10 -j DROP", False, False),
        ("-A FORWARD -m iprange --dst-range 10.244.2.1-10.244.2.9 -j DROP", True, False),
        ('-A FORWARD -m string --string "to -p udp or so" --algo bm --to 65535 -j DROP', True, True),
        ('log prefix "to udp dport 9 or so" drop', True, True),
        ("ip daddr 10.244.1.1-10.244.1.9 drop", False, True),
        ("tcp dport >= 8000 drop", True, True),
        ("dccp dport 8080 drop", False, False),
        ("-P FORWARD DROP", True, True),
        ("ip daddr 10.244.1.11 udp dport 9 counter drop", False, False),
        ("ip6 daddr fd00::1 drop", False, False),
        ("ip daddr 10.244.2.3 tcp dport 8000-8100 drop", True, False),
        ("ip saddr != 10.0.0.0/8 drop", False, False),
        ("tcp sport != 80-8080 drop", True, False),
        ("meta l4proto udp drop", False, False),
        ("ip protocol != tcp drop", False, False),
        ("ct original ip daddr 10.96.0.99 drop", True, True),
        ("tcp dport { 80, 9 } ip daddr @set counter drop", True, False),
        ("ip daddr { 10.244.1.11, 10.96.0.99 } drop", False, False),
        ("meta l4proto { udp, sctp } drop", False, False),
        ("meta l4proto { tcp, udp } th dport { 80-90 } drop", True, False),
        ("icmp type destination-unreachable drop", False, False),
        ("tcp flags syn drop", True, True),
        ("th dport 9 drop", False, False),
        ("ip daddr set 10.244.9.9", True, True),
        ("", True, True),
    ],
)
def test_a_rule_is_excluded_by_what_it_names_and_the_packets_never_had(text: str, there: bool, back: bool) -> None:
    assert (remains(text, THERE), remains(text, BACK), remains(text, THERE + BACK)) == (there, back, there or back)


def test_a_rule_of_another_ip_version_is_excluded() -> None:
    ipv6 = replace(WORLD, ipv6=True)
    assert not remains("-A FORWARD -s 10.0.0.0/8 -j DROP", THERE, ipv6)
    assert remains("ip6 saddr fd00::/8 drop", THERE, ipv6)


def test_icmp_errors_come_from_anywhere() -> None:
    assert remains("-A FORWARD -s 203.0.113.1/32 -p icmp -j DROP", (*BACK, Packet.OTHER_ICMP))
    assert not remains("-A FORWARD -p udp -j DROP", (*BACK, Packet.OTHER_ICMP))
    assert not remains("-A FORWARD -p icmp -j DROP", BACK)
    assert remains("-A FORWARD -p ipv6-icmp -j DROP", THERE, replace(WORLD, protocol=Transport.ICMP, ipv6=True))
    assert not remains("-A FORWARD -p ipv6-icmp -j DROP", THERE, replace(WORLD, protocol=Transport.ICMP))


@pytest.mark.parametrize("tunnels", [False, True])
def test_nothing_is_excluded_that_may_match_a_tunnels_packet(tunnels: bool) -> None:
    plan = draw(two_nodes(probe("p", "sender", frontend()), network={"inter_node": "vxlan"} if tunnels else {}))
    evidence = WORLD.evidence(WORLD.crossing(0, "echo-1"), foreign=(rule("udp dport 4789 drop"),))
    found = without_excluded(replace(failure(evidence), plan=plan), *THERE)
    assert bool(found.case.evidence.foreign) is tunnels
