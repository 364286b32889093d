"""What tc, XDP and the hooks of a device do to packets, before netfilter's other hooks or behind them."""

import os
import sys
from ipaddress import ip_address

import pytest
from attacked_lab import (
    CLIENT,
    CLOSED,
    ECHO,
    EMPTY,
    LOCAL,
    OF_EMPTY,
    OF_LOCAL,
    UDP,
    VIP,
    Alteration,
    Attack,
    Dialled,
    attacked,
    check,
    each_of,
    iptables,
    lab_of_module,
    nft,
    program,
)

DROPPED, UNTRANSLATED = {"outcome": "dropped", "at": "node-a"}, {"outcome": "untranslated"}
LOST = {"outcome": "delivered", "reply": "lost", "backends": ["echo"], "source": "preserved"}
DATAGRAM, TWO = (Dialled(port="udp", send={"as": "packet", "flows": flows}) for flows in (1, 2))
NOT_THE_ENGINE = "The packet may never have met the engine's rules, so nothing shows what they would have done."


FROM_ECHO, TO_VIP = f"match ip src {ECHO} match ip sport 8080 0xffff", f"match ip dst {VIP}"
_SLOW = (
    "tc qdisc add dev eth0 root handle 1: htb default 0; "
    "tc class add dev eth0 parent 1: classid 1:9 htb rate 800bit burst 1 cburst 1; "
)
_INTO_CLASS = (
    f"tc filter add dev eth0 parent 1: protocol ip u32 match ip dst {ECHO} match ip dport 8080 0xffff flowid 1:9"
)
_NO_ROOT = "tc qdisc del dev eth0 root"
SLOW = Alteration("node-a", _SLOW + _INTO_CLASS, _NO_ROOT)
"""A queue that lets one packet to the pod's port pass each second, and every other packet at once."""
SLOW_SWITCH, SLOW_POD = (
    Alteration(machine, *(words.replace("eth0", device).replace("dst", way).replace("dport", port) for words in both))
    for machine, device, way, port in (("fabric", "node-b", "dst", "dport"), ("echo", "eth0", "src", "sport"))
    for both in ((_SLOW + _INTO_CLASS, _NO_ROOT),)
)
HELD = """
sock = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 12)  # NETLINK_NETFILTER
for attribute in (struct.pack('=HHBxH', 8, 1, 1, 0), struct.pack('=HH4sB3x', 9, 2, b'\\xff' * 4, 2)):
    body = struct.pack('=BBH', 0, 0, socket.htons(5)) + attribute
    sock.send(struct.pack('=IHHII', 16 + len(body), 0x302, 5, 1, 0) + body)  # NFQNL_MSG_CONFIG: bind, then copy
    assert sock.recv(4096)[16:20] == bytes(4)
"""
"""A program that gets the packets of queue 5 and never decides about one."""
FULL = Alteration("node-a", f"{_SLOW}tc qdisc add dev eth0 parent 1:9 pfifo limit 0; {_INTO_CLASS}", _NO_ROOT)
"""A queue without room for packets to the pod's port."""

XDP = """
import ctypes, socket, struct, sys

device, load, offset, value = sys.argv[1], *map(int, sys.argv[2:])
steps = (
    (0x61, 0x12, 0, 0), (0x61, 0x13, 4, 0),  # the frame from r2 to r3
    (0xBF, 0x24, 0, 0), (0x07, 4, 0, 38), (0x2D, 0x34, 4, 0),  # pass what is shorter than the headers
    (load, 0x25, offset, 0), (0x55, 5, 2, value),  # pass what has another value there
    (0xB7, 0, 0, 1), (0x95, 0, 0, 0),  # XDP_DROP
    (0xB7, 0, 0, 2), (0x95, 0, 0, 0),  # XDP_PASS
)
code = ctypes.create_string_buffer(b"".join(struct.pack("=BBhi", *step) for step in steps))
licence = ctypes.create_string_buffer(b"GPL")
load = struct.pack("=IIQQ96x", 6, len(steps), ctypes.addressof(code), ctypes.addressof(licence))
program = ctypes.CDLL(None).syscall(321, 5, ctypes.create_string_buffer(load), len(load))  # BPF_PROG_LOAD on x86-64
assert program >= 0, "the kernel refuses the program"
route = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)
link = struct.pack("=BxHiII", 0, 0, socket.if_nametoindex(device), 0, 0)
link += struct.pack("=HHHHi", 12, 43 | 0x8000, 8, 1, program)  # IFLA_XDP with IFLA_XDP_FD
route.send(struct.pack("=IHHII", 16 + len(link), 19, 5, 1, 0) + link)
assert struct.unpack_from("=i", route.recv(4096), 16) == (0,), "the kernel does not attach the program"
"""
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, who may load BPF programs; run it as root")


