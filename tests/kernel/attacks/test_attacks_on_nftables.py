"""The attacks that modes nftables and ipvs meet otherwise, since other rules are foreign there; and those over IPv6."""

import pytest
from altered_data import altered_connection, altered_datagrams
from attacked_lab import (
    ECHO,
    EMPTY,
    LOCAL,
    OF_EMPTY,
    OF_LOCAL,
    OTHER,
    TWIN,
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
    remembered,
    rewritten,
)

MASQUERADED = {"outcome": "delivered", "backends": ["echo"], "source": "masqueraded"}
DROPPED, REJECTED = {"outcome": "dropped", "at": "node-a"}, {"outcome": "rejected", "at": "node-a"}
FROM_ONE_PORT, FROM_ANOTHER = (Dialled(sender={"name": "client", "port": port}, port="udp") for port in (40000, 40001))
IPV6 = {"family": "IPv6"}
ECHO_6 = "fd00:10:244:1::a"

ATTACKS = [
    Attack(
        "a rule of iptables drops what the engine drops",
        (iptables("node-a", "raw", "PREROUTING", f"-d {LOCAL} -j DROP"),),
        "inconclusive", "The engine's rules never met the packet.", DROPPED, OF_LOCAL, ("of table raw, which counted",),
    ),
    Attack(
        "a rule of iptables rejects what the engine rejects",
        (iptables("node-a", "mangle", "PREROUTING", f"-d {EMPTY} -j DROP"),),
        "fail", "The sender must hear an ICMP error.", REJECTED, OF_EMPTY,
        why="belongs to no engine and counted 1 packet",
    ),
    Attack(
        "a rule of iptables translates to the right pod",
        (nft("node-a", "prerouting", -150, f"ip daddr {VIP} tcp dport 80 dnat to {ECHO}:8080", "nat"),),
        "inconclusive", "The engine's rules never met the packet.", says=("counted 0 of 1 flow it got; node-a has",),
    ),
    Attack(
        "rules lead to another Service with the same endpoint and back",
        rewritten(TWIN), "inconclusive", "The Service's rules never met the packet.", dialled=UDP,
        says=(f"the Service's DNAT rules to {ECHO}:8080 counted 0 of 1 flow it got; node-a has",),
    ),
    Attack(
        "a table of another family has the name of the engine's",
        (
            Alteration(
                "node-a",
                "nft 'table inet kube-proxy { chain x { type nat hook prerouting priority -150; "
                f"ip daddr {VIP} tcp dport 80 counter dnat ip to {ECHO}:8080; }}; }}'",
                "nft delete table inet kube-proxy",
            ),
        ),
        "inconclusive", "The engine's rules never met the packet.", says=("of table inet kube-proxy, which",),
    ),
    Attack(
        "a rule in the engine's first chain translates before its chain of the Service does",
        (
            Alteration(
                "node-a",
                f"nft insert rule ip kube-proxy services ip daddr {VIP} tcp dport 80 counter dnat to {ECHO}:8080",
                "nft delete rule ip kube-proxy services handle "
                "$(nft -a list chain ip kube-proxy services | sed -n 's/.*dnat to.*handle //p')",
            ),
        ),
        "inconclusive", "The engine's rules for the Service never met the packet.",
        says=(f"the Service's DNAT rules to {ECHO}:8080 counted 0 of 1 flow it got",),
    ),
    Attack(
        "a rule sets the engine's mark, where the author expects masquerading",
        (nft("node-a", "prerouting", -150, f"ip daddr {VIP} counter meta mark set 0x4000"),),
        "inconclusive", "No rule of the engine marked the packet.", MASQUERADED,
        says=("and may have marked it in place of the engine's rules",),
    ),
    Attack(
        "a rule leads to another pod over IPv6",
        (nft("node-b", "prerouting", -150, f"tcp dport 8080 counter dnat to [{ECHO_6}]:8081", "nat", "ip6"),),
        "fail", "Two nodes translated it, and the tap saw the wrong port.", dialled=Dialled(to=IPV6),
        says=("endpoint: it arrived at port 8081 of echo",), why="the packet was translated twice",
    ),
    Attack(
        "a hop limit that runs out over IPv6",
        (nft("node-b", "prerouting", -10, "tcp dport 8080 counter ip6 hoplimit set 1", family="ip6"),),
        "fail", "node-b said so by ICMP.", dialled=Dialled(to=IPV6),
        why="node-b answered the packet with ICMP hop limit exceeded (3/0).",
    ),
    Attack(
        "an old entry of connection tracking leads to another pod",
        remembered(f"{OTHER}:8080", 40000),
        "fail", "The tap of the wrong pod saw the request.", dialled=FROM_ONE_PORT,
        says=("backends: the request reached other",), why="by an older entry: no DNAT rule to that address counted it",
    ),
    Attack(
        "an old entry of connection tracking leads to the right pod",
        remembered(f"{ECHO}:8080", 40001),
        "inconclusive", "The kernel asks no rule about a flow that it knows.", dialled=FROM_ANOTHER,
        says=(f"DNAT rules to {ECHO}:8080 counted 0 of 1 flow it got",),
    ),
    *altered_datagrams("packet"),
    altered_connection(),
]  # fmt: skip


ON_IPVS = [
    Attack(
        "rules lead to another Service with the same endpoint and back",
        rewritten(TWIN), "inconclusive", "The Service's virtual server never met the packet.", dialled=UDP,
        says=(f"the Service's DNAT rules to {ECHO}:8080 counted 0 of 1 flow it got; node-a has",),
    ),
    Attack(
        "a rule translates to the right pod before the virtual server does",
        (iptables("node-a", "nat", "PREROUTING", f"-d {VIP} -p tcp --dport 80 -j DNAT --to-destination {ECHO}:8080"),),
        "inconclusive", "The Service's virtual server never met the packet.",
        says=(f"the Service's DNAT rules to {ECHO}:8080 counted 0 of 1 flow it got; node-a has",),
    ),
    Attack(
        "a rule sets the engine's mark, where the author expects masquerading",
        (iptables("node-a", "mangle", "PREROUTING", f"-d {VIP} -j MARK --set-mark 0x4000"),),
        "inconclusive", "No rule of the engine marked the packet.", MASQUERADED,
        says=("and may have marked it in place of the engine's rules",),
    ),
    Attack(
        "IPVS rejects, and a rule drops the ICMP error",
        (nft("node-a", "output", 0, "icmp type destination-unreachable counter drop"),),
        "fail", "The sender must hear an ICMP error, and it heard nothing.", REJECTED, OF_EMPTY,
        why="which has no destination, and the ICMP error did not reach client", never="dropped the packet",
    ),
    *altered_datagrams("packet"),
    *altered_datagrams("connect"),
    altered_connection(),
]  # fmt: skip


lab = lab_of_module("embedded/nftables")
test_an_attack_on_mode_nftables = each_of(ATTACKS)


# The attacks on the other modes show what the judge makes of the same evidence.
@pytest.mark.thorough
@pytest.mark.needs_kernel(built=None)
def test_an_attack_on_mode_ipvs_in_a_guest() -> None:
    with attacked("embedded/ipvs", "uml") as lab:
        for attack in ON_IPVS:
            check(lab.judged(attack), attack)
