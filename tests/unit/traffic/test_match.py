"""What a packet is to its flow, whatever its addresses say."""

import struct
from ipaddress import IPv4Address

import pytest

from proxylab.addresses import Transport
from proxylab.evidence.evidence import Direction, Observation, Packet
from proxylab.kernel.capture.batches import Frame
from proxylab.traffic.chunks import abort
from proxylab.traffic.identity import Identity, TokenKind
from proxylab.traffic.match import Matcher, SentinelSighting, TapPoint

SENDER = TapPoint("client", "eth0", is_sender=True)
POD = TapPoint("echo", "eth0")
A, B = IPv4Address("10.0.0.1"), IPv4Address("10.0.0.2")
IDENTITY = Identity(bytes(8), 0, 1000, 5)
SYN, RST, ACK, PSH = 2, 4, 16, 8


def ip(protocol: int, rest: bytes, source: IPv4Address = A, destination: IPv4Address = B) -> bytes:
    header = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(rest), 0, 0, 64, protocol, 0)
    return header + source.packed + destination.packed + rest


def tcp(flags: int, sequence: int = 0, acknowledged: int = 0, sport: int = 1024) -> bytes:
    return ip(6, struct.pack("!HHIIBBHHH", sport, 80, sequence, acknowledged, 0x50, flags, 0, 0, 0))


def udp(payload: bytes) -> bytes:
    return ip(17, struct.pack("!HHHH", 1024, 80, 8 + len(payload), 0) + payload)


def icmp(kind: int, code: int, rest: bytes, destination: IPv4Address = B) -> bytes:
    return ip(1, struct.pack("!BBHI", kind, code, 0, 0) + rest, destination=destination)


def frame(packet: bytes, *, outgoing: bool = False, at: int = 7) -> Frame:
    return Frame(bytes(12) + b"\x08\x00" + packet, outgoing, at)


def seen(
    protocol: Transport, vantage: TapPoint, *frames: Frame, sockets: dict[int, int] | None = None
) -> tuple[Observation, ...]:
    matcher = Matcher(IDENTITY, protocol, sockets)
    matcher.take(vantage, frames)
    return matcher.observations


def test_an_observation_has_packet_tap_time_and_addresses() -> None:
    packet = udp(IDENTITY.token(TokenKind.PROBE, 3))
    assert seen(Transport.UDP, POD, frame(packet)) == (
        Observation(3, "echo", "eth0", Direction.IN, Packet.REQUEST, Transport.UDP, A, 1024, B, 80, 7, ttl=64),
    )


@pytest.mark.parametrize(
    ("packet", "expected"),
    [
        (tcp(SYN, IDENTITY.sequence(3)), Packet.REQUEST),
        (tcp(SYN | ACK, 99, IDENTITY.sequence(3) + 1), Packet.REPLY),
        (tcp(RST | ACK, 0, IDENTITY.sequence(3) + 1), Packet.RESET),
        (icmp(3, 3, tcp(SYN, IDENTITY.sequence(3))), Packet.PORT_UNREACHABLE),
        (icmp(3, 3, tcp(SYN, IDENTITY.sequence(3))[:28]), Packet.PORT_UNREACHABLE),
        (icmp(3, 13, tcp(SYN, IDENTITY.sequence(3))), Packet.OTHER_ICMP),
        (icmp(11, 0, tcp(SYN, IDENTITY.sequence(3))), Packet.OTHER_ICMP),
    ],
)
def test_what_the_sender_hears_of_a_tcp_flow(packet: bytes, expected: Packet) -> None:
    (found,) = seen(Transport.TCP, SENDER, frame(packet))
    assert (found.flow, found.packet) == (3, expected)
    if expected in (Packet.PORT_UNREACHABLE, Packet.OTHER_ICMP):
        assert found.icmp == (packet[20], packet[21])


@pytest.mark.parametrize(
    "packet",
    [
        tcp(SYN, IDENTITY.sequence(3) + 1),
        tcp(SYN, IDENTITY.sequence(5)),
        tcp(SYN | ACK, IDENTITY.sequence(3), 99),
        tcp(ACK, IDENTITY.sequence(3), IDENTITY.sequence(3) + 1),
        tcp(RST, IDENTITY.sequence(3)),
        icmp(3, 3, tcp(SYN | ACK, IDENTITY.sequence(3))),
        icmp(3, 3, udp(IDENTITY.token(TokenKind.PROBE, 3))),
        udp(IDENTITY.token(TokenKind.PROBE, 3)),
    ],
)
def test_what_belongs_to_no_tcp_flow_is_passed_over(packet: bytes) -> None:
    assert seen(Transport.TCP, SENDER, frame(packet)) == ()


def ip6(protocol: int, rest: bytes) -> bytes:
    return struct.pack("!IHBB", 6 << 28, len(rest), protocol, 64) + bytes(32) + rest


