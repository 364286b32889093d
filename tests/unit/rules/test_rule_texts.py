"""A rule's text is printed as it was read, and each part of it is what its tool means by it."""

from itertools import chain
from pathlib import Path

import pytest

from proxylab.rules import iptables, nftables
from proxylab.rules.effects import Effect, effects, new_address
from proxylab.rules.rule import Action, Match, Rule
from proxylab.rules.texts import effects_of, print_rule, read_rule

GOLDENS = Path(__file__).resolve().parents[2] / "golden"
SAVED = sorted(GOLDENS.glob("kube-proxy-*/*.saved"))

IPTABLES = (
    '-A INPUT -m comment --comment "it\\\'s a \\"quoted\\" word -j DROP" -j ACCEPT',
    "-A INPUT -m comment --comment -j -j ACCEPT",
    "-A KUBE-FIREWALL -m conntrack --ctstate INVALID -m nfacct --nfacct-name  ct_state_invalid_dropped_pkts -j DROP",
    '-A FORWARD -m string --string "-p udp" --algo bm --to 65535 -j DROP',
    "-A INPUT -p tcp -m multiport --dports 80,443,8000:8100 -j REJECT --reject-with tcp-reset",
    "-A INPUT -m set ! --match-set drop src,dst -j ACCEPT",
    "-A INPUT -i eth+ ! -o lo -p icmp -m icmp --icmp-type 8 -m limit --limit 1/sec -g later",
    '-A INPUT -j LOG --log-prefix "dropped -p udp: " --log-tcp-options',
    "-A K -m statistic --mode random --probability 0.50000000000 -j KUBE-SEP-A",
    "-A POSTROUTING -j NETMAP --to 10.1.0.0/16",
    "-A INPUT -m mark --mark 0x8000/0x8000",
    "-I INPUT -j KUBE-FIREWALL",
    "-P FORWARD DROP",
)
NFT = (
    'ip saddr != 10.0.0.0/8 tcp dport { 80, 443 } counter packets 1 bytes 60 dnat to 10.1.0.1:8080 comment "web"',
    "ct status dnat ip saddr . ip daddr @hairpin-connections masquerade fully-random",
    "ct status & (snat | dnat) != 0 accept",
    "ct state established,related accept",
    "ct original ip daddr 10.0.0.1 accept",
    "ct original proto-dst 80 drop",
    "ct count over 20 reject with tcp reset",
    "tcp flags syn / fin,syn,rst,ack drop",
    "tcp flags & (fin | syn) == syn drop",
    "tcp option maxseg size set rt mtu",
    "tcp option maxseg exists drop",
    "meta mark set meta mark | 0x00004000 return",
    "meta mark & 0x00004000 == 0x00004000 meta mark set meta mark ^ 0x00004000 masquerade fully-random",
    "numgen random mod 2 vmap { 0 : goto a, 1 : goto b }",
    'numgen inc mod 1000 0 dup to 172.18.0.4 device "eth0"',
    "fib daddr type local ip daddr != 127.0.0.0/8 meta l4proto . th dport vmap @service-nodeports",
    "fib saddr . iif oif missing drop",
    "limit rate over 10/second burst 5 packets drop",
    'log prefix "tcp dport 80 " level warn flags tcp sequence,options group 2 drop',
    "dnat ip to numgen random mod 2 map { 0 : 10.0.0.1, 1 : 10.0.0.2 }:80 persistent",
    "dnat ip addr . port to ip daddr . tcp dport map { 1.1.1.1 . 80 : 2.2.2.2 . 80 }",
    "dnat to [fd00::1]:80",
    "snat ip to ip saddr map @sources fully-random,persistent",
    "masquerade to :1024-2048 random",
    'xt match "owner" counter packets 1 bytes 2 xt target "MASQUERADE"',
    "reject with icmp port-unreachable",
    'reject with icmpx type admin-prohibited comment "a { b"',
    "update @affinity { ip saddr timeout 10s } goto x",
    "add @seen { ip saddr . tcp dport timeout 1m counter } drop",
    'meta hour "08:00"-"17:00" iifname { "eth0", "eth1" } accept',
    "jhash ip saddr mod 2 seed 0x1 vmap { 0 : drop }",
    "queue flags bypass to 1-3",
    "tproxy ip to 127.0.0.1:50080 meta mark set 0x00000001 accept",
    "@th,16,16 0x50 drop",
    "ip daddr set 10.0.0.9 tcp dport set 80",
    "ip saddr . tcp dport { 10.0.0.1 . 80, 10.0.0.2 . 443 } drop",
    "ip protocol != { tcp, udp } notrack",
    'meta protocol ip fwd to "eth0"',
    "flow add @ft",
    'counter name "drop" accept',
    'counter name tcp dport map { 80 : "http", 443 : "https" } drop',
    "udp dport 4789 vxlan ip saddr 10.0.0.1 drop",
    "udp dport vmap { 53 : accept, 80 : jump drop }",
    "rt ip nexthop 192.168.0.1 drop",
    "something the kernel has since drop",
    "policy drop",
)


