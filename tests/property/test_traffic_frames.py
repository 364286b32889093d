"""The lab crafts the frames that scapy builds, and dissects the frames that scapy built."""

import random
import struct
from ipaddress import IPv4Address, IPv6Address
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from proxylab.addresses import IPAddress, Transport
from proxylab.kernel.capture.batches import Frame
from proxylab.plan.resolved import ResolvedProbe, Sender
from proxylab.scenario.words import Manner
from proxylab.traffic.chunks import abort, init_ack
from proxylab.traffic.craft import enveloped, filling, first_packets, sentinels
from proxylab.traffic.dissect import ICMP, ICMPV6, SCTP, TCP, UDP, Chunk, dissect
from proxylab.traffic.fragments import Reassembly, cut
from proxylab.traffic.identity import Identity, TokenKind

MACS = ("02:00:00:00:00:01", "02:00:00:00:00:02")

addresses = st.integers(1, 2**32 - 2).map(IPv4Address)
addresses_6 = st.integers(1, 2**128 - 2).map(IPv6Address)
pairs = st.tuples(addresses, addresses) | st.tuples(addresses_6, addresses_6)
groups = st.lists(addresses, min_size=2, max_size=5) | st.lists(addresses_6, min_size=2, max_size=5)
ports = st.integers(1, 65535)
nonces = st.binary(min_size=8, max_size=8)
words = st.integers(0, 2**32 - 1)


@pytest.fixture(scope="module")
def inet() -> Any:
    from scapy.config import conf

    conf.route_autoload = conf.route6_autoload = False
    from scapy.layers import inet, inet6

    inet.IPv6 = inet6.IPv6  # one name for both, as tests want it
    inet.ICMPv6EchoRequest = inet6.ICMPv6EchoRequest
    inet.ICMPv6DestUnreach = inet6.ICMPv6DestUnreach
    return inet


def make_resolved_probe(
    protocol: Transport, source: IPAddress, destination: IPAddress, port: int, payload: int
) -> ResolvedProbe:
    sender = Sender(name="a", namespace="a", device="eth0", address=source, mac=MACS[0], next_hop_mac=MACS[1])
    return ResolvedProbe(
        number=0,
        name="a probe",
        sender=sender,
        destination=destination,
        port=port,
        protocol=protocol,
        manner=Manner.PACKET,
        flows=1,
        payload=payload,
        receivers=(),
        sentinels=(),
        nodes=(),
    )


def headers(inet: Any, source: IPAddress, destination: IPAddress) -> Any:
    ethernet = inet.Ether(dst=MACS[1], src=MACS[0])
    if source.version == 6:
        return ethernet / inet.IPv6(src=str(source), dst=str(destination))
    return ethernet / inet.IP(src=str(source), dst=str(destination), flags="DF")


@given(pairs, ports, st.lists(ports, min_size=1, max_size=5), nonces, words, st.integers(0, 64))
def test_a_patched_datagram_is_what_scapy_builds_for_that_flow(
    inet: Any, ends: tuple[IPAddress, IPAddress], port: int, sources: list[int], nonce: bytes, serial: int, payload: int
) -> None:
    identity = Identity(nonce, serial, 4, len(sources))
    resolved = make_resolved_probe(Transport.UDP, *ends, port, payload)
    for flow, frame in enumerate(first_packets(resolved, identity, sources)):
        built = headers(inet, *ends) / inet.UDP(sport=sources[flow], dport=port)
        assert frame == bytes(built / (identity.token(TokenKind.PROBE, flow) + filling(payload)))


@given(pairs, st.integers(1, 3), st.lists(ports, min_size=1, max_size=7))
def test_flows_leave_from_all_addresses_of_a_crowd_in_turn(
    ends: tuple[IPAddress, IPAddress], others: int, sources: list[int]
) -> None:
    identity = Identity(bytes(8), 0, 4, len(sources))
    alone = make_resolved_probe(Transport.UDP, *ends, 53, 0)
    more = tuple(type(ends[0])((int(ends[0]) + 1 + each) % 2**32) for each in range(others))
    crowd = replace(alone, sender=replace(alone.sender, others=more))
    frames = list(first_packets(crowd, identity, sources))
    assert len(frames) == len(sources)
    for flow, frame in enumerate(frames):
        lone = replace(alone, sender=replace(alone.sender, address=crowd.sender.address_of_flow(flow)))
        assert frame == list(first_packets(lone, identity, sources))[flow]
    assert [crowd.sender.address_of_flow(flow) for flow in range(others + 1)] == [ends[0], *more]


