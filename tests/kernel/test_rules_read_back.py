"""The kernel judges what a rule's text means: its tools print what was read, and its counters show what matched.

Each rule counts, in a network namespace of its own, one UDP packet from port 40000 to port 80 of the loopback address.
A rule that must match has counted it, one that cannot has not. JSON of nft shows whether its text was split rightly.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from ipaddress import ip_address
from pathlib import Path

import pytest

from proxylab.addresses import Transport
from proxylab.rules.iptables import print_rule, read_rule, read_tables
from proxylab.rules.nft_listing import listed_rules, print_listing, read_listing
from proxylab.rules.nftables import print_rule as print_nft
from proxylab.rules.nftables import read_rule as read_nft
from proxylab.rules.packets import Answer, Packets, matches
from proxylab.rules.rule import Match, Rule

SANDBOX = ["unshare", "--net", "--mount", *([] if os.geteuid() == 0 else ["--user", "--map-root-user"])]
SEND = """
import socket
kind = socket.AF_INET6 if ":" in "{0}" else socket.AF_INET
with socket.socket(kind, socket.SOCK_DGRAM) as receiver, socket.socket(kind, socket.SOCK_DGRAM) as sender:
    receiver.bind(("{0}", 80))
    sender.bind(("{0}", 40000))
    sender.sendto(b"x", ("{0}", 80))
    receiver.recv(1)
"""
NFT = (
    "",
    "udp dport 80",
    "udp dport != 80",
    "udp dport { 79, 80-90 }",
    "udp dport != { 80, 443 }",
    "udp dport >= 80",
    "udp sport > 40000",
    "th dport 80",
    "tcp dport 80",
    "udplite dport 80",
    "meta l4proto udp",
    "meta l4proto { tcp, sctp }",
    "meta l4proto != icmp",
    "ip protocol udp",
    "ip6 nexthdr udp",
    "meta nfproto ipv4",
    "meta protocol ip6",
    "ip saddr 127.0.0.0/8",
    "ip saddr != 10.0.0.0/8",
    "ip saddr 127.0.0.0-127.0.0.9",
    "ip daddr != { 127.0.0.1, 10.0.0.0/8 }",
    "ip6 daddr ::1",
    "ip6 saddr != fd00::/64",
    "ip daddr . udp dport { 127.0.0.1 . 80, 10.0.0.1 . 81 }",
    "ip daddr . udp dport { 10.0.0.1 . 80, 10.0.0.2 . 81 }",
    "ip daddr . meta l4proto . th dport @known",
    "ip saddr @sources",
    "ip saddr != @sources",
    "icmp type echo-request",
    "ct state new,established",
    "ct state invalid",
    "ct original ip daddr 10.0.0.1",
    "ct status & (snat | dnat) != 0",
    "meta mark & 0x4000 == 0x4000",
    "tcp flags & (fin | syn) == syn",
    'oifname "lo"',
    'oifname { "lo", "eth*" }',
    "fib daddr type local",
    "limit rate over 10/second burst 5 packets",
    'log prefix "udp dport 81 drop " group 7 udp dport 80',
    "numgen random mod 2 0",
    "udp length 9",
    "@th,16,16 80",
    "ip ttl > 1",
    "meta mark set meta mark or 0x4000",
    "ct mark set meta mark",
    "udp dport vmap { 53 : accept, 81 : jump drop-later }",
    "counter meta pkttype set host",
    "add @seen { ip saddr . udp dport }",
)
"""Conditions, and statements that let a packet pass, each before a counter and a comment."""
ENDING = (
    "drop",
    "reject with icmpx port-unreachable",
    "tcp dport 81 reject with tcp reset",
    "goto drop-later",
    "udp dport 81 queue to 1",
    "notrack",
    'ct status dnat accept comment "no drop { here"',
)
"""Rules of a chain that no packet meets."""
TABLE = """
table inet t {
    set known { type ipv4_addr . inet_proto . inet_service; elements = { 127.0.0.1 . udp . 80 }; }
    set sources { type ipv4_addr; elements = { 10.0.0.1 }; }
    set filter_allowed_zones { type ipv4_addr; }
    set allowed { type ipv4_addr . inet_service; }
    set cluster-ips { type ipv4_addr; }
    set met { type ipv4_addr; flags dynamic; size 9; }
    set flood { type ipv4_addr . inet_service; flags dynamic,timeout; size 9; }
    map states { type ct_state : verdict; }
    map service-ips { type ipv4_addr . inet_proto . inet_service : verdict; }
    counter http { }
    counter https { }
    limit lim { rate 5/second; }
    quota q { over 5 mbytes; }
    ct helper ftp-standard { type "ftp" protocol tcp; }
    chain a { }
    chain b { }
    chain p { }
    chain filter_INPUT_POLICIES { }
    chain filter_INPUT_ZONES { }
    chain DOCKER-ISOLATION { }
    set seen { type ipv4_addr . inet_service; flags dynamic; size 9; }
    chain drop-later { }
    chain idle { }
    chain out { type filter hook output priority 0; policy accept; }
}
"""
PROGRAMS = Path(__file__).resolve().parents[1] / "golden/rules-of-programs"
"""Rules as programs of real hosts write them; no packet meets them here."""
FEWEST = 120
"""Not every kernel has every kind of condition, but most."""

OBJECTS = """
table inet t { comment "a { b"; flags dormant; }
table inet t { set s1 { type ipv4_addr . inet_service; flags interval; comment "x } y"; \\
    elements = { 10.0.0.0/24 . 80-90 comment "a, b } c {", 10.0.1.1 . 443 }; }; }