def clsact(machine: str, device: str, way: str, rule: str) -> Alteration:
    """A filter of tc on one way through a device."""
    add = f"tc qdisc add dev {device} clsact && tc filter add dev {device} {way} {rule}"
    return Alteration(machine, add, f"tc qdisc del dev {device} clsact")


def u32(machine: str, device: str, way: str, match: str, action: str) -> Alteration:
    """A filter of tc with a match of u32 and an action."""
    return clsact(machine, device, way, f"protocol ip u32 {match} action {action}")


def drop(device: str, way: str, address: str, *, at: int = 30, port: tuple[int, int] = (0, 0)) -> Alteration:
    """A BPF filter of tc on node-a that drops what has that address there in its frame, and perhaps that port."""
    loads = [(40, 12, 0x0800), (32, at, int(ip_address(address))), *([(40, *port)] if port[0] else [])]
    steps = []
    for number, (load, offset, value) in enumerate(loads, 1):
        steps += [f"{load} 0 0 {offset}", f"21 0 {2 * (len(loads) - number) + 1} {value}"]
    steps += ["6 0 0 2", f"6 0 0 {0xFFFFFFFF}"]  # TC_ACT_SHOT, TC_ACT_UNSPEC
    return clsact("node-a", device, way, f'bpf da bytecode "{len(steps)},{",".join(steps)},"')


def xdp(device: str, load: int, offset: int, value: bytes) -> Alteration:
    """An XDP program on node-a that drops what has these bytes there in its frame."""
    arguments = f"{device} {load} {offset} {int.from_bytes(value, 'little')}"
    return Alteration("node-a", f"{sys.executable} -c '{XDP}' {arguments}", f"ip link set dev {device} xdp off")


def to(address: str) -> tuple[int, int, bytes]:
    """What ``xdp`` compares: the destination, a word of 32 bits."""
    return 0x61, 30, ip_address(address).packed


FROM_PORT = 0x69, 34, (8080).to_bytes(2)
ANSWER = drop("eth0", "ingress", ECHO, at=26, port=(34, 8080))


def stateless(protocol: str) -> tuple[Alteration, ...]:
    """Rules at a device that do the engine's work without connection tracking, there and back."""
    there = f"ip daddr {VIP} {protocol} dport 80 ip daddr set {ECHO} {protocol} dport set 8080"
    back = f"ip saddr {ECHO} {protocol} sport 8080 ip saddr set {VIP} {protocol} sport set 80"
    second = nft("node-a", "egress device client", 0, back, family="netdev")
    return (
        nft("node-a", "ingress device client", 0, there, family="netdev"),
        Alteration("node-a", second.change.replace("attack", "back"), second.undo.replace("attack", "back")),
    )