@given(pairs, ports, st.lists(ports, min_size=1, max_size=5), st.integers(100, 2**32 - 1))
def test_a_patched_syn_is_what_scapy_builds_for_that_flow(
    inet: Any, ends: tuple[IPAddress, IPAddress], port: int, sources: list[int], first: int
) -> None:
    identity = Identity(bytes(8), 0, first, len(sources))
    resolved = make_resolved_probe(Transport.TCP, *ends, port, 0)
    for flow, frame in enumerate(first_packets(resolved, identity, sources)):
        syn = inet.TCP(
            sport=sources[flow],
            dport=port,
            seq=identity.sequence(flow),
            flags="S",
            window=64240,
            options=[("MSS", 1460 if ends[0].version == 4 else 1440)],
        )
        assert frame == bytes(headers(inet, *ends) / syn)


@given(pairs, st.lists(ports, min_size=1, max_size=5), nonces, words, st.integers(0, 64))
def test_a_patched_echo_request_is_what_scapy_builds_for_that_flow(
    inet: Any, ends: tuple[IPAddress, IPAddress], identifiers: list[int], nonce: bytes, serial: int, payload: int
) -> None:
    identity = Identity(nonce, serial, 4, len(identifiers))
    resolved = make_resolved_probe(Transport.ICMP, *ends, 0, payload)
    icmp, kind = (ICMP, (8, 0)) if ends[0].version == 4 else (ICMPV6, (128, 0))
    assert resolved.protocol_number == icmp
    for flow, frame in enumerate(first_packets(resolved, identity, identifiers)):
        build = inet.ICMP if ends[0].version == 4 else inet.ICMPv6EchoRequest
        request = build(type=kind[0], id=identifiers[flow])
        assert frame == bytes(
            headers(inet, *ends) / request / (identity.token(TokenKind.PROBE, flow) + filling(payload))
        )
        read = dissect(frame)
        assert read is not None
        assert (read.protocol, read.icmp, read.source_port, read.destination_port) == (icmp, kind, identifiers[flow], 0)


@given(groups, nonces)
def test_a_patched_sentinel_packet_is_what_scapy_builds_for_that_address(
    inet: Any, group: list[IPAddress], nonce: bytes
) -> None:
    source, *targets = group
    identity = Identity(nonce, 0, 4, 1)
    sender = make_resolved_probe(Transport.TCP, source, source, 1, 0).sender
    request = inet.ICMP(type=8) if source.version == 4 else inet.ICMPv6EchoRequest()
    told = [(target, identity.token(TokenKind.SENTINEL, number)) for number, target in enumerate(targets)]
    for (target, token), frame in zip(told, sentinels(sender, told), strict=True):
        assert frame == bytes(headers(inet, source, target) / request / token)


def test_every_checksum_that_a_datagram_can_have_is_right() -> None:
    """All source ports in turn drive the checksum through all its values; zero is written as 0xFFFF (RFC 768)."""
    identity = Identity(bytes(8), 0, 4, 65536)
    resolved = make_resolved_probe(Transport.UDP, IPv4Address("10.0.0.1"), IPv4Address("10.0.0.2"), 80, 0)
    checksums = set()
    for frame in first_packets(resolved, identity, range(65536)):
        (checksum,) = struct.unpack_from("!H", frame, 40)
        checksums.add(checksum)
        assert sum_of_words(frame) % 0xFFFF == 0
    assert 0 not in checksums
    assert 0xFFFF in checksums


def sum_of_words(frame: bytes) -> int:
    """Over the pseudo header (RFC 768) and the datagram, whose checksum makes it a multiple of 0xFFFF."""
    datagram = frame[34:]
    pseudo = frame[26:34] + struct.pack("!HH", 17, len(datagram))
    return sum(struct.unpack(f"!{len(pseudo) // 2}H", pseudo)) + sum(
        struct.unpack(f"!{(len(datagram) + 1) // 2}H", datagram + bytes(len(datagram) % 2))
    )


@given(
    pairs,
    ports,
    ports,
    words,
    words,
    st.sampled_from(["S", "SA", "RA", "R", "PA"]),
    st.binary(max_size=40),
)
def test_tcp_is_read_as_scapy_wrote_it(
    inet: Any,
    ends: tuple[IPAddress, IPAddress],
    sport: int,
    dport: int,
    sequence: int,
    acknowledged: int,
    flags: str,
    payload: bytes,
) -> None:
    options = [("MSS", 1460), ("NOP", None), ("WScale", 7)]
    segment = inet.TCP(sport=sport, dport=dport, seq=sequence, ack=acknowledged, flags=flags, options=options)
    read = dissect(bytes(headers(inet, *ends) / segment / payload))
    assert read is not None
    assert (read.protocol, read.source, read.destination) == (TCP, *ends)
    assert (read.source_port, read.destination_port) == (sport, dport)
    assert (read.sequence, read.acknowledged, read.flags) == (sequence, acknowledged, int(segment.flags))
    assert read.payload == payload


