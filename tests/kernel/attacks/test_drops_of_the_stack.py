"""Drops by a machine's stack: IPsec, damaged packets, programs in hooks, and a pod that cannot answer."""

import os
from pathlib import Path

import pytest
from attacked_lab import (
    CLIENT,
    ECHO,
    ECHO_6,
    IPV6,
    LOCAL,
    LOCAL_6,
    NODES,
    NODES_6,
    OF_LOCAL,
    VIP,
    VIP_6,
    Alteration,
    Attack,
    AttackedLab,
    Dialled,
    check,
    each_of,
    iptables,
    lab_of_module,
    nft,
    program,
    route,
)
from shared_sessions import shared_session

from proxylab.engines.protocol import EngineChoice
from proxylab.kernel.netlink.links_carry import kernel_release
from proxylab.scenario.cases import cases
from proxylab.scenario.load import parse_scenario
from proxylab.verdict.causes.table import why

DROPPED = {"outcome": "dropped"}
AT_ECHO = {"outcome": "dropped", "at": "echo"}
BY_IPV6, LOCAL_BY_IPV6 = Dialled(to=IPV6), Dialled(service="local", to=IPV6)
TO_ECHO, TO_ECHO_BY_IPV6 = (
    Dialled(to={"pod": "echo", "port": 8081, **family}, send={"as": "packet"}) for family in ({}, IPV6)
)
NOT_THE_ENGINE = "No rule of the engine counted the packet."
UNEXPLAINED = "no rule of the engine did, and no address shows why"
NOT_FORWARDED = "The sentinel packets came back, so it will not arrive."
ACCEPTED = "The pod's stack delivered the request: what it dropped is its own answer."
NO_COUNTER = "it came to echo, but no counter shows that echo dropped it"
UNTOLD = "dropped the packet by its routing (or a program in its hooks, or IPsec): Ip"

HOOKED = """
import ctypes
steps = ((0xB7, 0, 0, 0), (0x95, 0, 0, 0))  # NF_DROP
code = ctypes.create_string_buffer(b''.join(struct.pack('=BBhi', *step) for step in steps))
licence = ctypes.create_string_buffer(b'GPL')
load = struct.pack('=IIQQ', 32, len(steps), ctypes.addressof(code), ctypes.addressof(licence)).ljust(68, bytes(1))
load = (load + struct.pack('=I', 45)).ljust(120, bytes(1))  # BPF_PROG_TYPE_NETFILTER, BPF_NETFILTER
call = ctypes.CDLL(None).syscall  # bpf(2) on x86-64: BPF_PROG_LOAD, then BPF_LINK_CREATE
program = call(321, 5, ctypes.create_string_buffer(load), len(load))
assert program >= 0, 'the kernel refuses the program'
link = struct.pack('=IIIIIIiI', program, 0, 45, 0, FAMILY, 0, -250, 0).ljust(64, bytes(1))
link = call(321, 28, ctypes.create_string_buffer(link), len(link))
assert link >= 0, 'the kernel does not attach the program'
"""
"""A BPF program of type netfilter in the hook prerouting, which no tool lists as a rule."""


def ipsec(machine: str, destination: str, words: str, source: str = "") -> Alteration:
    """A policy of IPsec."""
    every = "::/0" if ":" in destination else "0.0.0.0/0"
    add = f"ip xfrm policy add src {source or every} dst {destination} dir {words}"
    return Alteration(machine, add, "ip xfrm policy flush")


def damaged(family: str, destination: str, field: str) -> Alteration:
    """A rule at the client's device that writes another value into the header."""
    return nft("node-a", "ingress device client", 0, f"{family} daddr {destination} {family} {field}", family="netdev")


def hooked(family: int) -> Alteration:
    """``HOOKED``, as long as its process lives."""
    return program("node-a", HOOKED.replace("FAMILY", str(family)), "import time\nwhile True: time.sleep(60)")


WITHOUT_STATE = f"tmpl src {NODES['node-a']} dst {NODES['node-b']} proto esp mode tunnel"
WITHOUT_STATE_6 = f"tmpl src {NODES_6['node-a']} dst {NODES_6['node-b']} proto esp mode tunnel"
ACCEPT_FIRST = iptables("node-a", "filter", "FORWARD", f"-d {LOCAL_6} -j ACCEPT", ipv6=True)
IPV6_OFF = Alteration(
    "node-a",
    "echo 1 >/proc/sys/net/ipv6/conf/client/disable_ipv6",
    "echo 0 >/proc/sys/net/ipv6/conf/client/disable_ipv6; ip -6 address add fd00:10:244::1/128 dev client nodad; "
    "ip -6 route add fd00:10:244::a dev client proto static",
)

