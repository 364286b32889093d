"""Answers that another machine sends: replies, resets and ICMP errors of those that no Service leads to."""

from attacked_lab import (
    CLOSED,
    ECHO,
    ECHO_6,
    EMPTY,
    EMPTY_6,
    IPV6,
    NODES,
    NODES_6,
    OF_EMPTY,
    TCP,
    UDP,
    VIP,
    Alteration,
    Attack,
    Dialled,
    each_of,
    iptables,
    lab_of_module,
    nft,
    program,
    route,
)

REFUSED, REJECTED = {"outcome": "refused"}, {"outcome": "rejected", "at": "node-a"}
MAC_OF_OTHER = "$(ip neigh show dev other 10.244.1.11 | grep -o '..:..:..:..:..:..')"
HELD_TWICE = (
    Alteration("other", f"ip address add {ECHO}/32 dev lo", f"ip address del {ECHO}/32 dev lo"),
    Alteration(
        "node-b",
        f"ip neigh replace {ECHO} lladdr {MAC_OF_OTHER} dev other nud permanent; ip route replace {ECHO} dev other",
        f"ip neigh del {ECHO} dev other; ip route replace {ECHO} dev echo proto static scope link",
    ),
)
NO_RULE_REJECTED = "outcome: an ICMP error came, but no rule of any node rejected anything"
PAST_THE_ENGINE = iptables("node-a", "nat", "PREROUTING", f"-d {VIP} -j ACCEPT")
HOLDS_THE_SERVICE = f"ip address add {VIP}/32 dev lo", f"ip address del {VIP}/32 dev lo"


def copied_to_node_c(what: str, answer: str) -> tuple[Alteration, Alteration]:
    """node-b sends a copy of each request to node-c, and a rule there answers it."""
    return (
        nft("node-b", "forward", -20, f"ip daddr {ECHO} {what} counter dup to {NODES['node-c']} device eth0"),
        nft("node-c", "prerouting", -150, f"ip daddr {ECHO} {what} counter reject with {answer}"),
    )


LISTEN = """
sock = socket.socket()
sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
sock.setsockopt(socket.SOL_IP, 19, 1)  # IP_TRANSPARENT
sock.bind(('', PORT)); sock.listen()
"""
ANSWER = """
while True:
    answered, _ = sock.accept()
    with answered, contextlib.suppress(OSError):  # the lab's one more packet is no whole connection
        answered.send(answered.recv(4096))
        answered.recv(1)
"""
REDIRECTED = iptables("node-a", "nat", "PREROUTING", f"-d {VIP} -p tcp --dport 80 -j REDIRECT --to-ports 7777")
TAKEN_UP = (
    Alteration(
        "node-a",
        "ip rule add fwmark 1 lookup 100; ip route add local default dev lo table 100",
        "ip rule del fwmark 1 lookup 100; ip route flush table 100",
    ),
    nft("node-a", "prerouting", -150, f"ip daddr {VIP} tcp dport 80 counter tproxy to :7777 meta mark set 1"),
)
ICMP_LOST = nft("node-a", "output", 0, "icmp type destination-unreachable counter drop")


def listening(machine: str, port: int) -> Alteration:
    """A program that accepts and answers connections to any address which a rule gives it."""
    return program(machine, LISTEN.replace("PORT", str(port)), ANSWER)


