"""Ways to the right pod, or to the due address, that pass for the engine's; and what IPv6 has otherwise."""

from attacked_lab import (
    ECHO,
    ECHO_6,
    EMPTY_6,
    IPV6,
    LOCAL,
    LOCAL_6,
    NODES_6,
    OF_LOCAL,
    TWIN,
    VIP,
    VIP_6,
    Alteration,
    Attack,
    Dialled,
    each_of,
    iptables,
    lab_of_module,
    nft,
    program,
    remembered,
    rewritten,
    route,
)

DROPPED, REJECTED = {"outcome": "dropped", "at": "node-a"}, {"outcome": "rejected", "at": "node-a"}
MASQUERADED = {"outcome": "delivered", "backends": ["echo"], "source": "masqueraded"}
NOT_THE_ENGINE = "Another rule did it first, so nothing shows what the engine's rules would have done."
OF_LOCAL_6, OF_EMPTY_6 = (Dialled(service=service, to=IPV6) for service in ("local", "empty"))
FROM_OUTSIDE_6 = Dialled(sender="outside", to={"via": "nodePort", "node": "node-a", **IPV6})
NARROW = Alteration("node-a", "ip link set eth0 mtu 1300", "ip link set eth0 mtu 1500")
ICMP_LOST = nft("node-a", "output", 0, "icmpv6 type { destination-unreachable, packet-too-big } drop", family="ip6")
ASIDE = f"to {ECHO_6} ipproto tcp dport 8080 blackhole"
STALE = Alteration(
    "node-a",
    f"ip -6 neigh replace {NODES_6['node-b']} dev eth0 lladdr 02:00:00:00:00:77 nud permanent",
    f"ip -6 neigh del {NODES_6['node-b']} dev eth0",
)
SECOND_ADDRESS = Alteration(
    "node-a", "ip address add fd00:172:18::22/64 dev eth0 nodad", "ip address del fd00:172:18::22/64 dev eth0"
)
SOLICITS = program(
    "node-a",
    f"again = 'ip -6 neigh replace {NODES_6['node-b']} dev eth0 nud probe'",
    "while True:\n os.system(again); os.sched_yield()",
)
REPORTS_GROUPS = program(
    "node-a",
    "sock, group = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM), socket.inet_pton(socket.AF_INET6, 'ff05::77')\n"
    "membership = group + struct.pack('@I', socket.if_nametoindex('eth0'))",
    "while True:\n for change in (socket.IPV6_JOIN_GROUP, socket.IPV6_LEAVE_GROUP):\n"
    "  sock.setsockopt(socket.IPPROTO_IPV6, change, membership)\n os.sched_yield()",
)


def in_chain(name: str, table: str, hook: str, rule: str) -> tuple[Alteration, ...]:
    """A rule in a chain of its own."""
    tool = f"iptables -w -t {table}"
    return (
        Alteration("node-a", f"{tool} -N {name}; {tool} -A {name} {rule}", f"{tool} -F {name}; {tool} -X {name}"),
        iptables("node-a", table, hook, f"-j {name}"),
    )