table inet t { set s2 { type ifname . ipv4_addr; elements = { "eth0" . 10.0.0.1, "eth1" . 10.0.0.2 }; }; }
table inet t { set s3 { type mark; counter; elements = { 0x1, 0x2 }; }; }
table inet t { set s4 { type ipv4_addr; flags dynamic,timeout; timeout 1m; gc-interval 10s; size 100; }; }
table inet t { chain c { comment "a chain }"; }; }
table inet t { map m1 { type inet_service : ipv4_addr . inet_service; elements = { 80 : 10.0.0.1 . 8080 }; }; }
table inet t { map m2 { type ipv4_addr : verdict; flags interval; \\
    elements = { 10.0.0.0/8 : jump c, 192.168.0.0-192.168.1.5 : drop, * : accept }; }; }
table inet t { counter http { packets 3 bytes 4; comment "h"; }; }
table inet t { map m3 { type inet_service : counter; elements = { 80 : "http" }; }; }
table inet t { quota q { over 5 mbytes used 3 bytes; }; }
table inet t { limit l { rate over 5/second burst 3 packets; }; }
table inet t { synproxy sy { mss 1460; wscale 7; timestamp sack-perm; }; }
table inet t { ct helper ftp { type "ftp" protocol tcp; l3proto ip; }; }
table inet t { ct expectation e { protocol tcp; dport 9876; timeout 2m; size 12; l3proto ip; }; }
table inet t { ct timeout slow { protocol tcp; l3proto ip; policy = { established : 120, close : 20 }; }; }
table inet t { flowtable f { hook ingress priority 0; devices = { lo }; }; }
table inet t { chain base { type filter hook forward priority -5; policy drop; comment "b"; }; }
add rule inet t base ip saddr { 10.0.0.1, 10.0.0.2, 10.0.0.3, 10.0.0.4, 10.0.0.5 } counter drop comment "{ , }"
table netdev n { chain i { type filter hook ingress devices = { "lo" } priority -400; policy accept; }; }
table arp a { chain x { type filter hook input priority 0; }; }
table bridge b { chain y { type filter hook forward priority 0; }; }
"""
"""A table with flags and a comment, and objects of each kind."""

IPTABLES = (
    "",
    "-p udp",
    "-p 17",
    "-p 133",
    "! -p tcp",
    "-p udp -m udp --dport 79:81",
    "-p udp -m udp ! --dport 80",
    "-p udp -m udp --sport 40001:",
    "-p tcp -m tcp --dport 80",
    "-p udp -m multiport --dports 79,80:90",
    "-p udp -m multiport ! --dports 80",
    "-p udp -m multiport --sports 1,2",
    "-p udp -m multiport --ports 40000",
    "-s 127.0.0.0/8",
    "! -s 127.0.0.0/8",
    "-d 127.0.0.2/32",
    "! -d 10.0.0.0/8 -p udp",
    "-m iprange --src-range 127.0.0.0-127.0.0.9",
    "-m iprange ! --dst-range 127.0.0.0-127.0.0.9",
    "-m addrtype --dst-type LOCAL",
    "-m conntrack --ctstate NEW",
    "-m mark ! --mark 0x1/0x1",
    "-o lo",
    "! -o eth+",
    "-m limit --limit 1/sec",
    "-m statistic --mode random --probability 0.5",
    """-m comment --comment "it's -p tcp, said \\"no one\\"" -p udp""",
    "-m comment --comment -j -p udp",
    '-m string --string "-p tcp" --algo bm',
    '-p udp -j LOG --log-prefix "dropped -p tcp: "',
    "-p udp -j MARK --set-xmark 0x4000/0x4000",
)


def run(script: Sequence[str]) -> str:
    started = [*SANDBOX, "sh", "-c", "\n".join(["set -e", "mount -t tmpfs tmpfs /run", "ip link set lo up", *script])]
    done = subprocess.run(started, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode and "unshare" in done.stderr:
        pytest.skip(f"needs a network namespace of its own: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    return done.stdout


def sent_to(address: str) -> Packets:
    loopback = ip_address(address)
    return Packets({Transport.UDP}, {loopback}, {loopback}, {40000}, {80})


def check(rule: Rule, counted: int, text: str, address: str) -> Answer:
    """That the answer about the packet is what the kernel did."""
    answer = matches(rule, sent_to(address))
    assert answer is Answer.MAY or counted == (answer is Answer.YES), (text, answer, counted)
    return answer


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_a_rule_of_nft_means_what_the_kernel_takes_it_for(address: str) -> None:
    if shutil.which("nft") is None:
        pytest.skip("needs nft; apt-get install nftables")
    rules = [f'out {each} counter comment "{number}"' for number, each in enumerate(NFT)]
    rules += [f"idle {each}" for each in (*ENDING, *(PROGRAMS / "nftables.listed").read_text().splitlines())]
    made = [f"nft -f - <<'END' || echo refused >&2\nadd rule inet t {each}\nEND" for each in rules]
    sender = f"{sys.executable} - <<'END'\n{SEND.format(address)}\nEND"
    base = f"nft -f - <<'END'\n{TABLE}\nEND"
    listings = run([base, *made, sender, "nft -a list ruleset", "echo ====", "nft -j list ruleset"])
    listed, _, as_json = listings.partition("====\n")
    assert print_listing(read_listing(listed)) == listed
    read = [(each, read_nft(each.text)) for each in listed_rules(listed)]
    assert len(read) >= FEWEST
    assert [each.text for each, rule in read if print_nft(rule) != each.text] == []
    counted = [(rule, each.text) for each, rule in read if each.chain == "out"]
    answers = [check(rule, int(rule.value("packets")), rule_text, address) for rule, rule_text in counted]
    assert answers.count(Answer.YES) >= 8
    assert answers.count(Answer.NO) >= 5
    parsed = {
        each["rule"]["handle"]: each["rule"]["expr"] for each in json.loads(as_json)["nftables"] if "rule" in each
    }
    kinds = {
        each.text: (
            [_kind(part) for part in rule.parts if part.name != "comment"],
            [_kind_of(expression) for expression in parsed[each.handle]],
        )
        for each, rule in read
    }
    assert {text: of for text, of in kinds.items() if of[0] != of[1]} == {}


@pytest.mark.parametrize("handles", ["", "-a"])
def test_objects_of_each_kind_are_printed_as_nft_lists_them(handles: str) -> None:
    if shutil.which("nft") is None:
        pytest.skip("needs nft; apt-get install nftables")
    blocks = OBJECTS.split("\ntable ")[1:]
    made = [f"nft -f - <<'END' || echo refused >&2\ntable {each}\nEND" for each in blocks]
    listed = run([*made, f"nft {handles} list ruleset"])
    tables = read_listing(listed)
    assert print_listing(tables) == listed
    assert len(tables) == 4
    assert len(tables[0].objects) >= 13


def _kind(part: object) -> str:
    """What a part of a rule is, in the words of nft's JSON."""
    if isinstance(part, Match):
        return f"match {part.operator or '=='}"
    name = getattr(part, "name", "")
    return "mangle" if name.endswith(" set") else {"add": "set", "delete": "set", "update": "set"}.get(name, name)


