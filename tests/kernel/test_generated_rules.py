"""Drawn rules and packets in a kernel: a rule that must match a packet has counted it, one that cannot has not.

Each rule counts in a namespace of its own, in the chain of packets that the namespace sends. After each packet its
counter says whether the kernel took the packet for one that matches, and ``rules.packets.matches`` must agree, unless
it says that it may. So must it for two packets of which it does not know which was sent.
"""

import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from ipaddress import ip_address
from itertools import combinations, pairwise
from pathlib import Path
from typing import NamedTuple

import pytest
from thoroughness import examples as many

from proxylab.addresses import Transport
from proxylab.rules import ipset, iptables, nftables
from proxylab.rules.nft_listing import listed_rules
from proxylab.rules.packets import Answer, Packets, Sets, matches
from proxylab.rules.rule import Rule

DRIVER = Path(__file__).with_name("counted_packets.py")
SANDBOX = ["unshare", "--net", *([] if os.geteuid() == 0 else ["--user", "--map-root-user"])]

IPV4 = ("10.96.0.10", "10.96.0.11", "10.244.1.10", "10.244.9.10", "192.0.2.1")
IPV6 = ("fd00:96::a", "fd00:96::b", "fd00:244:1::a", "2001:db8::1")
WIDER = {
    IPV4: ("10.0.0.0/8", "10.96.0.0/16", "10.244.0.0/16", "10.244.9.0/24", "192.0.2.0/31"),
    IPV6: ("fd00::/8", "fd00:96::/64", "fd00:96::a/127", "2001:db8::/32"),
}
PORTS = (53, 80, 81, 443, 30080, 40000)
PROTOCOLS = ("tcp", "udp", "sctp")


class Sent(NamedTuple):
    """One packet; ports of ICMP are 0."""

    protocol: Transport
    source: str
    source_port: int
    destination: str
    port: int


PACKETS = (
    Sent(Transport.TCP, "10.244.1.10", 40000, "10.96.0.10", 80),
    Sent(Transport.UDP, "10.244.9.10", 40000, "10.96.0.10", 53),
    Sent(Transport.SCTP, "10.96.0.11", 81, "10.244.1.10", 80),
    Sent(Transport.TCP, "192.0.2.1", 443, "10.96.0.11", 30080),
    Sent(Transport.ICMP, "10.244.1.10", 0, "192.0.2.1", 0),
    Sent(Transport.TCP, "fd00:244:1::a", 40000, "fd00:96::a", 80),
    Sent(Transport.UDP, "2001:db8::1", 53, "fd00:96::b", 443),
    Sent(Transport.ICMP, "fd00:96::b", 0, "2001:db8::1", 0),
)

NAMED_SETS = """\
create frontends hash:ip,port family inet hashsize 64 maxelem 65536
add frontends 10.96.0.10,tcp:80
add frontends 10.96.0.11,tcp:30080
add frontends 10.96.0.10,udp:53
create frontends6 hash:ip,port family inet6 hashsize 64 maxelem 65536
add frontends6 fd00:96::a,tcp:80
create ports bitmap:port range 0-65535
add ports 80
add ports 53
create pods hash:net family inet hashsize 64 maxelem 65536
add pods 10.244.0.0/16
add pods 10.244.9.0/24 nomatch
create sources hash:ip family inet hashsize 64 maxelem 65536 timeout 600
add sources 10.244.1.10 timeout 0
add sources 192.0.2.1 timeout 500
create ranges hash:ip,port,net family inet hashsize 64 maxelem 65536
add ranges 10.96.0.10,tcp:80,10.244.0.0/16
create both list:set size 8
add both pods
add both sources
create none hash:ip family inet hashsize 64 maxelem 65536
"""
DIRECTIONS = ("src", "dst", "src,dst", "dst,dst", "dst,src", "dst,dst,src", "src,dst,dst")


