"""Sets of ipset and virtual servers of IPVS are printed as they were read, and say which packets are theirs."""

from ipaddress import ip_address

import pytest

from proxylab.addresses import Transport
from proxylab.rules.effects import Effect, effects, new_address
from proxylab.rules.ipset import print_sets, read_member, read_sets
from proxylab.rules.ipvs import identity
from proxylab.rules.packets import Answer, Packets, Sets, matches
from proxylab.rules.texts import print_rule, read_rule

SAVED = """\
create cali40masq-ipam-pools hash:net family inet hashsize 1024 maxelem 1048576 bucketsize 12 initval 0x9c8b4f61
add cali40masq-ipam-pools 10.244.0.0/16
add cali40masq-ipam-pools 10.244.9.0/24 nomatch
create KUBE-CLUSTER-IP hash:ip,port family inet hashsize 1024 maxelem 65536
add KUBE-CLUSTER-IP 10.96.0.10,tcp:80
add KUBE-CLUSTER-IP 10.96.0.10,udp:53
add KUBE-CLUSTER-IP 10.96.0.11,icmp:echo-request
create KUBE-NODE-PORT-TCP bitmap:port range 0-65535
add KUBE-NODE-PORT-TCP 30080
create KUBE-LOAD-BALANCER-SOURCE-CIDR hash:ip,port,net family inet hashsize 1024 maxelem 65536
add KUBE-LOAD-BALANCER-SOURCE-CIDR 10.96.0.10,tcp:80,10.244.0.0/16
create KUBE-6-CLUSTER-IP hash:ip,port family inet6 hashsize 1024 maxelem 65536
add KUBE-6-CLUSTER-IP fd00:10:96::a,tcp:80
create f2b-sshd hash:ip family inet hashsize 1024 maxelem 65536 timeout 600 counters comment
add f2b-sshd 10.244.1.10 timeout 412 packets 3 bytes 180 comment "found (3 times), banned"
create trusted hash:net,iface family inet hashsize 64 maxelem 65536
add trusted 10.244.0.0/16,physdev:eth0
create macs hash:mac hashsize 1024 maxelem 65536
add macs 02:42:0A:00:00:05
create both list:set size 8
add both KUBE-CLUSTER-IP
add both cali40masq-ipam-pools
create elsewhere list:set size 8
add elsewhere not-saved
create empty hash:ip family inet hashsize 1024 maxelem 65536
"""
SETS = read_sets(SAVED)
SENT = Packets(
    protocols={Transport.TCP},
    sources={ip_address("10.244.1.10")},
    destinations={ip_address("10.96.0.10")},
    source_ports={40000},
    destination_ports={80},
)
OF_IPV6 = Packets(
    {Transport.TCP}, {ip_address("fd00:10:244::5")}, {ip_address("fd00:10:96::a")}, {40000}, {80}
)  # fmt: skip

IPVS = (
    "-A -t 10.96.0.10:80 -s rr",
    "-A -t [fd00:10:96::a]:80 -s mh -p 10800 -M 64 -b flag-1,flag-2",
    "-A -u 10.96.0.10:53 -s wlc -o --pe sip",
    "-A --sctp-service 10.96.0.10:80 -s sh",
    "-A -f 258 -s rr",
    "-a -t 10.96.0.10:80 -r 10.244.1.10:8080 -m -w 1 -x 100 -y 50",
    "-a -f 258 -r 10.0.1.3:0 -g -w 0",
    "-a -t 10.96.0.10:80 -r 10.244.1.10:8080 -i -w 1 --tun-type gue --tun-port 6080",
)


def answer_to(text: str, packets: Packets = SENT, sets: Sets = SETS) -> Answer:
    rule = read_rule(text)
    assert rule is not None
    return matches(rule, packets, sets)


def test_sets_are_printed_as_they_were_read() -> None:
    assert "\n".join([*print_sets(SETS.values()), ""]) == SAVED
    assert read_member("-A KUBE-SERVICES -d 10.96.0.10/32 -j DROP") is None
    assert read_member('add f2b-sshd 10.0.0.1 comment "no end') is None


@pytest.mark.parametrize("line", IPVS)
def test_a_line_of_ipvsadm_is_printed_as_it_was_read(line: str) -> None:
    rule = read_rule(line)
    assert rule is not None
    assert print_rule(rule) == line


@pytest.mark.parametrize("line", ["-A", "-A -t", "-A -s rr", "-a -r", "-D -t 10.96.0.10:80", "-A -t 10.96.0.10:80,"])
def test_a_line_without_a_virtual_server_is_none_or_keeps_its_words(line: str) -> None:
    rule = read_rule(line)
    assert rule is None or print_rule(rule) == line


