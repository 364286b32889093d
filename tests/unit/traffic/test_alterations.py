"""What taps take for otherwise than sent: data, the IP checksum of an answer, the packet that an ICMP error quotes."""

from collections.abc import Callable

import pytest
from scapy.layers.inet import ICMP, IP, TCP, UDP, Ether
from scapy.layers.inet6 import IPv6

from proxylab.addresses import Transport
from proxylab.evidence.evidence import Altered, Packet, Part
from proxylab.kernel.capture.batches import Frame
from proxylab.traffic.alterations import has_ip_checksum
from proxylab.traffic.craft import filling
from proxylab.traffic.fragments import cut
from proxylab.traffic.identity import Identity, TokenKind
from proxylab.traffic.legs import TapPoint
from proxylab.traffic.match import Matcher

IDENTITY = Identity(bytes(8), 0, 1 << 20, 4)
SENDER, POD = TapPoint("client", "eth0", is_sender=True), TapPoint("echo", "eth0", is_sender=False)
CLIENT, SERVICE, ECHO = "10.244.0.10", "10.96.0.1", "10.244.1.10"
TAIL = filling(100)
REQUEST, REPLY = (IDENTITY.token(kind, 1) for kind in (TokenKind.PROBE, TokenKind.REPLY))


def udp(source: tuple[str, int], to: tuple[str, int], payload: bytes) -> bytes:
    return bytes(Ether() / IP(src=source[0], dst=to[0]) / UDP(sport=source[1], dport=to[1]) / payload)


def found(protocol: Transport, *seen: tuple[TapPoint, bool, bytes]) -> tuple[Altered, ...]:
    """What a matcher finds altered in frames, each with its tap and whether it left the device there."""
    matcher = Matcher(IDENTITY, protocol, tail=TAIL)
    for tap, outgoing, frame in seen:
        matcher.take(tap, [Frame(frame, outgoing, 1, False)])
    return matcher.altered


LEAVES = SENDER, True, udp((CLIENT, 4000), (SERVICE, 80), REQUEST + TAIL)
ARRIVES = POD, False, udp((CLIENT, 4000), (ECHO, 8080), REQUEST + TAIL)
ANSWERS = POD, True, udp((ECHO, 8080), (CLIENT, 4000), REPLY + b" {}")
HEARS = SENDER, False, udp((SERVICE, 80), (CLIENT, 4000), REPLY + b" {}")


def test_addresses_and_ports_may_change() -> None:
    assert found(Transport.UDP, LEAVES, ARRIVES, ANSWERS, HEARS) == ()


def marked(dscp: int, six: bool, payload: bytes) -> bytes:
    ends = ("fd00::10", "fd00::1") if six else (CLIENT, SERVICE)
    header = (
        IPv6(src=ends[0], dst=ends[1], tc=dscp << 2 | 1) if six else IP(src=ends[0], dst=ends[1], tos=dscp << 2 | 1)
    )
    return bytes(Ether() / header / UDP(sport=4000, dport=80) / payload)


@pytest.mark.parametrize("six", [False, True], ids=["IPv4", "IPv6"])
@pytest.mark.parametrize(("sent", "came"), [(0, 46), (46, 0), (63, 62)])
def test_a_request_keeps_its_mark_for_queues(six: bool, sent: int, came: int) -> None:
    left = (SENDER, True, marked(sent, six, REQUEST + TAIL))
    assert found(Transport.UDP, left, (POD, False, marked(sent, six, REQUEST + TAIL))) == ()
    other = (POD, False, marked(came, six, REQUEST + TAIL))
    assert found(Transport.UDP, left, other) == (
        Altered(1, Packet.REQUEST, "echo", "eth0", Part.DSCP, str(sent), str(came)),
    )


def test_an_answer_has_a_mark_of_its_own() -> None:
    left = (SENDER, True, marked(46, False, REQUEST + TAIL))
    assert found(Transport.UDP, left, ANSWERS, HEARS) == ()


@pytest.mark.parametrize("at", [48, 100, 147])
def test_a_changed_byte_of_a_request_is_told_where_it_came(at: int) -> None:
    changed = bytearray(REQUEST + TAIL)
    changed[at] ^= 1
    came = (POD, False, udp((CLIENT, 4000), (ECHO, 8080), bytes(changed)))
    (altered,) = found(Transport.UDP, LEAVES, came)
    assert (altered.flow, altered.packet, altered.netns_name, altered.part) == (1, Packet.REQUEST, "echo", Part.DATA)
    whole = (REQUEST + TAIL)[at : at + 4]
    assert altered.sent == f"{whole.hex(' ')} at byte {at}"
    assert altered.seen == f"{bytes([whole[0] ^ 1, *whole[1:]]).hex(' ')} at byte {at}"


@pytest.mark.parametrize("data", [REQUEST, REQUEST + TAIL[:-1], REQUEST + TAIL + b"x"])
def test_a_shorter_or_longer_request_is_another_one(data: bytes) -> None:
    (altered,) = found(Transport.UDP, LEAVES, (POD, False, udp((CLIENT, 4000), (ECHO, 8080), data)))
    assert altered.part is Part.DATA
    assert "its end at byte" in (altered.sent if len(data) > len(REQUEST + TAIL) else altered.seen)