def golden_lines() -> list[str]:
    tables = chain.from_iterable(iptables.read_tables(path.read_text()) for path in SAVED)
    return [rule.text for table in tables for rule in table.rules]


def test_every_golden_line_of_the_real_kube_proxy_is_printed_as_it_was_read() -> None:
    lines = golden_lines()
    assert len(lines) > 3000
    assert [line for line in lines if (rule := read_rule(line)) is None or print_rule(rule) != line] == []


@pytest.mark.parametrize("text", [*IPTABLES, *NFT])
def test_a_rule_is_printed_as_it_was_read(text: str) -> None:
    rule = read_rule(text)
    assert rule is not None
    assert print_rule(rule) == text


@pytest.mark.parametrize(
    ("written", "saved"),
    [
        ("-A C -j MARK --or-mark 0x4000 -d 10.0.0.1", "-A C -d 10.0.0.1 -j MARK --or-mark 0x4000"),
        ("-A C --source 10.0.0.1 --jump DROP", "-A C -s 10.0.0.1 -j DROP"),
        ('-A C -m comment --comment "word" -j DROP', "-A C -m comment --comment word -j DROP"),
        ("-A C  -p tcp   -j DROP", "-A C -p tcp -j DROP"),
    ],
)
def test_another_spelling_is_printed_as_iptables_save_does(written: str, saved: str) -> None:
    rule = read_rule(written)
    assert rule is not None
    assert print_rule(rule) == saved


@pytest.mark.parametrize("text", ["-A", "-N C", '-A C -m comment --comment "no end', "-P C", "-D C -j DROP"])
def test_a_line_of_iptables_without_a_rule_is_none(text: str) -> None:
    assert iptables.read_rule(text) is None


def test_an_escaped_apostrophe_is_part_of_the_comment() -> None:
    rule = read_rule('-A C -m comment --comment "it\\\'s mine" -j DROP')
    assert rule is not None
    assert rule.comment == "it's mine"


@pytest.mark.parametrize(
    "text",
    [
        "redirect to :tcp dport map { 80 : 8080 }",
        "masquerade to :th dport map @ports random",
        "redirect to :numgen inc mod 2 map { 0 : 80, 1 : 81 }",
        "dnat ip to 192.0.2.1:tcp dport map { 80 : 8080 }",
        "dnat ip6 to [2001:db8::1]:udp dport map @ports persistent",
        "dnat to 2001:db8::1",
    ],
)
def test_a_port_that_is_looked_up_is_part_of_its_translation(text: str) -> None:
    rule = nftables.read_rule(text)
    assert [part.name for part in rule.parts] == [text.partition(" ")[0]]
    assert nftables.print_rule(rule) == text


def test_an_unknown_condition_is_kept_and_swallows_no_verdict() -> None:
    assert nftables.read_rule("something the kernel has since drop").parts == (
        Match("something", ("the",)),
        Match("kernel", ("has",)),
        Match("since"),
        Action("drop"),
    )
    assert iptables.read_rule("-A C -m later --later-option 1 2 -j DROP") == Rule(
        "C", (Match("-m", ("later",)), Match("--later-option", ("1", "2")), Action("DROP"))
    )