ATTACKS = [
    *(
        Attack(
            f"a program of the node answers in place of the pod, {how}",
            (listening("node-a", 7777), *rules), "fail", "The taps saw the node answer, and no pod saw the request.",
            says=("outcome: client heard a reply from 10.96.1.1:80, but no pod saw the request",),
        )
        for how, rules in (("by REDIRECT", (REDIRECTED,)), ("by TPROXY", TAKEN_UP))
    ),
    Attack(
        "a router that holds the Service's address answers",
        (PAST_THE_ENGINE, Alteration("router", *HOLDS_THE_SERVICE), listening("router", 80)),
        "fail", "The answer came in at a node, and neither a node nor a pod had sent it.",
        says=("outcome: client heard a reply from 10.96.1.1:80, but no pod saw the request",),
    ),
    Attack(
        "the client's own rules translate to the right pod",
        (nft("client", "output", -100, f"ip daddr {VIP} tcp dport 80 counter dnat to {ECHO}:8080", "nat"),),
        "inconclusive", "The engine never met the packet.", says=("the taps never saw 1 flow leave client",),
        never="the reply came from",
    ),
    Attack(
        "the engine rejects, and a rule drops the ICMP error",
        (ICMP_LOST,), "fail", "The sender must hear an ICMP error, and it heard nothing.", REJECTED, OF_EMPTY,
        why="node-a rejected the packet by its rule \"default/empty:tcp has no endpoints\" in KUBE-SERVICES, and the "
        "ICMP error did not reach client", never="dropped the packet",
    ),
    Attack(
        "the engine rejects what the author expects it to drop, and a rule drops the ICMP error",
        (ICMP_LOST,), "fail", "The engine's rule counted it.", {"outcome": "dropped", "at": "node-a"}, OF_EMPTY,
        says=("outcome: node-a rejected it by a rule, and the ICMP error was lost",),
    ),
    *(
        Attack(
            f"a route of kind {kind} answers in place of the engine's rejection",
            (route("node-a", f"{kind} {EMPTY}"),), "fail", "It is another ICMP error, and no rule sent it.",
            REJECTED, OF_EMPTY, (NO_RULE_REJECTED,), why=f"10.244.0.1 answered with ICMP {icmp}.",
        )
        for kind, icmp in (
            ("unreachable", "host unreachable (3/1)"),
            ("prohibit", "administratively prohibited (3/13)"),
        )
    ),
    *(
        Attack(
            f"the node holds the address of a Service without endpoints, and its stack answers over {port.upper()}",
            (Alteration("node-a", f"ip address add {EMPTY}/32 dev lo", f"ip address del {EMPTY}/32 dev lo"),),
            "fail", "The packet was for the node itself, and no rule rejected it.", REJECTED,
            Dialled(service="empty", port=port), (said,),
        )
        for port, said in (
            ("tcp", "outcome: client heard a reset from 10.96.1.2:80"),
            ("udp", NO_RULE_REJECTED),
        )
    ),
    Attack(
        "the node holds the Service's address",
        (Alteration("node-a", *HOLDS_THE_SERVICE),), "pass", "The engine translates before the routing decides.",
    ),
    *(
        Attack(
            f"another pod holds the endpoint's address, and answers with it, {name}",
            HELD_TWICE, "fail", "The tap of the other pod saw the request, and that of the endpoint saw none.",
            dialled=dialled, says=("outcome: client heard a reply from", "but no pod saw the request"),
        )
        for name, dialled in (
            ("over TCP", TCP),
            ("over UDP", UDP),
            ("to a crafted segment", Dialled(send={"as": "packet"})),
            ("to a crafted datagram", Dialled(port="udp", send={"as": "packet"})),
        )
    ),
    Attack(
        "another pod answers over UDP from its own address",
        HELD_TWICE, "fail", "A reply from an address that was not dialled is wrong.",
        dialled=UDP, says=("reply: the reply came from 10.244.1.11:8080, not from 10.96.1.1:80 that was dialled",),
    ),
    Attack(
        "another node resets the connection that the pod accepts",
        copied_to_node_c("tcp flags & (syn | ack) == syn", "tcp reset"),
        "fail", "No lab sends two answers, and the taps saw the copy to which the second one is due.",
        says=("outcome: it arrived at echo",),
    ),
    *(
        Attack(
            f"another node sends ICMP port unreachable for a datagram that the pod answers, {name}",
            copied_to_node_c("meta l4proto udp", "icmp port-unreachable"),
            "fail", "The sender heard both, and each was captured: no outcome allows the two.", dialled=dialled,
            says=("outcome: it arrived at echo, and client heard ICMP port unreachable from 10.96.1.1 and a reply",),
        )
        for name, dialled in (("to a socket", UDP), ("crafted", Dialled(port="udp", send={"as": "packet"})))
    ),
    Attack(
        "the router rejects what the engine should",
        (
            iptables("node-a", "filter", "FORWARD", f"-d {EMPTY} -j ACCEPT"),
            nft("router", "forward", -20, f"ip daddr {EMPTY} counter reject with icmp port-unreachable"),
        ),
        "fail", "The lab counts the rules of all nodes, and none rejected anything.", REJECTED, OF_EMPTY,
        ("an ICMP error came, but no rule of any node rejected anything; it was first seen at node-a/eth0",),
    ),
    Attack(
        "another node's ICMP error comes in place of that of the engine's rule",
        (
            nft("node-a", "output", 0, "icmp type destination-unreachable counter drop"),
            Alteration(
                "node-a",
                "nft 'table ip forgery { chain x { type filter hook prerouting priority -310; "
                f"ip daddr {EMPTY} dup to {NODES['node-c']} device eth0; "
                "icmp type destination-unreachable notrack; }; }'",
                "nft delete table ip forgery",
            ),
            nft("node-c", "prerouting", -150, f"ip daddr {EMPTY} counter reject with icmp port-unreachable"),
        ),
        "fail", "The taps saw the ICMP error leave another node than the one whose rule counted.", REJECTED, OF_EMPTY,
        ("a rule on node-a counted it as rejected, but the ICMP error was first seen at node-c/eth0",),
        never="node-a rejected the packet",
    ),
    *(
        Attack(
            f"a rule gives the engine's ICMP error {what}",
            (nft("node-a", "postrouting", 300, f"icmp type destination-unreachable counter ip saddr set {address}"),),
            "pass", "The taps saw it leave the node whose rule counted, and no Service promises its source.",
            REJECTED, OF_EMPTY,
        )
        for what, address in (("a pod's address", "10.244.0.11"), ("another node's address", NODES["node-c"]))
    ),
    Attack(
        "a host that holds the Service's address refuses it",
        (
            PAST_THE_ENGINE,
            Alteration("router", f"ip route add {VIP} via 203.0.113.10", f"ip route del {VIP}"),
            Alteration("outside", *HOLDS_THE_SERVICE),
        ),
        "fail", "The tap of the host saw the reset leave, and the host is no endpoint.", REFUSED, CLOSED,
        ("outcome: outside refused it, and is no endpoint that got it",),
    ),
    Attack(
        "a router that holds the Service's address refuses it",
        (PAST_THE_ENGINE, Alteration("router", *HOLDS_THE_SERVICE)),
        "fail", "The reset came in at a node, and neither a node nor a pod had sent it.", REFUSED, CLOSED,
        ("a machine beyond the nodes refused it: the reset was first seen coming in at node-a/eth0",),
    ),
    Attack(
        "a rule leads the connection to a closed port of the node",
        (iptables("node-a", "nat", "PREROUTING", f"-d {VIP} -p tcp --dport 81 -j REDIRECT --to-ports 9"),),
        "inconclusive", "The node refused it, and nothing shows where the engine's rules would have led it.",
        REFUSED, CLOSED, ("and may have led it to another closed port",),
    ),
    *(
        Attack(
            f"another node resets the connection with {what}",
            (nft("node-b", "forward", -20, f"ip daddr {ECHO} tcp flags & {flag} == {flag} reject with tcp reset"),),
            "fail", "The socket heard a reset, which no later packet takes back.", says=(said,),
        )
        for what, flag, said in (
            ("its data", "psh", "reply: the handshake was answered, the data was not: ECONNRESET"),
            ("its end", "fin", "outcome: it was answered, but its connection ended with ECONNRESET at client"),
        )
    ),
    Attack(
        "the endpoint's own rules drop the request",
        (nft("echo", "input", 0, "udp dport 8080 counter drop"),),
        "fail", "It arrived at the pod, and no tap saw an answer.", dialled=UDP,
        says=("reply: echo sent no reply to client",), why="echo got the request, and no tap saw it reply.",
    ),
    Attack(
        "the client's own rules drop the answer",
        (nft("client", "input", 0, "meta l4proto udp counter drop"),),
        "inconclusive", "The tap saw the answer and the socket did not: nothing in the evidence decides between them.",
        dialled=UDP, says=("the taps saw a reply, but the socket reports a timeout",),
    ),
]  # fmt: skip