ATTACKS = [
    Attack(
        "a BPF filter of tc drops what the engine drops",
        (drop("client", "ingress", LOCAL),),
        "inconclusive", NOT_THE_ENGINE, DROPPED, OF_LOCAL,
        ("node-a has the filter bpf of tc on client (ingress)", "and may have dropped it before the engine's rules"),
    ),
    Attack(
        "a BPF filter of tc passes everything, and the engine drops",
        (drop("client", "ingress", "192.0.2.1"),),
        "pass", "The engine's rule counted the packet.", DROPPED, OF_LOCAL,
    ),
    Attack(
        "a BPF filter of tc drops the request",
        (drop("client", "ingress", VIP),),
        "fail", "The sentinel packets came back, so it will not arrive.",
        says=("outcome: no tap saw it behind node-a/client",),
        why="node-a has the filter bpf of tc on client (ingress)", never="by its routing",
    ),
    Attack(
        "a BPF filter of tc drops the translated request on its way out",
        (drop("eth0", "egress", ECHO, port=(36, 8080)),),
        "fail", "Packet sockets see what leaves behind tc, and the sentinel packets came back.",
        says=("outcome: no tap saw it behind node-a/client",), why="node-a has the filter bpf of tc on eth0 (egress)",
        never="by its routing",
    ),
    Attack(
        "a BPF filter of tc drops the reply that the author expects to be lost",
        (ANSWER,), "inconclusive", NOT_THE_ENGINE, LOST, DATAGRAM,
        ("node-a has the filter bpf of tc on eth0 (ingress)", "and may have dropped the answer"),
    ),
    Attack(
        "a BPF filter of tc drops the reply",
        (ANSWER,), "fail", "The pod answered; the sentinel packets came back, and the answer did not.",
        says=("reply: echo sent a reply, but it did not reach client",),
        why="node-a has the filter bpf of tc on eth0 (ingress)",
    ),
    *(
        Attack(
            f"tc redirects the request past the engine's rules over {name}",
            (u32("node-a", "client", "ingress", TO_VIP, "mirred egress redirect dev eth0"),),
            "inconclusive", NOT_THE_ENGINE, UNTRANSLATED, dialled=dialled,
            says=("the filter u32 of tc on client (ingress)", "and may have kept it from the engine's rules"),
        )
        for name, dialled in (("TCP", Dialled()), ("UDP", DATAGRAM))
    ),
    Attack(
        "tc leads to another pod what the engine drops",
        (u32("node-a", "client", "ingress", f"match ip dst {LOCAL}", "mirred egress redirect dev neighbour"),),
        "inconclusive", NOT_THE_ENGINE, DROPPED, OF_LOCAL,
        ("node-a has the filter u32 of tc on client (ingress)", "and may have led it there"),
    ),
    Attack(
        "tc gives the node the request a second time",
        (u32("node-a", "client", "ingress", TO_VIP, "mirred ingress mirror dev neighbour"),),
        "fail", "The tap of the pod saw two requests, and the sender sent one.", dialled=DATAGRAM,
        says=("outcome: it arrived twice at echo, but left once",),
    ),
    Attack(
        "tc copies the request to another pod's device",
        (u32("node-b", "eth0", "ingress", f"match ip dst {ECHO}", "mirred egress mirror dev other"),),
        "pass", "The copy has another MAC, so the other pod's stack drops it.", dialled=DATAGRAM,
    ),
    Attack(
        "tc leads the answer past connection tracking",
        (u32("node-a", "eth0", "ingress", FROM_ECHO, "mirred egress redirect dev client"),),
        "fail", "The frame has the node's MAC: the sender's stack drops it.", dialled=DATAGRAM,
        says=("reply: echo sent a reply, but it did not reach client",),
        why="the taps saw the reply last at client/eth0",
    ),
    Attack(
        "tc gives the node the answer a second time",
        (u32("node-b", "echo", "ingress", FROM_ECHO, "mirred ingress mirror dev eth0"),),
        "fail", "The tap of the sender saw two replies, and the pod sent one.", dialled=DATAGRAM,
        says=("reply: 2 replies came to client, but echo sent one",),
    ),
    Attack(
        "a queue holds the second datagram while sentinel packets overtake it",
        (SLOW,),
        "inconclusive", "The datagram is on its way, and the sentinel packets took another class of the queue.",
        dialled=TWO,
        says=("a sentinel packet may have overtaken", "in the queue htb of node-a/eth0, so silence proves nothing"),
    ),
    Attack(
        "a queue of the switch holds the second datagram while sentinel packets overtake it",
        (SLOW_SWITCH,), "inconclusive", "The datagram is on its way.", dialled=TWO,
        # A segment of an earlier connection, sent again, may have taken the turn of the first datagram.
        says=("a sentinel packet may have overtaken", "in the queue htb of fabric/node-b"),
    ),
    Attack(
        "a queue of the pod holds the second answer while sentinel packets overtake it",
        (SLOW_POD,), "inconclusive", "The answer is on its way.", dialled=TWO,
        # An earlier connection's answer, sent again, may have taken the turn of the first answer.
        says=("reply: a sentinel packet may have overtaken", "in the queue htb of echo/eth0"),
    ),
    Attack(
        "a program holds the request while sentinel packets overtake it",
        (
            program("node-a", HELD, "while True:\n sock.recv(65536)"),
            iptables("node-a", "mangle", "PREROUTING", f"-d {VIP} -j NFQUEUE --queue-num 5"),
        ),
        "inconclusive", "The program may still let it pass.", dialled=UDP,
        says=("overtaken 1 packet in the queue NFQUEUE 5 of node-a/netfilter",),
    ),
    Attack(
        "a queue holds segments of a connection while sentinel packets overtake them",
        (SLOW,), "inconclusive", "They are on their way.", says=("in the queue htb of node-a/eth0",),
    ),
    Attack(
        "a queue without room drops the request",
        (FULL,), "fail", "The queue held nothing when the sentinel packets went out.",
        says=("outcome: no tap saw it behind node-a/client",), dialled=DATAGRAM,
        why="which dropped 1 packet", never="by its routing",
    ),
    *(
        Attack(
            f"rules at a device translate to the right pod and back without connection tracking, over {name}",
            stateless(name), "inconclusive", NOT_THE_ENGINE, dialled=dialled,
            says=(f"DNAT rules to {ECHO}:8080 counted 0 of 1 flow it got; node-a has the rule \"ip daddr {VIP}",),
        )
        for name, dialled in (("tcp", Dialled()), ("udp", UDP))
    ),
    Attack(
        "a rule in the hook ingress forwards the request past the engine's rules",
        (nft("node-a", "ingress device client", 0, f"ip daddr {VIP} counter fwd to eth0", family="netdev"),),
        "inconclusive", NOT_THE_ENGINE, UNTRANSLATED, says=("and may have kept it from the engine's rules",),
    ),
    Attack(
        "a rule in the hook ingress of the family inet drops what the engine drops",
        (nft("node-a", "ingress device client", 0, f"ip daddr {LOCAL} drop", family="inet"),),
        "inconclusive", NOT_THE_ENGINE, DROPPED, OF_LOCAL, ("(hook ingress, priority 0) of table inet attack",),
    ),
    Attack(
        "a rule in the hook ingress rejects what the engine rejects",
        (nft("node-a", "ingress device client", 0, f"ip daddr {EMPTY} counter reject", family="netdev"),),
        "inconclusive", NOT_THE_ENGINE, {"outcome": "rejected", "at": "node-a"}, OF_EMPTY,
        ("reject with icmp port-unreachable\" in chain x", "may have rejected it in place of the engine's rules"),
    ),
    Attack(
        "a rule in the hook ingress resets what a closed port refuses",
        (nft("node-a", "ingress device client", 0, f"ip daddr {VIP} counter reject with tcp reset", family="netdev"),),
        "inconclusive", "No tap saw the pod send a reset.", {"outcome": "refused"}, CLOSED,
        ("and may have reset it in place of a closed port",),
    ),
    Attack(
        "a rule in the hook ingress sets the engine's mark",
        (nft("node-a", "ingress device client", 0, f"ip daddr {VIP} meta mark set 0x4000", family="netdev"),),
        "fail", "The pod saw the node's address.", says=("source: echo saw it come from 172.18.0.2",),
        why="and no rule of the engine marked it: node-a has",
    ),
    Attack(
        "a rule in the hook egress drops the request",
        (nft("node-a", "egress device eth0", 0, f"ip daddr {ECHO} tcp dport 8080 counter drop", family="netdev"),),
        "fail", "The rule counted the packet.", why="(hook egress, priority 0) of table netdev attack",
        never="by its routing",
    ),
    Attack(
        "a rule in the hook egress changes the source",
        (nft("node-a", "egress device eth0", 0, f"ip saddr {CLIENT} ip saddr set 172.18.0.2", family="netdev"),),
        "fail", "The pod saw it, whatever connection tracking has.", dialled=DATAGRAM,
        says=("source: echo saw it come from 172.18.0.2",), why="ip saddr set 172.18.0.2\" in chain x (hook egress",
    ),
    Attack(
        "connection tracking forgets a flow over UDP at once",
        (
            Alteration(
                "node-a",
                "echo 0 > /proc/sys/net/netfilter/nf_conntrack_udp_timeout",
                "echo 30 > /proc/sys/net/netfilter/nf_conntrack_udp_timeout",
            ),
        ),
        "fail", "The client heard the pod's own address.", dialled=UDP,
        says=(f"reply: the reply came from {ECHO}:8080",), why="nothing translated the reply back",
    ),
]  # fmt: skip

