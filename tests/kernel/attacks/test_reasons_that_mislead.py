"""Reasons that lead an engineer astray: a rule that did nothing to the packet, or none where a rule did it."""

from attacked_lab import (
    CLIENT,
    ECHO,
    NEIGHBOUR,
    OTHER,
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
    route,
)

CONNECTION = Dialled(send={"as": "connect"})
TO_OTHER = f"-d {OTHER} -p udp --dport 9 -j DROP"
DATAGRAMS = program(
    "neighbour",
    "import time\nsock = socket.socket(type=socket.SOCK_DGRAM)\n",
    f"while True:\n sock.sendto(b'', ('{OTHER}', 9)); time.sleep(.002)",
)
UNRELATED = (iptables("node-b", "filter", "FORWARD", TO_OTHER), DATAGRAMS)
NOT_MET = "The rule that drops datagrams to another pod matches no packet of this flow."


def translating(to: str, counter: str = "counter ") -> Alteration:
    """A rule of others that gives the Service's packets another destination."""
    return nft("node-a", "prerouting", -150, f"ip daddr {VIP} tcp dport 80 {counter}dnat to {to}", "nat")


TRANSLATED = [
    Attack(
        "a rule translates to an address that nothing has",
        (translating("10.244.1.77:8080"),),
        "fail", "The taps saw it leave node-a for that address.", never="no rule translated",
        why="node-a changed the packet's destination to 10.244.1.77:8080 by the rule \"ip daddr 10.96.1.1",
    ),
    Attack(
        "a rule translates to an address that no machine may have",
        (translating("240.0.0.1"),),
        "fail", "The taps saw it leave node-a for that address.", never="no rule translated",
        why="node-a changed the packet's destination to 240.0.0.1:80 by the rule \"ip daddr 10.96.1.1",
    ),
    Attack(
        "a rule without a counter translates to an address that no machine may have",
        (translating("240.0.0.1", ""),),
        "fail", "The taps saw it leave node-a for that address.", never="no rule translated",
        why="node-a changed the packet's destination to 240.0.0.1:80 perhaps by the rule \"ip daddr 10.96.1.1",
    ),
    Attack(
        "a rule translates to an address with an unreachable route",
        (translating("198.51.100.7"), route("node-a", "unreachable 198.51.100.7")),
        "fail", "The rule counted the packet, and node-a has no way there.", never="no rule translated",
        why="of table ip attack, which belongs to no engine, and answered with ICMP host unreachable (3/1)",
    ),
    Attack(
        "a rule rewrites the destination before connection tracking, to an address that nothing has",
        (nft("node-a", "prerouting", -350, f"ip daddr {VIP} udp dport 80 counter ip daddr set 172.18.0.77"),),
        "fail", "The rule counted the packet, and no machine answers for that address.", dialled=UDP,
        why="node-a changed the packet's destination to 172.18.0.77 by the rule \"ip daddr 10.96.1.1",
        never="no rule translated",
    ),
]  # fmt: skip
ATTACKS = [
    *TRANSLATED,
    Attack(
        "a rule translates another Service's packets, and another keeps this one's from translation",
        (
            iptables("node-a", "raw", "PREROUTING", f"-d {VIP} -j CT --notrack"),
            nft("node-a", "prerouting", -150, "ip daddr 10.96.1.2 tcp dport 80 dnat to 10.244.1.77:8080", "nat"),
        ),
        "fail", "The taps saw it leave node-a as it was sent.", why="no rule translated the packet",
    ),
    Attack(
        "the node of the pod leads the only reply to a host outside",
        (
            nft("node-b", "prerouting", -350, f"ip saddr {ECHO} udp sport 8080 counter ip daddr set 203.0.113.10"),
            iptables("node-b", "nat", "POSTROUTING", "-s 203.0.113.0/24 -j SNAT --to-source 172.18.0.3"),
        ),
        "fail", "One reply left the pod, and it came in at the host.", dialled=UDP,
        says=("reply: the reply went to outside/eth0, addressed to 203.0.113.10:",),
        why="node-b changed the reply's destination by the rule \"ip saddr 10.244.1.10", never="copied",
    ),
    Attack(
        "the node of the sender gives the request a neighbour's address, before connection tracking",
        (nft("node-a", "prerouting", -350, f"ip saddr {CLIENT} udp dport 80 counter ip saddr set {NEIGHBOUR}"),),
        "fail", "The neighbour got the only reply.", dialled=UDP,
        says=("reply: the reply went to neighbour/eth0, addressed to 10.244.0.11:",),
        why="node-a changed the request's source by the rule \"ip saddr 10.244.0.10", never="copied",
    ),
    Attack(
        "a reply is lost where a rule drops other datagrams",
        (*UNRELATED, nft("node-b", "postrouting", 300, f"ip saddr {ECHO} tcp sport 8080 drop")),
        "fail", NOT_MET, never=OTHER,
        why="node-b has the rule \"ip saddr 10.244.1.10 tcp sport 8080 drop\"",
    ),
    *(
        Attack(
            f"{what} is lost in the pod's own namespace where a rule of its node drops other datagrams",
            (*UNRELATED, nft("echo", hook, 0, match)), "fail", NOT_MET, dialled=CONNECTION, why=why, never="FORWARD",
        )
        for what, hook, match, why in (
            (
                "data", "input", "tcp dport 8080 tcp flags & psh == psh drop",
                "the handshake was answered, the data was not: timeout.",
            ),
            (
                "the end of a connection", "output", "tcp sport 8080 tcp flags & fin == fin drop",
                "its connection did not end: client sent its FIN, and none came back from echo.",
            ),
        )
    ),
    Attack(
        "a rule of the pod's node drops the reply, and another one more",
        (*UNRELATED, iptables("node-b", "filter", "FORWARD", f"-s {ECHO} -p udp --sport 8080 -j DROP")),
        "fail", "Its counter shows one packet, as many as are missing.", dialled=UDP, never="its rule",
        why="which dropped 1 packet by the rule \"-A FORWARD -s 10.244.1.10/32 -p udp -m udp --sport 8080 -j DROP\"",
    ),
]  # fmt: skip


lab = lab_of_module("embedded/iptables")
test_a_reason_names_what_met_the_packet = each_of(ATTACKS)


def test_a_translation_by_others_is_named_on_mode_nftables() -> None:
    with attacked("embedded/nftables") as lab:
        for attack in TRANSLATED:
            check(lab.judged(attack), attack)
