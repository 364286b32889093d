"""What reports of nf_tables come to: rules that were met, and where those that translate sent each packet."""

import struct
from ipaddress import ip_address
from types import SimpleNamespace
from typing import Any

from proxylab.addresses import Family, IPAddress
from proxylab.engines.embedded.nftables.meter import TraceMeter, counted_reports
from proxylab.kernel.netfilter.nft_trace import NftEvent
from proxylab.kernel.sandbox.netns import NetNs
from proxylab.rules.nft_listing import ListedRule

TABLE = "kube-proxy"
SERVICE, MASQUERADE, REJECT, HAIRPIN = 11, 12, 13, 14
RULES = (
    ListedRule("service-A", SERVICE, "numgen random mod 2 vmap { 0 : goto endpoint-1, 1 : goto endpoint-2 } dnat to x"),
    ListedRule("masquerading", MASQUERADE, "masquerade fully-random"),
    ListedRule("reject-chain", REJECT, "reject"),
    ListedRule("masquerading", HAIRPIN, "ct status dnat ip saddr . ip daddr @hairpin-connections masquerade"),
)

CLIENT, FRONT = ip_address("10.244.0.9"), ip_address("10.96.0.1")
PODS = ip_address("10.244.1.5"), ip_address("10.244.2.5")
CLIENT_6, FRONT_6, POD_6 = ip_address("fd00::9"), ip_address("fd00:96::1"), ip_address("fd00::5")


def headers(source: IPAddress, port: int, destination: IPAddress, destination_port: int) -> bytes:
    """A network header, and the first bytes of TCP's."""
    ports = struct.pack("!HH16x", port, destination_port)
    if source.version == 6:
        return struct.pack("!IHBB", 6 << 28, 20, 6, 64) + source.packed + destination.packed + ports
    return struct.pack("!BxHxxxxBBxx", 0x45, 40, 64, 6) + source.packed + destination.packed + ports


def event(
    identity: int, *, handle: int = 0, verdict: str = "accept", packet: bytes = b"", table: str = TABLE
) -> NftEvent:
    kind = "rule" if handle else "policy"
    chain = next((rule.chain for rule in RULES if rule.handle == handle), "base")
    return NftEvent(identity, 2, table, chain, kind, handle, verdict, 0, packet, 0, 0)


def came(events: list[NftEvent]) -> list[tuple[str, int, str, IPAddress | None, int]]:
    found = counted_reports("node-a", TABLE, events, RULES)
    return [(each.chain, each.packets, each.target, each.destination, each.destination_port) for each in found]


def packet(identity: int, port: int, pod: IPAddress, after: int | None = None) -> list[NftEvent]:
    """A packet that is translated; with ``after``, it has that identity from then on."""
    begin = event(identity, packet=headers(CLIENT, port, FRONT, 80))
    translated = event(identity, handle=SERVICE)
    onward = event(identity if after is None else after, packet=headers(CLIENT, port, pod, 8080))
    return [begin, translated, onward]


def test_a_translation_is_what_the_packet_looks_like_in_its_next_chain() -> None:
    events = [*packet(1, 40000, PODS[0]), *packet(2, 40001, PODS[1]), *packet(3, 40002, PODS[0])]
    events[5:5] = [event(2, table="another", packet=b"")]
    events.insert(8, event(3, handle=MASQUERADE))
    assert came(events) == [
        ("service-A", 2, "DNAT", PODS[0], 8080),
        ("service-A", 1, "DNAT", PODS[1], 8080),
        ("masquerading", 1, "MASQUERADE", None, 0),
    ]


def test_a_packet_is_followed_where_the_kernel_gives_it_another_number() -> None:
    first, second = packet(1, 40000, PODS[0], after=7), packet(2, 40001, PODS[1], after=8)
    together = [first[0], second[0], first[1], second[1], second[2], first[2]]
    assert sorted(came(together), key=lambda each: each[3]) == [
        ("service-A", 1, "DNAT", PODS[0], 8080),
        ("service-A", 1, "DNAT", PODS[1], 8080),
    ]


def test_a_number_is_used_again_for_the_next_packet() -> None:
    events = [*packet(1, 40000, PODS[0]), *packet(1, 40001, PODS[1])]
    assert [each[3] for each in came(events)] == [PODS[0], PODS[1]]


def test_one_that_comes_to_no_further_chain_is_sent_nowhere_that_is_known() -> None:
    assert came(packet(1, 40000, PODS[0])[:2]) == [("service-A", 1, "DNAT", None, 0)]
    assert came([event(1, handle=SERVICE)]) == [("service-A", 1, "DNAT", None, 0)]


def test_ipv6_is_read_as_well() -> None:
    events = [
        event(1, packet=headers(CLIENT_6, 40000, FRONT_6, 80)),
        event(1, handle=SERVICE),
        event(9, packet=headers(CLIENT_6, 40000, POD_6, 8080)),
    ]
    assert came(events) == [("service-A", 1, "DNAT", POD_6, 8080)]


def test_a_rejection_is_no_drop() -> None:
    assert came([event(1, handle=REJECT, verdict="drop")]) == [("reject-chain", 1, "REJECT", None, 0)]


async def nothing() -> str:
    return ""


def test_a_socket_that_holds_few_reports_lets_few_flows_go_at_once() -> None:
    meter: Any = TraceMeter(NetNs("node-a", -1), Family.IPV4, TABLE, nothing)
    assert meter.max_frames_in_flight is None, "it has no socket yet"
    flows = []
    for reports in (100_000, 332, 5):
        meter._trace = SimpleNamespace(room=reports)
        flows.append(meter.max_frames_in_flight // 8)
    assert flows == [3125, 10, 1]


def test_a_rule_that_matches_translated_connections_masquerades() -> None:
    found = counted_reports("node-a", TABLE, [*packet(1, 40000, PODS[0]), event(1, handle=HAIRPIN)], RULES)
    assert [each.target for each in found] == ["DNAT", "MASQUERADE"]