class Draw:
    """Draws conditions: each shape is one that Kubernetes' proxies, its network plugins, or firewalls write."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def of(self, choices: Sequence[str]) -> str:
        return self._random.choice(choices)

    def rules(self, number: int, shapes: Sequence[Callable[["Draw"], str]], most: int = 3) -> list[str]:
        """So many rules, each of one to three conditions."""
        return [
            " ".join(self._random.choice(shapes)(self) for _ in range(self._random.randint(1, most)))
            for _ in range(number)
        ]

    def not_(self, operator: str) -> str:
        return f"{operator} " if self._random.random() < 0.3 else ""

    def port(self) -> int:
        return self._random.choice(PORTS) + self._random.choice((0, 0, 0, 1, -1))

    def port_range(self, between: str) -> str:
        return between.join(map(str, sorted((self.port(), self.port() + 1000))))

    def some(self, one: Callable[[], object], between: str = ", ") -> str:
        return between.join(dict.fromkeys(str(one()) for _ in range(self._random.randint(1, 4))))


def nft_address(draw: Draw) -> str:
    pool, header = (IPV4, "ip") if draw.of("46") == "4" else (IPV6, "ip6")
    low, high = sorted(map(ip_address, (draw.of(pool), draw.of(pool))), key=int)
    value = draw.of((
        draw.of(pool),
        draw.of(WIDER[pool]),
        f"{{ {draw.some(lambda: draw.of(pool))} }}",
        f"{low}-{high}" if low < high else str(low),
        f"{{ {draw.of(WIDER[pool])} }}",
    ))  # fmt: skip
    return f"{header} {draw.of(('saddr', 'daddr'))} {draw.not_('!=')}{value}"


def nft_port(draw: Draw) -> str:
    value = draw.of((
        str(draw.port()),
        f"{draw.of(('<', '<=', '>', '>='))} {draw.port()}",
        draw.not_("!=") + draw.port_range("-"),
        draw.not_("!=") + f"{{ {draw.some(draw.port)} }}",
        draw.not_("!=") + f"{{ {draw.port_range('-')}, 65000 }}",
        f"!= {draw.port()}",
    ))  # fmt: skip
    return f"{draw.of((*PROTOCOLS, 'th', 'udplite'))} {draw.of(('sport', 'dport'))} {value}"


def nft_protocol(draw: Draw) -> str:
    named = draw.of((*PROTOCOLS, "icmp", "ipv6-icmp", "esp", "133", "6"))
    many_of = f"{{ {draw.some(lambda: draw.of((*PROTOCOLS, 'icmp', 'ipv6-icmp')))} }}"
    no = draw.not_("!=")
    return draw.of((
        f"meta l4proto {no}{named}",
        f"meta l4proto {no}{many_of}",
        f"ip protocol {no}{named}",
        f"ip6 nexthdr {no}{many_of}",
        f"meta nfproto {no}{draw.of(('ipv4', 'ipv6'))}",
        f"meta protocol {no}{draw.of(('ip', 'ip6'))}",
        "icmp type echo-request",
        "icmpv6 type echo-request",
    ))  # fmt: skip


def nft_joined(draw: Draw) -> str:
    pool, header = (IPV4, "ip") if draw.of("46") == "4" else (IPV6, "ip6")
    protocol, side = draw.of(PROTOCOLS), draw.of(("saddr", "daddr"))
    pairs = draw.some(lambda: f"{draw.of(pool)} . {draw.of(PROTOCOLS)} . {draw.port()}")
    return draw.of((
        f"{header} {side} . {protocol} dport {{ {draw.some(lambda: f'{draw.of(pool)} . {draw.port()}')} }}",
        f"{header} {side} . {protocol} dport {draw.of(pool)} . {draw.port()}",
        f"{header} daddr . meta l4proto . th dport {draw.not_('!=')}{{ {pairs} }}",
        f"{header} daddr . meta l4proto . th dport @services",
        f"{header} saddr . {header} daddr {{ {draw.of(WIDER[pool])} . {draw.of(pool)} }}",
        f"{protocol} dport vmap {{ {draw.port()} : continue, {draw.of(('80', '443'))} : jump nothing }}",
    ))  # fmt: skip


def nft_other(draw: Draw) -> str:
    return draw.of((
        "ct state new",
        "ct state established,related",
        "ct state vmap { invalid : jump nothing, established : continue }",
        "meta mark & 0x4000 == 0x4000",
        "meta mark and 0x1 != 0x1",
        "meta mark set meta mark or 0x4000",
        "tcp flags & (fin | syn | rst | ack) == syn",
        'oifname "lo"',
        'oifname != { "eth0", "cali*" }',
        "fib daddr type local",
        "limit rate 5/second burst 5 packets",
        "limit rate over 1000/second",
        "quota over 100 mbytes",
        'counter name "seen"',
        "numgen random mod 2 < 1",
        "jump nothing",
        "ip daddr @pods",
        "ip saddr != @pods",
        "ip ttl > 1",
        "add @met { ip saddr }",
        "update @met6 { ip6 saddr timeout 10s }",
        'log prefix "tcp dport 80 " group 7',
        "meta skuid 0",
    ))  # fmt: skip


NFT = (nft_address, nft_address, nft_port, nft_port, nft_protocol, nft_joined, nft_other)
NFT_TABLE = """
table inet t {
    set services { type ipv4_addr . inet_proto . inet_service; elements = { 10.96.0.10 . tcp . 80, 10.96.0.10 . udp . 53 }; }
    set pods { type ipv4_addr; flags interval; elements = { 10.244.0.0/16 }; }
    set met { type ipv4_addr; flags dynamic; size 9; }
    set met6 { type ipv6_addr; flags dynamic,timeout; size 9; }
    counter seen { }
    chain nothing { }
    chain in { type filter hook input priority 0; policy drop; }
    chain out { type filter hook output priority 0; policy accept; }
}
"""  # noqa: E501


def ipt_address(draw: Draw) -> str:
    value = draw.of((f"{draw.of(IPV4)}/32", draw.of(WIDER[IPV4])))
    return f"{draw.not_('!')}{draw.of(('-s', '-d'))} {value}"


def ipt_range(draw: Draw) -> str:
    low, high = sorted(map(ip_address, (draw.of(IPV4), draw.of(IPV4))), key=int)
    return f"-m iprange {draw.not_('!')}{draw.of(('--src-range', '--dst-range'))} {low}-{high}"


def ipt_set(draw: Draw) -> str:
    names = [each.name for each in ipset.read_sets(NAMED_SETS).values()]
    return f"-m set {draw.not_('!')}--match-set {draw.of(names)} {draw.of(DIRECTIONS)}"


def ipt_other(draw: Draw) -> str:
    return draw.of((
        "-m conntrack --ctstate NEW",
        "-m conntrack ! --ctstate INVALID,UNTRACKED",
        "-m mark --mark 0x4000/0x4000",
        "-m mark ! --mark 0x1/0x1",
        '-m comment --comment "it\'s \\"-p udp\\" \\\\ here"',
        "-m comment --comment -d",
        "-m addrtype --dst-type LOCAL",
        "-m statistic --mode nth --every 2 --packet 0",
        "-m limit --limit 5/sec --limit-burst 5",
        "-m hashlimit --hashlimit-upto 5/sec --hashlimit-name h --hashlimit-mode srcip",
        "-m recent --name r --set",
        "-m owner --uid-owner 0",
        "-o lo",
        "! -o cali+",
        "-m length --length 20:60",
        "-m physdev ! --physdev-is-in",
    ))  # fmt: skip


def ipt_ports(draw: Draw) -> str:
    protocol, no = draw.of(PROTOCOLS), draw.not_("!")
    listed = draw.some(lambda: draw.of((str(draw.port()), draw.port_range(":"))), ",")
    return draw.of((
        f"-p {protocol} -m {protocol} {no}--dport {draw.port()}",
        f"-p {protocol} -m {protocol} {no}--sport {draw.port_range(':')}",
        f"-p {protocol} -m {protocol} --dport :{draw.port()} {draw.not_('!')}--sport {draw.port()}:",
        f"-p {protocol} -m multiport {no}--dports {listed}",
        f"-p {protocol} -m multiport {no}--sports {listed}",
        f"-p {protocol} -m multiport {no}--ports {listed}",
        f"{no}-p {draw.of((*PROTOCOLS, 'icmp', '41', 'esp'))}",
        "-p icmp -m icmp --icmp-type 8",
    ))  # fmt: skip


IPTABLES = (ipt_address, ipt_address, ipt_range, ipt_set, ipt_other)


def ipt_rules(draw: Draw, number: int) -> list[str]:
    """Most rules have a protocol at their beginning, which a rule may have once. Each set is matched in each way."""
    heads = [ipt_ports(draw) if draw.of("yyn") == "y" else "" for _ in range(number)]
    drawn = [f"{head} {rest}".strip() for head, rest in zip(heads, draw.rules(number, IPTABLES, 2), strict=True)]
    names = [each.name for each in ipset.read_sets(NAMED_SETS).values()]
    return drawn + [f"-m set {no}--match-set {of} {sides}" for no in ("", "! ") for of in names for sides in DIRECTIONS]


def sent(load: Sequence[tuple[Sequence[str], str]], show: Sequence[str], packets: Sequence[Sent]) -> list[str]:
    """What is shown of the rules before all packets and after each."""
    plan = {
        "addresses": [f"{each}/{'128' if ':' in each else '32'}" for each in (*IPV4, *IPV6)],
        "load": load,
        "show": show,
        "packets": [(each.protocol.number(ip_address(each.source).version), *each[1:]) for each in packets],
    }
    done = subprocess.run(
        [*SANDBOX, sys.executable, str(DRIVER)],
        input=json.dumps(plan),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    if done.returncode and "unshare" in done.stderr:
        pytest.skip(f"needs a network namespace of its own: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    sys.stderr.write(done.stderr)
    shown: list[str] = json.loads(done.stdout)
    return shown


def one_of(packets: Sequence[Sent]) -> Packets:
    """What is known where one of these was sent."""
    have_ports = all(each.protocol is not Transport.ICMP for each in packets)
    return Packets(
        {each.protocol for each in packets},
        {ip_address(each.source) for each in packets},
        {ip_address(each.destination) for each in packets},
        {each.source_port for each in packets} if have_ports else (),
        {each.port for each in packets} if have_ports else (),
    )


def wrong(
    rules: Mapping[str, Rule], counts: Sequence[Mapping[str, int]], packets: Sequence[Sent], sets: Sets
) -> tuple[list[str], dict[Answer, int]]:
    """Each answer that the kernel contradicts, and how often each answer was given about one packet."""
    found: list[str] = []
    given = dict.fromkeys(Answer, 0)
    for text, rule in rules.items():
        counted = [later[text] - before[text] for before, later in pairwise(counts)]
        for packet, count in zip(packets, counted, strict=True):
            answer = matches(rule, one_of([packet]), sets)
            given[answer] += 1
            if answer is not Answer.MAY and count != (answer is Answer.YES):
                found.append(f"{text}: {answer.value} to {packet}, counted {count}")
        for (one, first), (other, second) in combinations(zip(packets, counted, strict=True), 2):
            answer = matches(rule, one_of([one, other]), sets)
            if answer is not Answer.MAY and {first, second} != {int(answer is Answer.YES)}:
                found.append(f"{text}: {answer.value} to {one} or {other}, counted {first} and {second}")
    return found, given


@pytest.mark.parametrize("seed", range(many(1)))
def test_the_kernel_counts_for_rules_of_nft_what_they_are_read_to_match(seed: int) -> None:
    if shutil.which("nft") is None:
        pytest.skip("needs nft; apt-get install nftables")
    drawn = Draw(seed).rules(300, NFT)
    load = [(["nft", "-f", "-"], NFT_TABLE)]
    load += [
        (["nft", "-f", "-"], f'add rule inet t out {rule} counter comment "{number}"')
        for number, rule in enumerate(drawn)
    ]
    shown = sent(load, ["nft", "list", "table", "inet", "t"], PACKETS)
    counts: list[dict[str, int]] = []
    rules: dict[str, Rule] = {}
    for text in shown:
        counts.append({})
        for each in (each for each in listed_rules(text) if each.chain == "out"):
            rule = nftables.read_rule(each.text)
            assert nftables.print_rule(rule) == each.text
            name = f"{rule.comment}: {drawn[int(rule.comment)]}"
            rules[name] = rule
            (counted,) = (action for action in rule.actions if action.name == "counter" and action.after("packets"))
            counts[-1][name] = int(counted.after("packets"))
    found, given = wrong(rules, counts, PACKETS, {})
    assert found == []
    assert len(rules) > 150
    assert min(given[Answer.YES], given[Answer.NO]) > 100
    assert given[Answer.MAY] < sum(given.values()) / 2


@pytest.mark.parametrize("seed", range(many(1)))
@pytest.mark.parametrize("variant", ["nft", "legacy"])
def test_the_kernel_counts_for_rules_of_iptables_what_they_are_read_to_match(variant: str, seed: int) -> None:
    if shutil.which(f"iptables-{variant}") is None:
        pytest.skip("needs iptables; apt-get install iptables")
    if shutil.which("ipset") is None:
        pytest.skip("needs ipset; apt-get install ipset")
    tool = f"iptables-{variant}"
    load = [([tool, "-A", "INPUT", "-j", "DROP"], ""), (["ipset", "restore"], NAMED_SETS)]
    for number, rule in enumerate(ipt_rules(Draw(seed), 150)):
        text = f"*filter\n-A OUTPUT {rule} -m comment --comment n{number}\nCOMMIT\n"
        load.append(([f"{tool}-restore", "--noflush"], text))
    packets = [each for each in PACKETS if ":" not in each.source]
    shown = sent(load, ["sh", "-c", f"{tool}-save -c -t filter; echo ---; ipset save 2>/dev/null"], packets)
    sets = ipset.read_sets(shown[-1].partition("---")[2])
    counts: list[dict[str, int]] = []
    rules: dict[str, Rule] = {}
    for text in shown:
        (table,) = iptables.read_tables(text.partition("---")[0])
        saved = [each for each in table.rules if each.chain == "OUTPUT"]
        counts.append({each.text: each.packets or 0 for each in saved})
        for each in saved:
            rule = iptables.read_rule(each.text)
            assert rule is not None
            assert iptables.print_rule(rule) == each.text
            rules[each.text] = rule
    found, given = wrong(rules, counts, packets, sets)
    assert found == []
    assert len(rules) > 90
    assert min(given[Answer.YES], given[Answer.NO]) > 50
