"""Rules that do the engine's work, hide it or undo it: none passes for the engine's own, and none is blamed wrongly."""

from collections.abc import Iterator

import pytest
from attacked_lab import ECHO, EMPTY, LOCAL, OTHER, VIP, Attack, AttackedLab, Dialled, attacked, check, iptables, nft

DROPPED, REFUSED, REJECTED = (
    {"outcome": "dropped", "at": "node-a"},
    {"outcome": "refused"},
    {"outcome": "rejected", "at": "node-a"},
)
UNTRANSLATED = {"outcome": "untranslated"}
CLOSED, OF_EMPTY, OF_LOCAL = Dialled(port="closed"), Dialled(service="empty"), Dialled(service="local")
UDP = Dialled(port="udp")
NOT_THE_ENGINE = "Another rule did it first, so nothing shows what the engine's rules would have done."

ATTACKS = [
    Attack(
        "a rule in the engine's table drops what the engine drops",
        (iptables("node-a", "mangle", "PREROUTING", f"-d {LOCAL} -p tcp --dport 80 -j DROP"),),
        "inconclusive", NOT_THE_ENGINE, DROPPED, OF_LOCAL,
        (
            "-p tcp -m tcp --dport 80 -j DROP\" in chain PREROUTING of table mangle, which counted 1 packet",
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
]  # fmt: skip


@pytest.fixture(scope="module")
def lab() -> Iterator[AttackedLab]:
    with attacked("embedded/iptables") as found:
        yield found


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_a_rule_of_others_never_passes_for_the_engines(attack: Attack, lab: AttackedLab) -> None:
    check(lab.judged(attack), attack)