OF_EMPTY_6 = Dialled(service="empty", to=IPV6)
OVER_IPV6 = [
    Attack(
        "the engine rejects over IPv6, and a rule drops the ICMP error",
        (nft("node-a", "output", 0, "icmpv6 type destination-unreachable counter drop", family="ip6"),),
        "fail", "The sender must hear an ICMP error, and it heard nothing.", REJECTED, OF_EMPTY_6,
        why="the ICMP error did not reach client", never="dropped the packet",
    ),
    Attack(
        "a route answers over IPv6 in place of the engine's rejection",
        (route("node-a", f"unreachable {EMPTY_6}"),), "fail", "It is another ICMP error, and no rule sent it.",
        REJECTED, OF_EMPTY_6, (NO_RULE_REJECTED,),
    ),
    *(
        Attack(
            f"the node holds the IPv6 address of a Service without endpoints, and answers over {port.upper()}",
            (Alteration("node-a", f"ip address add {EMPTY_6}/128 dev lo", f"ip address del {EMPTY_6}/128 dev lo"),),
            "fail", "The packet was for the node itself, and no rule rejected it.", REJECTED,
            Dialled(service="empty", port=port, to=IPV6), (said,),
        )
        for port, said in (
            ("tcp", f"outcome: client heard a reset from [{EMPTY_6}]:80"),
            ("udp", NO_RULE_REJECTED),
        )
    ),
    *(
        Attack(
            f"another node sends ICMP port unreachable over IPv6 for a datagram that the pod answers, {name}",
            (
                nft(
                    "node-b", "forward", -20,
                    f"ip6 daddr {ECHO_6} meta l4proto udp counter dup to {NODES_6['node-c']} device eth0", family="ip6",
                ),
                nft(
                    "node-c", "prerouting", -150,
                    f"ip6 daddr {ECHO_6} meta l4proto udp counter reject with icmpv6 port-unreachable", family="ip6",
                ),
            ),
            "fail", "The sender heard both, and each was captured: no outcome allows the two.",
            dialled=Dialled(port="udp", to=IPV6, send=send),
            says=("outcome: it arrived at echo, and client heard ICMP port unreachable from", "and a reply"),
        )
        for name, send in (("to a socket", {}), ("crafted", {"as": "packet"}))
    ),
    Attack(
        "the router rejects over IPv6 what the engine should",
        (
            iptables("node-a", "filter", "FORWARD", f"-d {EMPTY_6} -j ACCEPT", ipv6=True),
            nft(
                "router", "forward", -20, f"ip6 daddr {EMPTY_6} counter reject with icmpv6 port-unreachable",
                family="ip6",
            ),
        ),
        "fail", "The lab counts the rules of all nodes, and none rejected anything.", REJECTED, OF_EMPTY_6,
        ("an ICMP error came, but no rule of any node rejected anything; it was first seen at node-a/eth0",),
    ),
]  # fmt: skip


lab = lab_of_module("embedded/iptables")
test_an_answer_of_another_never_passes_for_the_due_one = each_of([*ATTACKS, *OVER_IPV6])