ATTACKS = [
    Attack(
        "another node's engine translates what a rule keeps from that of the first",
        (iptables("node-a", "nat", "PREROUTING", f"-d {VIP} -j ACCEPT"), route("node-a", f"{VIP} via 172.18.0.3")),
        "inconclusive", NOT_THE_ENGINE, says=("and may have kept it from the engine's rules",),
    ),
    *(
        Attack(
            f"rules lead to another Service with the same endpoint and back, over {port.upper()}",
            rewritten(TWIN), "inconclusive", NOT_THE_ENGINE, dialled=Dialled(port=port),
            says=(f"the Service's DNAT rules to {ECHO}:8080 counted 0 of 1 flow it got; node-a has the rule",),
        )
        for port in ("tcp", "udp")
    ),
    Attack(
        "a rule translates to the right pod in a chain whose name begins as the engine's do",
        in_chain("KUBE-EVIL", "nat", "PREROUTING", f"-d {VIP} -p tcp --dport 80 -j DNAT --to-destination {ECHO}:8080"),
        "inconclusive", NOT_THE_ENGINE, says=("in chain KUBE-EVIL of table nat, which belongs to no engine",),
    ),
    Attack(
        "a rule drops what the engine drops in a chain whose name begins as the engine's do",
        in_chain("KUBE-EVIL", "filter", "FORWARD", f"-d {LOCAL} -j DROP"),
        "inconclusive", NOT_THE_ENGINE, DROPPED, OF_LOCAL, ("in chain KUBE-EVIL of table filter",),
    ),
    *(
        Attack(
            f"connection tracking in another zone on the way there alone over {port.upper()}",
            (iptables("node-a", "raw", "PREROUTING", f"-d {VIP} -j CT --zone 7"),),
            "fail", "To the other zone the reply is the beginning of a flow.", dialled=Dialled(port=port), why=why,
        )
        for port, why in (
            ("tcp", "the taps saw the reply last at node-a/eth0, which dropped 1 packet by its rule in KUBE-FORWARD"),
            ("udp", "nothing translated the reply back: client heard echo's own address"),
        )
    ),
    *(
        Attack(
            f"a rule sets the engine's mark by {how}, where the author expects masquerading",
            rules, "inconclusive", "No rule of the engine marked the packet.", MASQUERADED,
            says=("and may have marked it in place of the engine's rules",),
        )
        for how, rules in (
            ("MARK", (iptables("node-a", "mangle", "PREROUTING", f"-d {VIP} -j MARK --set-mark 0x4000"),)),
            (
                "CONNMARK",
                (
                    iptables("node-a", "mangle", "PREROUTING", f"-d {VIP} -j CONNMARK --restore-mark"),
                    iptables("node-a", "mangle", "PREROUTING", f"-d {VIP} -j CONNMARK --set-mark 0x4000"),
                ),
            ),
        )
    ),
    Attack(
        "an old entry of connection tracking leaves a flow as it was sent",
        remembered(f"{VIP}:80", 40002),
        "inconclusive", "The kernel asks no rule about a flow that it knows.", {"outcome": "untranslated"},
        Dialled(sender={"name": "client", "port": 40002}, port="udp"),
        ("outcome: conntrack on node-a knew it before, and the kernel asks no rule about a flow that it knows",),
    ),
]  # fmt: skip

LISTENS = "listener = socket.create_server(('', 80))\n"
ANSWERS = (
    "while True:\n connection, _ = listener.accept(); connection.recv(4096)\n"
    " connection.sendall(b'HTTP/1.1 200 OK\\r\\nContent-Length: 0\\r\\n\\r\\n'); connection.close()"
)
HTTP = {"http": {"status": 200}}
COUNTED_NONE = f"DNAT rules to {ECHO}:8080 counted 0 of 1 flow it got; node-a has the rule"
TO_ECHO = f"-p tcp --dport 80 -j DNAT --to-destination {ECHO}:8080"
BY_HTTP = [
    Attack(
        "a rule in the engine's table translates to the right pod",
        (iptables("node-a", "nat", "PREROUTING", f"-d {VIP} {TO_ECHO}"),),
        "inconclusive", NOT_THE_ENGINE, HTTP, says=(COUNTED_NONE,),
    ),
    Attack(
        "a rule of nftables without a counter translates to the right pod",
        (nft("node-a", "prerouting", -150, f"ip daddr {VIP} tcp dport 80 dnat to {ECHO}:8080", "nat"),),
        "inconclusive", NOT_THE_ENGINE, HTTP, says=(COUNTED_NONE,),
    ),
    Attack(
        "routes lead to a pod that has the Service's address, and rules exempt it from connection tracking",
        (
            *(
                iptables(node, "raw", "PREROUTING", f"{way} {VIP} -j CT --notrack")
                for node in ("node-a", "node-b")
                for way in ("-d", "-s")
            ),
            route("node-a", f"{VIP} via 172.18.0.3"),
            route("node-b", f"{VIP} via {ECHO}"),
            Alteration("echo", f"ip address add {VIP} dev lo", f"ip address del {VIP} dev lo"),
            program("echo", LISTENS, ANSWERS),
        ),
        "fail", "No endpoint got it under an address of its own.", HTTP,
        says=(f"outcome: client heard a reply from {VIP}:80, but no pod saw the request",),
    ),
    Attack(
        "a pod dials a pod, and a rule translates that to the same pod",
        (iptables("node-a", "nat", "PREROUTING", f"-d {ECHO} -p tcp -j DNAT --to-destination {ECHO}:8081"),),
        "pass", "This asks nothing of the engine.", HTTP, Dialled(to={"pod": "echo", "port": 8081}),
    ),
    Attack(
        "a rule of others counts the request and leads it nowhere else",
        (nft("node-a", "prerouting", -150, f"ip daddr {VIP} counter accept"),),
        "pass", "The engine's rule counted it.", HTTP,
    ),
]  # fmt: skip

