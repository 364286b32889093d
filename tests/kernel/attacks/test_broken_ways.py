"""Ways that are broken, detoured or narrow, and segments that vanish: each is red for a reason of its own."""

from attacked_lab import (
    CLIENT,
    ECHO,
    NODES,
    UDP,
    Alteration,
    Attack,
    Dialled,
    attacked,
    check,
    each_of,
    lab_of_module,
    nft,
)

RPF = "/proc/sys/net/ipv4/conf/all/rp_filter"
RESENT = "/proc/sys/net/ipv4/tcp_synack_retries"
TO_PODS_OF_B, TO_PODS_OF_A = "ip route replace 10.244.1.0/24 via", "ip route replace 10.244.0.0/24 via"
BACK_TO_NORMAL = f"{TO_PODS_OF_A} {NODES['node-a']} proto static"
ASIDE = f"to {ECHO} ipproto tcp dport 8080"
ANSWERS = f"from {ECHO} sport 8080"
BACK_BY_NODE_C = Alteration(
    "node-b",
    f"ip route add default via {NODES['node-c']} table 77; "
    f"ip rule add {ANSWERS} ipproto tcp lookup 77; ip rule add {ANSWERS} ipproto udp lookup 77",
    f"ip rule del {ANSWERS} ipproto tcp lookup 77; ip rule del {ANSWERS} ipproto udp lookup 77; "
    "ip route flush table 77",
)
ACCEPTED = "The handshake crossed; the socket got no answer to its data, and the sentinel packets came back."


def narrow(node: str) -> Alteration:
    """A device that takes and sends less than others send to it."""
    return Alteration(node, "ip link set eth0 mtu 1300", "ip link set eth0 mtu 1500")


def neighbour(mac: str) -> Alteration:
    """node-a's entry for node-b."""
    entry = f"ip neigh replace {NODES['node-b']} dev eth0 lladdr"
    return Alteration("node-a", f"{entry} {mac} nud permanent", f"ip neigh del {NODES['node-b']} dev eth0")


