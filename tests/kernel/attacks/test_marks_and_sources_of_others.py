"""Rules of others that translate, mark, give a source, drop pings or hide an ICMP error: none passes for another."""

import sys

from attacked_lab import (
    ECHO,
    ECHO_6,
    FROM_OUTSIDE,
    IPV6,
    TWIN,
    VIP,
    Alteration,
    Attack,
    Dialled,
    each_of,
    iptables,
    lab_of_module,
    nft,
    remembered,
    rewritten,
    route,
)

NOT_THE_ENGINE = "Another rule did it first, so nothing shows what the engine's rules would have done."
TRACKED = {
    "outcome": "delivered",
    "backends": ["echo"],
    "source": "preserved",
    "conntrack": {"some": {"replyFrom": "echo"}},
}
UNCOUNTED = (f"the Service's DNAT rules to {ECHO}:8080 counted 0 of 1 flow it got; node-a has the rule",)
OF_NODE, OF_ADDRESS = (
    {"outcome": "delivered", "backends": ["echo"], "source": source}
    for source in ({"node": "node-a", "device": "uplink"}, "172.18.0.2")
)
SNAT = iptables("node-a", "nat", "POSTROUTING", f"-d {ECHO} -p tcp --dport 8080 -j SNAT --to-source 172.18.0.2")
MARK = iptables("node-a", "mangle", "PREROUTING", f"-d {VIP} -j MARK --set-mark 0x4000")
CHANGED = ("belongs to no engine, and may have changed the source in place of the engine's rules",)
MARKED = ("belongs to no engine, and may have marked it in place of the engine's rules",)
NO_ERRORS = nft("node-a", "output", 0, "icmp type destination-unreachable counter drop")
NO_ERRORS_6 = nft("node-a", "output", 0, "icmpv6 type destination-unreachable counter drop", family="ip6")
NO_PINGS = iptables("node-a", "filter", "INPUT", "-p icmp -j DROP")

_OPEN = "import socket\nfor _ in range(6):\n sock = socket.socket()\n sock.setblocking(False)\n"
HELD = (
    Alteration(
        "node-a",
        "tc qdisc add dev eth0 root handle 1: htb default 0; "
        "tc class add dev eth0 parent 1: classid 1:9 htb rate 800bit burst 1 cburst 1; "
        f"tc filter add dev eth0 parent 1: protocol ip u32 match ip dst {ECHO} match ip dport 8080 0xffff flowid 1:9",
        "tc qdisc del dev eth0 root",
    ),
    Alteration("client", f"{sys.executable} -c \"{_OPEN} sock.connect_ex(('{ECHO}', 8080))\"", "true"),
)
"""A queue that holds packets to the endpoint for seconds, and some that wait in it."""

ATTACKS = [
    Attack(
        "a rule of nftables translates, where the author expects its entry",
        (nft("node-a", "prerouting", -150, f"ip daddr {VIP} tcp dport 80 counter dnat to {ECHO}:8080", "nat"),),
        "inconclusive", NOT_THE_ENGINE, TRACKED, says=UNCOUNTED,
    ),
    Attack(
        "a rule of nftables without a counter translates, where the author expects its entry",
        (nft("node-a", "prerouting", -150, f"ip daddr {VIP} tcp dport 80 dnat to {ECHO}:8080", "nat"),),
        "inconclusive", NOT_THE_ENGINE, TRACKED, says=UNCOUNTED,
    ),
    Attack(
        "a rule of iptables translates, where the author expects its entry",
        (iptables("node-a", "nat", "PREROUTING", f"-d {VIP} -p tcp --dport 80 -j DNAT --to-destination {ECHO}:8080"),),
        "inconclusive", NOT_THE_ENGINE, TRACKED, says=UNCOUNTED,
    ),
    Attack(
        "an entry from before the probe leads, which the author expects",
        remembered(f"{ECHO}:8080", 40010),
        "pass", "The kernel asks no rule about a flow that it knows.", TRACKED,
        Dialled(sender={"name": "client", "port": 40010}, port="udp"),
    ),
    Attack(
        "an entry from before the probe is expected, and rules rewrite the packet before the kernel looks for it",
        (*remembered(f"{ECHO}:8080", 40011), *rewritten(TWIN)),
        "inconclusive", "The packet went by the rules of the other Service.", TRACKED,
        Dialled(sender={"name": "client", "port": 40011}, port="udp"), UNCOUNTED,
    ),
    Attack(
        "a rule gives the source, where the author expects that of a device",
        (SNAT,), "inconclusive", NOT_THE_ENGINE, OF_NODE, says=CHANGED,
    ),
    Attack(
        "a rule gives the source, where the author expects that address",
        (SNAT,), "inconclusive", NOT_THE_ENGINE, OF_ADDRESS, says=CHANGED,
    ),
    Attack(
        "a rule of nftables without a counter gives the source",
        (nft("node-a", "postrouting", 90, f"ip daddr {ECHO} tcp dport 8080 snat to 172.18.0.2", "nat"),),
        "inconclusive", NOT_THE_ENGINE, OF_NODE, says=CHANGED,
    ),
    Attack(
        "a rule gives the source before a node port's rules do",
        (SNAT,), "inconclusive", NOT_THE_ENGINE, OF_NODE, FROM_OUTSIDE, CHANGED,
    ),
    Attack(
        "nothing else gives the source of a node port's request",
        (), "pass", "The engine's rules marked and masqueraded it.", OF_NODE, FROM_OUTSIDE,
    ),
    Attack(
        "a rule sets the engine's mark, where the author expects the source of a device",
        (MARK,), "inconclusive", NOT_THE_ENGINE, OF_NODE, says=MARKED,
    ),
    Attack(
        "a rule sets the engine's mark, where the author expects its address",
        (MARK,), "inconclusive", NOT_THE_ENGINE, OF_ADDRESS, says=MARKED,
    ),
    Attack(
        "a queue holds the packet, and a rule drops the sentinel packet",
        (*HELD, NO_PINGS), "inconclusive", "The rule counted no packet of the probe, which arrives later.",
        says=("a sentinel packet may have overtaken",), never="dropped the packet",
    ),
    Attack(
        "a route refuses the packet, and a rule drops the ICMP error",
        (route("node-a", f"unreachable {ECHO}"), NO_ERRORS),
        "inconclusive", "The rule counted the ICMP error. The way to the pod is shut for the sentinel packet, too.",
        says=("no sentinel packet came back from echo",), never="dropped the packet",
    ),
    Attack(
        "a route refuses the packet over IPv6, and a rule drops the ICMP error",
        (route("node-a", f"unreachable {ECHO_6}"), NO_ERRORS_6),
        "inconclusive", "The rule counted the ICMP error. The way to the pod is shut for the sentinel packet, too.",
        dialled=Dialled(to=IPV6), says=("no sentinel packet came back from echo",), never="dropped the packet",
    ),
]  # fmt: skip

lab = lab_of_module("embedded/iptables")
test_the_verdict_is_right = each_of(ATTACKS)