@pytest.mark.parametrize(
    ("kind", "code", "expected", "unsettled"),
    [
        (1, 4, Packet.PORT_UNREACHABLE, 4),
        (1, 0, Packet.OTHER_ICMP, 4),
        (3, 0, Packet.OTHER_ICMP, 4),
        (2, 0, Packet.OTHER_ICMP, 5),  # too big a packet is advice (RFC 4443, section 3.2)
    ],
)
def test_what_the_sender_hears_of_an_ipv6_flow(kind: int, code: int, expected: Packet, unsettled: int) -> None:
    syn = ip6(6, tcp(SYN, IDENTITY.sequence(3))[20:])
    error = ip6(58, struct.pack("!BBHI", kind, code, 0, 0) + syn)
    matcher = Matcher(IDENTITY, Transport.TCP)
    matcher.take(SENDER, [Frame(bytes(12) + b"\x86\xdd" + error, False, 7)])
    (found,) = matcher.observations
    assert (found.flow, found.packet, found.icmp) == (3, expected, (kind, code))
    assert matcher.unsettled == unsettled


def test_a_reset_counts_where_it_is_heard_by_the_sender_and_where_the_pod_utters_it() -> None:
    reset = tcp(RST | ACK, 0, IDENTITY.sequence(3) + 1)
    assert len(seen(Transport.TCP, SENDER, frame(reset))) == 1
    assert len(seen(Transport.TCP, POD, frame(reset, outgoing=True))) == 1
    assert seen(Transport.TCP, SENDER, frame(reset, outgoing=True)) == ()
    assert seen(Transport.TCP, POD, frame(reset)) == ()


def test_the_sender_s_own_reset_of_an_unasked_syn_ack_is_passed_over() -> None:
    assert seen(Transport.TCP, SENDER, frame(tcp(RST, IDENTITY.sequence(3) + 1), outgoing=True)) == ()


def test_an_icmp_error_about_a_reply_is_the_sender_s_own_and_passed_over() -> None:
    about_reply = icmp(3, 3, udp(IDENTITY.token(TokenKind.REPLY, 3)))
    assert seen(Transport.UDP, SENDER, frame(about_reply, outgoing=True)) == ()
    assert len(seen(Transport.UDP, SENDER, frame(icmp(3, 3, udp(IDENTITY.token(TokenKind.PROBE, 3)))))) == 1


def test_a_number_that_the_kernel_chose_is_learned_at_the_sender_only() -> None:
    matcher = Matcher(IDENTITY, Transport.TCP, {1024: 2})
    syn = tcp(SYN, 123456, sport=1024)
    matcher.take(POD, [frame(syn)])
    assert matcher.observations == (), "a tuple is no identity"
    matcher.take(SENDER, [frame(syn, outgoing=True)])
    rewritten = tcp(SYN, 123456, sport=40000)
    matcher.take(POD, [frame(rewritten), frame(tcp(SYN | ACK, 9, 123457), outgoing=True)])
    assert [(o.flow, o.netns_name, o.packet) for o in matcher.observations] == [
        (2, "client", Packet.REQUEST),
        (2, "echo", Packet.REQUEST),
        (2, "echo", Packet.REPLY),
    ]


def test_a_flow_is_settled_by_arrival_and_reply_or_by_being_turned_away() -> None:
    matcher = Matcher(IDENTITY, Transport.TCP)
    first = IDENTITY.sequence(0)
    matcher.take(SENDER, [frame(tcp(SYN, first), outgoing=True)])
    assert matcher.unsettled == 5, "sent is not arrived"
    matcher.take(SENDER, [frame(tcp(SYN | ACK, 9, first + 1))])
    assert matcher.unsettled == 5, "a reply to what never arrived settles nothing"
    matcher.take(POD, [frame(tcp(SYN, first))])
    assert matcher.unsettled == 4
    matcher.take(SENDER, [frame(tcp(RST | ACK, 0, IDENTITY.sequence(1) + 1))])
    matcher.take(SENDER, [frame(icmp(3, 3, tcp(SYN, IDENTITY.sequence(2))))])
    assert matcher.unsettled == 2
    matcher.take(SENDER, [frame(icmp(5, 1, tcp(SYN, IDENTITY.sequence(3))))])
    matcher.take(POD, [frame(tcp(RST | ACK, 0, IDENTITY.sequence(4) + 1), outgoing=True)])
    assert matcher.unsettled == 2, "a redirect is advice, and a reset that the sender has not heard is not the end"


def test_sentinels_are_seen_where_they_come_in() -> None:
    matcher = Matcher(IDENTITY, Transport.TCP)
    token = IDENTITY.token(TokenKind.SENTINEL, 6)
    matcher.take(SENDER, [frame(icmp(8, 0, token), outgoing=True), frame(icmp(0, 0, token, A), at=9)])
    matcher.take(POD, [frame(icmp(8, 0, token)), frame(icmp(0, 0, IDENTITY.token(TokenKind.PROBE, 3)))])
    assert matcher.sentinels == [SentinelSighting(6, True, "client", A, 9), SentinelSighting(6, False, "echo", B, 7)]
    assert matcher.observations == ()