XDP_ATTACKS = [
    Attack(
        "an XDP program drops what the engine drops",
        (xdp("client", *to(LOCAL)),), "inconclusive", NOT_THE_ENGINE, DROPPED, OF_LOCAL,
        ("node-a has the program of XDP on client (ingress)", "no rule on node-a counted it as dropped"),
    ),
    Attack(
        "an XDP program passes everything, and the engine drops",
        (xdp("client", *to("192.0.2.1")),), "pass", "The engine's rule counted the packet.", DROPPED, OF_LOCAL,
    ),
    Attack(
        "an XDP program drops the request",
        (xdp("client", *to(VIP)),), "fail", "The sentinel packets came back, so it will not arrive.",
        says=("outcome: no tap saw it again after it left",), why="node-a has the program of XDP on client (ingress)",
    ),
    Attack(
        "an XDP program drops the reply",
        (xdp("eth0", *FROM_PORT),), "fail", "The pod answered, and the sentinel packets came back.",
        says=("reply: echo sent a reply, but it did not reach client",),
        why="node-a has the program of XDP on eth0 (ingress)",
    ),
    Attack(
        "an XDP program drops the reply that the author expects to be lost",
        (xdp("eth0", *FROM_PORT),), "inconclusive", NOT_THE_ENGINE, LOST, DATAGRAM,
        ("node-a has the program of XDP on eth0 (ingress)", "and may have dropped the answer"),
    ),
]  # fmt: skip

