"""Rules as programs of real hosts write them are printed as they were read, and say yes, no or may to a packet.

The files have rules in the spellings of Docker, Calico, Cilium, kube-router, flannel, ufw, Istio and others, and one of
each condition and statement of iptables-extensions(8) and nft(8). ``tests/kernel/test_rules_read_back.py`` loads those
of nft.
"""

from ipaddress import ip_address
from pathlib import Path

import pytest

from proxylab.addresses import Transport
from proxylab.rules.packets import Answer, Packets, matches
from proxylab.rules.texts import print_rule, read_rule

FOLDER = Path(__file__).resolve().parents[2] / "golden/rules-of-programs"
LINES = [
    line
    for name in ("iptables.saved", "nftables.listed")
    for line in (FOLDER / name).read_text().splitlines()
    if not line.startswith("#")
]
SENT = Packets({Transport.TCP}, {ip_address("10.244.1.5")}, {ip_address("10.96.0.10")}, {40000}, {80})
ANSWERS = {
    "-A POSTROUTING -s 172.17.0.0/16 ! -o docker0 -j MASQUERADE": Answer.NO,
    '-A FLANNEL-POSTRTG -s 10.244.0.0/16 ! -d 224.0.0.0/4 -m comment --comment "flanneld masq" -j MASQUERADE '
    "--random-fully": Answer.YES,
    '-A FLANNEL-POSTRTG ! -s 10.244.0.0/16 -d 10.244.1.0/24 -m comment --comment "flanneld masq" -j RETURN': Answer.NO,
    "-A INPUT -m set --match-set a src --return-nomatch ! --update-counters --packets-gt 5 -j ACCEPT": Answer.MAY,
    "-A ISTIO_REDIRECT -p tcp -j REDIRECT --to-ports 15001": Answer.YES,
    '-A cali-INPUT -p ipencap -m comment --comment "cali:PajejrV4aFdkZojI" -m comment --comment "Allow IPIP packets '
    'from Calico hosts" -m set --match-set cali40all-hosts-net src -m addrtype --dst-type LOCAL -j ACCEPT': Answer.NO,
    "ct state vmap { invalid : drop, established : accept, related : accept }": Answer.MAY,
    "meta l4proto { tcp, udp } th dport 53 accept": Answer.NO,
    "meta mark & 0x0000ff00 == 0x00000200 accept": Answer.MAY,
    "jump filter_INPUT_ZONES": Answer.YES,
    'counter name "http" accept': Answer.YES,
    "quota over 500 mbytes used 3 bytes drop": Answer.MAY,
    "delete @seen { ip saddr }": Answer.MAY,  # a packet of IPv6 has no such field
    "udp dport 4789 vxlan ip saddr 10.0.0.1 drop": Answer.NO,
    "gre ip daddr 10.0.0.1 drop": Answer.MAY,  # inside of a tunnel
    "ip protocol tcp flow add @fastpath counter packets 0 bytes 0": Answer.YES,
}  # fmt: skip


@pytest.mark.parametrize("line", LINES)
def test_a_rule_of_a_program_is_printed_as_it_was_read(line: str) -> None:
    rule = read_rule(line)
    assert rule is not None
    assert print_rule(rule) == line


@pytest.mark.parametrize(("line", "expected"), ANSWERS.items())
def test_it_answers_for_a_packet(line: str, expected: Answer) -> None:
    rule = read_rule(line)
    assert rule is not None
    assert line in LINES
    assert matches(rule, SENT) is expected