@given(pairs, ports, ports, st.binary(max_size=80), st.integers(0, 20))
def test_udp_is_read_as_scapy_wrote_it_without_ethernet_s_padding(
    inet: Any, ends: tuple[IPAddress, IPAddress], sport: int, dport: int, payload: bytes, padding: int
) -> None:
    frame = bytes(headers(inet, *ends) / inet.UDP(sport=sport, dport=dport) / payload) + bytes(padding)
    read = dissect(frame)
    assert read is not None
    assert (read.protocol, read.source, read.destination) == (UDP, *ends)
    assert (read.source_port, read.destination_port, read.payload) == (sport, dport, payload)


@given(addresses, addresses, addresses, ports, ports, words, st.sampled_from([3, 5, 11, 12]), st.integers(8, 60))
def test_an_icmp_error_is_read_with_the_packet_it_quotes_however_short(
    inet: Any,
    router: IPv4Address,
    source: IPv4Address,
    destination: IPv4Address,
    sport: int,
    dport: int,
    sequence: int,
    kind: int,
    length: int,
) -> None:
    syn = inet.IP(src=str(source), dst=str(destination)) / inet.TCP(sport=sport, dport=dport, seq=sequence, flags="S")
    error = headers(inet, router, source) / inet.ICMP(type=kind, code=1)
    read = dissect(bytes(error))
    assert read is not None
    assert read.quoted is None, "an error that quotes nothing is an error all the same"
    frame = bytes(error / bytes(syn)[: 20 + length])
    read = dissect(frame)
    assert read is not None
    assert read.quoted is not None
    assert (read.protocol, read.icmp, read.source) == (ICMP, (kind, 1), router)
    quoted = read.quoted
    assert (quoted.source, quoted.destination) == (source, destination)
    assert (quoted.source_port, quoted.destination_port, quoted.sequence) == (sport, dport, sequence)
    assert quoted.flags == (None if length < 20 else 2)


@given(addresses_6, addresses_6, addresses_6, ports, words, st.sampled_from([1, 3, 4]), st.integers(8, 60))
def test_an_icmpv6_error_is_read_with_the_packet_it_quotes_however_short(
    inet: Any,
    router: IPv6Address,
    source: IPv6Address,
    destination: IPv6Address,
    port: int,
    sequence: int,
    kind: int,
    length: int,
) -> None:
    segment = inet.TCP(sport=1024, dport=port, seq=sequence, flags="S")
    syn = bytes(inet.IPv6(src=str(source), dst=str(destination)) / segment)
    unreachable = bytes(headers(inet, router, source) / inet.ICMPv6DestUnreach(code=4) / syn[: 40 + length])
    read = dissect(unreachable[:54] + bytes([kind]) + unreachable[55:])
    assert read is not None
    assert (read.protocol, read.icmp, read.source) == (ICMPV6, (kind, 4), router)
    assert read.quoted is not None
    assert (read.quoted.source, read.quoted.destination) == (source, destination)
    assert (read.quoted.destination_port, read.quoted.sequence) == (port, sequence)
    assert read.quoted.flags == (None if length < 20 else 2)


@given(st.binary(max_size=120))
def test_no_bytes_raise(data: bytes) -> None:
    dissect(data)
    dissect(bytes(12) + b"\x08\x00" + data)
    dissect(bytes(12) + b"\x08\x00\x45" + data)
    dissect(bytes(12) + b"\x86\xdd" + data)
    dissect(bytes(12) + b"\x86\xdd\x60" + data)


@given(st.sampled_from(["tcp", "udp", "icmp", "tcp6", "udp6"]), st.integers(0, 200), st.randoms(use_true_random=False))
def test_no_damage_to_a_frame_raises_and_no_part_of_one_is_taken_for_the_whole(
    inet: Any, layer: str, cut: int, rng: random.Random
) -> None:
    a: IPAddress = IPv4Address("10.0.0.1")
    b: IPAddress = IPv4Address("10.0.0.2")
    if layer.endswith("6"):
        a, b = IPv6Address("fd00::1"), IPv6Address("fd00::2")
    udp = inet.UDP(sport=1, dport=2) / (b"x" * 60)
    transport = {
        "tcp": inet.TCP(flags="S", options=[("MSS", 1460)]) / (b"x" * 60),
        "udp": udp,
        "icmp": inet.ICMP(type=3, code=3) / inet.IP() / udp,
    }[layer.rstrip("6")]
    frame = bytes(headers(inet, a, b) / transport)
    assert dissect(frame) is not None
    if cut < len(frame):
        assert dissect(frame[:cut]) is None
    damaged = bytearray(frame)
    for _ in range(4):
        damaged[rng.randrange(len(damaged))] = rng.randrange(256)
    dissect(bytes(damaged))


