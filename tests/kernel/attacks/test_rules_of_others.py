"""Rules that do the engine's work, hide it or undo it: none passes for the engine's own, and none is blamed wrongly."""

from attacked_lab import (
    CLIENT,
    CLOSED,
    ECHO,
    EMPTY,
    FROM_OUTSIDE,
    LOCAL,
    OF_EMPTY,
    OF_LOCAL,
    OTHER,
    VIP,
    Alteration,
    Attack,
    Dialled,
    each_of,
    iptables,
    lab_of_module,
    nft,
)

DROPPED, REFUSED, REJECTED = (
    {"outcome": "dropped", "at": "node-a"},
    {"outcome": "refused"},
    {"outcome": "rejected", "at": "node-a"},
)
ONE, THOUSAND = "numgen inc mod 1000 777 counter", Dialled(port="udp", send={"as": "packet", "flows": 1000})
ONE_OF_MANY = "numgen inc mod 10000 7777 counter"
TEN_THOUSAND = Dialled(port="udp", send={"as": "packet", "flows": 10000})
SECOND_ADDRESS = Alteration(
    "node-a", "ip address add 172.18.0.22/16 dev eth0", "ip address del 172.18.0.22/16 dev eth0"
)
OUTSIDE = "-s 203.0.113.10"
SHUT = Alteration("node-a", "iptables -w -P FORWARD DROP", "iptables -w -P FORWARD ACCEPT")
BLOCKED = f"dir fwd dst {LOCAL}"
UNTRANSLATED = {"outcome": "untranslated"}
MASQUERADED = {"outcome": "delivered", "backends": ["echo"], "source": "masqueraded"}
NOT_THE_ENGINE = "Another rule did it first, so nothing shows what the engine's rules would have done."


def second_engine(pod: str) -> Alteration:
    """The table of mode nftables, as another kube-proxy leaves it behind."""
    rule = f"ip daddr {VIP} tcp dport 80 dnat to {pod}:8080"
    chain = f"chain services {{ type nat hook prerouting priority -110; {rule}; }}"
    return Alteration("node-a", f"nft 'table ip kube-proxy {{ {chain}; }}'", "nft delete table ip kube-proxy")