OVER_IPV6 = [
    *(
        Attack(
            f"a rule gives the request {what}",
            (SECOND_ADDRESS, iptables("node-a", "nat", "POSTROUTING", f"-s 2001:db8:113::/64 {to}", ipv6=True)),
            judged, right, MASQUERADED, FROM_OUTSIDE_6, (said,),
        )
        for what, to, judged, right, said in (
            (
                "the node's second address", "-j SNAT --to-source fd00:172:18::22",
                "fail", "The pod saw another source than that of the device to node-b.",
                "source: echo saw it come from fd00:172:18::22, not from fd00:172:18::2",
            ),
            (
                "the due address", "-j SNAT --to-source fd00:172:18::2", "inconclusive", NOT_THE_ENGINE,
                "and may have changed the source in place of the engine's rules",
            ),
        )
    ),
    Attack(
        "a rule drops what the engine drops",
        (iptables("node-a", "raw", "PREROUTING", f"-d {LOCAL_6} -j DROP", ipv6=True),),
        "inconclusive", NOT_THE_ENGINE, DROPPED, OF_LOCAL_6, ("of table raw, which counted 1 packet",),
    ),
    *(
        Attack(
            f"a rule for IPv4 alone drops every packet, and a route drops the request{beside}",
            (
                iptables("node-b", "raw", "PREROUTING", "-p tcp -j DROP"),
                Alteration("node-b", f"ip -6 rule add {ASIDE}", f"ip -6 rule del {ASIDE}"),
                *noise,
            ),
            "fail", "No rule for IPv4 sees the packet.", dialled=Dialled(to=IPV6),
            why="node-b dropped the packet by its routing",
        )
        for beside, noise in (
            ("", ()),
            (", beside neighbour solicitations", (SOLICITS,)),
            (", beside multicast reports", (REPORTS_GROUPS,)),
        )
    ),
    Attack(
        "a rule sets the engine's mark, where the author expects masquerading",
        (iptables("node-a", "mangle", "PREROUTING", f"-d {VIP_6} -j MARK --set-mark 0x4000", ipv6=True),),
        "inconclusive", "No rule of the engine marked the packet.", MASQUERADED, Dialled(to=IPV6),
        ("and may have marked it in place of the engine's rules",),
    ),
    Attack(
        "a narrow way that keeps it to itself",
        (NARROW, ICMP_LOST), "fail", "The stack counted that the packet was too big.",
        dialled=Dialled(port="udp", to=IPV6, send={"payload": 1400, "as": "packet"}),
        why="larger than the next link's MTU: Ip6InTooBigErrors counted 1 packet",
    ),
    Attack(
        "a neighbour entry that no machine has",
        (STALE,), "inconclusive", "The sentinel packets are lost on the same way.", dialled=Dialled(to=IPV6),
        says=("no sentinel packet came back from echo or other",),
    ),
    *(
        Attack(
            f"a route of kind {kind} answers in place of the engine's rejection",
            (route("node-a", f"{kind} {EMPTY_6}"),), "fail", "It is another ICMP error, and no rule sent it.",
            REJECTED, OF_EMPTY_6, ("outcome: an ICMP error came, but no rule of any node rejected anything",),
            why=f"fd00:10:244::1 answered with ICMP {icmp}.",
        )
        for kind, icmp in (("unreachable", "no route (1/0)"), ("prohibit", "administratively prohibited (1/1)"))
    ),
    Attack(
        "a route drops what the engine drops",
        (route("node-a", f"blackhole {LOCAL_6}"),), "inconclusive", NOT_THE_ENGINE, DROPPED, OF_LOCAL_6,
        ("no rule of the engine did, and no address shows why",),
    ),
    Attack(
        "the engine rejects, and a rule drops the ICMP error",
        (ICMP_LOST,), "fail", "The sender must hear an ICMP error, and it heard nothing.", REJECTED, OF_EMPTY_6,
        why="in KUBE-SERVICES, and the ICMP error did not reach client", never="dropped the packet",
    ),
]  # fmt: skip


lab = lab_of_module("embedded/iptables")
test_another_way_to_the_pod_never_passes_for_the_engines = each_of(ATTACKS)
test_an_answer_by_http_shows_the_engines_work = each_of(BY_HTTP)
test_an_attack_over_ipv6 = each_of(OVER_IPV6)