@given(pairs, ports, st.lists(ports, min_size=1, max_size=3), st.integers(4, 2**32 - 100))
def test_an_init_is_what_scapy_builds_for_that_flow_and_is_read_back(
    inet: Any, ends: tuple[IPAddress, IPAddress], port: int, sources: list[int], first: int
) -> None:
    from scapy.layers import sctp

    identity = Identity(bytes(8), 0, first, len(sources))
    resolved = make_resolved_probe(Transport.SCTP, *ends, port, 0)
    for flow, frame in enumerate(first_packets(resolved, identity, sources)):
        tag = identity.sequence(flow)
        init = sctp.SCTPChunkInit(
            init_tag=tag, a_rwnd=106496, n_out_streams=10, n_in_streams=10, init_tsn=tag, params=[]
        )
        built = headers(inet, *ends) / sctp.SCTP(sport=sources[flow], dport=port) / init
        expected = bytearray(bytes(built))
        if ends[0].version == 4:  # scapy counts packets in the identification, which DF makes meaningless (RFC 6864)
            expected[18:20], expected[24:26] = frame[18:20], frame[24:26]
            assert sum(struct.unpack("!10H", frame[14:34])) % 0xFFFF == 0
        assert frame == bytes(expected)
        read = dissect(frame)
        assert read is not None
        assert (read.protocol, read.source, read.destination) == (SCTP, *ends)
        assert (read.source_port, read.destination_port) == (sources[flow], port)
        assert (read.sequence, read.acknowledged, read.flags) == (tag, 0, Chunk.INIT)


@given(ports, ports, words)
def test_the_answers_to_an_init_bear_its_tag_and_a_checksum_that_scapy_agrees_with(
    port: int, other: int, tag: int
) -> None:
    from scapy.layers import sctp

    for packet, kind in ((init_ack(port, other, tag), Chunk.INIT_ACK), (abort(port, other, tag), Chunk.ABORT)):
        blank = packet[:8] + bytes(4) + packet[12:]
        assert struct.unpack("<I", packet[8:12])[0] == struct.unpack("<I", sctp.crc32c(blank).to_bytes(4, "big"))[0]
        ends = (IPv4Address("10.0.0.1"), IPv4Address("10.0.0.2"))
        read = dissect(enveloped((bytes(6), bytes(6)), ends, SCTP, packet))
        assert read is not None
        assert (read.acknowledged, read.flags) == (tag, kind)


@given(pairs, st.integers(0, 6000), st.integers(1280, 1500), st.randoms(use_true_random=False))
def test_a_packet_that_was_cut_is_whole_again_when_its_last_fragment_has_come(
    ends: tuple[IPAddress, IPAddress], payload: int, mtu: int, rng: random.Random
) -> None:
    resolved = make_resolved_probe(Transport.UDP, *ends, 80, payload)
    (frame,) = first_packets(resolved, Identity(bytes(8), 0, 4, 1), [1024])
    pieces = list(cut(frame, mtu, 7))
    assert all(len(piece) <= 14 + mtu for piece in pieces)
    if len(pieces) == 1:
        assert pieces == [frame]
        return
    if ends[0].version == 4:
        rng.shuffle(pieces)
    reassembly = Reassembly()
    *others, last = [Frame(piece, False, 0) for piece in pieces]
    assert [reassembly.take("a", "eth0", each) for each in [*others, *others]] == [None] * (2 * len(others))
    assert reassembly.take("b", "eth0", last) is None, "another tap's fragments do not count here"
    whole = reassembly.take("a", "eth0", last)
    assert whole is not None
    assert dissect(whole) == dissect(frame)


@given(st.binary(max_size=120))
def test_no_bytes_raise_when_they_are_put_together(data: bytes) -> None:
    reassembly = Reassembly()
    for head in (b"", bytes(12) + b"\x08\x00\x45", bytes(12) + b"\x86\xdd\x60" + bytes(5) + b"\x2c"):
        reassembly.take("a", "eth0", Frame(head + data, False, 0))