@pytest.mark.parametrize(
    ("matched", "expected"),
    [
        ("KUBE-CLUSTER-IP dst,dst", Answer.YES),
        ("KUBE-CLUSTER-IP src,dst", Answer.NO),
        ("KUBE-CLUSTER-IP dst", Answer.NO),  # the kernel looks nothing up with too few directions
        ("KUBE-CLUSTER-IP dst,dst,src", Answer.YES),
        ("KUBE-NODE-PORT-TCP dst", Answer.NO),
        ("KUBE-LOAD-BALANCER-SOURCE-CIDR dst,dst,src", Answer.YES),
        ("KUBE-LOAD-BALANCER-SOURCE-CIDR dst,dst,dst", Answer.NO),
        ("KUBE-6-CLUSTER-IP dst,dst", Answer.NO),
        ("cali40masq-ipam-pools src", Answer.YES),
        ("cali40masq-ipam-pools dst", Answer.NO),
        ("f2b-sshd src", Answer.MAY),  # the member may have ended since
        ("f2b-sshd dst", Answer.NO),
        ("trusted src,src", Answer.MAY),
        ("trusted dst,src", Answer.NO),
        ("macs src", Answer.MAY),
        ("both src,dst", Answer.YES),
        ("both dst,src", Answer.NO),
        ("elsewhere src", Answer.MAY),
        ("not-saved src", Answer.MAY),
        ("empty src", Answer.NO),
    ],
)
def test_a_rule_that_matches_a_set_asks_its_members(matched: str, expected: Answer) -> None:
    opposite = {Answer.YES: Answer.NO, Answer.NO: Answer.YES, Answer.MAY: Answer.MAY}
    assert answer_to(f"-A C -m set --match-set {matched} -j DROP") is expected
    assert answer_to(f"-A C -m set ! --match-set {matched} -j DROP") is opposite[expected]
    assert answer_to(f"-A C -m set --match-set {matched} -j DROP", sets={}) is Answer.MAY
    later = answer_to(f"-A C -m set --match-set {matched} --return-nomatch -j DROP")
    assert later in (Answer.MAY, expected)


def test_of_networks_the_narrowest_decides() -> None:
    excepted = Packets({Transport.TCP}, {ip_address("10.244.9.1")}, {ip_address("10.96.0.10")}, {1}, {80})
    partly = Packets({Transport.TCP}, {*SENT.sources, *excepted.sources}, {ip_address("10.96.0.10")}, {1}, {80})
    rule = "-A C -m set --match-set cali40masq-ipam-pools src -j DROP"
    assert (answer_to(rule, excepted), answer_to(rule, partly)) == (Answer.NO, Answer.MAY)


def test_a_bitmap_has_ports_of_tcp_and_udp_alone() -> None:
    rule = "-A C -m set --match-set KUBE-NODE-PORT-TCP dst -j DROP"
    for protocol, expected in ((Transport.TCP, Answer.YES), (Transport.UDP, Answer.YES), (Transport.SCTP, Answer.NO)):
        assert answer_to(rule, Packets({protocol}, destination_ports={30080})) is expected
    assert answer_to(rule, Packets({Transport.TCP})) is Answer.MAY


def test_a_type_of_icmp_is_not_compared() -> None:
    ping = Packets({Transport.ICMP}, destinations={ip_address("10.96.0.11")}, destination_ports={80})
    rule = "-A C -m set --match-set KUBE-CLUSTER-IP dst,dst -j DROP"
    assert answer_to(rule, ping) is Answer.MAY
    assert answer_to(rule, Packets({Transport.TCP}, destinations={ip_address("10.96.0.11")})) is Answer.NO


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("-A -t 10.96.0.10:80 -s rr", Answer.YES),
        ("-a -t 10.96.0.10:80 -r 10.244.1.10:8080 -m -w 1", Answer.YES),
        ("-A -t 10.96.0.10:0 -s rr -p 50", Answer.YES),
        ("-A -t 10.96.0.10:81 -s rr", Answer.NO),
        ("-A -u 10.96.0.10:80 -s rr", Answer.NO),
        ("-A -t 10.96.0.11:80 -s rr", Answer.NO),
        ("-A -t [fd00:10:96::a]:80 -s rr", Answer.NO),
        ("-A -f 258 -s rr", Answer.MAY),
    ],
)
def test_packets_meet_the_virtual_server_of_their_address_and_port(line: str, expected: Answer) -> None:
    assert answer_to(line) is expected


def test_packets_of_ipv6_meet_virtual_servers_and_sets_of_ipv6() -> None:
    assert answer_to("-A -t [fd00:10:96::a]:80 -s rr", OF_IPV6) is Answer.YES
    assert answer_to("-A C -m set --match-set KUBE-6-CLUSTER-IP dst,dst -j DROP", OF_IPV6) is Answer.YES
    assert answer_to("-A C -m set --match-set KUBE-CLUSTER-IP dst,dst -j DROP", OF_IPV6) is Answer.NO


def test_a_destination_translates_unless_its_weight_is_0_or_it_tunnels() -> None:
    does = {}
    for words in ("-m -w 1", "-m -w 0", "-g -w 1", "-i -w 1"):
        rule = read_rule(f"-a -t 10.96.0.10:80 -r [fd00::1]:8080 {words}")
        assert rule is not None
        assert new_address(rule) == ip_address("fd00::1")
        assert identity(rule) == "-t 10.96.0.10:80"
        does[words] = effects(rule)
    assert does == {
        "-m -w 1": {Effect.DESTINATION},
        "-m -w 0": frozenset(),
        "-g -w 1": frozenset(),
        "-i -w 1": frozenset(),
    }