NOTHING: tuple[Effect, ...] = ()
DOES = {
    "ct status dnat accept": (Effect.ACCEPT,),
    'counter accept comment "no drop"': (Effect.ACCEPT,),
    "goto drop": NOTHING,
    'iifname "redirect" accept': (Effect.ACCEPT,),
    "-A INPUT -i queue -j ACCEPT": (Effect.ACCEPT,),
    "-A INPUT -m hashlimit --hashlimit-above 5/sec --hashlimit-name drop -j ACCEPT": (Effect.ACCEPT,),
    "-A INPUT -j DROP-OTHERS": NOTHING,
    "-A INPUT -j REJECT --reject-with tcp-reset": (Effect.REJECT, Effect.RESET),
    "-A POSTROUTING -j SNPT --src-pfx fd00::/64 --dst-pfx 2001:db8::/64": (Effect.SET_SOURCE,),
    "-A PREROUTING -j NETMAP --to 10.1.0.0/16": (Effect.DESTINATION,),
    "-A POSTROUTING -j NETMAP --to 10.1.0.0/16": (Effect.SOURCE,),
    "-A mine -j NETMAP --to 10.1.0.0/16": (Effect.SOURCE, Effect.DESTINATION),
    "-A PREROUTING -j CT --notrack": (Effect.NO_TRACKING,),
    "-A PREROUTING -j CT --zone 1": NOTHING,
    "-A PREROUTING -j CONNMARK --restore-mark": (Effect.MARK,),
    "-A PREROUTING -j CONNMARK --save-mark": NOTHING,
    "-P FORWARD DROP": (Effect.DROP,),
    "policy drop": (Effect.DROP,),
    "reject with tcp reset": (Effect.REJECT, Effect.RESET),
    "reject with icmpx admin-prohibited": (Effect.REJECT,),
    "tcp dport vmap @fate": (Effect.LOOK_UP,),
    "tcp dport vmap { 80 : drop, 81 : accept }": (Effect.LOOK_UP,),
    "tcp dport vmap { 80 : jump drop, 81 : accept }": NOTHING,
    "ip daddr set 10.0.0.9 tcp sport set 80": (Effect.SET_DESTINATION, Effect.SET_SOURCE),
    "ip6 hoplimit set 1": (Effect.HOPS,),
    "ct mark set meta mark": (Effect.MARK,),
    "meta pkttype set other": (Effect.PACKET_TYPE,),
    'counter packets 1 bytes 2 xt target "MASQUERADE"': (Effect.SOURCE,),
    "masquerade": (Effect.SOURCE,),
}


@pytest.mark.parametrize("text", DOES)
def test_what_a_rule_does_is_its_statement_and_no_match_name_or_comment(text: str) -> None:
    assert effects_of(text) == set(DOES[text])


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("dnat ip to 10.1.0.1:80", "10.1.0.1"),
        ("dnat to [fd00::1]:80", "fd00::1"),
        ("snat to fd00::1", "fd00::1"),
        ("ip saddr set 10.1.0.2", "10.1.0.2"),
        ("-A P -j DNAT --to-destination 10.1.0.1:80", "10.1.0.1"),
        ("-A P -j DNAT --to-destination [fd00::1]:80", "fd00::1"),
        ("-A P -j SNAT --to-source 10.1.0.1", "10.1.0.1"),
        ("-A P -j REDIRECT --to-ports 80", "None"),
        ("snat to ip saddr map @sources", "None"),
        ('-A P -m comment --comment "--to-source 10.0.0.1" -j MASQUERADE', "None"),
        ("tcp dport set 80", "None"),
    ],
)
def test_the_address_that_a_rule_gives_is_in_its_action(text: str, address: str) -> None:
    rule = read_rule(text)
    assert rule is not None
    assert str(new_address(rule)) == address
    assert effects(rule) != frozenset()