def _kind_of(expression: dict[str, dict[str, str]]) -> str:
    (name,) = expression
    if name != "match":
        return {"ct count": "match ==", "ct helper": "mangle"}.get(name, name)
    return f"match {'==' if expression[name]['op'] == 'in' else expression[name]['op']}"


@pytest.mark.parametrize("variant", ["nft", "legacy"])
def test_a_rule_of_iptables_means_what_the_kernel_takes_it_for(variant: str) -> None:
    if shutil.which(f"iptables-{variant}") is None:
        pytest.skip("needs iptables; apt-get install iptables")
    tool = f"iptables-{variant}"
    made = [f"{tool} -A OUTPUT {each} || echo 'refused: {number}' >&2" for number, each in enumerate(IPTABLES)]
    sender = f"{sys.executable} - <<'END'\n{SEND.format('127.0.0.1')}\nEND"
    saved = run([*made, sender, f"{tool}-save -c -t filter"])
    (table,) = read_tables(saved)
    answers = []
    for line in table.rules:
        rule = read_rule(line.text)
        assert rule is not None
        assert print_rule(rule) == line.text
        answers.append(check(rule, line.packets or 0, line.text, "127.0.0.1"))
    assert len(answers) >= 20
    assert answers.count(Answer.YES) >= 8
    assert answers.count(Answer.NO) >= 5