@pytest.mark.parametrize("six", [False, True], ids=["IPv4", "IPv6"])
def test_each_sighting_has_the_time_to_live_and_the_mark_of_its_packet(six: bool) -> None:
    matcher = Matcher(IDENTITY, Transport.UDP, tail=TAIL)
    frame = Ether(marked(46, six, REQUEST + TAIL))
    setattr(frame[IPv6 if six else IP], "hlim" if six else "ttl", 33)
    matcher.take(SENDER, [Frame(bytes(frame), True, 1, False)])
    assert [(each.ttl, each.dscp) for each in matcher.observations] == [(33, 46)]


@pytest.mark.parametrize("six", [False, True], ids=["IPv4", "IPv6"])
def test_a_fragment_has_no_header_to_rely_on(six: bool) -> None:
    matcher = Matcher(IDENTITY, Transport.UDP, tail=filling(4000))
    ends = ("fd00::10", "fd00::1") if six else (CLIENT, SERVICE)
    header = IPv6(src=ends[0], dst=ends[1]) if six else IP(src=ends[0], dst=ends[1])
    whole = bytes(Ether() / header / UDP(sport=4000, dport=80) / (REQUEST + filling(4000)))
    for piece in cut(whole, 1400, 7):
        matcher.take(SENDER, [Frame(piece, True, 1, False)])
    assert [(each.ttl, each.dscp) for each in matcher.observations] == [(0, 0)]


def test_an_answer_is_what_the_pod_sent() -> None:
    came = (SENDER, False, udp((SERVICE, 80), (CLIENT, 4000), REPLY + b" {!"))
    assert found(Transport.UDP, LEAVES, ARRIVES, ANSWERS, came) == (
        Altered(1, Packet.REPLY, "client", "eth0", Part.DATA),
    )


@pytest.mark.parametrize(("kind", "packet"), [(8, Packet.REQUEST), (0, Packet.REPLY)])
def test_an_echo_has_the_same_data_there_and_back(kind: int, packet: Packet) -> None:
    def echo(data: bytes) -> bytes:
        return bytes(Ether() / IP(src=CLIENT, dst=ECHO) / ICMP(type=kind, id=7) / data)

    assert found(Transport.ICMP, (POD, False, echo(REQUEST + TAIL))) == ()
    (altered,) = found(Transport.ICMP, (POD, False, echo(REQUEST + TAIL[::-1])))
    assert (altered.packet, altered.part) == (packet, Part.DATA)


def refused(quoted: bytes) -> tuple[TapPoint, bool, bytes]:
    return SENDER, False, bytes(Ether() / IP(src="10.244.0.1", dst=CLIENT) / ICMP(type=3, code=3) / quoted)


QUOTES: dict[str, Callable[[IP], object]] = {
    "destination": lambda packet: setattr(packet, "dst", "10.96.0.9"),
    "source": lambda packet: setattr(packet, "src", "10.244.0.9"),
    "destination port": lambda packet: setattr(packet[UDP], "dport", 81),
    "source port": lambda packet: setattr(packet[UDP], "sport", 4001),
}


@pytest.mark.parametrize("field", QUOTES)
def test_an_icmp_error_quotes_the_packet_that_was_sent(field: str) -> None:
    packet = Ether(LEAVES[2])[IP]
    assert found(Transport.UDP, LEAVES, refused(bytes(packet))) == ()
    QUOTES[field](packet)
    (altered,) = found(Transport.UDP, LEAVES, refused(bytes(packet)))
    assert (altered.packet, altered.part, altered.sent) == (
        Packet.PORT_UNREACHABLE, Part.QUOTE, f"{CLIENT}:4000 > {SERVICE}:80"
    )  # fmt: skip


def test_a_quote_on_the_way_is_of_the_translated_packet() -> None:
    node = POD._replace(netns_name="node-a", transit=True)
    quoted = bytes(Ether(ARRIVES[2])[IP])
    assert found(Transport.UDP, LEAVES, (node, *refused(quoted)[1:])) == ()


def syn_ack(checksum: int | None = None) -> bytes:
    acknowledged = (IDENTITY.sequence(1) + 1) & 0xFFFFFFFF
    segment = TCP(sport=80, dport=4000, flags="SA", seq=9, ack=acknowledged)
    return bytes(Ether() / IP(src=SERVICE, dst=CLIENT, chksum=checksum) / segment)


def test_the_answer_to_a_crafted_packet_has_its_ip_checksum() -> None:
    assert has_ip_checksum(syn_ack())
    assert found(Transport.TCP, (SENDER, False, syn_ack())) == ()
    assert not has_ip_checksum(syn_ack(0x1234))
    (altered,) = found(Transport.TCP, (SENDER, False, syn_ack(0x1234)))
    assert (altered.packet, altered.part) == (Packet.REPLY, Part.CHECKSUM)