ATTACKS = [
    Attack(
        "a bridge floods every frame",
        (
            Alteration(
                "fabric",
                "ip link set nodes type bridge ageing_time 0",
                "ip link set nodes type bridge ageing_time 30000",
            ),
        ),
        "pass", "The stacks of the others drop frames for another MAC, so nothing was copied.",
    ),
    Attack(
        "a bridge floods every frame, and a route drops the packet",
        (
            Alteration(
                "fabric",
                "ip link set nodes type bridge ageing_time 0",
                "ip link set nodes type bridge ageing_time 30000",
            ),
            Alteration(
                "node-b",
                f"ip route replace blackhole {ECHO}",
                f"ip route del blackhole {ECHO}; ip route add {ECHO} dev echo proto static scope link",
            ),
        ),
        "fail", "It ended at node-b; what the bridge flooded to other nodes shows no step of its way.",
        says=("outcome: no tap saw it behind node-b/eth0",), why="node-b dropped the packet by its routing",
        never="node-c",
    ),
    Attack(
        "a neighbour entry that no machine has",
        (neighbour("02:00:00:00:00:77"),),
        "inconclusive", "The sentinel packets are lost on the same way, so the packet may only be late.",
        says=("no sentinel packet came back from echo or other",),
    ),
    Attack(
        "the answer over TCP comes back by another node",
        (BACK_BY_NODE_C,),
        "fail", "node-c sees the answer without its request, and drops it as invalid.",
        says=("reply: echo sent a reply, but it did not reach client",),
        why="the taps saw the reply last at node-c/eth0, which dropped 1 packet by its rule in KUBE-FORWARD.",
    ),
    Attack(
        "the answer over UDP comes back by another node",
        (BACK_BY_NODE_C,),
        "pass", "To node-c it is the beginning of a flow, and node-a translates it back.", dialled=UDP,
    ),
    Attack(
        "an answer that has no route",
        (
            Alteration(
                "node-b",
                "ip route replace blackhole 10.244.0.0/24", f"ip route del blackhole 10.244.0.0/24; {BACK_TO_NORMAL}",
            ),
        ),
        "inconclusive", "The answers to the sentinel packets have none either.",
        says=("no sentinel packet came back from echo or other",),
    ),
    Attack(
        "a loop between two nodes",
        (
            Alteration(
                "node-a",
                f"{TO_PODS_OF_B} {NODES['node-c']}", f"{TO_PODS_OF_B} {NODES['node-b']} proto static",
            ),
            Alteration(
                "node-c",
                f"{TO_PODS_OF_B} {NODES['node-a']}", f"{TO_PODS_OF_B} {NODES['node-b']} proto static",
            ),
        ),
        "fail", "A node reported the end of the packet's TTL, and no pod saw the packet.",
        says=("outcome: client heard ICMP time to live exceeded (11/0)",),
        why="answered the packet with ICMP time to live exceeded (11/0)",
    ),
    Attack(
        "a TTL that runs out behind the translation",
        (nft("node-b", "prerouting", -10, f"ip daddr {ECHO} counter ip ttl set 1"),),
        "fail", "The ICMP error has the Service's address, since node-a translates it back; the taps saw who sent it.",
        says=("outcome: client heard ICMP time to live exceeded (11/0) from 10.96.1.1",),
        why="node-b answered the packet with ICMP time to live exceeded (11/0).",
    ),
    Attack(
        "a policy route that drops the Service's packets alone",
        (Alteration("node-b", f"ip rule add {ASIDE} blackhole", f"ip rule del {ASIDE} blackhole"),),
        "fail", "The sentinel packets came back; node-b's stack received the packet and did not forward it.",
        says=("outcome: no tap saw it behind node-b/eth0",), why="node-b dropped the packet by its routing",
    ),
    Attack(
        "a policy route that prohibits the Service's packets",
        (Alteration("node-b", f"ip rule add {ASIDE} prohibit", f"ip rule del {ASIDE} prohibit"),),
        "fail", "node-b said so by ICMP.", says=("outcome: client heard ICMP administratively prohibited (3/13)",),
        why="node-b answered the packet with ICMP administratively prohibited (3/13).",
    ),
    Attack(
        "a reverse-path filter that refuses the request",
        (
            Alteration(
                "node-b",
                f"echo 1 > {RPF}; ip route replace {CLIENT} dev other", f"echo 0 > {RPF}; ip route del {CLIENT}",
            ),
        ),
        "fail", "The filter's counter accounts for the packet.",
        why="node-b dropped the packet by its reverse-path filter: TcpExtIPReversePathFilter counted 1 packet.",
    ),
    Attack(
        "a policy of IPsec that blocks the request",
        (
            Alteration(
                "node-b",
                f"ip xfrm policy add dir fwd dst {ECHO} action block", f"ip xfrm policy del dir fwd dst {ECHO}",
            ),
        ),
        "fail", "Every packet to the pod is blocked, and the kernel counted that.",
        why="node-b dropped the packet by its IPsec policy on the way in or through", never="by its routing",
    ),
    Attack(
        "a black hole for large datagrams",
        (narrow("node-b"),),
        "fail", "A device drops a larger frame without a word; the small sentinel packets came back.",
        dialled=Dialled(port="udp", send={"payload": 1400}), says=("outcome: no tap saw it behind node-a/eth0",),
        never="by its rule",
    ),
    Attack(
        "a black hole for large segments",
        (narrow("node-b"),),
        "fail", ACCEPTED, dialled=Dialled(send={"payload": 1380}),
        says=("reply: the handshake was answered, the data was not: timeout",),
    ),
    Attack(
        "a narrow way that says so",
        (narrow("node-a"),),
        "fail", "The socket heard that the datagram was too large, so it will not arrive.",
        dialled=Dialled(port="udp", send={"payload": 1400}), says=("outcome: no tap saw it behind node-a/client",),
    ),
    Attack(
        "a narrow way that keeps it to itself",
        (narrow("node-a"), nft("node-a", "output", 0, "icmp type destination-unreachable counter drop")),
        "fail", "The stack counted that it could neither forward nor cut the packet.",
        dialled=Dialled(port="udp", send={"payload": 1400, "as": "packet"}),
        why="larger than the next link's MTU, and forbids fragments: IpFragFails counted 1 packet",
        never="by its routing",
    ),
    Attack(
        "segments with a window of zero",
        (nft("node-b", "forward", -20, f"ip saddr {ECHO} tcp sport 8080 counter tcp window set 0"),),
        "fail", ACCEPTED, says=("reply: the handshake was answered, the data was not: timeout",),
    ),
    *(
        Attack(
            f"a rule that drops {what}",
            (nft("node-b", "forward", -20, f"{match} counter drop"),),
            "fail", right, says=(f"reply: {said}",), why=f"the rule \"{match[:30]}",
        )
        for what, match, said, right in (
            ("data to the pod", f"ip daddr {ECHO} tcp flags & psh == psh", "the handshake was answered", ACCEPTED),
            ("data from the pod", f"ip saddr {ECHO} tcp flags & psh == psh", "the handshake was answered", ACCEPTED),
            (
                "the pod's part of the handshake",
                f"ip saddr {ECHO} tcp flags & (syn | ack) == syn | ack",
                "echo sent a reply, but it did not reach client",
                "The tap saw the pod answer; the sentinel packets came back, and the answer did not.",
            ),
        )
    ),
    *(
        Attack(
            f"a rule that drops {what}",
            (nft("node-b", "forward", -20, f"{match} counter drop"),),
            "pass", "TCP made up for the loss: the pod answered, and the connection ended on both sides.",
        )
        for what, match in (
            ("bare acknowledgements", f"ip daddr {ECHO} tcp flags & (syn | ack | psh | fin) == ack"),
            ("resets that are never sent", "tcp flags & rst == rst"),
            ("the second packet alone", f"ip daddr {ECHO} meta l4proto tcp ct original packets 2"),
        )
    ),
    Attack(
        "a detour by another node",
        (nft("node-a", "postrouting", 300, f"ip daddr {ECHO} udp dport 8080 dup to {NODES['node-c']} device eth0"),),
        "fail", "A copy went by node-c and reached the pod, too.", dialled=UDP, says=("outcome: it arrived",),
    ),
]  # fmt: skip


lab = lab_of_module("embedded/iptables")
test_a_broken_way_is_red_for_its_own_reason = each_of(ATTACKS)


def test_answers_that_end_at_another_node_with_the_sentinels_are_lost() -> None:
    """The lab is new, and the pod sends no answer twice: a rule that counts more leaves the verdict inconclusive."""
    attack = Attack(
        "every answer comes back by another node",
        (
            Alteration("node-b", f"{TO_PODS_OF_A} {NODES['node-c']}", BACK_TO_NORMAL),
            Alteration("echo", f"echo 0 > {RESENT}", f"echo 5 > {RESENT}"),
        ),
        "fail", "node-c's rule for invalid packets counted each answer, and each sentinel packet that is missing.",
        dialled=Dialled(send={"as": "packet", "flows": 20}), says=("echo sent a reply, but it did not reach client",),
        why="the taps saw the reply last at node-c/eth0, which dropped 22 packets by its rule in KUBE-FORWARD.",
    )  # fmt: skip
    with attacked("embedded/iptables") as lab:
        check(lab.judged(attack), attack)