NO_WAY_OUT = Alteration(
    "echo", "ip -6 route del default", "ip -6 route add default via fd00:10:244:1::1 dev eth0 proto static"
)

ATTACKS = [
    *(
        Attack(
            f"IPsec {what} over IPv6",
            altered, "inconclusive", NOT_THE_ENGINE, DROPPED, LOCAL_BY_IPV6,
            (f"by its IPsec policy on the way {way}", f"{counter} counted 1 packet; {UNEXPLAINED}"), never="memory",
        )
        for what, altered, way, counter in (
            (
                "blocks what the engine drops", (ipsec("node-a", LOCAL_6, "fwd action block"),),
                "in or through", "XfrmInPolBlock",
            ),
            (
                "has no state for what the engine drops", (ipsec("node-a", LOCAL_6, f"out {WITHOUT_STATE_6}"),),
                "out: no state fits", "XfrmOutNoStates",
            ),
            (
                "has no state for what the engine would let pass",
                (ACCEPT_FIRST, ipsec("node-a", LOCAL_6, f"out {WITHOUT_STATE_6}")),
                "out: no state fits", "XfrmOutNoStates",
            ),
        )
    ),
    Attack(
        "IPsec blocks the request over IPv6",
        (ipsec("node-a", ECHO_6, "out action block"),), "fail", NOT_FORWARDED, dialled=BY_IPV6,
        why="by its IPsec policy on the way out: XfrmOutPolBlock counted 1 packet", never="memory",
    ),
    *(
        Attack(
            f"IPsec has no state for the request: {counter}",
            (ipsec(node, ECHO, f"{way} {WITHOUT_STATE}"),), "fail", NOT_FORWARDED,
            why=f"{node} dropped the packet by its IPsec policy{said}: {counter} counted 1 packet",
            never="by its routing",
        )
        for node, way, said, counter in (
            ("node-a", "out", " on the way out: no state fits", "XfrmOutNoStates"),
            ("node-b", "fwd", ": the packet came without the protection that it asks for", "XfrmInTmplMismatch"),
        )
    ),
    Attack(
        "IPsec blocks everything that it has no policy for",
        (Alteration("node-a", "ip xfrm policy setdefault out block", "ip xfrm policy setdefault out accept"),),
        "fail", NOT_FORWARDED, why=f"node-a {UNTOLD}InReceives counted 1 packet",
    ),
    *(
        Attack(
            f"a rule makes the request longer than its frame over {name}",
            (damaged(family, destination, "length set 9000"),), "fail", NOT_FORWARDED, dialled=dialled,
            why=f"the packet is shorter than its header says: {counter} counted 1 packet", never="by its routing",
        )
        for name, family, destination, dialled, counter in (
            ("IPv4", "ip", VIP, Dialled(), "IpExtInTruncatedPkts"),
            ("IPv6", "ip6", VIP_6, BY_IPV6, "Ip6InTruncatedPkts"),
        )
    ),
    *(
        Attack(
            f"a rule at a device damages what the engine drops: {family} {field}",
            (damaged(family, destination, field),), "inconclusive", NOT_THE_ENGINE, DROPPED, dialled,
            (f"{counter} counted 1 packet; {UNEXPLAINED}",),
        )
        for family, destination, field, dialled, counter in (
            ("ip", LOCAL, "length set 9000", OF_LOCAL, "IpExtInTruncatedPkts"),
            ("ip", LOCAL, "checksum set 1", OF_LOCAL, "IpInHdrErrors"),
            ("ip6", LOCAL_6, "version set 5", LOCAL_BY_IPV6, "Ip6InHdrErrors"),
        )
    ),
    Attack(
        "a rule leaves what the engine drops without hops, and another drops the ICMP error",
        (damaged("ip", LOCAL, "ttl set 1"), nft("node-a", "output", 0, "icmp type time-exceeded drop")),
        "inconclusive", NOT_THE_ENGINE, DROPPED, OF_LOCAL, (f"IpInHdrErrors counted 1 packet; {UNEXPLAINED}",),
    ),
    Attack(
        "a rule gives the request the loopback address as its source, and forwarding is on",
        (nft("node-a", "prerouting", -150, f"ip6 daddr {VIP_6} ip6 saddr set ::1", family="ip6"),),
        "fail", NOT_FORWARDED, dialled=BY_IPV6,
        why="by its routing: an invalid address, or forwarding is off: Ip6InAddrErrors counted 1 packet",
    ),
    Attack(
        "a rule drops the second fragment on its way out",
        (nft("node-a", "egress device eth0", 0, "ip frag-off & 0x1fff != 0 counter drop", family="netdev"),),
        "fail", NOT_FORWARDED, dialled=Dialled(port="udp", send={"payload": 3000}),
        why='node-a dropped the packet by the rule "ip frag-off & ', never="forbids fragments",  # then nft 1.0 or 1.1
    ),
    *(
        Attack(
            f"a pod accepts the request, and {what}",
            altered, "inconclusive", ACCEPTED, AT_ECHO, dialled, (f"outcome: {NO_COUNTER}",),
        )
        for what, altered, dialled in (
            ("has no route for its answer", (route("echo", f"blackhole {CLIENT}"),), TO_ECHO),
            ("IPsec blocks its answer", (ipsec("echo", "0.0.0.0/0", "out action block", ECHO),), TO_ECHO),
            ("has no route for its answer over IPv6", (NO_WAY_OUT,), TO_ECHO_BY_IPV6),
        )
    ),
    Attack(
        "IPv6 is switched off at a device where the engine drops",
        (IPV6_OFF,), "inconclusive", NOT_THE_ENGINE, DROPPED, LOCAL_BY_IPV6,
        (f"IPsec, IPv6 switched off there, or no memory: Ip6InDiscards counted 1 packet; {UNEXPLAINED}",),
    ),
]  # fmt: skip