NETEM = [
    Attack(
        "netem copies every packet",
        (Alteration("node-a", "tc qdisc add dev eth0 root netem duplicate 100%", _NO_ROOT),),
        "fail", "The tap of the pod saw two requests, and the sender sent one.", dialled=DATAGRAM,
        says=("outcome: it arrived twice at echo, but left once",),
    ),
    *(
        Attack(
            f"netem sends every second packet before the one in front of it, over {name}",
            (Alteration("node-a", "tc qdisc add dev eth0 root netem delay 50ms reorder 100% gap 2", _NO_ROOT),),
            "pass", "Every packet arrived, and no Service promises their order.", dialled=dialled,
        )
        for name, dialled in (("TCP", Dialled()), ("UDP", UDP))
    ),
    Attack(
        "netem holds a datagram for longer than the lab waits",
        (Alteration("node-a", "tc qdisc add dev eth0 root netem delay 60s", _NO_ROOT),),
        "inconclusive", "The sentinel packets wait behind it.", dialled=DATAGRAM, says=("so silence proves nothing",),
    ),
]  # fmt: skip


lab = lab_of_module("embedded/iptables", privileged=True)  # commands load BPF programs
test_what_works_at_a_device_never_passes_for_the_engine = each_of(ATTACKS)
test_an_xdp_program_never_passes_for_the_engine = needs_root(each_of(XDP_ATTACKS))


# The queues of HTB above show the same on every kernel.
@pytest.mark.thorough
@pytest.mark.needs_kernel(built=None)
def test_what_netem_does_on_a_node_is_told_from_the_proxy() -> None:
    with attacked("embedded/iptables", "uml") as lab:
        for attack in NETEM:
            check(lab.judged(attack), attack)
