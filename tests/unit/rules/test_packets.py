"""Whether packets match a rule: yes, no, or may, where a condition or what it compares is unknown."""

from ipaddress import ip_address

import pytest

from proxylab.addresses import Transport
from proxylab.rules.packets import Answer, Packets, matches
from proxylab.rules.texts import read_rule

SENT = Packets(
    protocols={Transport.TCP},
    sources={ip_address("10.244.1.10")},
    destinations={ip_address("10.96.0.10"), ip_address("10.244.2.3")},
    source_ports={40000},
    destination_ports={80},
)

YES = (
    "-A C -j DROP",
    '-A C -m comment --comment "-p udp" -j DROP',
    "-A C -s 10.244.0.0/16 -p tcp -m tcp --dport 80 -j DROP",
    "-A C ! -s 10.99.0.0/16 -p tcp -m tcp ! --dport 81 -j DROP",
    "-A C -p tcp -m multiport --dports 79,80:90 -j DROP",
    "-A C -p 6 -m tcp --sport 1024: -j DROP",
    "-A C -m iprange --src-range 10.244.0.0-10.244.255.255 -j DROP",
    '-A C -j LOG --log-prefix "-p udp -d 1.1.1.1"',
    "ip protocol tcp drop",
    "meta nfproto ipv4 tcp dport 80 drop",
    "tcp dport 80 drop",
    "tcp dport != { 81, 90-99 } drop",
    "th dport < 1024 drop",
    "ip saddr 10.244.1.1-10.244.1.20 counter packets 1 bytes 60 drop",
    "meta l4proto { tcp, udp } drop",
    'log prefix "udp dport 81" drop',
    'drop comment "ip saddr 1.1.1.1"',
    "ip saddr . tcp dport 10.244.1.10 . 80 drop",
)
NO = (
    "-A C -d 10.97.0.0/16 -j DROP",
    "-A C ! -s 10.244.0.0/16 -j DROP",
    "-A C -p udp -j DROP",
    "-A C -p 133 -j DROP",
    "-A C ! -p tcp -j DROP",
    "-A C -p tcp -m multiport --dports 443,8080 -j DROP",
    "-A C -p tcp -m multiport ! --sports 40000 -j DROP",
    "-A C -m iprange ! --src-range 10.244.0.0-10.244.255.255 -j DROP",
    "-A C -m later --option 1 -p udp -j DROP",
    "udp length 100 drop",
    "icmp type echo-request drop",
    "tcp dport > 1024 drop",
    "ip daddr 10.97.0.0-10.97.0.9 drop",
    "ip daddr != { 10.96.0.0/16, 10.244.0.0/16 } drop",
    "ip6 saddr != fd00::1 drop",
    "ip6 saddr fd00::/64 drop",
    "ip6 hoplimit 1 drop",
    "ip6 nexthdr tcp drop",
    "meta nfproto ipv6 drop",
    "meta protocol != ip drop",
    "ip saddr . tcp dport { 10.244.1.10 . 81, 10.244.1.10 . 82 } drop",
    "udp dport vmap { 80 : drop }",
    "dccp dport 80 drop",
    "ct state new tcp dport 443 drop",
)
MAY = (
    "-A C -d 10.96.0.10/32 -j DROP",
    "-A C ! -d 10.96.0.10/32 -j DROP",
    "-A C -m later --option 1 -j DROP",
    "-A C -i eth0 -j DROP",
    "-A C -p later-protocol -j DROP",
    "-A C -d nonsense -m udp --dport http -j DROP",
    "-A C -m set --match-set drop src -j DROP",
    "ip saddr @drop-list drop",
    "ip saddr != @drop-list drop",
    "ct original ip daddr 10.97.0.1 drop",
    "tcp flags syn drop",
    "tcp dport & 1 == 0 drop",
    "ip saddr . tcp dport { 10.244.1.10 . 81, 10.97.0.1 . 80 } drop",
    "ip saddr . tcp dport != { 10.244.1.10 . 81 } drop",
    "ip saddr > 10.0.0.1 drop",
    "limit rate 5/second drop",
    "add @seen { ip saddr } drop",
    "meta mark set ip saddr map @marks drop",
    "tcp dport vmap { 443 : drop }",
    "something the kernel has since drop",
)


def answer_to(text: str, packets: Packets = SENT) -> Answer:
    rule = read_rule(text)
    assert rule is not None
    return matches(rule, packets)


@pytest.mark.parametrize("text", YES)
def test_all_these_packets_match(text: str) -> None:
    assert answer_to(text) is Answer.YES


@pytest.mark.parametrize("text", NO)
def test_none_of_these_packets_matches(text: str) -> None:
    assert answer_to(text) is Answer.NO


@pytest.mark.parametrize("text", MAY)
def test_some_may_match(text: str) -> None:
    assert answer_to(text) is Answer.MAY


@pytest.mark.parametrize("text", [*YES[2:6], *NO])
def test_a_condition_on_what_is_unknown_may_hold(text: str) -> None:
    assert answer_to(text, Packets()) is Answer.MAY


def test_icmp_of_ipv6_has_names_of_its_own() -> None:
    echo = Packets(protocols={Transport.ICMP}, destinations={ip_address("fd00::1")})
    for text in (
        "-A C -p ipv6-icmp -j DROP",
        "-A C -p 58 -j DROP",
        "meta l4proto ipv6-icmp drop",
        "ip6 nexthdr icmpv6 drop",
    ):
        assert answer_to(text, echo) is Answer.YES
        assert answer_to(text) is Answer.NO
