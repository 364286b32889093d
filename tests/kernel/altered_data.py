"""Attacks that change data on its way behind the proxy, alike in each mode: no mode makes up for them."""

from collections.abc import Mapping
from typing import Final

from attacked_lab import DELIVERED, ECHO, Attack, Dialled, nft

__all__ = ["ANSWER", "DATA_STAYS", "REQUEST", "SEGMENT", "altered_connection", "altered_datagrams"]

DATA_STAYS: Final = "A proxy changes addresses and ports, and no data."
REQUEST: Final = "oifname echo udp dport 8080 @th,1600,32 set 0xdeadbeef udp checksum set 0"
ANSWER: Final = f"ip saddr {ECHO} udp sport 8080 @th,456,8 set 0x20 udp checksum set 0"
"""A datagram with another payload needs another checksum, or none; with none, only a look at the data shows it."""
SEGMENT: Final = "oifname echo tcp dport 8080 tcp flags & psh == psh @th,2400,32 set 0x41424344"


def altered_datagrams(manner: str, expect: Mapping[str, object] = DELIVERED) -> tuple[Attack, Attack]:
    """A rule changes the data of a datagram, and of its answer."""
    dialled = Dialled(port="udp", send={"as": manner, "payload": 600})
    return (
        Attack(
            f"a rule changes the data of a datagram on its way, {manner}",
            (nft("node-b", "postrouting", 300, REQUEST),),
            "fail", DATA_STAYS, expect, dialled,
            says=("outcome: the data of the request had changed on the way when it came to",),
        ),
        Attack(
            f"a rule changes the data of an answer on its way, {manner}",
            (nft("node-b", "prerouting", -350, ANSWER),),
            "fail", DATA_STAYS, expect, dialled,
            says=("reply: the data of the reply had changed on the way when it came to",),
        ),
    )  # fmt: skip


def altered_connection(expect: Mapping[str, object] = DELIVERED) -> Attack:
    """A rule changes the data of a connection."""
    return Attack(
        "a rule changes the data of a connection on its way",
        (nft("node-b", "postrouting", 300, SEGMENT),),
        "fail", DATA_STAYS, expect, Dialled(send={"as": "connect", "payload": 600}),
        says=("outcome: the data of the request had changed on the way when it came to echo",),
    )  # fmt: skip