def test_what_is_seen_on_its_way_through_a_node_settles_nothing() -> None:
    matcher = Matcher(IDENTITY, Transport.TCP)
    transit = TapPoint("node-a", "eth0", transit=True)
    first = IDENTITY.sequence(0)
    sentinel = icmp(0, 0, IDENTITY.token(TokenKind.SENTINEL, 1))
    passing = [tcp(SYN, first), tcp(SYN | ACK, 9, first + 1), tcp(RST | ACK, 0, first + 1), icmp(3, 3, tcp(SYN, first))]
    matcher.take(transit, [frame(packet, outgoing=out) for packet in [*passing, sentinel] for out in (False, True)])
    assert [seen.packet for seen in matcher.observations] == [
        packet
        for packet in (Packet.REQUEST, Packet.REPLY, Packet.RESET, Packet.PORT_UNREACHABLE)
        for _ in ("in", "out")
    ]
    assert (matcher.unsettled, matcher.sentinels) == (5, [])


def echo(kind: int, identifier: int, token: bytes) -> bytes:
    return ip(1, struct.pack("!BBHHH", kind, 0, 0, identifier, 0) + token)


def test_an_echo_request_and_its_reply_bear_one_token_and_are_told_apart_by_their_type() -> None:
    token = IDENTITY.token(TokenKind.PROBE, 3)
    asked, answered = seen(Transport.ICMP, POD, frame(echo(8, 77, token)), frame(echo(0, 77, token), outgoing=True))
    assert (asked.flow, asked.packet, asked.source_port, asked.destination_port) == (3, Packet.REQUEST, 77, 0)
    assert (answered.flow, answered.packet, answered.source_port, answered.destination_port) == (3, Packet.REPLY, 0, 77)
    assert (asked.icmp, answered.icmp) == (None, None), "what is no error needs no number"


def test_an_icmp_error_about_an_echo_request_belongs_to_its_flow_and_one_about_a_reply_to_none() -> None:
    token = IDENTITY.token(TokenKind.PROBE, 3)
    (told,) = seen(Transport.ICMP, SENDER, frame(icmp(3, 3, echo(8, 77, token))))
    assert (told.flow, told.packet, told.icmp) == (3, Packet.PORT_UNREACHABLE, (3, 3))
    assert seen(Transport.ICMP, SENDER, frame(icmp(3, 3, echo(0, 77, token)))) == ()


def test_a_probes_echo_request_says_nothing_to_a_run_of_another_protocol() -> None:
    assert seen(Transport.UDP, POD, frame(echo(8, 77, IDENTITY.token(TokenKind.PROBE, 3)))) == ()


def test_a_sentinel_is_noted_and_no_packet_of_a_flow_of_echo_requests() -> None:
    matcher = Matcher(IDENTITY, Transport.ICMP)
    matcher.take(POD, [frame(echo(8, 0, IDENTITY.token(TokenKind.SENTINEL, 3)))])
    assert (matcher.observations, [sentinel.number for sentinel in matcher.sentinels]) == ((), [3])


def test_a_syn_of_another_namespace_teaches_no_number_though_it_has_the_senders_port() -> None:
    matcher = Matcher(IDENTITY, Transport.TCP, {1024: 2})
    syn = tcp(SYN, 123456, sport=1024)
    for tap in (POD, TapPoint("node-a", "eth0", transit=True)):
        matcher.take(tap, [frame(syn, outgoing=True), frame(syn)])
    matcher.take(SENDER, [frame(syn)])
    assert matcher.observations == ()


def test_an_association_of_another_namespace_teaches_no_tag_though_it_has_the_senders_port() -> None:
    init = ip(132, sctp(1, 0, tag=77))
    matcher = Matcher(IDENTITY, Transport.SCTP, {1024: 2})
    for tap in (POD, TapPoint("node-a", "eth0", transit=True)):
        matcher.take(tap, [frame(init, outgoing=True), frame(init)])
    matcher.take(SENDER, [frame(init)])
    assert matcher.observations == ()
    matcher.take(SENDER, [frame(init, outgoing=True)])
    assert [(each.flow, each.packet) for each in matcher.observations] == [(2, Packet.REQUEST)]


def sctp(kind: int, verification: int, *, tag: int) -> bytes:
    """An SCTP packet with one chunk, INIT or INIT ACK, that begins with the sender's tag (RFC 9260, section 3.3.2)."""
    chunk = struct.pack("!BBHIIHHI", kind, 0, 20, tag, 65535, 1, 1, tag)
    return struct.pack("!HHII", 1024, 80, verification, 0) + chunk


@pytest.mark.parametrize(
    ("tap", "outgoing", "counts"),
    [
        (SENDER, False, True),
        (SENDER, True, False),
        (POD, True, True),
        (POD, False, False),
        (TapPoint("node-a", "eth0", transit=True), True, True),
        (TapPoint("node-a", "eth0", transit=True), False, True),
    ],
)
def test_an_abort_counts_where_it_is_heard_by_the_sender_and_where_the_pod_utters_it(
    tap: TapPoint, outgoing: bool, counts: bool
) -> None:
    refused = frame(ip(132, abort(80, 1024, IDENTITY.sequence(3))), outgoing=outgoing)
    assert [(each.flow, each.packet) for each in seen(Transport.SCTP, tap, refused)] == [(3, Packet.RESET)] * counts