AT_A_POD = [
    *(
        (
            Attack(
                f"a pod's own rule in the hook {hook} drops the request over {name}",
                (nft("echo", hook, -150, "tcp dport 8081 counter drop", family="inet"),),
                "pass", "The pod's stack received the packet and delivered none.", AT_ECHO, dialled,
            ),
            "dropped at echo by its stack (routing, or a rule or program in its hooks, or IPsec)",
        )
        for name, hook, dialled in (
            ("IPv4", "prerouting", TO_ECHO), ("IPv4", "input", TO_ECHO), ("IPv6", "prerouting", TO_ECHO_BY_IPV6),
        )
    ),
    (
        Attack(
            "IPsec of the pod blocks the request",
            (ipsec("echo", ECHO, "in action block"),), "pass", "TCP asks for the policy of what the stack delivered.",
            AT_ECHO, TO_ECHO,
        ),
        "dropped at echo by its IPsec policy on the way in or through",
    ),
]  # fmt: skip

HOOKED_ATTACKS = [
    Attack(
        f"a BPF program in the hook prerouting drops the request over {name}",
        (hooked(family),),
        "fail",
        NOT_FORWARDED,
        dialled=dialled,
        why=f"node-a {UNTOLD}",
    )
    for name, family, dialled in (("IPv4", 2, Dialled()), ("IPv6", 10, BY_IPV6))
]


lab = lab_of_module("embedded/iptables", privileged=True)  # a command loads a BPF program
test_a_drop_by_a_stack_is_not_taken_for_another = each_of(ATTACKS)
test_a_program_in_a_hook_is_not_taken_for_routing = pytest.mark.skipif(
    os.geteuid() != 0 or kernel_release() < (6, 4),
    reason="only the machine's root may load BPF programs, and Linux knows those of type netfilter since 6.4",
)(each_of(HOOKED_ATTACKS))


@pytest.mark.parametrize(("attack", "observed"), AT_A_POD, ids=lambda each: getattr(each, "name", ""))
def test_a_drop_at_a_pod_is_not_taken_for_another(attack: Attack, observed: str, lab: AttackedLab) -> None:
    told = lab.judged(attack)
    check(told, attack)
    assert told.verdict.verdicts[0].observed == observed


SCENARIO = Path(__file__).parents[3] / "scenarios/network/strict-reverse-path.lab.yaml"
BEFORE_ROUTING = "type filter hook prerouting priority -90; tcp dport 8080 counter drop;"


def test_the_plan_alone_does_not_blame_the_reverse_path_filter() -> None:
    text = SCENARIO.read_text().replace("[0, 1, 2]", "[1]")
    first = text[: text.index("    except:")] + "\n---\n" + text.partition("\n---\n")[2]
    (case,) = cases(parse_scenario(first, "strict.lab.yaml"), "iptables")
    with shared_session(EngineChoice("embedded/iptables")) as session:
        opened = session.open(case)
        said = []
        for command in ("true", f"nft 'table ip attack {{ chain x {{ {BEFORE_ROUTING} }}; }}'"):
            assert opened.execute("node-a", "sh", "-c", command).status == 0
            verdict = opened.probe(opened.scenario.probes[0])
            said.append(why(verdict))
    assert said[0].startswith("node-a refused the packet after its PREROUTING rules: rp_filter is 1 there, it came in")
    assert said[1].startswith('node-a dropped the packet by the rule "tcp dport 8080 counter drop" in chain x')