ATTACKS = [
    Attack(
        "a rule in the engine's table drops what the engine drops",
        (iptables("node-a", "mangle", "PREROUTING", f"-d {LOCAL} -p tcp --dport 80 -j DROP"),),
        "inconclusive", NOT_THE_ENGINE, DROPPED, OF_LOCAL,
        (
            "-p tcp -m tcp --dport 80 -j DROP\" in chain PREROUTING of table mangle, which counted",
            "which belongs to no engine, and may have dropped it before the engine's rules saw it",
        ),
    ),
    Attack(
        "a rule in the table raw drops what the engine drops",
        (iptables("node-a", "raw", "PREROUTING", f"-d {LOCAL} -p tcp --dport 80 -j DROP"),),
        "inconclusive", NOT_THE_ENGINE, DROPPED, OF_LOCAL, ("of table raw, which counted 1 packet",),
    ),
    Attack(
        "a rule behind the engine's drops nothing more",
        (iptables("node-a", "filter", "FORWARD", f"-d {LOCAL} -p tcp --dport 80 -j DROP", "-A"),),
        "pass", "The engine's rule counted the packet, so it ended there.", DROPPED, OF_LOCAL,
    ),
    Attack(
        "a rule in the engine's table rejects what the engine rejects",
        (iptables("node-a", "filter", "FORWARD", f"-d {EMPTY} -p tcp --dport 80 -j REJECT"),),
        "inconclusive", NOT_THE_ENGINE, REJECTED, OF_EMPTY, ("an ICMP error came, but no rule counted it as rejected",),
    ),
    Attack(
        "a rule drops what the engine rejects",
        (iptables("node-a", "filter", "FORWARD", f"-d {EMPTY} -j DROP"),),
        "fail", "The sender must hear an ICMP error, and the sentinel packets prove that none will come.",
        REJECTED, OF_EMPTY, why=(
            "node-a dropped the packet by the rule \"-A FORWARD -d 10.96.1.2/32 -j DROP\" in chain FORWARD of table "
            "filter, which belongs to no engine and counted 1 packet"
        ),
    ),
    Attack(
        "a rule in the engine's table translates to the right pod",
        (iptables("node-a", "nat", "PREROUTING", f"-d {VIP} -p tcp --dport 80 -j DNAT --to-destination {ECHO}:8080"),),
        "inconclusive", NOT_THE_ENGINE, says=(
            f"DNAT rules to {ECHO}:8080 counted 0 of 1 flow it got; node-a has the rule \"-A PREROUTING -d {VIP}/32",
        ),
    ),
    Attack(
        "a rule in the engine's table translates to another port on which the pod listens",
        (iptables("node-a", "nat", "PREROUTING", f"-d {VIP} -p tcp --dport 80 -j DNAT --to-destination {ECHO}:8081"),),
        "fail", "The pod answers there, too, and the Service's target port is another.",
        says=("endpoint: it arrived at port 8081 of echo, not at port 8080",),
    ),
    Attack(
        "a rule of nftables translates to the right pod",
        (nft("node-a", "prerouting", -150, f"ip daddr {VIP} tcp dport 80 counter dnat to {ECHO}:8080", "nat"),),
        "inconclusive", NOT_THE_ENGINE, says=("counted 0 of 1 flow it got; node-a has the rule \"ip daddr 10.96.1.1",),
    ),
    Attack(
        "a rule of nftables translates to the right pod, behind the engine's",
        (nft("node-a", "prerouting", -90, f"ip daddr {VIP} tcp dport 80 counter dnat to {OTHER}:8080", "nat"),),
        "pass", "The kernel translates a flow's destination once, and the engine's rule counted it.",
    ),
    Attack(
        "a rule in the table raw exempts the Service from connection tracking",
        (iptables("node-a", "raw", "PREROUTING", f"-d {VIP} -j CT --notrack"),),
        "inconclusive", NOT_THE_ENGINE, UNTRANSLATED, says=("-j CT --notrack\" in chain PREROUTING",),
    ),
    Attack(
        "a rule of nftables exempts the Service from connection tracking",
        (nft("node-a", "prerouting", -300, f"ip daddr {VIP} counter notrack"),),
        "inconclusive", NOT_THE_ENGINE, UNTRANSLATED,
        says=("and may have kept it from the engine's rules",),
    ),
    Attack(
        "what is exempted from connection tracking is not translated",
        (iptables("node-a", "raw", "PREROUTING", f"-d {VIP} -j CT --notrack"),),
        "fail", "The taps saw it leave node-a as it was sent, and no pod got it.",
        # The engine drops invalid packets; what it drops here is the router's ICMP error, as often as the probe.
        why="no rule translated the packet", never="ct_state_invalid",
    ),
    *(
        Attack(
            f"{verdict} ends the engine's table nat early",
            (iptables("node-a", "nat", "PREROUTING", f"-d {VIP} -j {verdict}"),),
            "inconclusive", NOT_THE_ENGINE, UNTRANSLATED,
            says=(f"-j {verdict}\" in chain PREROUTING of table nat, which counted 1 packet",),
        )
        for verdict in ("ACCEPT", "RETURN")
    ),
    *(
        Attack(
            f"connection tracking in another zone over {port.upper()}",
            tuple(iptables("node-a", "raw", chain, "-j CT --zone 7") for chain in ("PREROUTING", "OUTPUT")),
            "pass", "Each hop saw the packet: node-a translated it by the engine's rule, and the reply back.",
            dialled=Dialled(port=port),
        )
        for port in ("tcp", "udp")
    ),
    Attack(
        "a queue without a program swallows what the engine drops",
        (iptables("node-a", "mangle", "PREROUTING", f"-d {LOCAL} -j NFQUEUE --queue-num 5"),),
        "inconclusive", NOT_THE_ENGINE, DROPPED, OF_LOCAL, ("-j NFQUEUE --queue-num 5\" in chain PREROUTING",),
        never="by its routing",
    ),
    Attack(
        "a queue without a program swallows a request",
        (iptables("node-a", "mangle", "PREROUTING", f"-d {VIP} -j NFQUEUE --queue-num 5"),),
        "fail", "The sentinel packets came back, so the packet will not arrive.",
        why="-j NFQUEUE --queue-num 5\" in chain PREROUTING of table mangle, which counted 1 packet",
        never="by its routing",
    ),
    Attack(
        "a rule leads to nowhere what the engine drops",
        (nft("node-a", "prerouting", -150, f"ip daddr {LOCAL} counter ip daddr set 203.0.113.9"),),
        "inconclusive", NOT_THE_ENGINE, DROPPED, OF_LOCAL,
        ("ip daddr set 203.0.113.9\" in chain x", "and may have led it there"),
    ),
    *(
        Attack(
            f"a rule on {node} resets what a closed port refuses",
            (nft(node, hook, priority, f"tcp dport {port} counter reject with tcp reset"),),
            "inconclusive", "A reset of a rule looks like the stack's, and no tap saw the pod send one.",
            REFUSED, CLOSED, ("counter reject with tcp reset\"", "and may have reset it in place of a closed port"),
        )
        for node, hook, priority, port in (("node-a", "prerouting", -150, 81), ("node-b", "forward", -10, 9999))
    ),
    Attack(
        "a rule resets what a closed port of the pod refuses, and the author names the pod",
        (iptables("node-b", "filter", "FORWARD", "-p tcp --dport 9999 -j REJECT --reject-with tcp-reset"),),
        "fail", "The taps saw the reset leave node-b, and the pod got nothing.", {**REFUSED, "at": "echo"}, CLOSED,
        ("at: the reset was first seen at node-b/eth0",),
    ),
    Attack(
        "a rule that could reset does not",
        (nft("node-b", "forward", -10, "tcp dport 9999 ip ttl 1 counter reject with tcp reset"),),
        "pass", "Its counter stood still, and the tap at the pod saw the reset leave.", REFUSED, CLOSED,
    ),
    *(
        Attack(
            f"a rule in the hook ingress drops what the engine drops, {'counted' if counter else 'uncounted'}",
            (nft("node-a", "ingress device client", 0, f"ip daddr {LOCAL} {counter}drop", family="netdev"),),
            "inconclusive", NOT_THE_ENGINE, DROPPED, OF_LOCAL, ("(hook ingress, priority 0) of table netdev attack",),
        )
        for counter in ("", "counter ")
    ),
    *(
        Attack(
            f"a rule in the table {table} of {node} drops the request",
            (iptables(node, table, chain, f"-d {ECHO} -p tcp --dport 8080 -j DROP"),),
            "fail", "The rule counted the packet.", never="by its routing",
            why=f"{node} dropped the packet by the rule \"-A {chain} -d {ECHO}/32",
        )
        for node, table, chain in (("node-a", "mangle", "POSTROUTING"), ("node-b", "security", "FORWARD"))
    ),
    Attack(
        "a rule makes the request a frame for another machine",
        (nft("node-a", "prerouting", -150, f"ip daddr {VIP} counter meta pkttype set other"),),
        "fail", "The stack drops such a frame, and the sentinel packets came back.",
        why="counter meta pkttype set other\" in chain x", never="by its routing",
    ),
    Attack(
        "a rule sends a copy of what it drops to another node, whose engine drops that",
        (nft("node-a", "prerouting", -310, f"ip daddr {LOCAL} dup to 172.18.0.4 device eth0 counter drop"),),
        "inconclusive", NOT_THE_ENGINE, {"outcome": "dropped"}, OF_LOCAL,
        ("and may have kept it from the engine's rules",),
    ),
    Attack(
        "a policy of IPsec blocks what the engine drops",
        (Alteration("node-a", f"ip xfrm policy add {BLOCKED} action block", f"ip xfrm policy del {BLOCKED}"),),
        "inconclusive", NOT_THE_ENGINE, DROPPED, OF_LOCAL,
        ("node-a dropped the packet by its IPsec policy on the way in or through: XfrmInPolBlock counted 1 packet",),
        never="by its routing",
    ),
    Attack(
        "a route drops what the engine drops",
        (Alteration("node-a", f"ip route add blackhole {LOCAL}", f"ip route del blackhole {LOCAL}"),),
        "inconclusive", NOT_THE_ENGINE, DROPPED, OF_LOCAL, ("no rule of the engine did, and no address shows why",),
    ),
    Attack(
        "an administrator resets all counters before the probe",
        (Alteration("node-a", "iptables -w -Z", "true"),),
        "pass", "The lab reads the counters before and after the probe, and each rule's own moved.", DROPPED, OF_LOCAL,
    ),
    Attack(
        "an accepting rule before the engine's rejection",
        (iptables("node-a", "filter", "FORWARD", "-j ACCEPT"),),
        "fail", "The packet went on, and the router sent it back until its TTL ended.", REJECTED, OF_EMPTY,
        ("outcome: client heard ICMP time to live exceeded (11/0) from 172.18.0.1",),
    ),
    Attack(
        "a policy that drops, and an accepting rule that is too wide",
        (
            SHUT,
            iptables("node-a", "filter", "FORWARD", "-j ACCEPT"),
        ),
        "pass", "The request was translated by the engine's rule, and arrived: who let it pass is no question of it.",
    ),
    Attack(
        "the policy of FORWARD drops what the engine does not accept",
        (SHUT,),
        "fail", "An unmarked packet of a new connection has no accepting rule, and the policy counted it.",
        # The policy also counts what earlier connections send again.
        why="node-a dropped the packet by the policy of FORWARD, which counted ",
    ),
    *(
        Attack(f"the policy of FORWARD drops {what}", (SHUT,), judged, right, DROPPED, dialled, says)
        for what, judged, right, dialled, says in (
            (
                "the sentinel packets, and the engine's rule the packet", "pass",
                "The rule's counter accounts for the packet, so it is not late.", OF_LOCAL, (),
            ),
            (
                "what goes to a pod", "pass", "The policy counted the packet and the lost sentinel packets.",
                Dialled(to={"pod": "echo", "port": 8080}, port="udp"), (),
            ),
            (
                "what the author expects to be dropped for a Service", "inconclusive",
                "No engine sets a policy.", Dialled(), ("and may have dropped it before the engine's rules saw it",),
            ),
        )
    ),
    Attack(
        "the engine drops a node's own datagram, and its socket hears so",
        (), "pass", "The rule counted it, and the kernel refused to send it.", DROPPED,
        Dialled(sender="node-a", service="local", port="udp"),
    ),
    Attack(
        "another engine's table translates to the right pod",
        (second_engine(ECHO),),
        "inconclusive", NOT_THE_ENGINE, says=("of table ip kube-proxy, which belongs to no engine",),
    ),
    Attack(
        "another engine's table translates to another pod",
        (second_engine(OTHER),),
        "fail", "The tap of the wrong pod saw the request.", says=("backends: the request reached other",),
        why=f"node-a sent the flow to other ({OTHER}:8080) perhaps by the rule", never="by an older entry",
    ),
    Attack(
        "one flow of a thousand is led to another pod before the engine's rules",
        (nft("node-a", "prerouting", -150, f"ip daddr {VIP} udp dport 80 {ONE} dnat to {OTHER}:8080", "nat"),),
        "fail", "The tap of the wrong pod saw that one.", dialled=THOUSAND,
        says=("backends: 1 of 1,000 flows: the request reached other",),
        why=f"node-a sent the flow to other ({OTHER}:8080) by the rule", never="by an older entry",
    ),
    Attack(
        "one flow of ten thousand is led to another port of the pod",
        (nft("node-a", "prerouting", -150, f"ip daddr {VIP} udp dport 80 {ONE_OF_MANY} dnat to {ECHO}:8081", "nat"),),
        "fail", "The tap of the pod saw that one.", dialled=TEN_THOUSAND,
        says=("endpoint: 1 of 10,000 flows: it arrived at port 8081 of echo",),
    ),
    Attack(
        "one flow of a thousand is dropped",
        (nft("node-a", "forward", -150, f"ip daddr {ECHO} udp dport 8080 {ONE} drop"),),
        "fail", "The sentinel packets came back, and the tap of the pod missed one.",
        dialled=THOUSAND,
        says=("outcome: 1 of 1,000 flows: no tap saw it behind node-a/client",),
    ),
    Attack(
        "a rule drops the reply that the author expects to be lost",
        (nft("node-a", "postrouting", 300, f"ip saddr {VIP} counter drop"),),
        "inconclusive", NOT_THE_ENGINE,
        {"outcome": "delivered", "reply": "lost", "source": "preserved"}, Dialled(port="udp", send={"as": "packet"}),
        ("and may have dropped the answer",),
    ),
    *(
        Attack(
            f"a rule masquerades what the engine masquerades, by {how}",
            (iptables("node-a", "nat", "POSTROUTING", f"-s 203.0.113.10 -j {how}"),),
            "inconclusive", NOT_THE_ENGINE, MASQUERADED, FROM_OUTSIDE,
            (f"source: node-a has the rule \"-A POSTROUTING -s 203.0.113.10/32 -j {how}",),
        )
        for how in ("SNAT --to-source 172.18.0.2", "MASQUERADE --random")
    ),
    *(
        Attack(
            f"a rule gives the request {what}",
            (SECOND_ADDRESS, iptables("node-a", "nat", "POSTROUTING", f"{OUTSIDE} -j SNAT --to-source {address}")),
            "fail", "The pod saw another source than that of the device to node-b.", MASQUERADED, FROM_OUTSIDE,
            (f"source: echo saw it come from {address}, not from 172.18.0.2",),
            f"node-a changed the packet's source to {address} by the rule \"-A POSTROUTING",
            never="because of its rule",
        )
        for what, address in (("the node's second address", "172.18.0.22"), ("the gateway's address", "10.244.0.1"))
    ),
    Attack(
        "a rule gives the request an address without a holder",
        (iptables("node-a", "nat", "POSTROUTING", "-s 203.0.113.10 -j SNAT --to-source 172.18.0.22"),),
        # The rule also counts the lab's sentinel packets.
        "fail", "The pod saw it, and its answer found no way back.", MASQUERADED, FROM_OUTSIDE,
        ("source: echo saw it come from 172.18.0.22, not from 172.18.0.2",), never="packets for 1 flow",
    ),
    *(
        Attack(
            f"a rule sets the engine's mark, in {tool}",
            (rule,),
            "fail", "The engine's rules masquerade what has their mark, and the pod saw the node.",
            says=("source: echo saw it come from 172.18.0.2",), why="and no rule of the engine marked it: node-a has",
        )
        for tool, rule in (
            ("iptables", iptables("node-a", "mangle", "PREROUTING", f"-d {VIP} -j MARK --set-mark 0x4000")),
            ("nftables", nft("node-a", "prerouting", -150, f"ip daddr {VIP} counter meta mark set 0x4000")),
        )
    ),
    Attack(
        "another node rewrites the source port and keeps the address",
        (nft("node-b", "postrouting", 50, f"ip daddr {ECHO} meta l4proto tcp snat to {CLIENT}:61000", "nat"),),
        "fail", "No Service asks a second node to translate a packet.", says=("outcome: it was translated twice",),
        why="and node-b translated that to 10.244.0.10:61000",
    ),
    Attack(
        "a hairpin keeps the pod's own source",
        (iptables("node-b", "nat", "POSTROUTING", f"-s {ECHO} -d {ECHO} -j ACCEPT"),),
        "fail", "The pod's stack drops a packet from its own address.", MASQUERADED, Dialled(sender="echo"),
        (f"source: echo saw it come from {ECHO}, not from 10.244.1.1",),
        "echo got the request from its own address and did not reply: nothing masqueraded it",
    ),
]  # fmt: skip


lab = lab_of_module("embedded/iptables")
test_a_rule_of_others_never_passes_for_the_engines = each_of(ATTACKS)
