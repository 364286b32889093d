"""Packets that come otherwise than they were sent, and answers that one packet gets twice: none of them is a pass."""

from typing import Any

from altered_data import ANSWER, DATA_STAYS, REQUEST, SEGMENT, altered_connection, altered_datagrams
from attacked_lab import DELIVERED, ECHO, ECHO_6, IPV6, Attack, Dialled, each_of, lab_of_module, nft

REJECTED = {"outcome": "rejected", "at": "node-a"}
REFUSED = {"outcome": "refused"}
QUOTED = "An ICMP error quotes the packet that it is about, as its sender sent it."
ONCE = "A packet gets one answer."
UNREACHABLE_6 = "icmpv6 type destination-unreachable"
CLIENT_6 = "fd00:10:244::a"

ATTACKS = [
    *(attack for manner in ("packet", "connect") for attack in altered_datagrams(manner)),
    altered_connection(),
    *(
        Attack(
            f"the ICMP error quotes another destination, over {port}",
            (nft("node-a", "output", 300, "icmp type destination-unreachable @nh,352,32 set 0x00490a60"),),
            "fail", QUOTED, REJECTED, Dialled(service="empty", port=port, send={"as": "packet"}),
            says=("outcome: the ICMP error quotes another packet than was sent",),
        )
        for port in ("tcp", "udp")
    ),
    *(
        Attack(
            f"the ICMP error comes twice, {manner}",
            (nft("node-a", "postrouting", 300, "icmp type destination-unreachable dup to 10.244.0.10 device client"),),
            "fail", ONCE, REJECTED, Dialled(service="empty", send={"as": manner}),
            says=("outcome: client sent it once, and heard an ICMP error twice",),
        )
        for manner in ("packet", "connect")
    ),
    Attack(
        "the reset comes twice",
        (nft("node-a", "postrouting", 300, "tcp flags & rst == rst dup to 10.244.0.10 device client"),),
        "fail", ONCE, REFUSED, Dialled(port="closed", send={"as": "packet"}),
        says=("outcome: client sent it once, and heard a reset twice",),
    ),
    Attack(
        "the answer to a crafted packet comes with a wrong IP checksum",
        (nft("node-a", "postrouting", 300, "oifname client tcp sport 80 @ll,192,16 set 0x1234"),),
        "fail", DATA_STAYS, DELIVERED, Dialled(send={"as": "packet"}),
        says=("reply: the reply came to client/eth0 with a wrong IP checksum",),
    ),
    Attack(
        "a rule changes the data of a datagram on its way over IPv6",
        (nft("node-b", "postrouting", 300, REQUEST, family="ip6"),),
        "fail", DATA_STAYS, DELIVERED, Dialled(port="udp", send={"as": "packet", "payload": 600}, to=IPV6),
        says=("outcome: the data of the request had changed on the way when it came to",),
    ),
    Attack(
        "a rule changes the data of an answer on its way over IPv6",
        (nft("node-b", "prerouting", -350, ANSWER.replace(f"ip saddr {ECHO}", f"ip6 saddr {ECHO_6}"), family="ip6"),),
        "fail", DATA_STAYS, DELIVERED, Dialled(port="udp", send={"as": "packet", "payload": 600}, to=IPV6),
        says=("reply: the data of the reply had changed on the way when it came to",),
    ),
    Attack(
        "a rule changes the data of a connection on its way over IPv6",
        (nft("node-b", "postrouting", 300, SEGMENT, family="ip6"),),
        "fail", DATA_STAYS, DELIVERED, Dialled(send={"as": "connect", "payload": 600}, to=IPV6),
        says=("outcome: the data of the request had changed on the way when it came to echo",),
    ),
    *(
        Attack(
            f"the ICMP error quotes another destination over IPv6, over {port}",
            (nft("node-a", "output", 300, f"{UNREACHABLE_6} @nh,672,32 set 0x1060149", family="ip6"),),
            "fail", QUOTED, REJECTED, Dialled(service="empty", port=port, send={"as": "packet"}, to=IPV6),
            says=("outcome: the ICMP error quotes another packet than was sent",),
        )
        for port in ("tcp", "udp")
    ),
    *(
        Attack(
            f"the ICMP error comes twice over IPv6, {manner}",
            (nft("node-a", "postrouting", 300, f"{UNREACHABLE_6} dup to {CLIENT_6} device client", family="ip6"),),
            "fail", ONCE, REJECTED, Dialled(service="empty", send={"as": manner}, to=IPV6),
            says=("outcome: client sent it once, and heard an ICMP error twice",),
        )
        for manner in ("packet", "connect")
    ),
    Attack(
        "the reset comes twice over IPv6",
        (nft("node-a", "postrouting", 300, f"tcp flags & rst == rst dup to {CLIENT_6} device client", family="ip6"),),
        "fail", ONCE, REFUSED, Dialled(port="closed", send={"as": "packet"}, to=IPV6),
        says=("outcome: client sent it once, and heard a reset twice",),
    ),
]  # fmt: skip

lab: Any = lab_of_module("embedded/iptables")
test_what_comes_otherwise_than_it_was_sent_fails: Any = each_of(ATTACKS)
